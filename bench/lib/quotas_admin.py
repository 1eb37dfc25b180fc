"""Sets the broker's native byte-rate quotas of many client ids in one request.

Kafka's own tool takes one JVM start for each entity. AlterClientQuotas v1, as in its message definition.
"""

import socket
import struct
from collections.abc import Sequence
from typing import Final

from testkit.frames import load_frames as frames
from testkit.processes.ports import LOOPBACK
from testkit.processes.process import BenchError

ALTER_CLIENT_QUOTAS: Final = 49


def set_native_quotas(port: int, client_ids: Sequence[str], bytes_per_s: int) -> None:
    """Producer and consumer byte rate for each client id. Raises BenchError when one is refused."""
    body = frames.uvarint(len(client_ids) + 1)
    for client_id in client_ids:
        body += frames.uvarint(2) + frames.compact(b"client-id") + frames.compact(client_id.encode())
        body += frames.NO_TAGS + frames.uvarint(3)
        for key in (b"producer_byte_rate", b"consumer_byte_rate"):
            body += frames.compact(key) + struct.pack(">d?", bytes_per_s, False) + frames.NO_TAGS
        body += frames.NO_TAGS
    body += struct.pack(">?", False) + frames.NO_TAGS  # not only validate
    with socket.create_connection((LOOPBACK, port), timeout=30) as sock:
        sock.sendall(frames.request(ALTER_CLIENT_QUOTAS, 1, "bench-admin", body))
        _check(_read_frame(sock))


def _check(answer: bytes) -> None:
    entries, pos = frames.read_uvarint(answer, 9 + 4)  # behind size, correlation id, tags, throttle time
    for _ in range(entries - 1):
        (error,) = struct.unpack_from(">h", answer, pos)
        if error:
            raise BenchError(f"the broker refused a quota with error {error}: {answer!r}")
        _, pos = frames.read_uvarint(answer, pos + 2)  # no message
        parts, pos = frames.read_uvarint(answer, pos)
        for _ in range(parts - 1):
            for _ in ("type", "name"):
                length, pos = frames.read_uvarint(answer, pos)
                pos += length - 1
            pos += 1  # no tags
        pos += 1


def _read_frame(sock: socket.socket) -> bytes:
    data = b""
    while len(data) < 4 or len(data) < 4 + struct.unpack_from(">i", data)[0]:
        more = sock.recv(65536)
        if not more:
            raise BenchError("the broker closed the connection instead of setting quotas")
        data += more
    return data
