"""The turns of one connection's Produce requests by themselves: which waits, until when, and what is logged.

1,000 B/s, a burst of one second that is spent: a byte takes a ms. The answer budget is 8 s.
"""

from __future__ import annotations

from math import inf

import pytest

from sluice.protocol.apis import PRODUCE
from sluice.proxy.session.arrivals import Arrivals
from sluice.proxy.session.connection_states import State
from sluice.proxy.session.delays import LeftBehind, WaitBudget
from sluice.proxy.session.identity import Identity
from sluice.proxy.session.in_flight import Held
from sluice.proxy.session.policy import SharedState
from sluice.proxy.session.produce.turns import ProduceTurns
from sluice.proxy.session.producer_ids.byte_refusal import ByteReason
from sluice.proxy.session.read_gate import Pace
from sluice.proxy.session.throttle_log import ThrottleLog
from sluice.quotas.entity import QuotaEntity, QuotaLevel
from sluice.quotas.kinds import QuotaKind
from sluice.quotas.limits.limits import QuotaLimits
from sluice.quotas.manager import QuotaManager
from sluice.quotas.sensors.kafka import KafkaSensor
from sluice.quotas.sensors.smooth import SmoothSensor
from sluice.usage.records import EventKind, Recorder

BUDGET_MS = 8_000.0


def bucket(*, owed: float = 0.0, max_debt_ms: float = 60_000.0) -> SmoothSensor:
    entity = QuotaEntity("alice")
    kind = QuotaKind.PRODUCE
    sensor = SmoothSensor(kind, QuotaLevel.USER, entity, 1_000, 0.0, burst_s=1.0, max_debt_ms=max_debt_ms)
    sensor.charge(1_000, 0.0)
    if owed:
        sensor.charge(owed, 0.0)
    return sensor


class Connection:
    """One that produces against a bucket."""

    def __init__(self, sensor: SmoothSensor, *, refuses: bool = False, cap_bytes: int = 5_000) -> None:
        recorder = Recorder()
        self.shared = SharedState(QuotaManager(QuotaLimits([])), recorder, left_behind=LeftBehind(cap_bytes))
        self.events = recorder.throttles
        self.pace = Pace()
        identity = Identity(authentication_required=False, user="alice")
        log = ThrottleLog(recorder, identity, "10.0.0.1", [])
        self.arrivals = Arrivals(WaitBudget(BUDGET_MS, 20_000.0, 4_000.0))
        self.turns = ProduceTurns(self.shared, self.pace, identity, log, self.limit_ms, self.arrivals)
        self.turns.use(sensor, 0.0)
        self.turns.refuses = refuses
        self.turns.wake = self.wake
        self.sensor = sensor
        self.woken = 0
        self.begin = 0

    @staticmethod
    def limit_ms(api_key: int) -> float:
        assert api_key == PRODUCE
        return BUDGET_MS

    def wake(self) -> None:
        self.woken += 1

    def sends(
        self,
        request_bytes: int,
        now_ms: float = 0.0,
        *,
        acks: int = -1,
        spent_ms: float = 0.0,
        is_group: bool = False,
    ) -> tuple[float, float]:
        """(its turn, when it is paid)"""
        clears_at_ms = self.sensor.charge(request_bytes, now_ms)
        assert clears_at_ms > now_ms
        eligible_at_ms, clears_at_ms = self.turns.owe(
            self.sensor, clears_at_ms, request_bytes, acks, now_ms, spent_ms, self.begin, is_group=is_group
        )
        if eligible_at_ms > now_ms:
            self.turns.held = Held(7, 9, request_bytes, acks, now_ms, clears_at_ms, self.sensor)
        return eligible_at_ms, clears_at_ms

    @property
    def logged(self) -> list[tuple[EventKind, float, int]]:
        return [(event.kind, event.delay_ms, event.charged_bytes) for event in self.events]


def test_who_brings_the_bucket_into_debt_goes_at_once_and_is_muted_until_it_is_paid() -> None:
    connection = Connection(bucket())
    assert connection.sends(300) == (0.0, 300.0)
    assert (connection.pace.gate_ms, connection.pace.throttled_by) == (300.0, QuotaKind.PRODUCE)
    assert connection.logged == [(EventKind.MUTE, 300.0, 300)]
    assert not connection.events[0].continues
    assert (connection.sensor.held, connection.sensor.over) == (0, 0)


def test_its_mute_ends_with_the_answer_budget_and_what_is_not_paid_then_counts_as_over() -> None:
    connection = Connection(bucket())
    assert connection.sends(9_500, spent_ms=100.0) == (0.0, 7_900.0)
    assert connection.sensor.over == 1_600
    assert Connection(bucket()).sends(9_500, spent_ms=8_100.0) == (0.0, 0.0), "it is spent"


