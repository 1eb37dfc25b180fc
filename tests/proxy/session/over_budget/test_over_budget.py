"""`over_budget: refuse`: what has no turn within its answer budget is refused, and the rate is a hard limit.

At 1,000 B/s a byte takes 1 ms; a full bucket holds 1,000 B. Source: wire-semantics 1.6, 3.4, 3.5.
"""

from __future__ import annotations

import pytest

from sluice.protocol.apis import ApiKey, readable_versions
from sluice.proxy.session.causes import DisconnectCause
from sluice.proxy.session.connection_states import State
from sluice.proxy.session.policy import SessionPolicy, SharedState
from sluice.proxy.session.session import Session
from sluice.quotas.limits.limits import QuotaLimits
from sluice.quotas.manager import QuotaManager
from sluice.usage.records import EventKind, Recorder
from testkit.frames.frames import METADATA, answer, produce, produce_answer, produce_of, record_batch, request
from testkit.proxy.playbook import (
    Client,
    ClientLeaves,
    Drain,
    Ending,
    Held,
    Playbook,
    Reload,
    Shell,
    ToBroker,
    Wait,
)
from testkit.proxy.refusing_session import BUDGET_MS, limits_of, refusals_of, shells

JOIN_GROUP = 11


def behind_a_debt(debt_bytes: int, limits: QuotaLimits | None = None) -> Shell:
    neighbour, shell = shells(2, limits)
    neighbour.client_sends(produce_of(1_000 + debt_bytes))
    return shell


def idempotent(sequence: int, size: int = 500, *, producer_id: int = 7, acks: int = -1) -> bytes:
    batch = record_batch(bytes(size), producer_id=producer_id, epoch=0, sequence=sequence)
    return produce({"orders": [(0, batch)]}, acks=acks, correlation_id=sequence)


@pytest.mark.parametrize("version", readable_versions(ApiKey.PRODUCE))
def test_what_has_no_turn_in_its_budget_is_refused_and_given_back(version: int) -> None:
    """5,000 B are owed: its turn would come after 5 s, and its budget ends after 2."""
    shell = behind_a_debt(5_000)
    shell.client_sends(produce_of(700, version=version, correlation_id=3))
    assert (shell.state, shell.session.pace.wake_at_ms - shell.now_ms) == (State.HOLDING, BUDGET_MS)
    shell.advance(BUDGET_MS)
    assert shell.state is State.READING
    assert not shell.to_broker
    ((correlation_id, throttle_ms, message),) = refusals_of(shell, version)
    assert (correlation_id, throttle_ms) == (
        3,
        BUDGET_MS,
    )  # 3 s are still to come: told is the budget at most
    assert version < 8 or "producer_byte_rate" in message
    sensor = shell.sensor()
    assert (sensor.held, sensor.refunded, sensor.used) == (0, 700, 6_000)
    refusal = shell.events[-1]
    assert (refusal.kind, refusal.quota, refusal.reason) == (EventKind.REFUSAL, "produce", "over_budget")
    assert (refusal.charged_bytes, refusal.rule, refusal.delay_ms) == (700, "default_user", 0.0)
    record = shell.records[-1]
    assert (record.held_ms, record.throttle_ms, record.upstream_ms) == (BUDGET_MS, BUDGET_MS, 0.0)
    assert record.sensor is sensor


def test_without_the_option_it_goes_ahead_of_the_quota() -> None:
    shell = behind_a_debt(5_000, limits_of(refuses=False))
    shell.client_sends(produce_of(700))
    shell.advance(BUDGET_MS)
    assert bytes(shell.to_broker) == produce_of(700)


def test_what_has_its_turn_in_its_budget_goes_then() -> None:
    (
        Playbook(behind_a_debt(1_500))
        >> Client(produce_of(200))
        << Held(for_ms=1_500)
        >> Wait(1_500)
        << ToBroker(produce_of(200))
    )


def test_a_refusal_tells_how_long_the_next_will_wait() -> None:
    """2,600 B are owed; after 2 s 600 are left, then the two refused ones take turns in their order."""
    neighbour, first, second = shells(3)
    neighbour.client_sends(produce_of(3_600))
    first.client_sends(produce_of(400))
    second.client_sends(produce_of(400))
    for shell in (first, second):
        shell.advance(BUDGET_MS)
    assert [refusals_of(shell)[0][1] for shell in (first, second)] == [600, 1_000]
    for shell, told_ms in ((first, 600), (second, 1_000)):
        shell.advance(told_ms)
        shell.client_sends(produce_of(400))
        assert shell.state is not State.HOLDING, "it came when it was told to"
        assert bytes(shell.to_broker) == produce_of(400)


