"""Which requests make a connection a group's, and the session timeout that a classic member asks for and
gets.

Delays of a connection that carries group requests are bounded more tightly: a member that cannot heartbeat
leaves its group (wire-semantics 1.5). Source: JoinGroupRequest.json, JoinGroupResponse.json; group APIs by
GroupCoordinator.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from sluice.protocol.errors import MalformedFrame
from sluice.protocol.headers import JOIN_GROUP, response_body
from sluice.protocol.primitives import uvarint

GROUP_APIS: Final = frozenset({8, 9, 11, 12, 13, 14, 68, 69, 76, 88, 89})
"""OffsetCommit, OffsetFetch, JoinGroup, Heartbeat, LeaveGroup, SyncGroup, ConsumerGroupHeartbeat,
ConsumerGroupDescribe, ShareGroupHeartbeat, StreamsGroupHeartbeat, StreamsGroupDescribe (KIP-1071)."""

_FIRST_FLEXIBLE_JOIN: Final = 6
_FIRST_THROTTLED_JOIN: Final = 2
_NO_ERROR: Final = 0
_MEMBER_ID_REQUIRED: Final = 79
_INT16 = Struct(">h")
_INT32 = Struct(">i")


def session_timeout_ms(buf: bytearray, body: int, end: int, version: int) -> int:
    """session.timeout.ms of a JoinGroup request: groupId string, sessionTimeoutMs int32. MalformedFrame if
    cut off."""
    if version >= _FIRST_FLEXIBLE_JOIN:
        length, pos = uvarint(buf, body, end)
        pos += length - 1 if length else 0
    else:
        if body + 2 > end:
            raise MalformedFrame("no group id", offset=body)
        (length,) = _INT16.unpack_from(buf, body)
        pos = body + 2 + max(length, 0)
    if pos + 4 > end:
        raise MalformedFrame("no session timeout", offset=pos)
    (timeout,) = _INT32.unpack_from(buf, pos)
    return int(timeout)


def session_timeout_accepted(buf: bytearray, pos: int, end: int, version: int) -> bool:
    """Did the broker find the session timeout of a JoinGroup within its bounds? By the answer at `pos`.

    It checks them before all else (INVALID_SESSION_TIMEOUT), so that the demand for a member id says yes too.
    MalformedFrame if cut off. Source: GroupCoordinatorService.joinGroup.
    """
    body = response_body(buf, pos, end, JOIN_GROUP, version)
    if version >= _FIRST_THROTTLED_JOIN:
        body += 4
    if body + 2 > end:
        raise MalformedFrame("no error code", offset=body)
    (error,) = _INT16.unpack_from(buf, body)
    return error in {_NO_ERROR, _MEMBER_ID_REQUIRED}
