"""Fetches of one bucket: reservations, grants, places."""

from __future__ import annotations

from math import inf

import pytest

from sluice.quotas.entity import QuotaEntity, QuotaLevel
from sluice.quotas.kinds import QuotaKind
from sluice.quotas.sensors.fetch_queue import FetchPlace, FetchQueue
from sluice.quotas.sensors.smooth import SmoothSensor

MAX_INT32 = 2**31 - 1


def bucket(rate: float = 1_000_000, *, burst_s: float = 1.0) -> SmoothSensor:
    return SmoothSensor(QuotaKind.FETCH, QuotaLevel.USER, QuotaEntity("alice"), rate, 0.0, burst_s=burst_s)


def known(sensor: SmoothSensor, *sizes: int, connections: int = 1) -> FetchQueue:
    queue = sensor.fetch_queue()
    queue.batches.saw(sizes, 0.0)
    queue.connections = connections
    return queue


def test_a_fetch_may_ask_for_what_the_bucket_holds() -> None:
    """1,000,000 B/s, full: 1,000,000; after 400,000 B: 600,000."""
    sensor = bucket()
    queue = known(sensor, 100)
    assert queue.grant(MAX_INT32, 0) == (1_000_000, 1_000_000)
    sensor.charge(400_000, 0)
    assert queue.grant(MAX_INT32, 0)[0] == 600_000


def test_a_fetch_in_debt_may_ask_for_a_tenth_of_a_second() -> None:
    sensor = bucket()
    sensor.charge(5_000_000, 0)
    assert known(sensor, 100).grant(MAX_INT32, 0)[0] == 100_000


def test_a_burst_below_a_tenth_of_a_second_does_not_lessen_a_fetch() -> None:
    assert known(bucket(burst_s=0.01), 100).grant(MAX_INT32, 0)[0] == 100_000


def test_a_fetch_after_a_long_idle_time_may_ask_for_the_burst_only() -> None:
    assert known(bucket(burst_s=3), 100).grant(MAX_INT32, 3_600_000)[0] == 3_000_000


def test_connections_share_what_the_bucket_holds() -> None:
    assert known(bucket(), 100, connections=4).grant(MAX_INT32, 0)[0] == 250_000


def test_a_client_that_asks_for_less_is_granted_that() -> None:
    assert known(bucket(), 100).grant(50, 0) == (50, 100)


@pytest.mark.parametrize("rate", [1, 9, 2**40])
def test_a_fetch_asks_for_at_least_one_byte_and_at_most_an_int32(rate: int) -> None:
    sensor = bucket(rate)
    sensor.charge(2 * rate, 0)
    max_bytes, _ = sensor.fetch_queue().grant(MAX_INT32, 0)
    assert type(max_bytes) is int
    assert 1 <= max_bytes <= MAX_INT32


def test_fifty_who_come_at_once_are_granted_one_burst_in_all() -> None:
    """Batches of 16 KiB: 62 of them are more than a burst, 61 are not."""
    sensor = bucket()
    queue = known(sensor, 16_384, connections=50)
    went = 0
    for _ in range(70):
        if queue.is_free(0.0):
            queue.reserve(FetchPlace(), queue.grant(MAX_INT32, 0.0)[1], inf)
            went += 1
    assert went == 62


def test_of_batches_that_nobody_has_seen_one_is_under_way_at_a_time() -> None:
    queue = bucket(10_000).fetch_queue()
    place = FetchPlace()
    assert queue.is_free(0.0)
    queue.reserve(place, queue.grant(MAX_INT32, 0.0)[1], inf)
    assert not queue.is_free(0.0)
    assert not queue.is_free(900_000.0), "not by time alone"
    queue.settle(place, place.reserved_bytes, 60, 900_000.0)
    assert queue.is_free(900_000.0)


def test_the_next_one_is_woken_when_an_answer_settles() -> None:
    sensor = bucket(10_000)
    queue = sensor.fetch_queue()
    first, second = FetchPlace(), FetchPlace()
    queue.reserve(first, 1_048_588, inf)
    woken: list[float] = []
    ticket = queue.enter(16_384, 0.0, inf, 0.0, lambda: woken.append(1.0), second)
    assert queue.ask(ticket, 0.0) == inf
    sensor.charge_whole(30_000, 5.0)
    queue.settle(first, 1_048_588, 30_000, 5.0)
    assert woken
    assert queue.ask(ticket, 5.0) == pytest.approx(2_000, abs=6)
    assert queue.ask(ticket, 2_006.0) <= 2_006
    assert second.reserved_bytes == 16_384


def test_what_goes_by_plan_and_not_in_fact_is_given_back() -> None:
    queue = bucket(10_000).fetch_queue()
    first, second = FetchPlace(), FetchPlace()
    queue.reserve(first, 20_000, inf)
    ticket = queue.enter(16_384, 0.0, inf, 0.0, None, second)
    queue.settle(first, 20_000, 60, 5.0)
    assert not ticket.is_in
    assert queue.reserved_bytes == 16_384
    queue.leave(ticket, 6.0)
    assert queue.reserved_bytes == 0


def test_an_answer_that_is_overdue_is_seen_behind_one_that_is_not_yet() -> None:
    """Two brokers: of one the answers hang, at the other a client polls for longer."""
    queue = known(bucket(10_000), 16_384)
    patient, hanging, third = FetchPlace(), FetchPlace(), FetchPlace()
    queue.reserve(patient, 9_000, 10_000.0)
    queue.reserve(hanging, 16_384, 5_500.0)
    ticket = queue.enter(16_384, 0.0, inf, 0.0, None, third)
    assert queue.ask(ticket, 0.0) == 5_500
    assert queue.ask(ticket, 5_500.0) == 5_500, "1,000 B are left"
    assert queue.reserved_bytes == 9_000 + 16_384
    assert hanging.reserved_bytes == 0


