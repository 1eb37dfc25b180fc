"""The states of a connection, one transition at a time; the session's tests have them in company."""

from __future__ import annotations

from collections.abc import Callable
from math import inf

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from sluice.proxy.session.causes import DisconnectCause
from sluice.proxy.session.connection_states import State
from sluice.proxy.session.read_gate import Pace
from sluice.quotas.kinds import QuotaKind
from testkit.thorough import cases

PRODUCE, FETCH = QuotaKind.PRODUCE, QuotaKind.FETCH


def test_a_new_connection_is_read() -> None:
    pace = Pace()
    assert (pace.state, pace.gate_ms, pace.is_delayed, pace.throttled_by) == (State.READING, 0.0, False, None)


def test_a_mute_closes_the_gate_and_the_state_changes_where_the_gate_is_met() -> None:
    pace = Pace()
    pace.mute(150, 100, PRODUCE)
    assert (pace.state, pace.gate_ms) == (State.READING, 150)
    pace.meet_gate()
    assert (pace.state, pace.wake_at_ms, pace.throttled_by) == (State.MUTED, 150, PRODUCE)


def test_a_brake_of_the_proxys_own_does_not_hide_whose_quota_is_sat_out() -> None:
    pace = Pace()
    pace.mute(150, 100, PRODUCE, at_boundary=True)
    pace.mute(170, 100, None, at_boundary=True)
    assert (pace.wake_at_ms, pace.throttled_by) == (170, PRODUCE)
    pace.wake(170)
    pace.mute(300, 200, None, at_boundary=True)
    assert (pace.wake_at_ms, pace.throttled_by) == (300, None)


def test_a_mute_at_a_frame_boundary_changes_the_state_at_once() -> None:
    pace = Pace()
    pace.mute(150, 100, FETCH, at_boundary=True)
    assert (pace.state, pace.wake_at_ms, pace.throttled_by) == (State.MUTED, 150, FETCH)


def test_a_mute_may_be_prolonged_but_not_shortened() -> None:
    pace = Pace()
    pace.mute(150, 100, FETCH, at_boundary=True)
    pace.mute(120, 110, FETCH, at_boundary=True)
    assert pace.wake_at_ms == 150
    pace.mute(180, 110, FETCH, at_boundary=True)
    assert pace.wake_at_ms == 180
    pace.wake(150)
    assert pace.is_delayed
    pace.wake(180)
    assert not pace.is_delayed


@pytest.mark.parametrize("is_half_read", [False, True])
def test_the_limit_of_a_delay_counts_from_its_beginning(is_half_read: bool) -> None:
    """Muted from 100 to 150: at 140 it may last until 100 + 60, at 200 a new one until 200 + 60."""
    pace = Pace()
    pace.mute(150, 100, FETCH, at_boundary=not is_half_read)
    assert pace.latest_ms(60, 140) == 160
    pace.wake(200)
    assert pace.latest_ms(60, 200) == 260


def test_a_mute_whose_wake_is_late_is_one_delay_still() -> None:
    """Muted from 100 to 150 and not woken before 170: nothing was read since 100."""
    pace = Pace()
    pace.mute(150, 100, FETCH, at_boundary=True)
    assert pace.latest_ms(60, 155) == 160
    assert pace.latest_ms(60, 170) == 170


def test_a_hold_and_the_mute_behind_it_are_one_delay() -> None:
    """Held from 100 to 130, muted to 150: at 140 it may last until 100 + 60."""
    pace = Pace()
    pace.hold(130, 100, PRODUCE)
    assert (pace.state, pace.wake_at_ms, pace.throttled_by) == (State.HOLDING, 130, PRODUCE)
    assert pace.latest_ms(60, 120) == 160
    pace.release(150)
    assert (pace.state, pace.gate_ms) == (State.READING, 150)
    assert pace.latest_ms(60, 140) == 160
    pace.mute(160, 140, FETCH)
    assert pace.latest_ms(60, 155) == 160


def test_a_hold_that_was_paid_at_its_end_leaves_no_delay() -> None:
    pace = Pace()
    pace.hold(130, 100, PRODUCE)
    pace.release(130)
    assert pace.latest_ms(60, 130) == 190


@pytest.mark.parametrize("wait", [Pace.fill, Pace.await_broker])
def test_what_already_waits_for_the_broker_cannot_be_suspended_for_its_answer_would_end_that(
    wait: Callable[[Pace], None],
) -> None:
    """Too much in flight, or a SaslHandshake: its answer would let a request go on amid the proxy's login."""
    pace = Pace()
    wait(pace)
    assert not pace.suspend()
    pace.broker_answered()
    assert pace.suspend()
    pace.meet_gate()
    assert (pace.state, pace.gate_ms) == (State.AWAITING_BROKER, inf)
    pace.broker_answered()
    assert (pace.state, pace.gate_ms) == (State.READING, 0.0)


def test_a_suspension_does_not_go_with_another() -> None:
    pace = Pace()
    assert pace.suspend()
    assert not pace.suspend()


def test_a_connection_that_ends_is_not_suspended() -> None:
    pace = Pace()
    pace.end(DisconnectCause.DRAINED, "", at_boundary=False)
    assert not pace.suspend()
    pace.broker_answered()
    assert pace.gate_ms == inf


def test_nothing_is_begun_during_a_hold() -> None:
    """A mute that comes meanwhile begins when the hold ends."""
    pace = Pace()
    pace.hold(130, 100, PRODUCE)
    assert pace.gate_ms == inf
    pace.mute(180, 110, FETCH, at_boundary=True)
    pace.meet_gate()
    assert (pace.state, pace.wake_at_ms) == (State.HOLDING, 130)
    pace.release(0)
    pace.meet_gate()
    assert (pace.state, pace.wake_at_ms) == (State.MUTED, 180)


