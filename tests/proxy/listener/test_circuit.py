"""Which upstream address is dialled when: after failures not at once, one probe at a time, in what order."""

from __future__ import annotations

from itertools import pairwise
from math import inf

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from sluice.proxy.listener.circuit import (
    FIRST_BACK_OFF_MS,
    FORGOTTEN_MS,
    MAX_BACK_OFF_MS,
    Address,
    Circuit,
    Circuits,
    CircuitsByIdentity,
    Rotation,
)

A, B, C = ("a", 9092), ("b", 9092), ("c", 9092)


def dial(circuit: Circuit, now_ms: float, *, succeeds: bool, jitter: float = 0.0) -> bool:
    """Whether it was tried."""
    if not circuit.may_dial(now_ms):
        return False
    if succeeds:
        circuit.succeeded()
    else:
        circuit.failed(now_ms, jitter)
    return True


# One address ------------------------------------------------------------------------------------------------


def test_an_address_of_which_nothing_is_known_is_dialled_by_everybody() -> None:
    circuit = Circuit()
    assert all(circuit.may_dial(0.0) for _ in range(100))
    assert circuit.refused == 0


def test_after_a_failed_dial_others_are_refused_until_the_back_off_is_over() -> None:
    circuit = Circuit()
    assert dial(circuit, 1_000.0, succeeds=False)
    assert not circuit.may_dial(1_000.0 + FIRST_BACK_OFF_MS - 1.0)
    assert circuit.may_dial(1_000.0 + FIRST_BACK_OFF_MS)
    assert (circuit.openings, circuit.failures, circuit.refused) == (1, 1, 1)


def test_the_back_off_doubles_up_to_its_maximum_and_begins_anew_after_a_success() -> None:
    circuit = Circuit()
    waits_ms = []
    now_ms = 0.0
    for _ in range(12):
        begun_ms = now_ms
        while not dial(circuit, now_ms, succeeds=False):
            now_ms += 1.0
        waits_ms.append(now_ms - begun_ms)
    assert waits_ms[:4] == [0.0, 100.0, 200.0, 400.0]
    assert all(later == min(2.0 * earlier, MAX_BACK_OFF_MS) for earlier, later in pairwise(waits_ms[1:]))
    assert waits_ms[-1] == MAX_BACK_OFF_MS
    now_ms += MAX_BACK_OFF_MS
    assert dial(circuit, now_ms, succeeds=True)
    assert circuit.is_closed
    assert dial(circuit, now_ms, succeeds=False)
    assert circuit.would_refuse(now_ms + FIRST_BACK_OFF_MS - 1.0)
    assert not circuit.would_refuse(now_ms + FIRST_BACK_OFF_MS)
    assert circuit.openings == 2


@pytest.mark.parametrize(("jitter", "wait_ms"), [(0.0, 100.0), (0.5, 75.0), (0.999, 50.05)])
def test_jitter_takes_up_to_half_off(jitter: float, wait_ms: float) -> None:
    circuit = Circuit()
    dial(circuit, 0.0, succeeds=False, jitter=jitter)
    assert circuit.would_refuse(wait_ms - 0.01)
    assert not circuit.would_refuse(wait_ms + 0.01)


def test_one_probe_at_a_time_is_tried() -> None:
    circuit = Circuit()
    dial(circuit, 0.0, succeeds=False)
    assert circuit.may_dial(100.0)
    assert not circuit.may_dial(100.0)
    assert not circuit.may_dial(5_000.0)  # the probe still waits for its timeout
    circuit.failed(5_100.0, 0.0)
    assert not circuit.may_dial(5_299.0)
    assert circuit.may_dial(5_300.0)


def test_a_probe_that_was_given_up_makes_room_for_another() -> None:
    circuit = Circuit()
    dial(circuit, 0.0, succeeds=False)
    assert circuit.may_dial(100.0)
    circuit.abandoned()
    assert not circuit.is_closed
    assert circuit.may_dial(100.0)


