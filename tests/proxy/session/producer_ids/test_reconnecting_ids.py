"""Connections that come back with other producer ids for each request, for ten minutes of simulated time.

The gates, the table of gates and the door are the real ones; only sockets and frames are left out. Turns are
served every 50 ms, as the server does.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import Final

import pytest

from sluice.protocol.produce import BatchHead
from sluice.proxy.session.producer_ids.gate import ProducerGate
from sluice.proxy.session.producer_ids.shared import ProducerIds
from sluice.proxy.session.producer_ids.verdict import Verdict
from sluice.quotas.producer_ids.buckets import MS_PER_HOUR, BucketShape
from sluice.quotas.producer_ids.principal import ProducerIdSettings

RATE: Final = 1_000.0
SHAPE: Final = BucketShape(expiration_ms=MS_PER_HOUR)
"""so short that the bucket of resumed ids, which holds 25 hours' worth by default, hides no fault"""
SETTINGS: Final = replace(ProducerIdSettings(), buckets=SHAPE)
STEP_MS: Final = 50
MINUTES_MS: Final = 600_000
BUDGET_MS: Final = 8_000.0
THINKING_MS: Final = 500
"""from an answer to the next request, which comes on a new connection"""
NEIGHBOURS_RATE: Final = 60.0
BUF: Final = bytearray(b"orders")


class Caller:
    """Whoever connects, asks once, waits for the answer, and connects again."""

    __slots__ = ("gate", "heads", "number", "woken")

    def __init__(self, number: int) -> None:
        self.number = number
        self.gate: ProducerGate | None = None
        self.heads: list[BatchHead] = []
        self.woken = False


