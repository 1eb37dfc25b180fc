"""Frames ↔ values: every API and version of Kafka 4.3.1, both directions, with headers.

The cold path: `sluice decode`, tests, diagnosis; the proxy itself patches in place. Decode, then encode
gives the same bytes, unknown tagged fields included, or decode refuses the frame. A value is what JSON can
hold: the names of Kafka's own JSON converters, bytes as hex, uuids as Kafka prints them.
Source: common/message/*.json; KIP-482 (header v2), KIP-511 (ApiVersions).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import cast

from sluice.protocol._tables import KAFKA_VERSION
from sluice.protocol.apis import API_VERSIONS, ErrorCode
from sluice.protocol.codec.compile import struct_codec
from sluice.protocol.codec.spec_model import Direction, load_header, load_message
from sluice.protocol.codec.wire import MAX_VARINT_BYTES, Codec, Reader, Struct, Value, WireError, Writer
from sluice.protocol.errors import MalformedFrame, UnsupportedVersion
from sluice.protocol.names import api_name


class EncodeError(ValueError):
    """A value that this API and version cannot carry; the message names the field."""


@dataclass(frozen=True, slots=True)
class DecodedFrame:
    """One request or response. `wide_varints`: (ordinal in the walk, bytes) of varints longer than needed."""

    header: Struct
    body: Struct
    wide_varints: tuple[tuple[int, int], ...] = ()

    def to_json(self) -> Struct:
        """As an object for json.dumps; `wideVarints` only if there are any."""
        value: Struct = {"header": self.header, "body": self.body}
        if self.wide_varints:
            value["wideVarints"] = [list(pair) for pair in self.wide_varints]
        return value

    @classmethod
    def from_json(cls, value: Value) -> DecodedFrame:
        """Counterpart of to_json. Raises EncodeError if the object has another shape."""
        if not isinstance(value, dict) or not {"header", "body"} <= value.keys() <= {
            "header",
            "body",
            "wideVarints",
        }:
            raise EncodeError("not an object with header and body")
        header, body, pairs = value["header"], value["body"], value.get("wideVarints", [])
        if not isinstance(header, dict) or not isinstance(body, dict):
            raise EncodeError("header and body are not objects")
        if not isinstance(pairs, list) or not all(map(_is_wide_varint, pairs)):
            raise EncodeError(f"wideVarints are not pairs of an ordinal and 2 to {MAX_VARINT_BYTES} bytes")
        return cls(header, body, tuple((a, b) for a, b in cast("list[list[int]]", pairs)))


def _is_wide_varint(value: Value) -> bool:
    return (
        isinstance(value, list)
        and len(value) == 2
        and all(isinstance(number, int) for number in value)
        and 2 <= cast(int, value[1]) <= MAX_VARINT_BYTES
    )


def decode_frame(direction: Direction, api_key: int, api_version: int, frame: bytes) -> DecodedFrame:
    """Decode a frame without its 4-byte size. Memory grows with the frame, whatever its counts say.

    Raises UnsupportedVersion if Kafka 4.3.1 does not know the version, MalformedFrame, with API, version and
    offset in the frame, if the bytes contradict the layout, end early, go on behind it, or name another API.
    """
    reader = Reader(frame)
    # The body begins at byte 4 in an ApiVersions response; whether it is an error decides how it is read.
    error_code = int.from_bytes(frame[4:6], "big")
    header_codec, body_codec = _codecs(
        direction, api_key, _body_version(direction, api_key, api_version, error_code)
    )
    try:
        header = cast(Struct, header_codec.read(reader))
        if direction == "request":
            _match(header, api_key, api_version)
        body = cast(Struct, body_codec.read(reader))
        if reader.pos != reader.end:
            raise WireError(f"{reader.end - reader.pos} bytes behind the end of the body", reader.pos)
    except WireError as error:
        raise MalformedFrame(
            str(error), api_key=api_key, api_version=api_version, offset=error.offset
        ) from None
    return DecodedFrame(header, body, tuple(reader.wide))


def encode_frame(direction: Direction, api_key: int, api_version: int, frame: DecodedFrame) -> bytes:
    """Counterpart of decode_frame. A missing field gets its default, a missing tagged one is not written.

    Raises UnsupportedVersion as decode_frame does, EncodeError if a value does not fit its field or has none.
    """
    error_code = frame.body.get("errorCode")
    header_codec, body_codec = _codecs(
        direction, api_key, _body_version(direction, api_key, api_version, error_code)
    )
    writer = Writer(dict(frame.wide_varints))
    try:
        if direction == "request":
            _match(frame.header, api_key, api_version)
        header_codec.write(writer, frame.header)
        body_codec.write(writer, frame.body)
    except WireError as error:
        raise EncodeError(f"{api_name(api_key)} {direction} version {api_version}: {error}") from None
    return bytes(writer.out)


def _body_version(direction: Direction, api_key: int, api_version: int, error_code: Value) -> int:
    """The request's version, but 0 in the answer to an ApiVersionsRequest that the broker does not know.

    Then its error is 35; the version may be one that we do not know either. Source: KIP-511.
    """
    if direction == "response" and api_key == API_VERSIONS and error_code == ErrorCode.UNSUPPORTED_VERSION:
        return 0
    return api_version


@cache
def _codecs(direction: Direction, api_key: int, api_version: int) -> tuple[Codec, Codec]:
    """Header and body, compiled on first use. Raises UnsupportedVersion."""
    message = load_message(direction, api_key)
    if message is None:
        raise UnsupportedVersion(
            f"not an API of Kafka {KAFKA_VERSION}", api_key=api_key, api_version=api_version
        )
    if api_version not in message.versions:
        known = f"{message.versions.first} to {message.versions.last}"
        raise UnsupportedVersion(
            f"Kafka {KAFKA_VERSION} knows versions {known}", api_key=api_key, api_version=api_version
        )
    flexible = api_version in message.flexible
    if direction == "request":
        header_version = 2 if flexible else 1
    else:
        # A client reads the ApiVersions response before it can know which version it is (KIP-511).
        header_version = 1 if flexible and api_key != API_VERSIONS else 0
    header = load_header(direction)
    return (
        struct_codec(header.fields, header_version, header_version in header.flexible),
        struct_codec(message.fields, api_version, flexible),
    )


def _match(header: Struct, api_key: int, api_version: int) -> None:
    found = header.get("requestApiKey"), header.get("requestApiVersion")
    if found != (api_key, api_version):
        raise WireError(
            f"the header is of api {found[0]} version {found[1]}, not {api_key} version {api_version}", 0
        )
