"""A blocking socket: bytes, and a login, for commands that ask a broker."""

from __future__ import annotations

import secrets
import socket
import ssl

from sluice.proxy.listener.login.credential_entries import Credentials
from sluice.proxy.listener.login.login import UpstreamLogin
from sluice.proxy.listener.tls.error import explained


def shaken_hands(sock: socket.socket, tls: ssl.SSLContext, server_name: str) -> ssl.SSLSocket:
    """`sock`, of no more use itself, behind TLS with a broker whose certificate must have `server_name`.

    Raises OSError, in the words that `/readyz` has for it where TLS is at fault.
    """
    try:
        return tls.wrap_socket(sock, server_hostname=server_name)
    except OSError as error:
        raise explained(error, server_side=False, shaking_hands=True) from None


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
