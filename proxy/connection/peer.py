"""One socket of a connection: whether it is read, and what it has not taken yet.

Non-blocking, on a Poller's readers and writers. Sending at once is the caller's, for it is the common case;
what the socket does not take is kept here and sent when it can be. Knows nothing of sessions.
"""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable

from sluice.proxy.connection.poller import Poller
from sluice.proxy.connection.stream import Stream, has_left


class Peer:
    """`on_readable`: bytes or an end have come. `on_drained`: all that was kept is sent, or the peer is
    gone."""

    __slots__ = (
        "_has_ended",
        "_on_drained",
        "_poller",
        "gone",
        "on_readable",
        "out",
        "passing",
        "reading",
        "sock",
        "view",
    )

    def __init__(
        self,
        poller: Poller,
        sock: Stream,
        on_readable: Callable[[], None],
        on_drained: Callable[[], None],
        view: memoryview,
    ) -> None:
        """`view`: of the shared buffer, what is read into."""
        self._poller = poller
        self.sock = sock
        self.on_readable = on_readable
        self._on_drained = on_drained
        self.view = view
        self.passing = False
        """in the middle of a large frame, which is moved and not read (splice.py)"""
        self.reading = False
        self._has_ended = False
        self.gone = False
        """nothing can be written to it any more"""
        self.out: bytearray | None = None
        """what it has not taken yet; None: all"""

    @property
    def is_closed(self) -> bool:
        """True once we have closed it."""
        return self.sock.fileno() < 0

    @property
    def has_left(self) -> bool:
        """It closed its side: TLS may say so before TCP does, for an orderly client waits for the answer."""
        return self._has_ended or has_left(self.sock)

    @property
    def receive_buffer_bytes(self) -> int:
        """So many bytes may have come that are not read yet."""
        try:
            return int.from_bytes(self.sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4), sys.byteorder)
        except OSError:
            return 0

    def heard(self, *, is_end: bool) -> None:
        """Read no more of it: it is enough, or its end has come."""
        self._has_ended = is_end
        self.read(False)

    def read(self, want: bool) -> None:
        """Have `on_readable` called, or not."""
        if want is not self.reading:
            self.reading = want
            if want:
                self._poller.add_reader(self.sock.fileno(), self.on_readable)
            else:
                self._poller.remove_reader(self.sock.fileno())

    def call(self, on_readable: Callable[[], None], want: bool) -> None:
        """As `read`, with another function."""
        replaces = want and self.reading and on_readable != self.on_readable
        self.on_readable = on_readable
        if replaces:  # in the other's place: to stop and start would be two system calls
            self._poller.add_reader(self.sock.fileno(), on_readable)
        else:
            self.read(want)

    def send(self, data: memoryview) -> bool:
        """Send now what it takes, and keep the rest. False: something is kept, so bring no more for now."""
        if self.gone:
            return True
        sent = 0
        try:
            if self.out is None:
                sent = self.sock.send(data)
        except BlockingIOError:
            pass
        except OSError:
            self.gone = True
            return True
        if sent < len(data):
            self.send_later(data[sent:])
            return False
        return True

    def send_later(self, rest: memoryview) -> None:
        """Keep a copy of what it did not take, behind what is kept already."""
        if self.out is None:
            self.out = bytearray()
            self._poller.add_writer(self.sock.fileno(), self._writable)
        self.out += rest

    def _writable(self) -> None:
        out = self.out
        assert out is not None
        try:
            sent = self.sock.send(out)
        except BlockingIOError:
            return
        except OSError:
            self.gone = True
            sent = len(out)
        if sent < len(out):
            del out[:sent]
            return
        self.out = None
        self._poller.remove_writer(self.sock.fileno())
        self._on_drained()

    def finish_sending(self) -> bool:
        """Tell it that nothing more comes (FIN). False: it is not there any more."""
        try:
            self.sock.shutdown(socket.SHUT_WR)
        except OSError:
            return False
        return True

    def close(self) -> None:
        """Close, whatever is kept; harmless when closed already."""
        if self.is_closed:
            return
        self._poller.forget(self.sock.fileno())
        self.reading = False
        self.out = None
        self.sock.close()
        # Whose methods these are holds this peer: without the circle the connection is freed at once, and
        # does not wait for a collector that seldom runs (runtime/garbage.py).
        self.on_readable = self._on_drained = _nobody


def _nobody() -> None:
    """Hears of a closed peer."""
