"""request_percentage and clients that do not wait for their answers: to leave makes nothing cheaper."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sluice.proxy.session.causes import DisconnectCause
from sluice.proxy.session.connection_states import State
from sluice.proxy.session.session import Session
from sluice.quotas.kinds import QuotaKind
from testkit.frames.frames import (
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    answer,
    fetch,
    fetch_answer_of,
    produce_of,
    request,
)
from testkit.proxy.playbook import Shell
from testkit.proxy.request_time_session import (
    exchange,
    metadata,
    metadata_answer,
    policy_of,
    shared_of,
    shell_of,
    spend,
)


def waiting() -> Shell:
    """A new connection, whose user owes for longer than a window."""
    shared = shared_of()
    spend(shell_of(shared), 500.0)
    return shell_of(shared)


@pytest.mark.parametrize("first", [metadata(1), fetch(correlation_id=1)], ids=["Metadata", "Fetch"])
def test_the_first_request_of_a_client_that_left_while_it_waited_does_not_go_on(first: bytes) -> None:
    shell = waiting()
    shell.client_sends(first + metadata(2))
    assert shell.state is State.MUTED
    shell.client_leaves()
    shell.advance(1_000.0)
    assert not shell.to_broker
    assert shell.cause is DisconnectCause.LEFT_WHILE_HELD
    name = "Fetch" if first == fetch(correlation_id=1) else "Metadata"
    assert shell.detail == f"a {name} of {len(first)} bytes not forwarded"


def test_it_is_so_behind_a_login() -> None:
    shared = shared_of()
    policy = replace(policy_of(), authentication_required=True)
    shell = Shell(Session(shared, policy, "10.0.0.1"), now_ms=10_000.0)
    shell.client_sends(request(SASL_HANDSHAKE, 1, {"mechanism": "PLAIN"}))
    shell.broker_sends(answer(SASL_HANDSHAKE, 1, {"errorCode": 0, "mechanisms": ["PLAIN"]}))
    shell.client_sends(request(SASL_AUTHENTICATE, 2, {"authBytes": b"\0alice\0secret".hex()}))
    shell.broker_sends(answer(SASL_AUTHENTICATE, 2, {"errorCode": 0, "authBytes": ""}))
    sensor = shared.quotas.sensor(QuotaKind.REQUEST, "alice", "app", shell.now_ms)
    assert sensor is not None
    sensor.charge(5_000.0, shell.now_ms)
    shell.to_broker.clear()
    shell.client_sends(metadata(3))
    assert shell.state is State.MUTED
    shell.client_leaves()
    shell.advance(1_000.0)
    assert not shell.to_broker
    assert shell.cause is DisconnectCause.LEFT_WHILE_HELD


def test_a_produce_without_acks_goes_on_all_the_same() -> None:
    """Its client counts it as sent."""
    shell = waiting()
    shell.client_sends(produce_of(100, acks=0))
    shell.client_leaves()
    shell.advance(1_000.0)
    assert shell.to_broker == produce_of(100, acks=0)


def test_what_a_client_sent_behind_an_answer_that_muted_it_goes_on() -> None:
    """A commit, or LeaveGroup, of a consumer that ends: a broker takes them, too."""
    shell = shell_of(shared_of())
    spend(shell, 150.0)
    exchange(shell, metadata(1), metadata_answer(1))
    assert shell.state is State.MUTED
    shell.client_sends(metadata(2))
    shell.client_leaves()
    shell.advance(1_000.0)
    assert shell.to_broker.endswith(metadata(2))


@pytest.mark.parametrize("count", [1, 3])
def test_answers_that_are_due_are_owed_to_the_quota(count: int) -> None:
    shell = shell_of(shared_of())
    for number in range(count):
        shell.client_sends(metadata(number))
    shell.client_leaves()
    assert shell.session.is_owed_charges
    for number in range(count):
        assert shell.session.is_owed_charges
        shell.broker_sends(metadata_answer(number))
    assert not shell.session.is_owed_charges


def test_of_an_answer_it_is_known_how_much_is_to_come() -> None:
    shell = shell_of(shared_of())
    shell.client_sends(fetch(correlation_id=1) + metadata(2))
    whole = fetch_answer_of(5_000_000, correlation_id=1)
    shell.broker_sends(whole[:100_000])
    assert shell.session.answer_left_bytes == len(whole) - 100_000
    shell.broker_sends(whole[100_000:])
    assert shell.session.answer_left_bytes == 0
    assert shell.session.is_owed_charges
