"""Transactional ids: counted, and above a rate of their own InitProducerId waits; it is never refused."""

from __future__ import annotations

import pytest

from sluice.protocol.apis import ApiKey
from sluice.protocol.codec.wire import Struct
from sluice.proxy.session.causes import DisconnectCause
from sluice.proxy.session.connection_states import State
from sluice.proxy.session.policy import SessionPolicy, SharedState
from sluice.proxy.session.producer_ids.shared import ProducerIds
from sluice.proxy.session.session import Session
from sluice.quotas.entity import DEFAULT, QuotaEntity
from sluice.quotas.limits.limits import QuotaLimits
from sluice.quotas.manager import QuotaManager
from sluice.quotas.producer_ids.buckets import BucketShape
from sluice.quotas.producer_ids.principal import ProducerIdSettings
from sluice.usage.records import EventKind, Recorder
from testkit.frames.frames import answer, request
from testkit.proxy.playbook import Shell

HOLD_MS = 8_000.0


def beginning(name: str | None, correlation_id: int = 1) -> bytes:
    body: Struct = {"transactionalId": name, "transactionTimeoutMs": 60_000}
    return request(ApiKey.INIT_PRODUCER_ID, 4, body, correlation_id=correlation_id)


def naming_shells(count: int, per_hour: float | None) -> list[Shell]:
    """Whose bucket holds one transactional id."""
    settings = ProducerIdSettings(buckets=BucketShape(burst_h=0.0001), transactional_ids_per_hour=per_hour)
    limits = QuotaLimits([(QuotaEntity(DEFAULT, None), {"producer_ids_rate": 1_000.0})])
    shared = SharedState(QuotaManager(limits), Recorder(), producer_ids=ProducerIds(settings))
    return [Shell(Session(shared, SessionPolicy(), "10.0.0.1")) for _ in range(count)]


def names_of(shell: Shell) -> tuple[int, int]:
    """(new transactional ids, those of them beyond the limit)"""
    (principal,) = shell.shared.producer_ids.quota.principals()
    return principal.transactional_ids.new, principal.transactional_ids.over


def test_transactional_ids_without_a_limit_are_counted_and_never_wait() -> None:
    (shell,) = naming_shells(1, None)
    frames = b"".join(beginning(f"app-{number % 5}") for number in range(10))
    shell.client_sends(frames + beginning(None))
    assert shell.to_broker == frames + beginning(None)
    assert names_of(shell) == (5, 0)


def test_a_new_transactional_id_above_its_rate_waits_for_its_token() -> None:
    first, second, third = naming_shells(3, 1_800.0)
    first.client_sends(beginning("a"))
    second.client_sends(beginning("b"))
    third.client_sends(beginning("c"))
    assert {second.state, third.state} == {State.HOLDING}
    second.advance(2_001.0)
    assert second.to_broker == beginning("b")
    third.advance(2_001.0)
    assert not third.to_broker
    third.advance(2_000.0)
    assert third.to_broker == beginning("c")
    second.client_sends(beginning("b") + beginning("a"))
    assert second.to_broker == beginning("b") * 2 + beginning("a")
    assert names_of(first) == (3, 0)
    second.broker_sends(answer(ApiKey.INIT_PRODUCER_ID, 4))
    assert second.records[-1].held_ms == pytest.approx(2_000.0, abs=2.0)


def test_a_transactional_id_is_never_refused_but_goes_when_it_has_waited_as_long_as_it_may() -> None:
    first, second = naming_shells(2, 1.0)
    first.client_sends(beginning("a"))
    second.client_sends(beginning("b"))
    second.advance(HOLD_MS - 1.0)
    assert not second.to_broker
    second.advance(1.0)
    assert second.to_broker == beginning("b")
    assert not second.to_client
    assert names_of(first) == (2, 1)
    assert [event.kind for event in first.events] == [EventKind.HOLD]


def test_the_token_of_a_transactional_id_whose_client_left_is_given_back() -> None:
    first, second, third = naming_shells(3, 1_800.0)
    first.client_sends(beginning("a"))
    second.client_sends(beginning("b"))
    second.client_left = True
    second.advance(2_001.0)
    assert not second.to_broker
    assert second.cause is DisconnectCause.LEFT_WHILE_HELD
    third.advance(2_001.0)
    third.client_sends(beginning("c"))
    assert third.to_broker == beginning("c")
    assert names_of(first) == (2, 0)


def test_clients_that_ask_for_names_and_leave_bring_nobody_a_token() -> None:
    """One token, and a minute's debt of thirty."""
    first, *leaving, last = naming_shells(102, 1_800.0)
    first.client_sends(beginning("a"))
    for number, shell in enumerate(leaving):
        shell.client_sends(beginning(f"left-{number}"))
        assert shell.state is State.HOLDING
    for shell in leaving:
        shell.session.closed(shell.now_ms)
    last.client_sends(beginning("b"))
    assert last.state is State.HOLDING
    assert last.session.pace.wake_at_ms - last.now_ms == pytest.approx(2_000.0)
    assert names_of(first) == (1, 0)


def test_what_never_waited_was_not_held() -> None:
    """A transaction's other requests, and the first of its name, as the access log has them."""
    (shell,) = naming_shells(1, 1_800.0)
    body: Struct = {"transactionalId": "a", "producerId": 7, "producerEpoch": 0, "committed": True}
    shell.client_sends(beginning("a") + request(ApiKey.END_TXN, 3, body, correlation_id=2))
    shell.broker_sends(answer(ApiKey.INIT_PRODUCER_ID, 4) + answer(ApiKey.END_TXN, 3, correlation_id=2))
    assert [(record.held_ms, record.throttle_ms) for record in shell.records] == [(0.0, 0.0), (0.0, 0.0)]


def test_a_name_that_is_woken_before_its_token_comes_waits_on() -> None:
    first, second = naming_shells(2, 1_800.0)
    first.client_sends(beginning("a"))
    second.client_sends(beginning("b"))
    until_ms = second.session.pace.wake_at_ms
    second.now_ms += 500.0
    second.wake()
    assert (second.state, second.session.pace.wake_at_ms) == (State.HOLDING, until_ms)
    assert not second.to_broker
    second.advance(1_500.0)
    assert second.to_broker == beginning("b")
