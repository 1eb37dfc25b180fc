"""The share of a core before authentication: what it lets through, and what is given back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from time import monotonic
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.proxy.connection.guest_share import _BURST_S, GuestShare
from sluice.proxy.connection.guests import Guest, WaitingRoom
from sluice.proxy.runtime.gauges import Gauges


def test_nobody_waits_who_takes_less_than_the_share() -> None:
    share = GuestShare(0.25)
    for tick in range(1_000):
        assert share.wait_s(tick / 100.0) == 0.0
        share.charge(0.0024, tick / 100.0)


@given(st.lists(st.tuples(st.floats(0.0, 0.5), st.floats(0.0001, 0.05)), min_size=1, max_size=200))
def test_they_take_no_more_than_the_share_the_burst_and_what_was_begun(
    steps: list[tuple[float, float]],
) -> None:
    share, now_s, taken_s, largest_s = GuestShare(0.25), 100.0, 0.0, 0.0
    for pause_s, cost_s in steps:
        now_s += pause_s
        now_s += share.wait_s(now_s)
        share.charge(cost_s, now_s)
        taken_s += cost_s
        largest_s = max(largest_s, cost_s)
        assert taken_s <= 0.25 * (now_s - 100.0) + _BURST_S + largest_s + 1e-9


def test_what_good_ones_took_is_given_back() -> None:
    share = GuestShare(0.25)
    for _ in range(1_000):
        share.charge(0.1, 5.0)
        share.refund(0.1)
    assert share.wait_s(5.0) == 0.0
    share.charge(2.0, 5.0)
    assert share.wait_s(5.0) == pytest.approx((2.0 - _BURST_S) / 0.25)


def test_a_refund_of_what_is_paid_already_lends_nothing() -> None:
    share = GuestShare(0.25)
    share.charge(0.1, 0.0)
    assert share.wait_s(100.0) == 0.0
    share.refund(0.1)
    share.charge(_BURST_S + 0.1, 100.0)
    assert share.wait_s(100.0) == pytest.approx(0.1 / 0.25)


class Timers:
    """A loop whose timers are due when the test says so."""

    def __init__(self) -> None:
        self._due: list[Callable[[], None]] = []

    def call_later(self, _: float, call: Callable[[], None]) -> None:
        self._due.append(call)

    def run(self) -> None:
        due, self._due = self._due, []
        for call in due:
            call()


def test_one_that_waits_to_be_accepted_has_every_other_turn() -> None:
    timers, read = Timers(), list[int]()
    room = WaitingRoom(cast(Any, timers), GuestShare(), Gauges())
    for number in range(12):
        room.wait(partial(read.append, number))
    for turns_of_the_room in (0, 1, 1, 2):
        room.newcomer_waits()
        timers.run()
        assert read == list(range(4 * turns_of_the_room))
    timers.run()
    assert read == list(range(12)), "nobody waits outside"


@pytest.mark.asyncio
async def test_who_has_authenticated_is_charged_nothing_for_a_dial_that_goes_on() -> None:
    share = GuestShare(0.25)
    gauges = Gauges()
    guest = Guest(WaitingRoom(asyncio.get_running_loop(), share, gauges))
    guest.took(0.01)
    guest.authenticated()
    for _ in range(1_000):
        guest.took(0.1)
    assert gauges.guests_s == pytest.approx(0.01)
    assert share.wait_s(monotonic()) == 0.0
