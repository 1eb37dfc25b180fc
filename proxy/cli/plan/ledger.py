"""What outlives one plan, beside the job's plans: cuts of unattended nights, and what persons have granted.

    OUT/unattended.json   place → key → (date, limits cut by in all), of the last seven dates
    OUT/grants.json       {"grants": [{"entity", "key", "up_to", "until"}]}: the job reads it each night

Written whole, and renamed into place.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from datetime import date, timedelta
from pathlib import Path
from typing import Any, Final

from sluice.proxy.cli.options import in_words
from sluice.proxy.cli.plan.file import PlannedLimit
from sluice.quotas.files.config_error import ConfigError, Problem

WEEK: Final = timedelta(days=7)
GRANT: Final = timedelta(days=14)
_CUTS: Final = "unattended.json"
_GRANTS: Final = "grants.json"
_PLANS: Final = "plans"


def folder_of(plan: Path) -> Path:
    """The job's --out if the plan lies there, else the plan's own folder."""
    folder = plan.parent
    return folder.parent.parent if folder.parent.name == _PLANS else folder


def cuts_of_week(folder: Path, place: str, today: date) -> dict[str, float]:
    """Key → what unattended nights have cut at this place in the last seven days. Raises ConfigError."""
    found: dict[str, float] = {}
    for key, days in _read(folder / _CUTS).get(place, {}).items():
        found[key] = sum(amount for day, amount in days if date.fromisoformat(day) > today - WEEK)
    return found


def add_cuts(folder: Path, place: str, today: date, cuts: Mapping[str, float]) -> None:
    """Before they are made; what is older than a week is forgotten. Raises ConfigError."""
    places = _read(folder / _CUTS)
    own = places.setdefault(place, {})
    for key, amount in cuts.items():
        kept = [item for item in own.get(key, ()) if date.fromisoformat(item[0]) > today - WEEK]
        own[key] = [*kept, [today.isoformat(), amount]]
    _write(folder / _CUTS, places)


def forget_cuts(folder: Path, place: str) -> None:
    """A person has applied a plan here: the week begins anew. Raises ConfigError."""
    places = _read(folder / _CUTS)
    if places.pop(place, None) is not None:
        _write(folder / _CUTS, places)


def add_grants(folder: Path, granted: Iterable[PlannedLimit], today: date) -> None:
    """Each replaces an earlier one of the same limit. Raises ConfigError."""
    kept = {(item["entity"], item["key"]): item for item in _read(folder / _GRANTS).get("grants", ())}
    until = (today + GRANT).isoformat()
    for limit in granted:
        item = {"entity": limit.entity, "key": limit.key, "up_to": limit.up_to, "until": until}
        kept[limit.entity, limit.key] = item
    still = [item for item in kept.values() if item["until"] >= today.isoformat()]
    _write(folder / _GRANTS, {"grants": still})


def _read(file: Path) -> dict[str, Any]:
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
        if isinstance(found, dict):
            return found
        problem = "is no JSON object"
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        problem = f"cannot be read: {error}"
    raise ConfigError([Problem(problem, source=str(file))])


def _write(file: Path, content: Mapping[str, Any]) -> None:
    beside = file.with_name(f".{file.name}.new")
    try:
        with open(beside, "w", encoding="utf-8") as new:
            json.dump(content, new, indent=1, ensure_ascii=False)
            new.flush()
            os.fsync(new.fileno())
        os.replace(beside, file)
    except OSError as error:
        raise ConfigError([Problem(f"cannot be written: {in_words(error)}", source=str(file))]) from None
