"""The data path of one client connection: two streams on the loop, around the pure Session.

Per wake-up: one recv into the worker's shared buffer, one look by the session, one send of the same bytes;
only what could not be sent, or may not go yet, is copied. Back-pressure: who does not take its bytes stops
the other side's reads. Knows nothing of Kafka's frames; beginning and ending are connection.py's.
"""

from __future__ import annotations

from abc import abstractmethod
from time import monotonic
from typing import Final

from sluice.protocol.addresses.addresses import spliced
from sluice.protocol.errors import ProtocolError
from sluice.proxy.connection.budget import WINDOW_BYTES
from sluice.proxy.connection.client_side import IN_ORDER, ClientSide
from sluice.proxy.connection.peer import Peer
from sluice.proxy.connection.splice import can_pass, expect, move
from sluice.proxy.connection.stream import LARGE_BYTES, Stream, kept_of, receive_behind, receive_large
from sluice.proxy.connection.undialled import Undialled
from sluice.proxy.connection.worker import HEAD_BYTES, Worker
from sluice.proxy.session.causes import DisconnectCause
from sluice.proxy.session.connection_states import State
from sluice.proxy.session.session import Passing, Session

BROKER_SENDS_BYTES: Final = 256 * 1024
"""of an answer may be in a broker's send buffer: by default (socket.send.buffer.bytes) Linux makes 200 KiB"""


