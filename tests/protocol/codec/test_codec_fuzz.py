"""Bytes from anybody: the codec refuses them in one way, or gives them back as they were."""

from __future__ import annotations

import json
import tracemalloc
from random import Random

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from sluice.protocol.codec.codec import DecodedFrame, decode_frame, encode_frame
from sluice.protocol.codec.spec_model import Direction
from sluice.protocol.errors import MalformedFrame, ProtocolError, UnsupportedVersion
from testkit.frames.message_values import all_versions, random_frame

EVERY_VERSION = list(all_versions())
fuzz = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

# Places in a frame as fractions, so that they shrink well and fit a frame of any length.
edits = st.lists(
    st.one_of(
        st.tuples(st.just("set"), st.floats(0, 1), st.binary(min_size=1, max_size=5)),
        st.tuples(st.just("insert"), st.floats(0, 1), st.binary(min_size=1, max_size=5)),
        st.tuples(st.just("cut"), st.floats(0, 1), st.binary(max_size=3)),
    ),
    min_size=1,
    max_size=4,
)


def edit(frame: bytes, kind: str, place: float, content: bytes) -> bytes:
    at = int(place * len(frame))
    after = {"set": at + len(content), "insert": at, "cut": at + 1 + len(content)}[kind]
    return frame[:at] + (b"" if kind == "cut" else content) + frame[after:]


def refused_or_given_back(
    direction: Direction, api_key: int, version: int, frame: bytes
) -> ProtocolError | None:
    """The error that refused the frame. Any other exception than the two that are meant fails the test."""
    try:
        decoded = decode_frame(direction, api_key, version, frame)
    except (MalformedFrame, UnsupportedVersion) as error:
        refusal: ProtocolError = error
    else:
        shown = json.loads(json.dumps(decoded.to_json()))
        assert encode_frame(direction, api_key, version, DecodedFrame.from_json(shown)) == frame
        return None
    assert (refusal.api_key, refusal.api_version) == (api_key, version)
    if isinstance(refusal, MalformedFrame):
        assert refusal.offset is not None
        assert 0 <= refusal.offset <= len(frame)
    return refusal


@fuzz
@given(st.sampled_from(EVERY_VERSION), st.integers(0, 2**32), edits)
@example(("response", 18, 3), 1, [("set", 0.2, b"\x00\x23")])
def test_a_damaged_frame_is_refused_or_comes_back_byte_by_byte(
    message: tuple[Direction, int, int], seed: int, damage: list[tuple[str, float, bytes]]
) -> None:
    frame = encode_frame(*message, random_frame(*message, Random(seed), unknown_tags=True))
    for kind, place, content in damage:
        frame = edit(frame, kind, place, content)
    refused_or_given_back(*message, frame)


@fuzz
@given(st.sampled_from(EVERY_VERSION), st.binary(max_size=200))
def test_random_bytes_behind_a_right_header_are_refused_or_come_back(
    message: tuple[Direction, int, int], tail: bytes
) -> None:
    direction, api_key, version = message
    head = api_key.to_bytes(2, "big") + version.to_bytes(2, "big") if direction == "request" else b""
    refused_or_given_back(direction, api_key, version, head + tail)


@fuzz
@given(
    st.sampled_from(["request", "response"]),
    st.integers(-5, 200),
    st.integers(-5, 30),
    st.binary(max_size=64),
)
def test_any_api_and_version_with_any_bytes_end_in_a_value_or_in_one_of_two_errors(
    direction: Direction, api_key: int, version: int, frame: bytes
) -> None:
    refused_or_given_back(direction, api_key, version, frame)


def test_damage_is_often_enough_taken_for_the_way_back_to_be_tested() -> None:
    """Without this the properties above could pass by refusing everything."""
    random = Random(31)
    taken = 0
    for message in EVERY_VERSION:
        frame = encode_frame(*message, random_frame(*message, random, unknown_tags=True))
        at = random.randrange(len(frame))
        damaged = frame[:at] + random.randbytes(1) + frame[at + 1 :]
        taken += refused_or_given_back(*message, damaged) is None
    assert taken > len(EVERY_VERSION) // 4


@pytest.mark.parametrize("count", ["7fffffff", "00ffffff", "ffffffff07", "ffffff7f", "80808004"])
def test_a_count_that_cannot_fit_takes_no_memory(count: str) -> None:
    """Somewhere in a frame of every message version: what is allocated stays in proportion to the frame."""
    random = Random(41)
    attack = bytes.fromhex(count)
    frames = []
    for direction, api_key, version in EVERY_VERSION:
        frame = encode_frame(direction, api_key, version, random_frame(direction, api_key, version, random))
        at = random.randrange(4, len(frame) + 1)
        frames.append((direction, api_key, version, frame[:at] + attack + frame[at + len(attack) :]))
        refused_or_given_back(*frames[-1])  # compiled before memory is watched
    tracemalloc.start()
    try:
        for message in frames:
            tracemalloc.reset_peak()
            before = tracemalloc.get_traced_memory()[0]
            refused_or_given_back(*message)
            used = tracemalloc.get_traced_memory()[1] - before
            assert used < 100_000 + 500 * len(message[3]), message
    finally:
        tracemalloc.stop()
