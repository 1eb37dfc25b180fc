"""Quotas seen and changed from the command line, where they are: in a quota file, or at a server.

A *place* is either. Both can list what they have and take changes; a running proxy notices a changed file.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Final, Protocol

from sluice.proxy.cli.options import in_words
from sluice.proxy.cli.quotas.edit import Changes, Whom, edited, with_section
from sluice.proxy.cli.quotas.listing import Difference, Listing, differences, kafka_line, listing_of
from sluice.proxy.cli.quotas.sections import in_the_file
from sluice.proxy.cli.whole_file import alone_in, replace_whole
from sluice.quotas.files.config_error import Problem, QuotaFileError
from sluice.quotas.files.load import MAX_QUOTAS_BYTES, read_given, read_piped, read_text
from sluice.quotas.files.quota_file import parse_quotas

STANDARD_INPUT: Final = "-"
_NO_LIMITS: Final = "quotas: []\n"
RELOAD_S: Final = 1.0
"""QuotaOptions.reload_interval_s's default; a test compares them"""


class Place(Protocol):
    """Where quotas are kept. What goes wrong is raised as ConfigError, at a server also as CommandFailed."""

    @property
    def name(self) -> str:
        """What messages call it."""
        ...

    @property
    def written(self) -> str:
        """Where a change went, and when it is in force: a sentence."""
        ...

    def listing(self) -> Listing:
        """All that is there."""
        ...

    def alter(self, changes: Mapping[Whom, Changes]) -> bool:
        """Set and remove limits. False: all of it was so already."""
        ...

    def become(self, wanted: Listing, found: Sequence[Difference], *, in_part: bool = False) -> None:
        """Say the same as `wanted`, from which it has these differences. `in_part`: what a server does not
        refuse is changed, though it refuses something; else nothing is."""
        ...

    def alone(self, *also: Path) -> AbstractContextManager[None]:
        """Meanwhile no other command of Sluice changes it, if it is a file, nor what lies in the folders
        `also`. A server or socket has no lock: of two commands that change one limit there the later wins.
        Raises ConfigError."""
        ...


