"""The shell of one client connection: two raw sockets on the loop, around the pure Session.

It alone reads, writes and closes them. Per wake-up: one recv into the worker's shared buffer, one look by the
session, one send of the same bytes; only what could not be sent, or may not go yet, is copied.
Back-pressure: who does not take its bytes stops the other side's reads. Knows nothing of Kafka's frames.
"""

from __future__ import annotations

import socket
from asyncio import TimerHandle
from collections.abc import Callable
from math import ceil
from time import monotonic
from typing import Final

from sluice.protocol.errors import ProtocolError
from sluice.proxy.causes import DisconnectCause
from sluice.proxy.log import get_logger
from sluice.proxy.pace import State
from sluice.proxy.peer import Peer
from sluice.proxy.session import Session
from sluice.proxy.worker import Worker

_ENDING_DEADLINE_S: Final = 10.0
"""How long a connection that begins no more requests waits for the answers still due, or for a client to take
them. A drain has a deadline of its own (server.py)."""
_LINGER_S: Final = 1.0
"""How long a closed connection's unread bytes are read away: closing on them would send a reset, which can
destroy the last answer on its way."""
_LAST_ANSWER_S: Final = 0.2
"""Between the last answer of a drain and the end of the connection: kafka-python (3.0.12) drops an answer
that it reads together with the end behind it, and sends its request again."""
_EARLY_MS: Final = 0.5
"""the loop's clock ticks in ms, so that a timer may come this much early"""

_log = get_logger()


