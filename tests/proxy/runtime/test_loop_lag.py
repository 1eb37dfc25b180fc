"""The event loop's lateness is told for 30 to 60 s, then forgotten."""

from __future__ import annotations

from sluice.proxy.runtime.loop_lag import LoopLag


def test_the_worked_example_of_the_module() -> None:
    lag = LoopLag()
    lag.note(0.2, 10.0)
    lag.note(0.5, 40.0)
    assert [lag.largest_s(at_s) for at_s in (50.0, 65.0, 100.0)] == [0.5, 0.5, 0.0]


def test_what_was_noted_is_shown_for_at_least_thirty_seconds_whenever_it_came() -> None:
    for at_s in (1000.0, 1015.0, 1029.9):
        lag = LoopLag()
        lag.note(0.4, at_s)
        assert lag.largest_s(at_s + 30.0) == 0.4
        assert lag.largest_s(at_s + 60.0) == 0.0


def test_the_largest_counts_and_not_the_last() -> None:
    lag = LoopLag()
    lag.note(0.9, 1.0)
    lag.note(0.1, 2.0)
    assert lag.largest_s(3.0) == 0.9


def test_a_loop_that_nobody_asks_about_for_long_starts_anew() -> None:
    lag = LoopLag()
    lag.note(0.9, 1.0)
    lag.note(0.1, 1000.0)
    assert lag.largest_s(1001.0) == 0.1
