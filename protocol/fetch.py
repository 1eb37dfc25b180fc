"""Fetch v4–v18 and ShareFetch v1–v2: where `max_bytes` stands, so that it can be lowered in place.

The partition fields need no change: the broker bounds the whole answer by `max_bytes`, and still returns one
whole batch, so progress is certain (wire-semantics 1.3; KIP-74). Source: FetchRequest.json,
ShareFetchRequest.json 4.3.1.

    Fetch v4–v14   replicaId int32, maxWaitMs int32, minBytes int32, maxBytes int32, …
    Fetch v15–v18  maxWaitMs int32, minBytes int32, maxBytes int32, …
    ShareFetch     groupId, memberId compact nullable strings, epoch, maxWaitMs, minBytes, maxBytes …
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from sluice.protocol._tables import FLEXIBLE
from sluice.protocol.apis import FETCH, READABLE, ErrorCode
from sluice.protocol.errors import MalformedFrame
from sluice.protocol.primitives import skip_compact_nullable

_INT32: Final = Struct(">i")
_INT16: Final = Struct(">h")
_WAITS: Final = Struct(">iii")
"""maxWaitMs, minBytes, maxBytes"""
_SESSION: Final = Struct(">ii")
"""sessionId, sessionEpoch"""
_SESSION_AT: Final = 5
"""behind max_bytes and isolationLevel"""
_FIRST_WITHOUT_REPLICA_ID: Final = 15
FIRST_WITH_SESSIONS: Final = 7
_FIRST_WITH_RACK: Final = 11
_FINAL_EPOCH: Final = -1
NO_SESSION: Final = (0, _FINAL_EPOCH)
FIXED_BYTES: Final = 16
"""A Fetch whose first 16 body bytes have arrived can be patched."""
FIRST_FLEXIBLE: Final = FLEXIBLE[FETCH]


def _in_fetch(version: int) -> int:
    return 8 if version >= _FIRST_WITHOUT_REPLICA_ID else 12


MAX_BYTES_AT: Final = tuple(
    (version >= FIRST_FLEXIBLE) + _in_fetch(version) for version in range(READABLE[FETCH][1] + 1)
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


def read_waits(buf: bytearray, offset: int) -> tuple[int, int]:
    """max_wait_ms and max_bytes, of which the latter stands at `offset`; those of ShareFetch stand alike."""
    max_wait_ms, _, max_bytes = _WAITS.unpack_from(buf, offset - 8)
    return max_wait_ms, max_bytes


def write_max_wait(buf: bytearray, offset: int, max_wait_ms: int) -> None:
    """Replace max_wait_ms; `offset`: of max_bytes."""
    _INT32.pack_into(buf, offset - 8, max_wait_ms)


def write_max_bytes(buf: bytearray, offset: int, max_bytes: int) -> None:
    """Replace max_bytes at `offset`."""
    _INT32.pack_into(buf, offset, max_bytes)


def read_session(buf: bytearray, offset: int, end: int, version: int) -> tuple[int, int]:
    """Session id and epoch of a Fetch whose max_bytes stands at `offset`; before v7 it has none.

    Raises MalformedFrame if they would not lie before `end`.
    """
    if version < FIRST_WITH_SESSIONS:
        return NO_SESSION
    at = offset + _SESSION_AT
    if at + _SESSION.size > end:
        raise MalformedFrame("no session id", offset=at)
    session_id, epoch = _SESSION.unpack_from(buf, at)
    return session_id, epoch


def closing_fetch(buf: bytearray, pos: int, client_id_end: int, version: int, session_id: int) -> bytes:
    """A Fetch for nothing, in the place of the one whose frame begins at `pos`: it ends the session, and the
    broker answers at once, without topics.

    With the final epoch the session is gone from the broker's cache, whose places are few (KIP-227, "Closing
    a session").
    """
    is_flexible = version >= FIRST_FLEXIBLE
    none = b"\x01" if is_flexible else bytes(4)
    body = bytes(is_flexible)  # the header's tags
    if version < _FIRST_WITHOUT_REPLICA_ID:
        body += _INT32.pack(-1)
    body += _WAITS.pack(0, 0, 1) + b"\0"
    if version >= FIRST_WITH_SESSIONS:
        body += _SESSION.pack(session_id, _FINAL_EPOCH)
    body += none  # topics
    if version >= FIRST_WITH_SESSIONS:
        body += none  # forgotten topics
    if version >= _FIRST_WITH_RACK:
        body += b"\x01" if is_flexible else bytes(2)
    body += bytes(is_flexible)
    head = bytes(buf[pos + 4 : client_id_end])
    return _INT32.pack(len(head) + len(body)) + head + body


def forget_session(buf: bytearray, body: int, end: int) -> None:
    """Say in an answer without an error, v7 or newer, that the broker does not know the session: the client's
    next Fetch is a full one, with all its offsets. `body`: where throttle_time_ms stands."""
    if body + 6 <= end and _INT16.unpack_from(buf, body + 4)[0] == 0:
        _INT16.pack_into(buf, body + 4, ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
