"""Many flat-out connections against one quota: what passes in any span of time is bounded, yet not little.

Simulated time: each connection asks again as soon as it is read, the broker answers at once.
"""

from __future__ import annotations

from math import inf

import pytest

from sluice.protocol.codec.wire import Struct
from sluice.proxy.session.connection_states import State
from sluice.proxy.session.policy import SessionPolicy, SharedState
from sluice.proxy.session.session import Session
from sluice.usage.records import EventKind
from testkit.frames.frames import (
    FETCH,
    HEARTBEAT,
    answer,
    fetch,
    max_bytes_of,
    produce_answer,
    produce_of,
    record_batch,
    request,
)
from testkit.proxy.playbook import START_MS, Shell, limits_of, shared_of

KIB = 1024
MIB = 1024 * KIB
Passed = list[tuple[float, int]]
"""(time, bytes) of all that went on"""


class Client:
    """One flat-out connection; `step` does what can be done now and tells when to come back."""

    def __init__(self, shared: SharedState) -> None:
        self.shared = shared
        self.is_woken = False
        self.shell = self.connect()

    def connect(self) -> Shell:
        session = Session(self.shared, SessionPolicy(), "10.0.0.1")
        shell = Shell(session)
        session.wake_by(self.wake)
        return shell

    def wake(self) -> None:
        """As the shell does it: soon, not at once."""
        self.is_woken = True

    def step(self, now_ms: float, passed: Passed) -> float:
        raise NotImplementedError


class Producer(Client):
    """Pipelines requests, as many as are read; with `reconnects`, each comes on a new connection."""

    def __init__(
        self,
        shared: SharedState,
        size: int,
        *,
        acks: int = 1,
        reconnects: bool = False,
        is_group: bool = False,
    ) -> None:
        super().__init__(shared)
        self.frame = produce_of(size, acks=acks)
        self.answer = produce_answer() if acks else b""
        self.reconnects = reconnects
        if is_group:
            self.shell.client_sends(request(HEARTBEAT, 4))
            self.shell.broker_sends(answer(HEARTBEAT, 4))
            self.shell.to_broker.clear()

    def step(self, now_ms: float, passed: Passed) -> float:
        shell = self.shell
        shell.now_ms = now_ms
        if shell.is_delayed:
            shell.wake()
        while True:
            if shell.to_broker:
                assert len(shell.to_broker) % len(self.frame) == 0
                passed.append((now_ms, len(shell.to_broker)))
                shell.to_broker.clear()
                shell.broker_sends(self.answer)
                if self.reconnects:
                    self.shell = shell = self.connect()
                    shell.now_ms = now_ms
            if shell.state is not State.READING:
                return shell.session.pace.wake_at_ms
            shell.client_sends(self.frame)


