"""Versions that nobody can meter end the connection, and say so; what is learnt twice is learnt once."""

from __future__ import annotations

import struct

import pytest

from sluice.proxy.session.causes import DisconnectCause
from sluice.proxy.session.token_owners import TokenOwners
from testkit.frames.frames import FETCH, HEARTBEAT, PRODUCE, request, sized
from testkit.proxy.playbook import limits_of, session_of, shared_of, shell_of


@pytest.mark.parametrize(("api_key", "version"), [(FETCH, 3), (FETCH, 19), (PRODUCE, 2), (PRODUCE, 14)])
def test_a_version_that_no_reader_knows_is_not_forwarded(api_key: int, version: int) -> None:
    shell = shell_of(shared_of(limits_of()))
    before = request(HEARTBEAT, 4)
    shell.client_sends(before + sized(struct.pack(">hhih", api_key, version, 1, -1) + bytes(40)))
    assert (shell.cause, bytes(shell.to_broker)) == (DisconnectCause.UNMETERED_VERSION, before)


def test_a_session_shows_who_it_is_and_what_it_waits_for() -> None:
    session = session_of()
    frame = bytearray(request(HEARTBEAT, 4, client_id="app"))
    session.client_data(frame, 0, len(frame), 10_000.0)
    assert repr(session) == "<Session ANONYMOUS/app READING, 1 in flight>"


def test_a_token_keeps_its_place_when_its_owner_is_told_again() -> None:
    owners = TokenOwners()
    owners.learn("a", "alice")
    owners.learn("b", "alice")
    owners.learn("a", "alice")
    assert (len(owners), owners.owner_of("a"), owners.owner_of("b")) == (2, "alice", "alice")
    owners.learn("a", "bob")
    assert (len(owners), owners.owner_of("a"), owners.owner_of("c")) == (2, "bob", None)
