"""The walk through described delegation tokens finds what the codec does, in every version."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from sluice.protocol import delegation_tokens
from sluice.protocol.apis import ApiKey, readable_versions
from sluice.protocol.codec.codec import encode_frame
from sluice.protocol.codec.wire import Struct, Value
from sluice.protocol.delegation_tokens import read_tokens, walk_tokens
from sluice.protocol.errors import MalformedFrame
from sluice.protocol.headers import response_body
from testkit.frames.frames import answer, decoded, sized
from testkit.frames.message_values import random_frame

DESCRIBE = ApiKey.DESCRIBE_DELEGATION_TOKEN.value
VERSIONS = readable_versions(DESCRIBE)
EACH_VERSION = pytest.mark.parametrize("version", VERSIONS)
BEHIND = b"\xff" * 40


def read(frame: bytes, version: int) -> list[tuple[str, str, str]]:
    buf = bytearray(frame + BEHIND)
    return read_tokens(buf, response_body(buf, 0, len(frame), DESCRIBE, version), len(frame), version)


def expected(frame: bytes, version: int) -> list[tuple[str, str, str]]:
    body: Any = decoded("response", DESCRIBE, version, frame).body
    if body["errorCode"]:
        return []
    return [(one["principalType"], one["principalName"], one["tokenId"]) for one in body["tokens"]]


def described(version: int, *renewers: int, name: str = "x", kind: str = "User") -> bytes:
    """A token for each number, with so many renewers."""
    tokens: list[Value] = []
    for number, count in enumerate(renewers):
        renewer: Struct = {"principalType": kind, "principalName": name}
        tokens.append({
            "principalType": "User", "principalName": "alice", "tokenId": f"t-{number}", "hmac": "00" * 64,
            "renewers": [renewer] * count,
        })  # fmt: skip
    return answer(DESCRIBE, version, {"tokens": tokens})


@EACH_VERSION
def test_random_answers_are_read_as_by_the_codec(version: int) -> None:
    random = Random(version)
    found = 0
    for _ in range(50):
        value = random_frame("response", DESCRIBE, version, random, unknown_tags=True)
        value.body["errorCode"] = random.choice((0, 0, 61))
        frame = sized(encode_frame("response", DESCRIBE, version, value))
        assert read(frame, version) == expected(frame, version)
        found += len(read(frame, version))
    assert found


@EACH_VERSION
@pytest.mark.parametrize("length", [0, 1, 125, 126, 127, 128, 254, 255, 256, 257, 32_767])
def test_names_of_renewers_may_have_any_length(version: int, length: int) -> None:
    for kind, name in (("User", "x" * length), ("x" * length, "y"), ("x" * length, "y" * length)):
        frame = described(version, 3, 0, 1, name=name, kind=kind)
        assert read(frame, version) == expected(frame, version)


@EACH_VERSION
def test_no_part_of_an_answer_is_one_whatever_stands_behind_it(version: int) -> None:
    frame = described(version, 2, 60)
    for end in range(8, len(frame)):
        for behind in (b"\0", b"\1", b"\x7f", b"\xff"):
            buf = bytearray(frame[:end] + behind * 600)
            with pytest.raises(MalformedFrame):
                read_tokens(buf, response_body(buf, 0, end, DESCRIBE, version), end, version)


@EACH_VERSION
def test_bytes_behind_the_answers_end_are_an_error(version: int) -> None:
    with pytest.raises(MalformedFrame, match="behind the last token"):
        read(described(version, 1) + b"\0", version)


@EACH_VERSION
def test_renewers_are_skipped_without_a_call_for_each(version: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """24 tokens of 2,000 renewers, which 20 bytes ask for, took 0.2 s."""
    calls: list[str] = []
    for name in ("skip_compact_nullable", "skip_nullable_string", "skip_tags"):
        skip = getattr(delegation_tokens, name)

        def noted(buf: bytearray, pos: int, end: int, name: str = name, skip: Any = skip) -> int:
            calls.append(name)
            found: int = skip(buf, pos, end)
            return found

        monkeypatch.setattr(delegation_tokens, name, noted)
    frame = bytearray(described(version, *[2_000] * 24))
    body = response_body(frame, 0, len(frame), DESCRIBE, version)
    places, _ = walk_tokens(frame, body, len(frame), version)
    assert len(places) == 24
    assert len(calls) < 24 * 10 + 300, "some for each token, and for the renewers at the answer's end"