def test_who_comes_in_debt_waits_for_its_turn() -> None:
    connection = Connection(bucket(owed=500))
    assert connection.sends(300) == (500.0, 800.0)
    assert (connection.pace.state, connection.pace.wake_at_ms) == (State.HOLDING, 500.0)
    assert connection.logged == [(EventKind.HOLD, 500.0, 300)]
    assert connection.sensor.held == 300
    assert not connection.turns.is_turn(499.0)
    assert connection.turns.is_turn(499.5), "half a ms early is in time"
    held = connection.turns.take(500.0, client_left=False)
    assert held is not None
    assert held.clears_at_ms == 800.0
    assert (connection.pace.gate_ms, connection.sensor.held, connection.sensor.over) == (500.0, 0, 0)
    assert connection.turns.paid_at_ms == 800.0
    assert connection.logged[1:] == [(EventKind.MUTE, 300.0, 300)]
    assert connection.events[1].continues
    assert connection.turns.held is None


def test_it_goes_when_its_budget_is_over_though_it_is_not_paid_and_is_not_muted_then() -> None:
    connection = Connection(bucket(owed=20_000))
    assert connection.sends(300, 100.0, spent_ms=2_000.0) == (6_100.0, 6_100.0)
    assert not connection.turns.is_over_budget(6_100.0)
    assert connection.turns.is_turn(6_100.0)
    held = connection.turns.take(6_100.0, client_left=False)
    assert held is not None
    assert held.clears_at_ms == 6_100.0
    assert connection.sensor.over == 300
    assert [event.kind for event in connection.events] == [EventKind.HOLD]


def test_its_mute_behind_a_wait_ends_with_its_budget() -> None:
    connection = Connection(bucket(owed=6_000))
    connection.sends(4_000)
    assert connection.turns.is_turn(6_000.0)
    held = connection.turns.take(6_000.0, client_left=False)
    assert held is not None
    assert held.clears_at_ms == 8_000.0
    assert connection.sensor.over == 2_000


def test_a_bucket_that_owes_less_than_half_a_ms_holds_for_half_a_ms() -> None:
    connection = Connection(bucket(owed=0.25))
    assert connection.sends(300)[0] == 0.5
    assert connection.pace.wake_at_ms == 0.5


def test_a_limit_in_shadow_mode_delays_nothing_and_says_what_it_would_have() -> None:
    connection = Connection(bucket())
    connection.sensor.shadow = True
    assert connection.sends(300, 10.0) == (10.0, 10.0)
    assert connection.logged == [(EventKind.SHADOW, 290.0, 300)]
    assert connection.pace.state is State.READING


def test_one_that_refuses_lets_nothing_go_ahead_of_it() -> None:
    connection = Connection(bucket(owed=20_000), refuses=True)
    assert connection.sends(300) == (8_000.0, 8_000.0)
    assert not connection.turns.is_turn(7_999.0)
    assert connection.turns.is_turn(8_000.0)
    assert not connection.turns.is_over_budget(7_999.0)
    assert connection.turns.is_over_budget(7_999.5)
    refusal = connection.turns.refuse(8_000.0)
    assert (refusal.reason, refusal.sensor) == (ByteReason.OVER_BUDGET, connection.sensor)
    assert (refusal.held_ms, refusal.told_ms) == (8_000.0, 8_000.0)
    assert (connection.turns.held, connection.sensor.held, connection.sensor.refunded) == (None, 0, 300)
    assert len(connection.sensor.hold_queue()) == 0


@pytest.mark.parametrize(("is_group", "wake_at_ms"), [(False, 20_000.0), (True, 8_000.0)])
def test_one_that_refuses_lets_what_has_no_answer_wait_on_save_on_a_groups_connection(
    *, is_group: bool, wake_at_ms: float
) -> None:
    connection = Connection(bucket(owed=20_000), refuses=True)
    connection.sends(300, acks=0, is_group=is_group)
    assert connection.pace.wake_at_ms == wake_at_ms
    assert connection.turns.is_turn(20_000.0)
    assert not connection.turns.is_over_budget(20_000.0)


def test_a_later_request_is_not_refused_by_the_budget_of_an_earlier_one() -> None:
    connection = Connection(bucket(owed=500), refuses=True)
    connection.sends(300)
    assert connection.turns.is_turn(500.0)
    assert not connection.turns.is_over_budget(500.0)
    connection.turns.take(500.0, client_left=False)
    connection.turns.refuses = False
    connection.sensor.charge(60_000, 600.0)
    connection.sends(100, 600.0)
    assert connection.pace.wake_at_ms == 8_600.0
    assert not connection.turns.is_over_budget(8_600.0)


