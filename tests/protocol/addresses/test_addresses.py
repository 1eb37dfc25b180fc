"""Addresses are found wherever a response carries them, and others put in their place; all else stays."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.serial import entity_reader

from sluice.protocol._tables import API_NAMES, VERSIONS
from sluice.protocol.addresses.addresses import (
    VERSIONS_WITH_ADDRESSES,
    address_edits,
    carries_addresses,
    find_addresses,
    names_controllers,
    rewrite_addresses,
)
from sluice.protocol.apis import FETCH, METADATA, PRODUCE, SHARE_FETCH, ApiKey, readable_versions
from sluice.protocol.codec._schemas import REQUESTS
from sluice.protocol.codec.codec import DecodedFrame, encode_frame
from sluice.protocol.codec.spec_model import Field
from sluice.protocol.errors import MalformedFrame, ProtocolError, UnsupportedVersion
from sluice.protocol.headers import response_body
from testkit.frames.frames import decoded, random_answer, sized
from testkit.frames.message_values import message_of, versions_of
from testkit.thorough import cases

FIND_COORDINATOR, DESCRIBE_CLUSTER, SHARE_ACKNOWLEDGE = 10, 60, 79
BROKERS_ONLY = {
    "DescribeQuorum",
    "Vote",
    "BeginQuorumEpoch",
    "EndQuorumEpoch",
    "FetchSnapshot",
    "UpdateRaftVoter",
}
APPLICATIONS_OWN = {
    "StreamsGroupHeartbeat",
    "StreamsGroupDescribe",
}  # where a Streams application answers queries

CARRIERS = [
    pytest.param(api_key, version, id=f"{API_NAMES[api_key]} v{version}")
    for api_key, (first, last) in VERSIONS_WITH_ADDRESSES.items()
    for version in range(first, last + 1)
]
HOSTS = st.text(st.characters(codec="utf-8"), min_size=1, max_size=300)
SEEDS = st.integers(0, 2**32)
# For each of 42 versions, each a frame with everything in it.
few = settings(max_examples=cases(25), deadline=None)


def has_address(fields: tuple[Field, ...], version: int) -> bool:
    there = [field for field in fields if version in field.versions]
    return {"host", "port"} <= {field.name for field in there} or any(
        has_address(field.fields, version) for field in there
    )


def nodes(value: Any) -> Iterator[dict[str, Any]]:
    """Every object with a host in a decoded body, in wire order."""
    if isinstance(value, dict):
        if value.get("host"):
            yield value
        for child in value.values():
            yield from nodes(child)
    elif isinstance(value, list):
        for child in value:
            yield from nodes(child)


def node_id(node: dict[str, Any]) -> int:
    return int(node["brokerId"] if "brokerId" in node else node["nodeId"])


def answer_with_nodes(api_key: int, version: int, seed: int) -> bytes:
    """A random answer, unknown tagged fields at all levels, that has at least one address in most cases."""
    random = Random(seed)
    for _ in range(20):
        frame = random_answer(api_key, version, random, correlation_id=7)
        if any(nodes(decoded("response", api_key, version, frame).body)):
            break
    return frame


def found(frame: bytes, api_key: int, version: int) -> list[Any]:
    body = response_body(bytearray(frame), 0, len(frame), api_key, version)
    return list(find_addresses(frame, body, len(frame), api_key, version))


# --- which responses


def test_every_address_in_any_response_is_rewritten_or_left_on_purpose() -> None:
    carriers: dict[int, list[int]] = {}
    for api_key in REQUESTS:
        message = message_of("response", api_key)
        if versions := [v for v in versions_of(message) if has_address(message.fields, v)]:
            carriers[api_key] = versions
    left = {API_NAMES[key] for key in carriers.keys() - VERSIONS_WITH_ADDRESSES.keys()}
    assert left == BROKERS_ONLY | APPLICATIONS_OWN
    assert VERSIONS_WITH_ADDRESSES.keys() <= carriers.keys()
    for api_key, (first, last) in VERSIONS_WITH_ADDRESSES.items():
        assert carriers[api_key] == list(range(first, last + 1))


@pytest.mark.parametrize("api_key", VERSIONS_WITH_ADDRESSES)
def test_a_version_above_those_we_know_is_refused_for_an_address_could_slip_through(api_key: int) -> None:
    newest = VERSIONS_WITH_ADDRESSES[api_key][1]
    assert newest == VERSIONS[api_key][1]
    assert carries_addresses(api_key, newest + 1)
    with pytest.raises(UnsupportedVersion):
        rewrite_addresses(sized(bytes(50)), api_key, newest + 1, lambda *_: None)


@pytest.mark.parametrize(("api_key", "version"), [(PRODUCE, 9), (FETCH, 15), (18, 4), (55, 2), (9999, 0)])
def test_what_carries_no_address_is_not_even_read(api_key: int, version: int) -> None:
    frame = b"anything"
    assert not carries_addresses(api_key, version)
    assert find_addresses(frame, 0, len(frame), api_key, version) == []
    assert rewrite_addresses(frame, api_key, version, lambda *_: ("x", 1)) is frame


# --- finding and rewriting


@pytest.mark.parametrize(("api_key", "version"), CARRIERS)
@few
@given(seed=SEEDS)
def test_the_addresses_found_are_those_that_the_codec_reads_and_stand_where_they_say(
    api_key: int, version: int, seed: int
) -> None:
    frame = answer_with_nodes(api_key, version, seed)
    expected = list(nodes(decoded("response", api_key, version, frame).body))
    addresses = found(frame, api_key, version)
    assert [(a.node_id, a.host, a.port) for a in addresses] == [
        (node_id(node), node["host"], node["port"]) for node in expected
    ]
    for address in addresses:
        assert frame[address.host_pos : address.host_end].decode() == address.host
        assert frame[address.port_pos : address.stop] == address.port.to_bytes(4, "big", signed=True)
        assert (address.field is not None) is (api_key in {PRODUCE, FETCH})


@pytest.mark.parametrize(("api_key", "version"), CARRIERS)
@few
@given(seed=SEEDS, data=st.data())
def test_rewriting_changes_the_mapped_addresses_and_nothing_else(
    api_key: int, version: int, seed: int, data: st.DataObject
) -> None:
    frame = answer_with_nodes(api_key, version, seed)
    expected = decoded("response", api_key, version, frame)
    asked: list[tuple[int, str, int]] = []
    targets: list[tuple[str, int] | None] = []

    def mapping(node: int, host: str, port: int) -> tuple[str, int] | None:
        asked.append((node, host, port))
        targets.append(data.draw(st.none() | st.tuples(HOSTS, st.integers(0, 65535))))
        return targets[-1]

    result = rewrite_addresses(frame, api_key, version, mapping)
    there = list(nodes(expected.body))
    assert asked == [(node_id(node), node["host"], node["port"]) for node in there]
    for node, target in zip(there, targets, strict=True):
        if target is not None:
            node["host"], node["port"] = target
    assert decoded("response", api_key, version, result) == expected
    assert result == sized(encode_frame("response", api_key, version, expected))


@pytest.mark.parametrize(("api_key", "version"), CARRIERS)
@few
@given(seed=SEEDS)
def test_a_mapping_that_changes_nothing_gives_the_same_bytes(api_key: int, version: int, seed: int) -> None:
    frame = answer_with_nodes(api_key, version, seed)
    assert rewrite_addresses(frame, api_key, version, lambda *_: None) is frame
    assert rewrite_addresses(frame, api_key, version, lambda _, host, port: (host, port)) is frame
    there = rewrite_addresses(frame, api_key, version, lambda _, host, port: (host + "x", port & 0xFFFF))
    ports = iter([address.port for address in found(frame, api_key, version)])
    back = rewrite_addresses(there, api_key, version, lambda _, host, port: (host[:-1], port))
    again = decoded("response", api_key, version, back)
    for node in nodes(again.body):
        node["port"] = next(ports)
    assert again == decoded("response", api_key, version, frame)


def test_a_coordinator_that_is_not_there_is_no_address() -> None:
    for version in readable_versions(ApiKey.FIND_COORDINATOR):
        nobody = {"nodeId": -1, "host": "", "port": -1, "errorCode": 15}
        body: Any = nobody if version <= 3 else {"coordinators": [{"key": "group", **nobody}]}
        frame = sized(
            encode_frame("response", FIND_COORDINATOR, version, DecodedFrame({"correlationId": 1}, body))
        )
        assert found(frame, FIND_COORDINATOR, version) == []
        assert rewrite_addresses(frame, FIND_COORDINATOR, version, lambda *_: ("gateway", 1)) is frame


@pytest.mark.parametrize("length", [1, 100, 126, 127, 128, 300, 16_000])
@pytest.mark.parametrize(("api_key", "version"), [(PRODUCE, 13), (FETCH, 18), (METADATA, 13), (METADATA, 8)])
def test_lengths_that_need_more_or_fewer_bytes_than_before_are_written_right(
    api_key: int, version: int, length: int
) -> None:
    node = {"nodeId": 1, "host": "h" * 100, "port": 9092, "rack": "r"}
    body: Any = {"brokers": [node]} if api_key == METADATA else {"nodeEndpoints": [node, node]}
    frame = sized(encode_frame("response", api_key, version, DecodedFrame({"correlationId": 1}, body)))
    node["host"] = "g" * length
    expected = sized(encode_frame("response", api_key, version, DecodedFrame({"correlationId": 1}, body)))
    assert rewrite_addresses(frame, api_key, version, lambda *_: ("g" * length, 9092)) == expected


SMALLEST: dict[int, list[Any]] = {
    METADATA: [{"brokers": [{"host": ""}] * 50}],
    DESCRIBE_CLUSTER: [{"brokers": [{"host": ""}] * 50}],
    FIND_COORDINATOR: [{"coordinators": [{}] * 50}],
    PRODUCE: [
        {"responses": [{}] * 50},
        {"responses": [{"partitionResponses": [{}] * 50}]},
        {"responses": [{"partitionResponses": [{"recordErrors": [{}] * 50}]}]},
        {"nodeEndpoints": [{}] * 50},
    ],
    FETCH: [
        {"responses": [{}] * 50},
        {"responses": [{"partitions": [{}] * 50}]},
        {"responses": [{"partitions": [{"abortedTransactions": [{}] * 50}]}]},
        {"nodeEndpoints": [{}] * 50},
    ],
    SHARE_FETCH: [
        {"responses": [{}] * 50},
        {"responses": [{"partitions": [{"records": ""}] * 50}]},
        {"responses": [{"partitions": [{"records": "", "acquiredRecords": [{}] * 50}]}]},
        {"nodeEndpoints": [{}] * 50},
    ],
    SHARE_ACKNOWLEDGE: [
        {"responses": [{}] * 50},
        {"responses": [{"partitions": [{}] * 50}]},
        {"nodeEndpoints": [{}] * 50},
    ],
}


@pytest.mark.parametrize(("api_key", "version"), CARRIERS)
def test_elements_as_small_as_they_can_be_are_not_taken_for_a_forged_count(
    api_key: int, version: int
) -> None:
    for body in SMALLEST[api_key]:
        if "coordinators" in body and version <= 3:
            continue
        small = DecodedFrame({"correlationId": 1}, body)
        assert found(sized(encode_frame("response", api_key, version, small)), api_key, version) == []


@pytest.mark.parametrize(("host", "port"), [("", 1), ("h" * 32_768, 1), ("h", -1), ("h", 65_536)])
def test_a_mapping_to_what_kafka_cannot_write_is_an_error_of_the_caller(host: str, port: int) -> None:
    frame = answer_with_nodes(DESCRIBE_CLUSTER, 2, 1)
    with pytest.raises(ValueError, match="not an address"):
        rewrite_addresses(frame, DESCRIBE_CLUSTER, 2, lambda *_: (host, port))


KIO = [
    ("metadata", "MetadataResponse", METADATA, range(14), lambda body: body.brokers),
    (
        "find_coordinator",
        "FindCoordinatorResponse",
        FIND_COORDINATOR,
        range(7),
        lambda body: getattr(body, "coordinators", [body]),
    ),
    ("describe_cluster", "DescribeClusterResponse", DESCRIBE_CLUSTER, range(3), lambda body: body.brokers),
    ("produce", "ProduceResponse", PRODUCE, range(10, 14), lambda body: body.node_endpoints),
    ("fetch", "FetchResponse", FETCH, range(16, 19), lambda body: body.node_endpoints),
    ("share_fetch", "ShareFetchResponse", SHARE_FETCH, range(1, 3), lambda body: body.node_endpoints),
    (
        "share_acknowledge",
        "ShareAcknowledgeResponse",
        SHARE_ACKNOWLEDGE,
        range(1, 3),
        lambda body: body.node_endpoints,
    ),
]


@pytest.mark.parametrize(
    ("module", "name", "api_key", "version", "addresses"),
    [
        pytest.param(module, name, api_key, version, addresses, id=f"{module} v{version}")
        for module, name, api_key, versions, addresses in KIO
        for version in versions
    ],
)
def test_kio_reads_the_new_addresses(
    module: str, name: str, api_key: int, version: int, addresses: Callable[[Any], Any]
) -> None:
    try:
        entity = getattr(importlib.import_module(f"kio.schema.{module}.v{version}.response"), name)
    except ModuleNotFoundError:
        pytest.skip("kio 0.6.5 does not know this version")
    known = {field.name for field in message_of("response", api_key).fields if version in field.versions}
    node = {"brokerId" if api_key == DESCRIBE_CLUSTER else "nodeId": 1, "host": "broker-1", "port": 9092}
    body: Any = node
    for array in known & {"brokers", "coordinators", "nodeEndpoints"}:
        body = {array: [node | ({"key": "group"} if array == "coordinators" else {})]}
    frame = sized(encode_frame("response", api_key, version, DecodedFrame({"correlationId": 1}, body)))
    result = rewrite_addresses(frame, api_key, version, lambda *_: ("gateway.example", 30_001))
    start = response_body(bytearray(result), 0, len(result), api_key, version)
    value, _ = entity_reader(entity)(result[start:], 0)
    assert [(each.host, each.port) for each in addresses(value)] == [("gateway.example", 30_001)]


# --- what does not fit


@pytest.mark.parametrize(("api_key", "version"), CARRIERS)
def test_every_prefix_of_a_frame_is_refused_and_every_byte_too_many(api_key: int, version: int) -> None:
    frame = answer_with_nodes(api_key, version, 7)[:4000]
    while len(frame) == 4000:
        frame = answer_with_nodes(api_key, version, len(frame))
    body = response_body(bytearray(frame), 0, len(frame), api_key, version)
    brokers_end = max((address.stop for address in found(frame, api_key, version)), default=body)
    cuts = range(body, brokers_end if api_key == METADATA else len(frame))
    for cut in cuts:
        with pytest.raises(MalformedFrame):
            find_addresses(frame, body, cut, api_key, version)
    for cut in range(len(frame)):
        with pytest.raises(MalformedFrame):
            rewrite_addresses(frame[:cut], api_key, version, lambda *_: None)
    with pytest.raises(MalformedFrame):
        rewrite_addresses(frame + b"\0", api_key, version, lambda *_: None)
    if api_key != METADATA:
        with pytest.raises(MalformedFrame):
            rewrite_addresses(sized(frame[4:] + b"\0"), api_key, version, lambda *_: None)


@pytest.mark.parametrize(("api_key", "version"), CARRIERS)
@few
@given(seed=SEEDS, place=st.floats(0, 1, exclude_max=True), damage=st.binary(min_size=1, max_size=6))
def test_a_damaged_frame_ends_in_a_frame_of_its_size_or_in_one_clear_error(
    api_key: int, version: int, seed: int, place: float, damage: bytes
) -> None:
    frame = answer_with_nodes(api_key, version, seed % 10)
    at = 4 + int(place * (len(frame) - 4))
    frame = sized(frame[4:at] + damage + frame[at + len(damage) :])
    try:
        result = rewrite_addresses(frame, api_key, version, lambda *_: ("gateway", 1))
    except ProtocolError:
        return
    assert int.from_bytes(result[:4], "big") == len(result) - 4


def test_a_frame_that_would_grow_beyond_what_a_size_can_say_is_refused() -> None:
    """Only its head need be there for that: Metadata's topics are never kept."""
    frame = answer_with_nodes(METADATA, 12, 1)
    addresses = found(frame, METADATA, 12)
    frame_end = 2**31 - 1 + 4
    assert address_edits(0, frame_end, addresses, lambda *_: None) == []
    with pytest.raises(MalformedFrame):
        address_edits(0, frame_end, addresses, lambda _, host, port: (host + "x", 1))


@pytest.mark.parametrize(("endpoint_type", "controllers"), [(1, False), (2, True)])
def test_describe_cluster_says_whether_it_names_controllers(endpoint_type: int, controllers: bool) -> None:
    for version in readable_versions(ApiKey.DESCRIBE_CLUSTER):
        body: Any = {"errorMessage": "m" * 200, "brokers": [{"brokerId": 1, "host": "h", "port": 1}]}
        if version:
            body["endpointType"] = endpoint_type
        frame = encode_frame("response", DESCRIBE_CLUSTER, version, DecodedFrame({"correlationId": 1}, body))
        expected = controllers and version > 0
        assert names_controllers(frame, 5, len(frame), DESCRIBE_CLUSTER, version) is expected
    assert not names_controllers(frame, 5, len(frame), METADATA, 12)
