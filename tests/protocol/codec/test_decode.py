"""`sluice decode` behind its command line: JSON lines in, JSON lines out, whatever a line holds."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sluice.protocol._tables import KAFKA_VERSION, VERSIONS
from sluice.protocol.codec.codec import encode_frame
from sluice.protocol.codec.decode import decode_line, run
from testkit.frames.message_values import all_versions, random_frame

METADATA = "000300040000000700026d65ffffffff01"  # v4, correlation id 7, client id "me", all topics


def line(**changes: Any) -> str:
    value = {"api_key": 3, "api_version": 4, "direction": "request", "hex": METADATA, **changes}
    return json.dumps({key: content for key, content in value.items() if content is not ...})


def test_a_line_gives_header_and_body() -> None:
    assert json.loads(decode_line(line(), roundtrip=False)) == {
        "header": {"requestApiKey": 3, "requestApiVersion": 4, "correlationId": 7, "clientId": "me"},
        "body": {"topics": None, "allowAutoTopicCreation": True},
    }


def test_roundtrip_adds_the_frame_encoded_from_what_is_shown() -> None:
    assert json.loads(decode_line(line(), roundtrip=True))["hex"] == METADATA


def test_hex_digits_may_be_upper_case_and_other_keys_are_ignored() -> None:
    answer = json.loads(decode_line(line(hex=METADATA.upper(), ts_ms=5), roundtrip=True))
    assert answer["hex"] == METADATA


def test_every_message_version_comes_back_from_its_line() -> None:
    random = Random(51)
    for direction, api_key, version in all_versions():
        value = random_frame(direction, api_key, version, random, unknown_tags=True)
        frame = encode_frame(direction, api_key, version, value).hex()
        asked = line(api_key=api_key, api_version=version, direction=direction, hex=frame)
        answer = json.loads(decode_line(asked, roundtrip=True))
        assert answer == {"header": value.header, "body": value.body, "hex": frame}


def test_a_frame_spelled_in_an_unusual_way_shows_it_and_comes_back() -> None:
    frame = "0003000c00000007ffff" + "8000" + "00" + "010000"
    asked = line(api_version=12, hex=frame)
    answer = json.loads(decode_line(asked, roundtrip=True))
    assert (answer["hex"], answer["wideVarints"]) == (frame, [[1, 2]])


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "an empty line"),
        ("   ", "an empty line"),
        ("{", "not JSON: Expecting property name"),
        ("5", "not a JSON object: 5"),
        ("null", "not a JSON object: None"),
        ("[1, 2]", "not a JSON object: an array of 2"),
        ("[" * 100_000, "nested too deeply"),
        ("[" * 900 + "]" * 900, "not a JSON object: an array of 1"),
        ('{"api_key": ' + "9" * 5000 + "}", "not JSON: Exceeds the limit"),
        ("{}", "missing key: api_key, api_version, direction, hex"),
        (line(hex=...), "missing key: hex"),
        (line(api_key="3"), "api_key: not an int16: '3'"),
        (line(api_key=True), "api_key: not an int16: True"),
        (line(api_key=3.0), "api_key: not an int16: 3.0"),
        (line(api_key=40_000), "api_key: not an int16: 40000"),
        (line(api_version=None), "api_version: not an int16: None"),
        (line(api_version=[[]]), "api_version: not an int16: an array of 1"),
        (line(direction="Request"), "direction: neither request nor response: 'Request'"),
        (line(direction=["request"]), "direction: neither request nor response: an array of 1"),
        (line(hex=METADATA[:-1]), "hex: not hex: odd-length string"),
        (line(hex="zz"), "hex: not hex: non-hexadecimal digit found"),
        (line(hex="00 03"), "hex: not hex: "),
        (line(hex="٠٠"), "hex: not hex: "),
        (line(hex=12), "hex: not a string of hex digits: 12"),
        (
            line(hex=""),
            "requestApiKey: 2 bytes are due where 0 are left, api Metadata (3), version 4, offset 0",
        ),
        (line(api_key=7), f"not an API of Kafka {KAFKA_VERSION}, api ControlledShutdown (7), version 4"),
        (line(api_key=-1), f"not an API of Kafka {KAFKA_VERSION}, api ApiKey-1 (-1), version 4"),
        (
            line(api_version=99),
            f"Kafka {KAFKA_VERSION} knows versions 0 to {VERSIONS[3][1]}, api Metadata (3), version 99",
        ),
        (line(api_version=5), "the header is of api 3 version 4, not 3 version 5"),
        (
            line(hex=METADATA + "00"),
            "1 bytes behind the end of the body, api Metadata (3), version 4, offset 17",
        ),
    ],
)
def test_a_line_that_is_no_frame_gives_an_error_that_says_why(text: str, complaint: str) -> None:
    answer = json.loads(decode_line(text, roundtrip=True))
    assert answer.keys() == {"error"}
    assert complaint in answer["error"]


@settings(deadline=None)
@given(
    st.one_of(
        st.text(),
        st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists).map(json.dumps),
        st.fixed_dictionaries(
            {
                "api_key": st.integers(-2, 95),
                "api_version": st.integers(-2, 20),
                "direction": st.sampled_from(["request", "response", "both"]),
                "hex": st.one_of(st.binary(max_size=60).map(bytes.hex), st.text(max_size=20)),
            }
        ).map(json.dumps),
    )
)
def test_no_line_raises(text: str) -> None:
    answer = decode_line(text, roundtrip=True)
    assert "\n" not in answer
    assert json.loads(answer).keys() in (
        {"error"},
        {"header", "body", "hex"},
        {"header", "body", "hex", "wideVarints"},
    )


def test_a_stream_is_answered_line_by_line_and_its_errors_are_counted() -> None:
    source = io.StringIO("\n".join([line(), "", line(hex="0"), line()]))
    sink = io.StringIO()
    assert run(source, sink, roundtrip=False) == 2
    answers = [json.loads(text) for text in sink.getvalue().splitlines()]
    assert ["error" in answer for answer in answers] == [False, True, True, False]


def test_bytes_that_are_not_utf_8_are_one_lines_error() -> None:
    raw = io.BytesIO(b"\xff\xfe\n" + line().encode() + b"\n")
    sink = io.StringIO()
    with io.TextIOWrapper(raw, encoding="utf-8") as source:
        assert run(source, sink, roundtrip=True) == 1
    assert [json.loads(text).keys() for text in sink.getvalue().splitlines()] == [
        {"error"},
        {"header", "body", "hex"},
    ]


class Talk(io.StringIO):
    """A sink that knows how many of its lines have been flushed."""

    flushed = 0

    def flush(self) -> None:
        self.flushed = self.getvalue().count("\n")


def test_an_answer_is_out_before_the_next_line_is_read() -> None:
    sink = Talk()
    flushed_before_line = []

    def lines() -> Iterator[str]:
        for _ in range(3):
            flushed_before_line.append(sink.flushed)
            yield line() + "\n"

    assert run(lines(), sink, roundtrip=False) == 0
    assert flushed_before_line == [0, 1, 2]
