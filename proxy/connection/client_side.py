"""The client's side of a connection: what is kept of it, and what the shell does while the session lets
nothing through.

It asks the session again when that has said so, reads ahead meanwhile (read_ahead.py), and gives the session
what was kept once the wait is over. Which bytes go where is relay.py's.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from time import monotonic
from typing import Any, Final

from sluice.proxy.connection.budget import FLOOR_BYTES, BufferShare
from sluice.proxy.connection.last_look import LOOK_MS, LastLook
from sluice.proxy.connection.peer import Peer
from sluice.proxy.connection.read_ahead import (
    AHEAD_FROM_MS,
    FULL_BYTES,
    Ahead,
    ahead_room,
    has_room,
    kept_bytes,
    look_room,
    may_hide_its_end,
    read_ahead,
)
from sluice.proxy.connection.stream import Stream
from sluice.proxy.connection.timeouts import ENDING_DEADLINE_S, LAST_ANSWER_S
from sluice.proxy.connection.timer import DelayTimer
from sluice.proxy.connection.worker import Worker
from sluice.proxy.session.causes import DisconnectCause
from sluice.proxy.session.connection_states import State
from sluice.proxy.session.read_gate import EARLY_MS
from sluice.proxy.session.session import Session

IN_ORDER: Final = frozenset({DisconnectCause.DRAINED, DisconnectCause.BROKER_MOVED})  # not its doing


class ClientSide(ABC):
    """Reads the client, or lets it wait."""

    __slots__ = (
        "_buf", "_client", "_client_kept", "_closed", "_eof", "_is_heard", "_look", "_pace", "_share",
        "_timer", "_view", "_worker", "session",
    )  # fmt: skip

    _share: BufferShare[Any]
    """of the principal: how much may be read at once; another only before a first request is held"""

    def __init__(self, worker: Worker, client: Stream, session: Session) -> None:
        """`client` is connected and non-blocking."""
        self._worker = worker
        self._buf = worker.buf
        self._view = worker.view
        self._client = Peer(worker.poller, client, self._client_readable, self._client_drained, worker.view)
        self.session = session
        self._pace = session.pace
        # Soon, not at once: who calls may be in the middle of its own bytes, in the buffer that all share.
        session.wake_by(self._wake_soon)
        self._client_kept: bytes | bytearray | None = None  # read, but not to be forwarded yet
        self._eof = False  # nothing more comes from the client
        self._is_heard = False  # nothing more is read ahead: it is enough, or its end has come
        self._look = LastLook()
        self._timer = DelayTimer(worker)
        self._closed = False

    @abstractmethod
    def _client_readable(self) -> None:
        """Bytes of the client have come, and may go on."""

    @abstractmethod
    def _client_drained(self) -> None:
        """The client has taken all that was kept for it."""

    @abstractmethod
    def _take_from_client(self, buf: bytearray, view: memoryview, end: int, now_ms: float) -> None:
        """Give `buf[:end]` to the session; send on what may go, keep the rest. `view`: of `buf`."""

    @abstractmethod
    def _take_large(self, kept: bytearray) -> None:
        """The same with what is kept, where that is too large for the shared buffer."""

    @abstractmethod
    def _read_client(self) -> None:
        """Read on, unless there is nothing to come or the broker takes nothing."""

    @abstractmethod
    def _client_ended(self, cause: DisconnectCause) -> None:
        """The client closed its side, and all that it sent has been given to the session."""

    @abstractmethod
    def _finish(self) -> None:
        """Close both sides; the client's once it has taken what is due to it."""

    @abstractmethod
    def _crashed(self) -> None:
        """An exception that nobody expected: end this connection, and no other."""

    @abstractmethod
    def _has_unsent(self) -> bool:
        """Something that may go to the broker has not gone yet."""

    @abstractmethod
    def _tell_kept(self) -> None:
        """What is kept has changed; may end the connection."""

    def _not_reading(self) -> None:
        """The session begins no further request for now; find out until when."""
        if self._closed:
            return
        pace = self._pace
        self._client.read(False)
        if self._look.is_by_turn and pace.state is not State.HOLDING:
            self._look.end()
        if pace.is_delayed:
            self._client.view = self._worker.small_view
            now_ms = monotonic() * 1000.0
            self._wait(now_ms)
            if not self._is_heard and pace.wake_at_ms - now_ms > AHEAD_FROM_MS:
                self._client.call(self._client_ahead, want=True)
        elif pace.state is State.ENDING:
            self._timer.end()
            if not self.session.finished or self._has_unsent():
                self._arm_ending(self._finish)
            elif pace.close_cause in IN_ORDER:
                self._timer.call_in(LAST_ANSWER_S, self._finish)
            else:
                self._finish()

    def _wait(self, now_ms: float) -> None:
        if self._client_kept is not None:
            self.session.arrived(len(self._client_kept), now_ms)
        if self._pace.is_delayed:  # still: the broker may be gone, or its turn have come with what arrived
            self._timer.delay_until(self._pace.wake_at_ms, self._pace.throttled_by, self._wake)

    def _client_ahead(self) -> None:
        """More has come of a client that waits, or its end."""
        try:
            room = ahead_room(self._client_kept, self._share)
            came, self._client_kept = read_ahead(self._client.sock, self._view, self._client_kept, room)
            self._wait(monotonic() * 1000.0)
            self._tell_kept()
            if came is not Ahead.MORE:
                self._client.heard(is_end=came is Ahead.END)
                self._is_heard = True
                is_done = self._client_kept is None and not self.session.in_flight
                if came is Ahead.END and is_done and self._pace.state is State.MUTED:
                    self._client_ended(DisconnectCause.CLIENT_CLOSED)  # what went is owed without it, too
                else:
                    self._wake_now()
                    if came is Ahead.ENOUGH:
                        self._look_early(room)
        except Exception:
            self._crashed()

    def _look_again(self) -> None:
        """Once a second. While it waits, room may have come for what stands before its client's end."""
        if not self._is_heard or self._look.until_ms or not self._pace.is_delayed:
            return
        if self._client.has_left:
            self._wake_now()
        elif ahead_room(self._client_kept, self._share):
            self._is_heard = False
            self._client.call(self._client_ahead, want=True)

    # The last look ----------------------------------------------------------------------------------------

    def _looks(self, now_ms: float) -> bool:
        """The turn of a held request has come, and its client's end may stand behind what is unread. True:
        that is being read; ask again. False: it has been, or is not there, or there is no room for it."""
        look = self._look
        if look.waits:
            return self._waits_on(now_ms)
        if look.until_ms:
            is_over = now_ms >= look.until_ms
        else:
            look.begin(now_ms)
            is_over = not self._read_for_end()
        if is_over and self._has_to_look_by_turn(self._look_room()):
            self._client.read(False)
            look.until_ms = 0.0
            if not look.ask(self._share.looks, self._its_turn_to_look):
                return self._waits_on(now_ms)
            look.begin(now_ms)
            is_over = not self._read_for_end()
        if self._closed:  # by its own part in what was read
            return True
        if not is_over:
            self._goes_on_looking(now_ms)
            return True
        look.end()
        self._client.read(False)
        return False

    def _waits_on(self, now_ms: float) -> bool:
        """For its turn to look, though its request has its own. False: that takes too long, or nothing is
        unread any more."""
        look = self._look
        if look.waits_on(now_ms, for_lent=self._share.by_turn_bytes < FLOOR_BYTES):
            look.waits = may_hide_its_end(self._client.sock, self._client_kept, 0)
        if look.waits:
            self._timer.call_in(LOOK_MS / 1000.0, self._wake)
        return look.waits

    def _goes_on_looking(self, now_ms: float) -> None:
        self._client.call(self._client_looked, want=True)
        self._timer.call_in((self._look.until_ms - now_ms) / 1000.0, self._wake)

    def _look_early(self, room: int) -> None:
        """No more is read ahead. What the dead have sent shall not stay until their turns come."""
        is_to = self._pace.state is State.HOLDING and self._has_to_look_by_turn(room)
        if is_to and self._look.ask(self._share.looks, self._its_turn_to_look):
            self._worker.loop.call_soon(self._look_by_turn)

    def _has_to_look_by_turn(self, room: int) -> bool:
        return (
            not self._closed
            and not self._look.is_by_turn
            and not self._look.waits
            and self._share.by_turn_bytes >= FLOOR_BYTES
            and may_hide_its_end(self._client.sock, self._client_kept, room)
            and not self._client.has_left
        )

    def _its_turn_to_look(self) -> bool:
        """False: it does not want to look any more."""
        is_taken = self._look.take(wanted=not self._closed and self._pace.state is State.HOLDING)
        if is_taken:
            self._worker.loop.call_soon(self._look_by_turn)
        return is_taken

    def _look_by_turn(self) -> None:
        look = self._look
        if not look.is_by_turn or self._pace.state is not State.HOLDING:
            look.end()
            return
        try:
            now_ms = monotonic() * 1000.0
            self._timer.end()
            look.begin(now_ms)
            if not self._read_for_end():
                look.until_ms = now_ms
            if not self._closed:
                self._wake_session(now_ms)
        except Exception:
            self._crashed()

    def _look_room(self) -> int:
        return look_room(self._client_kept, self._share, has_turn=self._look.is_by_turn)

    def _read_for_end(self) -> bool:
        """Read on. False: no end can stand behind what was there, or it is enough, or the end has come."""
        client = self._client
        look = self._look
        kept = self._client_kept
        before = kept_bytes(kept)
        came, self._client_kept = read_ahead(client.sock, self._view, kept, self._look_room())
        got = kept_bytes(self._client_kept) - before
        is_end = came is Ahead.END or client.has_left
        if is_end:
            client.heard(is_end=True)
            self._is_heard = True
            look.end_for_good()
        elif look.is_by_turn:
            look.lend(got)
            if came is Ahead.MORE:
                look.end_turn()
        self._tell_kept()
        return not is_end and came is Ahead.MORE and got >= FULL_BYTES

    def _client_looked(self) -> None:
        """More has come of a client whose turn has come, or its end."""
        try:
            if not self._read_for_end() and not self._closed:
                self._look.until_ms = monotonic() * 1000.0
                self._wake_now()
        except Exception:
            self._crashed()

    # Its turn ---------------------------------------------------------------------------------------------

    def _wake_soon(self) -> None:
        self._worker.loop.call_soon(self._wake_now)

    def _wake_now(self) -> None:
        """The turn of a held request has come, maybe earlier than it was told."""
        if self._pace.state is State.HOLDING and not self._closed:
            self._timer.end()
            self._wake_session(monotonic() * 1000.0)

    def _wake(self) -> None:
        self._timer.has_come()
        now_ms = monotonic() * 1000.0
        is_looking = self._look.until_ms and self._pace.state is State.HOLDING
        if now_ms < self._pace.wake_at_ms - EARLY_MS and not is_looking:
            self._not_reading()
        else:
            self._wake_session(now_ms)

    def _wake_session(self, now_ms: float) -> None:
        try:
            has_left = self._client.has_left
            if not has_left:  # of who has left, acks = 0 waits on as it is
                if self.session.is_turn(now_ms):
                    if self._looks(now_ms):
                        return
                elif now_ms < self._look.until_ms and not self._look.waits:
                    self._goes_on_looking(now_ms)
                    return
                has_left = self._client.has_left
            if has_left:
                self._look.end_for_good()
            else:
                self._look.end()
            self.session.wake(now_ms, has_left, self._client_kept or b"")
            self._go_on()
        except Exception:
            self._crashed()

    def _go_on(self) -> None:
        """As the session says: with the client's bytes, or with waiting."""
        if self._pace.state:
            self._not_reading()
        else:
            self._resume()

    def _resume(self) -> None:
        """READING again: first what was kept."""
        self._timer.end()
        if self._look.is_by_turn:
            self._look.end()
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

    def _arm_ending(self, call: Callable[[], None]) -> None:
        if self._pace.close_cause is not DisconnectCause.DRAINED:
            self._timer.call_in(ENDING_DEADLINE_S, call)
