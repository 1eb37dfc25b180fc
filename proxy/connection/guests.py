"""What connections may cost before they authenticate: a share of one core, taken together.

    accept ─► Metered: PROXY header, TLS ─► reads until the login, Metered: dial ─► authenticated: given back
      ▲ waits                                ▲ wait, in turn (WaitingRoom)

Over its share nobody new is accepted, and those who are in are not read, so the kernel keeps what they send;
connections that have authenticated do not notice. What is measured is the thread's processor time, which is
not read once a connection has authenticated. Who does gets its time back: clients that come back all at once
wait for each other's logins, not for a quarter of the core.
"""

from __future__ import annotations

from asyncio import AbstractEventLoop
from collections import deque
from collections.abc import Callable, Coroutine
from time import monotonic, thread_time
from typing import Any, Final

from sluice.proxy.connection.guest_share import GuestShare
from sluice.proxy.runtime.gauges import Gauges

_LET_ON: Final = 4
"""at a time: what they will cost is not known before"""
LOGIN_READS: Final = 8
"""so often a client may be read until it has logged in: SCRAM takes four. Who is read more often may be ended
for another while it waits for the share; others are not, or of those who come back all at once each would end
the one that has waited longest"""
_PAUSE_S: Final = 0.002
_NEWCOMER_S: Final = 0.01
"""until one that waits to be accepted has surely been: its port looks again after 5 ms at the latest"""


class WaitingRoom:
    """Where connections wait that have not authenticated, while their share is used up."""

    __slots__ = (
        "_gauges", "_has_timer", "_is_newcomers_turn", "_loop", "_newcomer_waits", "_share", "_waiting",
    )  # fmt: skip

    def __init__(self, loop: AbstractEventLoop, share: GuestShare, gauges: Gauges) -> None:
        self._loop = loop
        self._share = share
        self._gauges = gauges
        self._waiting: deque[Callable[[], object]] = deque()
        self._has_timer = False
        self._newcomer_waits = False
        self._is_newcomers_turn = False

    def wait_s(self) -> float:
        """Until there is something of the share again; 0: now."""
        return self._share.wait_s(monotonic())

    def wait(self, call: Callable[[], object]) -> None:
        """Have it called in turn, when there is. It returns False: nobody is there, and the next has it."""
        self._gauges.guests_delayed += 1
        self._waiting.append(call)
        if not self._has_timer:
            self._arm()

    def newcomer_waits(self) -> None:
        """Somebody is not accepted for want of the share. Every other turn is then his: those who wait here
        come back with their next request, and would have all of it."""
        self._newcomer_waits = True

    def charge(self, took_s: float) -> None:
        """Somebody took so much."""
        self._share.charge(took_s, monotonic())
        self._gauges.guests_s += took_s

    def refund(self, took_s: float) -> None:
        """It was a good one."""
        self._share.refund(took_s)

    def _arm(self, at_least_s: float = _PAUSE_S) -> None:
        self._has_timer = True
        self._loop.call_later(max(at_least_s, self.wait_s()), self._let_on)

    def _let_on(self) -> None:
        self._has_timer = False
        if self.wait_s() <= 0.0:
            self._is_newcomers_turn = self._newcomer_waits and not self._is_newcomers_turn
            self._newcomer_waits = False
            if self._is_newcomers_turn:
                self._arm(_NEWCOMER_S)
                return
            let_on = 0
            while self._waiting and let_on < _LET_ON:
                let_on += self._waiting.popleft()() is not False
        if self._waiting:
            self._arm()


class Guest:
    """What one connection has taken."""

    __slots__ = ("_is_known", "_room", "_took_s", "is_in_room", "reads")

    def __init__(self, room: WaitingRoom) -> None:
        self._room = room
        self._took_s = 0.0
        self._is_known = False
        self.reads = 0
        self.is_in_room = False
        """it waits there: once, however often it is to be read again"""

    def took(self, took_s: float) -> None:
        """So much more of the processor. Charged to nobody once it has authenticated: its broker may still be
        dialled then."""
        if not self._is_known:
            self._took_s += took_s
            self._room.charge(took_s)

    def authenticated(self) -> None:
        """It is no guest any more."""
        self._room.refund(self._took_s)
        self._took_s = 0.0
        self._is_known = True


class Metered(Coroutine[Any, Any, None]):
    """`work`, for a task; each of its steps is charged to `guest`."""

    __slots__ = ("_guest", "_work")

    def __init__(self, work: Coroutine[Any, Any, None], guest: Guest) -> None:
        self._work = work
        self._guest = guest

    def send(self, value: Any) -> Any:
        """Run one step of the work, and charge its time."""
        begun_s = thread_time()
        try:
            return self._work.send(value)
        finally:
            self._guest.took(thread_time() - begun_s)

    def throw(self, *error: Any) -> Any:
        """One step, that begins with an exception."""
        begun_s = thread_time()
        try:
            return self._work.throw(*error)
        finally:
            self._guest.took(thread_time() - begun_s)

    def close(self) -> None:
        """End the work before its end."""
        self._work.close()

    def __await__(self) -> Any:
        return self._work.__await__()
