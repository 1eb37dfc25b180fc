"""NodeEndpoints of an answer that is cut through are gone, whatever pieces it comes in; all else is there."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Iterable, Iterator
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sluice.protocol.addresses.addresses import find_addresses
from sluice.protocol.addresses.node_endpoints import EndpointEraser
from sluice.protocol.apis import FETCH, PRODUCE, SHARE_FETCH
from sluice.protocol.codec.tags import UNKNOWN_TAGS
from sluice.protocol.codec.wire import Struct
from sluice.protocol.errors import MalformedFrame
from sluice.protocol.headers import RESPONSE_HEAD_BYTES, response_body
from testkit.frames.frames import TOPIC_ID, answer, decoded, random_answer, sized
from testkit.oracles.java_oracle import JavaOracle, java_oracle
from testkit.thorough import cases, some

UNUSED_TAG = 127
CARRIERS = [(PRODUCE, v) for v in range(10, 14)] + [(FETCH, v) for v in range(16, 19)]
CARRIERS += [(SHARE_FETCH, v) for v in (1, 2)]
every_carrier = pytest.mark.parametrize(("api_key", "version"), CARRIERS)
SEEDS = st.integers(0, 2**32)
NODE: Struct = {"nodeId": 3, "host": "broker-3.internal", "port": 19_093, "rack": "r1"}


def erased(frame: bytes, api_key: int, version: int, cuts: Iterable[int]) -> bytes:
    """`frame` as it goes on arriving in pieces that end at `cuts`; what is held back is given again."""
    eraser = EndpointEraser(api_key, version, len(frame) - RESPONSE_HEAD_BYTES)
    passed = bytearray(frame[:RESPONSE_HEAD_BYTES])
    for stop in sorted({*cuts, len(frame)}):
        if stop <= len(passed):
            continue
        before, behind = b"\x80\x80\x80", b"\xff" * 50
        buf = bytearray(before + frame[len(passed) : stop] + behind)
        end = len(buf) - len(behind)
        cut = eraser.pass_on(buf, len(before), end)
        assert len(before) <= cut <= end
        assert end - cut <= 9, "so few bytes are ever held back"
        assert buf.startswith(before), "wrote before its bytes"
        assert buf.endswith(behind), "wrote behind its bytes"
        passed += buf[len(before) : cut]
        assert eraser.left_bytes == len(frame) - len(passed)
    assert len(passed) == len(frame)
    return bytes(passed)


def answer_with_nodes(api_key: int, version: int, seed: int) -> bytes:
    """A random answer with endpoints, without a tag 127 of its own."""
    random = Random(seed)
    while True:
        frame = random_answer(api_key, version, random, correlation_id=7)
        body = decoded("response", api_key, version, frame).body
        if body.get("nodeEndpoints") and UNUSED_TAG not in unknown_tags(body):
            return frame


def unknown_tags(body: dict[str, Any]) -> dict[int, str]:
    return {entry["tag"]: entry["hex"] for entry in body.get(UNKNOWN_TAGS, [])}


def without_endpoints(frame: bytes, result: bytes, api_key: int, version: int) -> None:
    """`result` says what `frame` says, but for the endpoints, and nothing stands where they stood."""
    before = decoded("response", api_key, version, frame)
    after = decoded("response", api_key, version, result)
    tags_before, tags_after = unknown_tags(before.body), unknown_tags(after.body)
    blank = tags_after.pop(UNUSED_TAG)
    assert set(blank) == {"0"}
    if api_key == SHARE_FETCH:
        assert after.body["nodeEndpoints"] == []
        assert tags_after == {}, "all behind the array went into the one field"
    else:
        assert "nodeEndpoints" not in after.body
        assert tags_after == tags_before
    gone = {"nodeEndpoints", UNKNOWN_TAGS, "_tagOrder"}
    assert {k: v for k, v in after.body.items() if k not in gone} == {
        k: v for k, v in before.body.items() if k not in gone
    }
    assert after.header == before.header
    body = response_body(bytearray(result), 0, len(result), api_key, version)
    assert find_addresses(result, body, len(result), api_key, version) == []


@every_carrier
@settings(max_examples=cases(15), deadline=None)
@given(seed=SEEDS, data=st.data())
def test_endpoints_are_gone_in_whatever_pieces_the_answer_comes(
    api_key: int, version: int, seed: int, data: st.DataObject
) -> None:
    frame = answer_with_nodes(api_key, version, seed)
    whole = erased(frame, api_key, version, [])
    without_endpoints(frame, whole, api_key, version)
    cuts = data.draw(st.lists(st.integers(RESPONSE_HEAD_BYTES, len(frame)), max_size=30))
    assert erased(frame, api_key, version, cuts) == whole


@every_carrier
def test_endpoints_are_gone_in_every_two_parts_and_byte_by_byte(api_key: int, version: int) -> None:
    frame = answer_with_nodes(api_key, version, 11)
    seed = 11
    while len(frame) > 1500:
        seed += 1
        frame = answer_with_nodes(api_key, version, seed)
    whole = erased(frame, api_key, version, [])
    without_endpoints(frame, whole, api_key, version)
    for cut in range(RESPONSE_HEAD_BYTES, len(frame)):
        assert erased(frame, api_key, version, [cut]) == whole
    assert erased(frame, api_key, version, range(len(frame))) == whole


@every_carrier
@settings(max_examples=cases(20), deadline=None)
@given(seed=SEEDS, step=st.integers(1, 200))
def test_an_answer_without_endpoints_is_not_touched(api_key: int, version: int, seed: int, step: int) -> None:
    random = Random(seed)
    while True:
        frame = random_answer(api_key, version, random, correlation_id=7)
        if not decoded("response", api_key, version, frame).body.get("nodeEndpoints"):
            break
    assert erased(frame, api_key, version, range(0, len(frame), step)) == frame


@pytest.mark.parametrize("host_bytes", [1, 2, 95, *range(98, 116), 200, 16_350, 16_371, 30_000])
def test_an_array_of_any_length_becomes_an_empty_one_and_a_field_that_fills_its_place(
    host_bytes: int,
) -> None:
    """Around 128 and 16,384 bytes the field's size takes a byte more, so that the content has one less."""
    node: Struct = {"nodeId": 1, "host": "h" * host_bytes, "port": 9092, "rack": None}
    frame = answer(SHARE_FETCH, 1, {"nodeEndpoints": [node]})
    result = erased(frame, SHARE_FETCH, 1, [])
    assert len(result) == len(frame)
    without_endpoints(frame, result, SHARE_FETCH, 1)
    assert erased(frame, SHARE_FETCH, 1, range(0, len(frame), 7)) == result


