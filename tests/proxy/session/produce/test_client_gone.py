"""Nothing can be sent to the client any more: what is answered goes no further; what has acks = 0 does, in
order and at its pace (wire semantics 1.2, 4.1).

Buckets hold one second of the rate. At 1,000 B/s a byte takes 1 ms; a full bucket holds 1,000 B.
"""

from __future__ import annotations

import pytest

from sluice.proxy.session.causes import DisconnectCause
from sluice.proxy.session.connection_states import State
from testkit.frames.frames import METADATA, SASL_HANDSHAKE, fetch, produce_answer, produce_of, request
from testkit.frames.mutation_frames import create, sizes
from testkit.proxy.mutation_session import connections, creates, tokens
from testkit.proxy.playbook import Shell, fetch_debt, in_debt, session_of, shell_of


def unanswered(*numbers: int, size: int = 100) -> bytes:
    return b"".join(produce_of(size, acks=0, correlation_id=number) for number in numbers)


def goes(shell: Shell) -> None:
    """A write to the client fails; what it had sent is read to its end."""
    shell.session.client_is_gone(shell.now_ms)
    shell.client_left = True
    shell._resume()


def test_only_what_has_no_answer_goes_on_and_does_not_count_else() -> None:
    shell = Shell(session_of())
    shell.client_sends(request(METADATA, 12))
    shell.to_broker.clear()
    shell.session.client_is_gone(shell.now_ms)
    behind = unanswered(2) + produce_of(100, correlation_id=3) + fetch() + unanswered(4, 5)
    shell.client_sends(request(METADATA, 12) + behind)
    assert shell.to_broker == unanswered(2, 4, 5)
    assert (shell.session.requests, shell.session.in_flight) == (4, 1)
    assert shell.session.has_left_behind()
    shell.client_leaves()
    assert shell.cause is DisconnectCause.CLIENT_RESET
    assert shell.detail.startswith("a Metadata of ")


def test_without_any_of_it_nothing_is_left_behind() -> None:
    shell = Shell(session_of())
    shell.client_sends(unanswered(1) + request(METADATA, 12))
    goes(shell)
    assert not shell.session.has_left_behind()
    assert shell.cause is DisconnectCause.CLIENT_CLOSED  # the shell's: nothing was dropped


def test_a_frame_that_has_begun_to_go_goes_whole() -> None:
    shell = Shell(session_of())
    begun = produce_of(1_000, correlation_id=1)
    shell.client_sends(begun[:600])
    assert shell.to_broker == begun[:600]
    shell.session.client_is_gone(shell.now_ms)
    shell.client_sends(begun[600:] + produce_of(100, correlation_id=2) + unanswered(3))
    assert shell.to_broker == begun + unanswered(3)


@pytest.mark.parametrize("piece_bytes", [1, 7, 130])
def test_it_does_not_matter_in_which_pieces_it_comes(piece_bytes: int) -> None:
    shell = Shell(session_of())
    shell.session.client_is_gone(shell.now_ms)
    sent = request(METADATA, 12) + unanswered(1) + produce_of(300) + unanswered(2) + fetch()
    for at in range(0, len(sent), piece_bytes):
        shell.client_sends(sent[at : at + piece_bytes])
    assert shell.to_broker == unanswered(1, 2)


def test_what_is_held_with_acks_is_given_back_and_what_has_none_behind_it_goes() -> None:
    shell = in_debt(500)
    shell.client_sends(produce_of(200) + unanswered(2))
    assert shell.state is State.HOLDING
    goes(shell)
    assert shell.sensor().refunded == 200
    shell.advance(600)
    assert shell.to_broker == unanswered(2)
    assert shell.cause is DisconnectCause.LEFT_WHILE_HELD


