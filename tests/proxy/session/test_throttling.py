"""Produce over its quota, sentence by sentence of the wire semantics (sections 1.1, 1.6, 1.8).

Buckets hold one second of the rate. At 1,000 B/s a byte takes 1 ms; a full bucket holds 1,000 B.
"""

from __future__ import annotations

import pytest

from sluice.protocol.apis import ApiKey, readable_versions
from sluice.proxy.session.connection_states import State
from sluice.quotas.limits.limits import QuotaLimits
from sluice.usage.records import EventKind
from testkit.frames.frames import (
    FETCH,
    METADATA,
    PRODUCE,
    answer,
    fetch,
    fetch_answer_of,
    produce_answer,
    produce_of,
    request,
    throttle_of,
)
from testkit.proxy.playbook import (
    START_MS,
    Broker,
    Client,
    Held,
    Muted,
    Playbook,
    Reading,
    Reload,
    Shell,
    ToBroker,
    ToClient,
    Wait,
    in_debt,
    limits_of,
    neighbours,
    session_of,
)

# 1.1 Produce, acks ≠ 0 ------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", readable_versions(ApiKey.PRODUCE))
def test_who_is_not_in_debt_goes_at_once_and_is_muted_until_it_is_paid(version: int) -> None:
    """1,500 B against 1,000 B of burst leave −500 B: 500 ms. At 200 ms, 300 of them are left to be told."""
    (
        Playbook(session_of(produce_rate=1_000))
        >> Client(produce_of(1_500, version=version))
        << ToBroker(produce_of(1_500, version=version))
        << Muted(for_ms=500)
        >> Wait(200)
        >> Broker(produce_answer(version=version))
        << ToClient(produce_answer(version=version, throttle_ms=300))
        >> Wait(299)
        >> Wait(1)
        << Reading()
    ).done()


def test_the_larger_of_the_brokers_throttle_and_ours_is_told() -> None:
    """500 ms are ours. The broker's 400 give way, its 600 stay."""
    for brokers, told in ((400, 500), (500, 500), (600, 600)):
        (
            Playbook(session_of(produce_rate=1_000))
            >> Client(produce_of(1_500))
            << ToBroker(produce_of(1_500))
            << Muted(for_ms=500)
            >> Broker(produce_answer(throttle_ms=brokers))
            << ToClient(produce_answer(throttle_ms=told))
        ).done()


def test_a_part_of_a_millisecond_is_told_as_one() -> None:
    """Paid in 500 ms; at 499.75 ms a quarter is left: 1, for 0 would say that nothing is owed."""
    shell = Shell(session_of(produce_rate=1_000))
    shell.client_sends(produce_of(1_500))
    shell.advance(499.75)
    shell.broker_sends(produce_answer())
    assert throttle_of(PRODUCE, 9, shell.to_client) == 1


def test_an_answer_behind_its_deadline_is_not_touched() -> None:
    (
        Playbook(session_of(produce_rate=1_000))
        >> Client(produce_of(1_500))
        << ToBroker(produce_of(1_500))
        << Muted(for_ms=500)
        >> Wait(500)
        << Reading()
        >> Broker(produce_answer(throttle_ms=7))
        << ToClient(produce_answer(throttle_ms=7))
    ).done()


def test_who_comes_while_its_entity_is_in_debt_waits_for_its_turn_and_its_next_request_for_the_rest() -> None:
    """A neighbour owes 500 B. 200 B more: turn in 500 ms, paid in 700; 200 ms of it are told, and the next
    one's."""
    (
        Playbook(in_debt(500))
        >> Client(produce_of(200))
        << Held(for_ms=500)
        >> Wait(500)
        << ToBroker(produce_of(200))
        << Reading()
        >> Broker(produce_answer())
        << ToClient(produce_answer(throttle_ms=200))
        >> Client(request(METADATA, 12, correlation_id=2) + produce_of(100, correlation_id=3))
        << ToBroker(request(METADATA, 12, correlation_id=2))
        << Held(for_ms=200)
        >> Wait(200)
        << ToBroker(produce_of(100, correlation_id=3))
        << Reading()
    ).done()


