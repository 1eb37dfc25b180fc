"""Frames with addresses written by hand: what is passed over, keeps its spelling, or is refused."""

from __future__ import annotations

from typing import Any

import pytest

from sluice.protocol.addresses.addresses import rewrite_addresses
from sluice.protocol.apis import METADATA, PRODUCE
from sluice.protocol.codec.codec import DecodedFrame, encode_frame
from sluice.protocol.errors import MalformedFrame
from testkit.frames.frames import sized


@pytest.mark.parametrize("version", range(14))
def test_the_topics_of_metadata_are_not_looked_at(version: int) -> None:
    body: Any = {"brokers": [{"nodeId": 1, "host": "h", "port": 9092}]}
    frame = encode_frame("response", METADATA, version, DecodedFrame({"correlationId": 1}, body))
    garbage = bytes(range(256))
    result = rewrite_addresses(sized(frame + garbage), METADATA, version, lambda *_: ("gateway", 1))
    assert result.endswith(garbage)
    assert b"gateway\0\0\0\1" in result


def endpoints(field: str, count: int = 1) -> bytes:
    """A Produce v13 response without topics, its tagged fields written by hand."""
    return sized(bytes.fromhex(f"00000001000100000000{count:02x}" + field))


NODE = "02000000010268000023840000"  # one node: id 1, "h", 9092, no rack, no tags


def test_a_size_written_longer_than_needed_is_understood_and_kept_unless_it_changes() -> None:
    frame = endpoints(f"00 8d00 {NODE}")
    assert rewrite_addresses(frame, PRODUCE, 13, lambda *_: None) is frame
    assert rewrite_addresses(frame, PRODUCE, 13, lambda *_: ("hh", 9092)) == endpoints(
        "00 0e 02 00000001 036868 00002384 00 00"
    )


def test_node_endpoints_given_twice_are_both_rewritten() -> None:
    frame = endpoints(f"00 0d {NODE} 63 01 ff 00 0d {NODE}", 3)
    result = rewrite_addresses(frame, PRODUCE, 13, lambda *_: ("x", 1))
    other = NODE.replace("0268", "0278").replace("00002384", "00000001")
    assert result == endpoints(f"00 0d {other} 63 01 ff 00 0d {other}", 3)


@pytest.mark.parametrize(
    "field",
    [
        f"00 0c {NODE}",
        f"00 0e {NODE} 00",
        "00 01 00",
        "00 05 ffffffff0f",
        "00 02 03 00",
        "00 0d 02 00000001 00 00002384 00 00 00",
        "00 0d 02 00000001 02ff 00002384 00 00",
    ],
    ids=["too short", "too long", "null", "forged count", "no room", "null host", "not UTF-8"],
)
def test_node_endpoints_that_do_not_fill_their_field_are_refused(field: str) -> None:
    with pytest.raises(MalformedFrame):
        rewrite_addresses(endpoints(field), PRODUCE, 13, lambda *_: None)


@pytest.mark.parametrize(
    ("version", "brokers"), [(0, "ffffffff"), (1, "7fffffff"), (9, "00"), (9, "ffffffff0f")]
)
def test_null_and_forged_arrays_of_brokers_are_refused(version: int, brokers: str) -> None:
    head = "00000001" + ("" if version < 9 else "00") + ("" if version < 3 else "00000000")
    with pytest.raises(MalformedFrame):
        rewrite_addresses(
            sized(bytes.fromhex(head + brokers) + bytes(100)), METADATA, version, lambda *_: None
        )
