"""The turns of one connection's Fetches by themselves: what goes, with which waits, and what is given back.

1,000 B/s, a burst of one second: a byte takes a ms. Batches are of 100 B.
"""

from __future__ import annotations

from struct import pack, unpack

import pytest

from sluice.protocol.apis import ApiKey
from sluice.proxy.session.connection_states import State
from sluice.proxy.session.fetch.turns import FetchTurns, Turn
from sluice.proxy.session.read_gate import Pace
from sluice.quotas.entity import QuotaEntity, QuotaLevel
from sluice.quotas.kinds import QuotaKind
from sluice.quotas.sensors.smooth import SmoothSensor

LIMIT_MS = 3_000.0
MAX_BYTES_AT = 8


def bucket(user: str = "alice", *, owed: float = 0.0) -> SmoothSensor:
    sensor = SmoothSensor(QuotaKind.FETCH, QuotaLevel.USER, QuotaEntity(user), 1_000, 0.0, burst_s=1.0)
    sensor.fetch_queue().batches.saw([100], 0.0)
    if owed:
        sensor.charge(1_000 + owed, 0.0)
    return sensor


class Connection:
    """One that fetches from a bucket."""

    def __init__(self, sensor: SmoothSensor) -> None:
        self.pace = Pace()
        self.turns = FetchTurns(self.pace, self.limit_ms)
        self.sensor = sensor
        self.turns.use(sensor, 0.0)
        self.woken = 0
        self.turns.wake = self.wake

    def limit_ms(self, api_key: int) -> float:
        return LIMIT_MS if api_key == ApiKey.FETCH else 9_000.0

    def wake(self) -> None:
        self.woken += 1

    def asks(
        self, now_ms: float, *, max_bytes: int = 1_000, max_wait_ms: int = 400, api_key: int = ApiKey.FETCH
    ) -> Turn:
        self.buf = bytearray(pack(">iii", max_wait_ms, 1, max_bytes))
        return self.asks_again(now_ms, api_key)

    def asks_again(self, now_ms: float, api_key: int = ApiKey.FETCH) -> Turn:
        if self.pace.state is State.HOLDING:
            self.pace.release(now_ms)
        return self.turns.turn(self.sensor, self.buf, MAX_BYTES_AT, api_key, now_ms)

    @property
    def went(self) -> tuple[int, int]:
        """(max_wait_ms, max_bytes) of what goes to the broker."""
        max_wait_ms, _, max_bytes = unpack(">iii", self.buf)
        return max_wait_ms, max_bytes

    def answered(self, now_ms: float, *sizes: int) -> None:
        """By batches of these bytes, for the Fetch that went last."""
        self.sensor.charge(sum(sizes), now_ms)
        self.turns.brought(self.sensor, list(sizes), now_ms)
        self.turns.settle(self.sensor, self.turns.reserved_bytes, sum(sizes), now_ms)

    @property
    def queue_bytes(self) -> float:
        return self.sensor.fetch_queue().reserved_bytes


def test_a_fetch_of_a_bucket_that_owes_nothing_goes_as_it_came() -> None:
    connection = Connection(bucket())
    assert connection.asks(0.0, max_bytes=600) is Turn.GO
    assert connection.went == (400, 600)
    assert (connection.turns.reserved_bytes, connection.queue_bytes) == (600, 600)
    assert (connection.turns.is_held, connection.turns.held_ms) == (False, 0.0)


def test_one_fetch_takes_what_the_bucket_holds_and_its_poll_is_short_for_who_may_come() -> None:
    connection = Connection(bucket())
    assert connection.asks(0.0, max_bytes=50_000, max_wait_ms=4_000) is Turn.GO
    assert connection.went == (1_000, 1_000)
    connection.answered(0.0)
    other = Connection(connection.sensor)
    assert other.asks(0.0, max_bytes=400) is Turn.GO
    other.answered(0.0)
    assert connection.asks(0.0, max_bytes=1_000, max_wait_ms=4_000) is Turn.GO
    assert connection.went == (4_000, 500), "half, and half is left for the other"
    assert other.asks(0.0, max_bytes=1_000, max_wait_ms=4_000) is Turn.GO
    assert connection.sensor.fetch_queue().connections == 2