def test_many_dials_that_fail_for_one_reason_are_one_opening_with_the_first_back_off() -> None:
    circuit = Circuit()
    assert all(circuit.may_dial(0.0) for _ in range(50))
    assert [circuit.failed(5_000.0, 0.0) for _ in range(50)] == [True] + [False] * 49
    assert (circuit.openings, circuit.failures) == (1, 50)
    assert circuit.may_dial(5_000.0 + FIRST_BACK_OFF_MS)


def test_dials_that_are_still_under_way_are_probes_enough() -> None:
    """Two began before; the second fails 3 s after the first, and only that prolongs the back-off."""
    circuit = Circuit()
    assert circuit.may_dial(0.0)
    assert circuit.may_dial(3_000.0)
    assert circuit.failed(5_000.0, 0.0)
    assert not circuit.may_dial(7_000.0)
    assert not circuit.failed(8_000.0, 0.0)
    assert not circuit.may_dial(8_199.0)
    assert circuit.may_dial(8_200.0)


def test_whoever_reaches_the_address_closes_the_circuit_and_it_is_said_once() -> None:
    circuit = Circuit()
    assert circuit.may_dial(0.0)
    assert circuit.may_dial(0.0)
    assert circuit.may_dial(0.0)
    assert circuit.failed(10.0, 0.0)
    assert circuit.succeeded()
    assert not circuit.succeeded()
    assert circuit.may_dial(11.0)


class Dialling(RuleBasedStateMachine):
    """Dials begin and end in any order, at any time."""

    def __init__(self) -> None:
        super().__init__()
        self.circuit = Circuit()
        self.now_ms = 0.0
        self.under_way: list[bool] = []  # whether the circuit was open as it began
        self.allowed = self.asked = self.failures = 0
        self.last_failed_ms = 0.0
        self.told_ms = -inf
        self.is_told = False

    @rule(ms=st.floats(0.0, 8_000.0))
    def time_passes(self, ms: float) -> None:
        self.now_ms += ms

    @rule()
    def somebody_comes(self) -> None:
        was_open = not self.circuit.is_closed
        refuses = self.circuit.would_refuse(self.now_ms)
        self.asked += 1
        if self.circuit.may_dial(self.now_ms):
            assert not refuses
            assert not (was_open and self.under_way)
            self.under_way.append(was_open)
            self.allowed += 1
        else:
            assert refuses
            assert was_open

    @precondition(lambda self: self.under_way)
    @rule(jitter=st.floats(0.0, 1.0, exclude_max=True))
    def one_fails(self, jitter: float) -> None:
        self.under_way.pop(0)
        self.is_told = self.is_told and not self.circuit.is_closed
        is_news = not self.is_told and self.told_ms <= self.now_ms - 10_000.0
        assert self.circuit.failed(self.now_ms, jitter) is is_news
        if is_news:
            self.is_told, self.told_ms = True, self.now_ms
        self.failures += 1
        self.last_failed_ms = self.now_ms

    @precondition(lambda self: self.under_way)
    @rule()
    def one_succeeds(self) -> None:
        self.under_way.pop()
        was_told = self.is_told and not self.circuit.is_closed
        assert self.circuit.succeeded() is was_told
        assert self.circuit.is_closed

    @precondition(lambda self: self.under_way)
    @rule()
    def one_is_given_up(self) -> None:
        self.under_way.pop()
        was_closed = self.circuit.is_closed
        self.circuit.abandoned()
        assert self.circuit.is_closed is was_closed

    @invariant()
    def what_is_counted_has_happened(self) -> None:
        circuit = self.circuit
        assert circuit.refused == self.asked - self.allowed
        assert circuit.failures == self.failures
        assert circuit.openings <= circuit.failures

    @invariant()
    def nobody_is_refused_for_ever(self) -> None:
        if not self.under_way:
            assert not self.circuit.would_refuse(self.last_failed_ms + MAX_BACK_OFF_MS)


TestDialling = Dialling.TestCase


# Many addresses ---------------------------------------------------------------------------------------------


def test_each_address_has_its_own_circuit() -> None:
    circuits = Circuits()
    dial(circuits.of(A), 0.0, succeeds=False)
    assert circuits.of(A).would_refuse(0.0)
    assert not circuits.of(B).would_refuse(0.0)
    assert dict(circuits.items()) == {A: circuits.of(A), B: circuits.of(B)}


