"""Every API, version and direction against Kafka's own classes, both ways: 604 message versions.

Values are random, from a fixed seed: a failure names API, version and direction, and repeats.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest

from sluice.protocol._tables import UNSTABLE, VERSIONS
from sluice.protocol.codec.codec import DecodedFrame, decode_frame, encode_frame
from testkit.frames.message_values import all_versions, header_version, message_of, random_frame
from testkit.oracles.java_oracle import JavaOracle, java_json, java_oracle

MESSAGE_VERSIONS = 604
INSTANCES = 4


@pytest.fixture(scope="module")
def java() -> Iterator[JavaOracle]:
    with java_oracle() as oracle:
        yield oracle


def test_the_tables_know_the_same_apis_and_versions_as_kafka(java: JavaOracle) -> None:
    assert java.api_keys() == VERSIONS.keys()
    for api_key, (first, last) in VERSIONS.items():
        assert java.versions(api_key) == (first, last, UNSTABLE.get(api_key, last)), f"api {api_key}"


def test_every_frame_that_kafka_writes_is_decoded_to_its_value_and_encoded_to_its_bytes(
    java: JavaOracle,
) -> None:
    random = Random(1)
    covered = 0
    for direction, api_key, version in all_versions():
        for _ in range(INSTANCES):
            value = random_frame(direction, api_key, version, random)
            frame = java.encode(direction, api_key, version, value.header, value.body)
            where = f"{message_of(direction, api_key).name} version {version}: {frame.hex()}"
            decoded = decode_frame(direction, api_key, version, frame)
            assert decoded == value, where
            assert encode_frame(direction, api_key, version, decoded) == frame, where
        covered += 1
    assert covered == MESSAGE_VERSIONS


def test_every_frame_that_we_encode_is_read_by_kafka_and_written_again_the_same_with_unknown_tags(
    java: JavaOracle,
) -> None:
    random = Random(2)
    covered = with_unknown_tags = 0
    for direction, api_key, version in all_versions():
        fields = message_of(direction, api_key).fields
        for _ in range(INSTANCES):
            value = random_frame(direction, api_key, version, random, unknown_tags=True)
            frame = encode_frame(direction, api_key, version, value)
            where = f"{message_of(direction, api_key).name} version {version}: {frame.hex()}"
            written, shown = java.rewrite(direction, api_key, version, frame)
            assert written == frame, where
            assert shown == java_json(fields, value.body, keep_records=False), where
            assert decode_frame(direction, api_key, version, frame) == value, where
            with_unknown_tags += "_unknownTaggedFields" in repr(value)
        covered += 1
    assert covered == MESSAGE_VERSIONS
    assert with_unknown_tags > MESSAGE_VERSIONS


def test_a_missing_field_gets_kafkas_default_in_every_message_version(java: JavaOracle) -> None:
    for direction, api_key, version in all_versions():
        header = random_frame(direction, api_key, version, Random(3)).header
        header["clientId" if direction == "request" else "correlationId"] = (
            "c" if direction == "request" else 7
        )
        expected = java.encode_default(direction, api_key, version, header)
        assert encode_frame(direction, api_key, version, DecodedFrame(header, {})) == expected, (
            f"{message_of(direction, api_key).name} version {version}"
        )


def test_header_versions_are_kafkas_for_every_message_version(java: JavaOracle) -> None:
    for direction, api_key, version in all_versions():
        expected = java.header_version(direction, api_key, version)
        assert header_version(direction, api_key, version) == expected, (
            f"{direction} {api_key} version {version}"
        )
