"""What a client has sent behind a delay, and nobody will send again: Produce requests with acks = 0. Pure.

Its client has been told that they are sent (wire-semantics 1.2). At a drain the connection begins no further
request; these, read already, go all the same (4.1).
"""

from __future__ import annotations

from collections.abc import Iterator

from sluice.protocol.apis import PRODUCE
from sluice.protocol.errors import MalformedFrame
from sluice.protocol.headers import REQUEST_HEAD, REQUEST_HEAD_BYTES, SIZE_BYTES, request_body
from sluice.protocol.produce import read_acks


def unacknowledged(buf: bytearray) -> Iterator[tuple[int, int]]:
    """(end, version) of each at the begin of `buf`, which begins with a frame; up to the first that is not
    one, or not whole."""
    pos = 0
    while len(buf) - pos >= REQUEST_HEAD_BYTES:
        size, api_key, version, _, id_length = REQUEST_HEAD.unpack_from(buf, pos)
        frame_end = pos + SIZE_BYTES + size
        client_id_end = pos + REQUEST_HEAD_BYTES + max(id_length, 0)
        if api_key != PRODUCE or not client_id_end <= frame_end <= len(buf):
            return
        try:
            body = request_body(buf, client_id_end, frame_end, PRODUCE, version)
            if read_acks(buf, body, frame_end, version) != 0:
                return
        except MalformedFrame:
            return
        yield frame_end, version
        pos = frame_end