def test_what_was_read_ahead_goes_by_its_clients_patience_and_not_by_the_budget() -> None:
    connection = Connection(bucket(owed=20_000))
    connection.arrivals.is_pipelined = True
    connection.arrivals.came(0, 300, 0.0)
    assert connection.sends(300, 100.0) == (4_000.0, 4_000.0)
    connection = Connection(bucket(owed=20_000))
    connection.arrivals.came(0, 300, 0.0)
    assert connection.sends(300, 100.0) == (8_100.0, 8_100.0), "the budget is earlier"


def test_one_that_refuses_does_not_hasten_what_was_read_ahead() -> None:
    connection = Connection(bucket(owed=20_000), refuses=True)
    connection.arrivals.is_pipelined = True
    connection.arrivals.came(0, 300, 0.0)
    assert connection.sends(300, 100.0) == (8_100.0, 8_100.0)
    connection.turns.read_ahead(0, 300, 200.0)
    assert connection.pace.wake_at_ms == 8_100.0


def test_what_comes_behind_a_held_request_hastens_it() -> None:
    """1,200 B that came at 1,000 ms go by 5,000: a quarter of that is the first one's, whose part is 300."""
    connection = Connection(bucket(owed=20_000))
    connection.arrivals.is_pipelined = True
    connection.sends(300)
    connection.turns.read_ahead(0, 120, 500.0)
    ticket = connection.turns._ticket
    assert ticket is not None
    assert (ticket.here_bytes, connection.pace.wake_at_ms) == (120, 8_000.0)
    connection.arrivals.came(0, 1_200, 1_000.0)
    connection.turns.read_ahead(0, 1_200, 1_000.0)
    assert (ticket.here_bytes, ticket.deadline_ms) == (300, 1_000.0 + 4_000.0 - 900.0)
    assert 1_000.0 < connection.pace.wake_at_ms <= 4_100.0
    connection.turns.read_ahead(0, 1_200, 1_100.0)
    assert ticket.deadline_ms == 4_100.0, "a gain of less than half a ms is none"


def test_where_nothing_is_held_what_comes_hastens_nothing() -> None:
    connection = Connection(bucket())
    connection.turns.read_ahead(0, 300, 0.0)
    assert connection.pace.state is State.READING


def test_many_that_wait_share_the_rate_that_is_left_for_what_came_behind() -> None:
    sensor = bucket(owed=20_000)
    others = [Connection(sensor) for _ in range(3)]
    for other in others:
        other.sends(10)
    connection = Connection(sensor)
    connection.arrivals.is_pipelined = True
    connection.arrivals.came(0, 600, 0.0)
    connection.sends(300)
    assert connection.turns._last_ms == 4_000.0 - 300.0 * 3, "of three, as many as waited when it came"


def test_the_client_of_a_request_without_an_answer_leaves_and_it_waits_for_the_quota_alone() -> None:
    connection = Connection(bucket(owed=20_000))
    connection.sends(300, acks=0)
    assert connection.pace.wake_at_ms == 8_000.0
    assert connection.turns.outlast(1_000.0)
    assert connection.turns.is_for_nobody
    assert connection.pace.wake_at_ms == 20_000.0
    assert not connection.turns.is_turn(8_000.0)
    assert not connection.turns.is_over_budget(60_000.0)
    connection.arrivals.came(0, 900, 1_000.0)
    connection.turns.read_ahead(0, 900, 1_000.0)
    assert connection.pace.wake_at_ms == 20_000.0, "nobody's patience counts"
    assert connection.turns.is_turn(20_000.0)
    assert connection.turns.take(20_000.0, client_left=False) is not None
    connection.sensor.charge(30_000, 20_000.0)
    assert connection.sends(300, 20_000.0, acks=0)[0] == 50_300.0, "nor for what it left behind that"


def test_what_a_user_leaves_behind_is_capped_and_given_back_when_its_connection_ends() -> None:
    connection = Connection(bucket(owed=20_000), cap_bytes=300)
    connection.sends(301, acks=0)
    assert not connection.turns.outlast(1_000.0)
    assert not connection.turns.is_for_nobody
    assert connection.turns.take(8_000.0, client_left=True) is None
    assert connection.sensor.refunded == 301
    connection.sends(300, 8_000.0, acks=0)
    assert connection.turns.outlast(8_100.0)
    assert not connection.shared.left_behind.take("alice", 1)
    connection.turns.closed(8_200.0)
    assert connection.shared.left_behind.take("alice", 300)
    connection.turns.closed(8_200.0)
    assert not connection.shared.left_behind.take("alice", 300), "it is given back once"


