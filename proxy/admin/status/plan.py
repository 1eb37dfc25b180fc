"""The recalibration job's last plan, as far as the status page shows it: found, and read in steps.

    FOLDER/LATEST               the name of the newest run's folder
    FOLDER/plans/NAME/plan.json what is shown; or plan.json itself is named

A plan has an entry for each limit, which may be many: they are decoded one at a time, so that who decodes
them can do something else in between. What is kept of them does not grow with their number.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from heapq import heappush, heappushpop
from math import isfinite, log
from pathlib import Path
from typing import Any, Final, NamedTuple

from sluice.proxy.admin.status.model import Plan, PlanChange
from sluice.proxy.admin.top.text import who
from sluice.quotas.files.load import read_bytes
from sluice.quotas.kinds import KIND_BY_KEY, KINDS
from sluice.quotas.names import clean

PLAN_FILE: Final = "plan.json"
LATEST: Final = "LATEST"
MAX_BYTES: Final = 64 * 1024 * 1024
MAX_CHANGES: Final = 100
ENTRIES_PER_STEP: Final = 50
NO_PLAN: Final = Plan(state="none")
_DECODER: Final = json.JSONDecoder()
_BLANK: Final = " \t\r\n"


class PlanError(Exception):
    """Why the plan cannot be shown."""


class Found(NamedTuple):
    """A plan's file, and what tells it from a later one."""

    path: Path
    name: str
    state: tuple[int, int, int]
    """inode, size, time of change"""


def find_plan(where: Path) -> Found | None:
    """The newest plan of a folder, or the file itself; None: there is none yet.

    Blocks as long as the file system does. Raises PlanError.
    """
    try:
        path = where
        if where.is_dir():
            latest = where / LATEST
            if not latest.is_file():
                return None
            name = read_bytes(latest, 1_000).decode("utf-8").strip()
            if not name or "/" in name or name.startswith("."):
                raise PlanError(f"{LATEST} names no folder")
            path = where / "plans" / name / PLAN_FILE
        if not path.is_file():
            return None
        found = path.stat()
    except (OSError, UnicodeDecodeError) as error:
        raise PlanError(f"cannot be read: {error}") from None
    if found.st_size > MAX_BYTES:
        raise PlanError(f"has {found.st_size:,} bytes; more than {MAX_BYTES:,} are not shown")
    name = path.parent.name if path.name == PLAN_FILE and path is not where else path.name
    return Found(path, name, (found.st_ino, found.st_size, found.st_mtime_ns))