@pytest.mark.parametrize(("max_wait_ms", "went_ms"), [(99, 99), (100, 100), (101, 100), (4_000, 100)])
def test_a_poll_that_leaves_nothing_to_others_waits_for_100_ms(max_wait_ms: int, went_ms: int) -> None:
    sensor = bucket()
    first, second = Connection(sensor), Connection(sensor)
    first.asks(0.0, max_bytes=10)
    first.answered(0.0)
    sensor.charge(950, 0.0)
    assert second.asks(0.0, max_wait_ms=max_wait_ms) is Turn.GO
    assert second.went[0] == went_ms


@pytest.mark.parametrize(("max_wait_ms", "went_ms"), [(4_999, 4_999), (5_001, 5_000), (2**31 - 1, 5_000)])
def test_no_poll_reserves_for_longer_than_5_s(max_wait_ms: int, went_ms: int) -> None:
    connection = Connection(bucket())
    assert connection.asks(0.0, max_bytes=500, max_wait_ms=max_wait_ms) is Turn.GO
    assert connection.went[0] == went_ms


def test_a_fetch_waits_until_the_bucket_is_out_of_debt_and_its_wait_is_taken_from_its_poll() -> None:
    connection = Connection(bucket(owed=250.0))
    assert connection.asks(0.0) is Turn.WAIT
    assert (connection.pace.state, connection.pace.wake_at_ms) == (State.HOLDING, 250.0)
    assert connection.turns.is_held
    assert not connection.turns.is_turn(200.0)
    assert connection.turns.is_turn(251.0)
    assert connection.asks_again(251.0) is Turn.GO
    assert connection.went == (400 - 251, 100)
    assert (connection.turns.held_ms, connection.turns.is_held) == (251.0, False)
    connection.answered(251.0)
    assert connection.queue_bytes == 0.0


def test_a_fetch_that_has_waited_longer_than_its_poll_goes_for_what_is_there() -> None:
    connection = Connection(bucket(owed=600.0))
    connection.asks(0.0)
    assert connection.turns.is_turn(601.0)
    connection.asks_again(601.0)
    assert connection.went == (0, 100)


def test_at_its_bound_a_fetch_is_replaced_and_keeps_its_place() -> None:
    connection = Connection(bucket(owed=9_000.0))
    assert connection.asks(100.0) is Turn.WAIT
    assert connection.pace.wake_at_ms == 100.0 + LIMIT_MS
    assert not connection.turns.is_turn(100.0 + LIMIT_MS - 1.0)
    assert connection.turns.is_turn(100.0 + LIMIT_MS)
    assert connection.asks_again(100.0 + LIMIT_MS) is Turn.REPLACE
    assert (connection.turns.held_ms, len(connection.sensor.fetch_queue())) == (LIMIT_MS, 0)
    place = connection.turns._place
    assert (place.kept_tag, place.kept_until_ms) == (0.0, 100.0 + 2 * LIMIT_MS + 1_000.0)
    assert connection.asks(200.0 + LIMIT_MS) is Turn.WAIT, "the next one waits anew"


def test_a_share_fetch_goes_at_its_bound_of_2_s() -> None:
    connection = Connection(bucket(owed=9_000.0))
    assert connection.asks(0.0, api_key=ApiKey.SHARE_FETCH) is Turn.WAIT
    assert connection.pace.wake_at_ms == 2_000.0
    assert connection.turns.is_turn(2_000.0)
    assert connection.asks_again(2_000.0, ApiKey.SHARE_FETCH) is Turn.GO
    assert connection.turns.reserved_bytes == connection.queue_bytes == 100


def test_what_waits_goes_by_its_turn_and_asks_again_when_it_is_told_another_time() -> None:
    sensor = bucket(owed=250.0)
    first, second = Connection(sensor), Connection(sensor)
    assert first.asks(0.0) is Turn.WAIT
    assert second.asks(0.0) is Turn.WAIT
    assert second.pace.wake_at_ms == LIMIT_MS
    assert not second.turns.is_turn(240.0)
    assert first.turns.is_turn(251.0)
    assert first.asks_again(251.0) is Turn.GO
    assert first.went == (0, 100), "for another waits"
    first.answered(251.0)
    assert second.woken > 0
    assert second.turns.is_turn(251.0)
    assert second.asks_again(251.0) is Turn.GO


