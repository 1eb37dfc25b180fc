"""The life of one client connection: its part in what all share, and the ways in which it ends.

Its bytes are relay.py's. It alone closes the two streams.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from time import monotonic, thread_time

from sluice.protocol.errors import ProtocolError
from sluice.proxy.connection.guests import LOGIN_READS, Guest, Metered
from sluice.proxy.connection.lingering_close import Linger
from sluice.proxy.connection.peer import Peer
from sluice.proxy.connection.read_ahead import kept_bytes
from sluice.proxy.connection.relay import Relay
from sluice.proxy.connection.resources import Footprint
from sluice.proxy.connection.stream import Stream
from sluice.proxy.connection.timeouts import DRAIN_AGAIN_S, WatchRules
from sluice.proxy.connection.undialled import Dials, NotConnected, Undialled
from sluice.proxy.connection.waiting import what_it_waits_for
from sluice.proxy.connection.worker import Worker
from sluice.proxy.runtime.log import get_logger
from sluice.proxy.runtime.tasks import spawn
from sluice.proxy.session.causes import AT_BROKER, DisconnectCause
from sluice.proxy.session.local_responses import QuotaQuestion
from sluice.proxy.session.session import Session
from sluice.quotas.entity import ANONYMOUS

_log = get_logger()


class Connection(Relay):
    """Two streams and the session between them."""

    __slots__ = (
        "__weakref__", "_dialling", "_dials", "_footprint", "_guest", "_linger", "_on_close", "_opened_ms",
        "leads_to", "peer",
    )  # fmt: skip

    def __init__(
        self,
        worker: Worker,
        client: Stream,
        broker: Stream | None,
        session: Session,
        peer: str,
        footprint: Footprint[Connection],
        on_close: Callable[[Connection], None],
        guest: Guest | None = None,
        dials: Dials[Connection] | None = None,
    ) -> None:
        """Streams are connected and non-blocking. `broker` None: `dials` reaches it for the first bytes.
        `peer`: the client's address, for the log. `guest`: what it has cost so far; None: nobody asks."""
        super().__init__(worker, client, broker, session)
        self._dials, self._footprint = dials, footprint
        self._dialling: asyncio.Task[None] | None = None
        self.peer = peer
        self.leads_to = ""
        """the broker's address, once it is reached"""
        self._on_close, self._guest = on_close, guest
        self._opened_ms = monotonic() * 1000.0
        self._linger: Linger | None = None
        footprint.open(self)
        self._share = footprint.share

    def __repr__(self) -> str:
        return f"<Connection {self.peer} {self.session!r}>"

    def start(self) -> None:
        """Begin to relay between client and broker."""
        self._worker.opened()
        identity = self.session.identity
        if self._guest is not None and (not identity.authenticated or self.session.user == ANONYMOUS):
            self._footprint.may_end(self._is_to_speak, self._make_room)
            self._client.on_readable = self._guest_readable
        elif identity.authenticated and not self._is_seated():
            return
        self._broker.read(True)
        self._client.read(True)

    # The broker's side ------------------------------------------------------------------------------------

    def _first_for_broker(self, data: memoryview) -> int:
        dials, before = self._dials, self._broker
        assert dials is not None
        assert isinstance(before, Undialled)
        stream = dials.at_once(self)
        if stream is None:
            work = self._dial(dials)
            self._dialling = spawn(work if self._guest is None else Metered(work, self._guest), "dial")
            raise BlockingIOError
        before.successor = broker = self._reached(stream)
        return broker.sock.send(data)

    async def _dial(self, dials: Dials[Connection]) -> None:
        """Nothing is read of the client meanwhile but its first bytes, which wait for the broker."""
        try:
            try:
                stream = await dials.connect(self)
            finally:
                self._dialling = None
            if self._broker.is_closed:
                stream.close()
                return
            kept = self._broker.out or b""
            if self._reached(stream).send(memoryview(kept)):
                self._broker_drained()
        except NotConnected as error:
            if error.cause is DisconnectCause.CLIENT_CLOSED:
                self.abort(error.cause, error.detail)
            else:
                self.fail(error.cause, error.detail)
        except Exception:
            self._crashed()

    def is_given_up(self) -> bool:
        """While it is dialled for: the client has left, and knows what became of what it sent."""
        return self._client.has_left and self.session.is_all_to_be_answered

    def _reached(self, stream: Stream) -> Peer:
        reads = self._broker.reading
        self._dials = None
        broker = self._use_broker(stream)
        broker.read(reads)
        return broker

    # Until it authenticates -------------------------------------------------------------------------------

    def _guest_readable(self) -> None:
        """As `_client_readable`, of a connection that has not authenticated, or not asked for anything."""
        guest, room = self._guest, self._worker.guests
        if guest is None:
            self._client_readable()
            return
        if room.wait_s() > 0.0:
            self._client.read(False)
            guest.is_in_room = True
            self._footprint.waits_for_share(guest.reads > LOGIN_READS)
            room.wait(partial(self._guest_may_read, guest))
            return
        begun_s = thread_time()
        guest.reads += 1
        self._client_readable()
        guest.took(thread_time() - begun_s)
        session = self.session
        has_asked = session.requests or self._pace.is_delayed
        if self._guest is not None and has_asked and session.identity.authenticated:
            self._seat_guest()

    def _guest_may_read(self, guest: Guest) -> bool:
        guest.is_in_room = False
        if self._closed:
            return False
        self._footprint.waits_for_share(False)
        if not self._pace.state:
            self._read_client()
        return True

    def _seat_guest(self) -> None:
        """Where nobody logs in: it has asked for something."""
        if not self._closed and self._is_seated() and self._client.on_readable == self._guest_readable:
            self._client.call(self._client_readable, self._client.reading)

    def _read_client(self) -> None:
        if self._guest is not None and self._guest.is_in_room:
            return  # an answer has come meanwhile; it is read when its turn has
        super()._read_client()
        if self._guest is not None:
            self._client.call(self._guest_readable, self._client.reading)

    def _is_to_speak(self) -> bool:
        """It is the client's turn: to say something, or to take what it asked for. Who sends requests and
        reads no answers would else keep its place: it always has some in flight."""
        client = self._client
        return client.out is not None or (client.reading and not self.session.in_flight)

    def _make_room(self) -> None:
        detail = "it had not authenticated, and made room for a newer one"
        self.abort(DisconnectCause.TOO_MANY_UNAUTHENTICATED, detail)

    # What all share ---------------------------------------------------------------------------------------

    def _is_seated(self) -> bool:
        """The principal is known: the connection counts as his. False: he has too many, and it is ended."""
        refused = self._footprint.belongs_to(self.session.user)
        self._share = self._footprint.share
        if self._guest is not None:
            self._guest.authenticated()
            self._guest = None
        if refused is not None:
            self.abort(refused, "one connection more than limits.max_connections_per_user")
        elif self._client_kept is not None:
            self._tell_kept()
        return not self._closed

    def _tell_kept(self) -> None:
        """What is kept here has changed: the budget may want connections of this user ended for it."""
        self._look.keeps(kept_bytes(self._client_kept))
        over = None if self._closed else self._footprint.keeps(self._kept_bytes())
        while over is not None:
            over.abort(DisconnectCause.BUFFERED_BYTES_OVER_CAP, f"{over._kept_bytes()} bytes kept")
            over = None if self._closed else self._footprint.keeps(self._kept_bytes())

    def _kept_bytes(self) -> int:
        kept = (self._client_kept, self._broker_kept, self._client.out, self._broker.out)
        return sum(len(part) for part in kept if part is not None) + self.session.due_bytes

    def sweep(self, now_ms: float, rules: WatchRules) -> None:
        """Once a second: end a connection in which nothing moves, or whose client has left. `now_ms`: as the
        SweepClock has it."""
        if self._closed:
            return
        if self._is_heard:
            self._look_again()
        waits_for, moved_bytes = what_it_waits_for(
            self.session, self._client, self._broker, kept_bytes(self._client_kept)
        )
        cause = self._footprint.look(waits_for, moved_bytes, now_ms, rules)
        if cause is not None:
            self.abort(cause, f"waited for {waits_for.name.lower()}")

    # The proxy's own words to the broker ------------------------------------------------------------------

    @property
    def is_quiet(self) -> bool:
        """Nothing is on its way to the broker, or due from it."""
        return self.session.is_quiet and self._broker.out is None and self._broker_kept is None

    def talk_to_broker(
        self, data: bytes, on_answer: Callable[[Connection, memoryview], bytes | None]
    ) -> None:
        """Send `data`, and give what the broker answers to `on_answer` until it returns None.

        While `is_quiet` and the session is suspended. `on_answer` returns what to send next; a ProtocolError
        that it raises ends the connection.
        """
        broker = self._broker
        broker.read(False)
        broker.on_readable = partial(self._broker_answers, on_answer)
        broker.send(memoryview(data))
        broker.read(True)

    def _broker_answers(self, on_answer: Callable[[Connection, memoryview], bytes | None]) -> None:
        broker = self._broker
        try:
            try:
                got = broker.sock.recv_into(self._view)
            except BlockingIOError:
                return
            except OSError:
                got = 0
            try:
                reply = on_answer(self, self._view[:got])
            except ProtocolError as error:
                self.fail(DisconnectCause.UPSTREAM_LOGIN_FAILED, str(error))
                return
            if reply:
                broker.send(memoryview(reply))
            elif reply is None:
                broker.read(False)
                broker.on_readable = self._broker_readable
                broker.read(True)
                self._after_answer()
        except Exception:
            self._crashed()

    # What the client asks the proxy itself ----------------------------------------------------------------

    def _answer_locally(self) -> None:
        self._send_local_answers()
        question = self.session.take_question()
        if question is not None:
            spawn(self._answer(question), "question about quotas")

    def _send_local_answers(self) -> None:
        for answer in self.session.local_answers:
            if not self._client.send(memoryview(answer)):
                self._broker.read(False)
            if self._client.gone:  # soon: who calls may have bytes for the broker in hand
                self._worker.loop.call_soon(self._client_is_gone)
        self.session.local_answers.clear()

    async def _answer(self, question: QuotaQuestion) -> None:
        """Also for a client that has left meanwhile: what it changed is changed."""
        desk = self._worker.quota_desk
        assert desk is not None
        try:
            answer = await desk.answer(question, self.peer)
        except ProtocolError as error:
            self.abort(DisconnectCause(error.cause), str(error))
            return
        except Exception:
            self._crashed()
            return
        try:
            if not self._closed:
                self.session.answer_question(answer, monotonic() * 1000.0)
                self._send_local_answers()
                self._after_answer()
        except Exception:
            self._crashed()

    # Ends -------------------------------------------------------------------------------------------------

    def drain(self, cause: DisconnectCause = DisconnectCause.DRAINED) -> None:
        """Begin no further request; close when what is in flight is answered. The caller has the deadline of
        DRAINED; any other cause has one here."""
        if self._closed:
            return
        if self._dialling is not None and self.session.is_all_to_be_answered:
            self.fail(cause, "before a broker was reached")  # it will ask again
            return
        pace = self._pace
        if isinstance(self._broker.on_readable, partial) and (pace.is_hold_suspended or self._client_kept):
            self._worker.loop.call_later(DRAIN_AGAIN_S, self.drain, cause)  # behind what talk_to_broker says
            return
        self._timer.end()
        was_delayed = pace.is_delayed or pace.is_full
        self.session.drain(monotonic() * 1000.0, cause)
        self._go_on()  # first what was held
        if was_delayed and self._forward_unacknowledged():
            self._not_reading()  # anew, for the broker may not have taken it yet
        if self._client.gone:
            self._client_is_gone()

    def _forward_unacknowledged(self) -> bool:
        """Forward the requests with acks = 0 that the client sent behind a delay. False: there are none."""
        kept = self._client_kept
        if self._closed or kept is None or self._broker.gone:
            return False
        frames = kept if isinstance(kept, bytearray) else bytearray(kept)
        goes = self.session.take_unacknowledged(frames, monotonic() * 1000.0)
        if goes:
            self._client_kept = None
            self._broker.send(memoryview(goes))
        return bool(goes)

    def abort(self, cause: DisconnectCause, detail: str = "") -> None:
        """Close now, whatever is due. `detail`: for the log."""
        self._client.gone = True
        if self._closed:
            if self._linger is not None:
                self._linger.end()
            return
        self.session.pace.close_cause = cause
        self.session.pace.close_detail = detail
        self._finish()

    def fail(self, cause: DisconnectCause, detail: str) -> None:
        """End, for what the broker says cannot be relayed."""
        self.session.pace.close_cause = cause
        self.session.pace.close_detail = detail
        self._broker.close()
        self._finish()

    def _crashed(self) -> None:
        """A fault of ours costs this connection, never another."""
        _log.exception("internal_error", peer=self.peer, session=repr(self.session))
        self._client.gone = True
        self.fail(DisconnectCause.INTERNAL_ERROR, "see the log")

    def _finish(self) -> None:
        """Close both sides; the client's once it has taken what is due to it."""
        if self._closed:
            return
        self._look.end_for_good()
        if self._dialling is not None:
            self._dialling.cancel()
            self._dialling = None
        client = self._client
        if client.out is not None and not client.gone:
            client.read(False)
            self._broker.close()
            self._arm_ending(self._client_takes_nothing)
            return
        self._closed = True
        self._timer.end()
        client.read(False)
        self._broker.close()
        now_ms = monotonic() * 1000.0
        pace = self.session.pace
        if pace.close_cause in AT_BROKER and pace.close_detail and self.leads_to:
            pace.close_detail = f"{self.leads_to}: {pace.close_detail}"
        self._worker.recorder.connections.append(self.session.record(self.peer, self._opened_ms, now_ms))
        self.session.closed(now_ms)
        self._footprint.closed()
        self._worker.closed()
        is_there = not self._eof and not client.gone and client.finish_sending()
        if not is_there or not self._worker.limits.spare.has_room:
            client.close()
            self._on_close(self)
        else:
            self._linger = Linger(client, self._worker, partial(self._on_close, self))

    def _client_takes_nothing(self) -> None:
        self._client.gone = True
        self._finish()
