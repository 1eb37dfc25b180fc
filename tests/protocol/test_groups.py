"""The session timeout of a JoinGroup, whether the broker took it, and which APIs are a group's."""

from __future__ import annotations

from random import Random

import pytest

from sluice.protocol._tables import API_NAMES
from sluice.protocol.apis import GROUP_APIS
from sluice.protocol.codec.codec import DecodedFrame, encode_frame
from sluice.protocol.errors import MalformedFrame
from sluice.protocol.groups import session_timeout_accepted, session_timeout_ms
from sluice.protocol.headers import REQUEST_HEAD, REQUEST_HEAD_BYTES, request_body
from testkit.frames.frames import JOIN_GROUP, sized
from testkit.frames.message_values import random_frame

FILLERS = (b"\x00", b"\x01", b"\x7f", b"\x80", b"\xff")
VERSIONS = pytest.mark.parametrize("version", range(10))


def join_group(version: int, timeout_ms: int, group_id: str, random: Random) -> tuple[bytes, int]:
    """A frame and where its body begins."""
    value = random_frame("request", JOIN_GROUP, version, random, unknown_tags=True)
    value.body.update({"groupId": group_id, "sessionTimeoutMs": timeout_ms})
    frame = sized(encode_frame("request", JOIN_GROUP, version, value))
    *_, length = REQUEST_HEAD.unpack_from(frame)
    client_id_end = REQUEST_HEAD_BYTES + max(length, 0)
    return frame, request_body(bytearray(frame), client_id_end, len(frame), JOIN_GROUP, version)


@VERSIONS
def test_the_session_timeout_is_the_one_that_the_codec_wrote(version: int) -> None:
    random = Random(version)
    for group_id in ("", "g", "billing" * 40):
        for timeout_ms in (45_000, 6_000, 0, -1, 2**31 - 1):
            frame, body = join_group(version, timeout_ms, group_id, random)
            assert session_timeout_ms(bytearray(frame), body, len(frame), version) == timeout_ms


@VERSIONS
def test_a_timeout_that_has_not_arrived_is_not_read_from_what_stands_behind(version: int) -> None:
    frame, body = join_group(version, 45_000, "group-id", Random(version))
    end_of_timeout = body + (1 if version >= 6 else 2) + len("group-id") + 4
    for filler in FILLERS:
        for end in range(body, end_of_timeout):
            with pytest.raises(MalformedFrame):
                session_timeout_ms(bytearray(frame[:end] + filler * 70_000), body, end, version)
        buf = bytearray(frame[:end_of_timeout] + filler * 9)
        assert session_timeout_ms(buf, body, end_of_timeout, version) == 45_000


@VERSIONS
def test_the_broker_took_the_session_timeout_unless_its_answer_says_otherwise(version: int) -> None:
    """0 none, 79 MEMBER_ID_REQUIRED; not 26 INVALID_SESSION_TIMEOUT, 16 NOT_COORDINATOR, 30 unauthorized."""
    for error, accepted in ((0, True), (79, True), (26, False), (16, False), (30, False), (-1, False)):
        value = random_frame("response", JOIN_GROUP, version, Random(version), unknown_tags=True)
        value.body["errorCode"] = error
        frame = sized(encode_frame("response", JOIN_GROUP, version, value))
        buf = bytearray(b"\0\0" + frame + b"\xff" * 9)
        assert session_timeout_accepted(buf, 2, 2 + len(frame), version) == accepted


@VERSIONS
def test_an_error_code_that_has_not_arrived_is_not_read_from_what_stands_behind(version: int) -> None:
    """size 4, correlation id 4, from v6 on 1 of tags, from v2 on throttle 4; then error 2."""
    frame = sized(encode_frame("response", JOIN_GROUP, version, DecodedFrame({"correlationId": 1}, {})))
    end_of_error = 8 + (version >= 6) + 4 * (version >= 2) + 2
    for filler in FILLERS:
        for end in range(8, end_of_error):
            with pytest.raises(MalformedFrame):
                session_timeout_accepted(bytearray(frame[:end] + filler * 9), 0, end, version)
        buf = bytearray(frame[:end_of_error] + filler * 9)
        assert session_timeout_accepted(buf, 0, end_of_error, version)


def test_group_apis_are_those_of_the_wire_semantics_and_of_streams_groups() -> None:
    """Section 1.5: keys 8, 9, 11–14, 68, 69, 76; and KIP-1071's. Each is one of Kafka 4.3.1 about a group."""
    assert {8, 9, 11, 12, 13, 14, 68, 69, 76, 88, 89} == GROUP_APIS
    assert [API_NAMES[key] for key in sorted(GROUP_APIS)] == [
        "OffsetCommit",
        "OffsetFetch",
        "JoinGroup",
        "Heartbeat",
        "LeaveGroup",
        "SyncGroup",
        "ConsumerGroupHeartbeat",
        "ConsumerGroupDescribe",
        "ShareGroupHeartbeat",
        "StreamsGroupHeartbeat",
        "StreamsGroupDescribe",
    ]


def test_every_heartbeat_of_a_group_that_kafka_has_is_among_them() -> None:
    """So that the next kind of group is not forgotten. (Brokers and controllers have heartbeats, too.)"""
    heartbeats = {
        key for key, name in API_NAMES.items() if name == "Heartbeat" or name.endswith("GroupHeartbeat")
    }
    assert heartbeats == {12, 68, 76, 88}
    assert heartbeats <= GROUP_APIS
