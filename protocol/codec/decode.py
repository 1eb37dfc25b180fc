"""`sluice decode`: JSON lines that hold frames → JSON lines that say what is in them.

In: {"api_key", "api_version", "direction": "request" | "response", "hex"}, a frame with its header, without
its 4-byte size; other keys are ignored. Out, for each line: {"header", "body"}, with roundtrip also "hex",
encoded from what the same line shows; or {"error"}. Knows nothing of files and exit codes.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterable
from typing import Final, TextIO, cast

from sluice.protocol.codec.codec import DecodedFrame, EncodeError, decode_frame, encode_frame
from sluice.protocol.codec.spec_model import Direction
from sluice.protocol.codec.wire import Value, WireError, from_hex, shorten
from sluice.protocol.errors import ProtocolError

KEYS: Final = ("api_key", "api_version", "direction", "hex")


class _BadLine(Exception):
    """What is wrong with a line of input."""


def run(source: Iterable[str], sink: TextIO, roundtrip: bool) -> int:
    """Answer each line of `source` with a line in `sink`, at once; return how many of the answers are errors.

    Never raises for what a line holds. Bytes that are not UTF-8 make a line an error, not the program's end.
    """
    if isinstance(source, io.TextIOWrapper):
        source.reconfigure(errors="surrogateescape")
    errors = 0
    for line in source:
        answer = _answer(line, roundtrip)
        errors += "error" in answer
        sink.write(json.dumps(answer) + "\n")
        sink.flush()  # whoever feeds us line by line waits for this
    return errors


def decode_line(line: str, roundtrip: bool) -> str:
    """One line of input → one line of output, without a line's end. Never raises for what the line holds."""
    return json.dumps(_answer(line, roundtrip))


def _answer(line: str, roundtrip: bool) -> dict[str, Value]:
    try:
        direction, api_key, api_version, frame = _parse(line)
        answer = decode_frame(direction, api_key, api_version, frame).to_json()
        if roundtrip:
            shown = json.loads(json.dumps(answer))  # so the line alone is enough to get the frame back
            answer["hex"] = encode_frame(direction, api_key, api_version, DecodedFrame.from_json(shown)).hex()
    except (_BadLine, ProtocolError, EncodeError) as error:
        return {"error": str(error)}
    return answer


def _parse(line: str) -> tuple[Direction, int, int, bytes]:
    if not line.strip():
        raise _BadLine("an empty line")
    try:
        value = json.loads(line)
    except RecursionError:
        raise _BadLine("not JSON that can be read: nested too deeply") from None
    except ValueError as error:  # also a number of more digits than Python converts
        raise _BadLine(f"not JSON: {error}") from None
    if not isinstance(value, dict):
        raise _BadLine(f"not a JSON object: {shorten(value)}")
    missing = [key for key in KEYS if key not in value]
    if missing:
        raise _BadLine(f"missing key: {', '.join(missing)}")
    direction = value["direction"]
    if direction not in ("request", "response"):
        raise _BadLine(f"direction: neither request nor response: {shorten(direction)}")
    try:
        frame = from_hex(value["hex"])
    except WireError as error:
        raise _BadLine(f"hex: {error}") from None
    return cast(Direction, direction), _int16(value, "api_key"), _int16(value, "api_version"), frame


def _int16(value: dict[str, object], key: str) -> int:
    number = value[key]
    if isinstance(number, bool) or not isinstance(number, int) or not -0x8000 <= number <= 0x7FFF:
        raise _BadLine(f"{key}: not an int16: {shorten(number)}")
    return number
