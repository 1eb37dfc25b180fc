"""The codec on frames written by hand: layouts, the several spellings of one value, and what is refused."""

from __future__ import annotations

import json
from random import Random

import pytest

from sluice.protocol._tables import API_NAMES, KAFKA_VERSION, VERSIONS
from sluice.protocol.codec.codec import DecodedFrame, decode_frame, encode_frame
from sluice.protocol.codec.compile import struct_codec
from sluice.protocol.codec.spec_model import Direction, Field
from sluice.protocol.codec.wire import Value
from sluice.protocol.errors import MalformedFrame, UnsupportedVersion
from testkit.frames.message_values import all_versions, message_of, random_frame

HEADER_V1 = "0003 0004 00000007 0002 6d65"  # Metadata v4, correlation id 7, client id "me"


def raw(*parts: str) -> bytes:
    return bytes.fromhex("".join(parts))


def assert_same_bytes(direction: Direction, api_key: int, version: int, frame: bytes) -> DecodedFrame:
    """Decoded, through JSON text, and encoded again: the same bytes. Returns the value."""
    decoded = decode_frame(direction, api_key, version, frame)
    through_text = DecodedFrame.from_json(json.loads(json.dumps(decoded.to_json())))
    assert through_text == decoded
    assert encode_frame(direction, api_key, version, through_text) == frame
    return decoded


def malformed(direction: Direction, api_key: int, version: int, frame: bytes) -> MalformedFrame:
    with pytest.raises(MalformedFrame) as caught:
        decode_frame(direction, api_key, version, frame)
    assert (caught.value.api_key, caught.value.api_version) == (api_key, version)
    return caught.value


# --- layouts ---------------------------------------------------------------------------------------------


def test_a_request_of_a_fixed_version_has_header_v1_and_long_lengths() -> None:
    decoded = assert_same_bytes("request", 3, 4, raw(HEADER_V1, "00000001 0001 74 01"))
    assert decoded.header == {
        "requestApiKey": 3,
        "requestApiVersion": 4,
        "correlationId": 7,
        "clientId": "me",
    }
    assert decoded.body == {"topics": [{"name": "t"}], "allowAutoTopicCreation": True}


def test_a_flexible_request_has_compact_lengths_and_a_client_id_that_is_not_compact() -> None:
    frame = raw("0003 0009 00000007 0002 6d65 00", "02 02 74 00 01 00 01 00")
    decoded = assert_same_bytes("request", 3, 9, frame)
    assert decoded.header["clientId"] == "me"
    assert decoded.body["topics"] == [{"name": "t"}]


def test_a_null_client_id_and_an_empty_one_are_two_things() -> None:
    null = assert_same_bytes("request", 3, 0, raw("0003 0000 00000007 ffff", "00000000"))
    empty = assert_same_bytes("request", 3, 0, raw("0003 0000 00000007 0000", "00000000"))
    assert (null.header["clientId"], empty.header["clientId"]) == (None, "")


def test_an_api_versions_answer_has_header_v0_in_flexible_versions_too() -> None:
    decoded = assert_same_bytes("response", 18, 3, raw("00000007", "0000 02 0012 0000 0004 00 00000000 00"))
    assert decoded.header == {"correlationId": 7}
    assert decoded.body["apiKeys"] == [{"apiKey": 18, "minVersion": 0, "maxVersion": 4}]


@pytest.mark.parametrize("version", [0, 1, 3, 4, 5, 99])
def test_error_35_means_an_api_versions_answer_of_version_0_at_any_version(version: int) -> None:
    frame = raw("00000007", "0023 00000001 0012 0000 0004")
    decoded = assert_same_bytes("response", 18, version, frame)
    assert decoded.body == {
        "errorCode": 35,
        "apiKeys": [{"apiKey": 18, "minVersion": 0, "maxVersion": 4}],
    }


def test_another_error_does_not_change_the_layout_of_an_api_versions_answer() -> None:
    decoded = assert_same_bytes("response", 18, 3, raw("00000007", "0029 01 00000000 00"))
    assert decoded.body == {"errorCode": 41, "apiKeys": [], "throttleTimeMs": 0}


def test_null_and_empty_arrays_are_two_things_in_both_forms() -> None:
    for version, null, empty in ((4, "ffffffff 00", "00000000 00"), (9, "00 00 00 00 00", "01 00 00 00 00")):
        tags = "00" if version == 9 else ""
        header = raw(f"0003 000{version} 00000007 ffff", tags)
        assert assert_same_bytes("request", 3, version, header + raw(null)).body["topics"] is None
        assert assert_same_bytes("request", 3, version, header + raw(empty)).body["topics"] == []


def test_records_are_bytes_that_nobody_looks_into() -> None:
    topic = "02 02 74 02 00000001 04 deadbf 00 00"
    frame = raw("0000 0009 00000001 ffff 00", "00 ffff 000003e8", topic, "00")
    decoded = assert_same_bytes("request", 0, 9, frame)
    expected: Value = [{"name": "t", "partitionData": [{"index": 1, "records": "deadbf"}]}]
    assert decoded.body["topicData"] == expected


