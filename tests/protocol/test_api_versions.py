"""What an ApiVersions response offers is capped in place, and nothing else of it changes."""

from __future__ import annotations

import importlib
import io
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode
from kio.serial import entity_writer

from sluice.protocol._tables import VERSIONS
from sluice.protocol.api_versions import VersionCaps, api_versions_request
from sluice.protocol.codec.codec import DecodedFrame, decode_frame, encode_frame
from sluice.protocol.errors import MalformedFrame

untimed = settings(deadline=None)  # the machine may be busy
API_VERSIONS = 18
HEADER_BYTES = 4
CAPS = {0: (3, 13), 1: (4, 18), 3: (0, 13), 18: (0, 4)}

ENTRIES = st.lists(st.tuples(st.integers(-3, 100), st.integers(-1, 30), st.integers(-1, 30)), max_size=20)
UNKNOWN_TAGS = st.lists(
    st.tuples(st.integers(50, 300), st.binary(max_size=140)), max_size=2, unique_by=lambda pair: pair[0]
)


def tagged(struct: dict[str, Any], tags: list[tuple[int, bytes]]) -> dict[str, Any]:
    """The struct with tagged fields that Kafka 4.3.1 does not know."""
    unknown = [{"tag": tag, "hex": content.hex()} for tag, content in sorted(tags)]
    return {**struct, "_unknownTaggedFields": unknown} if unknown else struct


def response(
    version: int,
    entries: list[tuple[int, int, int]],
    error: int = 0,
    entry_tags: list[tuple[int, bytes]] | None = None,
    tags: list[tuple[int, bytes]] | None = None,
) -> bytes:
    keys = [{"apiKey": key, "minVersion": first, "maxVersion": last} for key, first, last in entries]
    body: dict[str, Any] = {"errorCode": error, "apiKeys": [tagged(key, entry_tags or []) for key in keys]}
    if version >= 1 and error != 35:
        body["throttleTimeMs"] = 77
    if version >= 3 and error != 35:
        feature = {"name": "kraft.version", "minVersion": 0, "maxVersion": 1}
        body |= {"supportedFeatures": [feature], "finalizedFeaturesEpoch": 3}
        body = tagged(body, tags or [])
    return encode_frame("response", API_VERSIONS, version, DecodedFrame({"correlationId": 5}, body))


def cap_versions(buf: bytearray, pos: int, end: int, version: int, caps: dict[int, tuple[int, int]]) -> None:
    """Read, and known from then on: both ways give the same."""
    known, again = VersionCaps(caps), bytearray(b"elsewhere" + buf)
    try:
        known.lower(buf, pos, end, version)
    finally:
        with suppress(MalformedFrame):
            known.lower(again, pos + 9, end + 9, version)
        assert again[9:] == buf


def capped(frame: bytes, version: int, caps: dict[int, tuple[int, int]] | None = None) -> bytes:
    """The frame with lowered versions; it stands in the middle of a larger buffer."""
    buf = bytearray(b"before" + frame + b"behind")
    cap_versions(buf, 6 + HEADER_BYTES, 6 + len(frame), version, CAPS if caps is None else caps)
    result = bytes(buf[6:-6])
    assert bytes(buf) == b"before" + result + b"behind"
    return result


@untimed
@given(
    version=st.integers(0, 4),
    error=st.sampled_from([0, 42, 35]),
    entries=ENTRIES,
    entry_tags=UNKNOWN_TAGS,
    tags=UNKNOWN_TAGS,
)
def test_each_maximum_is_lowered_to_its_cap_and_all_else_stays(
    version: int,
    error: int,
    entries: list[tuple[int, int, int]],
    entry_tags: list[tuple[int, bytes]],
    tags: list[tuple[int, bytes]],
) -> None:
    flexible = version >= 3 and error != 35
    frame = response(version, entries, error, entry_tags if flexible else None, tags)
    expected = decode_frame("response", API_VERSIONS, version, frame)
    keys: Any = expected.body["apiKeys"]
    for key in keys:
        if key["apiKey"] in CAPS:
            key["maxVersion"] = min(key["maxVersion"], CAPS[key["apiKey"]][1])
    result = capped(frame, version)
    assert decode_frame("response", API_VERSIONS, version, result) == expected
    assert len(result) == len(frame)


@pytest.mark.parametrize("version", range(5))
def test_what_kio_writes_is_capped_and_read_back_by_it(version: int) -> None:
    module = importlib.import_module(f"kio.schema.api_versions.v{version}.response")
    entity = module.ApiVersionsResponse(
        error_code=ErrorCode.none,
        api_keys=tuple(
            module.ApiVersion(api_key=key, min_version=0, max_version=99) for key in (0, 1, 3, 18, 99)
        ),
        **({"throttle_time": timedelta(0)} if version else {}),
    )
    out = io.BytesIO(b"\0\0\0\5")
    out.seek(0, io.SEEK_END)
    entity_writer(type(entity))(out, entity)
    keys: Any = decode_frame("response", API_VERSIONS, version, capped(out.getvalue(), version)).body[
        "apiKeys"
    ]
    assert [key["maxVersion"] for key in keys] == [13, 18, 13, 4, 99]


