"""Fetch v4–v18 and ShareFetch v1–v2: where `max_bytes` stands, so that it can be lowered in place.

The partition fields need no change: the broker bounds the whole answer by `max_bytes`, and still returns one
whole
batch, so progress is certain (wire-semantics 1.3; KIP-74). Source: FetchRequest.json, ShareFetchRequest.json
4.3.1.

    Fetch v4–v14   replicaId int32, maxWaitMs int32, minBytes int32, maxBytes int32, …
    Fetch v15–v18  maxWaitMs int32, minBytes int32, maxBytes int32, …
    ShareFetch     groupId, memberId compact nullable strings, shareSessionEpoch, maxWaitMs, minBytes,
    maxBytes int32, …
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from sluice.protocol._tables import FLEXIBLE, VERSIONS
from sluice.protocol.errors import MalformedFrame
from sluice.protocol.headers import FETCH
from sluice.protocol.primitives import skip_compact_nullable

_INT32: Final = Struct(">i")
_FIRST_WITHOUT_REPLICA_ID: Final = 15
FIXED_BYTES: Final = 16
"""A Fetch whose first 16 body bytes have arrived can be patched."""
FIRST_FLEXIBLE: Final = FLEXIBLE[FETCH]


def _in_fetch(version: int) -> int:
    return 8 if version >= _FIRST_WITHOUT_REPLICA_ID else 12


MAX_BYTES_AT: Final = tuple(
    (version >= FIRST_FLEXIBLE) + _in_fetch(version) for version in range(VERSIONS[FETCH][1] + 1)
)
"""of a Fetch, by version: so far behind the client id max_bytes stands, if its header has no tags"""


def max_bytes_offset(buf: bytearray, body: int, end: int, api_key: int, version: int) -> int:
    """Offset of max_bytes in the (Share)Fetch request whose body begins at `body`.

    Raises MalformedFrame if it would not lie before `end`.
    """
    if api_key == FETCH:
        offset = body + _in_fetch(version)
    else:
        offset = skip_compact_nullable(buf, skip_compact_nullable(buf, body, end), end) + 12
    if offset + 4 > end:
        raise MalformedFrame("no max_bytes", offset=offset)
    return offset


def lower_max_bytes(buf: bytearray, offset: int, max_bytes: int) -> int:
    """Lower the max_bytes at `offset` to at most `max_bytes` (≥ 1); never raise it. Returns what stands
    there now."""
    (asked,) = _INT32.unpack_from(buf, offset)
    if asked > max_bytes:
        _INT32.pack_into(buf, offset, max_bytes)
        return max_bytes
    return int(asked)
