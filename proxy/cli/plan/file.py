"""A plan of the nightly job, read and checked before anything is done by it: plan.json → values. Pure.

What a plan says of itself is not believed: each limit must be one that its kind takes, each entity one that
can be named in a quota file, and nothing may stand there twice.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date
from math import ceil
from typing import Any, Final, NoReturn

from sluice.proxy.cli.quotas.edit import Whom, canonical, number
from sluice.quotas.files.config_error import ConfigError, Problem, shown, why_not_user
from sluice.quotas.files.json_text import parse_json
from sluice.quotas.files.quota_file import DEFAULT_NAME, ENTITY_KEYS
from sluice.quotas.kinds import KIND_BY_KEY, KINDS, QuotaKind

VERSIONS: Final = (1, 2)
"""of plan.json that are read; of 1 an entity is a text with JSON in it, and what needs review is left out"""
_OVERFLOW: Final = "<overflow>"
_MAX_PROBLEMS: Final = 20


@dataclass(frozen=True, slots=True)
class PlannedLimit:
    """One limit of a plan."""

    kind: QuotaKind
    entity: str
    """quotas/entity_key.py"""
    whom: Whom
    current: float
    """the limit from which the plan was made"""
    proposed: float
    reason: str
    needs_review: bool
    confidence: float = 0.0
    up_to: float = 0.0
    """the most that a person may grant"""
    first_step: float = 0.0
    """to what it goes tonight, if a person grants that; 0: an older plan does not say"""
    asked: float | None = None
    """what it takes of its key's room as long as it is a default's; None: it is its own, or was granted more,
    and counts whole"""
    is_change: bool = True
    """the plan has another limit for it"""
    is_of_anybody: bool = False
    """it is a default's, for any client id or address: names that cost nothing"""
    is_own: bool = False
    """the plan says that it is its own, by an entry with its name"""
    has_lost_its_own: bool = False
    """it was its own, and is a default's by now: somebody has removed it"""

    def room_taken(self, limit: float) -> float:
        """What it takes of its key's room if it is this: any other than now would be its own."""
        return limit if self.asked is None or limit != self.current else min(limit, self.asked)

    def was_and_is(self, now: float | None) -> str:
        """How the limit in force has changed since the plan was made. `now`: None: there is none."""
        own, default = ("its own ", "a default's ") if self.has_lost_its_own else ("", "")
        told = "there is none now" if now is None else f"is {default}{number(now)} now"
        return f"was {own}{number(self.current)} when the plan was made, {told}"

    @property
    def key(self) -> str:
        """The limit's key in the quota file."""
        return KINDS[self.kind].config_key


@dataclass(frozen=True, slots=True)
class PlanFile:
    """A plan, as a night wrote it."""

    source: str
    day: date
    """the date of the log that it was made from"""
    max_step_up: float
    max_step_down: float
    """of the policy: no limit changes by more than these factors in a night"""
    damaged_files: int
    """of the log that the night had to leave out"""
    limits: tuple[PlannedLimit, ...]
    version: int = 1
    room: Mapping[str, float] = field(default_factory=dict)
    """key → what all its limits may come to"""
    unlisted: int = 0
    """limits by a default for any client id or address that are counted, and no entries: nothing is to be
    done about them"""
    room_of_unlisted: Mapping[str, float] = field(default_factory=dict)
    """key → what these take of its room together"""
    incomplete: tuple[str, ...] = ()
    """dates of the last week of which the log lacks rows"""


def is_plan(text: str) -> bool:
    """Whether this is a plan, and no quota file; a damaged one may be neither."""
    if not text.lstrip().startswith("{"):
        return False
    try:
        document = json.loads(text)  # one with NaN is a plan, and told as a damaged one
    except (ValueError, RecursionError):
        return False
    return isinstance(document, dict) and "entries" in document and "quotas" not in document


