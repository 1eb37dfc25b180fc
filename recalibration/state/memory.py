"""What a night remembers besides states: each limit's anchor, and the grants that persons gave.

OUT/standing/DATE.json   each night's: {key: {entity: [anchor, current, proposed]}}; a night reads the newest
                         that is older than its own date, so that a date run again gives the same plan
OUT/grants.json          `sluice quotas apply` writes it
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import date
from typing import Any, Final

from pyarrow import fs

from sluice.recalibration.log.reader import LogFolder
from sluice.recalibration.policy.plan import PlanEntry
from sluice.recalibration.policy.standing import Standing

_STANDING: Final = "standing"
_GRANTS: Final = "grants.json"
_Limit = tuple[str, str]
"""key, entity"""


def standings_before(out: str, day: date) -> dict[_Limit, Standing]:
    """What the newest night before `day` knew; empty: there was none."""
    place = LogFolder.of(out)
    folder = f"{place.root.rstrip('/')}/{_STANDING}"
    found = place.filesystem.get_file_info(fs.FileSelector(folder, allow_not_found=True))
    older = sorted(
        info.path for info in found if info.path.endswith(".json") and info.base_name < f"{day}.json"
    )
    if not older:
        return {}
    return {
        (key, entity): Standing(*map(float, numbers))
        for key, entities in _read(place, older[-1]).items()
        for entity, numbers in entities.items()
    }


def write_standings(
    out: str, day: date, entries: Iterable[PlanEntry], before: Mapping[_Limit, Standing]
) -> None:
    """Write down what this night knows; who has no entry tonight keeps what was known."""
    kept = dict(before)
    for entry in entries:
        kept[entry.key, entry.entity] = Standing(entry.anchor, entry.current, entry.proposed)
    content: dict[str, dict[str, list[float]]] = {}
    for (key, entity), one in kept.items():
        content.setdefault(key, {})[entity] = [one.anchor, one.current, one.proposed]
    place = LogFolder.of(out)
    folder = f"{place.root.rstrip('/')}/{_STANDING}"
    place.filesystem.create_dir(folder, recursive=True)
    with place.filesystem.open_output_stream(f"{folder}/{day}.json") as file:
        file.write(json.dumps(content, ensure_ascii=False).encode())


def grants_on(out: str, day: date) -> dict[_Limit, float]:
    """Those that have not ended by `day`."""
    place = LogFolder.of(out)
    path = f"{place.root.rstrip('/')}/{_GRANTS}"
    (info,) = place.filesystem.get_file_info([path])
    if info.type is not fs.FileType.File:
        return {}
    return {
        (item["key"], item["entity"]): float(item["up_to"])
        for item in _read(place, path).get("grants", ())
        if item["until"] >= day.isoformat()
    }


def _read(place: LogFolder, path: str) -> dict[str, Any]:
    with place.filesystem.open_input_stream(path) as file:
        found: dict[str, Any] = json.loads(file.read())
    return found