def test_who_has_settled_is_not_overdue() -> None:
    queue = known(bucket(10_000), 16_384)
    first, second = FetchPlace(), FetchPlace()
    queue.reserve(first, 16_384, 5_500.0)
    queue.settle(first, 16_384, 60, 10.0)
    queue.reserve(second, 16_384, 7_000.0)
    ticket = queue.enter(16_384, 0.0, inf, 20.0, None, FetchPlace())
    assert queue.ask(ticket, 6_000.0) == 7_000
    assert second.reserved_bytes == 16_384


def test_many_small_polls_are_at_risk_until_the_earliest_is_overdue() -> None:
    """Ten polls, and then a batch of 10 s' worth is seen: until they are through nobody else goes."""
    queue = known(bucket(10_000), 100)
    for number in range(10):
        queue.reserve(FetchPlace(), 100, 9_000.0 - 100 * number)
    queue.batches.saw([100_000], 1.0)
    assert not queue.is_free(8_099.0)
    ticket = queue.enter(100, 0.0, inf, 8_099.0, None, FetchPlace())
    assert queue.ask(ticket, 8_099.0) == 8_100


def test_a_debt_is_never_forgiven() -> None:
    """A batch of 100 MB at 10 kB/s takes its 10,000 s, not the 60 s of the cap."""
    sensor = bucket(10_000)
    sensor.charge_whole(100_000_000, 0.0)
    assert sensor.free_ms(0.0, 0.0) == 9_999_000


def test_who_was_told_to_come_again_loses_no_place_to_those_who_wait() -> None:
    sensor = bucket(10_000)
    queue = sensor.fetch_queue()
    sensor.charge_whole(100_000, 0.0)
    waiting = [queue.enter(16_384, 0.0, inf, 0.0, None, FetchPlace()) for _ in range(3)]
    told = FetchPlace()
    gone = queue.enter(16_384, 0.0, inf, 0.0, None, told)
    queue.leave(gone, 3_000.0)
    queue.keep_place(told, gone.begin_tag, 6_000.0)
    late = queue.enter(16_384, 0.0, inf, 3_001.0, None, FetchPlace())
    again = queue.enter(16_384, 0.0, inf, 3_002.0, None, told)
    assert again.begin_tag == gone.begin_tag
    assert all(queue.ask(ticket, 3_003.0) > 3_003.0 for ticket in (*waiting, late, again))
    queue.leave(again, 3_004.0)
    queue.keep_place(told, gone.begin_tag, 3_004.0)
    forgotten = queue.enter(16_384, 0.0, inf, 9_000.0, None, told)
    assert forgotten.begin_tag == max(queue.virtual_time, told.tag)


def test_who_took_a_whole_burst_before_the_others_came_waits_for_one_turn_of_each() -> None:
    """1 MB, and then others wait with batches of 16 KiB: its next place is one batch behind theirs."""
    queue = known(bucket(100_000), 16_384, connections=11)
    greedy = FetchPlace()
    queue.reserve(greedy, 100_000.0, inf)
    queue.enter(16_384, 0.0, inf, 0.0, None, FetchPlace())
    queue.settle(greedy, 100_000.0, 1_000_000.0, 0.0)
    assert greedy.tag == 16_384


def test_who_waits_while_nothing_is_known_is_not_put_behind_who_comes_after() -> None:
    """The first is taken for a batch of 1 MB, the second, later, for one of 16 KiB."""
    sensor = bucket(100_000)
    queue = sensor.fetch_queue()
    sensor.charge_whole(110_000, 0.0)
    first = queue.enter(queue.grant(MAX_INT32, 0.0)[1], 0.0, inf, 0.0, None, FetchPlace())
    queue.batches.saw([16_384], 1.0)
    second = queue.enter(queue.grant(MAX_INT32, 1.0)[1], 1.0, inf, 1.0, None, FetchPlace())
    assert first.request_bytes > 1_000_000
    assert first < second


def test_a_limit_that_is_raised_lets_those_who_wait_go_sooner() -> None:
    sensor = bucket(10_000)
    sensor.charge_whole(20_000, 0.0)
    queue = sensor.fetch_queue()
    woken: list[float] = []
    ticket = queue.enter(1_000, 0.0, inf, 0.0, lambda: woken.append(1.0), FetchPlace())
    assert queue.ask(ticket, 0.0) == 1_000
    sensor.update(100_000, QuotaLevel.USER, 0.0)
    assert woken
    assert queue.ask(ticket, 0.0) == pytest.approx(100)


def parked(queue: FetchQueue, connections: int) -> int:
    """How many of them may poll at the same time."""
    queue.connections = connections
    went = 0
    while went < connections and queue.is_free(0.0):
        queue.reserve(FetchPlace(), queue.grant(MAX_INT32, 0.0)[1], inf)
        went += 1
    return went


def test_consumers_far_below_their_quota_do_not_wait_for_each_other_after_one_large_batch() -> None:
    """100 kB/s: 200 kB came once, then batches of 1 kB. It was reserved for each poll: one at a time."""
    queue = bucket(100_000).fetch_queue()
    queue.batches.saw([200_000], 0.0)
    queue.batches.saw([1_000] * 40, 0.0)
    assert parked(queue, 3) == 3


def test_what_all_polls_may_bring_by_the_largest_batch_is_bounded() -> None:
    """9 s of the rate: of 50 consumers of 100 kB/s, with batches of 1 kB and once 200 kB, four."""
    queue = bucket(100_000).fetch_queue()
    queue.batches.saw([200_000], 0.0)
    queue.batches.saw([1_000] * 40, 0.0)
    assert parked(queue, 50) == 4