def parse_plan(text: str, source: str) -> PlanFile:
    """Raises ConfigError with what is wrong, the first 20 problems of entries."""
    try:
        document = parse_json(text)
    except ValueError as error:
        raise ConfigError(
            [Problem(f"is no whole plan: {error}; run the night again", source=source)]
        ) from None
    if not isinstance(document, dict):
        raise ConfigError([Problem("is no plan: must be a JSON object", source=source)])
    reader = _Reader(source)
    version = document.get("version")
    if isinstance(version, bool) or version not in VERSIONS:
        known = " or ".join(map(str, VERSIONS))
        reader.fail("version", f"is {shown(version)}; this Sluice reads {known}")
    policy = document.get("policy")
    if not isinstance(policy, dict):
        reader.fail("policy", "is not there; make the plan again")
    items = document.get("entries")
    if not isinstance(items, list):
        reader.fail("entries", f"must be a list, is {shown(items)}")
    plan = PlanFile(
        source,
        reader.day(document.get("date")),
        reader.factor(policy, "max_step_up"),
        reader.factor(policy, "max_step_down"),
        len(reader.by_name(document, "damaged_files")),
        tuple(reader.limits(items)),
        version,
        reader.room(document.get("room", {})),
        *reader.unlisted(document),
        tuple(reader.by_name(document, "incomplete_log")),
    )
    if reader.problems:
        raise ConfigError(reader.problems[:_MAX_PROBLEMS])
    return plan


class _Reader:
    """Collects what is wrong with entries; what is wrong with the whole ends it at once."""

    def __init__(self, source: str) -> None:
        self.problems: list[Problem] = []
        self._source = source

    def fail(self, path: str, message: str) -> NoReturn:
        raise ConfigError([Problem(message, path=path, source=self._source)])

    def day(self, text: Any) -> date:
        try:
            return date.fromisoformat(text)
        except (TypeError, ValueError):
            self.fail("date", f"must be a date such as 2026-11-20, is {shown(text)}")

    def factor(self, policy: Mapping[str, Any], key: str) -> float:
        value: Any = policy.get(key)
        if not _is_positive(value):
            self.fail(f"policy.{key}", f"must be a number above 0, is {shown(value)}")
        return float(value)

    def by_name(self, document: Mapping[str, Any], key: str) -> Mapping[str, Any]:
        value = document.get(key, {})
        if not isinstance(value, dict):
            self.fail(key, f"must be an object, {{}} if there is none; is {shown(value)}")
        return value

    def room(self, value: Any) -> dict[str, float]:
        if not isinstance(value, dict) or not all(map(_is_positive, value.values())):
            self.fail("room", f"must be numbers above 0 by key, is {shown(value)}")
        return {key: float(number) for key, number in value.items()}

    def unlisted(self, document: Mapping[str, Any]) -> tuple[int, dict[str, float]]:
        """How many, key → what they take; a plan of before lists all."""
        told = self.by_name(document, "unlisted")
        count, taken = told.get("entries", 0), told.get("room_taken", {})
        numbers = taken.values() if isinstance(taken, dict) else (None,)
        if isinstance(count, bool) or not isinstance(count, int) or count < 0:
            self.fail("unlisted.entries", f"must be a whole number, 0 or more, is {shown(count)}")
        if any(_number(number) is None for number in numbers):
            self.fail("unlisted.room_taken", f"must be numbers, 0 or more, by key, is {shown(taken)}")
        return count, {key: float(number) for key, number in taken.items()}

    def limits(self, items: list[Any]) -> Iterator[PlannedLimit]:
        seen: set[tuple[QuotaKind, Whom]] = set()
        for index, item in enumerate(items):
            try:
                limit = _limit(item)
                if (limit.kind, limit.whom) in seen:
                    raise ValueError(f"{limit.key} of {limit.entity} stands there twice")
            except ValueError as error:
                self.problems.append(Problem(str(error), path=f"entries[{index}]", source=self._source))
                continue
            seen.add((limit.kind, limit.whom))
            yield limit