def test_a_refused_client_that_does_not_wait_as_told_waits_as_long() -> None:
    shell = behind_a_debt(2_600)
    shell.client_sends(produce_of(400))
    shell.advance(BUDGET_MS)
    ((_, told_ms, _),) = refusals_of(shell)
    shell.client_sends(produce_of(400))
    shell.advance(told_ms - 1)
    assert not shell.to_broker
    shell.advance(2)
    assert bytes(shell.to_broker) == produce_of(400)


def test_later_batches_of_the_producer_are_refused_until_the_first_has_come_again() -> None:
    """No limit on producer ids: gates alone, and nothing is counted or remembered of ids."""
    shell = behind_a_debt(2_600)
    shell.client_sends(b"".join(map(idempotent, range(3))))
    shell.advance(BUDGET_MS)
    assert [number for number, _, _ in refusals_of(shell)] == [0, 1, 2]
    assert not shell.to_broker
    reasons = [event.reason for event in shell.events if event.kind is EventKind.REFUSAL]
    assert reasons == ["over_budget", "sequence_gate", "sequence_gate"]
    assert {event.quota for event in shell.events} == {"produce"}
    shell.client_sends(idempotent(1))
    assert refusals_of(shell)[0][0] == 1, "it would overtake"
    shell.client_sends(b"".join(map(idempotent, range(3))))
    shell.advance(10_000)
    assert bytes(shell.to_broker) == b"".join(map(idempotent, range(3)))
    assert not list(shell.shared.producer_ids.quota.principals())
    assert not shell.session.has_id_limit
    assert len(shell.shared.producer_ids.tables) == 0, "the gate is lifted"
    sensor = shell.sensor()
    assert (sensor.held, sensor.over) == (0, 600), "the neighbour's, whose mute ends at its budget"


def test_another_producer_of_the_connection_is_not_kept_by_its_gates() -> None:
    shell = behind_a_debt(2_600)
    shell.client_sends(idempotent(0))
    shell.advance(BUDGET_MS)
    refusals_of(shell)
    shell.client_sends(idempotent(5, producer_id=8))
    shell.advance(BUDGET_MS - 1)
    assert bytes(shell.to_broker) == idempotent(5, producer_id=8)


def test_gates_hold_on_other_connections_of_the_user() -> None:
    neighbour, first, second = shells(3)
    neighbour.client_sends(produce_of(5_000))
    first.client_sends(idempotent(0))
    first.advance(BUDGET_MS)
    second.now_ms = first.now_ms
    second.client_sends(idempotent(1))
    assert [number for number, _, _ in refusals_of(second)] == [1]


@pytest.mark.parametrize("step", [1, 700])
def test_all_partitions_of_a_request_are_refused_however_it_arrives(step: int) -> None:
    """The heads of all partitions must be there before it is judged at all."""
    shell = behind_a_debt(5_000)
    topics = {
        name: [(n, record_batch(bytes(300), producer_id=7, epoch=0, sequence=0)) for n in range(3)]
        for name in ("orders", "bills")
    }
    frame = produce(topics, correlation_id=9)
    for at in range(0, len(frame), step):
        shell.client_sends(frame[at : at + step])
    shell.advance(BUDGET_MS)
    assert [number for number, _, _ in refusals_of(shell)] == [9]
    assert not shell.to_broker
    assert len(shell.shared.producer_ids.tables) == 6
    shell.client_sends(request(METADATA, 9))
    assert bytes(shell.to_broker) == request(METADATA, 9), "the next request begins where it should"


def test_a_refused_request_that_still_arrives_is_dropped_to_its_end() -> None:
    shell = behind_a_debt(5_000)
    frame = produce_of(1_000)
    shell.client_sends(frame[:600])
    shell.advance(BUDGET_MS)
    assert len(refusals_of(shell)) == 1
    shell.client_sends(frame[600:] + request(METADATA, 9))
    assert bytes(shell.to_broker) == request(METADATA, 9)