@pytest.mark.parametrize(("acks", "goes"), [(-1, False), (1, False), (0, True)])
def test_a_held_request_whose_client_has_left_goes_only_if_nobody_will_send_it_again(
    acks: int, *, goes: bool
) -> None:
    connection = Connection(bucket(owed=500))
    connection.sends(300, acks=acks)
    assert connection.turns.is_turn(500.0)
    assert (connection.turns.take(500.0, client_left=True) is not None) is goes
    assert (connection.sensor.refunded, connection.sensor.held) == (0 if goes else 300, 0)
    if not goes:
        assert connection.logged[1:] == [(EventKind.DROP, 0.0, 300)]
        assert (len(connection.sensor.hold_queue()), connection.turns.held) == (0, None)


def test_a_connection_that_closes_gives_back_what_it_held() -> None:
    connection = Connection(bucket(owed=500))
    connection.sends(300)
    connection.turns.closed(100.0)
    assert (connection.sensor.refunded, len(connection.sensor.hold_queue())) == (300, 0)
    assert connection.turns.wake is None
    connection.turns.drop(200.0)
    assert connection.sensor.refunded == 300, "once"


def test_whose_turn_comes_earlier_is_woken() -> None:
    sensor = bucket(owed=500)
    first, second = Connection(sensor), Connection(sensor)
    first.sends(300)
    second.sends(300)
    assert second.pace.wake_at_ms == 800.0
    first.turns.drop(100.0)
    assert second.woken == 1
    assert second.turns.is_turn(500.0)


def test_an_answer_tells_the_mute_or_what_the_next_request_will_wait_for() -> None:
    connection = Connection(bucket())
    assert connection.turns.tell_ms(connection.sensor, 700.0, 300, 200.0) == 500.0, "nothing was owed yet"
    connection.sends(900)
    assert connection.turns.tell_ms(connection.sensor, 300.0, 900, 200.0) == 700.0, "900 are paid at 900"
    other = Connection(connection.sensor)
    assert other.turns.tell_ms(connection.sensor, 100.0, 900, 200.0) == 0.0
    other.sends(100, 200.0)
    assert other.turns.tell_ms(connection.sensor, 100.0, 100, 200.0) == 800.0, (
        "its turn is before the other's"
    )
    assert other.turns.tell_ms(connection.sensor, 100.0, 900, 200.0) == 800.0 + 900.0, "the other comes, too"
    assert other.turns.tell_ms(connection.sensor, 9_900.0, 100, 200.0) == 9_700.0
    assert connection.turns.tell_ms(bucket(), 350.0, 900, 200.0) == 150.0, "of another bucket"


def one_behind_another(sensor: SmoothSensor) -> tuple[Connection, Connection]:
    """Both have asked for more than the bucket has: 900 bytes, and 100."""
    first, second = Connection(sensor), Connection(sensor)
    first.sends(900)
    first.turns.tell_ms(sensor, 900.0, 900, 0.0)
    second.sends(100)
    return first, second


def test_who_is_charged_elsewhere_is_not_waited_for() -> None:
    sensor = bucket()
    first, second = one_behind_another(sensor)
    assert second.turns.tell_ms(sensor, 900.0, 900, 0.0) == 1_900.0
    place = first.turns._place
    first.turns.use(bucket(), 0.0)
    assert first.turns._place is not place
    assert second.turns.tell_ms(sensor, 900.0, 900, 0.0) == pytest.approx(1_000.0)
    assert first.turns.tell_ms(sensor, 900.0, 900, 0.0) == 900.0


def test_who_has_closed_is_not_waited_for() -> None:
    sensor = bucket()
    first, second = one_behind_another(sensor)
    first.turns.closed(0.0)
    assert second.turns.tell_ms(sensor, 900.0, 900, 0.0) == pytest.approx(1_000.0)


def test_who_has_come_is_not_expected_any_more() -> None:
    sensor = bucket()
    first, second = Connection(sensor), Connection(sensor)
    first.sends(900)
    first.turns.tell_ms(sensor, 900.0, 900, 0.0)
    sensor.refund(900, 0.0)
    first.sends(50, 0.0)
    second.sends(100)
    assert second.turns.tell_ms(sensor, 0.0, 100, 0.0) == 150.0


def test_a_long_wait_is_looked_at_again_every_minute() -> None:
    connection = Connection(bucket(owed=59_000, max_debt_ms=inf), refuses=True)
    connection.sensor.charge(100_000, 0.0)
    connection.sends(300, acks=0)
    assert connection.pace.wake_at_ms == 60_000.0
    assert not connection.turns.is_turn(59_999.0)
    assert connection.pace.wake_at_ms == 119_999.0


def test_a_bucket_paced_as_kafka_does_holds_nothing() -> None:
    sensor = KafkaSensor(QuotaKind.PRODUCE, QuotaLevel.USER, QuotaEntity("alice"), 1_000, 0.0)
    assert sensor.hold_queue() is None