class Crowd:
    """`count` of them, of one user."""

    def __init__(self, count: int, ids_a_request: int, resumed_every: int) -> None:
        """Of `resumed_every` requests one brings ids in the midst of their sequence; 0: none does."""
        self.shared = ProducerIds(SETTINGS)
        self.admitted: list[tuple[float, int, bool]] = []
        """(time, ids, are they resumed?) of each request that went to the broker"""
        self.refused = 0
        self._ids_a_request = ids_a_request
        self._resumed_every = resumed_every
        self._next_id = 0
        self._asks: defaultdict[int, list[Caller]] = defaultdict(list)
        self._wakes: defaultdict[int, list[Caller]] = defaultdict(list)
        self._turns: list[Caller] = []
        for number in range(count):
            self._asks[number % 200 * STEP_MS].append(Caller(number))

    def step(self, now: int) -> None:
        """All that happens at this time."""
        shared = self.shared
        if shared.quota.due_ms <= now:
            shared.serve(now)
        turns, self._turns = self._turns, []
        for caller in turns + self._wakes.pop(now, []):
            gate = caller.gate
            if gate is None or not gate.is_holding:
                continue
            self._judged(caller, gate.wake(now), now)
        for caller in self._asks.pop(now, ()):
            # Every other one sends the same batches again, as clients do; the others are never seen again.
            if not caller.heads or caller.number % 2:
                caller.heads = self._new_heads(caller.number)
            gate = caller.gate = ProducerGate(shared.quota, shared.tables)
            gate.use("crowd", RATE, enforced=True)
            owner = lambda caller=caller: self._turns.append(caller)  # noqa: E731
            self._judged(caller, gate.judge(BUF, caller.heads, -1, now, now + BUDGET_MS, owner), now)

    def _new_heads(self, number: int) -> list[BatchHead]:
        is_resumed = self._resumed_every and number % self._resumed_every == 0
        first = self._next_id
        self._next_id += self._ids_a_request
        sequence = 7 if is_resumed else 0
        return [(0, 6, index, 100, first + index, 0, sequence, 1) for index in range(self._ids_a_request)]

    def _judged(self, caller: Caller, verdict: Verdict, now: int) -> None:
        gate = caller.gate
        assert gate is not None
        if verdict is Verdict.HOLD:
            self._wakes[int(-(-gate.wake_at_ms // STEP_MS)) * STEP_MS].append(caller)
            return
        if verdict is Verdict.ADMIT:
            gate.forwarded(now)
            self.admitted.append((now, len(caller.heads), caller.heads[0][6] > 0))
            caller.heads = []
        else:
            assert verdict is Verdict.REFUSE
            self.refused += 1
        caller.gate = None
        self._asks[now + THINKING_MS].append(caller)


class Neighbour:
    """Another user of the same process: a request of a known id each second, a new id each minute."""

    def __init__(self, shared: ProducerIds) -> None:
        self._gate = ProducerGate(shared.quota, shared.tables)
        self._gate.use("neighbour", NEIGHBOURS_RATE, enforced=True)
        self._next_id = 10**9
        self.requests = 0

    def step(self, now: int) -> None:
        """Its delay is 0 each time: neither held nor refused."""
        if now % 1_000:
            return
        is_new = now % 60_000 == 0
        self._next_id += is_new
        head: BatchHead = (0, 6, 0, 100, self._next_id, 0, now // 1_000, 1)
        if is_new:
            head = (*head[:6], 0, 1)
        verdict = self._gate.judge(BUF, [head], -1, now, now + BUDGET_MS)
        assert verdict in ({Verdict.ADMIT} if is_new else {Verdict.PASS, Verdict.ADMIT}), (now, verdict)
        if verdict is Verdict.ADMIT:
            self._gate.forwarded(now)
        self.requests += 1


CASES: Final = {"100-with-one-of-which-some-are-resumed": (100, 1, 3)}
LONG_CASES: Final = {
    "100-with-a-hundred-new-ids": (100, 100, 0),
    "500-with-one-of-which-some-are-resumed": (500, 1, 3),
}
SLOW_CASES: Final = {
    "500-with-a-hundred-new-ids": (500, 100, 0),
    "5000-with-one-new-id": (5_000, 1, 0),
    "5000-with-one-of-which-some-are-resumed": (5_000, 1, 3),
    "5000-with-a-hundred-new-ids": (5_000, 100, 0),
    "5000-with-a-hundred-of-which-some-are-resumed": (5_000, 100, 3),
}


@pytest.mark.parametrize(
    ("count", "ids_a_request", "resumed_every"),
    [pytest.param(*case, id=name) for name, case in CASES.items()]
    + [pytest.param(*case, id=name, marks=pytest.mark.long) for name, case in LONG_CASES.items()]
    + [pytest.param(*case, id=name, marks=pytest.mark.slow) for name, case in SLOW_CASES.items()],
)
def test_those_who_come_back_with_other_ids_stay_in_bound_and_a_neighbour_is_never_delayed(
    count: int, ids_a_request: int, resumed_every: int
) -> None:
    crowd = Crowd(count, ids_a_request, resumed_every)
    neighbour = Neighbour(crowd.shared)
    for now in range(0, MINUTES_MS, STEP_MS):
        crowd.step(now)
        neighbour.step(now)
        if now % 60_000 == 0:
            crowd.shared.expire(now)
    assert neighbour.requests == MINUTES_MS // 1_000
    hours = MINUTES_MS / MS_PER_HOUR
    new = sum(ids for _, ids, is_resumed in crowd.admitted if not is_resumed)
    resumed = sum(ids for _, ids, is_resumed in crowd.admitted if is_resumed)
    main, forced, others = (
        capacity + refill * hours
        for capacity, refill in (SHAPE.main(RATE), SHAPE.forced(RATE), SHAPE.resumed(RATE))
    )
    assert new <= main + forced
    assert resumed <= (others + forced if resumed_every else 0)
    assert new + resumed <= SHAPE.bound(RATE, hours)
    assert crowd.refused > count  # they all came again and again
    # And the rate is given out, not withheld, but for a last request's worth of each bucket, and for what is
    # left to members of groups, of whom there are none. (Resumed ids are kept out while the user's gates are
    # full.)
    left_to_members = SHAPE.forced_floor(SHAPE.forced(RATE)[0])
    assert new + resumed >= main + forced - left_to_members - 3 * ids_a_request
    assert_in_bound_in_any_span(crowd)


def assert_in_bound_in_any_span(crowd: Crowd) -> None:
    """The bound holds from any admission to any later one. Worst over the starts: a running maximum tells."""
    refill_per_ms = SHAPE.bound(RATE, 1.0) - SHAPE.bound(RATE, 0.0)
    refill_per_ms /= MS_PER_HOUR
    least_before = 0.0  # of what was admitted up to a time, less what was refilled until then
    total = 0
    for at_ms, ids, _ in crowd.admitted:
        least_before = min(least_before, total - refill_per_ms * at_ms)
        total += ids
        assert total - refill_per_ms * at_ms - least_before <= SHAPE.bound(RATE, 0.0) + 1e-6