def test_a_poll_that_was_cut_short_for_others_comes_again_in_half_a_second_at_most() -> None:
    for max_wait_ms, again_ms in ((400, 400.0), (4_000, 500.0)):
        sensor = bucket(owed=250.0)
        first, second = Connection(sensor), Connection(sensor)
        first.asks(0.0, max_wait_ms=max_wait_ms)
        second.asks(0.0)
        assert first.turns.is_turn(250.0)
        first.asks_again(250.0)
        first.answered(250.0)
        assert first.turns.wants_sizes
        assert first.asks(251.0) is Turn.WAIT
        assert first.pace.wake_at_ms == 250.0 + again_ms
        assert len(sensor.fetch_queue()) == 0, "it sleeps, and waits for no turn"


def test_a_poll_that_was_cut_short_and_brought_something_is_followed_without_a_pause() -> None:
    sensor = bucket(owed=250.0)
    first, second = Connection(sensor), Connection(sensor)
    first.asks(0.0)
    second.asks(0.0)
    assert first.turns.is_turn(250.0)
    first.asks_again(250.0)
    first.answered(250.0, 100)
    assert not first.turns.wants_sizes
    assert first.asks(250.0) is Turn.WAIT
    assert len(sensor.fetch_queue()) == 2


def test_one_whose_sleep_is_over_stands_in_the_queue_behind_who_waits_there() -> None:
    sensor = bucket(owed=250.0)
    first, second, third = Connection(sensor), Connection(sensor), Connection(sensor)
    for each in (first, second, third):
        each.asks(0.0)
    assert first.turns.is_turn(250.0)
    first.asks_again(250.0)
    first.answered(250.0)
    sensor.charge(2_000, 250.0)
    assert first.asks(251.0) is Turn.WAIT
    assert (first.pace.wake_at_ms, len(sensor.fetch_queue())) == (650.0, 1)
    assert first.turns.is_turn(650.0)
    assert first.asks_again(650.0) is Turn.WAIT
    assert first.turns.is_held
    assert len(sensor.fetch_queue()) == 2


def test_one_whose_sleep_is_over_goes_where_nobody_waits_any_more() -> None:
    sensor = bucket(owed=250.0)
    first, second = Connection(sensor), Connection(sensor)
    first.asks(0.0)
    second.asks(0.0)
    assert first.turns.is_turn(250.0)
    first.asks_again(250.0)
    first.answered(250.0)
    assert first.asks(251.0) is Turn.WAIT
    second.turns.closed(300.0)
    assert first.turns.is_turn(650.0)
    assert first.asks_again(650.0) is Turn.GO
    assert first.turns.held_ms == 399.0
    assert first.went == (1, 400)


def test_a_connection_that_closes_gives_back_all_that_it_had() -> None:
    sensor = bucket(owed=250.0)
    first, second = Connection(sensor), Connection(sensor)
    first.asks(0.0)
    second.asks(0.0)
    first.turns.closed(10.0)
    queue = sensor.fetch_queue()
    assert (queue.connections, len(queue), queue.reserved_bytes) == (1, 1, 0.0)
    assert second.turns.is_turn(250.0)
    second.asks_again(250.0)
    assert queue.reserved_bytes == 100
    second.turns.closed(260.0)
    assert (queue.connections, len(queue), queue.reserved_bytes) == (0, 0, 0.0)
    assert second.turns._limit_ms(ApiKey.FETCH) != LIMIT_MS, "it does not keep what it was asked by"


def test_a_held_fetch_that_is_dropped_leaves_the_queue() -> None:
    connection = Connection(bucket(owed=250.0))
    connection.asks(0.0)
    connection.turns.drop(10.0)
    assert (connection.turns.is_held, len(connection.sensor.fetch_queue())) == (False, 0)
    connection.turns.drop(10.0)
    connection.pace.release(0.0)
    assert connection.asks(300.0) is Turn.GO


def test_one_that_was_held_for_a_bucket_goes_at_once_where_another_owes_nothing() -> None:
    old = bucket(owed=250.0)
    connection = Connection(old)
    connection.asks(0.0)
    connection.sensor = bucket("new")
    connection.turns.use(connection.sensor, 10.0)
    assert len(old.fetch_queue()) == 0
    assert connection.asks_again(10.0) is Turn.GO
    assert (connection.turns.is_held, connection.turns.held_ms) == (False, 10.0)
    assert connection.went == (390, 1_000)