def test_what_is_heard_of_an_address_counts_for_those_with_the_same_identity_alone() -> None:
    circuits = CircuitsByIdentity()
    assert circuits.of("one") is circuits.of("one")
    dial(circuits.of("one").of(A), 0.0, succeeds=False)
    dial(circuits.of("other").of(A), 0.0, succeeds=True)
    circuits.of("other").of(B)
    assert circuits.of("one").of(A).would_refuse(0.0)
    assert not circuits.of("other").of(A).would_refuse(0.0)
    assert {at: len(same) for at, same in circuits.by_address().items()} == {A: 2, B: 1}


def test_of_addresses_that_brokers_had_once_nothing_is_kept_but_what_is_open_or_dialled() -> None:
    circuits = Circuits(max_circuits=10)
    dial(circuits.of(A), 0.0, succeeds=False)
    dialled = circuits.of(B)
    assert dialled.may_dial(0.0)
    for port in range(1_000):
        dial(circuits.of(("moving", port)), 0.0, succeeds=True)
        assert len(circuits) <= 10
    assert circuits.of(A).would_refuse(0.0)
    assert circuits.of(B) is dialled


# The order of several that will do --------------------------------------------------------------------------


def order(rotation: Rotation, now_ms: float = 0.0) -> str:
    return "".join(host for host, _ in rotation.order(now_ms))


def test_an_open_address_that_nobody_dials_any_more_is_forgotten_and_one_that_is_dialled_is_not() -> None:
    """A broker that moved was told of as away until the proxy ended."""
    circuits = Circuits()
    for address in (A, B):
        dial(circuits.of(address), 0.0, succeeds=False)
    assert circuits.of(C).may_dial(0.0)  # under way
    dial(circuits.of(B), FORGOTTEN_MS - 1.0, succeeds=False)
    circuits.forget(FORGOTTEN_MS - 1.0)
    assert {address for address, _ in circuits.items()} == {A, B, C}
    circuits.forget(FORGOTTEN_MS)
    assert {address for address, _ in circuits.items()} == {B, C}


def test_those_that_refused_are_probed_the_one_that_was_dialled_longest_ago_first() -> None:
    circuits = Circuits()
    dial(circuits.of(B), 0.0, succeeds=False)
    dial(circuits.of(A), 10.0, succeeds=False)
    dial(circuits.of(C), 10.0, succeeds=True)
    assert circuits.to_be_probed([A, B, C, ("d", 9092)], 10.0 + FIRST_BACK_OFF_MS) == [B, A]
    assert circuits.to_be_probed([A, B, C], FIRST_BACK_OFF_MS) == [B]
    assert ("d", 9092) not in dict(circuits.items())


def test_addresses_are_tried_in_the_order_in_which_they_are_configured() -> None:
    assert order(Rotation([A, B, A, C], Circuits())) == "abc"


def test_the_last_good_one_comes_first_and_then_those_behind_it() -> None:
    rotation = Rotation([A, B, C], Circuits())
    rotation.good(B)
    assert order(rotation) == "bca"


def test_those_that_failed_come_last_until_they_may_be_tried_again() -> None:
    circuits = Circuits()
    rotation = Rotation([A, B, C], circuits)
    dial(circuits.of(A), 0.0, succeeds=False)
    assert order(rotation, 50.0) == "bca"
    assert order(rotation, 100.0) == "abc"
    assert circuits.of(A).may_dial(100.0)
    assert order(rotation, 100.0) == "bca"  # somebody is trying already


def test_when_all_have_failed_all_are_still_named() -> None:
    circuits = Circuits()
    rotation = Rotation([A, B, C], circuits)
    for address in (A, B, C):
        dial(circuits.of(address), 0.0, succeeds=False)
    assert order(rotation) == "abc"


def test_looking_at_the_order_begins_no_probe() -> None:
    circuits = Circuits()
    rotation = Rotation([A], circuits)
    dial(circuits.of(A), 0.0, succeeds=False)
    for _ in range(3):
        rotation.order(100.0)
    assert circuits.of(A).may_dial(100.0)


