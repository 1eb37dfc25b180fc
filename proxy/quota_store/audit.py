"""Who changed which quota, when, from what to what: a log line and a bounded record for every change.

A change counts when it is put in force here, wherever it was made: in the quota file, in the quota topic by
this proxy or another, through the local admin socket.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Generator, Iterator, Mapping
from datetime import UTC, datetime
from itertools import islice
from typing import Any, Final, NamedTuple, TypeAlias

from sluice.proxy.runtime.log import get_logger
from sluice.proxy.runtime.tasks import in_turns
from sluice.quotas.entity import QuotaEntity
from sluice.quotas.limits.limits import QuotaLimits

KEPT: Final = 1_000
"""changes, the latest, at some 500 bytes each"""
_PER_STEP: Final = 50
"""entities, or exempt rules: about 2 ms, if each of them has a log line"""
_MEMBERS_PER_STEP: Final = 500
_MEMBERS_TOLD: Final = 100
SHADOW: Final = "shadow"
OVER_BUDGET: Final = "over_budget"
Difference: TypeAlias = tuple[QuotaEntity, dict[str, Any], dict[str, Any]]

_log = get_logger()


class QuotaChange(NamedTuple):
    """One entity's limits were changed."""

    at_unix_s: float
    """when it was made, by the clock of who made it"""
    by: str
    """the principal who asked for it; or the file in which it was found"""
    source: str
    """file, topic; schedule: a window of the file's calendar began or ended"""
    entity: str
    old: Mapping[str, Any]
    """limits by their keys, those of them in shadow mode, and `over_budget`; empty: there was no entry. Of
    `exempt` the rules that are gone, of `tenants` the members that left, each with its tenant"""
    new: Mapping[str, Any]


class QuotaAudit:
    """The record of changes in one process."""

    def __init__(self) -> None:
        self.changes: deque[QuotaChange] = deque(maxlen=KEPT)
        """the latest last"""
        self.count = 0
        """changes since the start"""

    def changed(self, change: QuotaChange) -> None:
        """Put it on record."""
        self.changes.append(change)
        self.count += 1
        _log.info(
            "quota_changed",
            entity=change.entity,
            old=dict(change.old),
            new=dict(change.new),
            by=change.by,
            source=change.source,
            at=_told_at(change.at_unix_s),
        )

    async def reloaded(
        self, before: QuotaLimits, after: QuotaLimits, *, by: str, source: str, at_unix_s: float
    ) -> None:
        """Put on record in what two snapshots differ, in steps between which connections are served."""
        for number, found in enumerate(differences(before, after)):
            if found is not None:
                entity, old, new = found
                self.changed(QuotaChange(at_unix_s, by, source, str(entity), old, new))
            if number % _PER_STEP == _PER_STEP - 1:
                await asyncio.sleep(0)
        old_rules, new_rules = [await in_turns(_exempt_of(limits)) for limits in (before, after)]
        if list(old_rules) != list(new_rules):
            gone = {rule: True for rule in old_rules if rule not in new_rules}
            come = {rule: True for rule in new_rules if rule not in old_rules}
            self.changed(QuotaChange(at_unix_s, by, source, "exempt", gone, come))
        left = await in_turns(_members_not_in(after, before))
        joined = await in_turns(_members_not_in(before, after))
        if left or joined:
            self.changed(QuotaChange(at_unix_s, by, source, "tenants", left, joined))


def _told_at(unix_s: float) -> str:
    """A record of another tool may bear any time: one that no calendar has is told in seconds."""
    try:
        return datetime.fromtimestamp(unix_s, UTC).isoformat(timespec="milliseconds")
    except (ValueError, OverflowError, OSError):
        return f"{unix_s:.3f} s after 1970"


def shown(
    limits: Mapping[str, float], shadow: frozenset[str] = frozenset(), *, refuses: bool = False
) -> dict[str, Any]:
    """Limits as a change tells them."""
    told: dict[str, Any] = {SHADOW: sorted(shadow)} if shadow else {}
    if refuses:
        told[OVER_BUDGET] = "refuse"
    return {**limits, **told}


def differences(before: QuotaLimits, after: QuotaLimits) -> Iterator[Difference | None]:
    """(entity, old, new) of each entity whose limits, or their options, are not the same; None for each other
    one, so that who asks can pause however few differ."""
    for entity in before.entries:
        yield _difference(entity, before, after)
    for entity in after.entries:
        yield None if entity in before.entries else _difference(entity, before, after)


def _difference(entity: QuotaEntity, before: QuotaLimits, after: QuotaLimits) -> Difference | None:
    old, new = (
        (limits.entries.get(entity, {}), limits.shadow.get(entity, frozenset()), entity in limits.refusing)
        for limits in (before, after)
    )
    if old == new:
        return None
    then, now = (shown(limits, shadow, refuses=refuses) for limits, shadow, refuses in (old, new))
    return entity, then, now


def _exempt_of(limits: QuotaLimits) -> Generator[None, None, dict[str, None]]:
    """The rules in words, in their order."""
    found: dict[str, None] = {}
    for number, rule in enumerate(limits.exempt.rules):
        if number % _PER_STEP == _PER_STEP - 1:
            yield
        found[str(rule)] = None
    return found


def _members_not_in(other: QuotaLimits, limits: QuotaLimits) -> Generator[None, None, dict[str, Any]]:
    """The tenant of each member that has another one, or none, in `other`; of many the first hundred."""
    of_changed = (
        (user, name)
        for name, members in limits.tenants.items()
        if members != other.tenants.get(name)
        for user in members
    )
    found: dict[str, Any] = {}
    for number, (user, name) in enumerate(of_changed):
        if number % _MEMBERS_PER_STEP == _MEMBERS_PER_STEP - 1:
            yield
        if (tenant := other.tenant_of(user)) is None or tenant.name != name:
            found[user] = name
    told: dict[str, Any] = dict(islice(found.items(), _MEMBERS_TOLD))
    return {**told, "<more>": len(found) - len(told)} if len(found) > len(told) else told
