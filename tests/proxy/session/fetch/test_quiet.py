"""A connection whose polls are cut short for others and bring nothing: its pauses and its place.

1,000 B/s, a burst of one second; batches are of 100 B.
"""

from __future__ import annotations

from math import inf
from struct import pack

import pytest

from sluice.proxy.session.fetch.turns import Turn
from sluice.quotas.sensors.fetch_queue import FetchPlace
from tests.proxy.session.fetch.test_turns_alone import LIMIT_MS, MAX_BYTES_AT, Connection, bucket


def one_and_another() -> tuple[Connection, Connection]:
    """The second waits, so that polls of the first are cut short, whenever it goes."""
    sensor = bucket()
    first, second = Connection(sensor), Connection(sensor)
    queue = sensor.fetch_queue()
    queue.reserve(FetchPlace(), 1_000.0, inf)
    second.asks(0.0)
    return first, second


def goes_cut_short(connection: Connection, now_ms: float, *, max_wait_ms: int = 400) -> float:
    """It goes with max_wait 0. Returns when the next may come, if it brings nothing."""
    turns = connection.turns
    queue = connection.sensor.fetch_queue()
    if turns._queue is None:
        turns._join(connection.sensor, 0.0)
    connection.buf = bytearray(pack(">iii", max_wait_ms, 1, 1_000))
    turns._go(queue, connection.buf, MAX_BYTES_AT, now_ms)
    assert connection.went[0] == 0
    return turns._poll_ms


def test_the_second_poll_that_brings_nothing_is_followed_by_the_pause_of_all_that_are_quiet() -> None:
    connection, _ = one_and_another()
    queue = connection.sensor.fetch_queue()
    assert goes_cut_short(connection, 0.0) == 400.0
    connection.answered(0.0)
    assert queue.quiet == 1
    assert goes_cut_short(connection, 1_000.0) == 1_800.0, "an empty answer is a tenth of 800 B"
    queue.quiet = 0
    assert goes_cut_short(connection, 3_000.0) == 3_400.0, "few: by its own wait"
    assert goes_cut_short(connection, 4_000.0, max_wait_ms=9_000) == 4_500.0


@pytest.mark.parametrize("quiet", [400, 10_000])
def test_a_pause_leaves_a_third_of_the_bound_for_the_turn(quiet: int) -> None:
    connection, _ = one_and_another()
    connection.sensor.fetch_queue().was_empty(connection.turns._place)
    connection.sensor.fetch_queue().quiet = quiet
    assert goes_cut_short(connection, 0.0) == pytest.approx(LIMIT_MS * 2 / 3)


def test_a_bound_below_the_pause_shortens_it_for_all() -> None:
    """A pause as long as its bound would let the next Fetch go without a turn."""
    connection, _ = one_and_another()
    connection.turns._limit_ms = lambda _: 300.0
    assert goes_cut_short(connection, 0.0) == pytest.approx(200.0)


@pytest.mark.parametrize("parts", [False, True])
def test_one_that_brings_something_or_parts_is_quiet_no_more(*, parts: bool) -> None:
    connection, _ = one_and_another()
    queue = connection.sensor.fetch_queue()
    goes_cut_short(connection, 0.0)
    connection.answered(0.0)
    assert (queue.quiet, connection.turns.wants_sizes) == (1, True)
    if parts:
        connection.turns.closed(1.0)
    else:
        connection.answered(1.0, 100)
    assert queue.quiet == 0


def test_a_poll_that_was_not_cut_short_and_brings_nothing_makes_nobody_quiet() -> None:
    connection = Connection(bucket())
    assert connection.asks(0.0) is Turn.GO
    connection.answered(0.0)
    assert connection.sensor.fetch_queue().quiet == 0