def test_our_tables_cap_a_broker_of_the_future() -> None:
    future = [(key, first, last + 3) for key, (first, last) in VERSIONS.items()]
    frame = capped(response(4, future), 4, VERSIONS)
    assert frame == response(4, [(key, first, last) for key, (first, last) in VERSIONS.items()])


def test_a_broker_that_offers_less_than_we_know_is_not_made_to_offer_more() -> None:
    frame = response(3, [(0, 0, 7), (1, 4, 4)])
    assert capped(frame, 3) == frame


@pytest.mark.parametrize("version", range(5))
def test_where_the_broker_begins_above_our_maximum_the_range_becomes_empty(version: int) -> None:
    assert capped(response(version, [(0, 14, 16), (3, 0, 14)]), version) == response(
        version, [(0, 14, 13), (3, 0, 13)]
    )


def test_an_api_that_we_do_not_know_keeps_its_range() -> None:
    frame = response(4, [(9999, 0, 3)])
    assert capped(frame, 4) == frame


@pytest.mark.parametrize("version", [0, 1, 2, 3, 4, 5, 99])
def test_error_35_means_a_body_of_v0_whatever_was_asked(version: int) -> None:
    frame = response(0, [(18, 0, 9)], error=35)
    assert capped(frame, version) == response(0, [(18, 0, 4)], error=35)


@pytest.mark.parametrize("error", [0, 42])
def test_no_other_error_means_a_body_of_v0(error: int) -> None:
    with pytest.raises(MalformedFrame):
        capped(response(0, [(18, 0, 9)], error), 3)


def test_a_newer_version_is_read_as_the_newest_known_one_if_the_walk_fits() -> None:
    frame = response(4, [(0, 3, 99)], tags=[(60, b"new")])
    assert capped(frame, 5) == response(4, [(0, 3, 13)], tags=[(60, b"new")])


@pytest.mark.parametrize("version", range(5))
def test_a_body_that_does_not_end_with_the_frame_is_refused_and_left_alone(version: int) -> None:
    entry_tags = [(60, b"abc")] if version >= 3 else None
    frame = response(version, [(0, 3, 99), (1, 0, 99)], entry_tags=entry_tags, tags=[(70, b"x" * 130)])
    wrong = [frame[:cut] for cut in range(HEADER_BYTES, len(frame))] + [frame + b"\0"]
    for each in wrong:
        buf = bytearray(each + b"\0" * 200)  # what lies behind the end must not help
        with pytest.raises(MalformedFrame):
            cap_versions(buf, HEADER_BYTES, len(each), version, CAPS)
        assert buf == each + b"\0" * 200


@pytest.mark.parametrize(("version", "body"), [(0, "0000ffffffff"), (3, "0000000000000000")])
def test_a_null_array_is_refused(version: int, body: str) -> None:
    data = bytearray.fromhex(body)
    with pytest.raises(MalformedFrame):
        cap_versions(data, 0, len(data), version, CAPS)


@pytest.mark.parametrize(("version", "body"), [(0, "00007fffffff"), (3, "0000ffffffff0f")])
def test_a_forged_count_is_refused_before_the_loop(version: int, body: str) -> None:
    data = bytearray.fromhex(body) + bytes(1000)
    with pytest.raises(MalformedFrame, match="array of"):
        cap_versions(data, 0, len(data), version, CAPS)


@untimed
@given(st.binary(max_size=80), st.integers(0, 6))
def test_random_bytes_are_capped_or_refused(body: bytes, version: int) -> None:
    buf = bytearray(body)
    try:
        cap_versions(buf, 0, len(buf), version, CAPS)
    except MalformedFrame:
        assert buf == body


@pytest.mark.parametrize("client_id", ["", "sluice", "é" * 40])
def test_the_proxys_own_question_is_the_frame_that_the_codec_reads(client_id: str) -> None:
    frame = api_versions_request(-7, client_id)
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    found = decode_frame("request", API_VERSIONS, 0, frame[4:])
    assert (found.header["correlationId"], found.header["clientId"]) == (-7, client_id)


def test_an_answer_of_another_version_or_body_is_read_anew() -> None:
    caps = VersionCaps(CAPS)
    for count in (1, 2, 1):
        for version in (0, 2, 4, 2):
            entries = [(0, 3, 99), (1, 0, 99)][:count]
            frame = bytearray(response(version, entries))
            caps.lower(frame, HEADER_BYTES, len(frame), version)
            read: Any = decode_frame("response", API_VERSIONS, version, bytes(frame)).body["apiKeys"]
            assert [key["maxVersion"] for key in read] == [13, 18][:count]


def test_answers_that_are_all_different_are_not_kept_for_ever() -> None:
    caps = VersionCaps(CAPS)
    for number in range(1_000):
        frame = bytearray(response(0, [(0, 3, 99), (1_000 + number, 0, 7)]))
        caps.lower(frame, HEADER_BYTES, len(frame), 0)
    large = bytearray(response(0, [(number, 0, 7) for number in range(2_000)]))
    caps.lower(large, HEADER_BYTES, len(large), 0)
    assert len(caps._known) <= 64
    assert all(len(body) <= 4_096 for _, body in caps._known)
