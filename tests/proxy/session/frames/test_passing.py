"""What goes on without being looked at is counted all the same, and what follows it is judged."""

from __future__ import annotations

import pytest

from sluice.protocol.apis import ApiKey
from sluice.proxy.session.request_time import is_refused
from testkit.frames.frames import HEARTBEAT, answer, fetch, fetch_answer_of, produce_of, request
from testkit.proxy.playbook import limits_of, session_of, shared_of, shell_of

NOW_MS = 10_000.0


def test_the_rest_of_a_request_may_pass_unseen_but_for_its_last_byte() -> None:
    session = session_of(produce_rate=1_000_000)
    frame = produce_of(100_000) + request(HEARTBEAT, 4, correlation_id=2)
    head = bytearray(frame[:2_000])
    assert session.client_data(head, 0, len(head), NOW_MS) == 2_000
    assert (session.client_frames.passing_bytes, session.at_boundary) == (98_000, False)
    session.client_frames.passed(97_000)
    assert session.client_frames.passing_bytes == 1_000
    assert session.bytes_from_client == 99_000
    rest = bytearray(frame[99_000:])
    assert session.client_data(rest, 0, len(rest), NOW_MS) == len(rest)
    assert (session.bytes_from_client, session.requests, session.in_flight) == (len(frame), 2, 2)
    assert (session.client_frames.passing_bytes, session.at_boundary) == (0, True)


def test_the_rest_of_an_answer_may_pass_unseen_but_for_its_last_byte() -> None:
    session = session_of()
    asked = bytearray(fetch() + request(HEARTBEAT, 4, correlation_id=2))
    session.client_data(asked, 0, len(asked), NOW_MS)
    frame = fetch_answer_of(50_000) + answer(HEARTBEAT, 4, correlation_id=2)
    head = bytearray(frame[:3_000])
    assert session.broker_data(head, 0, len(head), NOW_MS) == 3_000
    assert session.broker_frames.passing_bytes == 47_000
    session.broker_frames.passed(46_999)
    assert (session.broker_frames.passing_bytes, session.bytes_to_client) == (1, 49_999)
    assert not session.is_quiet
    rest = bytearray(frame[49_999:])
    assert session.broker_data(rest, 0, len(rest), NOW_MS) == len(rest)
    assert (session.broker_frames.passing_bytes, session.bytes_to_client) == (0, len(frame))
    assert session.is_quiet


def test_a_held_request_counts_once_when_it_goes() -> None:
    shell = shell_of(shared_of(limits_of(produce_rate=1_000)))
    shell.client_sends(produce_of(2_500, correlation_id=1))
    assert shell.session.requests == 1
    shell.client_sends(produce_of(1_000, correlation_id=2))
    assert shell.session.requests == 1
    shell.advance(5_000.0)
    assert len(shell.to_broker) == 3_500
    assert shell.session.requests == 2


@pytest.mark.parametrize(("api_key", "version"), [(ApiKey.VOTE, 0), (ApiKey.LEADER_AND_ISR, 4)])
def test_an_answer_between_brokers_that_cannot_be_read_exempts_nobody(api_key: int, version: int) -> None:
    frame = bytearray((5).to_bytes(4, "big") + (1).to_bytes(4, "big") + b"\xff")
    assert is_refused(frame, 0, len(frame), api_key, version)