def test_a_client_finds_the_one_broker_that_is_left_and_stays_with_it() -> None:
    """A and B are gone: the first client tries all three, the second goes straight to C."""
    circuits = Circuits()
    rotation = Rotation([A, B, C], circuits)

    def connect() -> list[Address]:
        tried = []
        for address in rotation.order(0.0):
            if dial(circuits.of(address), 0.0, succeeds=address == C):
                tried.append(address)
                if address == C:
                    rotation.good(address)
                    break
        return tried

    assert connect() == [A, B, C]
    assert connect() == [C]
    assert A in rotation
    assert ("d", 9092) not in rotation


def test_a_dial_that_times_out_opens_nothing_is_told_once_a_minute_and_goes_behind_the_others() -> None:
    circuits = Circuits()
    rotation, circuit = Rotation([A, B, C], circuits), circuits.of(A)
    told = []
    for now_ms in (0.0, 59_999.0, 60_000.0):
        assert circuit.may_dial(now_ms)
        told.append(circuit.timed_out(now_ms, 0.0))
    assert told == [True, False, True]
    assert (circuit.is_closed, circuit.failures, circuit.is_unused) == (True, 3, True)
    assert rotation.order(60_000.0) == [B, C, A]
    dial(circuits.of(B), 60_000.0, succeeds=False)
    assert rotation.order(60_000.0) == [C, A, B]
    dial(circuit, 60_000.0, succeeds=True)
    assert rotation.order(60_000.0) == [A, C, B]


def test_a_probe_that_times_out_has_failed() -> None:
    circuit = Circuit()
    dial(circuit, 0.0, succeeds=False)
    assert circuit.may_dial(FIRST_BACK_OFF_MS)
    assert not circuit.timed_out(FIRST_BACK_OFF_MS, 0.0)
    assert circuit.would_refuse(3.0 * FIRST_BACK_OFF_MS - 1.0)


def test_another_cause_while_it_is_open_is_told_once_and_no_more_often_than_every_ten_seconds() -> None:
    circuit = Circuit()
    told = []
    began = [(0.0, 111), (2_000.0, "tls"), (8_900.0, "tls"), (10_000.0, "tls"), (30_000.0, "tls")]
    for now_ms, cause in [*began, (40_000.0, 111), (41_000.0, "tls"), (50_000.0, 111)]:
        assert circuit.may_dial(now_ms)
        told.append(circuit.failed(now_ms, 0.0, f"said {cause}", cause))
        assert circuit.reason == f"said {cause}"
    assert told == [True, False, False, True, False, True, False, False]
    assert circuit.may_dial(60_000.0)
    assert not circuit.timed_out(60_000.0, 0.0, "took no connection")
    assert circuit.reason == "took no connection"
    assert circuit.may_dial(70_000.0)
    assert circuit.succeeded()
    assert not circuit.reason


def flaps(circuit: Circuit, from_ms: float, *causes: object) -> tuple[int, int]:
    """A second up and a second down for each cause: the lines of its ends, and of its returns."""
    ends = returns = 0
    for number, cause in enumerate(causes):
        at_ms = from_ms + number * 2_000.0
        assert circuit.may_dial(at_ms)
        ends += circuit.failed(at_ms, 0.0, "", cause)
        assert circuit.may_dial(at_ms + 1_000.0)
        returns += circuit.succeeded()
    return ends, returns


def test_what_comes_and_goes_is_told_once_in_ten_seconds_with_its_return() -> None:
    assert flaps(Circuit(), 0.0, *[111] * 20) == (4, 4)
    assert flaps(Circuit(), 0.0, *[111, "tls"] * 10) == (8, 8), "each of two causes"
    assert flaps(Circuit(), 0.0, 111, "tls", 104) == (3, 3), "what is new is told at once"


def test_what_was_too_soon_to_be_told_is_told_if_it_lasts() -> None:
    circuit = Circuit()
    assert flaps(circuit, 0.0, 111) == (1, 1)
    told = []
    for at_ms in (2_000.0, 5_000.0, 9_000.0, 10_000.0, 20_000.0, 60_000.0):
        assert circuit.may_dial(at_ms)
        told.append(circuit.failed(at_ms, 0.0, "", 111))
    assert told == [False, False, False, True, False, False]
    assert circuit.may_dial(70_000.0)
    assert circuit.succeeded()