def test_what_is_held_without_acks_waits_for_its_quota_and_nothing_answered_behind_it_goes() -> None:
    """It goes when the quota can pay it, 20 s later, not by its deadline of 8 s."""
    shell = in_debt(20_000)
    shell.client_sends(unanswered(1, size=200) + request(METADATA, 12) + unanswered(3, size=200))
    assert shell.state is State.HOLDING
    goes(shell)
    shell.session.client_is_gone(shell.now_ms)
    shell.advance(19_000)
    assert shell.state is State.HOLDING
    assert not shell.to_broker
    shell.advance(2_000)
    assert shell.to_broker == unanswered(1, 3, size=200)
    assert shell.cause is DisconnectCause.CLIENT_RESET


def test_a_mute_stays_for_what_has_no_answer() -> None:
    shell = Shell(session_of(produce_rate=1_000))
    shell.client_sends(produce_of(2_000) + request(METADATA, 12) + unanswered(3) + produce_of(100))
    shell.to_broker.clear()
    assert shell.state is State.MUTED
    goes(shell)
    shell.advance(900)
    assert not shell.to_broker
    shell.advance(200)
    assert shell.to_broker == unanswered(3)


def test_too_much_in_flight_holds_up_nothing_that_is_never_in_flight() -> None:
    shell = Shell(session_of())
    shell.session.pace.max_in_flight = 2
    asked = b"".join(request(METADATA, 12, correlation_id=number) for number in range(5))
    shell.client_sends(asked + unanswered(6, 7))
    assert shell.state is State.AWAITING_BROKER
    shell.to_broker.clear()
    goes(shell)
    assert shell.to_broker == unanswered(6, 7)
    assert shell.session.in_flight == 2
    assert shell.cause is DisconnectCause.CLIENT_RESET


@pytest.mark.parametrize("acks", [0, 1])
def test_while_the_proxy_itself_talks_to_the_broker_nothing_goes(acks: int) -> None:
    """It may be suspended while a request is held."""
    shell = in_debt(500)
    shell.client_sends(produce_of(200, acks=acks) + unanswered(2))
    assert shell.session.suspend()
    goes(shell)
    shell.advance(5_000)
    assert not shell.to_broker
    assert shell.state is not State.ENDING
    shell.session.resume()
    shell._resume()
    shell.advance(5_000)
    assert shell.to_broker == (produce_of(200, acks=0) if not acks else b"") + unanswered(2)


def test_a_fetch_that_is_held_goes_nowhere() -> None:
    shared = fetch_debt(2_000)
    shell = shell_of(shared)
    shell.client_sends(fetch() + unanswered(2))
    assert shell.state is State.HOLDING
    goes(shell)
    assert shell.to_broker == unanswered(2)
    assert next(iter(shared.quotas.sensors())).fetch_queue().reserved_bytes == 0


def test_topics_that_wait_to_be_made_are_given_back_at_once() -> None:
    connect = connections()
    creates(connect(), {"large": 32}, version=4)
    shell = connect()
    shell.client_sends(create({"one": 1}, version=4) + unanswered(2))
    shell.broker_sends(sizes({"one": (0, 0)}))
    assert shell.state is State.HOLDING
    assert tokens(shell) == -11
    shell.to_broker.clear()
    goes(shell)
    assert tokens(shell) == -10
    assert shell.to_broker == unanswered(2)


def test_at_a_login_it_ends() -> None:
    """Whose the requests behind it are is not known without it."""
    shell = Shell(session_of())
    shell.session.client_is_gone(shell.now_ms)
    shell.client_sends(unanswered(1) + request(SASL_HANDSHAKE, 1) + unanswered(2))
    assert shell.to_broker == unanswered(1)
    assert shell.cause is DisconnectCause.CLIENT_RESET


def test_answers_that_are_due_still_count() -> None:
    shell = Shell(session_of(produce_rate=1_000))
    shell.client_sends(produce_of(100))
    goes(shell)
    assert shell.session.in_flight == 1
    shell.broker_sends(produce_answer())
    assert shell.session.finished
    assert len(shell.records) == 1
