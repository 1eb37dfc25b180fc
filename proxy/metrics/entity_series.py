"""The counters that carry user and client_id labels, and the bound on how many there are.

A label is a name that the configuration knows, or one of the users that a limit counts (user_names.py), or
`other`: what clients can think of never becomes a series.
Empty means that the quota's level does not look at it (rule `user` has no client_id). Beyond the cap
everything goes to (other, other), and each time is counted; a series unused for an hour is dropped, as Kafka
drops an idle sensor.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from sluice.proxy.metrics.delayed_time import CoveredTime
from sluice.proxy.metrics.user_names import UserNames
from sluice.quotas.entity import ClientPart, UserPart
from sluice.quotas.kinds import KINDS
from sluice.quotas.limits.limits import QuotaLimits

OTHER: Final = "other"
SERIES_PER_ENTITY: Final = 13
"""metrics with the labels user and client_id: an entity's share of metrics.max_series"""
SERIES_IDLE_MS: Final = 3_600_000.0


class EntitySeries:
    """What is counted of one (quota, user, client_id)."""

    __slots__ = (
        "amount",
        "client_id",
        "delayed",
        "in_shadow",
        "is_overflow",
        "over_quota_bytes",
        "quota",
        "refused",
        "shadow_ms",
        "shadow_requests",
        "throttled_ms",
        "throttled_requests",
        "used_ms",
        "user",
        "warnings",
    )

    def __init__(self, quota: str, user: str, client_id: str, *, is_overflow: bool = False) -> None:
        self.quota = quota
        self.user = user
        self.client_id = client_id
        self.is_overflow = is_overflow
        """stands for entities beyond the cap, which have no limit in common"""
        self.amount = 0.0
        """used, in the unit of the quota's kind: bytes, ms of broker threads, partitions"""
        self.delayed = CoveredTime()
        self.throttled_ms = 0.0
        self.throttled_requests = 0
        self.over_quota_bytes = 0
        self.refused: dict[str, int] = {}
        """Produce requests, by reason; exported for entities of which there were any"""
        self.in_shadow = False
        """a limit behind it is in shadow mode, or was: its shadow counters are exported"""
        self.shadow_ms = 0.0
        self.shadow_requests = 0
        self.warnings = 0
        """times that a limit behind it came near (quota_warning.py)"""
        self.used_ms = 0.0
        """when something was last counted; monotonic"""


class EntityTable:
    """Finds the series of a user and client id. Knows the limits in force only for their names."""

    def __init__(self, max_series: int, max_users: int = 0) -> None:
        """`max_users`: labels of users that the configuration does not name."""
        self.names = UserNames(max_users)
        self.overflows = 0
        """look-ups that the cap sent to (other, other)"""
        self._max_entities = max(1, max_series // SERIES_PER_ENTITY - len(KINDS))
        self._series: dict[tuple[str, str, str], EntitySeries] = {}
        self._beyond = {
            kind.value: EntitySeries(kind.value, OTHER, OTHER, is_overflow=True) for kind in KINDS
        }
        self._taken = 0
        self._users: frozenset[object] = frozenset()
        self._client_ids: frozenset[object] = frozenset()

    def configure(self, limits: QuotaLimits) -> None:
        """From now on the names in `limits` are labels of their own; series of others live on until idle."""
        rules = limits.exempt.rules
        members = (member for members in limits.tenants.values() for member in members)
        self._users = frozenset(
            [*(entity.user for entity in limits.entries), *(rule.user for rule in rules), *members]
        )
        self._client_ids = frozenset(
            [*(entity.client_id for entity in limits.entries), *(rule.client_id for rule in rules)]
        )

    def of(
        self, quota: str, user: UserPart, client_id: ClientPart, *, is_limited: bool = True
    ) -> EntitySeries:
        """The series of a bucket, or of a connection without one (None: its level has no such part).
        `is_limited`: a user that the configuration does not name may become a label."""
        user_label = "" if user is None else self.label_of(user, is_limited=is_limited)
        client_label = "" if client_id is None else client_id if client_id in self._client_ids else OTHER
        key = (quota, str(user_label), str(client_label))
        series = self._series.get(key)
        if series is None:
            if len(self._series) + self._taken >= self._max_entities:
                self.overflows += 1
                return self._beyond[quota]
            series = self._series[key] = EntitySeries(*key)
        return series

    def label_of(self, user: UserPart, *, is_limited: bool = True) -> str:
        """The label of a user: the name, if the limits in force know it or it is one of the most delayed."""
        name = str(user)
        if user in self._users or (self.names.name(name) if is_limited else name in self.names):
            return name
        return OTHER

    def note_delay(self, user: UserPart, delay_ms: float) -> None:
        """So that the most delayed have names."""
        if user is not None and user not in self._users:
            self.names.delayed(str(user), delay_ms)

    def step(self, now_ms: float) -> set[EntitySeries]:
        """From time to time: names go to who was delayed more. Returns the series that have ended with
        them."""
        lost = self.names.step(now_ms)
        ended = {series for series in self._series.values() if series.user in lost} if lost else set()
        self._drop(ended)
        return ended

    def take(self, series: int) -> bool:
        """Room for so many series that are kept elsewhere; False, and counted: the cap is reached."""
        entities = -(-series // SERIES_PER_ENTITY)
        if len(self._series) + self._taken + entities > self._max_entities:
            self.overflows += 1
            return False
        self._taken += entities
        return True

    def give_back(self, series: int) -> None:
        """What `take` was asked for is not used any more."""
        self._taken -= -(-series // SERIES_PER_ENTITY)

    def drop_idle(self, now_ms: float) -> set[EntitySeries]:
        """Forget the series that nothing was counted on for an hour; returns them."""
        idle = {series for series in self._series.values() if now_ms - series.used_ms >= SERIES_IDLE_MS}
        if idle:
            self._drop(idle)
            still = {series.user for series in self._series.values()}
            self.names.forget({series.user for series in idle} - still)
        return idle

    def _drop(self, ended: set[EntitySeries]) -> None:
        for series in ended:
            del self._series[series.quota, series.user, series.client_id]

    def __iter__(self) -> Iterator[EntitySeries]:
        """All series; those of the cap only once something was counted on them."""
        yield from self._series.values()
        for series in self._beyond.values():
            key = (series.quota, OTHER, OTHER)
            if series.used_ms and key not in self._series:
                yield series

    def __len__(self) -> int:
        return len(self._series)
