"""In a gateway no address of a broker reaches the client, however an answer arrives; all else does."""

from __future__ import annotations

from contextlib import suppress
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sluice.protocol.addresses.addresses import spliced
from sluice.protocol.codec.wire import Struct, Value
from sluice.protocol.errors import ProtocolError
from sluice.proxy.session.causes import DisconnectCause
from sluice.proxy.session.connection_states import State
from testkit.frames.frames import (
    API_VERSIONS,
    FETCH,
    METADATA,
    OFFSET_COMMIT,
    PRODUCE,
    SHARE_FETCH,
    TOPIC_ID,
    answer,
    fetch,
    fetch_answer_of,
    produce_of,
    request,
    sized,
    throttle_of,
)
from testkit.proxy.gateway import (
    CARRIERS,
    CUT_THROUGH,
    REAL,
    arrives,
    asking,
    broker_map,
    erased,
    gateway,
    naming,
    rewritten,
    told,
)
from testkit.proxy.playbook import Shell, session_of
from testkit.thorough import cases, some

FIND_COORDINATOR, DESCRIBE_CLUSTER, SHARE_ACKNOWLEDGE = 10, 60, 79
HEAD_BYTES = 1024
"""so much of a Fetch answer is waited for"""
every_carrier = pytest.mark.parametrize(("api_key", "version"), CARRIERS)
SEEDS = st.integers(0, 2**32)
NODE: Struct = {"nodeId": 3, "host": "real-3.internal", "port": 19_003, "rack": None}


def small(api_key: int, version: int, limit_bytes: int = 700) -> bytes:
    """A random answer with brokers, short enough to be cut everywhere."""
    seed = 0
    while len(frame := naming(api_key, version, Random(seed))) > limit_bytes:
        seed += 1
    return frame


# --- every API and version


@every_carrier
@settings(max_examples=cases(10), deadline=None)
@given(seed=SEEDS)
def test_an_answer_that_comes_whole_names_the_gateways_addresses(
    api_key: int, version: int, seed: int
) -> None:
    shell = gateway()
    shell.client_sends(asking(api_key, version))
    frame = naming(api_key, version, Random(seed))
    result = arrives(shell, frame, [])
    assert REAL in frame
    assert REAL not in result
    assert result == rewritten(api_key, version, frame)
    assert set(told(api_key, version, result)) <= {("gw", 9092), *(("gw", 9100 + i) for i in range(10))}
    assert shell.session.in_flight == 0
    assert shell.records[-1].response_bytes == len(frame), "the broker's bytes count"
    assert shell.session.bytes_to_client == len(frame)


@pytest.mark.thorough
@every_carrier
def test_an_answer_in_any_two_parts_or_byte_by_byte_is_the_same(api_key: int, version: int) -> None:
    frame = small(api_key, version)
    expected = rewritten(api_key, version, frame)
    for cuts in (*([cut] for cut in some(range(1, len(frame)))), range(len(frame))):
        shell = gateway()
        shell.client_sends(asking(api_key, version))
        assert arrives(shell, frame, cuts) == expected, cuts
        assert shell.session.in_flight == 0


@pytest.mark.thorough
@pytest.mark.parametrize(("api_key", "version"), [c for c in CARRIERS if c[0] in CUT_THROUGH])
def test_a_large_fetch_is_cut_through_wherever_it_is_cut(api_key: int, version: int) -> None:
    frame = naming(api_key, version, Random(5), at_least_bytes=2000)
    whole, cut_through = rewritten(api_key, version, frame), erased(api_key, version, frame)
    assert REAL not in cut_through
    for cut in (
        *some(range(1, 40)),
        *range(HEAD_BYTES - 20, HEAD_BYTES + 20),
        *some(range(len(frame) - 700, len(frame))),
    ):
        shell = gateway()
        shell.client_sends(asking(api_key, version))
        shell.broker_sends(frame[:cut])
        begun = bytes(shell.to_client)
        shell.broker_sends(frame[cut:])
        assert begun + shell.to_client[len(begun) :] == (whole if cut < HEAD_BYTES else cut_through), cut
        assert cut - len(begun) <= 9 or cut < HEAD_BYTES, "it is not kept back"
        assert shell.session.in_flight == 0
        assert shell.session.bytes_to_client == len(frame)
    shell = gateway()
    shell.client_sends(asking(api_key, version))
    assert arrives(shell, frame, range(len(frame))) == cut_through


