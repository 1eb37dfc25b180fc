"""throttle_time_ms, raised in place in every answer that has it; the codec judges what else changed."""

from __future__ import annotations

import struct
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.protocol import throttle_field
from sluice.protocol._tables import KIND_AT_OFFSET, KIND_WALK, THROTTLE
from sluice.protocol.apis import ApiKey, readable_versions
from sluice.protocol.codec.codec import decode_frame, encode_frame
from sluice.protocol.codec.wire import Value
from sluice.protocol.errors import MalformedFrame
from sluice.protocol.headers import response_body
from sluice.protocol.names import api_name
from sluice.protocol.primitives import skip_compact_nullable
from sluice.protocol.throttle_field import (
    MAX_THROTTLE_MS,
    at_fixed_offset,
    raise_at_fixed_offset,
    raise_in_whole,
    raise_throttle,
    throttle_offset,
)
from testkit.frames.frames import (
    API_VERSIONS,
    METADATA,
    PRODUCE,
    answer,
    decoded,
    produce_answer,
    sized,
    throttle_of,
)
from testkit.frames.message_values import message_of, random_frame, versions_of


def has_field(api_key: int, version: int) -> bool:
    return any(first <= version <= last for first, last, _, _ in THROTTLE[api_key])


ANSWER_VERSIONS = {api_key: versions_of(message_of("response", api_key)) for api_key in THROTTLE}
WITH_FIELD = {key: [v for v in versions if has_field(key, v)] for key, versions in ANSWER_VERSIONS.items()}
WITHOUT_FIELD = [
    (key, v) for key, versions in ANSWER_VERSIONS.items() for v in versions if not has_field(key, v)
]
EACH_API = pytest.mark.parametrize("api_key", [key for key in THROTTLE if WITH_FIELD[key]], ids=api_name)
FRAMES = 3


def test_the_tables_name_every_answer_of_kafka() -> None:
    """302 answer versions, of which 41 have no throttle_time_ms (wire-semantics 5) and 261 have it."""
    assert sum(map(len, WITH_FIELD.values())) == 261
    assert len(WITHOUT_FIELD) == 41


@EACH_API
def test_exactly_the_throttle_is_raised_and_never_lowered(api_key: int) -> None:
    """The broker's 0, 1,000 and 2^31 − 1 against ours of 1,000: 1,000, 1,000 and 2^31 − 1."""
    random = Random(api_key)
    for version in WITH_FIELD[api_key] * FRAMES:
        for brokers in (0, 1_000, MAX_THROTTLE_MS):
            value = random_frame("response", api_key, version, random, unknown_tags=True)
            value.body["throttleTimeMs"] = brokers
            frame = sized(encode_frame("response", api_key, version, value))
            behind = random.randbytes(40)
            buf = bytearray(b"\xff" * 7 + frame + behind)
            end = 7 + len(frame)

            offset = throttle_offset(buf, 7, end, api_key, version)
            assert offset is not None
            raise_throttle(buf, offset, 1_000)

            value.body["throttleTimeMs"] = max(brokers, 1_000)
            expected = sized(encode_frame("response", api_key, version, value))
            assert buf == b"\xff" * 7 + expected + behind, f"version {version}"


def test_an_answer_without_the_field_has_no_place_for_it() -> None:
    for api_key, version in WITHOUT_FIELD:
        value = random_frame("response", api_key, version, Random(version))
        frame = bytearray(sized(encode_frame("response", api_key, version, value)))
        assert throttle_offset(frame, 0, len(frame), api_key, version) is None
        assert at_fixed_offset(api_key, version) is None


@EACH_API
def test_a_fixed_place_is_found_before_the_end_of_the_answer_has_arrived(api_key: int) -> None:
    for version in WITH_FIELD[api_key]:
        is_fixed = any(a <= version <= b and kind == KIND_AT_OFFSET for a, b, kind, _ in THROTTLE[api_key])
        offset = at_fixed_offset(api_key, version)
        assert (offset is not None) == is_fixed
        if offset is not None:
            value = random_frame("response", api_key, version, Random(2), unknown_tags=True)
            frame = bytearray(sized(encode_frame("response", api_key, version, value)))
            body = response_body(frame, 0, len(frame), api_key, version)
            assert throttle_offset(frame, 0, len(frame), api_key, version) == body + offset


