"""Bytes of a blocking socket, for commands that ask a broker."""

from __future__ import annotations

import socket


def receive_exactly(sock: socket.socket, count: int) -> bytes:
    """Raises OSError, also if the other side closes before."""
    data = bytearray()
    while len(data) < count:
        more = sock.recv(min(65_536, count - len(data)))
        if not more:
            raise OSError("it closed the connection; does its listener want TLS or SASL (--command-config)?")
        data += more
    return bytes(data)