@settings(max_examples=cases(60), deadline=None)
@given(seed=SEEDS, data=st.data())
def test_many_answers_in_any_pieces_name_no_broker(seed: int, data: st.DataObject) -> None:
    random = Random(seed)
    at_once = [case for case in CARRIERS if case[0] not in {FIND_COORDINATOR, DESCRIBE_CLUSTER}]
    asked = [random.choice([*at_once, (OFFSET_COMMIT, 8), (FETCH, 12)]) for _ in range(6)]
    frames: list[bytes] = []
    for correlation_id, (api_key, version) in enumerate(asked):
        if (api_key, version) in CARRIERS:
            large = random.choice((0, 0, 3000))
            frames.append(
                naming(api_key, version, random, correlation_id=correlation_id, at_least_bytes=large)
            )
        else:
            frames.append(answer(api_key, version, correlation_id=correlation_id))
    stream = b"".join(frames)
    shell = gateway()
    for correlation_id, (api_key, version) in enumerate(asked):
        shell.client_sends(asking(api_key, version, correlation_id))
    cuts = data.draw(st.lists(st.integers(0, len(stream)), max_size=12))
    result = arrives(shell, stream, cuts)
    assert REAL not in result
    pos = 0
    for (api_key, version), frame in zip(asked, frames, strict=True):
        end = pos + 4 + int.from_bytes(result[pos : pos + 4], "big")
        possible = {rewritten(api_key, version, frame)}
        if api_key in CUT_THROUGH and (api_key, version) in CARRIERS:
            possible.add(erased(api_key, version, frame))
        assert result[pos:end] in possible
        pos = end
    assert pos == len(result)
    assert shell.session.in_flight == 0
    assert [record.response_bytes for record in shell.records] == [len(frame) for frame in frames]


def test_in_mode_broker_addresses_pass_as_they_are() -> None:
    for api_key, version in CARRIERS:
        shell = Shell(session_of())
        shell.client_sends(asking(api_key, version))
        frame = naming(api_key, version, Random(1))
        shell.broker_sends(frame)
        assert shell.to_client == frame


# --- beside quotas


@pytest.mark.parametrize("cuts", [[], [HEAD_BYTES]], ids=["whole", "cut through"])
def test_a_fetch_over_its_quota_is_throttled_and_names_no_broker(cuts: list[int]) -> None:
    """3,000 B and more against a bucket of 1,000 B: what is written is at most 2 s."""
    topic: Any = {"topicId": TOPIC_ID, "partitions": [{"records": bytes(3000).hex()}]}
    frame = answer(FETCH, 17, {"responses": [topic], "nodeEndpoints": [NODE]}, correlation_id=7)
    shell = gateway(fetch_rate=1000)
    shell.client_sends(fetch(version=17, correlation_id=7))
    result = arrives(shell, frame, cuts)
    assert throttle_of(FETCH, 17, result) == 2000
    assert told(FETCH, 17, result) == ([] if cuts else [("gw", 9103)])
    assert REAL not in result
    (event,) = shell.events
    assert event.charged_bytes == len(frame), "what the broker sent is charged"


def test_a_produce_in_debt_is_throttled_and_rewritten() -> None:
    shell = gateway(produce_rate=1000)
    shell.client_sends(produce_of(1500, version=13, correlation_id=7))
    frame = answer(PRODUCE, 13, {"nodeEndpoints": [NODE]}, correlation_id=7)
    shell.broker_sends(frame)
    result = bytes(shell.to_client)
    assert throttle_of(PRODUCE, 13, result) == 500
    assert told(PRODUCE, 13, result) == [("gw", 9103)]


def test_a_produce_answer_too_large_to_keep_is_cut_through() -> None:
    errors: list[Value] = [{"batchIndex": i, "batchIndexErrorMessage": "m" * 50} for i in range(12_000)]
    topic: Any = {"partitionResponses": [{"recordErrors": errors}]}
    frame = answer(PRODUCE, 13, {"responses": [topic], "nodeEndpoints": [NODE]}, correlation_id=7)
    assert len(frame) > 512 * 1024
    shell = gateway()
    shell.client_sends(asking(PRODUCE, 13))
    result = arrives(shell, frame, range(0, len(frame), 60_000))
    assert result == erased(PRODUCE, 13, frame)
    assert REAL not in result


