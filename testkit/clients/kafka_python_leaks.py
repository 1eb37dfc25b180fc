"""kafka-python 3.0 leaves sockets to the garbage collector: of connects, handshakes and logins that failed,
and of clients that are closed while they connect.

The collector runs when it likes: its ResourceWarning would end whichever test is running.
"""

from __future__ import annotations

import socket
import ssl
from functools import wraps
from typing import Any

from kafka.net.inet import KafkaNetSocket
from kafka.net.transport import KafkaSSLTransport


class _Socket(socket.socket):
    def __del__(self) -> None:
        self.close()


class _TlsSocket(ssl.SSLSocket):
    def __del__(self) -> None:
        self.close()


def close_what_is_left() -> None:
    """Have kafka-python's sockets end without a word when nobody has them; in this process."""
    KafkaNetSocket.socket = lambda _self, family, kind, protocol: _Socket(family, kind, protocol)
    build = KafkaSSLTransport._build_ssl_context

    @wraps(build)
    def built(config: dict[str, Any]) -> ssl.SSLContext:
        context: ssl.SSLContext = build(config)
        context.sslsocket_class = _TlsSocket
        return context

    KafkaSSLTransport._build_ssl_context = staticmethod(built)
