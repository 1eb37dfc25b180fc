"""Caps the versions that an ApiVersions response offers to those that our tables know, in place.

A client takes the highest version that both it and the response know, so that a capped response keeps clients
to versions that we can meter. A client that does not ask first is the session's to refuse. Knows no quota, no
table: the caller gives the caps. Source: ApiVersionsResponse.json 4.3.1; KIP-35, KIP-511; NodeApiVersions.

    v0     errorCode int16, [apiKey int16, minVersion int16, maxVersion int16]
    v1–v2  the same, throttleTimeMs int32
    v3–v4  the same, compact, each entry and the whole closed by tagged fields
"""

from __future__ import annotations

from collections.abc import Mapping
from struct import Struct
from typing import Final

from sluice.protocol.apis import API_VERSIONS, ErrorCode
from sluice.protocol.errors import MalformedFrame
from sluice.protocol.primitives import (
    INT16,
    NULL,
    array_count,
    compact_array_count,
    compact_string,
    int16,
    skip,
    skip_tags,
)

_FIRST_WITH_THROTTLE: Final = 1
_FIRST_FLEXIBLE: Final = 3
FIRST_WITH_SOFTWARE: Final = 3

_ENTRY: Final = Struct(">hhh")
_ENTRY_BYTES: Final = 6
_MAX_VERSION_AT: Final = 4
_KNOWN: Final = 64
"""answers that are remembered: one for each version, until a broker is upgraded"""
_KNOWN_BYTES: Final = 4096
"""of them; Kafka's have 700"""

_QUESTION_HEAD: Final = Struct(">ihhih")


def api_versions_request(correlation_id: int, client_id: str) -> bytes:
    """An ApiVersions request of v0, its size included: every broker answers it, before a login too."""
    name = client_id.encode()
    size = _QUESTION_HEAD.size - 4 + len(name)
    return _QUESTION_HEAD.pack(size, API_VERSIONS, 0, correlation_id, len(name)) + name


def client_software(buf: bytearray | memoryview, pos: int, end: int) -> tuple[str, str]:
    """Name and version that a client gives itself in the body of a request of v3 or newer (KIP-511).

    Raises MalformedFrame."""
    name, pos = compact_string(buf, pos, end)
    version, _ = compact_string(buf, pos, end)
    return name, version


class VersionCaps:
    """What clients are offered of each API, at most; no answer is read twice, for a broker gives the same one
    to every connection, and each begins with it."""

    __slots__ = ("_caps", "_known")

    def __init__(self, caps: Mapping[int, tuple[int, int]]) -> None:
        """`caps`: by API key, (its first, its last version)."""
        self._caps = caps
        self._known: dict[tuple[int, bytes], list[tuple[int, int]]] = {}
        """by version and body, what is above: (where it stands behind the body's begin, its cap)"""

    def lower(self, buf: bytearray, pos: int, end: int, version: int) -> None:
        """Lower each max_version in the ApiVersions response body `buf[pos:end]` to its cap.

        Never raises one. `version` is the request's; error 35 UNSUPPORTED_VERSION, and only that, means a
        body of v0 whatever was asked (the broker did not know the version, KIP-511). A version above v4 is
        read as v4.

        Minima stay as they are. Where our maximum lies below the broker's minimum, the range becomes empty:
        Java's client finds no version in it, one that looks at the maximum alone takes ours, which we meter
        and the broker refuses; min − 1 instead would offer a version that we do not know. An API without a
        cap keeps its range: in place no entry can be taken out, and whether unknown APIs pass is for the
        session to say.

        Raises MalformedFrame, with `buf` unchanged, if the body does not end at `end`, as a newer layout's
        may not.
        """
        body = bytes(buf[pos:end])
        above = self._known.get((version, body))
        if above is None:
            above = [(offset - pos, cap) for offset, cap in _above(buf, pos, end, version, self._caps)]
            if len(body) <= _KNOWN_BYTES:
                if len(self._known) >= _KNOWN:
                    self._known.clear()
                self._known[version, body] = above
        for offset, cap in above:
            INT16.pack_into(buf, pos + offset, cap)


def _above(
    buf: bytearray, pos: int, end: int, version: int, caps: Mapping[int, tuple[int, int]]
) -> list[tuple[int, int]]:
    """(where it stands, its cap) of each max_version that is above its cap. Raises MalformedFrame."""
    error_code, entries = int16(buf, pos, end)
    flexible = version >= _FIRST_FLEXIBLE and error_code != ErrorCode.UNSUPPORTED_VERSION
    with_throttle = version >= _FIRST_WITH_THROTTLE and error_code != ErrorCode.UNSUPPORTED_VERSION
    count, pos = (compact_array_count if flexible else array_count)(
        buf, entries, end, _ENTRY_BYTES + flexible
    )
    if count == NULL:
        raise MalformedFrame("null array of versions", offset=entries)
    lowered: list[tuple[int, int]] = []
    entry_end = _ENTRY_BYTES + flexible  # with the 0 of an empty section of tagged fields, as nearly always
    for _ in range(count):
        if pos + entry_end > end:
            raise MalformedFrame("ApiVersions response runs beyond its frame", offset=pos)
        api_key, _, newest = _ENTRY.unpack_from(buf, pos)
        cap = caps.get(api_key)
        if cap is not None and newest > cap[1]:
            lowered.append((pos + _MAX_VERSION_AT, cap[1]))
        if flexible and buf[pos + _ENTRY_BYTES]:
            pos = skip_tags(buf, pos + _ENTRY_BYTES, end)
        else:
            pos += entry_end
    if with_throttle:
        pos = skip(pos, 4, end)
    if flexible:
        pos = skip_tags(buf, pos, end)
    if pos != end:
        raise MalformedFrame(f"ApiVersions response ends {end - pos} bytes before its frame", offset=pos)
    return lowered
