"""Quotas seen and changed from the command line, where they are: in a quota file, or at a server.

A *place* is either. Both can list what they have and take changes; a running proxy notices a changed file.
"""

from __future__ import annotations

import fcntl
import grp
import os
import pwd
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, Protocol

from sluice.proxy.cli.options import in_words
from sluice.proxy.cli.quotas.edit import Changes, Whom, edited, with_section
from sluice.proxy.cli.quotas.listing import Difference, Listing, differences, kafka_line, listing_of
from sluice.proxy.cli.quotas.sections import in_the_file
from sluice.quotas.files.config_error import Problem, QuotaFileError
from sluice.quotas.files.load import MAX_QUOTAS_BYTES, read_given, read_piped, read_text
from sluice.quotas.files.quota_file import parse_quotas

STANDARD_INPUT: Final = "-"
_NO_LIMITS: Final = "quotas: []\n"
_WAIT_S: Final = 60.0
_AGAIN_S: Final = 0.05
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
        so are those in shadow mode that get or lose a limit."""
        with self.alone():
            before = self._text()
            now = self.listing()
            touched = {difference.whom for difference in found if difference.whom}
            anew = {whom for whom in touched if _is_written_anew(now, wanted, whom)}
            changes: dict[Whom, dict[str, float | None]] = {}
            for difference in found:
                if difference.whom and difference.whom not in anew:
                    limit = wanted.limits.get(difference.whom, {}).get(difference.key)
                    changes.setdefault(difference.whom, {})[difference.key] = limit
            new = [wanted.entry(whom) for whom in wanted.limits if whom in anew]
            after = edited(before, self.name, changes, gone=anew, new=new)
            sections = {difference.section for difference in found if difference.section}
            for section in sections:
                items = wanted.sections.get(section, ())
                after = with_section(after, self.name, section, in_the_file(section, items))
            self._write(before, after)
            # Whoever else was changed since the differences were found stays as he is now.
            left = differences(self.listing(), wanted)
            missed = [one for one in left if one.whom in touched or one.section in sections]
            assert not missed, missed

    def rewrite(self, edit: Callable[[str], str]) -> bool:
        """Put what `edit` makes of its text in its place. Raises ConfigError as `alter`."""
        with self.alone():
            before = self._text()
            return self._write(before, edit(before))

    @contextmanager
    def alone(self) -> Iterator[None]:
        """No other command of Sluice changes the file meanwhile; an editor may. Raises ConfigError.

        A lock on its folder, so that nothing is left beside it: the file itself is exchanged for another.
        """
        if self._alone or str(self.file) == STANDARD_INPUT:
            yield
            return
        try:
            folder = os.open(Path(os.path.realpath(self.file)).parent, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:  # what is wrong there is told by who reads or writes the file
            yield
            return
        try:
            self._lock(folder)
            self._alone = True
            yield
        finally:
            self._alone = False
            os.close(folder)

    def _lock(self, folder: int) -> None:
        for _ in range(int(_WAIT_S / _AGAIN_S)):
            try:
                fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                time.sleep(_AGAIN_S)
            except OSError:  # a file system without such locks
                return
        message = f"another command has been changing it for {_WAIT_S:g} s; try again when that has ended"
        raise QuotaFileError([Problem(message, source=self.name)])

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
            _replace(self.file, after)
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


def _replace(file: Path, text: str) -> None:
    """At once, with the owner, group and rights it has; a link stays one. Raises OSError: it is untouched."""
    file = Path(os.path.realpath(file))
    beside = file.with_name(f".{file.name}.new")
    try:
        with open(beside, "w", encoding="utf-8", newline="") as new:
            new.write(text)
            new.flush()
            os.fsync(new.fileno())
            if file.exists():
                before = file.stat()
                _give(new.fileno(), before)
                os.chmod(new.fileno(), before.st_mode & 0o777)
        os.replace(beside, file)
    except OSError:
        with suppress(OSError):
            beside.unlink()
        raise


def _give(new: int, before: os.stat_result) -> None:
    """The new file to whom the old one belongs: a proxy of another user could not read it else, and would not
    start with it. Raises OSError."""
    now = os.fstat(new)
    if (now.st_uid, now.st_gid) == (before.st_uid, before.st_gid):
        return
    try:
        os.fchown(new, before.st_uid, before.st_gid)
    except OSError:
        with suppress(OSError):
            os.fchown(new, -1, before.st_gid)
        now = os.fstat(new)
        by_group = bool(before.st_mode & 0o040) and now.st_gid == before.st_gid
        if now.st_uid == before.st_uid or by_group or before.st_mode & 0o004:
            return  # who could read it still can: its owner, its group, or everybody
        message = (
            f"belongs to {_owner(before)}, and the new file would be {_owner(now)}'s, which a proxy of that "
            f"user may not read; run the command as root, or as that user: sudo -u '{_user(before.st_uid)}' …"
        )
        raise PermissionError(message) from None


def _owner(found: os.stat_result) -> str:
    """As `chown` takes it: `sluice:sluice`, numbers where there are no names."""
    try:
        group = grp.getgrgid(found.st_gid).gr_name
    except KeyError:
        group = str(found.st_gid)
    return f"{_user(found.st_uid)}:{group}"


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"#{uid}"
