"""What a night remembers besides states: each limit's anchor, and the grants that persons gave.

OUT/standing/DATE.json   each night's: {key: {entity: [anchor, current, proposed, applied, word, ended]}}; a
                         night reads the newest that is older than its own date, so that a date run again
                         gives the same plan, and its own of before: by that it knows limits that it has set
                         itself. What a night by a clock that was ahead has left counts as the newest until
                         one by the right date has gone on from it, and as that of the date before from then
                         on
OUT/grants.json          `sluice quotas apply` writes it
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, timedelta
from typing import Any, Final, TypeAlias

from sluice.quotas.entity_key import LimitOrigin, in_force, origin_of
from sluice.quotas.files.config_error import shown
from sluice.quotas.files.json_text import number_from, parse_json, text_from
from sluice.quotas.kinds import KIND_BY_KEY
from sluice.quotas.limits.limits import QuotaLimits
from sluice.recalibration.log.reader import LogFolder
from sluice.recalibration.policy.plan import PlanEntry
from sluice.recalibration.policy.standing import Grant, Standing
from sluice.recalibration.state.json_files import read_json, write_json
from sluice.recalibration.state.store import json_dates_in

_STANDING: Final = "standing"
_GRANTS: Final = "grants.json"
_Limit = tuple[str, str]
"""key, entity"""
Standings: TypeAlias = Mapping[_Limit, Standing]


@dataclass(frozen=True, slots=True)
class Remembered:
    """What earlier runs knew of limits."""

    before: Standings = field(default_factory=dict)
    """the newest night's before this date; of an older date that is run again the newest of all, for the
    limits in force are by that"""
    again: Standings = field(default_factory=dict)
    """this date's own, when it was run before"""
    is_newest: bool = True
    """no later date was run yet, up to today"""
    ahead: Sequence[str] = ()
    """files of dates to come, the newest last: `before` is that one, for a night by a clock that was ahead
    has set the limits in force"""


def ahead_of(out: str, today: date) -> list[str]:
    """The files of nights that are later than today, in order. Raises OSError."""
    place = LogFolder.of(out)
    return [f"{place.scheme}{path}" for path, day in json_dates_in(place, _STANDING) if day > today]


def remembered(out: str, day: date, today: date = date.max) -> Remembered:
    """Read what the night of `day` must know of earlier ones. Raises OSError."""
    place = LogFolder.of(out)
    there = json_dates_in(place, _STANDING)
    if not there:
        return Remembered()
    newest, newest_day = there[-1]
    if newest_day > day:
        ahead = [path for path, its in there if its > max(day, today)]
        is_newest = all(its <= day for path, its in there if path not in ahead)
        return Remembered(_standings(place, newest), is_newest=is_newest, ahead=ahead)
    older = [path for path, its in there if its < day]
    return Remembered(
        _standings(place, older[-1]) if older else {}, _standings(place, newest) if newest_day == day else {}
    )


def is_remembered(limits: QuotaLimits, grants: Mapping[_Limit, Grant], place: _Limit) -> bool:
    """Whether to remember a limit (key, entity) that was not used in the days of the history: not one by a
    default, of which nothing is known then but the default's number. That is its anchor when it comes back.
    """
    key, entity = place
    kind = KIND_BY_KEY.get(key)
    if kind is None or place in grants or in_force(limits, kind, entity) is None:
        return True  # without a limit, too: it may be this night's quota file that is not the right one
    return origin_of(limits, kind, entity) is LimitOrigin.OWN


def standing_of(entry: PlanEntry) -> Standing:
    """What the next night must know of a limit that tonight's plan has."""
    now = Standing(entry.anchor, entry.current, entry.proposed, word=entry.word, ended=entry.ended_grant)
    if entry.made_from is None:
        return now
    return replace(now, current=entry.made_from, applied=entry.current)


def write_standings(
    out: str,
    day: date,
    entries: Iterable[PlanEntry],
    known: Remembered,
    is_kept: Callable[[_Limit], bool] = lambda _: True,
) -> None:
    """Write down what this night knows. Raises OSError.

    A limit without an entry tonight keeps what was known, if `is_kept` (`is_remembered`): clients make up
    names without end, and each night reads and writes the whole file.
    Of an older date that was run again nothing: later nights have gone on from what it was.
    """
    if not known.is_newest:
        return
    kept = {place: one for place, one in {**known.before, **known.again}.items() if is_kept(place)}
    for entry in entries:
        kept[entry.key, entry.entity] = standing_of(entry)
    content: dict[str, dict[str, list[float | None]]] = {}
    for (key, entity), one in kept.items():
        content.setdefault(key, {})[entity] = one.numbers
    place = LogFolder.of(out)
    folder = f"{place.root.rstrip('/')}/{_STANDING}"
    write_json(place, f"{folder}/{day}.json", content)
    if known.ahead:  # when their dates have come they would be the newest once more
        *others, newest = known.ahead
        place.filesystem.move(newest, f"{folder}/{day - timedelta(days=1)}.json")
        for path in others:
            place.filesystem.delete_file(path)


def grants_on(out: str, day: date) -> dict[_Limit, Grant]:
    """Those in force in the night over the log of `day`, which is the one behind it. Raises OSError."""
    place = LogFolder.of(out)

    def in_force(content: dict[str, Any]) -> dict[_Limit, Grant]:
        return {
            (text_from(item["key"]), text_from(item["entity"])): Grant(up_to, until.toordinal())
            for item in content.get("grants", ())
            if (up_to := number_from(item["up_to"])) and (until := date.fromisoformat(item["until"])) > day
        }

    return read_json(place, f"{place.root.rstrip('/')}/{_GRANTS}", in_force, {})


def _standings(place: LogFolder, path: str) -> dict[_Limit, Standing]:
    def taken(content: dict[str, Any]) -> dict[_Limit, Standing]:
        return {
            (key, _checked(entity)): _standing(numbers)
            for key, entities in content.items()
            for entity, numbers in entities.items()
        }

    return read_json(place, path, taken, {})


def _standing(numbers: Sequence[Any]) -> Standing:
    """Raises TypeError or ValueError for what is none."""
    anchor, current, proposed, *more = numbers
    return Standing(
        *map(number_from, (anchor, current, proposed)),
        *(None if number is None else number_from(number) for number in more),
    )


def _checked(entity: str) -> str:
    """Raises ValueError for what is no entity (quotas/entity_key.py)."""
    parts = parse_json(entity)
    if not isinstance(parts, dict) or not all(isinstance(name, str) for name in parts.values()):
        raise ValueError(f"{shown(entity)} is no entity")
    return entity
