"""What outlives one plan, beside the job's plans: cuts of unattended nights, what persons have granted, and
what they have rolled back.

    OUT/unattended.json    place → key → (date, limits cut by in all), of the last seven dates
    OUT/grants.json        {"grants": [{"entity", "key", "up_to", "until", "plan"}]}: the job reads it
    OUT/rolled_back.json   {"rolled_back": [{"entity", "key", "until"}]}: no unattended night changes these

Written whole, and renamed into place.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from datetime import date, timedelta
from pathlib import Path
from typing import Any, Final, TypeAlias, TypeVar

from sluice.proxy.cli.options import in_words
from sluice.proxy.cli.plan.file import PlannedLimit
from sluice.proxy.cli.plan.kept_file import read_kept, replace_with
from sluice.quotas.files.config_error import ConfigError, Problem
from sluice.quotas.files.json_text import number_from, text_from

WEEK: Final = timedelta(days=7)
GRANT: Final = timedelta(days=14)
_MOST_OVER: Final = 1_000
"""notes in a file, beyond which none stays that is over"""
_CUTS: Final = "unattended.json"
_GRANTS: Final = "grants.json"
_ROLLED_BACK: Final = "rolled_back.json"
_PLANS: Final = "plans"
_REMEDIES: Final = {
    _CUTS: "put it back from a backup, or remove it: the week of what nights may cut begins anew then",
    _GRANTS: "put it back from a backup, or remove it: what persons have granted is lost then",
    _ROLLED_BACK: "put it back from a backup, or remove it: what persons rolled back is changed again then",
}
Limit: TypeAlias = tuple[str, str]
"""entity (quotas/entity_key.py), key"""
_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


def folder_of(plan: Path) -> Path:
    """The job's --out if the plan lies there, else the plan's own folder."""
    folder = plan.parent
    return folder.parent.parent if folder.parent.name == _PLANS else folder


def cuts_of_night(folder: Path, place: str, today: date) -> dict[str, float]:
    """Key → what unattended nights have cut at this place on this date. Raises ConfigError."""
    return _cuts_from(folder, place, today, today)


def cuts_of_week(folder: Path, place: str, today: date) -> dict[str, float]:
    """Likewise in the seven days up to `today`."""
    return _cuts_from(folder, place, today - WEEK + timedelta(days=1), today)


def _cuts_from(folder: Path, place: str, first: date, last: date) -> dict[str, float]:
    # What a clock that was ahead has booked of later dates counts once these have come.
    return {
        key: sum(amount for day, amount in days if first <= day <= last)
        for key, days in _cuts(folder, place).items()
    }


def add_cuts(folder: Path, place: str, today: date, cuts: Mapping[str, float]) -> None:
    """Before they are made; what is older than a week, and was so to those before, is forgotten: a clock that
    is ahead for a night forgets nothing. Raises ConfigError."""
    own = _cuts(folder, place)
    for key, amount in cuts.items():
        booked = own.get(key, [])
        last = min(today, max((day for day, _ in booked), default=today))
        own[key] = [*((day, its) for day, its in booked if day > last - WEEK), (today, amount)]
    _write_cuts(folder, place, own)


def take_back_cuts(
    folder: Path, place: str, today: date, cuts: Mapping[str, float], made: Mapping[str, float]
) -> None:
    """They were added, and only `made` of them were made. Raises ConfigError."""
    own = _cuts(folder, place)
    for key, amount in cuts.items():
        if (today, amount) in own.get(key, ()):
            own[key].remove((today, amount))
            own[key] += [(today, made[key])] if key in made else []
    _write_cuts(folder, place, own)


def _write_cuts(folder: Path, place: str, own: Mapping[str, list[tuple[date, float]]]) -> None:
    told = {key: [[day.isoformat(), its] for day, its in days] for key, days in own.items()}
    _write(folder / _CUTS, {**_read(folder / _CUTS, dict), place: told})


def forget_cuts(folder: Path, place: str) -> None:
    """A person has applied a plan here: the week begins anew. Raises ConfigError."""
    places = _read(folder / _CUTS, dict)
    if places.pop(place, None) is not None:
        _write(folder / _CUTS, places)


def add_grants(folder: Path, granted: Iterable[PlannedLimit], today: date, plan: Path) -> None:
    """Each replaces an earlier one of the same limit, whatever plan gave that. Raises ConfigError."""
    kept = _grants(folder)
    until = (today + GRANT).isoformat()
    for limit in granted:
        item = {"entity": limit.entity, "key": limit.key, "up_to": limit.up_to, "until": until}
        kept[limit.entity, limit.key] = item | {"plan": _name_of(plan)}
    _forget(kept, {limit: date.fromisoformat(item["until"]) for limit, item in kept.items()}, today)
    _write(folder / _GRANTS, {"grants": list(kept.values())})


def granted_by(folder: Path, plan: Path) -> set[Limit]:
    """Limits that are granted more, and were by this plan. Raises ConfigError."""
    return {limit for limit, item in _grants(folder).items() if item.get("plan") == _name_of(plan)}


def _name_of(plan: Path) -> str:
    """Its folder's, of which each run of a night has one."""
    return Path(os.path.realpath(plan)).parent.name


