"""The socket addresses of a broker's host: which there are, in what order to dial them, and how.

A name may lead to several, as where a broker's host is off and another has taken its name over. Resolvers
tell them in an order that stays, so which of them brought no connection, or no TLS, is remembered, and these
are dialled last: only the first client waits for them.
"""

from __future__ import annotations

import asyncio
import os
import socket
import struct
from collections.abc import Sequence
from errno import EALREADY, ECONNREFUSED, EINPROGRESS, EINTR
from functools import lru_cache
from ipaddress import ip_address
from typing import Final, TypeAlias

MAX_DOUBTED: Final = 1_000
"""addresses of one listener's brokers; as many as it has circuits (circuit.MAX_CIRCUITS)"""
_UNDER_WAY: Final = frozenset({EINPROGRESS, EALREADY, EINTR})
_RESET_ON_CLOSE: Final = struct.pack("ii", 1, 0)
"""struct linger"""

SocketAddress: TypeAlias = tuple[str, int] | tuple[str, int, int, int] | tuple[int, bytes]
Found: TypeAlias = tuple[int, SocketAddress]
"""address family, address"""


class HostAddresses:
    """Resolves the hosts of one listener's brokers, and knows which of their addresses are in doubt."""

    __slots__ = ("_doubted", "_loop")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        """Nothing is in doubt yet. `loop`: its resolver is asked, in a thread."""
        self._loop = loop
        self._doubted: dict[SocketAddress, None] = {}  # the oldest first

    def __len__(self) -> int:
        """How many addresses are in doubt."""
        return len(self._doubted)

    async def of(self, host: str, port: int) -> Sequence[Found]:
        """All addresses in the resolver's order; those in doubt last, of them the one first that failed
        first. Raises OSError if there is none."""
        try:
            answer = await self._loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except UnicodeError:  # a broker may say anything of itself
            raise OSError(f"{host!r} is no host's name") from None
        found = list(dict.fromkeys((family, address) for family, _, _, _, address in answer))
        if not found:
            raise OSError(f"no address for {host}")
        places = {address: place for place, address in enumerate(self._doubted)}
        found.sort(key=lambda one: places.get(one[1], -1))
        return found

    def is_doubted(self, address: SocketAddress) -> bool:
        """It failed when it was last tried."""
        return address in self._doubted

    def failed(self, address: SocketAddress) -> None:
        """It brought no connection, or no TLS; only worth telling where its host has others."""
        self._doubted.pop(address, None)
        if len(self._doubted) >= MAX_DOUBTED:
            del self._doubted[next(iter(self._doubted))]
        self._doubted[address] = None

    def served(self, address: SocketAddress) -> None:
        """A dial of it came to its end: it is in doubt no more."""
        self._doubted.pop(address, None)


def opened(family: int) -> socket.socket:
    """A non-blocking TCP socket. Raises OSError: no file descriptor is left."""
    broker = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    broker.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    broker.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    return broker


@lru_cache(maxsize=256)
def is_here(host: str, port: int) -> bool:
    """Whether this is an address of the loopback interface, written out."""
    return len(literal(host, port)) == 1 and ip_address(host).is_loopback


@lru_cache(maxsize=256)
def literal(host: str, port: int) -> tuple[Found, ...]:
    """What an IP address stands for, without a question to the resolver's threads; of a name nothing."""
    if "%" in host:
        return ()  # an interface's number may change
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    except (OSError, UnicodeError):
        return ()
    return tuple((family, address) for family, _, _, _, address in found)


def connects_at_once(broker: socket.socket, address: SocketAddress) -> bool:
    """Whether it is connected now. Within a machine it is when the first call returns; the second says so.

    False: under way. Raises OSError; ConnectionRefusedError also where it is connected to itself.
    """
    for _ in range(2):
        failed = broker.connect_ex(address)
        if failed not in _UNDER_WAY:
            if failed:
                raise OSError(failed, os.strerror(failed))
            refuse_itself(broker, address)
            return True
    return False


def refuse_itself(broker: socket.socket, address: SocketAddress) -> None:
    """Raise ConnectionRefusedError for a new connection whose two ends are the same: nobody listens there.

    The kernel chooses a dial's own port from 32768 to 60999. Where that is the very port that is dialled, on
    this machine, TCP connects the socket to itself (RFC 9293, simultaneous open). Who then begins to listen
    there finds the port taken; so closing it leaves nothing behind.
    """
    own = broker.getsockname()
    if own[1] == address[1] and own == broker.getpeername():  # its port nearly never is
        broker.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
        raise ConnectionRefusedError(ECONNREFUSED, os.strerror(ECONNREFUSED))
