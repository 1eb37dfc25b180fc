"""request_percentage and clients that do not wait for their answers: to leave makes nothing cheaper."""

from __future__ import annotations

import pytest

from sluice.proxy.session.causes import DisconnectCause
from sluice.proxy.session.connection_states import State
from testkit.frames.frames import fetch, produce_of
from testkit.proxy.playbook import Shell
from testkit.proxy.request_time_session import exchange, metadata, metadata_answer, shared_of, shell_of, spend


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
    assert shell.detail in {"Metadata not forwarded", "Fetch not forwarded"}


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