def test_uuids_are_shown_as_kafka_prints_them() -> None:
    topic_id = "fffefdfcfbfaf9f8f7f6f5f4f3f2f1f0"
    header = "0001 000d 00000001 ffff 00"
    body = f"ffffffff 000001f4 00000001 00000400 00 00000000 00000000 02 {topic_id} 01 00 01 01 00"
    decoded = assert_same_bytes("request", 1, 13, raw(header, body))
    assert decoded.body["topics"] == [{"topicId": "__79_Pv6-fj39vX08_Lx8A", "partitions": []}]


def test_a_nullable_struct_is_a_marker_and_what_follows_it() -> None:
    fetched = encode_frame("response", 68, 0, DecodedFrame({"correlationId": 1}, {"assignment": None}))
    assert fetched.endswith(raw("ff 00"))
    given: Value = {"topicPartitions": []}
    written = encode_frame("response", 68, 0, DecodedFrame({"correlationId": 1}, {"assignment": given}))
    assert written.endswith(raw("01 01 00 00"))
    assert assert_same_bytes("response", 68, 0, written).body["assignment"] == given


# --- the same value, spelled in another way --------------------------------------------------------------

FLEXIBLE_HEAD = "0003 000c 00000007 ffff"  # Metadata v12
FLEXIBLE_REST = "01 00 00"  # true, false, no tags


def test_varints_longer_than_needed_are_kept_wherever_they_stand() -> None:
    # In turn: tag count of the header, lengths of array and string, tag count of the topic, of the body
    # with one tag, the tag and its size.
    frame = raw(
        FLEXIBLE_HEAD, "8000", "828000", "00" * 16, "828000 74", "808000", "01 00", "8100 e48000 8100 aa"
    )
    decoded = assert_same_bytes("request", 3, 12, frame)
    assert decoded.body["topics"] == [{"topicId": "A" * 22, "name": "t"}]
    assert decoded.body["_unknownTaggedFields"] == [{"tag": 100, "hex": "aa"}]
    assert decoded.wide_varints == ((1, 2), (2, 3), (3, 3), (4, 3), (5, 2), (6, 3), (7, 2))


def test_the_size_of_a_known_tagged_field_may_be_wide_and_the_varints_inside_it_too() -> None:
    content = "8300 6964"  # "id" in a compact string with a 2-byte length
    body = "ffffffff 000001f4 00000001 00000400 00 00000000 00000000 01 01 01"
    frame = raw("0001 000c 00000001 ffff 00", body, "01", "00", "848000", content)
    decoded = assert_same_bytes("request", 1, 12, frame)
    assert decoded.body["clusterId"] == "id"
    assert [width for _, width in decoded.wide_varints] == [3, 2]


def test_tags_in_another_order_keep_it_known_ones_and_unknown_ones() -> None:
    body = "0000 01 00000000"
    tags = "04  07 01 aa  01 08 0000000000000005  06 00  03 01 01"
    decoded = assert_same_bytes("response", 18, 3, raw("00000007", body, tags))
    assert decoded.body["finalizedFeaturesEpoch"] == 5
    assert decoded.body["zkMigrationReady"] is True
    assert decoded.body["_unknownTaggedFields"] == [{"tag": 7, "hex": "aa"}, {"tag": 6, "hex": ""}]
    assert decoded.body["_tagOrder"] == [7, 1, 6, 3]


def test_a_tagged_field_that_is_there_with_its_default_stays_there() -> None:
    present = assert_same_bytes("response", 18, 3, raw("00000007", "0000 01 00000000", "01 03 01 00"))
    absent = assert_same_bytes("response", 18, 3, raw("00000007", "0000 01 00000000", "00"))
    assert present.body["zkMigrationReady"] is False
    assert "zkMigrationReady" not in absent.body


def test_a_bool_byte_of_2_is_kept_as_a_number() -> None:
    decoded = assert_same_bytes("request", 3, 4, raw(HEADER_V1, "ffffffff 02"))
    assert decoded.body["allowAutoTopicCreation"] == 2


def test_bytes_that_are_not_utf_8_come_back() -> None:
    decoded = assert_same_bytes("request", 3, 4, raw(HEADER_V1, "00000001 0004 ff eda080 01"))
    assert decoded.body["topics"] == [{"name": "\udcff\udced\udca0\udc80"}]


@pytest.mark.parametrize(
    ("bits", "shown"),
    [
        ("3ff8000000000000", 1.5),
        ("8000000000000000", -0.0),
        ("7ff0000000000000", "Infinity"),
        ("fff0000000000000", "-Infinity"),
        ("7ff8000000000000", "NaN"),
        ("fff8000000000001", "NaN:fff8000000000001"),
        ("7ff0000000000001", "NaN:7ff0000000000001"),
    ],
)
def test_every_float_comes_back_bit_by_bit(bits: str, shown: float | str) -> None:
    # DescribeClientQuotas v0: throttle time, error, no message, one entry without entity, one value
    frame = raw("00000007", "00000000 0000 ffff 00000001 00000000 00000001 0001 6b", bits)
    entries = assert_same_bytes("response", 48, 0, frame).body["entries"]
    assert repr(entries) == repr([{"entity": [], "values": [{"key": "k", "value": shown}]}])


