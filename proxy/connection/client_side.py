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
from sluice.proxy.connection.peer import Peer
from sluice.proxy.connection.read_ahead import (
    AHEAD_FROM_MS,
    FULL_BYTES,
    LOOK_MS,
    LOOK_WAIT_MS,
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
        "_buf", "_client", "_client_kept", "_closed", "_eof", "_has_turn_now", "_is_heard",
        "_lent_bytes", "_look_until_ms", "_looks_by_turn", "_pace", "_share", "_timer", "_view",
        "_waits_to_look", "_worker", "session",
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
        self._look_until_ms = 0.0  # of the last look for the client's end; 0: none is under way
        self._waits_to_look = False  # for a turn to read where there is no room
        self._has_turn_now = False
        self._looks_by_turn = False  # it has, or had, its turn, and reads on without room
        self._lent_bytes = 0  # read so, and kept
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
        if self._looks_by_turn and pace.state is not State.HOLDING:
            self._end_look()
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
        if not self._is_heard or self._look_until_ms or not self._pace.is_delayed:
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
        if self._waits_to_look:
            return self._waits_on(now_ms)
        if self._look_until_ms:
            is_over = now_ms >= self._look_until_ms
        else:
            self._look_until_ms = now_ms + LOOK_MS
            is_over = not self._look()
        if is_over and self._has_to_look_by_turn(self._look_room()):
            self._client.read(False)
            self._look_until_ms = 0.0
            if not self._has_turn():
                return self._waits_on(now_ms)
            self._look_until_ms = now_ms + LOOK_MS
            is_over = not self._look()
        if self._closed:  # by its own part in what was read
            return True
        if not is_over:
            self._goes_on_looking(now_ms)
            return True
        self._end_look()
        self._client.read(False)
        return False

    def _waits_on(self, now_ms: float) -> bool:
        """For its turn to look, though its request has its own. False: that takes too long, or clients that
        are there have all that is read so, or nothing is unread any more."""
        if not self._look_until_ms:
            self._look_until_ms = now_ms + LOOK_WAIT_MS
        is_used_up = self._share.by_turn_bytes < FLOOR_BYTES
        over_ms = self._look_until_ms - (LOOK_WAIT_MS - LOOK_MS if is_used_up else 0.0)
        self._waits_to_look = now_ms < over_ms and may_hide_its_end(self._client.sock, self._client_kept, 0)
        if self._waits_to_look:
            self._timer.call_in(LOOK_MS / 1000.0, self._wake)
        return self._waits_to_look

    def _goes_on_looking(self, now_ms: float) -> None:
        self._client.call(self._client_looked, want=True)
        self._timer.call_in((self._look_until_ms - now_ms) / 1000.0, self._wake)

    def _look_early(self, room: int) -> None:
        """No more is read ahead. What the dead have sent shall not stay until their turns come."""
        if self._pace.state is State.HOLDING and self._has_to_look_by_turn(room) and self._has_turn():
            self._worker.loop.call_soon(self._look_by_turn)

    def _has_to_look_by_turn(self, room: int) -> bool:
        return (
            not self._closed
            and not self._looks_by_turn
            and not self._waits_to_look
            and self._share.by_turn_bytes >= FLOOR_BYTES
            and may_hide_its_end(self._client.sock, self._client_kept, room)
            and not self._client.has_left
        )

    def _has_turn(self) -> bool:
        """Now. False: it is told when it has."""
        self._has_turn_now = self._looks_by_turn = self._share.looks.begin(self._its_turn_to_look)
        self._waits_to_look = not self._has_turn_now
        return self._has_turn_now

    def _its_turn_to_look(self) -> bool:
        """False: it does not want to look any more."""
        waits, self._waits_to_look = self._waits_to_look, False
        if not waits or self._closed or self._pace.state is not State.HOLDING:
            return False
        self._looks_by_turn = self._has_turn_now = True
        self._worker.loop.call_soon(self._look_by_turn)
        return True

    def _look_by_turn(self) -> None:
        if not self._looks_by_turn or self._pace.state is not State.HOLDING:
            self._end_look()
            return
        try:
            now_ms = monotonic() * 1000.0
            self._timer.end()
            self._look_until_ms = now_ms + LOOK_MS
            if not self._look():
                self._look_until_ms = now_ms
            if not self._closed:
                self._wake_session(now_ms)
        except Exception:
            self._crashed()

    def _end_look(self) -> None:
        self._look_until_ms = 0.0
        self._end_turn()
        self._looks_by_turn = False

    def _end_turn(self) -> None:
        """Let the next one read; what comes behind what was here is read all the same."""
        if self._has_turn_now:
            self._has_turn_now = False
            self._share.looks.end()

    def _end_looks(self) -> None:
        """For good, or its end has been found: what was read by turn is of nobody who is there."""
        self._end_look()
        self._waits_to_look = False
        self._lend(-self._lent_bytes)

    def _return_lent(self) -> None:
        """Some of what was read by turn may have gone on."""
        if self._lent_bytes:
            self._lend(min(kept_bytes(self._client_kept) - self._lent_bytes, 0))

    def _lend(self, size_bytes: int) -> None:
        """So much more is read by turn and kept, or less."""
        self._lent_bytes += size_bytes
        self._share.looks.lent_bytes += size_bytes

    def _look_room(self) -> int:
        return look_room(self._client_kept, self._share, has_turn=self._looks_by_turn)

    def _look(self) -> bool:
        """Read on. False: no end can stand behind what was there, or it is enough, or the end has come."""
        client = self._client
        kept = self._client_kept
        before = kept_bytes(kept)
        came, self._client_kept = read_ahead(client.sock, self._view, kept, self._look_room())
        got = kept_bytes(self._client_kept) - before
        is_end = came is Ahead.END or client.has_left
        if is_end:
            client.heard(is_end=True)
            self._is_heard = True
            self._end_looks()
        elif self._looks_by_turn:
            self._lend(got)
            if came is Ahead.MORE:
                self._end_turn()
        self._tell_kept()
        return not is_end and came is Ahead.MORE and got >= FULL_BYTES

    def _client_looked(self) -> None:
        """More has come of a client whose turn has come, or its end."""
        try:
            if not self._look() and not self._closed:
                self._look_until_ms = monotonic() * 1000.0
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
        is_looking = self._look_until_ms and self._pace.state is State.HOLDING
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
                elif now_ms < self._look_until_ms and not self._waits_to_look:
                    self._goes_on_looking(now_ms)
                    return
                has_left = self._client.has_left
            if has_left:
                self._end_looks()
            else:
                self._end_look()
            self.session.wake(now_ms, has_left)
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
        if self._looks_by_turn:
            self._end_look()
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