def test_on_a_connection_of_a_group_it_is_muted_for_the_rest() -> None:
    """A mute ends in time for what else the connection carries; a hold would end its bound later."""
    shell = in_debt(500)
    shell.client_sends(request(ApiKey.HEARTBEAT, 4))
    shell.to_broker.clear()
    shell.client_sends(produce_of(200, correlation_id=2))
    shell.advance(500)
    assert bytes(shell.to_broker) == produce_of(200, correlation_id=2)
    assert (shell.state, shell.session.pace.wake_at_ms) == (State.MUTED, START_MS + 700)


def test_turns_come_by_bytes_and_no_later_charge_moves_a_deadline() -> None:
    """The first owes 500 B. Then 100 B overtake 300: 100 (turn 500, paid 600), 300 (600, 900), 5,000 (900,
    5,900)."""
    first, *others = neighbours(4)
    first.client_sends(produce_of(1_500))
    for shell, size in zip(others, (300, 100, 5_000), strict=True):
        shell.client_sends(produce_of(size))
    for at_ms, went in ((500, [0, 100, 0]), (600, [300, 100, 0]), (900, [300, 100, 5_000])):
        for shell in others:
            shell.advance(at_ms - shell.now_ms + START_MS)
        assert [len(shell.to_broker) for shell in others] == went
    assert first.session.pace.wake_at_ms - START_MS == 500
    assert others[2].session._throttling.produces.paid_at_ms - START_MS == 5_900


def test_nothing_is_read_before_the_deadline_and_then_it_goes_on_with_what_waited() -> None:
    """1,500 B (muted 500 ms), and behind it 100 B that nobody looks at: no debt is left at their turn."""
    (
        Playbook(session_of(produce_rate=1_000))
        >> Client(produce_of(1_500) + produce_of(100, correlation_id=2))
        << ToBroker(produce_of(1_500))
        << Muted(for_ms=500)
        >> Client(request(METADATA, 12, correlation_id=3))
        >> Wait(499)
        >> Wait(1)
        << ToBroker(produce_of(100, correlation_id=2))
        << Muted(for_ms=100)
        >> Wait(100)
        << ToBroker(request(METADATA, 12, correlation_id=3))
        << Reading()
    ).done()


def test_answers_of_earlier_requests_come_while_a_later_one_is_held() -> None:
    (
        Playbook(in_debt(500))
        >> Client(request(METADATA, 12, correlation_id=1) + produce_of(200, correlation_id=2))
        << ToBroker(request(METADATA, 12, correlation_id=1))
        << Held(for_ms=500)
        >> Broker(answer(METADATA, 12, correlation_id=1))
        << ToClient(answer(METADATA, 12, correlation_id=1))
        >> Wait(500)
        << ToBroker(produce_of(200, correlation_id=2))
        << Reading()
    ).done()


def test_a_held_request_of_which_only_the_head_has_arrived_goes_on_as_it_arrives() -> None:
    """5,000 B at a debt of 500: held when its head is here, charged once, for all of it."""
    frame = produce_of(5_000)
    shell = (
        Playbook(in_debt(500))
        >> Client(frame[:100])
        << Held(for_ms=500)
        >> Client(frame[100:200])
        >> Wait(500)
        << ToBroker(frame[:200])
        << Reading()
        >> Client(frame[200:] + produce_of(100, correlation_id=2))
        << ToBroker(frame[200:])
        << Held(for_ms=5_000)
    ).done()
    assert shell.sensor().charged == 1_500 + 5_000 + 100


def test_bytes_that_are_given_again_during_a_hold_are_not_charged_again() -> None:
    """The shell does not read meanwhile; were it to, nothing would go, and the turn would stay."""
    shell = in_debt(500)
    shell.client_sends(produce_of(200))
    buf = bytearray(shell.kept + produce_of(100, correlation_id=2))
    for wait_ms in (0, 499, 500, 600):
        assert shell.session.client_data(buf, 0, len(buf), START_MS + wait_ms) == 0
    assert shell.sensor().charged == 1_700
    assert (shell.state, shell.session.pace.wake_at_ms) == (State.HOLDING, START_MS + 500)


