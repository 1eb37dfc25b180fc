"""The shell of one client connection: raw non-blocking sockets on the loop, around the pure Session.

It alone reads, writes and closes the two sockets. Per wake-up: one recv into the worker's shared buffer, one
look by the session, one send of the same bytes; only what could not be sent, or may not go yet, is copied.
Back-pressure: who cannot be written to stops the other side's reads. Knows nothing of Kafka's frames.
"""

from __future__ import annotations

import socket
from asyncio import AbstractEventLoop, TimerHandle
from collections.abc import Callable
from math import ceil
from time import monotonic
from typing import Final

import structlog

from sluice.protocol.errors import ProtocolError
from sluice.proxy.causes import DisconnectCause
from sluice.proxy.gauges import Gauges
from sluice.proxy.pace import State
from sluice.proxy.session import Session
from sluice.quotas.records import ConnectionRecord, Recorder

RECEIVE_BYTES: Final = 1024 * 1024
"""1 MiB halves the CPU per byte against 64 KiB (docs/decisions.md)."""
THROTTLED_RECEIVE_BYTES: Final = 64 * 1024
"""A throttled connection's unread requests belong in the kernel's buffers, not in copies of ours."""
_ENDING_DEADLINE_S: Final = 10.0
"""How long a connection that begins no more requests waits for the answers still due."""
_LINGER_S: Final = 1.0
"""How long a closed connection's unread bytes are read away: closing on them would send a reset, which can
destroy the last answer on its way."""
_ESTABLISHED: Final = 1  # TCP_ESTABLISHED, first byte of struct tcp_info


class Worker:
    """What the connections of one event loop share."""

    __slots__ = ("buf", "gauges", "loop", "recorder", "small_view", "view")

    def __init__(self, loop: AbstractEventLoop, recorder: Recorder, gauges: Gauges) -> None:
        self.loop = loop
        self.recorder = recorder
        self.gauges = gauges
        self.buf = bytearray(RECEIVE_BYTES)
        self.view = memoryview(self.buf)
        self.small_view = self.view[:THROTTLED_RECEIVE_BYTES]


