"""max_bytes of Fetch and ShareFetch, lowered in place; the codec judges what else changed."""

from __future__ import annotations

from random import Random

import pytest

from sluice.protocol.apis import ApiKey, readable_versions
from sluice.protocol.codec.codec import encode_frame
from sluice.protocol.codec.wire import Struct
from sluice.protocol.errors import MalformedFrame
from sluice.protocol.fetch import (
    closing_fetch,
    forget_session,
    max_bytes_offset,
    read_session,
    write_max_bytes,
)
from sluice.protocol.headers import REQUEST_HEAD, REQUEST_HEAD_BYTES, request_body
from testkit.frames.frames import FETCH, SHARE_FETCH, decoded, max_bytes_of, request, sized
from testkit.frames.message_values import random_frame

FETCH_VERSIONS = [(FETCH, version) for version in readable_versions(ApiKey.FETCH)]
SHARE_FETCH_VERSIONS = [(SHARE_FETCH, version) for version in (1, 2)]
VERSIONS = pytest.mark.parametrize(("api_key", "version"), FETCH_VERSIONS + SHARE_FETCH_VERSIONS)
FRAMES = 12


def body_at(frame: bytes | bytearray, start: int, end: int) -> int:
    _, api_key, version, _, length = REQUEST_HEAD.unpack_from(frame, start)
    client_id_end = start + REQUEST_HEAD_BYTES + max(length, 0)
    return request_body(bytearray(frame), client_id_end, end, api_key, version)


@VERSIONS
def test_max_bytes_is_written_and_nothing_else_changes(api_key: int, version: int) -> None:
    random = Random(version)
    for _ in range(FRAMES):
        for asked in (50_000, 1_000, 1, 0, 2**31 - 1):
            value = random_frame("request", api_key, version, random, unknown_tags=True)
            value.body["maxBytes"] = asked
            frame = sized(encode_frame("request", api_key, version, value))
            behind = random.randbytes(40)
            buf = bytearray(b"\xff" * 7 + frame + behind)
            end = 7 + len(frame)

            offset = max_bytes_offset(buf, body_at(buf, 7, end), end, api_key, version)
            write_max_bytes(buf, offset, 1_000)

            value.body["maxBytes"] = 1_000
            expected = sized(encode_frame("request", api_key, version, value))
            assert buf == b"\xff" * 7 + expected + behind


@VERSIONS
def test_a_cut_frame_has_no_max_bytes_whatever_stands_behind_it(api_key: int, version: int) -> None:
    """Up to the field's last byte MalformedFrame, from then on the field, with the rest yet to come."""
    value = random_frame("request", api_key, version, Random(version))
    if api_key == SHARE_FETCH:
        value.body.update({"groupId": "g" * 200, "memberId": "m" * 150})  # lengths of two bytes each
    frame = sized(encode_frame("request", api_key, version, value))
    body = body_at(frame, 0, len(frame))
    field = max_bytes_offset(bytearray(frame), body, len(frame), api_key, version)
    for filler in (b"\x00", b"\x01", b"\x7f", b"\x80", b"\xff"):
        for end in range(body, field + 4):
            with pytest.raises(MalformedFrame) as caught:
                max_bytes_offset(bytearray(frame[:end] + filler * 500), body, end, api_key, version)
            assert caught.value.offset is not None
        buf = bytearray(frame[: field + 4] + filler * 500)
        assert max_bytes_offset(buf, body, field + 4, api_key, version) == field


@pytest.mark.parametrize(
    "length", [b"\xff\xff\xff\xff\x07", b"\xff\xff\xff\xff\x0f", b"\xff\xff\xff\xff\xff", b"\x40"]
)
def test_a_share_fetch_whose_strings_cannot_fit_is_malformed(length: bytes) -> None:
    frame = bytearray(request(SHARE_FETCH, 1, {"groupId": "g", "memberId": "m"}))
    body = body_at(frame, 0, len(frame))
    forged = frame[:body] + length + frame[body + 1 :]
    with pytest.raises(MalformedFrame):
        max_bytes_offset(forged, body, len(forged), SHARE_FETCH, 1)


def test_a_null_group_and_member_of_a_share_fetch_are_read() -> None:
    frame = request(SHARE_FETCH, 1, {"groupId": None, "memberId": None, "maxBytes": 77})
    buf = bytearray(frame)
    write_max_bytes(buf, max_bytes_offset(buf, body_at(buf, 0, len(buf)), len(buf), SHARE_FETCH, 1), 5)
    assert max_bytes_of(SHARE_FETCH, 1, buf) == 5


@pytest.mark.parametrize("version", readable_versions(ApiKey.FETCH))
def test_a_session_is_read_from_the_version_on_that_has_one_and_only_if_it_has_arrived(version: int) -> None:
    body: Struct = {"sessionId": 77, "sessionEpoch": 5} if version >= 7 else {}
    frame = bytearray(request(FETCH, version, body) + b"\xff" * 20)
    end = len(frame) - 20
    offset = max_bytes_offset(frame, body_at(frame, 0, end), end, FETCH, version)
    if version < 7:
        assert read_session(frame, offset, offset, version) == (0, -1)
        return
    assert read_session(frame, offset, end, version) == (77, 5)
    # max_bytes int32, isolation level int8, session id int32, epoch int32
    assert read_session(frame, offset, offset + 13, version) == (77, 5)
    with pytest.raises(MalformedFrame):
        read_session(frame, offset, offset + 12, version)


@pytest.mark.parametrize(("error_code", "arrived_bytes", "told"), [(0, 6, 70), (0, 5, 0), (29, 6, 29)])
def test_a_session_is_forgotten_in_an_answer_without_an_error_that_has_arrived(
    error_code: int, arrived_bytes: int, told: int
) -> None:
    """Behind throttle_time_ms stands the error: the broker's own stays."""
    buf = bytearray(b"\xff" * 3 + bytes(4) + error_code.to_bytes(2, "big") + b"\xff" * 3)
    forget_session(buf, 3, 3 + arrived_bytes)
    assert buf == b"\xff" * 3 + bytes(4) + told.to_bytes(2, "big") + b"\xff" * 3


@pytest.mark.parametrize("version", readable_versions(ApiKey.FETCH))
def test_a_fetch_that_ends_a_session_asks_for_nothing_and_waits_for_nothing(version: int) -> None:
    asked: Struct = {"maxWaitMs": 500, "minBytes": 9, "maxBytes": 9_999}
    frame = request(FETCH, version, asked, correlation_id=7)
    closing = closing_fetch(bytearray(b"xx" + frame), 2, 2 + REQUEST_HEAD_BYTES + 3, version, 5)
    found = decoded("request", FETCH, version, closing)
    body = found.body
    assert found.header["correlationId"] == 7
    assert (body["maxWaitMs"], body["minBytes"], body["maxBytes"], body["topics"]) == (0, 0, 1, [])
    assert body.get("isolationLevel", 0) == 0
    if version >= 7:
        assert (body["sessionId"], body["sessionEpoch"], body["forgottenTopicsData"]) == (5, -1, [])
