"""However bytes are cut, and whatever stands behind them in the buffer: the same goes on, is decided, noted.

Frames of every API and version, split at every byte; streams of them, split anywhere.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from itertools import pairwise
from random import Random
from typing import NamedTuple

import pytest

from sluice.protocol._tables import VERSIONS
from sluice.protocol.apis import CLUSTER_ACTIONS, TOKEN_APIS
from sluice.protocol.names import api_name
from sluice.proxy.session.connection_states import State
from sluice.proxy.session.policy import SessionPolicy
from sluice.proxy.session.session import Session
from sluice.usage.records import EventKind
from testkit.frames.frames import (
    API_VERSIONS,
    FETCH,
    JOIN_GROUP,
    LIST_GROUPS,
    PRODUCE,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    SHARE_FETCH,
    decoded,
    fetch_answer_of,
    produce_answer,
    produce_of,
    random_answer,
    random_request,
)
from testkit.frames.message_values import message_of, versions_of
from testkit.proxy.playbook import Shell, limits_of, shared_of
from testkit.thorough import few, some

STALE = (b"\x00", b"\x01", b"\x7f", b"\x80", b"\xff", produce_of(150), fetch_answer_of(150))
"""what stands behind the bytes that have arrived: other frames among them"""
UNLIMITED = limits_of()
TIGHT = limits_of(produce_rate=1_000, fetch_rate=1_000)
PLAIN_APIS = [key for key in VERSIONS if key not in {SASL_HANDSHAKE, SASL_AUTHENTICATE}]
SENT_AHEAD = [key for key in PLAIN_APIS if key not in TOKEN_APIS | CLUSTER_ACTIONS]
"""behind the others nothing goes before their answers"""
CLIENT_IDS = (None, "", "app", "app", "app", "another-client", "é€" * 20)

Cuts = Callable[[int], list[int]]
"""length → where to cut"""


class Seen(NamedTuple):
    """All that a connection did."""

    to_broker: bytes
    to_client: bytes
    records: list[tuple[object, ...]]
    events: list[tuple[object, ...]]
    state: State
    wake_at_ms: float
    bytes_counted: tuple[int, int, int]


def exchanged(
    steps: list[tuple[str, bytes]],
    cuts: Cuts,
    *,
    tight: bool = False,
    stale: bytes = b"\xff",
    wait_ms: float = 0,
) -> Seen:
    """Play client's and broker's bytes by turns; `wait_ms` passes behind each turn."""
    shared = shared_of(TIGHT if tight else UNLIMITED)
    shell = Shell(Session(shared, SessionPolicy(), "10.0.0.1"), stale=stale)
    for side, data in steps:
        send = shell.client_sends if side == "client" else shell.broker_sends
        at = [0, *sorted(cuts(len(data))), len(data)]
        for start, end in pairwise(at):
            send(data[start:end])
        shell.advance(wait_ms)
    session = shell.session
    return Seen(
        bytes(shell.to_broker),
        bytes(shell.to_client),
        [(record.client_id, *record[1:-1]) for record in shell.records],
        [tuple(event._replace(flow=None)) for event in shell.events],
        shell.state,
        session.pace.wake_at_ms if shell.is_delayed else 0.0,
        (session.requests, session.bytes_from_client, session.bytes_to_client),
    )


def whole(length: int) -> list[int]:
    return []


def every_byte(length: int) -> list[int]:
    return list(range(1, length))


def once_at(byte: int) -> Cuts:
    return lambda length: [byte] if byte < length else []


def anywhere(random: Random) -> Cuts:
    return lambda length: [random.randrange(length) for _ in range(random.choice((1, 3, 20))) if length]


def turns(random: Random, count: int, apis: list[int]) -> Iterator[tuple[str, bytes]]:
    """A few pipelined requests, their answers, some more, …"""
    correlation_id = 0
    while correlation_id < count:
        requests, answers = bytearray(), bytearray()
        for _ in range(random.randint(1, 5)):
            correlation_id += 1
            api_key = random.choice(apis)
            version = random.choice(versions_of(message_of("request", api_key)))
            client_id = random.choice(CLIENT_IDS)
            if api_key == PRODUCE and random.random() < 0.5:
                acks = random.choice((0, 1))
                requests += produce_of(
                    random.randint(120, 900), acks=acks, correlation_id=correlation_id, client_id="app"
                )
                if acks:
                    answers += produce_answer(correlation_id=correlation_id)
                continue
            frame = random_request(
                api_key, version, random, correlation_id=correlation_id, client_id=client_id
            )
            requests += frame
            if api_key == PRODUCE and is_without_acks(frame, version):
                continue
            answers += random_answer(api_key, version, random, correlation_id=correlation_id)
        yield "client", bytes(requests)
        yield "broker", bytes(answers)


def is_without_acks(frame: bytes, version: int) -> bool:
    return decoded("request", PRODUCE, version, frame).body["acks"] == 0


@pytest.mark.thorough
@pytest.mark.parametrize("api_key", PLAIN_APIS, ids=api_name)
def test_a_frame_of_any_api_is_the_same_in_two_parts_and_byte_by_byte(api_key: int) -> None:
    """Every version; request and answer cut at each of their first sixty bytes, and around their ends."""
    random = Random(api_key)
    for version in versions_of(message_of("request", api_key)):
        request = random_request(api_key, version, random, correlation_id=1, client_id="app")
        steps = [("client", request)]
        if not (api_key == PRODUCE and is_without_acks(request, version)):
            steps.append(("broker", random_answer(api_key, version, random, correlation_id=1)))
        tight = random.random() < 0.5
        expected = exchanged(steps, whole, tight=tight)
        assert expected.to_broker.endswith(request[-20:])
        assert len(expected.records) == 1
        length = max(len(data) for _, data in steps)
        places = sorted({*range(1, 100), *range(max(1, length - 9), length)})
        cuts = [every_byte, *map(once_at, some(places))]
        for cut in cuts:
            assert exchanged(steps, cut, tight=tight, stale=random.choice(STALE)) == expected


@pytest.mark.parametrize("seed", few(range(10), 2))
@pytest.mark.parametrize("tight", [False, True])
def test_a_stream_of_requests_and_answers_is_the_same_however_it_is_cut(seed: int, tight: bool) -> None:
    """Mixed APIs, pipelined, answered in turns; with a tight quota most of them wait."""
    random = Random(seed)
    apis = [PRODUCE, PRODUCE, FETCH, SHARE_FETCH, JOIN_GROUP, API_VERSIONS, *random.sample(SENT_AHEAD, 5)]
    steps = list(turns(random, 25, apis))
    wait_ms = 30_000 if tight else 0
    expected = exchanged(steps, whole, tight=tight, wait_ms=wait_ms)
    if not any(EventKind.REFUSAL in event for event in expected.events):  # another Fetch goes in its place
        assert len(expected.to_broker) == sum(len(data) for side, data in steps if side == "client")
    assert len(expected.to_client) == sum(len(data) for side, data in steps if side == "broker")
    assert expected.bytes_counted == (len(expected.records), len(expected.to_broker), len(expected.to_client))
    for cuts in (every_byte, *(anywhere(random) for _ in range(6))):
        for stale in (random.choice(STALE), random.randbytes(50)):
            seen = exchanged(steps, cuts, tight=tight, stale=stale, wait_ms=wait_ms)
            if tight:  # how long a Fetch waits depends on what was seen of a cut answer's batches
                assert (seen.to_broker, seen.to_client) == (expected.to_broker, expected.to_client)
                assert [record[:3] for record in seen.records] == [record[:3] for record in expected.records]
            else:
                assert seen == expected


def test_a_stream_that_waits_is_the_same_however_what_waits_arrives() -> None:
    """Ten of 900 B at 1,000 B/s, all sent before the second may go on: paced alike, byte by byte too."""
    steps = [("client", b"".join(produce_of(900, acks=0, correlation_id=i) for i in range(10)))]
    steps += [("broker", b"")] * 12
    expected = exchanged(steps, whole, tight=True, wait_ms=900)
    assert expected.to_broker == steps[0][1]
    assert [event[2] for event in expected.events] == [800.0] + [900.0] * 8
    assert exchanged(steps, every_byte, tight=True, wait_ms=900) == expected


@pytest.mark.parametrize("stale", STALE)
def test_the_shortest_request_goes_on_with_its_last_byte_and_not_before(stale: bytes) -> None:
    """14 bytes, no client id and no body: the length of the client id is the last that is read."""
    shortest = struct.pack(">ihhih", 10, LIST_GROUPS, 0, 7, -1)
    shell = Shell(Session(shared_of(UNLIMITED), SessionPolicy(), "10.0.0.1"), stale=stale)
    for arrived in range(14):
        assert (bytes(shell.to_broker), shell.session.requests, shell.cause) == (b"", 0, None)
        shell.client_sends(shortest[arrived : arrived + 1])
    assert (bytes(shell.to_broker), shell.session.requests, shell.cause) == (shortest, 1, None)
