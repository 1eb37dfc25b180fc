"""What /metrics tells of producer ids: counters and levels by user, in a bounded number of series.

A user is a label if the configuration knows the name, else `other`; an id never is one. Counts come from the
principals, which may be forgotten and made anew: what each has counted is taken over by differences.
Names follow KIP-936's sensors (ProducerIds rate, tokens, throttle-time by user).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from typing import Final

from sluice.proxy.metrics.entity_series import OTHER, SERIES_IDLE_MS, SERIES_PER_ENTITY, EntityTable
from sluice.proxy.session.producer_ids.shared import ProducerIds
from sluice.proxy.session.producer_ids.verdict import RefusalReason
from sluice.quotas.kinds import QuotaKind
from sluice.quotas.limits.limits import QuotaLimits
from sluice.quotas.producer_ids.principal import PrincipalIds

PRINCIPALS_PER_STEP: Final = 50
"""about 1 ms of work between which connections are served"""
SERIES_PER_USER: Final = 2 * SERIES_PER_ENTITY
"""a user's share of metrics.max_series"""


class Levels:
    """How the principals behind one label stand."""

    __slots__ = ("gates", "held", "layers", "limit", "pairs", "store_bytes", "tokens")

    def __init__(self) -> None:
        self.tokens = math.inf
        """of the principals behind `other`, the lowest; inf: nobody is here now who has a limit"""
        self.limit = 0.0
        self.held = self.gates = self.store_bytes = self.layers = self.pairs = 0

    def add(self, principal: PrincipalIds, now_ms: float) -> None:
        """Add one of the principals behind this series."""
        self.tokens = min(self.tokens, principal.tokens(now_ms))
        self.limit = principal.ids_per_hour
        self.held += principal.waiting_tickets
        self.store_bytes += principal.store.size_bytes
        self.layers = max(self.layers, principal.store.layers)


class UserIds:
    """What is counted of one label."""

    __slots__ = (
        "forced",
        "new",
        "over",
        "refused",
        "resumed",
        "throttled_ms",
        "throttled_requests",
        "transactional_new",
        "transactional_over",
        "used_ms",
        "user",
    )

    def __init__(self, user: str) -> None:
        self.user = user
        self.new = self.resumed = self.forced = self.over = 0
        self.transactional_new = self.transactional_over = 0
        self.throttled_ms = 0.0
        self.throttled_requests = 0
        self.refused = {reason.value: 0 for reason in RefusalReason}
        self.used_ms = 0.0


class _Taken:
    """What of a principal's counters has been taken over."""

    __slots__ = (
        "forced", "held_ms", "holds", "new", "over", "resumed", "round", "transactional_new",
        "transactional_over",
    )  # fmt: skip

    def __init__(self) -> None:
        self.transactional_new = self.transactional_over = 0
        self.new = self.resumed = self.forced = self.over = self.holds = self.round = 0
        self.held_ms = 0.0


class ProducerIdMeter:
    """Counts the producer ids of one process. `entities`: knows labels, and how many series there may be."""

    def __init__(self, ids: ProducerIds, entities: EntityTable) -> None:
        self.ids = ids
        self.levels: dict[str, Levels] = {}
        """by label, at the last fold; of users that are here now"""
        self._entities = entities
        self._users: dict[str, UserIds] = {}
        self._other = UserIds(OTHER)
        self._taken: dict[PrincipalIds, _Taken] = {}
        self._round = 0

    def __iter__(self) -> Iterator[UserIds]:
        """All labels; `other` only once something was counted on it."""
        yield from self._users.values()
        if self._other.used_ms:
            yield self._other

    def tokens(self) -> dict[str, float]:
        """By label, at the last fold; of users that are here now."""
        return {user: one.tokens for user, one in self.levels.items() if one.tokens < math.inf}

    def count_refusal(self, user: str, reason: str, now_ms: float) -> None:
        """A request was answered in the broker's place, or its connection ended."""
        series = self._of(user)
        series.refused[reason] += 1
        series.used_ms = now_ms

    def fold_in_steps(self, now_ms: float, limits: QuotaLimits) -> Iterator[None]:
        """Take in what the principals have counted and how they stand; a label of none for an hour goes. Who
        has no limit any more is remembered for a while; of him the pairs alone are told, for the ceiling
        counts them against all."""
        self._round += 1
        levels: defaultdict[str, Levels] = defaultdict(Levels)
        # A list, because principals come and go between the steps.
        for index, principal in enumerate(list(self.ids.quota.principals()), start=1):
            series = self._of(principal.user)
            self._take(principal, series)
            series.used_ms = now_ms
            levels[series.user].pairs += len(principal.pairs)
            if limits.resolve(QuotaKind.PRODUCER_IDS, principal.user, "") is not None:
                levels[series.user].add(principal, now_ms)
            if index % PRINCIPALS_PER_STEP == 0:
                yield
        for user, gates in self.ids.tables.counts():
            levels[self._of(user).user].gates += gates
        self.levels = dict(levels)
        for principal in [one for one, taken in self._taken.items() if taken.round != self._round]:
            self._take(principal, self._of(principal.user))
            del self._taken[principal]
        labels = self._entities
        gone = [
            one
            for one in self._users.values()
            if now_ms - one.used_ms >= SERIES_IDLE_MS or labels.label_of(one.user, is_limited=False) == OTHER
        ]
        for series in gone:
            del self._users[series.user]
            self._entities.give_back(SERIES_PER_USER)

    def _of(self, user: str) -> UserIds:
        label = self._entities.label_of(user)
        series = self._users.get(label)
        if series is not None:
            return series
        if label == OTHER or not self._entities.take(SERIES_PER_USER):
            return self._other
        series = self._users[label] = UserIds(label)
        return series

    def _take(self, principal: PrincipalIds, series: UserIds) -> None:
        taken = self._taken.get(principal)
        if taken is None:
            taken = self._taken[principal] = _Taken()
        taken.round = self._round
        series.new += principal.admitted - taken.new
        series.resumed += principal.resumed_admitted - taken.resumed
        series.forced += principal.forced_admitted - taken.forced
        series.over += principal.over - taken.over
        series.throttled_ms += principal.held_ms - taken.held_ms
        series.throttled_requests += principal.holds - taken.holds
        taken.new, taken.resumed = principal.admitted, principal.resumed_admitted
        taken.forced, taken.over = principal.forced_admitted, principal.over
        taken.held_ms, taken.holds = principal.held_ms, principal.holds
        named = principal.transactional_ids
        series.transactional_new += named.new - taken.transactional_new
        series.transactional_over += named.over - taken.transactional_over
        taken.transactional_new, taken.transactional_over = named.new, named.over