def test_large_records_are_passed_over_without_a_look() -> None:
    """What stands in them looks like endpoints, tag and all."""
    inner = answer(FETCH, 17, {"nodeEndpoints": [NODE]})
    partitions: Any = [{"partitionIndex": i, "records": (inner * 3000).hex()} for i in range(3)]
    topics: Any = [{"topicId": TOPIC_ID, "partitions": partitions}]
    frame = answer(FETCH, 17, {"responses": topics, "nodeEndpoints": [NODE, NODE]})
    result = erased(frame, FETCH, 17, range(0, len(frame), 4096))
    without_endpoints(frame, result, FETCH, 17)
    assert result.count(b"broker-3.internal") == 3 * 3000


@pytest.mark.parametrize(
    ("tag", "blanked"), [("00", "7f"), ("8000", "ff00"), ("808000", "ff8000"), ("8080808000", "ff80808000")]
)
def test_a_tag_written_longer_than_needed_is_replaced_in_as_many_bytes(tag: str, blanked: str) -> None:
    """Behind a count that has a continuation bit too, for all that counts is where the tag begins."""
    node = "02000000010268000023840000"
    frame = sized(bytes.fromhex(f"00000001 00 01 00000000 8200 {tag}0d{node} 6403ffffff"))
    result = erased(frame, PRODUCE, 13, range(len(frame)))
    assert result == sized(bytes.fromhex(f"00000001 00 01 00000000 8200 {blanked}0d{'00' * 13} 6403ffffff"))


