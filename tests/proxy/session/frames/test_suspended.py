"""While the proxy itself speaks to the broker, no request is begun; and how a connection ends."""

from __future__ import annotations

import struct

import pytest

from sluice.proxy.session.causes import DisconnectCause
from sluice.proxy.session.connection_states import State
from sluice.proxy.session.delays import DelayLimits, SessionTimeouts
from testkit.frames.frames import HEARTBEAT, METADATA, PRODUCE, answer, produce_of, request, sized
from testkit.frames.mutation_frames import create
from testkit.proxy import mutation_session
from testkit.proxy.playbook import in_debt, limits_of, session_of, shared_of, shell_of


def test_a_request_that_comes_meanwhile_goes_when_it_is_over() -> None:
    shell = shell_of(shared_of(limits_of()))
    assert shell.session.suspend()
    shell.client_sends(request(HEARTBEAT, 4))
    assert (bytes(shell.to_broker), shell.state) == (b"", State.AWAITING_BROKER)
    shell.session.resume()
    shell._resume()
    shell.client_sends(b"")
    assert shell.state is State.READING


def test_a_held_request_whose_turn_comes_meanwhile_goes_behind_it() -> None:
    """Its turn is after 1,000 ms; the proxy's word takes until 3,000."""
    shell = in_debt(1_000)
    shell.client_sends(produce_of(500))
    assert shell.state is State.HOLDING
    assert shell.session.suspend()
    shell.advance(3_000.0)
    assert (bytes(shell.to_broker), shell.state) == (b"", State.HOLDING)
    shell.session.resume()
    shell.advance(5.0)
    assert bytes(shell.to_broker) == produce_of(500)


def test_a_muted_connection_stays_still_until_both_are_over() -> None:
    shell = shell_of(shared_of(limits_of(produce_rate=1_000)))
    shell.client_sends(produce_of(2_000))
    shell.client_sends(request(HEARTBEAT, 4, correlation_id=2))
    assert shell.state is State.MUTED
    before = len(shell.to_broker)
    assert shell.session.suspend()
    shell.advance(5_000.0)
    assert (len(shell.to_broker), shell.state) == (before, State.AWAITING_BROKER)
    shell.session.resume()
    shell._resume()
    assert (len(shell.to_broker) > before, shell.state) == (True, State.READING)


def test_a_broker_that_ends_the_connection_is_told_with_what_it_owes() -> None:
    session = session_of()
    frames = bytearray(request(METADATA, 12, correlation_id=1) + request(HEARTBEAT, 4, correlation_id=2))
    session.client_data(frames, 0, len(frames), 10_000.0)
    session.broker_closed(DisconnectCause.BROKER_CLOSED)
    assert session.pace.close_cause is DisconnectCause.BROKER_CLOSED
    assert session.pace.close_detail == "2 requests unanswered, the first Metadata (3) version 12"
    assert not session.finished
    for frame in (answer(METADATA, 12, correlation_id=1), answer(HEARTBEAT, 4, correlation_id=2)):
        session.broker_data(bytearray(frame), 0, len(frame), 10_000.0)
    assert session.finished


def test_a_broker_that_owes_nothing_ends_it_without_a_word() -> None:
    session = session_of()
    session.broker_closed(DisconnectCause.BROKER_CLOSED)
    assert (session.pace.close_detail, session.finished) == ("", True)


@pytest.mark.parametrize("version", [8, 9])
def test_a_produce_that_ends_before_its_acks_ends_the_connection(version: int) -> None:
    shell = shell_of(shared_of(limits_of(produce_rate=1_000)))
    body = b"\x00\x00" if version == 9 else b"\xff\xff\x00"
    shell.client_sends(sized(struct.pack(">hhih", PRODUCE, version, 1, -1) + body))
    assert (shell.cause, bytes(shell.to_broker)) == (DisconnectCause.MALFORMED_FRAME, b"")
    assert "without acks" in shell.detail


def test_a_broken_change_of_topics_ends_the_connection_and_tells_where() -> None:
    """The offset is within its frame, whatever came before it."""
    frame = bytearray(create({"a": 5}))
    frame[-8:] = b"\x7f" * 8
    details = []
    for before in (b"", request(HEARTBEAT, 4)):
        shell = mutation_session.shell_of()
        shell.client_sends(before + frame)
        assert shell.cause is DisconnectCause.MALFORMED_FRAME
        details.append(shell.detail)
    assert details[0] == details[1]


def test_of_too_many_session_timeouts_the_oldest_of_the_user_at_fault_is_forgotten() -> None:
    timeouts, limits = SessionTimeouts(max_members=3, max_members_per_user=2), DelayLimits()

    def known() -> list[str]:
        members = [(user, client_id) for user in ("alice", "bob", "carol") for client_id in "abcd"]
        return [
            user[0] + client_id
            for user, client_id in members
            if timeouts.fetch_limit_ms(user, client_id, "10.0.0.1", limits) == 500.0
        ]

    for user, client_id, expected in (
        ("alice", "a", ["aa"]), ("alice", "b", ["aa", "ab"]), ("alice", "c", ["ab", "ac"]),
        ("bob", "a", ["ab", "ac", "ba"]), ("bob", "b", ["ac", "ba", "bb"]), ("bob", "c", ["ac", "bb", "bc"]),
        ("carol", "a", ["ac", "bc", "ca"]), ("carol", "b", ["bc", "ca", "cb"]),
    ):  # fmt: skip
        timeouts.saw(user, client_id, "10.0.0.1", 1_000)
        assert known() == expected
        assert len(timeouts) == len(expected)
