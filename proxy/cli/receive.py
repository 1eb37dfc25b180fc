"""A blocking socket: bytes, and a login, for commands that ask a broker."""

from __future__ import annotations

import secrets
import socket

from sluice.proxy.listener.login.credential_entries import Credentials
from sluice.proxy.listener.login.login import UpstreamLogin


def receive_exactly(sock: socket.socket, count: int) -> bytes:
    """Raises OSError, also if the other side closes before."""
    data = bytearray()
    while len(data) < count:
        more = sock.recv(min(65_536, count - len(data)))
        if not more:
            raise OSError("it closed the connection; does its listener want TLS or SASL (--command-config)?")
        data += more
    return bytes(data)


def log_in(sock: socket.socket, mechanism: str, credentials: Credentials, client_id: str) -> None:
    """Raises OSError, UpstreamLoginError (a ProtocolError), ValueError for what `mechanism` cannot carry."""
    nonce = secrets.token_urlsafe(24)
    login = UpstreamLogin(mechanism, credentials, client_id=client_id, nonce=nonce)
    sock.sendall(login.start())
    while not login.done:
        data = sock.recv(65_536)
        if not data:
            raise login.broker_closed()
        _, reply = login.received(memoryview(data), 0, len(data))
        if reply:
            sock.sendall(reply)