# --- what is refused -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("direction", "api_key", "version", "frame", "reason", "offset"),
    [
        ("request", 3, 4, raw(HEADER_V1, "7fffffff"), "topics: 2147483647 elements of at least 2 bytes", 12),
        ("request", 3, 4, raw(HEADER_V1, "fffffffe 00"), "topics: a length of -2", 12),
        ("request", 3, 0, raw("0003 0000 00000007 ffff ffffffff"), "topics: null where this version has", 10),
        (
            "request",
            3,
            4,
            raw(HEADER_V1, "00000001 0005 74 01"),
            "topics[0].name: 5 bytes are due where 2",
            18,
        ),
        ("request", 3, 4, raw(HEADER_V1, "00000000 01 00"), "1 bytes behind the end of the body", 17),
        ("request", 3, 4, raw(HEADER_V1, "00000000"), "allowAutoTopicCreation: 1 bytes are due where 0", 16),
        ("request", 3, 4, raw("0003 0004 0000"), "correlationId: 4 bytes are due where 2 are left", 4),
        (
            "request",
            3,
            5,
            raw(HEADER_V1, "00000000 01"),
            "the header is of api 3 version 4, not 3 version 5",
            0,
        ),
        (
            "request",
            3,
            9,
            raw("0003 0009 00000007 ffff", "8080808080 01"),
            "a varint of more than 31 bits",
            10,
        ),
        ("request", 3, 9, raw("0003 0009 00000007 ffff", "ffffffff 0f"), "a varint of more than 31 bits", 10),
        (
            "request",
            3,
            9,
            raw("0003 0009 00000007 ffff", "05 0000"),
            "5 tagged fields where 2 bytes are left",
            10,
        ),
        (
            "request",
            3,
            9,
            raw("0003 0009 00000007 ffff", "02 0900 0900", "00 00 00 00 00"),
            "tag 9 comes twice",
            13,
        ),
        (
            "response",
            18,
            3,
            raw("00000007 0000 01 00000000 01 03 02 01 00"),
            "zkMigrationReady: the tagged",
            15,
        ),
        (
            "response",
            18,
            3,
            raw("00000007 0000 01 00000000 01 01 04", "00" * 9),
            "finalizedFeaturesEpoch: 8 b",
            14,
        ),
        (
            "response",
            68,
            0,
            raw("00000007 00 00000000 0000 00 00 00000000 00000000 07 00"),
            "assignment: neither",
            21,
        ),
    ],
)
def test_a_frame_that_contradicts_its_layout_is_refused_with_field_and_offset(
    direction: Direction, api_key: int, version: int, frame: bytes, reason: str, offset: int
) -> None:
    error = malformed(direction, api_key, version, frame)
    assert reason in error.reason
    assert error.offset == offset
    assert f"api {API_NAMES[api_key]} ({api_key}), version {version}, offset {offset}" in str(error)


@pytest.mark.parametrize(
    ("direction", "api_key", "version", "reason"),
    [
        ("request", 0, VERSIONS[0][0] - 1, f"Kafka {KAFKA_VERSION} knows versions 3 to {VERSIONS[0][1]}"),
        ("response", 0, VERSIONS[0][1] + 1, f"Kafka {KAFKA_VERSION} knows versions 3 to {VERSIONS[0][1]}"),
        ("request", 7, 0, f"not an API of Kafka {KAFKA_VERSION}"),
        ("response", 1000, 0, f"not an API of Kafka {KAFKA_VERSION}"),
    ],
)
def test_a_version_that_kafka_does_not_know_is_refused(
    direction: Direction, api_key: int, version: int, reason: str
) -> None:
    with pytest.raises(UnsupportedVersion, match=reason):
        decode_frame(direction, api_key, version, bytes(40))
    with pytest.raises(UnsupportedVersion, match=reason):
        encode_frame(direction, api_key, version, DecodedFrame({}, {}))


def test_every_prefix_of_a_frame_is_malformed_in_every_message_version() -> None:
    random = Random(21)
    for direction, api_key, version in all_versions():
        frame = encode_frame(direction, api_key, version, random_frame(direction, api_key, version, random))
        for length in sorted(random.sample(range(len(frame)), min(len(frame), 25))):
            error = malformed(direction, api_key, version, frame[:length])
            assert error.offset is not None
            assert 0 <= error.offset <= length


# --- bounds that hold for every message ------------------------------------------------------------------


def test_no_element_of_an_array_takes_less_than_one_byte_so_a_count_is_bounded_by_the_frame() -> None:
    def check(fields: tuple[Field, ...], version: int, where: str) -> None:
        for field in fields:
            if version in field.versions and field.type == "struct":
                codec = struct_codec(field.fields, version, version in field.flexible)
                assert not field.is_array or codec.min_bytes >= 1, f"{where}.{field.name}"
                check(field.fields, version, f"{where}.{field.name}")

    for direction, api_key, version in all_versions():
        message = message_of(direction, api_key)
        check(message.fields, version, f"{message.name} version {version}")