@EACH_API
def test_a_truncated_answer_is_an_error_or_has_the_place_in_its_body(api_key: int) -> None:
    """Never in the correlation id, never in what stands behind the frame's end in the shared buffer."""
    random = Random(api_key)
    for version in WITH_FIELD[api_key]:
        value = random_frame("response", api_key, version, random)
        frame = sized(encode_frame("response", api_key, version, value))
        for end in {8, 9, 11, 12, len(frame) // 2, *range(max(8, len(frame) - 12), len(frame))}:
            for filler in (b"\x00", b"\x01", b"\xff", b"\x7f"):
                buf = bytearray(frame[:end] + filler * 64)
                try:
                    offset = throttle_offset(buf, 0, end, api_key, version)
                except MalformedFrame:
                    continue
                assert offset is not None
                assert 8 <= offset <= end - 4, f"version {version}, {end} of {len(frame)} bytes"


def test_the_error_answer_to_an_unknown_api_versions_request_has_no_field() -> None:
    """Error 35, and only that, means a body of v0, whatever was asked (KIP-511): no throttle in it."""
    keys = b"".join(struct.pack(">hhh", key, 0, 9) for key in range(20))
    frame = bytearray(sized(struct.pack(">ihi", 1, 35, 20) + keys))
    for version in readable_versions(ApiKey.API_VERSIONS):
        assert throttle_offset(frame, 0, len(frame), API_VERSIONS, version) is None


def test_a_throttle_beyond_the_field_is_cut_to_its_largest() -> None:
    frame = bytearray(produce_answer(version=11))
    offset = throttle_offset(frame, 0, len(frame), PRODUCE, 11)
    assert offset is not None
    raise_throttle(frame, offset, 2**40)
    assert throttle_of(PRODUCE, 11, frame) == 2**31 - 1


@given(
    version=st.integers(3, 13),
    count=st.sampled_from((2**32 - 1, 2**31, 2**28, 100_000, 5_000)),
    filler=st.binary(min_size=1, max_size=3),
)
def test_a_forged_count_ends_at_the_end_of_the_frame(version: int, count: int, filler: bytes) -> None:
    """The walk is bounded by the bytes left: 10,000 of them, whatever the count says."""
    varint = bytearray()
    while count > 0x7F:
        varint.append(count & 0x7F | 0x80)
        count >>= 7
    varint.append(count)
    content = struct.pack(">i", 1) + b"\0" + varint + filler * (10_000 // len(filler))
    frame = bytearray(sized(content))
    try:
        offset = throttle_offset(frame, 0, len(frame), PRODUCE, version)
    except MalformedFrame:
        return
    assert offset is not None
    assert 8 <= offset <= len(frame) - 4


def test_a_broken_layout_names_api_version_and_offset() -> None:
    frame = bytearray(answer(PRODUCE, 3, {"throttleTimeMs": 5})[:4] + b"\0\0\0\1")
    with pytest.raises(MalformedFrame) as caught:
        throttle_offset(frame[:6], 0, 6, PRODUCE, 3)
    assert (caught.value.api_key, caught.value.api_version) == (PRODUCE, 3)
    assert caught.value.offset is not None


def test_the_codec_agrees_with_what_these_tests_took_for_granted() -> None:
    """The ApiVersions answer of error 35 is v0 to the codec as well."""
    frame = sized(struct.pack(">ihi", 1, 35, 1) + struct.pack(">hhh", 0, 0, 9))
    assert decoded("response", API_VERSIONS, 4, frame) == decode_frame("response", API_VERSIONS, 0, frame[4:])


def test_a_version_that_is_readable_without_a_walk_is_told_not_guessed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Somebody has raised READABLE and written no walk."""
    monkeypatch.setitem(throttle_field._PLACES, (METADATA, 13), (KIND_WALK, 0))
    frame = bytearray(answer(METADATA, 13))
    with pytest.raises(MalformedFrame, match="no walk"):
        throttle_offset(frame, 0, len(frame), METADATA, 13)


@pytest.mark.parametrize("version", [v for v in readable_versions(ApiKey.PRODUCE) if v >= 9])
def test_partitions_without_errors_are_passed_over_without_a_call_for_each(
    version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """15,000 of them took 34 ms, in which nobody else was served."""
    calls: list[int] = []

    def noted(buf: bytearray, pos: int, end: int) -> int:
        calls.append(pos)
        return skip_compact_nullable(buf, pos, end)

    monkeypatch.setattr(throttle_field, "skip_compact_nullable", noted)
    partitions: list[Value] = [{"index": number} for number in range(500)]
    partitions[7] = {"index": 7, "errorCode": 87, "errorMessage": "no", "recordErrors": [{"batchIndex": 1}]}
    frame = bytearray(answer(PRODUCE, version, {"responses": [{"partitionResponses": partitions}] * 3}))
    raise_in_whole(frame, 0, len(frame), PRODUCE, version, 70)
    assert throttle_of(PRODUCE, version, frame) == 70
    assert len(calls) <= 3 * 3


def test_nothing_is_written_where_the_field_is_absent_moves_or_has_not_arrived() -> None:
    whole = bytearray(answer(METADATA, 1))  # has none
    raise_in_whole(whole, 0, len(whole), METADATA, 1, 70)
    assert whole == answer(METADATA, 1)
    moves = bytearray(produce_answer())
    assert not raise_at_fixed_offset(moves, 0, len(moves), PRODUCE, 9, 70)
    assert moves == produce_answer()
    fixed = bytearray(answer(METADATA, 9))
    body = response_body(fixed, 0, len(fixed), METADATA, 9)
    assert not raise_at_fixed_offset(fixed, 0, body + 3, METADATA, 9, 70)
    assert fixed == answer(METADATA, 9)
    assert raise_at_fixed_offset(fixed, 0, body + 4, METADATA, 9, 70)
    assert throttle_of(METADATA, 9, fixed) == 70
