"""kafka-python 3.0 leaves a socket to the garbage collector when a connect or a TLS handshake fails.

The collector runs when it likes: its ResourceWarning then ends whichever test is running.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import wraps
from typing import Any

from kafka.net.inet import KafkaNetSocket
from kafka.net.transport import KafkaSSLTransport, KafkaTCPTransport


def close_what_fails() -> None:
    """Have every kafka-python client of this process close such a socket itself, at once."""
    connect = KafkaNetSocket.sock_connect
    KafkaNetSocket.sock_connect = _ending(connect, lambda _self, _net, sock, *_: sock.close())
    for transport in (KafkaTCPTransport, KafkaSSLTransport):
        transport.handshake = _ending(transport.handshake, lambda self: self.abort())


def _ending(step: Callable[..., Awaitable[Any]], end: Callable[..., None]) -> Callable[..., Awaitable[Any]]:
    @wraps(step)
    async def ending(*args: Any, **options: Any) -> Any:
        try:
            return await step(*args, **options)
        except BaseException:  # a client that is closed meanwhile ends the step by GeneratorExit
            end(*args)
            raise

    return ending
