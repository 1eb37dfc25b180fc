"""How many requests of a user go ahead of its quota though their clients could not be seen."""

from __future__ import annotations

from sluice.proxy.connection.unseen import UNSEEN_AT_ONCE, UNSEEN_PER_S, UnseenAllowance


def taken(allowance: UnseenAllowance, now_ms: float) -> int:
    """So many may go at that time."""
    count = 0
    while allowance.take(now_ms):
        count += 1
    return count


def test_so_many_go_at_once_and_so_many_a_second_and_no_more_are_saved_up() -> None:
    allowance = UnseenAllowance()
    assert taken(allowance, 1_000.0) == UNSEEN_AT_ONCE
    assert taken(allowance, 1_100.0) == 0
    assert taken(allowance, 2_000.0) == UNSEEN_PER_S
    assert taken(allowance, 10**9) == UNSEEN_AT_ONCE


def test_the_first_look_at_the_clock_gives_nothing_and_a_clock_that_stands_still_neither() -> None:
    allowance = UnseenAllowance(most=2)
    assert taken(allowance, 10**9) == 2
    assert taken(allowance, 10**9) == 0
    assert taken(allowance, 10**9 - 5_000.0) == 0
