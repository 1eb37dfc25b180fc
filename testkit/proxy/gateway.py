"""A session of a gateway, and answers of brokers whose real addresses can be searched for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from random import Random
from typing import Any, Final

from sluice.protocol.addresses.addresses import VERSIONS_WITH_ADDRESSES, carries_addresses, rewrite_addresses
from sluice.protocol.addresses.node_endpoints import EndpointEraser
from sluice.protocol.apis import SHARE_FETCH
from sluice.protocol.codec.codec import encode_frame
from sluice.protocol.codec.tags import UNKNOWN_TAGS
from sluice.protocol.headers import RESPONSE_HEAD_BYTES
from sluice.proxy.session.gateway.broker_map import BrokerMap
from sluice.proxy.session.policy import SessionPolicy
from sluice.proxy.session.session import Session
from testkit.frames.frames import FETCH, PRODUCE, TOPIC_ID, decoded, fetch, produce, request, sized
from testkit.frames.message_values import random_frame
from testkit.proxy.playbook import Shell, limits_of, shared_of

REAL: Final = b".internal"
"""in every real host, and in nothing else"""
CARRIERS: Final = [
    (api_key, version)
    for api_key, (first, last) in VERSIONS_WITH_ADDRESSES.items()
    for version in range(first, last + 1)
]
CUT_THROUGH: Final = frozenset({FETCH, SHARE_FETCH})


def broker_map() -> BrokerMap:
    """Ids 0 to 9 have ports of their own."""
    return BrokerMap("gw", 9100, 0, 10, bind_port=9092)


def gateway(
    brokers: BrokerMap | None = None, *, produce_rate: int | None = None, fetch_rate: int | None = None
) -> Shell:
    """A connection through a gateway."""
    policy = SessionPolicy(broker_map=brokers or broker_map())
    return Shell(Session(shared_of(limits_of(produce_rate, fetch_rate)), policy, "10.0.0.1"))


def asking(api_key: int, version: int, correlation_id: int = 7) -> bytes:
    """A request that has an answer."""
    if api_key == PRODUCE:
        return produce({}, version=version, correlation_id=correlation_id)
    if api_key == FETCH:
        return fetch(version=version, correlation_id=correlation_id)
    return request(api_key, version, correlation_id=correlation_id)


def naming(
    api_key: int, version: int, random: Random, *, correlation_id: int = 7, at_least_bytes: int = 0
) -> bytes:
    """A random answer that names at least one broker, each with a real host and port of its own."""
    while True:
        value = random_frame("response", api_key, version, random, unknown_tags=True)
        value.header["correlationId"] = correlation_id
        nodes = list(places(value.body))
        tags: Any = value.body.get(UNKNOWN_TAGS, [])
        if not nodes or 127 in {entry["tag"] for entry in tags}:
            continue
        for i, node in enumerate(nodes):
            node["host"] = f"real-{i}.internal"
            node["port"] = 19_000 + i
            node["brokerId" if "brokerId" in node else "nodeId"] = random.choice((i, i, i, 1001))
        if api_key in CUT_THROUGH and at_least_bytes:
            partition: Any = {"partitionIndex": 0, "records": random.randbytes(at_least_bytes).hex()}
            value.body["responses"].append({"topicId": TOPIC_ID, "partitions": [partition]})  # type: ignore[union-attr]
        return sized(encode_frame("response", api_key, version, value))


def places(value: Any) -> Iterator[dict[str, Any]]:
    """Every object of a decoded body that has a host, in wire order."""
    if isinstance(value, dict):
        if "host" in value:
            yield value
        for child in value.values():
            yield from places(child)
    elif isinstance(value, list):
        for child in value:
            yield from places(child)


def told(api_key: int, version: int, frame: bytes) -> list[tuple[str, int]]:
    """The addresses in an answer, as a client reads them."""
    body = decoded("response", api_key, version, frame).body
    return [(node["host"], node["port"]) for node in places(body)]


def rewritten(api_key: int, version: int, frame: bytes) -> bytes:
    """What a client gets of an answer that came whole."""
    if not carries_addresses(api_key, version):
        return frame
    return rewrite_addresses(frame, api_key, version, broker_map().mapping)


def erased(api_key: int, version: int, frame: bytes) -> bytes:
    """What a client gets of an answer that is cut through."""
    buf = bytearray(frame)
    EndpointEraser(api_key, version, len(buf) - RESPONSE_HEAD_BYTES).pass_on(
        buf, RESPONSE_HEAD_BYTES, len(buf)
    )
    return bytes(buf)


def arrives(shell: Shell, data: bytes, cuts: Iterable[int]) -> bytes:
    """The broker sends `data` in pieces that end at `cuts`; returns what the client has then."""
    begun = 0
    for stop in (*sorted({*cuts}), len(data)):
        shell.broker_sends(data[begun:stop])
        begun = stop
    return bytes(shell.to_client)