def forget_grants(folder: Path, of: Iterable[Limit], *, dry_run: bool = False) -> list[Limit]:
    """Those of these limits that are granted more, and from now on are not. Raises ConfigError."""
    kept = _grants(folder)
    gone = _taken_out(kept, of)
    if gone and not dry_run:
        _write(folder / _GRANTS, {"grants": list(kept.values())})
    return gone


def rolled_back(folder: Path, today: date) -> dict[Limit, date]:
    """What persons have rolled back, and until when no unattended night changes it. Raises ConfigError."""
    return {limit: until for limit, until in _rolled_back(folder).items() if until >= today}


def add_rolled_back(folder: Path, of: Iterable[Limit], today: date, *, dry_run: bool = False) -> date:
    """A person has; from now on these are left alone. Returns until when. Raises ConfigError."""
    until = today + GRANT
    kept = _rolled_back(folder) | dict.fromkeys(of, until)
    _forget(kept, dict(kept), today)
    if not dry_run:
        _write_rolled_back(folder, kept)
    return until


def _forget(kept: dict[Limit, Any], untils: Mapping[Limit, date], today: date) -> None:
    """Take out the first that are over, if there are very many. Else none, for by a clock that is ahead all
    are over; who reads them looks at their dates."""
    over = sorted((until, limit) for limit, until in untils.items() if until < today)
    for _, limit in over[: max(len(kept) - _MOST_OVER, 0)]:
        del kept[limit]


def forget_rolled_back(folder: Path, of: Iterable[Limit]) -> None:
    """A person has included these in a plan. Raises ConfigError."""
    kept = _rolled_back(folder)
    if _taken_out(kept, of):
        _write_rolled_back(folder, kept)


def _write_rolled_back(folder: Path, kept: Mapping[Limit, date]) -> None:
    items = [{"entity": one, "key": key, "until": day.isoformat()} for (one, key), day in kept.items()]
    _write(folder / _ROLLED_BACK, {"rolled_back": items})


def _rolled_back(folder: Path) -> dict[Limit, date]:
    def taken(content: dict[str, Any]) -> dict[Limit, date]:
        return {
            (text_from(item["entity"]), text_from(item["key"])): date.fromisoformat(item["until"])
            for item in content.get("rolled_back", ())
        }

    return _read(folder / _ROLLED_BACK, taken)


def _taken_out(kept: dict[Limit, _Value], of: Iterable[Limit]) -> list[Limit]:
    """Those of these limits that were there, and are no more."""
    return [limit for limit in dict.fromkeys(of) if kept.pop(limit, None) is not None]


def _cuts(folder: Path, place: str) -> dict[str, list[tuple[date, float]]]:
    """Key → (date, cut by in all)."""

    def taken(content: dict[str, Any]) -> dict[str, list[tuple[date, float]]]:
        return {
            key: [(date.fromisoformat(day), number_from(amount)) for day, amount in days]
            for key, days in content.get(place, {}).items()
        }

    return _read(folder / _CUTS, taken)


def _grants(folder: Path) -> dict[Limit, dict[str, Any]]:
    def taken(content: dict[str, Any]) -> dict[Limit, dict[str, Any]]:
        items = content.get("grants", ())
        for item in items:
            date.fromisoformat(item["until"])
            number_from(item["up_to"])
        return {(text_from(item["entity"]), text_from(item["key"])): item for item in items}

    return _read(folder / _GRANTS, taken)


def _read(file: Path, taken: Callable[[dict[str, Any]], dict[_Key, _Value]]) -> dict[_Key, _Value]:
    return read_kept(file, taken, {}, _REMEDIES[file.name])


def _write(file: Path, content: Mapping[str, Any]) -> None:
    try:
        replace_with(file, content)
    except OSError as error:
        raise ConfigError([Problem(f"cannot be written: {in_words(error)}", source=str(file))]) from None


def newer_plan(plan: Path, day: date, today: date) -> str | None:
    """The folder of a plan of a later date, up to today, in the same --out; None: there is none."""
    plans = folder_of(plan) / _PLANS
    for folder in sorted(plans.glob("*-*-*-*"), reverse=True) if plans.is_dir() else ():
        try:
            its = date.fromisoformat(folder.name[: len("2026-11-20")])
        except ValueError:
            continue  # not ours
        if day < its <= today:
            return folder.name
    return None
