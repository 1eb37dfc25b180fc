"""Which requests make a connection a group's, and the session timeout that a classic member asks for and
gets.

Delays of a connection that carries group requests are bounded more tightly: a member that cannot heartbeat
leaves its group (wire-semantics 1.5). Source: JoinGroupRequest.json, JoinGroupResponse.json; group APIs by
GroupCoordinator.
"""

from __future__ import annotations

from collections.abc import Mapping
from struct import Struct
from typing import Final

from sluice.protocol.apis import JOIN_GROUP, ApiKey, ErrorCode
from sluice.protocol.errors import MalformedFrame
from sluice.protocol.headers import response_body
from sluice.protocol.primitives import skip, skip_compact_nullable, uvarint

_FIRST_FLEXIBLE_JOIN: Final = 6
_FIRST_THROTTLED_JOIN: Final = 2
_FIRST_REBALANCE_TIMEOUT: Final = 1
_INT32_BYTES: Final = 4
_EPOCHS_BYTES: Final[Mapping[int, int]] = {
    ApiKey.CONSUMER_GROUP_HEARTBEAT: 4,
    ApiKey.STREAMS_GROUP_HEARTBEAT: 8,
}
"""memberEpoch int32, in StreamsGroupHeartbeat endpointInformationEpoch int32 as well"""
_INT16 = Struct(">h")
_INT32 = Struct(">i")


def session_timeout_ms(buf: bytearray, body: int, end: int, version: int) -> int:
    """session.timeout.ms of a JoinGroup request: groupId string, sessionTimeoutMs int32. MalformedFrame if
    cut off."""
    return _int32(buf, _behind_group_id(buf, body, end, version), end)


def member_timeout_ms(buf: bytearray, body: int, end: int, api_key: int, version: int) -> int:
    """The smallest timeout that a request of MEMBER_APIS names, session or rebalance; 0: it names none.

    MalformedFrame if cut off.

    JoinGroup: groupId string, sessionTimeoutMs int32, v1 on: rebalanceTimeoutMs int32.
    {Consumer,Streams}GroupHeartbeat: groupId, memberId, epochs, instanceId nullable, rackId nullable,
    rebalanceTimeoutMs int32 (-1: as before).
    """
    if api_key == JOIN_GROUP:
        named = [session_timeout_ms(buf, body, end, version)]
        if version >= _FIRST_REBALANCE_TIMEOUT:
            named.append(_int32(buf, _behind_group_id(buf, body, end, version) + _INT32_BYTES, end))
    elif (epochs_bytes := _EPOCHS_BYTES.get(api_key)) is not None:
        pos = skip_compact_nullable(buf, skip_compact_nullable(buf, body, end), end)
        pos = skip(pos, epochs_bytes, end)
        pos = skip_compact_nullable(buf, skip_compact_nullable(buf, pos, end), end)
        named = [_int32(buf, pos, end)]
    else:
        return 0
    return min((timeout_ms for timeout_ms in named if timeout_ms > 0), default=0)


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
    return error in {ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED}


def _behind_group_id(buf: bytearray, body: int, end: int, version: int) -> int:
    """Where the field behind the group id of a JoinGroup begins."""
    if version >= _FIRST_FLEXIBLE_JOIN:
        length, pos = uvarint(buf, body, end)
        return pos + (length - 1 if length else 0)
    if body + 2 > end:
        raise MalformedFrame("no group id", offset=body)
    (length,) = _INT16.unpack_from(buf, body)
    return body + 2 + max(int(length), 0)


def _int32(buf: bytearray, pos: int, end: int) -> int:
    if pos + _INT32_BYTES > end:
        raise MalformedFrame("no timeout", offset=pos)
    (value,) = _INT32.unpack_from(buf, pos)
    return int(value)
