"""What goes on without being looked at is counted all the same, and what follows it is judged."""

from __future__ import annotations

import pytest

from sluice.protocol.apis import ApiKey
from sluice.proxy.session.connection_states import State
from sluice.proxy.session.request_time import _tell, has_taken
from sluice.proxy.session.session import Session
from sluice.quotas.entity import QuotaEntity
from sluice.quotas.limits.limits import QuotaLimits
from testkit.frames.frames import HEARTBEAT, METADATA, answer, fetch, fetch_answer_of, produce_of, request
from testkit.proxy.playbook import Shell, in_debt, limits_of, session_of, shared_of, shell_of
from testkit.proxy.request_time_session import policy_of

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
    assert not has_taken(frame, 0, len(frame), api_key, version)


def test_a_held_request_counts_when_it_goes_and_not_before() -> None:
    shell = in_debt(2_000)
    shell.client_sends(produce_of(1_000))
    assert (shell.state, shell.session.requests) == (State.HOLDING, 0)
    shell.advance(4_000.0)
    assert (len(shell.to_broker), shell.session.requests) == (1_000, 1)


def test_two_thousand_requests_may_be_in_flight_and_the_next_waits_for_answers() -> None:
    """It goes on when half of them are answered."""
    shell = shell_of(shared_of(limits_of()))
    heartbeat, answered = request(HEARTBEAT, 4), answer(HEARTBEAT, 4)
    shell.client_sends(heartbeat * 2_003)
    assert (shell.session.in_flight, shell.state) == (2_000, State.AWAITING_BROKER)
    shell.broker_sends(answered * 999)
    assert (shell.session.in_flight, shell.state) == (1_001, State.AWAITING_BROKER)
    shell.broker_sends(answered)
    assert (shell.session.in_flight, shell.state) == (1_003, State.READING)


def test_an_answer_to_a_client_id_without_a_limit_is_charged_to_nobody() -> None:
    """Its connection calls itself otherwise by now, and under that name has a limit on request time."""
    limits = QuotaLimits([(QuotaEntity(None, "limited"), {"request_percentage": 10.0})])
    shell = Shell(Session(shared_of(limits), policy_of(), "10.0.0.1"))
    shell.client_sends(request(HEARTBEAT, 4, client_id="free", correlation_id=1))
    shell.client_sends(request(HEARTBEAT, 4, client_id="limited", correlation_id=2))
    shell.now_ms += 10.0
    shell.broker_sends(answer(HEARTBEAT, 4, correlation_id=1))
    (sensor,) = shell.shared.quotas.sensors()
    assert sensor.charged == 0.0
    shell.broker_sends(answer(HEARTBEAT, 4, correlation_id=2))
    assert sensor.charged > 0.0


def test_a_throttle_is_told_in_an_answer_that_is_cut_as_soon_as_its_field_has_come() -> None:
    """throttle_time_ms is the first of a Metadata answer's body: int32 at 9."""
    for arrived_bytes, told_ms in ((12, 0), (13, 700), (14, 700)):
        buf = bytearray(answer(METADATA, 12))
        _tell(buf, 0, arrived_bytes, len(buf), METADATA, 12, 700)
        assert int.from_bytes(buf[9:13], "big") == told_ms
