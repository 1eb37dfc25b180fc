"""The request time of one connection by itself: what is charged, how long it is muted, what is told.

100 ms of threads a second (10 %), a burst of a second; a request costs 50 ms, a Produce's batch 20 more, a
record of it 1, with zstd 100 in all.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from sluice.protocol.apis import FETCH, PRODUCE, ApiKey
from sluice.protocol.errors import MalformedFrame
from sluice.proxy.session.identity import Identity
from sluice.proxy.session.in_flight import MAX_IN_FLIGHT, NONE, InFlight
from sluice.proxy.session.policy import SessionPolicy
from sluice.proxy.session.read_gate import Pace
from sluice.proxy.session.request_time import IN_FLIGHT_WITHIN_QUOTA, RequestTime, count_cluster_action
from sluice.quotas.entity import DEFAULT, QuotaEntity, QuotaLevel
from sluice.quotas.kinds import QuotaKind
from sluice.quotas.limits.limits import QuotaLimits
from sluice.quotas.sensors.sensor import Sensor
from sluice.quotas.sensors.smooth import SmoothSensor
from sluice.usage.records import EventKind, Flow
from sluice.usage.request_cost import Coefficients, CostRow, RequestCosts
from testkit.frames.frames import HEARTBEAT, answer, fetch_answer_of, produce, record_batch, throttle_of
from testkit.proxy.playbook import shared_of

COSTS = RequestCosts([
    CostRow(Coefficients(100.0), PRODUCE, codec=4),
    CostRow(Coefficients(75.0, batch_ms=20.0, record_ms=1.0), PRODUCE, acks_all=True),
    CostRow(Coefficients(50.0, batch_ms=20.0, record_ms=1.0), PRODUCE),
    CostRow(Coefficients(50.0)),
])  # fmt: skip


def bucket(*, owed_ms: float = 0.0) -> SmoothSensor:
    sensor = SmoothSensor(QuotaKind.REQUEST, QuotaLevel.USER, QuotaEntity("alice"), 100.0, 0.0, burst_s=1.0)
    if owed_ms:
        sensor.charge(100.0 + owed_ms / 10.0, 0.0)
    return sensor


class Connection:
    """One of alice, of the client id `app`."""

    def __init__(
        self, sensor: Sensor, limits: QuotaLimits | None = None, costs: RequestCosts = COSTS
    ) -> None:
        self.shared = shared_of(limits or QuotaLimits([]))
        self.pace = Pace()
        identity = Identity(authentication_required=False, user="alice")
        identity.client_id = "app"
        self.flow = Flow("app")
        policy = SessionPolicy(request_costs=costs)
        self.time = RequestTime(sensor, policy, self.shared, self.pace, identity, "10.0.0.1")
        self.sensor = sensor

    def answered(
        self,
        api_key: int = HEARTBEAT,
        version: int = 4,
        *,
        now_ms: float = 1_000.0,
        upstream_ms: float = 500.0,
        correlation_id: int = 1,
        limit_ms: float = 8_000.0,
        at_boundary: bool = True,
        frame: bytes | None = None,
    ) -> bytes:
        """What goes to the client."""
        buf = bytearray(frame or answer(api_key, version, correlation_id=correlation_id))
        entry: InFlight = (
            correlation_id, api_key, version, self.flow, 90, now_ms - upstream_ms, 0.0, 0.0, None, NONE,
        )  # fmt: skip
        self.time.charge(
            buf, 0, len(buf), len(buf), entry, lambda _: limit_ms, now_ms, at_boundary=at_boundary
        )
        return bytes(buf)

    @property
    def charged(self) -> float:
        return self.sensor.charged

    def produces(
        self, frame: bytes, *, correlation_id: int = 1, acks: int = 1, arrived: int | None = None
    ) -> bool:
        end = len(frame) if arrived is None else arrived
        return self.time.note(bytearray(frame), 17, end, len(frame), 9, correlation_id, acks)


def test_a_produce_goes_on_when_the_heads_of_all_its_batches_have_come() -> None:
    """What came behind the first of them cost nothing: a request of 742 ms of a thread was charged 7."""
    connection = Connection(bucket())
    frame = produce({"t": [(0, record_batch(bytes(800)))] * 500}, version=9)
    last_head_end = len(frame) - 800 - 3
    for arrived in (20, 60, 1_000, 100_000, last_head_end - 1):
        goes = connection.produces(frame, arrived=arrived)
        assert (goes, connection.time.marks) == (False, [])
    connection = Connection(bucket())
    goes = connection.produces(frame, arrived=last_head_end)
    assert (goes, [mark[:2] for mark in connection.time.marks]) == (True, [(1, 500)])


def test_a_produce_of_one_batch_goes_on_with_its_head() -> None:
    """Whether one like it was seen before or not."""
    frame = produce({"t": [(0, record_batch(bytes(300_000), count=9))]}, version=9)
    head_end = frame.index(bytes(300_000))
    connection = Connection(bucket())
    for number in (1, 2):
        assert not connection.produces(frame, correlation_id=number, arrived=head_end - 1)
        assert connection.produces(frame, correlation_id=number, arrived=head_end)
    assert [mark[:3] for mark in connection.time.marks] == [(1, 1, 9), (2, 1, 9)]


def test_bytes_that_come_one_by_one_do_not_have_all_heads_walked_each_time() -> None:
    """Of 500 heads that have come before them. Counted are the looks at what they bring."""
    connection, one = Connection(bucket()), record_batch()
    frame = produce({"t": [(0, one)] * 1_000}, version=9)
    half = frame.index(one) + 500 * 67
    looks = 0
    for arrived in range(half, half + 2_000):
        connection.produces(frame, arrived=arrived)
        looks += bool(connection.time._usage.batches)
    assert 1 <= looks <= 3
    assert connection.produces(frame)


def test_a_request_costs_what_its_kind_does_and_no_more_than_it_took() -> None:
    connection = Connection(bucket())
    connection.answered()
    assert connection.charged == 50.0
    connection.answered(upstream_ms=30.0)
    assert connection.charged == 80.0
    assert connection.shared.recorder.throttles == []


def test_what_is_no_produce_has_neither_batches_nor_a_codec_nor_acks() -> None:
    costs = RequestCosts([
        CostRow(Coefficients(900.0), acks_all=True), CostRow(Coefficients(800.0), codec=1),
        CostRow(Coefficients(50.0, batch_ms=20.0, record_ms=1.0)),
    ])  # fmt: skip
    connection = Connection(bucket(), costs=costs)
    connection.answered(upstream_ms=5_000.0)
    assert connection.charged == 50.0


def test_within_its_limit_six_requests_may_be_under_way_and_in_debt_one() -> None:
    connection = Connection(bucket())
    connection.time.use(connection.time.sensor, 0.0)
    assert connection.pace.max_in_flight == IN_FLIGHT_WITHIN_QUOTA == 6
    connection.answered(now_ms=0.0)
    assert connection.pace.max_in_flight == 6
    for _ in range(2):
        connection.answered(now_ms=0.0)
    assert connection.pace.max_in_flight == 1
    connection.answered(now_ms=60_000.0)
    assert connection.pace.max_in_flight == 6
    connection.time.dropped()
    assert connection.pace.max_in_flight == MAX_IN_FLIGHT


@pytest.mark.parametrize(
    ("owed_ms", "shadow", "most"),
    [(0.0, False, 6), (500.0, False, 1), (0.0, True, 2_000), (500.0, True, 2_000)],
)
def test_another_limit_begins_with_what_is_owed_there(owed_ms: float, *, shadow: bool, most: int) -> None:
    connection, other = Connection(bucket()), bucket(owed_ms=owed_ms)
    other.shadow = shadow
    connection.time.use(other, 0.0)
    assert (connection.time.sensor, connection.pace.max_in_flight) == (other, most)
    spent = bucket()
    for charged, most_then in ((100.0, 6), (0.5, 1)):
        spent.charge(charged, 0.0)
        connection.time.use(spent, 0.0)
        assert connection.pace.max_in_flight == most_then, "what is spent is not owed"


def test_a_limit_that_is_in_shadow_mode_now_lets_as_many_be_under_way_as_none() -> None:
    """Also where the answer comes before the next request looks the limit up."""
    connection = Connection(bucket(owed_ms=500.0))
    connection.answered(now_ms=0.0)
    assert connection.pace.max_in_flight == 1
    connection.time.sensor.shadow = True
    connection.answered(now_ms=60_000.0)
    assert connection.pace.max_in_flight == MAX_IN_FLIGHT


def test_who_owes_is_muted_until_it_is_paid_for_a_second_at_most_and_told_so() -> None:
    connection = Connection(bucket(owed_ms=200.0))
    told = connection.answered(now_ms=0.0)
    assert throttle_of(HEARTBEAT, 4, told) == 700
    assert (connection.pace.gate_ms, connection.pace.throttled_by) == (700.0, QuotaKind.REQUEST)
    (event,) = connection.shared.recorder.throttles
    assert (event.kind, event.begun_ms, event.delay_ms, event.quota, event.rule) == (
        EventKind.MUTE, 0.0, 700.0, "request", "user",
    )  # fmt: skip
    assert (event.user, event.client_id, event.api_key, event.charged_bytes) == ("alice", "app", HEARTBEAT, 0)
    assert (event.limit, event.charged, event.bucket) == (connection.sensor.limit, 50.0, QuotaEntity("alice"))
    assert event.flow is connection.flow
    told = connection.answered(now_ms=0.0)
    assert throttle_of(HEARTBEAT, 4, told) == 1_000, "one window"
    assert connection.pace.gate_ms == 1_000.0


def test_its_connections_longest_delay_bounds_the_mute_and_one_that_is_over_is_none() -> None:
    connection = Connection(bucket(owed_ms=200.0))
    assert throttle_of(HEARTBEAT, 4, connection.answered(now_ms=0.0, limit_ms=300.0)) == 300
    assert connection.pace.gate_ms == 300.0
    none = Connection(bucket(owed_ms=200.0))
    assert throttle_of(HEARTBEAT, 4, none.answered(now_ms=0.0, limit_ms=0.0)) == 0
    assert none.shared.recorder.throttles == []


def test_a_longer_delay_of_another_quota_counts_and_its_own_is_told() -> None:
    connection = Connection(bucket(owed_ms=200.0))
    connection.pace.mute(5_000.0, 0.0, QuotaKind.PRODUCE)
    assert throttle_of(HEARTBEAT, 4, connection.answered(now_ms=0.0)) == 700
    assert (connection.pace.gate_ms, connection.pace.throttled_by) == (5_000.0, QuotaKind.PRODUCE)
    assert connection.shared.recorder.throttles == []


def test_a_fetch_is_told_no_more_than_its_client_may_sleep() -> None:
    connection = Connection(bucket(owed_ms=200.0))
    connection.time._delays = replace(connection.time._delays, written_fetch_throttle_max_ms=250.0)
    told = connection.answered(FETCH, 12, now_ms=0.0, frame=fetch_answer_of(200))
    assert throttle_of(FETCH, 12, told) == 250
    assert connection.pace.gate_ms == 700.0


def test_in_shadow_mode_nobody_waits_and_the_debt_is_waived() -> None:
    connection = Connection(bucket(owed_ms=5_000.0))
    connection.sensor.shadow = True
    assert throttle_of(HEARTBEAT, 4, connection.answered(now_ms=0.0)) == 0
    (event,) = connection.shared.recorder.throttles
    assert (event.kind, event.delay_ms) == (EventKind.SHADOW, 1_000.0)
    assert connection.sensor.tokens(0.0) == 0.0
    assert connection.pace.gate_ms == 0.0


def test_who_is_exempt_is_measured() -> None:
    connection = Connection(bucket())
    connection.sensor.exempt = True
    for _ in range(5):
        connection.answered(now_ms=0.0)
    assert connection.shared.recorder.exempt_request_ms == {"cluster_action": 0.0, "rule": 250.0}
    assert connection.pace.gate_ms == 0.0


def test_an_answer_is_charged_to_the_client_id_that_asked() -> None:
    """The connection has taken another since."""
    limits = QuotaLimits([(QuotaEntity(None, DEFAULT), {"request_percentage": 10.0})])
    connection = Connection(bucket(), limits)
    connection.flow = Flow("old")
    connection.answered()
    assert connection.charged == 0.0
    (sensor,) = connection.shared.quotas.sensors()
    assert (sensor.charged, sensor.entity) == (50.0, QuotaEntity(None, "old"))
    unlimited = Connection(bucket())
    unlimited.flow = Flow("old")
    unlimited.answered()
    assert unlimited.charged == 0.0


@pytest.mark.parametrize(("error", "costs"), [(0, 0.0), (58, 50.0)])
def test_a_login_that_the_broker_took_costs_nothing(error: int, costs: float) -> None:
    connection = Connection(bucket())
    key = ApiKey.SASL_AUTHENTICATE
    connection.answered(key, 2, frame=answer(key, 2, {"errorCode": error}))
    assert connection.charged == costs


def produce_of_ids(*counts: int) -> bytes:
    """A batch of so many records to each partition."""
    batches = [(number, record_batch(b"x" * 40, count=count)) for number, count in enumerate(counts)]
    return produce({"orders": batches}, version=9)


def test_a_produce_costs_by_its_batches_and_records_and_whether_all_must_have_it() -> None:
    for frame, acks, costs in (
        (produce_of_ids(7), 1, 77.0), (produce_of_ids(7), -1, 102.0), (produce_of_ids(3, 4), 1, 97.0),
        (produce_of_ids(1), 1, 71.0), (produce_of_ids(1, 0), 1, 91.0),
    ):  # fmt: skip
        connection = Connection(bucket())
        for number in (1, 2):
            connection.produces(frame, acks=acks, correlation_id=number)
        for number in (1, 2):
            connection.answered(PRODUCE, 9, correlation_id=number, now_ms=number * 60_000.0)
        assert connection.charged == 2 * costs
        assert connection.time.marks == []


@pytest.mark.parametrize(("acks", "cost"), [(1, 77.0), (-1, 102.0)])
def test_a_produce_that_is_known_by_its_begin_costs_as_much_as_the_first_that_was_read(
    acks: int, cost: float
) -> None:
    frame = produce({"orders": [(0, record_batch(b"x" * 400, count=7))]}, version=9)
    connection = Connection(bucket())
    for number in (1, 2, 3):
        connection.produces(frame, correlation_id=number, acks=acks)
        connection.answered(PRODUCE, 9, correlation_id=number, now_ms=number * 60_000.0)
        assert connection.charged == number * cost
        assert connection.time.marks == []


def test_a_batch_says_how_it_is_compressed() -> None:
    for count in (1, 2):
        frame = bytearray(produce_of_ids(*[5] * count))
        at = frame.index(record_batch(b"x" * 40, count=5)) + 22
        frame[at] |= 4
        connection = Connection(bucket())
        connection.produces(bytes(frame))
        connection.answered(PRODUCE, 9)
        assert connection.charged == 100.0


@pytest.mark.parametrize("dear", [0, 1, 2])
def test_of_batches_that_are_compressed_differently_the_dearest_counts(dear: int) -> None:
    """A tiny one in front, as it is, made 900 kB of gzip behind it cheap."""
    costs = RequestCosts([
        CostRow(Coefficients(500.0), PRODUCE, codec=3), CostRow(Coefficients(100.0), PRODUCE, codec=4),
        CostRow(Coefficients(50.0)),
    ])  # fmt: skip
    frame = bytearray(produce_of_ids(5, 6, 7))
    for number, count in enumerate((5, 6, 7)):
        at = frame.index(record_batch(b"x" * 40, count=count)) + 22
        frame[at] |= 3 if number == dear else 4 * (number % 2)
    connection = Connection(bucket(), costs=costs)
    connection.produces(bytes(frame))
    assert [mark[1:4] for mark in connection.time.marks] == [(3, 18, 3)]


def test_a_produce_that_went_before_there_was_a_limit_is_taken_for_one_of_one_record() -> None:
    connection = Connection(bucket())
    for number in (5, 6, 7):
        connection.produces(produce_of_ids(9), correlation_id=number)
    connection.answered(PRODUCE, 9, correlation_id=1)
    assert connection.charged == 50.0 + 20.0 + 1.0
    assert len(connection.time.marks) == 3
    connection.answered(PRODUCE, 9, correlation_id=6, now_ms=60_000.0)
    assert connection.charged == 71.0 + 79.0
    assert [mark[0] for mark in connection.time.marks] == [7], "what was never answered is forgotten"


def test_what_contradicts_itself_or_has_too_many_parts_does_not_go_on() -> None:
    """It would go for nothing, and a broker may be able to read it: it minds neither 101 tagged fields nor
    20,001 batches."""
    frames = [bytearray(produce_of_ids(9, 9)), bytearray(produce({"t": [(0, record_batch())] * 20_001}))]
    frames[0][-40:] = b"\xff" * 40
    for frame in frames:
        connection = Connection(bucket())
        with pytest.raises(MalformedFrame):
            connection.produces(bytes(frame))
        assert connection.time.marks == []


@pytest.mark.parametrize(("owed_ms", "wait_ms"), [(0.0, 0.0), (0.5, 0.5), (300.0, 300.0), (5_000.0, 1_000.0)])
def test_the_first_request_of_a_connection_waits_for_what_its_user_owes(
    owed_ms: float, wait_ms: float
) -> None:
    connection = Connection(bucket(owed_ms=owed_ms))
    assert connection.time.greet(0.0) == wait_ms
    assert connection.pace.gate_ms == wait_ms
    shadowed = Connection(bucket(owed_ms=owed_ms))
    shadowed.sensor.shadow = True
    assert shadowed.time.greet(0.0) == 0.0


def test_an_answer_may_be_written_into_when_it_is_whole_or_its_throttle_stands_at_a_fixed_place() -> None:
    can_tell = RequestTime.can_tell
    assert can_tell(0, 900, 900, HEARTBEAT, 4)
    assert not can_tell(0, 900, 5_000, HEARTBEAT, 4)
    assert can_tell(100, 1_124, 5_000, HEARTBEAT, 4)
    assert not can_tell(100, 1_123, 5_000, HEARTBEAT, 4)
    assert not can_tell(0, 2_000, 5_000, PRODUCE, 9), "it stands at the end"
    assert not can_tell(0, 2_000, 512 * 1024, PRODUCE, 9)
    assert can_tell(0, 2_000, 512 * 1024 + 1, PRODUCE, 9), "too large to keep"


def test_requests_between_brokers_are_measured_apart() -> None:
    connection = Connection(bucket())
    entry: InFlight = (1, ApiKey.FETCH, 12, connection.flow, 90, 100.0, 0.0, 0.0, None, NONE)
    count_cluster_action(COSTS, connection.shared.recorder, entry, 50, 1_000.0)
    count_cluster_action(COSTS, connection.shared.recorder, entry, 50, 120.0)
    assert connection.shared.recorder.exempt_request_ms == {"cluster_action": 70.0, "rule": 0.0}
