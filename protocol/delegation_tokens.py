"""The broker's answer to DescribeDelegationToken, walked: where each token names itself and its owner, and
where `throttle_time_ms` stands behind them.

    error int16, [principal type, name, v3: requester's type, name, issued, expires, at most int64, token id,
    hmac bytes, [renewer's type, name]], throttle int32

v1 has lengths of int16 and counts of int32, v2 and newer are compact. A client may give a token as many
renewers as it likes, so those are skipped without a call for each. Source:
DescribeDelegationTokenResponse.json; KIP-48.
"""

from __future__ import annotations

from typing import Final

from sluice.protocol.errors import MalformedFrame
from sluice.protocol.primitives import (
    array_count,
    compact_array_count,
    compact_string,
    int16,
    skip,
    skip_compact_nullable,
    skip_nullable_string,
    skip_tags,
    string,
)

FIRST_FLEXIBLE: Final = 2
FIRST_WITH_REQUESTER: Final = 3
_TIMES_BYTES: Final = 24
_THROTTLE_BYTES: Final = 4
_TWO_SHORT_BYTES: Final = 2 * 127
"""longest pair of compact strings whose lengths have one byte each"""
_TWO_SHORT_BYTES_V1: Final = 2 * (2 + 255)
"""the same with lengths of two bytes, the first of them 0"""


def walk_tokens(buf: bytearray, pos: int, end: int, version: int) -> tuple[list[tuple[int, int]], int]:
    """(Where its principal type begins, where its id) of each token in a body that begins at `pos`, and where
    throttle_time_ms does. Raises MalformedFrame."""
    if version < FIRST_FLEXIBLE:
        return _walk_v1(buf, pos, end)
    places: list[tuple[int, int]] = []
    names = 4 if version >= FIRST_WITH_REQUESTER else 2
    count, pos = compact_array_count(buf, pos + 2, end, 1)
    for _ in range(count):
        begin = pos
        pos = _skip_strings(buf, pos, end, names) + _TIMES_BYTES
        places.append((begin, pos))
        pos = _skip_strings(buf, pos, end, 2)  # token id, hmac
        renewers, pos = compact_array_count(buf, pos, end, 1)
        pos = skip_tags(buf, _skip_renewers(buf, pos, end, renewers), end)
    return places, pos


def _skip_strings(buf: bytearray, pos: int, end: int, count: int) -> int:
    """So many compact ones. A length of one byte, which counts itself, is also the way to what stands
    behind."""
    short_until = end - _TWO_SHORT_BYTES
    for _ in range(count):
        if pos < short_until and 0 < (size := buf[pos]) < 0x80:
            pos += size
        else:
            pos = skip_compact_nullable(buf, pos, end)
    return pos


def _skip_renewers(buf: bytearray, pos: int, end: int, renewers: int) -> int:
    short_until = end - _TWO_SHORT_BYTES
    for _ in range(renewers):
        if (
            pos < short_until
            and 0 < (size := buf[pos]) < 0x80
            and 0 < (size := buf[name := pos + size]) < 0x80
            and not buf[tags := name + size]
        ):
            pos = tags + 1
        else:
            pos = skip_tags(buf, skip_compact_nullable(buf, skip_compact_nullable(buf, pos, end), end), end)
    return pos


def _walk_v1(buf: bytearray, pos: int, end: int) -> tuple[list[tuple[int, int]], int]:
    places: list[tuple[int, int]] = []
    count, pos = array_count(buf, pos + 2, end, 1)
    for _ in range(count):
        begin = pos
        pos = skip_nullable_string(buf, skip_nullable_string(buf, pos, end), end) + _TIMES_BYTES
        places.append((begin, pos))
        pos = skip_nullable_string(buf, pos, end)
        hmac_bytes, pos = array_count(buf, pos, end, 1)
        renewers, pos = array_count(buf, pos + max(hmac_bytes, 0), end, 1)
        pos = _skip_renewers_v1(buf, pos, end, renewers)
    return places, pos


def _skip_renewers_v1(buf: bytearray, pos: int, end: int, renewers: int) -> int:
    short_until = end - _TWO_SHORT_BYTES_V1
    for _ in range(renewers):
        if pos < short_until and not buf[pos] and not buf[name := pos + 2 + buf[pos + 1]]:
            pos = name + 2 + buf[name + 1]
        else:
            pos = skip_nullable_string(buf, skip_nullable_string(buf, pos, end), end)
    return pos


def read_tokens(buf: bytearray, pos: int, end: int, version: int) -> list[tuple[str, str, str]]:
    """(principal type, principal name, token id) of each token in the body `buf[pos:end]`; none where the
    broker refused. Raises MalformedFrame for a body that does not end there."""
    places, after = walk_tokens(buf, pos, end, version)
    after = skip(after, _THROTTLE_BYTES, end)
    if version >= FIRST_FLEXIBLE:
        after = skip_tags(buf, after, end)
    if after != end:
        raise MalformedFrame(f"{end - after} bytes behind the last token", offset=after)
    if int16(buf, pos, end)[0]:
        return []
    text = compact_string if version >= FIRST_FLEXIBLE else string
    tokens: list[tuple[str, str, str]] = []
    for owner_at, id_at in places:
        kind, name_at = text(buf, owner_at, end)
        tokens.append((kind, text(buf, name_at, end)[0], text(buf, id_at, end)[0]))
    return tokens