class QuotaFilePlace:
    """A quota file, edited in place: comments and order stay. `-` is standard input, which is only read."""

    def __init__(self, file: Path, reload_interval_s: float | None = None) -> None:
        """`reload_interval_s`: how often the proxy looks at it, if that is known."""
        self.file = file
        self.name = "standard input" if str(file) == STANDARD_INPUT else str(file)
        self.may_be_new = False
        """a file that is not there yet is one without limits, and is made when it gets some"""
        self._alone = False
        self._reload_interval_s = reload_interval_s

    @property
    def is_new(self) -> bool:
        """It is not there, and may be made."""
        return self.may_be_new and not self.file.exists()

    @property
    def written(self) -> str:
        """Where a change went, and when it is in force: a sentence."""
        within_s = self._reload_interval_s
        within = f"{RELOAD_S:g} s, or its quotas.reload_interval_s" if within_s is None else f"{within_s:g} s"
        return (
            f"Written to the file {self.file.resolve()}; a proxy that runs with it takes it within {within}."
        )

    def read(self) -> str:
        """The text, of a pipe too. Raises ConfigError if it cannot be read."""
        if self.is_new:
            return _NO_LIMITS
        if str(self.file) == STANDARD_INPUT:  # as UTF-8, whatever the locale, as a file is
            return read_piped(sys.stdin.buffer, self.name, "quota", MAX_QUOTAS_BYTES)
        return read_given(self.file, "quota")

    def listing(self) -> Listing:
        """Raises ConfigError if the file cannot be used."""
        return listing_of(self.read(), self.name)

    def alter(self, changes: Mapping[Whom, Changes]) -> bool:
        """Raises ConfigError, the file untouched, if it cannot be read, used, edited so, or written."""
        with self.alone():
            before = self._text()
            return self._write(before, edited(before, self.name, changes))

    def become(self, wanted: Listing, found: Sequence[Difference], *, in_part: bool = False) -> None:
        """Entries of which an option changes are written anew, without the comments within them;
        so are those in shadow mode that get or lose a limit. Raises ConfigError as `alter`, and if an editor
        has changed what differed."""
        with self.alone():
            before = self._text()
            now = listing_of(before, self.name)
            touched = {difference.whom for difference in found if difference.whom}
            sections = {difference.section for difference in found if difference.section}

            def left_at(listing: Listing) -> set[Difference]:
                """Whoever else was changed since the differences were found stays as he is now."""
                left = differences(listing, wanted)
                return {one for one in left if one.whom in touched or one.section in sections}

            if left_at(now) != set(found):
                message = "has been changed while it was compared; nothing is written: try again"
                raise QuotaFileError([Problem(message, source=self.name)])
            anew = {whom for whom in touched if _is_written_anew(now, wanted, whom)}
            changes: dict[Whom, dict[str, float | None]] = {}
            for difference in found:
                if difference.whom and difference.whom not in anew:
                    limit = wanted.limits.get(difference.whom, {}).get(difference.key)
                    changes.setdefault(difference.whom, {})[difference.key] = limit
            new = [wanted.entry(whom) for whom in wanted.limits if whom in anew]
            after = edited(before, self.name, changes, gone=anew, new=new)
            for section in sections:
                items = wanted.sections.get(section, ())
                after = with_section(after, self.name, section, in_the_file(section, items))
            missed = left_at(listing_of(after, f"{self.name}, as it would be"))
            assert not missed, missed
            self._write(before, after)

    def rewrite(self, edit: Callable[[str], str]) -> bool:
        """Put what `edit` makes of its text in its place. Raises ConfigError as `alter`."""
        with self.alone():
            before = self._text()
            return self._write(before, edit(before))

    @contextmanager
    def alone(self, *also: Path) -> Iterator[None]:
        """From the first look at it to its last change; within it `also` is passed over."""
        if self._alone:
            yield
            return
        folders = {folder: str(folder) for folder in also}
        if str(self.file) != STANDARD_INPUT:
            folders[Path(os.path.realpath(self.file)).parent] = self.name
        with alone_in(folders):
            self._alone = True
            try:
                yield
            finally:
                self._alone = False

    def _text(self) -> str:
        """With its own ends of lines."""
        if str(self.file) == STANDARD_INPUT:
            raise QuotaFileError([Problem("is only read; name a file to change", source=self.name)])
        if self.is_new:
            return _NO_LIMITS
        parse_quotas(read_text(self.file, "quota"), self.name)
        return self.file.read_bytes().decode("utf-8")

    def _write(self, before: str, after: str) -> bool:
        if after == before and not self.is_new:
            return False
        parse_quotas(after, f"{self.file}, as it would be")
        if len(after.encode()) > MAX_QUOTAS_BYTES:  # no proxy would read it again
            message = (
                f"would have more than {MAX_QUOTAS_BYTES:,} bytes, which no proxy reads; remove entries that "
                "are not needed any more"
            )
            raise QuotaFileError([Problem(message, source=self.name)])
        try:
            replace_whole(self.file, after)
        except OSError as error:
            raise QuotaFileError(
                [Problem(f"cannot be written: {in_words(error)}", source=self.name)]
            ) from None
        return True


def lines_of(listing: Listing, whoms: Sequence[Whom]) -> list[str]:
    """What `--describe` prints: a line for each entity, as Kafka's tool has it; of shadow mode behind it."""
    lines = []
    for whom in whoms:
        line = kafka_line(whom, listing.limits[whom])
        shadow = listing.shadow.get(whom)
        line += f" (in shadow mode: {', '.join(sorted(shadow))})" if shadow else ""
        line += " (over budget: refuse)" if whom in listing.refusing else ""
        lines.append(f"{line} (with a schedule)" if whom in listing.schedules else line)
    return lines


def _is_written_anew(now: Listing, wanted: Listing, whom: Whom) -> bool:
    """An option of it changes; or may, for `shadow: true` covers whatever limits it has, and over_budget
    goes with the limit that it is of."""
    before, after = now.shadow.get(whom, frozenset()), wanted.shadow.get(whom, frozenset())
    if before != after or now.schedules.get(whom) != wanted.schedules.get(whom):
        return True
    if (whom in now.refusing) != (whom in wanted.refusing):
        return True
    return bool(before) and now.limits.get(whom, {}).keys() != wanted.limits.get(whom, {}).keys()