def test_a_refusal_stands_behind_the_answers_that_are_due() -> None:
    neighbour, shell = shells(2)
    shell.client_sends(request(METADATA, 9, correlation_id=1))
    neighbour.client_sends(produce_of(6_000))
    shell.client_sends(produce_of(400, correlation_id=2))
    shell.advance(BUDGET_MS)
    assert not shell.to_client
    metadata = answer(METADATA, 9, correlation_id=1)
    shell.broker_sends(metadata)
    assert shell.to_client.startswith(metadata)
    del shell.to_client[: len(metadata)]
    assert [number for number, _, _ in refusals_of(shell)] == [2]


def test_a_request_larger_than_what_a_budget_can_pay_goes_where_nothing_is_owed() -> None:
    (shell,) = shells(1)
    shell.client_sends(produce_of(20_000))
    assert bytes(shell.to_broker) == produce_of(20_000)
    assert shell.state is State.READING


def test_no_request_waits_longer_than_the_budget_whatever_the_one_before_it_left_owed() -> None:
    """It was muted for 8 s first, and then had another 8: longer than clients wait that know the bound."""
    (shell,) = shells(1)
    shell.client_sends(produce_of(20_000))
    shell.advance(10)
    shell.broker_sends(produce_answer())
    shell.to_client.clear()
    shell.client_sends(produce_of(400, correlation_id=2))
    shell.advance(BUDGET_MS)
    assert [number for number, _, _ in refusals_of(shell)] == [2]


def test_with_the_brokers_own_pacing_nothing_waits_in_turn_and_a_mute_is_all_there_is() -> None:
    shared = SharedState(QuotaManager(limits_of(), pacing="kafka"), Recorder())
    shell = Shell(Session(shared, SessionPolicy(), "10.0.0.1"))
    shell.client_sends(produce_of(200_000))
    assert shell.state is State.MUTED


def test_with_acks_0_it_waits_for_its_turn_however_long() -> None:
    shell = behind_a_debt(5_000)
    shell.client_sends(produce_of(500, acks=0))
    shell.advance(4_999)
    assert not shell.to_broker
    shell.advance(2)
    assert bytes(shell.to_broker) == produce_of(500, acks=0)
    assert not shell.to_client


def test_with_acks_0_on_a_connection_of_a_group_it_goes_after_2_s() -> None:
    shell = behind_a_debt(5_000)
    shell.client_sends(request(JOIN_GROUP, 5, correlation_id=1))
    shell.broker_sends(answer(JOIN_GROUP, 5, correlation_id=1))
    shell.to_broker.clear()
    shell.client_sends(produce_of(500, acks=0))
    shell.advance(2_000)
    assert bytes(shell.to_broker) == produce_of(500, acks=0)


def test_a_limit_in_shadow_mode_refuses_nothing() -> None:
    shell = behind_a_debt(5_000, limits_of(shadow=True))
    shell.client_sends(idempotent(0))
    assert bytes(shell.to_broker) == idempotent(0)
    assert not shell.session.has_id_limit


def test_a_client_that_leaves_while_held_is_not_answered_and_makes_no_gate() -> None:
    shell = behind_a_debt(5_000)
    (
        Playbook(shell)
        >> Client(idempotent(0))
        << Held(for_ms=BUDGET_MS)
        >> ClientLeaves()
        >> Wait(BUDGET_MS)
        << Ending(DisconnectCause.LEFT_WHILE_HELD)
    )
    assert not shell.to_client
    assert len(shell.shared.producer_ids.tables) == 0
    assert shell.sensor().held == 0


def test_at_a_drain_it_is_neither_forwarded_nor_refused() -> None:
    shell = behind_a_debt(5_000)
    (
        Playbook(shell)
        >> Client(idempotent(0))
        << Held(for_ms=BUDGET_MS)
        >> Drain()
        << Ending(DisconnectCause.DRAINED)
    )
    assert (shell.sensor().held, len(shell.shared.producer_ids.tables)) == (0, 0)


def test_the_option_holds_for_what_comes_after_a_reload() -> None:
    neighbour, shell = shells(2, limits_of(refuses=False))
    shell.client_sends(idempotent(0, 10))
    shell.broker_sends(produce_answer(correlation_id=0))
    shell.to_broker.clear()
    shell.to_client.clear()
    neighbour.client_sends(produce_of(8_000))
    Playbook(shell) >> Reload(limits_of())
    shell.client_sends(idempotent(1) + idempotent(2))
    shell.advance(BUDGET_MS)
    assert [number for number, _, _ in refusals_of(shell)] == [1, 2]
    assert not shell.to_broker