# --- what is learnt


def test_brokers_are_learnt_from_answers_and_followed() -> None:
    brokers = broker_map()
    shell = gateway(brokers)

    def told_of(api_key: int, version: int, body: Struct) -> None:
        shell.client_sends(asking(api_key, version))
        shell.broker_sends(answer(api_key, version, body, correlation_id=7))

    told_of(
        METADATA,
        12,
        {"brokers": [{"nodeId": 1, "host": "a", "port": 1}, {"nodeId": 2, "host": "b", "port": 2}]},
    )
    assert brokers.upstreams == {1: ("a", 1), 2: ("b", 2)}
    told_of(METADATA, 12, {"brokers": [{"nodeId": 2, "host": "b", "port": 3}]})
    assert brokers.upstreams == {1: ("a", 1), 2: ("b", 3)}, "one that is down is not forgotten"
    told_of(FIND_COORDINATOR, 3, {"nodeId": 3, "host": "c", "port": 4})
    told_of(PRODUCE, 13, {"nodeEndpoints": [{"nodeId": 4, "host": "d", "port": 5}]})
    told_of(DESCRIBE_CLUSTER, 2, {"endpointType": 1, "brokers": [{"brokerId": 1, "host": "e", "port": 6}]})
    assert brokers.upstreams == {1: ("e", 6), 2: ("b", 3), 3: ("c", 4), 4: ("d", 5)}


def test_controllers_are_told_apart_from_brokers() -> None:
    brokers = broker_map()
    shell = gateway(brokers)
    shell.client_sends(asking(DESCRIBE_CLUSTER, 1))
    body: Struct = {"endpointType": 2, "brokers": [{"brokerId": 1, "host": "real-1.internal", "port": 9093}]}
    shell.broker_sends(answer(DESCRIBE_CLUSTER, 1, body, correlation_id=7))
    assert REAL not in shell.to_client
    assert brokers.upstreams == {}


def test_an_answer_without_brokers_teaches_nothing_and_stays_as_it_is() -> None:
    brokers = broker_map()
    shell = gateway(brokers)
    shell.client_sends(asking(FIND_COORDINATOR, 3))
    frame = answer(
        FIND_COORDINATOR, 3, {"nodeId": -1, "host": "", "port": -1, "errorCode": 15}, correlation_id=7
    )
    shell.broker_sends(frame)
    assert shell.to_client == frame
    assert brokers.upstreams == {}
    assert brokers.out_of_range == ()


# --- what does not fit


@every_carrier
@settings(max_examples=cases(15), deadline=None)
@given(
    seed=SEEDS,
    place=st.floats(0, 1, exclude_max=True),
    damage=st.binary(min_size=1, max_size=6),
    cuts=st.lists(st.integers(0, 3000), max_size=4),
)
def test_a_damaged_answer_leaves_what_stood_before_it_and_ends_in_a_clear_error(
    api_key: int, version: int, seed: int, place: float, damage: bytes, cuts: list[int]
) -> None:
    good = naming(METADATA, 13, Random(seed))
    frame = naming(api_key, version, Random(seed), correlation_id=8)
    at = 8 + int(place * (len(frame) - 8))
    damaged = (frame[:at] + damage + frame[at + len(damage) :])[: len(frame)]
    session = gateway().session
    for api, v, correlation_id in ((METADATA, 13, 7), (api_key, version, 8)):
        asked = bytearray(asking(api, v, correlation_id))
        assert session.client_data(asked, 0, len(asked), 0.0) == len(asked)
    buf = bytearray(good + damaged)
    error: ProtocolError | None = None
    try:
        session.broker_data(buf, 0, len(buf), 0.0)
    except ProtocolError as raised:
        error = raised
    if error is not None:
        assert error.good_end == len(good)
        assert DisconnectCause(error.cause) is DisconnectCause.BROKER_MALFORMED
        assert error.offset is None or 0 <= error.offset <= len(damaged)
        assert all(stop <= len(good) for _, stop, _ in session.edits)
    before = [edit for edit in session.edits if edit[1] <= len(good)]
    assert spliced(buf, 0, len(good), before) == rewritten(METADATA, 13, good)
    shell = gateway()
    shell.client_sends(asking(api_key, version, 8))
    with suppress(ProtocolError):
        arrives(shell, damaged, cuts)


