"""One connection's part of what all connections share: its place, its bytes in the budget, its time.

Tells which connections are to be ended for it; ending them is the caller's. Knows no sockets and no loop.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from sluice.proxy.connection.budget import BufferAccount, BufferBudget, BufferShare
from sluice.proxy.connection.limits import Seat
from sluice.proxy.connection.timeouts import WaitsFor, Watch, WatchRules
from sluice.proxy.session.causes import DisconnectCause

Owner = TypeVar("Owner")


class Footprint(Generic[Owner]):
    """What the connection `owner` takes of what all share: a place, bytes of the budget, time."""

    __slots__ = ("_account", "_budget", "_seat", "_watch")

    _account: BufferAccount[Owner]

    def __init__(self, seat: Seat, budget: BufferBudget[Owner], begun_ms: float) -> None:
        """`begun_ms`: when the client was accepted, as the worker's SweepClock has it."""
        self._seat = seat
        self._budget = budget
        self._watch = Watch(begun_ms)

    def open(self, owner: Owner) -> None:
        """It is `owner`'s. To be called first, once."""
        self._account = self._budget.open(None, owner)

    def may_end(self, waits: Callable[[], bool], end: Callable[[], None]) -> None:
        """Offer the connection for ending while it has not authenticated, as Seat.may_end."""
        self._seat.may_end(waits, end)

    def waits_for_share(self, waits: bool) -> None:
        """Whether it may be ended for that, as Seat.waits_for_share."""
        self._seat.waits_for_share = waits

    @property
    def share(self) -> BufferShare[Owner]:
        """The share of its principal, or of all whose principal is not known yet; tells how much to read at
        once."""
        return self._account.share

    def belongs_to(self, user: str) -> DisconnectCause | None:
        """The principal is known. A cause: he has too many connections, and this one is to be ended."""
        refused = self._seat.authenticated(user)
        if refused is None:
            self._budget.move(self._account, user)  # who is over the budget is told by the next `keeps`
        return refused

    def keeps(self, kept_bytes: int) -> Owner | None:
        """The connection keeps so much now. Returns one to be ended for it, maybe itself: then ask again."""
        over = self._budget.kept(self._account, kept_bytes)
        return None if over is None else over.owner

    def look(
        self, waits_for: WaitsFor, moved_bytes: int, now_ms: float, rules: WatchRules
    ) -> DisconnectCause | None:
        """Whether it is time to end the connection, as Watch.look."""
        return self._watch.look(waits_for, moved_bytes, now_ms, rules)

    def closed(self) -> None:
        """The connection has ended; may be called twice."""
        self._budget.close(self._account)
        self._seat.close()
