"""The broker's side of a connection whose client has not sent anything yet that may go to a broker.

No broker is dialled for who says nothing, or nothing that a session lets through: a port scan, a health check
of a balancer, noise, a request before its login. Nothing of them reaches the broker, nor takes one of its
connections.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar, cast

from sluice.proxy.connection.peer import Peer
from sluice.proxy.connection.poller import Poller
from sluice.proxy.connection.stream import Stream
from sluice.proxy.session.causes import DisconnectCause

Owner_contra = TypeVar("Owner_contra", contravariant=True)
"""the connection; this module need not know it"""


class NotConnected(Exception):
    """No broker could be had for this client."""

    def __init__(self, cause: DisconnectCause, detail: str) -> None:
        super().__init__(detail)
        self.cause = cause
        self.detail = detail
        """empty if the log has it already"""


class Dials(Protocol[Owner_contra]):
    """How one client's connection comes to its broker: once, when the first bytes are to go there."""

    def at_once(self, connection: Owner_contra) -> Stream | None:
        """A stream to it, if nothing has to be waited for. None: `connect`."""

    async def connect(self, connection: Owner_contra) -> Stream:
        """A stream to it on which requests may be sent. Raises NotConnected."""


class Undialled(Peer):
    """Stands where the broker will: keeps what is to go there, and has it dialled for the first of it."""

    __slots__ = ("_is_closed", "successor")

    def __init__(self, poller: Poller, view: memoryview, first: Callable[[memoryview], int]) -> None:
        """`first`: gets the first bytes, and returns how many of them a broker has taken, or raises
        BlockingIOError: it is dialled now."""
        super().__init__(poller, cast(Stream, _Doorway(first)), _nobody, _nobody, view)
        self._is_closed = False
        self.successor: Peer | None = None
        """the broker, once it is reached"""

    @property
    def is_closed(self) -> bool:
        """True once we have closed it."""
        return self._is_closed

    @property
    def receive_buffer_bytes(self) -> int:
        """Nothing comes of nobody."""
        return 0

    def read(self, want: bool) -> None:
        """Only noted, for the successor."""
        self.reading = want

    def send_later(self, rest: memoryview) -> None:
        """Keep a copy until the broker is reached."""
        if self.successor is not None:
            self.successor.send_later(rest)
            return
        self.out = self.out or bytearray()
        self.out += rest

    def finish_sending(self) -> bool:
        """There is nobody to be told."""
        return True

    def close(self) -> None:
        """Harmless when closed already."""
        self._is_closed = True
        self.reading = False
        self.out = None
        self.sock = cast(Stream, _Doorway(_nothing_sent))  # no circle: the connection is freed at once


class _Doorway:
    """What is called of a Stream that has not been opened."""

    __slots__ = ("send",)

    def __init__(self, send: Callable[[memoryview], int]) -> None:
        self.send = send


def _nothing_sent(data: memoryview) -> int:
    raise BlockingIOError


def _nobody() -> None:
    """Nothing can be read of it, and nothing is drained."""