def _limit(item: Any) -> PlannedLimit:
    """The limit that an entry of a plan proposes. Raises ValueError."""
    if not isinstance(item, dict):
        raise ValueError(f"must be an object, is {shown(item)}")
    key = item.get("key")
    kind = KIND_BY_KEY.get(key) if isinstance(key, str) else None
    if kind is None:
        raise ValueError(f"key: {shown(key)} is no quota; known: {', '.join(KIND_BY_KEY)}")
    entity, reason, review = item.get("entity"), item.get("reason"), item.get("needs_review")
    if isinstance(entity, dict):
        entity = json.dumps(entity)
    if not isinstance(entity, str) or not isinstance(reason, str) or not isinstance(review, bool):
        raise ValueError("entity, reason and needs_review must be there: two texts, and true or false")
    numbers = {name: item.get(name) for name in ("current", "proposed")}
    for name, value in numbers.items():
        if not _is_positive(value):
            raise ValueError(f"{name} must be a number above 0, is {shown(value)}")
    spec = KINDS[kind]
    current, proposed = (spec.validated(spec.config_key, value) for value in numbers.values())
    if review and "up_to" in item:  # a person may grant it
        up_to = item["up_to"]
        if not _is_positive(up_to):
            raise ValueError(f"up_to must be a number above 0, is {shown(up_to)}")
        spec.validated("up_to", ceil(up_to))
    whom = whom_of_key(entity)
    # As key_of writes it, whoever wrote the plan.
    entity = json.dumps(dict(whom), ensure_ascii=False, sort_keys=True)
    confidence, up_to, first_step = (
        _or_zero(item.get(name)) for name in ("confidence", "up_to", "first_step")
    )
    # A plan of before tells it of those that are left alone only, and of its own that it counts whole.
    asked = _number(item["asked"]) if "asked" in item else _number(item.get("room_taken"))
    if "asked" not in item and asked is not None and asked >= proposed:
        asked = None
    is_own = item.get("is_own", "asked" in item and item["asked"] is None)
    return PlannedLimit(
        kind, entity, whom, current, proposed, reason, review, confidence, up_to, first_step, asked,
        proposed != current, is_own=is_own is True,
    )  # fmt: skip


def _number(value: Any) -> float | None:
    """One that may be counted: 0 or more; else nothing is known."""
    return float(value) if _is_positive(value) or (value == 0 and not isinstance(value, bool)) else None


def whom_of_key(key: str) -> Whom:
    """A bucket's name (quotas/entity_key.py) as an entity of a quota file. Raises ValueError."""
    try:
        parts = parse_json(key)
    except ValueError:
        parts = None
    if (
        not isinstance(parts, dict)
        or not parts
        or not all(isinstance(name, str) for name in parts.values())
        or not parts.keys() <= set(ENTITY_KEYS)
    ):
        raise ValueError(f'entity must be JSON such as {{"user": "alice"}}, is {shown(key)}')
    return tuple((part, canonical(part, parts[part])) for part in ENTITY_KEYS if part in parts)


def cannot_be_named(whom: Whom) -> str | None:
    """Why no limit can be set for this bucket; None: it can."""
    for part, name in whom:
        if not name.strip():  # " " is a client id, too
            return f"an empty {part} cannot have a limit of its own"
        if name in {DEFAULT_NAME, _OVERFLOW}:
            return f"no quota file can name a {part} that is really called {name}"
        if part == "user" and (reason := why_not_user(name)) is not None:
            return f"no quota file can name it: {reason}"
    return None


def _or_zero(value: Any) -> float:
    return float(value) if _is_positive(value) else 0.0


def _is_positive(value: Any) -> bool:
    # A whole number of JSON has any length; what is longer than this no limit can be.
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and 0 < value <= sys.float_info.max
