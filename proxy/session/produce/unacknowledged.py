"""What a client has sent behind a delay, and nobody will send again: Produce requests with acks = 0. Pure.

Its client has been told that they are sent (wire-semantics 1.2). At a drain the connection begins no further
request; these, read already, go all the same (4.1).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Final

from sluice.protocol.apis import AUTHENTICATION_APIS, PRODUCE
from sluice.protocol.errors import MalformedFrame
from sluice.protocol.headers import REQUEST_HEAD, REQUEST_HEAD_BYTES, SIZE_BYTES, request_body
from sluice.protocol.produce import read_acks

_MOST_FRAMES: Final = 4_096
"""of 16 MiB of the smallest more than a million can be kept, and to read those takes a second"""


def unacknowledged(buf: bytearray) -> Iterator[tuple[int, int, int]]:
    """(begin, end, version) of each in `buf`, which begins with a frame. What stands between them is passed
    over, up to a login, which may change whose they are, or what is no whole frame."""
    return ((begin, end, version) for begin, end, version in _frames(buf) if version >= 0)


def unacknowledged_bytes(buf: bytearray) -> int:
    """How many bytes they have. Behind the first some thousand frames their part is taken to be the same."""
    size_bytes = frames = end = 0
    for begin, end, version in islice(_frames(buf), _MOST_FRAMES):
        frames += 1
        if version >= 0:
            size_bytes += end - begin
    if frames == _MOST_FRAMES:
        size_bytes = size_bytes * len(buf) // end
    return size_bytes


def _frames(buf: bytearray) -> Iterator[tuple[int, int, int]]:
    """(begin, end, version) of each, version -1 of those that are no Produce with acks = 0."""
    pos = 0
    while len(buf) - pos >= REQUEST_HEAD_BYTES:
        size, api_key, version, _, id_length = REQUEST_HEAD.unpack_from(buf, pos)
        begin, pos = pos, pos + SIZE_BYTES + size
        client_id_end = begin + REQUEST_HEAD_BYTES + max(id_length, 0)
        if api_key in AUTHENTICATION_APIS or not client_id_end <= pos <= len(buf):
            return
        if api_key != PRODUCE:
            yield begin, pos, -1
            continue
        try:
            body = request_body(buf, client_id_end, pos, PRODUCE, version)
            acks = read_acks(buf, body, pos, version)
        except MalformedFrame:
            return
        yield begin, pos, version if acks == 0 else -1