class Relay(ClientSide):
    """Bytes from the client to the broker and back, as fast as the session lets them."""

    __slots__ = (
        "_broker", "_broker_kept", "_drops", "_edits", "_goes_on_soon", "_is_due", "_kept_from", "_moves",
    )  # fmt: skip

    def __init__(self, worker: Worker, client: Stream, broker: Stream | None, session: Session) -> None:
        """Both streams are connected and non-blocking. `broker` None: it is dialled for the first bytes."""
        super().__init__(worker, client, session)
        self._broker: Peer
        self._moves = False
        if broker is None:
            self._broker = Undialled(worker.poller, worker.view, self._first_for_broker)
        else:
            self._use_broker(broker)
        self._edits = session.edits
        self._drops = session.drops
        self._kept_from = 0  # of what is kept of the client: what is before it has gone on
        self._broker_kept: bytes | None = None
        self._goes_on_soon = False  # with what is kept of the broker
        self._is_due = False  # answers of the session's own wait behind the broker's

    @property
    def is_closed(self) -> bool:
        """It relays no more."""
        return self._closed

    @abstractmethod
    def fail(self, cause: DisconnectCause, detail: str) -> None:
        """The broker's bytes cannot be relayed: end."""

    @abstractmethod
    def _answer_locally(self) -> None:
        """Send the session's own answers; have answered what the client may have asked the proxy itself."""

    @abstractmethod
    def _is_seated(self) -> bool:
        """The principal has become known. False: the connection is ended for it."""

    @abstractmethod
    def _first_for_broker(self, data: memoryview) -> int:
        """Dial the broker, for these bytes. Returns how many of them it took; raises BlockingIOError: it will
        be there later, or not."""

    def _use_broker(self, broker: Stream) -> Peer:
        """Bytes go there from now on."""
        worker = self._worker
        self._broker = Peer(worker.poller, broker, self._broker_readable, self._broker_drained, worker.view)
        self._moves = can_pass(self._client.sock, broker)
        return self._broker

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
            data = view[:cut]
            if self._drops:
                data, keeps = self._without_refused(view, cut), True
            sent = 0
            try:
                if broker.out is None and data:
                    sent = broker.sock.send(data)
            except BlockingIOError:
                pass
            except OSError:
                self._broker_takes_no_more()
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
        self._is_due = self.session.due_bytes > 0
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

    def _has_unsent(self) -> bool:
        return self._broker.out is not None and not self._broker.gone

    def _broker_drained(self) -> None:
        try:
            self._tell_kept()
            if self._broker.gone:
                self._broker_takes_no_more()
            elif self._eof:
                self._pass_end_on()
            elif self._closed:
                return
            elif not self._pace.state:
                self._take_kept_or_read()
            elif self.session.finished:
                self._finish()
        except Exception:
            self._crashed()

    def _take_kept_or_read(self) -> None:
        """The client's turn: what is kept of it may be whole requests that had to wait, so no byte comes
        any more. Not before the broker has taken all that was sent to it: then this is called again."""
        if self._client_kept is not None and self._broker.out is None and not self._broker.gone:
            self._resume()
        else:
            self._read_client()

    def _client_ended(self, cause: DisconnectCause) -> None:
        """The client closed its side: what it sent goes on; what it asked for is answered, if it listens."""
        if self._client.gone:  # the kernel tells a reset once, and who sent may have heard of it
            cause = DisconnectCause.CLIENT_RESET
        self._eof = True
        self._client_kept = None
        self._client.read(False)
        self._timer.end()
        self.session.client_closed(cause)
        if self._broker.out is None:
            self._pass_end_on()

    def _pass_end_on(self) -> None:
        if self.session.finished or self._is_read_for_nobody():
            self._finish()
        elif self.session.is_owed_charges:  # a broker that heard of the end would not give them
            self._arm_ending(self._finish)
        elif self._client.gone and not self.session.has_left_behind():
            self._finish()
        elif self._broker.finish_sending():
            self._arm_ending(self._finish)
        else:
            self._broker_takes_no_more()

    def _is_read_for_nobody(self) -> bool:
        """The client is gone, what is to come of its answer is of no use to a quota, and it is much."""
        if not self._client.gone or not self._eof or self._broker.out is not None:
            return False
        on_the_way_bytes = self._broker.receive_buffer_bytes + BROKER_SENDS_BYTES
        return self.session.answer_left_bytes - len(self._broker_kept or b"") > on_the_way_bytes

    def _broker_takes_no_more(self) -> None:
        """It is gone. What it sent before may be here, unread: that goes to the client first, and what reads
        it hears the end."""
        broker = self._broker
        broker.gone = True
        self._look.end_for_good()
        self._client.read(False)
        if broker.reading or self._client.out is not None:
            self._arm_ending(self._broker_is_reset)
        else:
            self._broker_is_reset()

    def _broker_is_reset(self) -> None:
        self._broker_ended(DisconnectCause.BROKER_RESET)

    def _read_client(self) -> None:
        self._is_heard = False
        broker = self._broker
        want = not self._eof and not self._closed and broker.out is None and not broker.gone
        self._client.call(self._client_readable, want)

    # Broker to client -------------------------------------------------------------------------------------

    # Whole on purpose: it runs at every wake-up of the broker's side, and each call more has its cost.
    def _broker_readable(self) -> None:
        try:
            kept = self._broker_kept
            broker = self._broker
            try:
                if kept is not None and self.session.has_more_answers:
                    if self._goes_on_soon:
                        return
                    end = got = len(kept)  # no more than is kept, or that would grow
                    self._view[:end] = kept
                elif kept is None and self._share.window_bytes == WINDOW_BYTES:
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
                if session.has_more_answers:
                    self._broker_goes_on_soon()
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
            if self._pace.state or client.gone or not client.reading:
                self._after_answer()
        except Exception:
            self._crashed()

    def _broker_goes_on_soon(self) -> None:
        """Others first: the session has worked long enough on this broker's answers."""
        if not self._goes_on_soon:  # once in a turn, though its socket stays readable
            self._goes_on_soon = True
            self._worker.loop.call_soon(self._broker_goes_on)

    def _broker_goes_on(self) -> None:
        self._goes_on_soon = False
        if self._broker_kept is not None and self._broker.reading and self.session.has_more_answers:
            self._broker_readable()

    def _answers(self, end: int) -> memoryview:
        """`buf[:end]` with the addresses that the session has replaced, and its own answers."""
        answers = spliced(self._view, 0, end, self._edits)
        self._edits.clear()
        if self._is_due:
            self._is_due = self.session.due_bytes > 0
            self._tell_kept()
        return memoryview(answers)

    def _after_answer(self) -> None:
        """An answer may have muted the connection, ended the wait for it, or been the last one due; or it
        could not be sent."""
        if self._client.gone and not self._eof and not self._closed:
            self._drop_answered()
        if self._closed or (
            self._share.user is None and self.session.identity.authenticated and not self._is_seated()
        ):
            return
        if self._is_read_for_nobody():
            self._finish()
        elif self._pace.state:
            self._not_reading()
        else:
            self._take_kept_or_read()

    def _client_drained(self) -> None:
        self._tell_kept()
        if self._broker.is_closed:
            self._finish()
        elif self.session.finished:
            self._not_reading()
        else:
            self._broker.read(True)
            if self.session.has_more_answers:
                self._broker_goes_on_soon()
            if self._client.gone:
                self._client_is_gone()

    def _client_is_gone(self) -> None:
        """As it has turned out while no answer was at hand."""
        try:
            self._after_answer()
        except Exception:
            self._crashed()

    def _drop_answered(self) -> None:
        """The client is gone: what it has sent with acks = 0 still goes, and nobody waits for the rest."""
        is_ending = self._pace.state is State.ENDING
        if is_ending and self._pace.close_cause in IN_ORDER and self.session.has_left_behind(before=True):
            return  # a broker whose answers nobody takes would not read what has acks = 0
        if is_ending or not self.session.identity.authenticated:
            self._client_ended(DisconnectCause.CLIENT_RESET)
            return
        self.session.client_is_gone(monotonic() * 1000.0, self._client_kept or b"")
        self._client.view = self._worker.small_view  # dropping small requests takes time, too
        self._look.end_for_good()
        if not self._pace.is_delayed:
            self._timer.end()

    def _broker_ended(self, cause: DisconnectCause) -> None:
        """The broker closed: its last bytes still go to the client."""
        # The kernel tells a reset once: who sent has heard of it, and who reads then hears of an end.
        self.session.broker_closed(DisconnectCause.BROKER_RESET if self._broker.gone else cause)
        self._broker.close()
        self._finish()

    def _move(self, source: Peer, target: Peer, frames: Passing) -> bool:
        """Let the rest of a large frame go on through the kernel. False: read."""
        moved = move(source, target, frames, self._worker)
        if target.out is not None:
            source.read(False)
            self._tell_kept()
        elif target.gone and target is self._broker:
            self._broker_takes_no_more()
            return True
        return moved
