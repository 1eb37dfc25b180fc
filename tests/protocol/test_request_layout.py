"""What of a request a broker can read: held against Kafka's own classes over damaged requests."""

from __future__ import annotations

import struct
from collections import Counter
from random import Random
from time import thread_time

import pytest

from bench.hostile.frames import DAMAGE
from sluice.protocol.apis import FETCH, METADATA, OFFERED, PRODUCE, ApiKey
from sluice.protocol.codec.codec import DecodedFrame, encode_frame
from sluice.protocol.errors import MalformedFrame
from sluice.protocol.request_layout import MAX_BYTES, _walk_of, check_layout
from testkit.frames.message_values import all_versions, random_frame
from testkit.oracles.java_oracle import java_oracle

HEAD_BYTES = 10
"""of a frame without its size and with a client id that is null"""
LOOKED_THROUGH = [
    (api_key, version)
    for direction, api_key, version in all_versions()
    if direction == "request"
    and api_key not in (PRODUCE, FETCH)
    and api_key in OFFERED
    and OFFERED[api_key][0] <= version <= OFFERED[api_key][1]
]
TOO_WIDE = "varint of more than 32 bits"
"""which Java takes, and drops what is over: refused everywhere (primitives.uvarint)"""


def layout_fault(api_key: int, version: int, rest: bytes) -> str:
    """Empty: a broker reads it. What stands before and behind it in the same buffer is not looked at."""
    begin, end = 6, 6 + len(rest)
    try:
        check_layout(bytearray(b"before" + rest + bytes(64)), begin, end, api_key, version)
    except MalformedFrame as error:
        return error.reason if error.offset in range(begin, end + 1) else f"outside: {error}"
    return ""


def rest_of(frame: DecodedFrame, api_key: int, version: int) -> bytes:
    """From behind the client id."""
    frame.header["clientId"] = None
    return encode_frame("request", api_key, version, frame)[HEAD_BYTES:]


def damaged(rest: bytes, random: Random) -> bytes:
    kind = random.choice((*DAMAGE, "cut", "noise"))
    if kind == "noise" or not rest:
        return random.randbytes(random.randint(0, 60))
    if kind == "cut":
        return rest[: random.randrange(len(rest))]
    head = bytes(4 + HEAD_BYTES)
    return DAMAGE[kind](head + rest, random)[len(head) :]


def test_no_request_of_any_version_is_refused_that_kafka_could_have_written() -> None:
    random = Random(1)
    for api_key, version in LOOKED_THROUGH:
        for unknown_tags in (False, True, False, True):
            frame = random_frame("request", api_key, version, random, unknown_tags=unknown_tags)
            rest = rest_of(frame, api_key, version)
            assert not layout_fault(api_key, version, rest), (api_key, version, rest.hex())
            # what stands behind it is nobody's: a broker does not mind it
            assert not layout_fault(api_key, version, rest + b"more")


def test_every_request_that_is_cut_off_is_refused() -> None:
    random = Random(2)
    for api_key, version in LOOKED_THROUGH:
        rest = rest_of(random_frame("request", api_key, version, random), api_key, version)
        for length in range(len(rest)):
            assert layout_fault(api_key, version, rest[:length]), (api_key, version, length, rest.hex())


@pytest.mark.parametrize("count", [6_000, pytest.param(100_000, marks=pytest.mark.slow)])
def test_a_damaged_request_is_refused_where_kafka_cannot_read_it_and_nowhere_else(count: int) -> None:
    random = Random(count)
    seen: Counter[bool] = Counter()
    with java_oracle() as java:
        for _ in range(count):
            api_key, version = random.choice(LOOKED_THROUGH)
            frame = random_frame("request", api_key, version, random, unknown_tags=random.random() < 0.3)
            rest = damaged(rest_of(frame, api_key, version), random)
            fault = layout_fault(api_key, version, rest)
            assert not fault.startswith("outside")
            reads = java.can_read(api_key, version, rest)
            assert bool(fault) != reads or fault.endswith(TOO_WIDE), (api_key, version, fault, rest.hex())
            seen[reads] += 1
    assert min(seen.values()) > count / 10


def test_the_field_is_named_with_what_it_stands_in() -> None:
    topics = struct.pack(">i h5s h", 2, 5, b"topic", 40)
    assert layout_fault(METADATA, 1, topics) == "topics: name: 40 bytes wanted, 0 left"
    assert layout_fault(METADATA, 1, b"\x7f\xff\xff\xff") == "topics: array of 2147483647 in 0 bytes"
    null = layout_fault(ApiKey.HEARTBEAT, 0, b"\xff\xff")
    assert null == "groupId: null where none may be"


def test_what_is_not_known_is_not_judged() -> None:
    assert not layout_fault(PRODUCE, 9, b"noise")
    assert not layout_fault(FETCH, 12, b"noise")
    assert not layout_fault(999, 0, b"noise")
    assert not layout_fault(METADATA, OFFERED[METADATA][1] + 1, b"noise")
    before = _walk_of.cache_info().currsize
    for version in range(-100, 1_000):
        assert (
            not layout_fault(METADATA, version, b"")
            or version in range(*OFFERED[METADATA])
            or version == OFFERED[METADATA][1]
        )
        assert not layout_fault(1_000 + version, 0, b"")
    assert _walk_of.cache_info().currsize <= before + OFFERED[METADATA][1] + 1, (
        "what is not known is not kept"
    )


def test_a_forged_count_costs_no_more_than_the_bytes_that_come_with_it() -> None:
    """The longest walks: elements of one or two bytes each, as many as are looked through."""
    walks = {
        "tags": (METADATA, 12, b"\xff\xff\xff\xff\x07" + b"\x64\x00" * (MAX_BYTES // 2 - 3)),
        "topics": (METADATA, 1, struct.pack(">i", MAX_BYTES // 2 - 2) + bytes(MAX_BYTES - 4)),
    }
    for api_key, version, rest in walks.values():
        begun_s = thread_time()
        layout_fault(api_key, version, rest)
        assert thread_time() - begun_s < 1.0  # some ms; for ever, if the count were believed
