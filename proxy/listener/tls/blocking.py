"""TLS with a broker on a socket that blocks: for commands, which wait for one thing at a time."""

from __future__ import annotations

import socket
import ssl

from sluice.proxy.listener.tls.error import explained


def shaken_hands(sock: socket.socket, tls: ssl.SSLContext, server_name: str) -> ssl.SSLSocket:
    """`sock`, of no more use itself, behind TLS with a broker whose certificate must have `server_name`.

    Raises OSError, in the words that `/readyz` has for it where TLS is at fault.
    """
    try:
        return tls.wrap_socket(sock, server_hostname=server_name)
    except OSError as error:
        raise explained(error, server_side=False, shaking_hands=True) from None
