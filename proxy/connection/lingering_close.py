"""The end of a connection that the proxy closes: what its client still sends is read away for a moment.

Closing on unread bytes would send a reset, which can destroy the last answer on its way.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from sluice.proxy.connection.peer import Peer
from sluice.proxy.connection.worker import Worker

_LINGER_S: Final = 1.0


class Linger:
    """`peer` has been told that nothing more comes; it is closed when it closes too, or soon."""

    __slots__ = ("_on_end", "_peer", "_spare", "_timer", "_view")

    def __init__(self, peer: Peer, worker: Worker, on_end: Callable[[], None]) -> None:
        self._peer = peer
        self._view = worker.view
        self._spare = worker.limits.spare
        self._on_end = on_end
        self._timer = worker.loop.call_later(_LINGER_S, self.end)
        peer.read(False)
        peer.on_readable = self._read_away
        peer.read(True)
        self._spare.lend(self, self.end)

    def end(self) -> None:
        """Close now; harmless when closed already."""
        if not self._peer.is_closed:
            self._timer.cancel()
            self._spare.returned(self)
            self._peer.close()
            self._on_end()
            # It holds the connection, which holds this: without the circle all is freed at once.
            self._on_end = _nobody

    def _read_away(self) -> None:
        try:
            if self._peer.sock.recv_into(self._view):
                return
        except BlockingIOError:
            return
        except OSError:
            pass
        self.end()


def _nobody() -> None:
    """Hears of an end that was told already."""
