"""The data path of one client connection: two streams on the loop, around the pure Session.

Per wake-up: one recv into the worker's shared buffer, one look by the session, one send of the same bytes;
only what could not be sent, or may not go yet, is copied. Back-pressure: who does not take its bytes stops
the other side's reads. Knows nothing of Kafka's frames; beginning and ending are connection.py's.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from time import monotonic
from typing import Any, Final

from sluice.protocol.addresses.addresses import spliced
from sluice.protocol.errors import ProtocolError
from sluice.proxy.connection.budget import WINDOW_BYTES, BufferShare
from sluice.proxy.connection.peer import Peer
from sluice.proxy.connection.read_ahead import AHEAD_FROM_MS, Ahead, arrived_bytes, has_room, read_ahead
from sluice.proxy.connection.receive import LARGE_BYTES, kept_of, receive_behind, receive_large
from sluice.proxy.connection.splice import can_pass, expect, move
from sluice.proxy.connection.stream import Stream
from sluice.proxy.connection.timeouts import ENDING_DEADLINE_S, LAST_ANSWER_S
from sluice.proxy.connection.timer import DelayTimer
from sluice.proxy.connection.worker import HEAD_BYTES, Worker
from sluice.proxy.session.causes import DisconnectCause
from sluice.proxy.session.connection_states import State
from sluice.proxy.session.read_gate import EARLY_MS
from sluice.proxy.session.session import Passing, Session

_IN_ORDER: Final = frozenset({DisconnectCause.DRAINED, DisconnectCause.BROKER_MOVED})  # not its doing


class Relay(ABC):
    """Bytes from the client to the broker and back, as fast as the session lets them."""

    __slots__ = (
        "_broker", "_broker_kept", "_buf", "_client", "_client_kept", "_closed", "_drops", "_edits", "_eof",
        "_is_heard", "_kept_from", "_moves", "_pace", "_share", "_timer", "_view", "_worker", "session",
    )  # fmt: skip

    _share: BufferShare[Any]
    """of the principal: how much may be read at once"""

    def __init__(self, worker: Worker, client: Stream, broker: Stream, session: Session) -> None:
        """Both streams are connected and non-blocking."""
        self._worker = worker
        self._buf = worker.buf
        self._view = worker.view
        self._client = Peer(worker.loop, client, self._client_readable, self._client_drained, worker.view)
        self._broker = Peer(worker.loop, broker, self._broker_readable, self._broker_drained, worker.view)
        self._moves = can_pass(client, broker)
        self.session = session
        self._pace = session.pace
        self._edits = session.edits
        self._drops = session.drops
        # Soon, not at once: who calls may be in the middle of its own bytes, in the buffer that all share.
        session.wake_by(lambda: worker.loop.call_soon(self._wake_now))
        self._client_kept: bytes | bytearray | None = None  # read, but not to be forwarded yet
        self._kept_from = 0  # what is before it has gone on
        self._broker_kept: bytes | None = None
        self._eof = False  # nothing more comes from the client
        self._is_heard = False  # nothing more is read ahead: it is enough, or its end has come
        self._timer = DelayTimer(worker)
        self._closed = False

    @property
    def is_closed(self) -> bool:
        """It relays no more."""
        return self._closed

    @abstractmethod
    def _finish(self) -> None:
        """Close both sides; the client's once it has taken what is due to it."""

    @abstractmethod
    def fail(self, cause: DisconnectCause, detail: str) -> None:
        """The broker's bytes cannot be relayed: end."""

    @abstractmethod
    def _crashed(self) -> None:
        """An exception that nobody expected: end this connection, and no other."""

    @abstractmethod
    def _tell_kept(self) -> None:
        """What is kept has changed; may end the connection."""

    @abstractmethod
    def _answer_locally(self) -> None:
        """Send the session's own answers; have answered what the client may have asked the proxy itself."""

    @abstractmethod
    def _is_seated(self) -> bool:
        """The principal has become known. False: the connection is ended for it."""

    # Client to broker -------------------------------------------------------------------------------------

    def _client_readable(self) -> None:
        try:
            kept = self._client_kept
            client = self._client
            try:
                if kept is None and self._share.window_bytes == WINDOW_BYTES:
                    if client.passing and self._move(client, self._broker, self.session.client_frames):
                        return
                    end = got = client.sock.recv_into(client.view)
                elif isinstance(kept, bytearray):
                    end, got = receive_large(client.sock, kept, self._share.window_bytes)
                else:
                    view = client.view if kept is None else self._view
                    end, got = receive_behind(client.sock, view, kept, self._share.window_bytes)
            except BlockingIOError:
                return
            except OSError:
                client.gone = True
                self._client_ended(DisconnectCause.CLIENT_RESET)
                return
            if not got:
                self._client_ended(DisconnectCause.CLIENT_CLOSED)
            elif isinstance(kept, bytearray):
                self._take_large(kept)
            else:
                self._take_from_client(self._buf, self._view, end, monotonic() * 1000.0)
                if end >= HEAD_BYTES and self._moves:
                    expect(client, self.session.client_frames, self._worker)
        except Exception:
            self._crashed()

    def _take_from_client(self, buf: bytearray, view: memoryview, end: int, now_ms: float) -> None:
        """Give `buf[:end]` to the session; send on what may go, keep the rest. `view`: of `buf`."""
        cut = self.session.client_data(buf, 0, end, now_ms)
        keeps = self._client_kept is not None
        if cut != end:
            self._keep(buf, view, cut, end)
            keeps = True
        elif keeps:
            self._client_kept = None
        if cut or self._drops:
            broker = self._broker
            data = self._without_refused(view, cut) if self._drops else view[:cut]
            sent = 0
            try:
                if broker.out is None and data:
                    sent = broker.sock.send(data)
            except BlockingIOError:
                pass
            except OSError:
                self._broker_ended(DisconnectCause.BROKER_RESET)
                return
            if sent < len(data):
                broker.send_later(data[sent:])
                self._client.read(False)
                keeps = True
        if keeps:
            self._tell_kept()
        if self._pace.state:
            self._not_reading()

    def _without_refused(self, view: memoryview, end: int) -> memoryview:
        """`view[:end]` without the requests that the session has answered itself; their answers go now."""
        data = spliced(view, 0, end, self._drops)
        self._drops.clear()
        self._answer_locally()
        return memoryview(data)

    def _keep(self, buf: bytearray, view: memoryview, start: int, end: int) -> None:
        """What is not judged yet, or must wait. Where the shared buffer is too small, in one of its own."""
        if buf is self._client_kept and end - start > LARGE_BYTES:
            self._kept_from = start  # a copy for each request of megabytes would be quadratic
        elif start or buf is not self._client_kept:
            self._client_kept = kept_of(view[start:end])

    def _take_large(self, kept: bytearray) -> None:
        with memoryview(kept) as view:
            self._take_from_client(kept, view, len(kept), monotonic() * 1000.0)
        if self._kept_from:
            del kept[: self._kept_from]
            self._kept_from = 0
            self._tell_kept()

    def _broker_drained(self) -> None:
        self._tell_kept()
        if self._broker.gone:
            self._broker_ended(DisconnectCause.BROKER_RESET)
        elif self._eof:
            self._pass_end_on()
        elif not self._pace.state:
            self._read_client()
        elif self.session.finished:
            self._finish()

    def _client_ended(self, cause: DisconnectCause) -> None:
        """The client closed its side: what it sent goes on; what it asked for is answered, if it listens."""
        self._eof = True
        self._client_kept = None
        self._client.read(False)
        self._timer.end()
        self.session.client_closed(cause)
        if self._broker.out is None:
            self._pass_end_on()

    def _pass_end_on(self) -> None:
        if self.session.finished or self._client.gone or not self._broker.finish_sending():
            self._finish()
        else:
            self._arm_ending(self._finish)

    # Broker to client -------------------------------------------------------------------------------------

    # Whole on purpose: it runs at every wake-up of the broker's side, and each call more has its cost.
    def _broker_readable(self) -> None:
        try:
            kept = self._broker_kept
            broker = self._broker
            try:
                if kept is None and self._share.window_bytes == WINDOW_BYTES:
                    if broker.passing and self._move(broker, self._client, self.session.broker_frames):
                        return
                    end = got = broker.sock.recv_into(broker.view)
                else:
                    end, got = receive_behind(broker.sock, self._view, kept, self._share.window_bytes)
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
                self._client.send(self._answers(error.good_end))
                self.fail(DisconnectCause(error.cause), str(error))
                return
            keeps = kept is not None
            if cut != end:
                self._broker_kept = bytes(self._view[cut:end])
                keeps = True
            elif keeps:
                self._broker_kept = None
            client = self._client
            if cut:
                answers = self._answers(cut) if self._edits else self._view[:cut]
                sent = 0
                try:
                    if client.out is None:
                        sent = client.sock.send(answers)
                except OSError:
                    pass  # the client is busy or gone: `send` finds out
                if sent < len(answers) and not client.send(answers[sent:]):
                    broker.read(False)
                    keeps = True
            if keeps:
                self._tell_kept()
            if end >= HEAD_BYTES and self._moves:
                expect(broker, session.broker_frames, self._worker)
            if self._pace.state or not client.reading:
                self._after_answer()
        except Exception:
            self._crashed()

    def _answers(self, end: int) -> memoryview:
        """`buf[:end]` with the addresses that the session has replaced."""
        answers = spliced(self._view, 0, end, self._edits)
        self._edits.clear()
        return memoryview(answers)

    def _after_answer(self) -> None:
        """An answer may have muted the connection, ended the wait for it, or been the last one due."""
        if self._closed or (
            self._share.user is None and self.session.identity.authenticated and not self._is_seated()
        ):
            return
        if self._pace.state:
            self._not_reading()
        elif self._client_kept is not None and self._broker.out is None:
            self._resume()
        else:
            self._read_client()

    def _client_drained(self) -> None:
        self._tell_kept()
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

    def _move(self, source: Peer, target: Peer, frames: Passing) -> bool:
        """Let the rest of a large frame go on through the kernel. False: read."""
        moved = move(source, target, frames, self._worker)
        if target.out is not None:
            source.read(False)
            self._tell_kept()
        elif target.gone and target is self._broker:
            self._broker_ended(DisconnectCause.BROKER_RESET)
            return True
        return moved

    # Delays -----------------------------------------------------------------------------------------------

    def _not_reading(self) -> None:
        """The session begins no further request for now; find out until when."""
        if self._closed:
            return
        pace = self._pace
        self._client.read(False)
        if pace.is_delayed:
            self._client.view = self._worker.small_view
            now_ms = monotonic() * 1000.0
            self._wait(now_ms)
            if not self._is_heard and pace.wake_at_ms - now_ms > AHEAD_FROM_MS:
                self._client.call(self._client_ahead, want=True)
        elif pace.state is State.ENDING:
            self._timer.end()
            if not self.session.finished:
                self._arm_ending(self._finish)
            elif pace.close_cause in _IN_ORDER:
                self._timer.call_in(LAST_ANSWER_S, self._finish)
            else:
                self._finish()

    def _wait(self, now_ms: float) -> None:
        if self._client_kept is not None:
            self.session.arrived(arrived_bytes(self._client_kept), now_ms)
        if self._pace.is_delayed:  # still: the broker may be gone, or its turn have come with what arrived
            self._timer.delay_until(self._pace.wake_at_ms, self._pace.throttled_by, self._wake)

    def _client_ahead(self) -> None:
        """More has come of a client that waits, or its end."""
        try:
            sock = self._client.sock
            came, self._client_kept = read_ahead(sock, self._view, self._client_kept, self._share)
            self._wait(monotonic() * 1000.0)
            self._tell_kept()
            if came is not Ahead.MORE:
                self._client.heard(is_end=came is Ahead.END)
                self._is_heard = True
                self._wake_now()
        except Exception:
            self._crashed()

    def _wake_now(self) -> None:
        """The turn of a held request has come, maybe earlier than it was told."""
        if self._pace.state is State.HOLDING and not self._closed:
            self._timer.end()
            self._wake_session(monotonic() * 1000.0)

    def _wake(self) -> None:
        self._timer.has_come()
        now_ms = monotonic() * 1000.0
        if now_ms < self._pace.wake_at_ms - EARLY_MS:
            self._not_reading()
        else:
            self._wake_session(now_ms)

    def _wake_session(self, now_ms: float) -> None:
        try:
            self.session.wake(now_ms, self._client.has_left)
            if self._pace.state:
                self._not_reading()
            else:
                self._resume()
        except Exception:
            self._crashed()

    def _resume(self) -> None:
        """READING again: first what was kept."""
        self._timer.end()
        kept = self._client_kept
        if has_room(kept, self._share):
            self._is_heard = False
        if kept is None:
            self._client.view = self._view
        elif isinstance(kept, bytearray):
            self._take_large(kept)
        else:
            end = len(kept)
            self._buf[:end] = kept
            self._take_from_client(self._buf, self._view, end, monotonic() * 1000.0)
        if not self._pace.state:
            self._read_client()

    def _read_client(self) -> None:
        self._is_heard = False
        want = not self._eof and not self._closed and self._broker.out is None
        self._client.call(self._client_readable, want)

    def _arm_ending(self, call: Callable[[], None]) -> None:
        if self._pace.close_cause is not DisconnectCause.DRAINED:
            self._timer.call_in(ENDING_DEADLINE_S, call)