def test_a_wake_that_comes_early_changes_nothing_and_a_late_one_makes_up_for_it() -> None:
    """Turn at 500 ms, paid at 700. Woken at 499 nothing goes; at 650 it goes and 50 ms are left for the next
    one."""
    shell = in_debt(500)
    shell.client_sends(produce_of(200))
    shell.now_ms = START_MS + 499
    shell.wake()
    assert (shell.state, shell.session.pace.wake_at_ms) == (State.HOLDING, START_MS + 500)
    assert shell.to_broker == b""
    shell.now_ms = START_MS + 650
    shell.wake()
    assert shell.state is State.READING
    assert shell.to_broker == produce_of(200)
    shell.client_sends(produce_of(100, correlation_id=2))
    assert (shell.state, shell.session.pace.wake_at_ms) == (State.HOLDING, START_MS + 700)
    shell.now_ms = START_MS + 699
    shell.wake()
    assert (shell.state, shell.session.pace.wake_at_ms) == (State.HOLDING, START_MS + 700)
    shell.now_ms = START_MS + 9_000
    shell.wake()
    assert not shell.is_delayed


def test_the_hold_the_mute_and_the_request_are_recorded_with_their_delays() -> None:
    """Debt 500, request 200 B: held 500 ms, then 200 to pay; its record has the 700 in all."""
    shell = in_debt(500)
    shell.events.clear()
    shell.client_sends(produce_of(200))
    shell.advance(530)
    shell.broker_sends(produce_answer())
    seen = [(event.kind, event.begun_ms, event.delay_ms, event.charged_bytes) for event in shell.events]
    assert seen == [
        (EventKind.HOLD, START_MS, 500.0, 200),
        (EventKind.MUTE, START_MS + 500, 200.0, 200),
    ]
    assert {(event.quota, event.rule, event.user, event.api_key) for event in shell.events} == {
        ("produce", "default_user", "ANONYMOUS", PRODUCE)
    }
    (record,) = shell.records
    assert (record.finished_ms, record.upstream_ms) == (START_MS + 530, 30.0)
    assert (record.held_ms, record.throttle_ms) == (500.0, 700.0)


# 1.6 The bound --------------------------------------------------------------------------------------------


def test_a_delay_ends_with_the_answer_budget_and_what_goes_beyond_it_is_counted() -> None:
    """30,000 B: paid in 29 s, muted for 8. 21 s × 1,000 B/s pass ahead of the rate, and stay owed.

    The next 100 B, whose turn would be in 21 s, pass ahead of theirs too. They are counted only if the quota
    has not paid as much since.
    """
    shell = (
        Playbook(session_of(produce_rate=1_000))
        >> Client(produce_of(30_000))
        << ToBroker(produce_of(30_000))
        << Muted(for_ms=8_000)
        >> Wait(8_000)
        << Reading()
        >> Client(produce_of(100, correlation_id=2))
        << Held(for_ms=8_000)
    ).done()
    assert shell.sensor().over == 21_000
    assert shell.sensor().tokens(shell.now_ms) == -21_100
    shell.advance(8_000)
    assert len(shell.to_broker) == 100
    assert shell.sensor().over == 21_000, "8,000 B were paid meanwhile: the 100 are within them"


def test_hold_and_mute_together_end_with_the_answer_budget() -> None:
    """6 s of debt: held 6 s, and of the 5 s that 5,000 B take 2 are left; 3,000 B pass ahead. The next
    request has its own budget, from when it is read."""
    shell = (
        Playbook(in_debt(6_000))
        >> Client(produce_of(5_000))
        << Held(for_ms=6_000)
        >> Wait(6_000)
        << ToBroker(produce_of(5_000))
        << Reading()
        >> Broker(produce_answer())
        << ToClient(produce_answer(throttle_ms=5_000))
    ).done()
    assert shell.sensor().over == 3_000
    shell.client_sends(produce_of(20_000, correlation_id=2))
    assert shell.session._throttling.produces._last_ms == shell.now_ms + 8_000