class Connection:
    """Two peers and the session between them."""

    __slots__ = (
        "_broker",
        "_broker_kept",
        "_buf",
        "_client",
        "_client_kept",
        "_client_view",
        "_closed",
        "_delayed_as",
        "_eof",
        "_loop",
        "_on_close",
        "_opened_ms",
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
        """Both sockets are connected and non-blocking. `peer`: the client's address, for the log."""
        self._worker = worker
        self._loop = worker.loop
        self._buf = worker.buf
        self._view = worker.view
        self._client_view = worker.view
        self._client = Peer(worker.loop, client, self._client_readable, self._client_drained)
        self._broker = Peer(worker.loop, broker, self._broker_readable, self._broker_drained)
        self.session = session
        self.peer = peer
        self._on_close = on_close
        self._opened_ms = monotonic() * 1000.0
        self._client_kept: bytes | None = None  # read, but not to be forwarded yet
        self._broker_kept: bytes | None = None
        self._eof = False  # nothing more comes from the client
        self._timer: TimerHandle | None = None
        self._delayed_as: str | None = None
        self._closed = False

    def __repr__(self) -> str:
        return f"<Connection {self.peer} {self.session!r}>"

    def start(self) -> None:
        """Begin to relay."""
        self._worker.gauges.connections += 1
        self._worker.gauges.connections_opened += 1
        self._broker.read(True)
        self._client.read(True)

    # Client to broker -------------------------------------------------------------------------------------

    def _client_readable(self) -> None:
        try:
            kept = self._client_kept
            try:
                if kept is None:
                    end = got = self._client.sock.recv_into(self._client_view)
                else:
                    start = len(kept)
                    self._buf[:start] = kept
                    got = self._client.sock.recv_into(self._view[start:])
                    end = start + got
            except BlockingIOError:
                return
            except OSError:
                self._client.gone = True
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
            broker = self._broker
            sent = 0
            try:
                if broker.out is None:
                    sent = broker.sock.send(self._view[:cut])
            except BlockingIOError:
                pass
            except OSError:
                self._broker_ended(DisconnectCause.BROKER_RESET)
                return
            if sent < cut:
                broker.send_later(self._view[sent:cut])
                self._client.read(False)
        if session.pace.state:
            self._not_reading()

    def _broker_drained(self) -> None:
        if self._broker.gone:
            self._broker_ended(DisconnectCause.BROKER_RESET)
        elif self._eof:
            self._pass_end_on()
        elif not self.session.pace.state:
            self._read_client()
        elif self.session.finished:
            self._finish()

    def _client_ended(self, cause: DisconnectCause) -> None:
        """The client closed its side: what it sent goes on; what it asked for is answered, if it listens."""
        self._eof = True
        self._client_kept = None
        self._client.read(False)
        self._no_longer_delayed()
        self.session.client_closed(cause)
        if self._broker.out is None:
            self._pass_end_on()

    def _pass_end_on(self) -> None:
        if self.session.finished or self._client.gone or not self._broker.finish_sending():
            self._finish()
        else:
            self._arm_ending(self._finish)

    # Broker to client -------------------------------------------------------------------------------------

    def _broker_readable(self) -> None:
        try:
            kept = self._broker_kept
            try:
                if kept is None:
                    end = got = self._broker.sock.recv_into(self._view)
                else:
                    start = len(kept)
                    self._buf[:start] = kept
                    got = self._broker.sock.recv_into(self._view[start:])
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
                self._client.send(self._view[: error.good_end])
                self._fail(DisconnectCause(error.cause), str(error))
                return
            self._broker_kept = None if cut == end else bytes(self._view[cut:end])
            if cut and not self._client.send(self._view[:cut]):
                self._broker.read(False)
            if session.pace.state or not self._client.reading:
                self._after_answer()
        except Exception:
            self._crashed()

    def _after_answer(self) -> None:
        """An answer may have muted the connection, ended the wait for it, or been the last one due."""
        if self.session.pace.state:
            self._not_reading()
        elif self._client_kept is not None and self._broker.out is None:
            self._resume()
        else:
            self._read_client()

    def _client_drained(self) -> None:
        if self._broker.is_closed:
            self._finish()
        elif self.session.finished:
            self._not_reading()
        else:
            self._broker.read(True)

    def _broker_ended(self, cause: DisconnectCause) -> None:
        """The broker closed: its last bytes still go to the client."""
        self.session.broker_closed(cause)
        self._broker.close()
        self._finish()

    # Delays -----------------------------------------------------------------------------------------------

    def _not_reading(self) -> None:
        """The session begins no further request for now; find out until when."""
        if self._closed:
            return
        pace = self.session.pace
        self._client.read(False)
        if pace.is_delayed:
            self._client_view = self._worker.small_view
            kind = pace.throttled_by
            if self._delayed_as is None and kind is not None:
                self._delayed_as = kind.value
                self._worker.gauges.delayed[kind.value] += 1
            if self._timer is None:
                self._arm_until(pace.wake_ms)
        elif pace.state is State.ENDING:
            self._no_longer_delayed()
            if not self.session.finished:
                self._arm_ending(self._finish)
            elif pace.close_cause is DisconnectCause.DRAINED:
                self._arm(_LAST_ANSWER_S, self._finish)
            else:
                self._finish()

    def _wake(self) -> None:
        self._timer = None
        try:
            pace = self.session.pace
            now_ms = monotonic() * 1000.0
            if now_ms < pace.wake_ms - _EARLY_MS:
                self._arm_until(pace.wake_ms)
                return
            self.session.wake(now_ms, self._client.has_left)
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
            self._client_view = self._view
        else:
            end = len(kept)
            self._buf[:end] = kept
            self._take_from_client(end, monotonic() * 1000.0)
        if not self.session.pace.state:
            self._read_client()

    def _read_client(self) -> None:
        self._client.read(not self._eof and not self._closed and self._broker.out is None)

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

    def _arm_ending(self, call: Callable[[], None]) -> None:
        if self.session.pace.close_cause is not DisconnectCause.DRAINED:
            self._arm(_ENDING_DEADLINE_S, call)

    # Ends -------------------------------------------------------------------------------------------------

    def drain(self) -> None:
        """Begin no further request; close when what is in flight is answered. The caller has the deadline."""
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
        self._client.gone = True
        if self._closed:
            self._close_client()
            return
        self.session.pace.close_cause = cause
        self._finish()

    def _fail(self, cause: DisconnectCause, detail: str) -> None:
        self.session.pace.close_cause = cause
        self.session.pace.close_detail = detail
        self._broker.close()
        self._finish()

    def _crashed(self) -> None:
        """A fault of ours costs this connection, never another."""
        _log.exception("internal_error", peer=self.peer, session=repr(self.session))
        self._client.gone = True
        self._fail(DisconnectCause.INTERNAL_ERROR, "see the log")

    def _finish(self) -> None:
        """Close both sides; the client's once it has taken what is due to it."""
        if self._closed:
            return
        client = self._client
        if client.out is not None and not client.gone:
            client.read(False)
            self._broker.close()
            self._arm_ending(self._client_takes_nothing)
            return
        self._closed = True
        self._no_longer_delayed()
        client.read(False)
        self._broker.close()
        now_ms = monotonic() * 1000.0
        self._worker.recorder.connections.append(self.session.record(self.peer, self._opened_ms, now_ms))
        self.session.closed(now_ms)
        self._worker.gauges.connections -= 1
        if self._eof or client.gone or not client.finish_sending():
            self._close_client()
        else:
            client.on_readable = self._read_away
            client.read(True)
            self._arm(_LINGER_S, self._close_client)

    def _client_takes_nothing(self) -> None:
        self._client.gone = True
        self._finish()

    def _read_away(self) -> None:
        try:
            if self._client.sock.recv_into(self._view):
                return
        except BlockingIOError:
            return
        except OSError:
            pass
        self._close_client()

    def _close_client(self) -> None:
        if self._client.is_closed:
            return
        self._no_longer_delayed()
        self._client.close()
        self._on_close(self)