@pytest.fixture(scope="module")
def java() -> Iterator[JavaOracle]:
    with java_oracle() as oracle:
        yield oracle


def test_kafkas_own_classes_read_an_answer_without_endpoints(java: JavaOracle) -> None:
    for api_key, version in CARRIERS:
        for seed in range(10):
            frame = answer_with_nodes(api_key, version, seed)
            result = erased(frame, api_key, version, range(0, len(frame), 100))
            written, shown = java.rewrite("response", api_key, version, result[4:])
            assert written == result[4:], "it keeps the tag that it does not know"
            assert isinstance(shown, dict)
            assert not shown.get("nodeEndpoints")


def test_kafka_python_reads_an_answer_without_endpoints() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # it reads its own files in a deprecated way
        fetch = importlib.import_module("kafka.protocol.consumer").FetchResponse
    frame = answer(FETCH, 17, {"nodeEndpoints": [NODE]})
    read = fetch.decode(erased(frame, FETCH, 17, [])[4:], version=17, header=True)
    assert read.node_endpoints == []


@pytest.mark.thorough
@every_carrier
def test_an_answer_that_ends_before_its_frame_or_runs_beyond_it_is_refused(
    api_key: int, version: int
) -> None:
    seed = 3
    frame = answer_with_nodes(api_key, version, seed)
    while len(frame) > 1000:
        seed += 1
        frame = answer_with_nodes(api_key, version, seed)
    refused = 0
    for cut in some(range(RESPONSE_HEAD_BYTES + 1, len(frame))):
        for cuts in (range(0), range(cut)):
            try:
                result = erased(frame[:cut], api_key, version, cuts)
            except MalformedFrame:
                refused += 1
                continue
            # What stands behind the count of ShareFetch's endpoints is blanked unread.
            assert api_key == SHARE_FETCH
            assert decoded("response", api_key, version, sized(result[4:])).body["nodeEndpoints"] == []
    assert refused > cases(20)
    if api_key != SHARE_FETCH:
        with pytest.raises(MalformedFrame):
            erased(frame + b"\0", api_key, version, range(0, len(frame), 5))


@every_carrier
@settings(max_examples=cases(60), deadline=None)
@given(
    seed=SEEDS,
    place=st.floats(0, 1, exclude_max=True),
    damage=st.binary(min_size=1, max_size=6),
    step=st.integers(1, 300),
)
def test_a_damaged_answer_ends_in_one_of_its_size_or_in_a_malformed_frame(
    api_key: int, version: int, seed: int, place: float, damage: bytes, step: int
) -> None:
    frame = answer_with_nodes(api_key, version, seed % 10)
    at = RESPONSE_HEAD_BYTES + int(place * (len(frame) - RESPONSE_HEAD_BYTES))
    frame = (frame[:at] + damage + frame[at + len(damage) :])[: len(frame)]

    def outcome(cuts: Iterable[int]) -> bytes | None:
        try:
            return erased(frame, api_key, version, cuts)
        except MalformedFrame:
            return None

    assert outcome([]) == outcome(range(0, len(frame), step))


@pytest.mark.parametrize("count", ["00", "ffffffff0f", "ffffffffff"], ids=["null", "forged", "no varint"])
def test_a_forged_count_is_refused_before_anything_behind_it_goes(count: str) -> None:
    frame = sized(bytes.fromhex(f"00000001 00 00000000 0000 00000000 {count}") + bytes(100))
    with pytest.raises(MalformedFrame):
        erased(frame, FETCH, 17, range(len(frame)))
