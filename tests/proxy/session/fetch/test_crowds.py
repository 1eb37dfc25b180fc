"""Hundreds of consumers of one bucket of 100 kB/s, of which most wait for records and some read a backlog.

The batches of a backlog have 2 to 10 kB; whoever has its answer fetches again at once.
"""

from __future__ import annotations

from itertools import repeat

import pytest

from testkit.proxy.fetch_crowd import Consumer, FetchCrowd, Source, backlog, mixed, nothing, records_each

RATE = 100_000


def rates(consumers: list[Consumer], ms: float) -> list[float]:
    """Of each, in bytes per second."""
    return [consumer.bytes_brought * 1_000 / ms for consumer in consumers]


def read_beside(
    crowd: FetchCrowd, quiet: int, readers: int = 1, *, max_wait_ms: int = 500, ms: float = 6_000
) -> tuple[list[Consumer], list[Consumer]]:
    """Consumers who wait, and 2 s later those who read; looked at from 3 s later on."""
    waiting = [
        crowd.add(nothing, max_wait_ms=max_wait_ms, first_ms=500.0 * number / quiet)
        for number in range(quiet)
    ]
    crowd.run(2_000)
    reading = [crowd.add(backlog(mixed(number)), first_ms=number) for number in range(readers)]
    crowd.run(3_000)
    crowd.forget()
    crowd.run(ms)
    return waiting, reading


@pytest.mark.parametrize(("quiet", "max_wait_ms", "least_share"), [
    (0, 500, 0.93), (10, 500, 0.93), (100, 500, 0.88), (400, 500, 0.8), (800, 500, 0.7), (800, 30_000, 0.7),
])  # fmt: skip
def test_consumers_that_only_wait_leave_the_rate_to_the_one_that_reads(
    quiet: int, max_wait_ms: int, least_share: float
) -> None:
    """Empty answers have 62 bytes: 1,400 a second were 88 kB/s, and left 1. They are bytes of the bucket all
    the same."""
    crowd = FetchCrowd(RATE, busy_ms=0.7)
    waiting, (reader,) = read_beside(crowd, quiet, max_wait_ms=max_wait_ms)
    (rate,) = rates([reader], 6_000)
    assert rate > least_share * RATE
    assert rate + sum(rates(waiting, 6_000)) < RATE + 10_000 / 6
    assert reader.longest_ms < 1_000
    assert not any(consumer.replaced for consumer in (*waiting, reader))


@pytest.mark.parametrize(
    ("rate", "quiet", "least_share"), [(10_000, 10, 0.9), (10_000, 100, 0.55), (1_000_000, 800, 0.9)]
)
def test_a_small_limit_has_polls_less_often(rate: int, quiet: int, least_share: float) -> None:
    crowd = FetchCrowd(rate, busy_ms=0.7)
    _, (reader,) = read_beside(crowd, quiet)
    assert rates([reader], 6_000)[0] > least_share * rate


def test_one_that_reads_begins_though_nobody_has_seen_a_batch_yet_and_hundreds_poll_one_at_a_time() -> None:
    """With 8 ms for each poll 800 take 6.4 s, and a Fetch waits for 3."""
    crowd = FetchCrowd(RATE, answer_ms=8.0)
    _, (reader,) = read_beside(crowd, 800)
    crowd.forget()
    crowd.run(6_000)
    assert rates([reader], 6_000)[0] > 0.65 * RATE


def test_polls_of_those_who_wait_are_two_hundred_a_second_and_none_pauses_beyond_two_seconds() -> None:
    for quiet, least, most in ((50, 80, 105), (300, 150, 240), (800, 330, 420)):
        crowd = FetchCrowd(RATE, busy_ms=0.7)
        waiting, _ = read_beside(crowd, quiet, ms=4_000)
        assert least < sum(consumer.answers for consumer in waiting) / 4 < most, quiet
        assert max(consumer.longest_ms for consumer in waiting) < 2_200


def test_readers_share_evenly_whether_hundreds_wait_beside_them_or_none() -> None:
    for quiet in (0, 800):
        crowd = FetchCrowd(RATE, busy_ms=0.7)
        waiting, reading = read_beside(crowd, quiet, 50, ms=10_000)
        got = rates(reading, 10_000)
        assert (0.68 if quiet else 0.93) * RATE < sum(got) < RATE + 10_000
        assert max(got) < 3 * min(got), "batches of 6 kB: three to five each"
        replaced = sum(consumer.replaced for consumer in waiting)
        assert replaced < 4, "of 4,000 polls hardly any waits for its turn beyond its bound"


@pytest.mark.parametrize(("quiet", "readers", "longest_ms"), [
    (10, 1, 650), (100, 1, 1_000), (800, 1, 2_300), (10, 50, 700), (100, 50, 1_000),
])  # fmt: skip
def test_a_record_comes_soon_to_who_has_waited_for_it(quiet: int, readers: int, longest_ms: float) -> None:
    """It brings 300 B, each 20 s."""
    crowd = FetchCrowd(RATE, busy_ms=0.7)
    late_ms: list[float] = []
    for number in range(quiet):
        first_ms = 6_000.0 + 19_000.0 * number / quiet
        crowd.add(records_each(20_000, 300, first_ms, late_ms), first_ms=500.0 * number / quiet)
    for number in range(readers):
        crowd.add(backlog(mixed(number)), first_ms=2_000.0 + number)
    crowd.run(12_000)
    assert len(late_ms) > quiet // 5
    assert max(late_ms) < longest_ms


