"""The six scenarios for which KIP-124 asks for request_percentage, one by one, at sessions in simulated time.

Each client sends its next request as soon as it is read; the broker works on it for what it costs.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial

from sluice.proxy.calibration.request_cost_file import CODECS, CostTables, parse_request_costs
from sluice.proxy.session.policy import SessionPolicy, SharedState
from sluice.proxy.session.session import Session
from sluice.quotas.entity import DEFAULT, QuotaEntity
from sluice.quotas.limits.limits import QuotaLimits
from sluice.quotas.manager import QuotaManager
from sluice.usage.records import Recorder
from sluice.usage.request_cost import RequestCosts
from testkit.frames.frames import (
    FETCH,
    METADATA,
    PRODUCE,
    answer,
    fetch,
    fetch_answer_of,
    produce,
    produce_answer,
    record_batch,
    request,
)
from testkit.proxy.playbook import Shell

TOPIC_AUTHORIZATION_FAILED = 29
COSTS: CostTables = parse_request_costs(
    """\
tls: {request_us: 50, request_kib_us: 2, response_kib_us: 2}
costs:
  - {api: Produce, compression: gzip, request_us: 100, request_kib_us: 20, record_us: 2}
  - {api: Produce, request_us: 100, request_kib_us: 1, record_us: 0.1}
  - {api: Fetch, request_us: 100, response_kib_us: 1}
  - {request_us: 100}
""",
    "costs of these tests",
)
TEN_PERCENT = {"request_percentage": 10.0}
SECOND_MS = 1_000.0
TURNAROUND_MS = 1.0
"""between an answer and the client's next request"""


def shared_of(limits: dict[str, float]) -> SharedState:
    return SharedState(QuotaManager(QuotaLimits([(QuotaEntity(DEFAULT, None), limits)])), Recorder())


class Client:
    """One connection that asks again and again."""

    def __init__(
        self,
        shared: SharedState,
        frame: bytes,
        answered: Callable[[], bytes],
        *,
        busy_ms: float = 5.0,
        every_ms: float = TURNAROUND_MS,
        costs: RequestCosts = COSTS.plain,
    ) -> None:
        """`busy_ms`: the broker answers so long after a request. `every_ms`: the client's own pause."""
        self.shell = Shell(Session(shared, SessionPolicy(request_costs=costs), "10.0.0.1"), now_ms=10_000.0)
        self.frame, self.answered = frame, answered
        self.busy_ms, self.every_ms = busy_ms, every_ms
        self.next_ms = self.shell.now_ms
        self.due_ms: float | None = None
        self.answers: list[float] = []

    def step(self, now_ms: float) -> None:
        shell = self.shell
        shell.advance(now_ms - shell.now_ms)
        if self.due_ms is None and self.next_ms <= now_ms:
            if not shell.unread and not shell.kept and not shell.session.in_flight:
                shell.client_sends(self.frame)
            if shell.session.in_flight:
                self.due_ms = now_ms + self.busy_ms
        elif self.due_ms is not None and self.due_ms <= now_ms:
            shell.broker_sends(self.answered())
            self.answers.append(now_ms)
            self.due_ms = None
            self.next_ms = now_ms + self.every_ms

    def rate_per_s(self, *, settle_s: float = 2.5) -> float:
        """Answers a second once the first burst is spent."""
        since_ms = 10_000.0 + settle_s * SECOND_MS
        return sum(at_ms > since_ms for at_ms in self.answers) / ((self.shell.now_ms - since_ms) / SECOND_MS)


def run(clients: list[Client], seconds: float = 6.0, step_ms: float = 0.5) -> None:
    now_ms = 10_000.0
    while now_ms < 10_000.0 + seconds * SECOND_MS:
        for client in clients:
            client.step(now_ms)
        now_ms += step_ms


def throttled(shared: SharedState) -> bool:
    return any(event.quota == "request" for event in shared.recorder.throttles)


@cache
def records(size: int) -> bytes:
    return fetch_answer_of(size)


def empty_fetch() -> bytes:
    return answer(FETCH, 12, {"responses": []})