class Consumer(Client):
    """Asks for all that there is; the broker gives whole batches up to max_bytes, but one at least."""

    def __init__(self, shared: SharedState, batch_bytes: int) -> None:
        super().__init__(shared)
        self.batch = record_batch(bytes(batch_bytes - 61))

    def step(self, now_ms: float, passed: Passed) -> float:
        shell = self.shell
        shell.now_ms = now_ms
        if shell.is_delayed:
            shell.wake()
        while shell.state is State.READING:
            if not shell.to_broker:
                shell.client_sends(fetch())
                continue
            count = max(max_bytes_of(FETCH, 12, shell.to_broker) // len(self.batch), 1)
            shell.to_broker.clear()
            records: Struct = {"partitionIndex": 0, "records": (self.batch * count).hex()}
            body: Struct = {"responses": [{"topic": "t", "partitions": [records]}]}
            shell.broker_sends(answer(FETCH, 12, body))
            passed.append((now_ms, len(shell.to_client)))
            shell.to_client.clear()
        return shell.session.pace.wake_at_ms


def simulate(clients: list[Client], seconds: float) -> Passed:
    passed: Passed = []
    due_ms = [START_MS + i * 0.01 for i in range(len(clients))]
    while (now_ms := min(due_ms)) < START_MS + seconds * 1_000:
        i = due_ms.index(now_ms)
        clients[i].is_woken = False
        due_ms[i] = clients[i].step(now_ms, passed)
        assert now_ms < due_ms[i] < inf
        for woken, client in enumerate(clients):
            if client.is_woken:
                due_ms[woken] = min(due_ms[woken], now_ms + 0.001)
    return passed


def most_ahead(passed: Passed, rate_per_s: float) -> float:
    """The largest of (bytes passed − rate · time) over all spans of time, to a thousandth of a byte: times
    are sums of floats."""
    ahead = largest = 0.0
    before_ms = passed[0][0]
    for at_ms, size in passed:
        ahead = max(0.0, ahead - (at_ms - before_ms) * rate_per_s / 1_000) + size
        largest = max(largest, ahead)
        before_ms = at_ms
    return round(largest, 3)


def test_most_ahead_is_what_it_says() -> None:
    """At 1 B/ms: 5 B at 0, 3 at 2, 4 at 10. From 0 to 2 pass 8 − 2 B; at 10 none of it is left, so 4."""
    assert most_ahead([(0, 5), (2, 3), (10, 4)], 1_000) == 6


@pytest.mark.parametrize("count", [1, 5, 50])
@pytest.mark.parametrize("acks", [0, 1])
def test_producers_keep_to_the_quota_in_every_span_of_time(count: int, acks: int) -> None:
    """1 MB/s, burst 1 s, 16 kB requests: rate · t + burst + the request that goes into debt; and no less."""
    shared = shared_of(limits_of(produce_rate=1_000_000))
    passed = simulate([Producer(shared, 16_000, acks=acks) for _ in range(count)], 30)
    assert most_ahead(passed, 1_000_000) <= 1_000_000 + 16_000
    assert sum(size for _, size in passed) >= 0.99 * 30 * 1_000_000
    assert sum(sensor.over for sensor in shared.quotas.sensors()) == 0


def test_a_client_that_reconnects_for_every_request_keeps_to_the_quota() -> None:
    shared = shared_of(limits_of(produce_rate=1_000_000))
    clients: list[Client] = [Producer(shared, 16_000, reconnects=True) for _ in range(5)]
    # Muted connections are left at once for new ones, which wait their turn.
    passed = simulate(clients, 30)
    assert most_ahead(passed, 1_000_000) <= 1_000_000 + 16_000
    assert sum(size for _, size in passed) >= 0.99 * 30 * 1_000_000


def test_the_bound_is_bytes_outstanding_by_answer_budget_where_that_is_more_than_the_rate() -> None:
    """50 × 1 MiB at 1 MB/s: 50 MiB ÷ 8 s = 6.55 MB/s, once each of the fifty has gone on (50 MiB)."""
    shared = shared_of(limits_of(produce_rate=1_000_000))
    passed = simulate([Producer(shared, MIB) for _ in range(50)], 60)
    bound = 50 * MIB / 8
    assert most_ahead(passed, bound) <= 1_000_000 + 50 * MIB
    over_bytes = sum(sensor.over for sensor in shared.quotas.sensors())
    assert over_bytes >= sum(size for _, size in passed) - 61 * 1_000_000


@pytest.mark.parametrize("count", [20, 50])
def test_the_bound_holds_in_every_second_and_leaves_nothing_for_one_at_the_deadline(count: int) -> None:
    """Overload is stretched over the answer budget (wire-semantics 1.6)."""
    shared = shared_of(limits_of(produce_rate=1_000_000))
    passed = simulate([Producer(shared, MIB) for _ in range(count)], 60)
    bound = count * MIB / 8
    seconds = [0] * 61
    for at_ms, size in passed:
        seconds[int((at_ms - passed[0][0]) // 1_000)] += size
    assert max(seconds[3:59]) <= bound * 1.05 + MIB
    assert min(seconds[3:59]) >= bound * 0.95 - MIB


def test_connections_that_carried_a_group_request_pass_the_bound_of_two_seconds() -> None:
    """What 1.5 costs: 50 MiB ÷ 2 s = 26.2 MB/s where 1 MB/s is the quota. It is counted."""
    shared = shared_of(limits_of(produce_rate=1_000_000))
    passed = simulate([Producer(shared, MIB, is_group=True) for _ in range(50)], 20)
    assert most_ahead(passed, 50 * MIB / 2) <= 1_000_000 + 50 * MIB
    over_bytes = sum(sensor.over for sensor in shared.quotas.sensors())
    assert over_bytes >= sum(size for _, size in passed) - 21 * 1_000_000


@pytest.mark.parametrize("count", [1, 5, pytest.param(50, marks=pytest.mark.long)])
def test_consumers_keep_to_the_quota_in_every_span_of_time(count: int) -> None:
    """1 MB/s, batches of 1 kB: rate · t + burst, and a grant that goes while nothing is owed. From then on
    0.1 s of the rate, in grants of ten batches at least."""
    shared = shared_of(limits_of(fetch_rate=1_000_000))
    passed = simulate([Consumer(shared, 1_000) for _ in range(count)], 30)
    assert most_ahead(passed, 1_000_000) <= 1_000_000 + 110_000
    steady = [(at_ms, size) for at_ms, size in passed if at_ms > START_MS + 3_000]
    assert most_ahead(steady, 1_000_000) <= 210_000
    assert sum(size for _, size in passed) >= 0.99 * 30 * 1_000_000


class LateProducer(Producer):
    """Begins after 30 s."""

    def step(self, now_ms: float, passed: Passed) -> float:
        begin_ms = START_MS + 30_000.0
        return super().step(now_ms, passed) if now_ms >= begin_ms else begin_ms


def test_a_long_overload_leaves_no_credit_with_which_small_requests_pass_in_one_go() -> None:
    """1 MB/s, 49 connections of 1 MiB for half a minute; then 40 more, of 200 kB: 60 MB outstanding, a bound
    of 7.4 MB/s. A twentieth of what had passed, 9 MB, went at once."""
    shared = shared_of(limits_of(produce_rate=1_000_000))
    clients: list[Client] = [Producer(shared, MIB) for _ in range(49)]
    clients += [LateProducer(shared, 200_000) for _ in range(40)]
    passed = simulate(clients, 40)
    bound = (49 * MIB + 40 * 200_000) / 8
    late = [(at_ms, size) for at_ms, size in passed if at_ms > START_MS + 29_000]
    assert most_ahead(late, 1.05 * bound) <= 2 * MIB


def test_every_connection_gets_its_turn() -> None:
    """Jain's index over fifty is (Σx)² ÷ (n · Σx²); none waits longer than 50 · 16 kB ÷ 1 MB/s = 0.8 s.

    The burst is spent before: who comes first would have it all.
    """
    shared = shared_of(limits_of(produce_rate=1_000_000))
    Producer(shared, 1_000_000).shell.client_sends(produce_of(1_000_000))
    producers: list[Client] = [Producer(shared, 16_000) for _ in range(50)]
    simulate(producers, 30)
    each = [producer.shell.session.bytes_from_client for producer in producers]
    assert sum(each) ** 2 / (50 * sum(x * x for x in each)) >= 0.99
    held = [event.delay_ms for event in shared.recorder.throttles if event.kind is EventKind.HOLD]
    assert max(held) <= 800


class PacedProducer(Producer):
    """One request each 20 ms, or when the one before has gone."""

    next_ms = 0.0

    def step(self, now_ms: float, passed: Passed) -> float:
        shell = self.shell
        shell.now_ms = now_ms
        if shell.is_delayed:
            shell.wake()
        if shell.to_broker:
            shell.to_broker.clear()
            shell.broker_sends(self.answer)
        if not shell.is_delayed and now_ms >= self.next_ms:
            self.next_ms = now_ms + 20.0
            shell.client_sends(self.frame)
        return shell.session.pace.wake_at_ms if shell.is_delayed else max(self.next_ms, now_ms + 0.001)


def test_a_small_request_does_not_wait_behind_the_large_ones_of_its_neighbours() -> None:
    """1 MB/s: 200 B beside nine connections of 50 kB wait until one of these is paid, 50 ms, or two; not for
    450."""
    shared = shared_of(limits_of(produce_rate=1_000_000))
    Producer(shared, 1_000_000).shell.client_sends(produce_of(1_000_000))
    small = PacedProducer(shared, 200)
    simulate([small, *[Producer(shared, 50_000) for _ in range(9)]], 30)
    held = [record.held_ms for record in small.shell.records if record.request_bytes == 200]
    assert len(held) > 300
    assert max(held) <= 102
    assert sorted(held)[len(held) // 2] <= 52


def test_small_requests_flat_out_get_their_share_beside_large_ones() -> None:
    """They wait for a round of these, 450 ms, only when they have had a tenth of it."""
    shared = shared_of(limits_of(produce_rate=1_000_000))
    Producer(shared, 1_000_000).shell.client_sends(produce_of(1_000_000))
    small = Producer(shared, 200)
    simulate([small, *[Producer(shared, 50_000) for _ in range(9)]], 30)
    held = [record.held_ms for record in small.shell.records if record.request_bytes == 200]
    assert 200 * len(held) >= 0.9 * 30 * 100_000
    assert sorted(held)[len(held) * 99 // 100] <= 52
    assert max(held) <= 452


def test_a_reader_of_large_batches_does_not_take_what_is_its_neighbours() -> None:
    """100 kB/s. Nine readers of 1 kB and one of 900 kB: by bytes each has a tenth; by turns it had 99.8 %."""
    shared = shared_of(limits_of(fetch_rate=100_000))
    large, small = Consumer(shared, 900_000), [Consumer(shared, 1_000) for _ in range(9)]
    simulate([large, *small], 120)
    got = [consumer.shell.session.bytes_to_client for consumer in small]
    assert min(got) >= 0.5 * 120 * 100_000 / 10