class PlanReader:
    """One plan's text → what is shown of it, by running `steps` to its end."""

    def __init__(self, name: str) -> None:
        self.plan = NO_PLAN
        self._name = name
        self._fields: dict[str, Any] = {}
        self._heap: list[tuple[tuple[int, bool, float], int, PlanChange]] = []
        self._entries = 0
        self._changes = 0
        self._reviews = 0

    def steps(self, text: str) -> Iterator[None]:
        """Read the plan, in steps. Raises PlanError."""
        try:
            yield from self._read(text)
        except (ValueError, OverflowError, RecursionError, KeyError, TypeError) as error:
            raise PlanError(f"is no plan: {type(error).__name__}: {str(error)[:200]}") from None
        damaged, unlisted = self._fields.get("damaged_files", ()), self._fields.get("unlisted", {})
        self.plan = Plan(
            state="shown",
            name=clean(self._name),
            date=clean(str(self._fields.get("date", ""))),
            entities=self._entries + (_count(unlisted.get("entries")) if isinstance(unlisted, dict) else 0),
            changes=self._changes,
            reviews=self._reviews,
            log_files=_count(self._fields.get("log_files", 0)),
            damaged_files=len(damaged) if isinstance(damaged, list) else _count(damaged),
            rows=[change for _, _, change in sorted(self._heap, key=lambda one: one[:2], reverse=True)],
        )

    def _read(self, text: str) -> Iterator[None]:
        """One object, of which the list `entries` is decoded piece by piece."""
        at = _after(text, 0, "{")
        while True:
            key, at = _value(text, at)
            at = _after(text, at, ":")
            if key == "entries":
                at = _after(text, at, "[")
                while not text.startswith("]", at):
                    entry, at = _value(text, at)
                    self._take(entry)
                    at = _skipped(text, at)
                    if text.startswith(",", at):
                        at = _skipped(text, at + 1)
                    elif not text.startswith("]", at):
                        raise ValueError(f"no comma at character {at}")
                    if self._entries % ENTRIES_PER_STEP == 0:
                        yield
                at += 1
            else:
                self._fields[str(key)], at = _value(text, at)
                yield
            at = _skipped(text, at)
            if text.startswith("}", at):
                return
            at = _after(text, at, ",")

    def _take(self, entry: Any) -> None:
        if not isinstance(entry, dict):
            raise ValueError("an entry is no object")
        self._entries += 1
        needs_review = bool(entry.get("needs_review", False))
        self._reviews += needs_review
        current, proposed = float(entry["current"]), float(entry["proposed"])
        if not (isfinite(current) and isfinite(proposed)):
            raise ValueError("a limit is no number")
        self._changes += proposed != current
        if proposed == current and not needs_review:
            return
        becomes = max(proposed, _up_to(entry)) if needs_review else proposed
        size = abs(log(becomes / current)) if current > 0.0 and becomes > 0.0 else float("inf")
        key = (_rank(entry), needs_review, size)
        if len(self._heap) >= MAX_CHANGES and key <= self._heap[0][0]:
            return
        found = (key, -self._entries, _change(entry, current, proposed, needs_review=needs_review))
        (heappushpop if len(self._heap) >= MAX_CHANGES else heappush)(self._heap, found)


def _rank(entry: dict[str, Any]) -> int:
    """The higher the earlier: limits of their own, users by a default, names that anybody may make up."""
    if entry.get("asked") is None:  # which a job of before does not tell
        return 2
    return 1 if isinstance(entry["entity"], dict) and entry["entity"].keys() <= {"user"} else 0


def _up_to(entry: dict[str, Any]) -> float:
    """What a person may grant; of a plan of before nothing is known."""
    up_to = entry.get("up_to")
    return float(up_to) if isinstance(up_to, int | float) and isfinite(up_to) else 0.0


def _change(entry: dict[str, Any], current: float, proposed: float, *, needs_review: bool) -> PlanChange:
    key = clean(str(entry["key"]))
    kind = KIND_BY_KEY.get(key)
    confidence = entry.get("confidence")
    return PlanChange(
        key=key,
        who=_who(entry["entity"]),
        current=current,
        proposed=proposed,
        unit="" if kind is None else KINDS[kind].limit_unit,
        reason=clean(str(entry.get("reason", ""))),
        needs_review=needs_review,
        confidence=round(confidence, 3) if isinstance(confidence, float) and isfinite(confidence) else None,
    )


def _who(entity: Any) -> str:
    """The entity is an object with the keys of the quota file, or (version 1) its JSON; what is neither is
    told as it stands."""
    try:
        parts = entity if isinstance(entity, dict) else json.loads(str(entity))
    except ValueError:
        parts = None
    if not isinstance(parts, dict):
        parts = {"entity": str(entity)}
    return who({clean(str(key)): clean(str(name)) for key, name in parts.items()})


def _count(value: object) -> int:
    return value if isinstance(value, int) else 0


def _value(text: str, at: int) -> tuple[Any, int]:
    return _DECODER.raw_decode(text, _skipped(text, at))


def _skipped(text: str, at: int) -> int:
    while text[at : at + 1] in _BLANK and at < len(text):
        at += 1
    return at


def _after(text: str, at: int, mark: str) -> int:
    at = _skipped(text, at)
    if not text.startswith(mark, at):
        raise ValueError(f"no {mark} at character {at}")
    return at + len(mark)