def alternating(source: Source) -> Source:
    """Every second Fetch brings nothing."""
    turn = [False]

    def read(now_ms: float, max_bytes: int) -> list[int]:
        turn[0] = not turn[0]
        return source(now_ms, max_bytes) if turn[0] else []

    return read


def test_who_pretends_to_be_quiet_brings_no_more_than_who_reads() -> None:
    """Twenty whose every second poll is empty beside five who read: their polls stand before others', their
    bytes do not."""
    crowd = FetchCrowd(RATE, busy_ms=0.7)
    sly = [crowd.add(alternating(backlog(repeat(8_000))), first_ms=number) for number in range(20)]
    honest = [crowd.add(backlog(repeat(8_000)), first_ms=50.0 + number) for number in range(5)]
    crowd.run(3_000)
    crowd.forget()
    crowd.run(30_000)
    assert sum(rates(honest, 30_000)) / 5 > 0.9 * sum(rates(sly, 30_000)) / 20
    assert sum(rates(honest + sly, 30_000)) < RATE + 10_000


def test_hundreds_that_bring_a_small_record_now_and_then_leave_the_rest_to_the_one_that_reads() -> None:
    """24 kB/s of records and as much around them; once all but their own share is theirs."""
    crowd = FetchCrowd(RATE, busy_ms=0.7)
    late_ms: list[float] = []
    for number in range(800):
        crowd.add(records_each(10_000, 300, 12.5 * number, late_ms), first_ms=number / 2)
    crowd.run(1_000)
    reader = crowd.add(backlog(mixed(1)))
    crowd.run(3_000)
    crowd.forget()
    crowd.run(6_000)
    assert rates([reader], 6_000)[0] > 0.4 * RATE


@pytest.mark.parametrize("quiet", [0, 300])
def test_a_connection_for_each_fetch_passes_no_more_than_the_rate_and_a_burst_and_a_batch(quiet: int) -> None:
    """By all bytes that go to those who read so, or poll so with a long wait."""
    crowd = FetchCrowd(RATE, busy_ms=0.7)
    for number in range(quiet):
        crowd.add(nothing, first_ms=float(number))
    many = [
        crowd.add(source, max_wait_ms=30_000, first_ms=number, reconnects=True)
        for source in (backlog(mixed(1)), nothing)
        for number in range(30)
    ]
    crowd.run(10_000)
    assert sum(consumer.bytes_brought for consumer in many) < RATE * 11 + 10_100


@pytest.mark.parametrize("readers", [3, 50])
def test_a_bucket_that_stays_full_does_not_keep_those_who_wait_from_their_turns(readers: int) -> None:
    """After one batch of 600 kB fetches go one at a time, and those who read bring 300 B each."""
    crowd = FetchCrowd(RATE, busy_ms=0.7, answer_ms=8.0)
    large = [[600_000]]
    crowd.add(lambda _now_ms, _max_bytes: large.pop() if large else [])
    crowd.run(100)
    late_ms: list[float] = []
    waiting = [crowd.add(records_each(1_000, 200, 10_000, late_ms), first_ms=7_000)]
    waiting += [crowd.add(nothing, first_ms=7_000 + 20.0 * number) for number in range(1, 5)]
    for number in range(readers):
        crowd.add(lambda _now_ms, _max_bytes: [300], first_ms=8_000.0 + number)
    crowd.run(9_900)
    crowd.forget()
    crowd.run(6_000)
    assert not any(consumer.replaced for consumer in waiting)
    assert len(late_ms) >= 5
    assert max(late_ms) < 1_000


@pytest.mark.parametrize("rate", [1_000_000, 3_000_000])
def test_when_the_last_one_that_reads_is_done_those_who_wait_poll_as_before(rate: int) -> None:
    crowd = FetchCrowd(rate, busy_ms=0.7)
    late_ms: list[float] = []
    waiting = [
        crowd.add(records_each(2_000, 300, 9_000 + 90.0 * number, late_ms), first_ms=25.0 * number)
        for number in range(20)
    ]
    left = [10_000] * (rate // 2_500)
    crowd.add(lambda _now_ms, _max_bytes: [left.pop()] if left else [], first_ms=2_000)
    crowd.run(9_000)
    assert not left
    crowd.forget()
    crowd.run(7_000)
    assert max(late_ms) < 150
    assert sum(consumer.answers for consumer in waiting) < 7 * 20 * 5


@pytest.mark.parametrize(
    ("rate", "size", "least_share"), [(RATE, 256_000, 0.85), (10_000, 16_000, 0.38), (RATE, 16_000, 0.85)]
)
def test_readers_of_large_batches_share_evenly_beside_those_who_bring_a_small_one_now_and_then(
    rate: int, size: int, least_share: float
) -> None:
    """Where 32 small batches had come between two large ones, a large one was taken for a turn of the bytes
    of a small one: one of three readers had nearly all, the others nothing for a minute. The small ones are 6
    kB/s."""
    crowd = FetchCrowd(rate, busy_ms=0.7)
    late_ms: list[float] = []
    for number in range(50):
        crowd.add(records_each(2_000.0, 170, 40.0 * number, late_ms), first_ms=10.0 * number)
    reading = [crowd.add(backlog(repeat(size)), first_ms=1_000.0 + number) for number in range(3)]
    crowd.run(20_000)
    crowd.forget()
    crowd.run(100_000)
    got = rates(reading, 100_000)
    assert max(got) - min(got) <= 2.1 * size / 100
    assert sum(got) > least_share * rate
