"""The fixed parts of every frame: size, request header v0–v2, response header v0–v1.

    request   size int32 | apiKey int16 | apiVersion int16 | correlationId int32 | clientId nullable string |
    v2: tags response  size int32 | correlationId int32 | v1: tags

ClientId is never a compact string, not even in the flexible header v2 (RequestHeader.json, KIP-511): a
broker must be
able to read it before it knows the version. ApiVersions answers always carry header v0 (KIP-511) for the
same reason. Header v0 (no clientId) was ControlledShutdown v0's alone, which Kafka 4 no longer knows.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from sluice.protocol._tables import FLEXIBLE
from sluice.protocol.apis import (
    API_VERSIONS,
)
from sluice.protocol.errors import FrameTooLarge, MalformedFrame
from sluice.protocol.primitives import skip_tags

REQUEST_HEAD: Final = Struct(">ihhih")
"""size, apiKey, apiVersion, correlationId, length of the client id (-1: null)."""
REQUEST_HEAD_BYTES: Final = 14
RESPONSE_HEAD: Final = Struct(">ii")
"""size, correlationId."""
RESPONSE_HEAD_BYTES: Final = 8
SIZE_BYTES: Final = 4
_NEVER: Final = 32767
MIN_REQUEST_SIZE: Final = REQUEST_HEAD_BYTES - SIZE_BYTES


def request_body(buf: bytearray, client_id_end: int, end: int, api_key: int, version: int) -> int:
    """Offset of the body of a request whose client id ends at `client_id_end`; nothing from `end` on is
    looked at.

    Raises MalformedFrame if the header does not end before `end`.
    """
    if version >= FLEXIBLE.get(api_key, _NEVER):
        if client_id_end < end and buf[client_id_end] == 0:
            return client_id_end + 1
        return skip_tags(buf, client_id_end, end)
    return client_id_end


def response_body(buf: bytearray, pos: int, end: int, api_key: int, version: int) -> int:
    """Offset of the body of the response whose frame begins at `pos`; see `request_body`."""
    body = pos + RESPONSE_HEAD_BYTES
    if api_key != API_VERSIONS and version >= FLEXIBLE.get(api_key, _NEVER):
        if body < end and buf[body] == 0:
            return body + 1
        return skip_tags(buf, body, end)
    return body


def refuse_size(buf: bytearray, pos: int, end: int, size: int, limit: int) -> FrameTooLarge:
    """The error for a size field that is negative or above `limit`, with a guess at what the peer really
    speaks."""
    head = bytes(buf[pos : min(pos + 5, end)])
    if head[:2] == b"\x16\x03":
        return TlsOnPlaintext("a TLS handshake on a plaintext listener", offset=pos)
    if head[:4] in {b"GET ", b"POST", b"HEAD", b"PUT ", b"OPTI", b"CONN"}:
        return FrameTooLarge("an HTTP request on a Kafka listener", offset=pos)
    if size < 0:
        return FrameTooLarge(f"negative frame size {size}", offset=pos)
    return FrameTooLarge(f"frame of {size} bytes, the limit is {limit}", offset=pos)


def check_size(buf: bytearray, pos: int, end: int, limit: int) -> None:
    """Raise what is wrong with the size field at `pos` of a request with a header, if anything is."""
    size = int.from_bytes(buf[pos : pos + SIZE_BYTES], "big", signed=True)
    if not 0 <= size <= limit:
        raise refuse_size(buf, pos, end, size, limit)
    if size < MIN_REQUEST_SIZE:
        raise MalformedFrame(f"frame of {size} bytes, too short for a request header", offset=pos)


class TlsOnPlaintext(FrameTooLarge):
    """The peer began a TLS handshake (record type 22, version 3.x) where Kafka's size field stands."""

    cause = "tls_on_plaintext"