class Connection:
    """Two sockets and the session between them."""

    __slots__ = (
        "_broker",
        "_broker_kept",
        "_broker_out",
        "_broker_reading",
        "_buf",
        "_client",
        "_client_gone",
        "_client_kept",
        "_client_out",
        "_client_reading",
        "_closed",
        "_delayed_as",
        "_eof",
        "_loop",
        "_on_close",
        "_opened_ms",
        "_read_view",
        "_timer",
        "_view",
        "_worker",
        "peer",
        "session",
    )

    def __init__(
        self,
        worker: Worker,
        client: socket.socket,
        broker: socket.socket,
        session: Session,
        peer: str,
        on_close: Callable[[Connection], None],
    ) -> None:
        self._worker = worker
        self._loop = worker.loop
        self._buf = worker.buf
        self._view = worker.view
        self._read_view = worker.view
        self._client = client
        self._broker = broker
        self.session = session
        self.peer = peer
        self._on_close = on_close
        self._opened_ms = monotonic() * 1000.0
        self._client_kept: bytes | None = None  # read, but not to be forwarded yet
        self._broker_kept: bytes | None = None
        self._client_out: bytearray | None = None  # to be sent to the client when it takes more
        self._broker_out: bytearray | None = None
        self._client_reading = False
        self._broker_reading = False
        self._client_gone = False  # nothing can be written to it any more
        self._eof = False  # nothing more comes from it
        self._timer: TimerHandle | None = None
        self._delayed_as: str | None = None
        self._closed = False

    def __repr__(self) -> str:
        return f"<Connection {self.peer} {self.session!r}>"

    def start(self) -> None:
        """Begin to relay; both sockets are connected and non-blocking."""
        self._worker.gauges.connections += 1
        self._worker.gauges.connections_opened += 1
        self._read_from_broker(True)
        self._read_from_client(True)

    # Client to broker -------------------------------------------------------------------------------------

    def _client_readable(self) -> None:
        try:
            kept = self._client_kept
            try:
                if kept is None:
                    end = got = self._client.recv_into(self._read_view)
                else:
                    start = len(kept)
                    self._buf[:start] = kept
                    got = self._client.recv_into(self._view[start:])
                    end = start + got
            except BlockingIOError:
                return
            except OSError:
                self._client_gone = True
                self._client_ended(DisconnectCause.CLIENT_RESET)
                return
            if not got:
                self._client_ended(DisconnectCause.CLIENT_CLOSED)
                return
            self._take_from_client(end, monotonic() * 1000.0)
        except Exception:
            self._crashed()

    def _take_from_client(self, end: int, now_ms: float) -> None:
        """Give `buf[:end]` to the session; send on what may go, keep the rest."""
        session = self.session
        cut = session.client_data(self._buf, 0, end, now_ms)
        self._client_kept = None if cut == end else bytes(self._view[cut:end])
        if cut:
            sent = 0
            try:
                if self._broker_out is None:
                    sent = self._broker.send(self._view[:cut])
            except BlockingIOError:
                pass
            except OSError:
                self._broker_ended(DisconnectCause.BROKER_RESET)
                return
            if sent < cut:
                self._send_to_broker_later(sent, cut)
        if session.pace.state:
            self._not_reading()

    def _send_to_broker_later(self, start: int, end: int) -> None:
        if self._broker_out is None:
            self._broker_out = bytearray()
            self._loop.add_writer(self._broker, self._broker_writable)
            self._read_from_client(False)
        self._broker_out += self._view[start:end]

    def _broker_writable(self) -> None:
        out = self._broker_out
        assert out is not None
        try:
            sent = self._broker.send(out)
        except BlockingIOError:
            return
        except OSError:
            self._broker_ended(DisconnectCause.BROKER_RESET)
            return
        if sent < len(out):
            del out[:sent]
            return
        self._broker_out = None
        self._loop.remove_writer(self._broker)
        if self._eof:
            self._pass_end_on()
        elif not self.session.pace.state:
            self._read_from_client(True)
        elif self.session.finished:
            self._finish()

    def _client_ended(self, cause: DisconnectCause) -> None:
        """The client closed its side: what it sent goes on, what it asked for is answered, if it still
        listens."""
        self._eof = True
        self._client_kept = None
        self._read_from_client(False)
        self._no_longer_delayed()
        self.session.client_closed(cause)
        if self._client_gone and self._broker_out is None:
            self._finish()
        elif self._broker_out is None:
            self._pass_end_on()

    def _pass_end_on(self) -> None:
        if self.session.finished or self._client_gone:
            self._finish()
            return
        try:
            self._broker.shutdown(socket.SHUT_WR)
        except OSError:
            self._finish()
            return
        self._arm(_ENDING_DEADLINE_S, self._finish)

    # Broker to client -------------------------------------------------------------------------------------

    def _broker_readable(self) -> None:
        try:
            kept = self._broker_kept
            try:
                if kept is None:
                    end = got = self._broker.recv_into(self._view)
                else:
                    start = len(kept)
                    self._buf[:start] = kept
                    got = self._broker.recv_into(self._view[start:])
                    end = start + got
            except BlockingIOError:
                return
            except OSError:
                self._broker_ended(DisconnectCause.BROKER_RESET)
                return
            if not got:
                self._broker_ended(DisconnectCause.BROKER_CLOSED)
                return
            session = self.session
            try:
                cut = session.broker_data(self._buf, 0, end, monotonic() * 1000.0)
            except ProtocolError as error:
                self._fail(DisconnectCause(error.cause), str(error))
                return
            self._broker_kept = None if cut == end else bytes(self._view[cut:end])
            if cut and not self._client_gone:
                sent = 0
                try:
                    if self._client_out is None:
                        sent = self._client.send(self._view[:cut])
                except BlockingIOError:
                    pass
                except OSError:
                    self._client_gone = True
                    sent = cut
                if sent < cut:
                    self._send_to_client_later(sent, cut)
            if session.pace.state or not self._client_reading:
                self._after_answer()
        except Exception:
            self._crashed()

    def _after_answer(self) -> None:
        """An answer may have muted the connection, ended the wait for it, or been the last one due."""
        if self._closed:
            return
        if not self.session.pace.state:
            if self._client_kept is not None and self._broker_out is None and not self._eof:
                self._resume()
            self._read_from_client(True)
        else:
            self._not_reading()

    def _send_to_client_later(self, start: int, end: int) -> None:
        if self._client_out is None:
            self._client_out = bytearray()
            self._loop.add_writer(self._client, self._client_writable)
            self._read_from_broker(False)
        self._client_out += self._view[start:end]

    def _client_writable(self) -> None:
        out = self._client_out
        assert out is not None
        try:
            sent = self._client.send(out)
        except BlockingIOError:
            return
        except OSError:
            self._client_gone = True
            sent = len(out)
        if sent < len(out):
            del out[:sent]
            return
        self._client_out = None
        self._loop.remove_writer(self._client)
        if self._broker.fileno() < 0 or self.session.finished:
            self._finish()
        else:
            self._read_from_broker(True)

    def _broker_ended(self, cause: DisconnectCause) -> None:
        """The broker closed: its last bytes still go to the client."""
        self.session.pace.end(cause, "", at_boundary=True)
        self._close_broker()
        self._finish()

    # Delays -----------------------------------------------------------------------------------------------

    def _not_reading(self) -> None:
        """The session begins no further request for now; find out until when."""
        if self._closed:
            return
        pace = self.session.pace
        self._read_from_client(False)
        if pace.is_delayed:
            self._read_view = self._worker.small_view
            kind = pace.throttled_by
            if self._delayed_as is None and kind is not None:
                self._delayed_as = kind.value
                self._worker.gauges.delayed[kind.value] += 1
            if self._timer is None:
                self._arm_until(pace.wake_ms)
        elif pace.state is State.ENDING:
            self._no_longer_delayed()
            if self.session.finished:
                self._finish()
            elif self._timer is None:
                self._arm(_ENDING_DEADLINE_S, self._finish)

    def _wake(self) -> None:
        self._timer = None
        try:
            pace = self.session.pace
            now_ms = monotonic() * 1000.0
            if now_ms < pace.wake_ms - 0.5:  # the loop's clock ticks in ms
                self._arm_until(pace.wake_ms)
                return
            self.session.wake(now_ms, self._client_left())
            if pace.state:
                self._not_reading()
            else:
                self._resume()
        except Exception:
            self._crashed()

    def _resume(self) -> None:
        """READING again: first what was kept."""
        self._no_longer_delayed()
        kept = self._client_kept
        if kept is None:
            self._read_view = self._view
        else:
            end = len(kept)
            self._buf[:end] = kept
            self._take_from_client(end, monotonic() * 1000.0)
        if not self._closed and not self.session.pace.state:
            self._read_from_client(True)

    def _client_left(self) -> bool:
        """A FIN behind unread bytes shows neither in a peek nor as readable; the kernel knows."""
        try:
            return self._client.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] != _ESTABLISHED
        except OSError:
            return True

    def _no_longer_delayed(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._delayed_as is not None:
            self._worker.gauges.delayed[self._delayed_as] -= 1
            self._delayed_as = None

    def _arm_until(self, at_ms: float) -> None:
        delay_ms = max(0, ceil(at_ms - monotonic() * 1000.0))
        self._timer = self._loop.call_later(delay_ms / 1000.0, self._wake)

    def _arm(self, delay_s: float, call: Callable[[], None]) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(delay_s, call)

    # Ends -------------------------------------------------------------------------------------------------

    def drain(self) -> None:
        """Begin no further request; close when what is in flight is answered."""
        if self._closed:
            return
        self._no_longer_delayed()
        self.session.drain(monotonic() * 1000.0)
        if self.session.pace.state:
            self._not_reading()
        else:
            self._resume()

    def abort(self, cause: DisconnectCause) -> None:
        """Close now, whatever is due."""
        self._client_gone = True
        if self._closed:
            self._close_client()
            return
        self.session.pace.close_cause = cause
        self._finish()

    def _fail(self, cause: DisconnectCause, detail: str) -> None:
        self.session.pace.close_cause = cause
        self.session.pace.close_detail = detail
        self._close_broker()
        self._finish()

    def _crashed(self) -> None:
        """A fault of ours costs this connection, never another."""
        structlog.get_logger().exception("internal error", peer=self.peer, session=repr(self.session))
        self._client_gone = True
        self._fail(DisconnectCause.INTERNAL_ERROR, "see the log")

    def _finish(self) -> None:
        """Close both sides; the client's once it has taken what is due to it."""
        if self._closed:
            return
        if self._client_out is not None and not self._client_gone:
            self._read_from_client(False)
            self._close_broker()
            self._arm(_ENDING_DEADLINE_S, lambda: self.abort(DisconnectCause.CLIENT_RESET))
            return
        self._closed = True
        self._no_longer_delayed()
        self._read_from_client(False)
        if self._client_out is not None:
            self._loop.remove_writer(self._client)
            self._client_out = None
        self._close_broker()
        self._record()
        self.session.closed(monotonic() * 1000.0)
        self._worker.gauges.connections -= 1
        if self._eof or self._client_gone:
            self._close_client()
        else:
            self._linger()

    def _linger(self) -> None:
        try:
            self._client.shutdown(socket.SHUT_WR)
        except OSError:
            self._close_client()
            return
        self._loop.add_reader(self._client, self._read_away)
        self._client_reading = True
        self._arm(_LINGER_S, self._close_client)

    def _read_away(self) -> None:
        try:
            if self._client.recv_into(self._view):
                return
        except BlockingIOError:
            return
        except OSError:
            pass
        self._close_client()

    def _close_client(self) -> None:
        if self._client.fileno() < 0:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._read_from_client(False)
        self._client.close()
        self._on_close(self)

    def _close_broker(self) -> None:
        if self._broker.fileno() < 0:
            return
        self._read_from_broker(False)
        if self._broker_out is not None:
            self._loop.remove_writer(self._broker)
            self._broker_out = None
        self._broker.close()

    def _record(self) -> None:
        session = self.session
        self._worker.recorder.connections.append(
            ConnectionRecord(
                cause=session.pace.close_cause or DisconnectCause.CLIENT_CLOSED,
                detail=session.pace.close_detail,
                peer=self.peer,
                user=session.user,
                client_id=session.client_id,
                opened_ms=self._opened_ms,
                closed_ms=monotonic() * 1000.0,
                requests=session.requests,
                bytes_from_client=session.bytes_from_client,
                bytes_to_client=session.bytes_to_client,
            )
        )

    def _read_from_client(self, want: bool) -> None:
        want = want and not self._eof and not self._closed and self._broker_out is None
        if want is not self._client_reading:
            self._client_reading = want
            if want:
                self._loop.add_reader(self._client, self._client_readable)
            else:
                self._loop.remove_reader(self._client)

    def _read_from_broker(self, want: bool) -> None:
        if want is not self._broker_reading:
            self._broker_reading = want
            if want:
                self._loop.add_reader(self._broker, self._broker_readable)
            else:
                self._loop.remove_reader(self._broker)