def test_the_delays_of_requests_behind_one_another_end_with_their_clients_patience() -> None:
    """100 s of debt and five requests at once, of a client without a name: the first has the answer budget of
    8 s, the last goes after 0.8 · 20 s, and those between at the rate: 1,000 B a second."""
    shell = in_debt(100_000)
    shell.client_sends(b"".join(produce_of(1_000, correlation_id=number) for number in range(5)))
    went_ms = []
    for number in range(5):
        shell.advance(shell.session.pace.wake_at_ms - shell.now_ms)
        assert bytes(shell.to_broker) == produce_of(1_000, correlation_id=number)
        shell.to_broker.clear()
        went_ms.append(shell.now_ms - START_MS)
    assert went_ms == [8_000, 13_000, 14_000, 15_000, 16_000]


def test_a_client_that_reconnects_for_every_request_clears_no_debt() -> None:
    """20 of 1,000 B at once: one from the burst, one into debt, then one a second, up to 8 s."""
    shells = neighbours(20)
    for shell in shells:
        shell.client_sends(produce_of(1_000))
    assert [shell.state for shell in shells] == [State.READING, State.MUTED] + [State.HOLDING] * 18
    waits_s = [(shell.session.pace.wake_at_ms - START_MS) / 1_000 for shell in shells[2:]]
    assert waits_s == [1, 2, 3, 4, 5, 6, 7, 8] + [8] * 10


# Quotas reloaded meanwhile --------------------------------------------------------------------------------


def test_deadlines_that_were_told_stay_when_quotas_are_reloaded() -> None:
    (
        Playbook(session_of(produce_rate=1_000))
        >> Client(produce_of(1_500) + produce_of(100, correlation_id=2))
        << ToBroker(produce_of(1_500))
        << Muted(for_ms=500)
        >> Reload(QuotaLimits([]))
        >> Broker(produce_answer())
        << ToClient(produce_answer(throttle_ms=500))
        >> Wait(500)
        << ToBroker(produce_of(100, correlation_id=2))
        << Reading()
    ).done()


def test_a_held_request_waits_by_the_limit_of_now_when_quotas_are_reloaded() -> None:
    """It waits for 500 B to be paid: at 1,000 B/s after 500 ms, at 10,000 B/s after 50."""
    shell = (
        Playbook(in_debt(500))
        >> Client(produce_of(200))
        << Held(for_ms=500)
        >> Reload(limits_of(produce_rate=10_000))
        >> Wait(50)
        << ToBroker(produce_of(200))
        << Reading()
        >> Client(produce_of(100, correlation_id=2))
        << Held(for_ms=20)
    ).done()
    assert shell.sensor().rate_per_s == 10_000


# 1.8 Two quotas -------------------------------------------------------------------------------------------


def test_of_two_delays_the_larger_counts() -> None:
    """Produce owes 500 ms; then a Fetch answer of 2,700 B owes 1,700, from 100 ms on."""
    playbook = (
        Playbook(session_of(produce_rate=1_000, fetch_rate=1_000))
        >> Client(fetch(correlation_id=1) + produce_of(1_500, correlation_id=3))
        << ToBroker(fetch(max_bytes=1_000, correlation_id=1) + produce_of(1_500, correlation_id=3))
        << Muted(for_ms=500)
        >> Wait(100)
        >> Broker(fetch_answer_of(2_700, correlation_id=1))
        << ToClient(fetch_answer_of(2_700, correlation_id=1, throttle_ms=1_700))
        << Muted(for_ms=1_700)
        >> Broker(produce_answer(correlation_id=3))
        << ToClient(produce_answer(correlation_id=3, throttle_ms=400))
        >> Wait(1_700)
        << Reading()
    )
    assert [record.api_key for record in playbook.done().records] == [FETCH, PRODUCE]
