"""What stood in the place of a plan's limits before it was applied: a file beside it, for `--rollback`.

Written whole before anything is changed, and renamed into place: whatever ends the command, it is known what
was. A plan may be applied at several places, and in several goes; of each limit the oldest value is kept.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from sluice.proxy.cli.options import in_words
from sluice.proxy.cli.plan.file import whom_of_key
from sluice.proxy.cli.plan.kept_file import read_kept, replace_with
from sluice.proxy.cli.quotas.edit import Whom
from sluice.quotas.files.config_error import ConfigError, Problem, shown
from sluice.quotas.files.json_text import number_from, text_from

RECORD: Final = "rollback.json"
_VERSION: Final = 1
_REMEDY: Final = (
    "put it back from a backup, or move it away: what limits were before the plan is lost then "
    "(--record FILE names another)"
)


@dataclass(frozen=True, slots=True)
class Replaced:
    """One limit that a plan has changed."""

    whom: Whom
    key: str
    before: float | None
    """None: there was none for this entity itself"""
    after: float
    since: float | None = None
    """what it was when the plan was applied once more, a part of the way: what it still is where that failed.
    None: the plan was applied once, or has been since"""

    def is_made(self, limit: float | None) -> bool:
        """Whether the plan may have made this of it."""
        return limit is not None and limit in {self.after, self.since}


class PlanRecord:
    """The record of what one plan replaced."""

    def __init__(self, file: Path) -> None:
        """One that is not there is empty. Each call reads it: others write it, too, of other places."""
        self.file = file

    def of(self, place: str) -> list[Replaced]:
        """What was replaced at this place, in the order in which it was. Raises ConfigError for a file that
        cannot be used."""
        return self._read().get(place, [])

    def add(self, place: str, replaced: Iterable[Replaced]) -> None:
        """Keep them on disk. Raises ConfigError if that fails; then nothing may be changed."""
        places = self._read()
        kept = {(one.whom, one.key): one for one in places.get(place, ())}
        for one in replaced:
            earlier = kept.get((one.whom, one.key))
            if earlier is None or one.before == earlier.before:
                kept[one.whom, one.key] = one
            else:
                kept[one.whom, one.key] = replace(one, before=earlier.before, since=one.before)
        self._write({**places, place: list(kept.values())})

    def settle(self, place: str, done: Iterable[Replaced]) -> None:
        """These have been made what was added last. Raises ConfigError."""
        places = self._read()
        limits = {(one.whom, one.key) for one in done}
        its = places.get(place, [])
        settled = [replace(one, since=None) if (one.whom, one.key) in limits else one for one in its]
        if settled != its:
            self._write({**places, place: settled})

    def forget(self, place: str, done: Iterable[Replaced]) -> None:
        """These were put back; the others stay on record. Raises ConfigError."""
        places = self._read()
        gone = set(done)
        left = [one for one in places.pop(place, ()) if one not in gone]
        self._write({**places, place: left} if left else places)

    def _read(self) -> dict[str, list[Replaced]]:
        nothing: dict[str, list[Replaced]] = {}
        return read_kept(self.file, self._taken, nothing, _REMEDY)

    def _taken(self, document: dict[str, Any]) -> dict[str, list[Replaced]]:
        version = document["version"]
        if isinstance(version, bool) or version != _VERSION:
            message = f"is {shown(version)}; this Sluice reads {_VERSION}: use the one that applied the plan"
            raise ConfigError([Problem(message, path="version", source=str(self.file))])
        return {name: [_replaced(item) for item in items] for name, items in document["places"].items()}

    def _write(self, places: dict[str, list[Replaced]]) -> None:
        document = {
            "version": _VERSION,
            "places": {name: [_item(one) for one in items] for name, items in places.items()},
        }
        try:
            if not places:
                self.file.unlink(missing_ok=True)
            else:
                replace_with(self.file, document)
        except OSError as error:
            message = f"cannot be written: {in_words(error)}; name another with --record FILE"
            raise ConfigError([Problem(message, source=str(self.file))]) from None


def _item(one: Replaced) -> dict[str, Any]:
    item = {"entity": dict(one.whom), "key": one.key, "before": one.before, "after": one.after}
    return item if one.since is None else item | {"since": one.since}


def _replaced(item: dict[str, Any]) -> Replaced:
    before, since = item["before"], item.get("since")
    return Replaced(
        whom_of_key(json.dumps(item["entity"], ensure_ascii=False)),
        text_from(item["key"]),
        None if before is None else number_from(before),
        number_from(item["after"]),
        None if since is None else number_from(since),
    )