def test_a_new_producer_id_that_is_refused_for_its_bytes_costs_no_token() -> None:
    shell = behind_a_debt(2_600, limits_of(producer_ids_rate=1.0))
    shell.client_sends(idempotent(0))
    (principal,) = shell.shared.producer_ids.quota.principals()
    shell.advance(BUDGET_MS)
    assert [number for number, _, _ in refusals_of(shell)] == [0]
    assert (principal.admitted, principal.tokens(shell.now_ms)) == (0, 1.0)
    shell.client_sends(idempotent(1))
    assert refusals_of(shell)[0][0] == 1
    shell.client_sends(idempotent(0) + idempotent(1))
    shell.advance(BUDGET_MS)
    assert bytes(shell.to_broker) == idempotent(0) + idempotent(1)
    assert principal.admitted == 1


def new_id(correlation_id: int) -> bytes:
    return idempotent(0, producer_id=correlation_id + 100)


def test_a_limit_on_ids_that_goes_leaves_the_gates_where_the_rate_refuses() -> None:
    """A reload takes producer_ids_rate away: new ids pass from now on, and nothing overtakes what was
    refused."""
    both = limits_of(10_000_000, producer_ids_rate=1.0)
    (shell,) = shells(1, both)
    shell.client_sends(new_id(1))
    shell.shared.quotas.reload(limits_of(10_000_000), shell.now_ms)
    for number in (2, 3, 4):
        shell.client_sends(new_id(number))
    assert shell.to_broker == b"".join(map(new_id, (1, 2, 3, 4)))
    (principal,) = shell.shared.producer_ids.quota.principals()
    assert principal.admitted == 1


def test_a_limit_on_ids_that_goes_lets_a_new_id_that_waits_for_its_bytes_go() -> None:
    """It was admitted, and is held for its bytes: it goes without a quota to tell of it."""
    neighbour, shell = shells(2, limits_of(refuses=False, producer_ids_rate=3_600.0))
    neighbour.client_sends(produce_of(2_000))
    shell.client_sends(new_id(1))
    assert shell.state is State.HOLDING
    shell.shared.quotas.reload(limits_of(refuses=False), shell.now_ms)
    shell.advance(1_000)
    shell.client_sends(new_id(2))
    shell.advance(2_000)
    assert shell.to_broker == new_id(1) + new_id(2)


def test_a_limit_on_ids_that_goes_forgets_what_was_admitted_and_had_not_gone() -> None:
    first, second = shells(2, limits_of(10_000_000, refuses=False, producer_ids_rate=1.0))
    first.client_sends(new_id(1))
    second.client_sends(new_id(2))
    assert second.state is State.HOLDING
    second.shared.quotas.reload(QuotaLimits([]), second.now_ms)
    first.client_sends(new_id(3))
    assert first.to_broker == new_id(1) + new_id(3), "there is no limit any more"
    ids = first.session._throttling.ids
    assert ids is not None
    assert ids.gates_only, "looked at for what is still held, not for ids"


def test_a_connection_that_speaks_for_another_client_id_is_refused_as_before() -> None:
    """Its limits are looked up anew; gates stay without a limit on ids."""
    shell = behind_a_debt(5_000)
    for number, client_id in enumerate(("app", "ape")):
        shell.client_sends(produce_of(700, correlation_id=number, client_id=client_id))
        shell.advance(BUDGET_MS)
        assert [refused[0] for refused in refusals_of(shell)] == [number]
    assert not shell.to_broker


def test_of_a_refused_request_no_cost_stays_for_one_with_its_correlation_id() -> None:
    """A client that numbers each request alike had its next one charged as the refused one, and what was kept
    of each refusal stayed."""
    shell = behind_a_debt(7_000, limits_of(request_percentage=1_000_000.0))
    for _ in range(3):
        shell.client_sends(produce_of(500, correlation_id=7))
        shell.advance(BUDGET_MS)
        assert refusals_of(shell)
    time = shell.session._throttling.request_time
    assert time is not None
    assert (time.marks, shell.session.in_flight) == ([], 0)
    shell.advance(60_000.0)
    two = produce({"t": [(0, record_batch()), (1, record_batch())]}, correlation_id=7)
    shell.client_sends(two)
    assert [mark[:2] for mark in time.marks] == [(7, 2)]