def test_nothing_is_begun_before_the_brokers_answer() -> None:
    pace = Pace()
    pace.await_broker()
    assert pace.gate_ms == inf
    pace.meet_gate()
    assert (pace.state, pace.is_delayed) == (State.AWAITING_BROKER, False)
    pace.wake(10**9)
    assert pace.state is State.AWAITING_BROKER
    pace.broker_answered()
    assert (pace.state, pace.gate_ms) == (State.READING, 0.0)


def test_a_mute_that_comes_while_the_brokers_answer_is_awaited_begins_behind_it() -> None:
    pace = Pace()
    pace.await_broker()
    pace.meet_gate()
    pace.mute(150, 100, FETCH, at_boundary=True)
    assert pace.state is State.AWAITING_BROKER
    pace.broker_answered()
    assert (pace.state, pace.gate_ms) == (State.READING, 150)
    pace.meet_gate()
    assert (pace.state, pace.wake_at_ms) == (State.MUTED, 150)


def test_who_has_too_much_in_flight_waits_for_answers_unless_something_else_shuts_the_gate() -> None:
    pace = Pace()
    pace.fill()
    assert (pace.is_full, pace.gate_ms) == (True, inf)
    pace.meet_gate()
    assert pace.state is State.AWAITING_BROKER
    pace.broker_answered()
    assert (pace.state, pace.is_full, pace.gate_ms) == (State.READING, False, 0.0)
    for shut in (pace.await_broker, lambda: pace.end(DisconnectCause.DRAINED, "", at_boundary=True)):
        shut()
        pace.fill()
        assert not pace.is_full


def test_an_answer_that_nobody_waited_for_opens_nothing() -> None:
    pace = Pace()
    pace.mute(150, 100, FETCH, at_boundary=True)
    pace.broker_answered()
    assert (pace.state, pace.gate_ms) == (State.MUTED, 150)


def test_the_first_cause_of_an_end_stays() -> None:
    pace = Pace()
    pace.end(DisconnectCause.MALFORMED_FRAME, "what", at_boundary=True)
    pace.end(DisconnectCause.DRAINED, "", at_boundary=True)
    assert (pace.close_cause, pace.close_detail) == (DisconnectCause.MALFORMED_FRAME, "what")


class EveryOrder(RuleBasedStateMachine):
    """Any event in any state: an end is for good, a mute stands, and time always leads on."""

    def __init__(self) -> None:
        super().__init__()
        self.pace = Pace()
        self.now_ms = 1_000.0
        self.muted_until_ms = 0.0
        self.ended = False
        self.awaits = False

    @rule(ms=st.sampled_from((0, 1, 50, 5_000)))
    def time_passes(self, ms: int) -> None:
        self.now_ms += ms

    @rule(ms=st.sampled_from((-5, 0, 1, 60)), at_boundary=st.booleans())
    def mute(self, ms: int, at_boundary: bool) -> None:
        until_ms = self.now_ms + ms
        self.pace.mute(until_ms, self.now_ms, FETCH, at_boundary=at_boundary)
        self.muted_until_ms = max(self.muted_until_ms, until_ms)

    @precondition(lambda self: self.pace.gate_ms <= self.now_ms and self.pace.state is State.READING)
    @rule(ms=st.sampled_from((1, 60)))
    def hold(self, ms: int) -> None:
        self.pace.hold(self.now_ms + ms, self.now_ms, PRODUCE)

    @precondition(lambda self: self.pace.state is State.HOLDING)
    @rule(ms=st.sampled_from((-5, 0, 60)))
    def release(self, ms: int) -> None:
        until_ms = self.now_ms + ms
        self.pace.release(until_ms)
        self.muted_until_ms = max(self.muted_until_ms, until_ms)

    @precondition(lambda self: self.pace.gate_ms <= self.now_ms and self.pace.state is State.READING)
    @rule()
    def await_broker(self) -> None:
        self.pace.await_broker()
        self.awaits = not self.ended
        self.meet_gate()

    @rule()
    def broker_answered(self) -> None:
        self.pace.broker_answered()
        self.awaits = False

    @precondition(lambda self: self.pace.gate_ms > self.now_ms)
    @rule()
    def meet_gate(self) -> None:
        self.pace.meet_gate()

    @precondition(lambda self: self.pace.state is not State.HOLDING)
    @rule()
    def wake(self) -> None:
        self.pace.wake(self.now_ms)

    @precondition(lambda self: self.pace.state is not State.HOLDING)
    @rule(at_boundary=st.booleans())
    def end(self, at_boundary: bool) -> None:
        self.pace.end(DisconnectCause.DRAINED, "", at_boundary=at_boundary)
        self.ended = True
        if not at_boundary:
            self.meet_gate()

    @invariant()
    def an_end_is_for_good(self) -> None:
        if self.ended:
            assert (self.pace.state, self.pace.gate_ms) == (State.ENDING, inf)

    @invariant()
    def no_frame_is_begun_before_its_time(self) -> None:
        if self.ended or self.awaits or self.pace.state is State.HOLDING:
            assert self.pace.gate_ms == inf
        else:
            assert self.pace.gate_ms == self.muted_until_ms

    @invariant()
    def what_waits_for_time_is_woken(self) -> None:
        if self.pace.is_delayed:
            assert self.pace.wake_at_ms < inf
        if self.pace.state is State.AWAITING_BROKER:
            assert self.awaits


EveryOrder.TestCase.settings = settings(max_examples=cases(150), stateful_step_count=40, deadline=None)
TestEveryOrder = EveryOrder.TestCase