def test_an_error_in_an_answer_that_has_begun_lets_nothing_more_go() -> None:
    frame = bytearray(fetch_answer_of(5000, version=17, correlation_id=7))
    frame[-2:] = b"\x7f\x7f"  # a topic's tags that never end
    shell = gateway()
    shell.client_sends(asking(FETCH, 17))
    shell.broker_sends(bytes(frame[:2000]))
    assert len(shell.to_client) == 2000
    buf = bytearray(b"12345") + frame[2000:]
    with pytest.raises(ProtocolError) as raised:
        shell.session.broker_data(buf, 5, len(buf), 0.0)
    assert raised.value.good_end == 5
    assert DisconnectCause(raised.value.cause) is DisconnectCause.BROKER_MALFORMED


@pytest.mark.parametrize("api_key", [FIND_COORDINATOR, DESCRIBE_CLUSTER, SHARE_ACKNOWLEDGE])
def test_an_answer_too_large_to_rewrite_ends_the_connection_and_does_not_leak(api_key: int) -> None:
    version = {FIND_COORDINATOR: 6, DESCRIBE_CLUSTER: 2, SHARE_ACKNOWLEDGE: 2}[api_key]
    shell = gateway()
    shell.client_sends(asking(api_key, version))
    frame = naming(api_key, version, Random(1))
    size = 600_000
    with pytest.raises(ProtocolError) as raised:
        shell.broker_sends(size.to_bytes(4, "big") + frame[4:])
    assert DisconnectCause(raised.value.cause) is DisconnectCause.FRAME_TOO_LARGE
    assert shell.to_client == b""


@pytest.mark.parametrize(
    ("api_key", "version", "cause"),
    [
        (METADATA, 14, DisconnectCause.UNMETERED_VERSION),
        (FIND_COORDINATOR, 7, DisconnectCause.UNMETERED_VERSION),
        (OFFSET_COMMIT, 99, DisconnectCause.UNMETERED_VERSION),
        (FETCH, 19, DisconnectCause.UNMETERED_VERSION),
        (PRODUCE, 14, DisconnectCause.UNMETERED_VERSION),
        (SHARE_FETCH, 3, DisconnectCause.UNMETERED_VERSION),
        (32, 0, DisconnectCause.UNMETERED_VERSION),
        (9999, 0, DisconnectCause.UNKNOWN_API),
        (6, 8, DisconnectCause.UNKNOWN_API),
        (52, 1, DisconnectCause.UNKNOWN_API),
        (59, 1, DisconnectCause.UNKNOWN_API),
    ],
)
def test_a_request_whose_answer_could_carry_an_address_unseen_is_not_forwarded(
    api_key: int, version: int, cause: DisconnectCause
) -> None:
    shell = gateway()
    shell.client_sends(sized(api_key.to_bytes(2, "big") + version.to_bytes(2, "big") + bytes(50)))
    assert shell.to_broker == b""
    assert (shell.state, shell.cause) == (State.ENDING, cause)


def test_apiversions_of_a_version_to_come_passes_for_its_answer_says_what_clients_may_ask() -> None:
    shell = gateway()
    frame = sized(API_VERSIONS.to_bytes(2, "big") + (9).to_bytes(2, "big") + bytes(50))
    shell.client_sends(frame)
    assert shell.to_broker == frame


def test_old_versions_without_addresses_pass_as_they_are() -> None:
    shell = gateway()
    shell.client_sends(fetch(version=12, correlation_id=7))
    frame = fetch_answer_of(3000, version=12, correlation_id=7)
    assert arrives(shell, frame, [2000]) == frame
    shell.client_sends(request(OFFSET_COMMIT, 8, correlation_id=8))
    frame = answer(OFFSET_COMMIT, 8, correlation_id=8)
    shell.to_client.clear()
    assert arrives(shell, frame, [5, 9]) == frame


def test_none_of_an_answer_that_is_cut_through_may_pass_unseen() -> None:
    """The shell forwards what is `passing` without a look; here addresses may stand to the end."""
    shell = gateway()
    shell.client_sends(asking(FETCH, 16))
    frame = naming(FETCH, 16, Random(5), at_least_bytes=4_000)
    shell.broker_sends(frame[:2_000])
    assert shell.session.broker_frames.passing_bytes == 0
    shell.broker_sends(frame[2_000:])
    assert shell.to_client == erased(FETCH, 16, frame)
