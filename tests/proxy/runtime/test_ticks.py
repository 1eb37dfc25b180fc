"""What comes round wakes an idle process together."""

from __future__ import annotations

import pytest

from sluice.proxy.runtime.ticks import to_next_s


@pytest.mark.parametrize("interval_s", [0.05, 1.0, 10.0])
def test_whenever_it_is_asked_for_the_moments_are_the_same(interval_s: float) -> None:
    moments = {
        round((now_s + to_next_s(interval_s, now_s)) / interval_s % 1.0, 6) % 1.0
        for now_s in (1000.0 + interval_s * part / 17.0 for part in range(100))
    }
    assert max(moments) - min(moments) < 1e-5


@pytest.mark.parametrize("early_s", [0.0, 1e-9, 0.001])
def test_who_was_woken_a_little_early_is_not_woken_twice(early_s: float) -> None:
    moment_s = 5.0 + to_next_s(1.0, 5.0)
    assert to_next_s(1.0, moment_s - early_s) == pytest.approx(1.0 + early_s)


def test_nobody_waits_for_more_than_a_tenth_beyond_the_interval() -> None:
    assert max(to_next_s(1.0, 7.0 + part / 1000.0) for part in range(1000)) <= 1.1
