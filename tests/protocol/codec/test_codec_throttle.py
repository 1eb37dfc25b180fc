"""Where throttle_time_ms stands, found out with the codec, against the generated table and the hot path.

A frame is encoded twice, with two values of the field that differ in every byte: where the frames differ is
the field.
"""

from __future__ import annotations

from random import Random

import pytest

from sluice.protocol._tables import KIND_AT_OFFSET, KIND_BEFORE_END, KIND_WALK, THROTTLE
from sluice.protocol.codec.codec import encode_frame
from sluice.protocol.throttle_field import throttle_offset
from testkit.frames.message_values import header_version, message_of, random_frame, versions_of

RESPONSE_VERSIONS = [
    (key, version) for key in THROTTLE for version in versions_of(message_of("response", key))
]
FRAMES = 12


def run_of(api_key: int, version: int) -> tuple[int, int] | None:
    """(kind, offset) of the table, None if the version is in no run."""
    found = [run[2:] for run in THROTTLE[api_key] if run[0] <= version <= run[1]]
    assert len(found) <= 1
    return found[0] if found else None


def frames_with_place(api_key: int, version: int) -> list[tuple[bytes, int | None]]:
    """Frames without their size, with the offset of the field; with unknown tagged fields at all levels."""
    random = Random(api_key * 100 + version)
    found: list[tuple[bytes, int | None]] = []
    for _ in range(FRAMES):
        value = random_frame("response", api_key, version, random, unknown_tags=True)
        if "throttleTimeMs" not in value.body:
            found.append((encode_frame("response", api_key, version, value), None))
            continue
        value.body["throttleTimeMs"] = 0x01020304
        one = encode_frame("response", api_key, version, value)
        value.body["throttleTimeMs"] = 0x0A0B0C0D
        other = encode_frame("response", api_key, version, value)
        differing = [i for i, (a, b) in enumerate(zip(one, other, strict=True)) if a != b]
        assert differing == list(range(differing[0], differing[0] + 4))
        found.append((one, differing[0]))
    return found


def body_start(api_key: int, version: int, frame: bytes) -> int:
    """Behind the correlation id and, in header v1, the tagged fields."""
    if header_version("response", api_key, version) == 0:
        return 4
    at = 5
    for _ in range(frame[4]):  # fewer than 128 tags; a tag and a size may take several bytes
        _, at = varint(frame, at)
        size, at = varint(frame, at)
        at += size
    return at


def varint(frame: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = frame[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at


@pytest.mark.parametrize(("api_key", "version"), RESPONSE_VERSIONS)
def test_the_table_says_where_the_field_stands(api_key: int, version: int) -> None:
    run = run_of(api_key, version)
    from_start: set[int] = set()
    from_end: set[int] = set()
    for frame, place in frames_with_place(api_key, version):
        assert (place is None) == (run is None)
        if place is not None:
            from_start.add(place - body_start(api_key, version, frame))
            from_end.add(len(frame) - place)
    if run is None:
        return
    kind, offset = run
    if kind == KIND_AT_OFFSET:
        assert from_start == {offset}
    elif kind == KIND_BEFORE_END:
        assert from_end == {offset}
    else:
        assert kind == KIND_WALK
        assert len(from_start) > 1, "a walk that a fixed offset would save"
        assert len(from_end) > 1, "a walk that a fixed distance from the end would save"


@pytest.mark.parametrize(("api_key", "version"), RESPONSE_VERSIONS)
def test_the_hot_path_finds_the_field_in_every_frame(api_key: int, version: int) -> None:
    for frame, place in frames_with_place(api_key, version):
        buf = bytearray(b"\xee" * 7 + len(frame).to_bytes(4, "big") + frame + b"\xee" * 5)
        found = throttle_offset(buf, 7, 11 + len(frame), api_key, version)
        assert found == (None if place is None else place + 11)