def test_1_a_consumer_that_polls_without_a_wait_is_held_though_it_fetches_next_to_nothing() -> None:
    """At 0.1 ms a request, 5 % of a thread are 500 requests a second; two busy pollers ask for more."""
    shared = shared_of({"request_percentage": 5.0, "consumer_byte_rate": 1_000_000})
    pollers = [Client(shared, fetch(), empty_fetch, busy_ms=0.5, every_ms=0.0) for _ in range(2)]
    run(pollers)
    assert sum(poller.rate_per_s() for poller in pollers) < 5.0 / 100 * 1_000 / 0.1 * 1.05
    assert throttled(shared)
    alone = shared_of({"consumer_byte_rate": 1_000_000})
    free = [Client(alone, fetch(), empty_fetch, busy_ms=0.5, every_ms=0.0) for _ in range(2)]
    run(free)
    assert sum(poller.rate_per_s() for poller in free) > 1_000
    assert not alone.recorder.throttles


def test_2_requests_that_the_broker_refuses_count_as_much_as_others() -> None:
    """A flood of unauthorized requests does not get past the quota."""

    def refused() -> bytes:
        return answer(METADATA, 9, {"topics": [{"errorCode": TOPIC_AUTHORIZATION_FAILED, "name": "t"}]})

    shared = shared_of({"request_percentage": 1.0})
    flood = [Client(shared, request(METADATA, 9), refused, busy_ms=1.0, every_ms=0.0) for _ in range(5)]
    run(flood)
    assert 80 < sum(client.rate_per_s() for client in flood) < 105  # 10 ms a second, 0.1 ms each
    assert throttled(shared)


def test_3_compressed_records_that_take_long_to_look_at_cost_more_than_their_bytes() -> None:
    """The same bytes, of which the broker has to look into 200 compressed records."""
    rates = {}
    for codec in ("none", "gzip"):
        batch = bytearray(record_batch(bytes(5_000), count=200))
        batch[22] = CODECS.index(codec)
        shared = shared_of({"request_percentage": 5.0, "producer_byte_rate": 100_000_000})
        frame = produce({"t": [(0, bytes(batch))]})
        producers = [Client(shared, frame, produce_answer, busy_ms=1.0, every_ms=0.0) for _ in range(3)]
        run(producers)
        rates[codec] = sum(producer.rate_per_s() for producer in producers)
    assert 50.0 / 0.605 < rates["gzip"] * 1.1 < 50.0 / 0.605 * 1.2
    assert rates["none"] > 3 * rates["gzip"]


def test_4_a_group_that_doubles_and_halves_its_fetches_is_not_throttled_for_its_number_of_requests() -> None:
    """10 members with 400 kB a fetch, then 20 with 200 kB: as much data, twice as many requests."""
    spent = []
    for members, fetched in ((10, 400_000), (20, 200_000)):
        shared = shared_of({"request_percentage": 20.0})
        group = [Client(shared, fetch(), partial(records, fetched), every_ms=45.0) for _ in range(members)]
        run(group, step_ms=5.0)
        assert not throttled(shared)
        (sensor,) = shared.quotas.sensors()
        spent.append(sensor.charged)
    assert spent[1] < 1.25 * spent[0]


def test_5_what_the_network_threads_send_is_charged_too() -> None:
    """Two consumers that ask as often: who is sent a thousand times as much is held."""
    slow = {}
    for size in (1_000, 1_000_000):
        shared = shared_of(TEN_PERCENT)
        consumer = Client(shared, fetch(), partial(records, size), busy_ms=5.0, every_ms=1.0)
        run([consumer])
        slow[size] = throttled(shared)
        if slow[size]:
            assert consumer.rate_per_s() * (0.1 + size / 1024 / 1000) < 105.0
    assert slow == {1_000: False, 1_000_000: True}


def test_6_over_tls_towards_the_broker_the_same_requests_cost_more() -> None:
    rates = {}
    for name, costs in (("plain", COSTS.plain), ("tls", COSTS.tls)):
        shared = shared_of(TEN_PERCENT)
        consumers = [
            Client(shared, fetch(), partial(records, 200_000), busy_ms=2.0, every_ms=0.0, costs=costs)
            for _ in range(3)
        ]
        run(consumers)
        rates[name] = sum(consumer.rate_per_s() for consumer in consumers)
    size_kib = 200_000 / 1024
    expected = (0.15 + 3 * size_kib / 1000) / (0.1 + size_kib / 1000)
    assert 0.9 * expected < rates["plain"] / rates["tls"] < 1.1 * expected


def test_the_costs_of_these_scenarios_are_those_of_their_api() -> None:
    assert COSTS.plain.of(PRODUCE, 9, 1).record_ms == 0.002