def test_one_that_was_held_for_a_bucket_waits_for_another_no_longer_than_its_bound() -> None:
    connection = Connection(bucket(owed=10_000.0))
    connection.asks(0.0)
    connection.sensor = bucket("new", owed=10_000.0)
    connection.turns.use(connection.sensor, 1_000.0)
    assert connection.asks_again(1_000.0) is Turn.WAIT
    assert connection.pace.wake_at_ms == LIMIT_MS
    assert connection.asks_again(LIMIT_MS) is Turn.REPLACE
    assert (connection.turns.held_ms, connection.queue_bytes) == (LIMIT_MS, 0.0)


@pytest.mark.parametrize(("api_key", "turn"), [(ApiKey.FETCH, Turn.REPLACE), (ApiKey.SHARE_FETCH, Turn.GO)])
def test_one_whose_bound_is_over_before_it_has_asked_another_bucket_is_replaced_if_that_owes(
    api_key: int, turn: Turn
) -> None:
    connection = Connection(bucket(owed=10_000.0))
    connection.asks(0.0, api_key=api_key)
    connection.sensor = bucket("new", owed=10_000.0)
    connection.turns.use(connection.sensor, LIMIT_MS)
    assert connection.asks_again(LIMIT_MS, api_key) is turn
    assert (connection.turns.is_held, connection.turns.held_ms) == (False, LIMIT_MS)


def test_a_wait_belongs_to_one_fetch() -> None:
    connection = Connection(bucket(owed=250.0))
    connection.asks(0.0, max_bytes=100)
    assert connection.turns.is_turn(249.5), "half a ms early is in time"
    connection.asks_again(251.0)
    connection.answered(251.0)
    assert connection.turns.wait_ms(251.0) == 0.0
    assert connection.asks(400.0, max_bytes=100) is Turn.GO
    assert (connection.turns.held_ms, connection.went) == (0.0, (400, 100))


def test_whoever_is_told_to_come_again_is_expected_until_it_comes_or_parts() -> None:
    sensor = bucket(owed=250.0)
    first, second = Connection(sensor), Connection(sensor)
    for each in (first, second):
        each.asks(0.0, max_bytes=100)
        each.turns.drop(0.0)
        each.pace.release(0.0)
    assert first.turns.tell(100.0, 0.0, LIMIT_MS, 0.0) == 250.0
    assert second.turns.tell(100.0, 0.0, LIMIT_MS, 0.0) == 350.0
    first.turns.closed(1.0)
    assert second.turns.tell(100.0, 0.0, LIMIT_MS, 1.0) == 249.0, "nor itself"
    second.asks(260.0, max_bytes=100)
    third = Connection(sensor)
    third.asks(260.0, max_bytes=100)
    assert third.turns.tell(100.0, 0.0, LIMIT_MS, 260.0) == 100.0, "its own turn, and nobody's"


def test_what_a_fetch_would_wait_is_told() -> None:
    connection = Connection(bucket(owed=250.0))
    assert connection.turns.wait_ms(0.0) == 0.0, "of a bucket that it has not fetched from"
    assert connection.turns.tell(0.0, 77.0, LIMIT_MS, 0.0) == 77.0
    connection.asks(0.0)
    assert connection.turns.wait_ms(100.0) == 150.0 + 100.0
    other = Connection(connection.sensor)
    other.asks(100.0)
    assert other.turns.wait_ms(100.0) == 150.0 + 200.0
    assert other.turns.tell(0.0, 77.0, LIMIT_MS, 100.0) == 350.0
    assert other.turns.tell(0.0, 777.0, LIMIT_MS, 100.0) == 777.0
    connection.turns.use(None, 100.0)
    assert connection.turns.wait_ms(100.0) == 0.0
    assert Connection(bucket(owed=9_000.0)).turns.wait_ms(0.0) == 0.0


def test_sizes_are_wanted_where_nobody_has_seen_a_batch() -> None:
    sensor = SmoothSensor(QuotaKind.FETCH, QuotaLevel.USER, QuotaEntity("alice"), 1_000, 0.0, burst_s=1.0)
    connection = Connection(sensor)
    wants = [connection.turns.wants_sizes]
    connection.asks(0.0)
    wants.append(connection.turns.wants_sizes)
    connection.answered(0.0, 100)
    wants.append(connection.turns.wants_sizes)
    assert wants == [False, True, False]
