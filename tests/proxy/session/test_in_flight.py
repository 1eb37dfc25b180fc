"""What may be in flight: bounded, or a client that floods a slow broker would fill the proxy's memory."""

from __future__ import annotations

import struct

import pytest

from sluice.proxy.session.connection_states import State
from sluice.quotas.entity import DEFAULT, QuotaEntity
from sluice.quotas.limits.limits import QuotaLimits
from testkit.frames.frames import (
    HEARTBEAT,
    LIST_GROUPS,
    SASL_HANDSHAKE,
    answer,
    fetch,
    fetch_answer_of,
    produce_answer,
    produce_of,
    request,
    sized,
)
from testkit.frames.mutation_frames import create, sizes
from testkit.proxy.mutation_session import creates
from testkit.proxy.playbook import (
    AwaitingBroker,
    Broker,
    Client,
    Muted,
    Playbook,
    Reading,
    Shell,
    ToBroker,
    ToClient,
    Wait,
    session_of,
    shared_of,
    shell_of,
)


def test_no_more_is_begun_while_too_much_is_in_flight() -> None:
    """2,000 requests of 14 B, all in one read, then nothing until 1,000 of them are answered."""
    one = sized(struct.pack(">hhih", LIST_GROUPS, 0, 1, -1))
    received = answer(LIST_GROUPS, 0)
    playbook = (
        Playbook(session_of())
        >> Client(one * 5_000)
        << ToBroker(one * 2_000)
        << AwaitingBroker()
        >> Wait(60_000)
        >> Broker(received * 999)
        << ToClient(received * 999)
        >> Broker(received)
        << ToClient(received)
        << ToBroker(one * 1_000)
        >> Broker(received * 2_000)
        << ToClient(received * 2_000)
        << ToBroker(one * 2_000)
    )
    shell = playbook.shell
    assert (shell.session.in_flight, shell.session.requests) == (2_000, 5_000)
    shell.broker_sends(received * 2_000)
    assert (shell.state, shell.session.in_flight) == (State.READING, 0)


def test_too_much_in_flight_does_not_let_anything_pass_behind_a_frame_of_authentication() -> None:
    """The 2,000th is a SaslHandshake: its own answer is awaited, not half of all."""
    one = sized(struct.pack(">hhih", LIST_GROUPS, 0, 1, -1))
    handshake = request(SASL_HANDSHAKE, 1, {"mechanism": "PLAIN"})
    shell = Shell(session_of())
    shell.client_sends(one * 1_999 + handshake + one)
    shell.broker_sends(answer(LIST_GROUPS, 0) * 1_999)
    assert (shell.state, shell.session.in_flight) == (State.AWAITING_BROKER, 1)
    shell.broker_sends(answer(SASL_HANDSHAKE, 1, {"errorCode": 34}))
    assert shell.to_broker == one * 1_999 + handshake + one


def test_a_mute_that_comes_while_too_much_is_in_flight_begins_when_enough_is_answered() -> None:
    """A Fetch answer owes 1 s; 400 ms later the thousandth answer is here, and 600 ms are left."""
    one = sized(struct.pack(">hhih", 18, 0, 1, -1))
    versions = answer(18, 0)
    (
        Playbook(session_of(fetch_rate=1_000))
        >> Client(fetch() + one * 2_500)
        << ToBroker(fetch(max_bytes=1_000) + one * 1_999)
        << AwaitingBroker()
        >> Broker(fetch_answer_of(2_000))
        << ToClient(fetch_answer_of(2_000, throttle_ms=1_000))
        >> Wait(400)
        >> Broker(versions * 999)
        << ToClient(versions * 999)
        << Muted(for_ms=600)
        >> Wait(600)
        << ToBroker(one * 501)
        << Reading()
    ).done()


@pytest.mark.parametrize(("more", "most"), [({}, 2_000), ({"request_percentage": 1.0}, 6)])
def test_requests_that_were_held_count_as_others_do(more: dict[str, float], most: int) -> None:
    """The broker answers nothing; each Produce waits for its turn and goes: 6,241 were in flight."""
    shared = shared_of(QuotaLimits([(QuotaEntity(DEFAULT, None), {"producer_byte_rate": 100_000, **more})]))
    neighbour, shell = shell_of(shared), shell_of(shared)
    neighbour.client_sends(produce_of(101_000, acks=0))
    one = produce_of(150)
    shell.client_sends(one * 2 * most)
    assert shell.state is State.HOLDING
    shell.advance(60_000)
    assert (shell.session.in_flight, shell.state) == (most, State.AWAITING_BROKER)
    assert shell.to_broker == one * most
    shell.broker_sends(produce_answer() * (most // 2))
    assert shell.session.in_flight > most // 2
    assert shell.to_broker.startswith(one * (most + 1))


def test_so_does_a_request_to_make_topics_that_was_held() -> None:
    """While its user owes request time nothing goes behind it before its answer."""
    key = "controller_mutation_rate"
    everybody = QuotaEntity(DEFAULT, None)
    shared = shared_of(QuotaLimits([(everybody, {key: 2.0, "request_percentage": 10_000.0})]))
    creates(shell_of(shared), {"large": 32}, version=4)
    shell = shell_of(shared)
    heartbeat, one = request(HEARTBEAT, 4), create({"one": 1}, version=4)
    shell.client_sends(heartbeat * 5 + one)
    shell.broker_sends(answer(HEARTBEAT, 4) * 5 + sizes({"one": (0, 0)}))
    shell.to_broker.clear()
    shell.session.pace.max_in_flight = 1
    assert shell.state is State.HOLDING
    shell.client_sends(heartbeat)
    shell.advance(5_000)
    assert (bytes(shell.to_broker), shell.state) == (one, State.AWAITING_BROKER)
