"""Who may be a follower: what the configuration declares, and no client can forge. Pure.

A replica id counts only on an inter-broker listener or of a broker's own principal (wire-semantics 4.6). What
is covered is charged to nobody, for a follower that is slowed down leaves the in-sync set.
"""

from __future__ import annotations

from dataclasses import dataclass

from sluice.protocol.headers import FETCH, request_body
from sluice.protocol.primitives import int32
from sluice.protocol.replication.fetch_request import NO_REPLICA, read_replica_fetch

_FIRST_WITHOUT_REPLICA_ID = 15
_STATE_BYTES = 15
"""of replicaState at a frame's end: tag, size, replica id, epoch, no tags"""
_STATE_BEGIN = b"\x01\x0d"
"""tag 1, 13 bytes"""


@dataclass(frozen=True, slots=True)
class InterBroker:
    """What one listener takes for a broker's."""

    is_listener: bool = False
    """only brokers come here"""
    users: frozenset[str] = frozenset()
    """principals of brokers"""

    def covers(self, user: str) -> bool:
        """A replica id of this authenticated principal is believed."""
        return self.is_listener or user in self.users


def is_follower(
    buf: bytearray, pos: int, client_id_end: int, end: int, frame_end: int, version: int
) -> bool | None:
    """Does the Fetch at `pos` name a replica? None: what tells has not arrived (`end` < `frame_end`).

    Source: FetchRequest.json: replicaId up to v14, ReplicaState (tag 1, at the end) from v15 on.
    """
    limit = min(end, frame_end)
    if version < _FIRST_WITHOUT_REPLICA_ID:
        body = request_body(buf, client_id_end, limit, FETCH, version)
        if body + 4 > limit:
            return None
        replica_id, _ = int32(buf, body, limit)
        return replica_id > NO_REPLICA
    if frame_end > end:
        return None
    begin = frame_end - _STATE_BYTES
    if begin <= client_id_end or not buf.startswith(_STATE_BEGIN, begin):
        return False
    frame = bytes(buf[pos:frame_end])
    body = request_body(buf, client_id_end, limit, FETCH, version) - pos
    return read_replica_fetch(frame, body, version).replica_id > NO_REPLICA
