"""Write `throttle_time_ms` into an answer in place: max(the broker's, ours). Nothing else of the frame
changes.

Where it stands is a generated table (THROTTLE in _tables.py): at a fixed offset of the body in most
versions, a fixed distance before the end in a few, behind a walk in Produce v9–13, ApiVersions v3–4 and the
delegation tokens v2–3, absent in the oldest. Source: wire-semantics, section 5; the message definitions of
4.3.1.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from sluice.protocol._tables import KIND_AT_OFFSET, KIND_BEFORE_END, KIND_WALK, THROTTLE
from sluice.protocol.apis import API_VERSIONS, PRODUCE, READABLE, ApiKey, ErrorCode
from sluice.protocol.delegation_tokens import walk_tokens
from sluice.protocol.errors import MalformedFrame
from sluice.protocol.headers import RESPONSE_HEAD_BYTES, response_body
from sluice.protocol.primitives import UUID_BYTES, compact_array_count, skip_compact_nullable, skip_tags

_INT32: Final = Struct(">i")
_UNSUPPORTED_VERSION: Final = Struct(">h").pack(ErrorCode.UNSUPPORTED_VERSION)
MAX_THROTTLE_MS: Final = 2**31 - 1
_PARTITION_BYTES: Final = 30
"""of a Produce's answer: index, error code, base offset, log append time, log start offset"""
_NO_ERRORS: Final = b"\1\0\0"
"""behind these, mostly: no records' errors, no message, no tags"""


_NO_WALK: Final = (0, -1)
_PLACES: dict[tuple[int, int], tuple[int, int]] = {
    (api_key, version): (kind, offset)
    for api_key, runs in THROTTLE.items()
    for first, last, kind, offset in runs
    for version in range(first, last + 1)
    if kind != KIND_WALK or version <= READABLE.get(api_key, _NO_WALK)[1]
}
"""A version whose walk nobody has written has no place: nothing is written where its field is guessed."""


def at_fixed_offset(api_key: int, version: int) -> int | None:
    """The field's offset in the body if it is fixed: then an answer can be patched before its end has
    arrived."""
    place = _PLACES.get((api_key, version))
    return place[1] if place is not None and place[0] == KIND_AT_OFFSET else None


def throttle_offset(buf: bytearray, pos: int, end: int, api_key: int, version: int) -> int | None:
    """Absolute offset of the field in the whole answer `buf[pos:end]` (size prefix included); None if it has
    none.

    An ApiVersions answer of error 35, and only that, has the body of v0, whatever was asked (KIP-511).
    Raises MalformedFrame if the answer's bytes contradict the layout.
    """
    place = _PLACES.get((api_key, version))
    if place is None:
        return None
    body = pos + RESPONSE_HEAD_BYTES
    if api_key == API_VERSIONS and buf[body : min(body + 2, end)] == _UNSUPPORTED_VERSION:
        return None
    kind, offset = place
    if kind == KIND_BEFORE_END:
        found = end - offset
    else:
        body = response_body(buf, pos, end, api_key, version)
        found = body + offset if kind == KIND_AT_OFFSET else _walk(buf, body, end, api_key, version)
    if found < body or found + 4 > end:
        raise MalformedFrame(
            "no room for throttle_time_ms", api_key=api_key, api_version=version, offset=found - pos
        )
    return found


def raise_in_whole(
    buf: bytearray, pos: int, frame_end: int, api_key: int, version: int, throttle_ms: int
) -> None:
    """As raise_throttle, in the whole answer `buf[pos:frame_end]`, if that has the field.

    Raises MalformedFrame as throttle_offset does.
    """
    offset = throttle_offset(buf, pos, frame_end, api_key, version)
    if offset is not None:
        raise_throttle(buf, offset, throttle_ms)


def raise_at_fixed_offset(
    buf: bytearray, pos: int, arrived_end: int, api_key: int, version: int, throttle_ms: int
) -> bool:
    """As raise_throttle, in an answer that begins at `pos` and has arrived up to `arrived_end`. False: the
    field does not stand at a fixed offset, or has not arrived."""
    offset = at_fixed_offset(api_key, version)
    if offset is None:
        return False
    field = response_body(buf, pos, arrived_end, api_key, version) + offset
    if field + 4 > arrived_end:
        return False
    raise_throttle(buf, field, throttle_ms)
    return True


def raise_throttle(buf: bytearray, offset: int, throttle_ms: int) -> None:
    """Raise the throttle_time_ms at `offset` to at least `throttle_ms`; never lower it."""
    (brokers,) = _INT32.unpack_from(buf, offset)
    if brokers < throttle_ms:
        _INT32.pack_into(buf, offset, min(throttle_ms, MAX_THROTTLE_MS))


def _walk(buf: bytearray, pos: int, end: int, api_key: int, version: int) -> int:
    if api_key == PRODUCE:
        return _walk_produce(buf, pos, end, version)
    if api_key == API_VERSIONS:
        count, pos = compact_array_count(buf, pos + 2, end, 1)
        for _ in range(count):
            pos = skip_tags(buf, pos + 6, end)
        return pos
    if api_key == ApiKey.CREATE_DELEGATION_TOKEN:
        pos += 2
        for _ in range(4 if version >= 3 else 2):
            pos = skip_compact_nullable(
                buf, pos, end
            )  # principal type and name, from v3 on the requester's too
        return skip_compact_nullable(
            buf, skip_compact_nullable(buf, pos + 24, end), end
        )  # three timestamps; token id, hmac
    if api_key == ApiKey.DESCRIBE_DELEGATION_TOKEN:
        return walk_tokens(buf, pos, end, version)[1]
    raise MalformedFrame("no walk to throttle_time_ms", api_key=api_key, api_version=version)


def _walk_produce(buf: bytearray, pos: int, end: int, version: int) -> int:
    topics, pos = compact_array_count(buf, pos, end, 1)
    for _ in range(topics):
        pos = pos + UUID_BYTES if version >= 13 else skip_compact_nullable(buf, pos, end)
        partitions, pos = compact_array_count(buf, pos, end, 1)
        for _ in range(partitions):
            pos += _PARTITION_BYTES
            if buf[pos : pos + 3] == _NO_ERRORS and pos + 3 <= end:
                pos += 3
                continue
            errors, pos = compact_array_count(buf, pos, end, 1)
            for _ in range(errors):
                pos = skip_tags(buf, skip_compact_nullable(buf, pos + 4, end), end)
            pos = skip_tags(buf, skip_compact_nullable(buf, pos, end), end)
        pos = skip_tags(buf, pos, end)
    return pos
