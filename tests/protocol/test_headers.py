"""Where bodies begin, and what a bad size says of the peer."""

from __future__ import annotations

import struct
from random import Random

import pytest

from sluice.protocol._tables import VERSIONS
from sluice.protocol.codec.codec import DecodedFrame, encode_frame
from sluice.protocol.codec.tags import UNKNOWN_TAGS
from sluice.protocol.errors import FrameTooLarge, MalformedFrame
from sluice.protocol.headers import (
    REQUEST_HEAD,
    REQUEST_HEAD_BYTES,
    TlsOnPlaintext,
    refuse_size,
    request_body,
    response_body,
)
from sluice.protocol.names import api_name
from testkit.frames.frames import PRODUCE, produce, sized
from testkit.frames.message_values import header_version, message_of, random_frame, versions_of

EACH_API = pytest.mark.parametrize("api_key", VERSIONS, ids=api_name)
GARBAGE = (b"\x00", b"\x01", b"\x7f", b"\x80", b"\xff")
"""what may stand behind the bytes that have arrived"""


def body_of(frame: DecodedFrame, direction: str, api_key: int, version: int) -> bytes:
    """What follows a header without tags, whose length is known."""
    header = {name: value for name, value in frame.header.items() if name != UNKNOWN_TAGS}
    if direction == "request":
        header["clientId"] = None
        whole = encode_frame("request", api_key, version, DecodedFrame(header, frame.body))
        return whole[10 + header_version("request", api_key, version) - 1 :]
    whole = encode_frame("response", api_key, version, DecodedFrame(header, frame.body))
    return whole[4 + header_version("response", api_key, version) :]


@EACH_API
def test_the_body_of_a_request_begins_where_the_codec_writes_it(api_key: int) -> None:
    random = Random(api_key)
    for version in versions_of(message_of("request", api_key)):
        for client_id in (None, "", "app", "é€" * 40):
            value = random_frame("request", api_key, version, random, unknown_tags=True)
            value.header["clientId"] = client_id
            frame = sized(encode_frame("request", api_key, version, value))
            buf = bytearray(b"\xaa" * 3 + frame + b"\xbb" * 9)
            size, key, found_version, correlation_id, length = REQUEST_HEAD.unpack_from(buf, 3)
            assert (size, key, found_version) == (len(frame) - 4, api_key, version)
            assert correlation_id == value.header["correlationId"]
            client_id_end = 3 + REQUEST_HEAD_BYTES + max(length, 0)

            start = request_body(buf, client_id_end, 3 + len(frame), api_key, version)

            assert buf[start : 3 + len(frame)] == body_of(value, "request", api_key, version)


@EACH_API
def test_the_body_of_a_response_begins_where_the_codec_writes_it(api_key: int) -> None:
    """Behind the tags of header v1; ApiVersions answers have header v0 in every version (KIP-511)."""
    random = Random(api_key)
    for version in versions_of(message_of("response", api_key)):
        value = random_frame("response", api_key, version, random, unknown_tags=True)
        frame = sized(encode_frame("response", api_key, version, value))
        buf = bytearray(b"\xaa" * 3 + frame + b"\xbb" * 9)

        start = response_body(buf, 3, 3 + len(frame), api_key, version)

        assert buf[start : 3 + len(frame)] == body_of(value, "response", api_key, version)


def test_header_tags_that_have_not_arrived_are_not_read_from_what_stands_behind() -> None:
    frame = produce(version=9, client_id="app", header_tags=3)
    tags_at = REQUEST_HEAD_BYTES + len("app")
    whole = request_body(bytearray(frame), tags_at, len(frame), PRODUCE, 9)
    for filler in GARBAGE:
        for end in range(tags_at, whole):
            buf = bytearray(frame[:end] + filler * 50)
            with pytest.raises(MalformedFrame):
                request_body(buf, tags_at, end, PRODUCE, 9)
        buf = bytearray(frame[:whole] + filler * 50)
        assert request_body(buf, tags_at, whole, PRODUCE, 9) == whole


def test_response_tags_that_have_not_arrived_are_not_read_from_what_stands_behind() -> None:
    """correlation id, then two tags of 0 and 3 bytes: 00 and 05 03 aa bb cc, in 8 bytes with their count."""
    frame = sized(struct.pack(">i", 7) + b"\x02" + b"\x04\x00" + b"\x05\x03\xaa\xbb\xcc" + b"body")
    for filler in GARBAGE:
        for end in range(8, 16):
            with pytest.raises(MalformedFrame):
                response_body(bytearray(frame[:end] + filler * 50), 0, end, PRODUCE, 9)
        assert response_body(bytearray(frame[:16] + filler * 50), 0, 16, PRODUCE, 9) == 16


@pytest.mark.parametrize(
    ("first_bytes", "said"),
    [
        (b"\x16\x03\x01\x02\x00\x01", "a TLS handshake on a plaintext listener"),
        (b"\x16\x03\x03\x00", "a TLS handshake on a plaintext listener"),
        (b"GET / HTTP/1.1\r\n", "an HTTP request on a Kafka listener"),
        (b"POST /", "an HTTP request on a Kafka listener"),
        (b"\xff\xff\xff\xff", "negative frame size -1"),
        (b"\x80\x00\x00\x00\x00", "negative frame size -2147483648"),
        (b"\x06\x40\x00\x01", "frame of 104857601 bytes, the limit is 104857600"),
    ],
)
def test_a_bad_size_tells_what_the_peer_really_speaks(first_bytes: bytes, said: str) -> None:
    """The same from the fourth byte on, wherever the frame begins and whatever stands behind it."""
    size = int.from_bytes(first_bytes[:4], "big", signed=True)
    for arrived in range(4, len(first_bytes) + 1):
        buf = bytearray(b"\x16\x03G" + first_bytes[:arrived] + b"\x16\x03\x01GET /")
        error = refuse_size(buf, 3, 3 + arrived, size, 104_857_600)
        assert isinstance(error, FrameTooLarge)
        assert isinstance(error, TlsOnPlaintext) == ("TLS" in said)
        assert str(error).startswith(said)


@pytest.mark.parametrize("first_bytes", [b"\x16\x03", b"GET ", b"POST"])
def test_what_has_not_arrived_tells_nothing_of_the_peer(first_bytes: bytes) -> None:
    """Behind `end` stands what an earlier frame has left in the buffer."""
    buf = bytearray(b"ab" + first_bytes + b"/ HTTP")
    for end in range(2, 2 + len(first_bytes)):
        assert type(refuse_size(buf, 2, end, -1, 100)) is FrameTooLarge
        assert str(refuse_size(buf, 2, end, -1, 100)).startswith("negative frame size -1")


def test_the_offset_of_a_bad_size_is_absolute_like_every_readers() -> None:
    """The session makes it relative to the frame: a frame at 40 in the buffer would be at −40 otherwise."""
    buf = bytearray(40) + b"\xff\xff\xff\xff"
    assert refuse_size(buf, 40, 44, -1, 100).offset == 40
