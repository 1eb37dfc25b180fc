"""Bytes that the proxy keeps for its clients: one budget in all, a share for each user. Pure.

Kept is what was read and could not go on: requests that wait for their turn, and what a broker or a client
does not take. Back-pressure bounds it to one read (1 MiB) each way and connection: 5 GB for 5,000 connections
that do not read. So the *window*, what a connection may read at once, shrinks as its user's share fills;
nobody waits for anybody, so there is no deadlock:

    soft   = share ÷ 4
    window = (soft − kept by the user) ÷ 4, but at most 1 MiB and at least the floor of 16 KiB

A window above the floor never leads beyond soft. So with P directions of the user's connections that keep
something (two for each connection at most), and U bytes of frames of which too little has come to judge them
(≤ 512 KiB each way; nearly always 0),

    kept by the user  ≤  min(share, soft + P × floor + U)

To find the end of a client whose request would go now (read_ahead.py), 3/2 of soft may be kept: what brokers
do not take of large requests, a window each, must have room beside it. Beyond that some of a user's
connections at a time read on to the end (last_look.py), an eighth of share for those that are there.

The hard end: a share that is passed all the same costs connections of that user, those that have stood still
for the longest time, until it is not passed any more. With one direction each, that begins with more than
(share − soft) ÷ floor connections. A budget that is passed costs connections of the user who keeps most: who
keeps no more than budget ÷ (users that keep something) never pays for others (wire-semantics 4.3). While more
than 3/4 of the budget is kept, all windows are at the floor; as a share is at most half of the budget, one
user cannot bring that about.

*Example:* budget 256 MiB, share 128 MiB; so soft = 32 MiB. 5,000 connections of alice stop reading their
answers: at most 32 MiB + 5,000 × 16 KiB = 110.125 MiB are kept, no connection is closed, and bob, who keeps
nothing, still reads 1 MiB at once. With (128 − 32) MiB ÷ 16 KiB = 6,144 connections the share is full.

Not counted: the kernel's socket buffers (net.ipv4.tcp_mem bounds them), what OpenSSL keeps of a record, and
what a bytearray adds as it grows (1/8 at most).
"""

from __future__ import annotations

from itertools import islice
from typing import Final, Generic, TypeVar

from sluice.proxy.connection.last_look import LookTurns

MIB: Final = 1024 * 1024
WINDOW_BYTES: Final = MIB
FLOOR_BYTES: Final = 16 * 1024
"""what a TLS record may hold; below it system calls cost more than what they carry"""
_SOFT_PART: Final = 4
_TAPER: Final = 4
_LONGEST: Final = 16
"""so many are looked at, for it may be done for thousands of connections in a row"""

Owner = TypeVar("Owner")


class BufferShare(Generic[Owner]):
    """What the connections of one user keep. `window_bytes` is for them to read before each recv."""

    __slots__ = ("_budget", "_connections", "_keepers", "kept_bytes", "looks", "user", "window_bytes")

    def __init__(self, budget: BufferBudget[Owner], user: str | None) -> None:
        self._budget = budget
        self._connections = 0
        self._keepers: dict[BufferAccount[Owner], None] = {}  # longest first
        self.user = user
        """None: nobody yet"""
        self.kept_bytes = 0
        self.looks = LookTurns(budget.by_turn_bytes // 4)
        self.window_bytes = 0
        """read no more than this at once"""
        self.tune()

    def tune(self) -> None:
        """Find the window anew."""
        budget = self._budget
        if budget.is_tight:
            self.window_bytes = budget.floor_bytes
        else:
            tapered = (budget.soft_bytes - self.kept_bytes) // _TAPER
            self.window_bytes = max(budget.floor_bytes, min(budget.full_window_bytes, tapered))

    @property
    def may_look_far(self) -> bool:
        """The window is whole, and all users together keep less than half of the budget."""
        budget = self._budget
        return self.window_bytes == budget.full_window_bytes and not budget.is_half_used

    @property
    def by_turn_bytes(self) -> int:
        """So much more may be read by turn: what stays of it is of who is there, and shall cost nobody his
        connection."""
        return self._budget.by_turn_bytes - self.looks.lent_bytes

    @property
    def look_bytes(self) -> int:
        """So much more may be read, beyond the window, to find a client's end. While half of the budget is
        kept, only for users who keep little: others cannot bring it about that nobody looks for theirs."""
        budget = self._budget
        if budget.is_tight:
            return 0
        most_bytes = budget.soft_bytes // 2 if budget.is_half_used else budget.look_bytes
        return max(most_bytes - self.kept_bytes, 0)

    def worst_keeper(self) -> BufferAccount[Owner]:
        """The one that keeps most, of those that have kept something for the longest time; there must be
        one."""
        return max(islice(self._keepers, _LONGEST), key=lambda account: account.kept_bytes)


class BufferAccount(Generic[Owner]):
    """What one connection keeps."""

    __slots__ = ("_kept_bytes", "owner", "share")

    def __init__(self, share: BufferShare[Owner], owner: Owner) -> None:
        self._kept_bytes = 0
        self.share = share
        self.owner: Owner | None = owner
        """for whoever has to close it; None once closed, so that no circle is left behind"""

    @property
    def kept_bytes(self) -> int:
        """How many bytes the connection keeps, as last told."""
        return self._kept_bytes


class BufferBudget(Generic[Owner]):
    """All that is kept. To be told only when a connection keeps more or less than before: what is forwarded
    at once needs no call."""

    __slots__ = (
        "_loose_below_bytes",
        "_max_bytes",
        "_max_bytes_per_user",
        "_shares",
        "_tight_above_bytes",
        "by_turn_bytes",
        "closed_for_budget",
        "closed_for_share",
        "floor_bytes",
        "full_window_bytes",
        "is_tight",
        "kept_bytes",
        "look_bytes",
        "soft_bytes",
    )

    def __init__(
        self,
        max_bytes: int = 256 * MIB,
        max_bytes_per_user: int | None = None,
        *,
        full_window_bytes: int = WINDOW_BYTES,
        floor_bytes: int = FLOOR_BYTES,
    ) -> None:
        """`max_bytes_per_user`: the share; half of `max_bytes` at most, which it also is if not given.

        Raises ValueError if the soft part of a share were smaller than the floor.
        """
        half = max_bytes // 2
        self._max_bytes = max_bytes
        self._max_bytes_per_user = half if max_bytes_per_user is None else min(half, max_bytes_per_user)
        self.soft_bytes = self._max_bytes_per_user // _SOFT_PART
        if self.soft_bytes < floor_bytes:
            raise ValueError(f"a share of {self._max_bytes_per_user} bytes, must be ≥ {floor_bytes * 4}")
        self.look_bytes = self.soft_bytes * 3 // 2
        self.by_turn_bytes = self.soft_bytes // 2
        self.full_window_bytes = full_window_bytes
        self.floor_bytes = floor_bytes
        self._tight_above_bytes = max_bytes * 3 // 4
        self._loose_below_bytes = max_bytes * 5 // 8  # apart, or every byte about the mark would tune all
        self._shares: dict[str | None, BufferShare[Owner]] = {}
        self.is_tight = False
        """all windows are at the floor"""
        self.kept_bytes = 0
        """kept now, for all"""
        self.closed_for_share = 0
        """connections named to be closed because their user's share was passed; never falls"""
        self.closed_for_budget = 0
        """the same because the whole budget was passed; never falls"""

    @property
    def is_half_used(self) -> bool:
        """Half of the budget is kept, or more."""
        return self.kept_bytes * 2 >= self._max_bytes

    def open(self, user: str | None, owner: Owner) -> BufferAccount[Owner]:
        """An account for a new connection. `user` None: not authenticated; all such share one share."""
        return BufferAccount(self._enter(user), owner)

    def kept(self, account: BufferAccount[Owner], kept_bytes: int) -> BufferAccount[Owner] | None:
        """`account`'s connection keeps `kept_bytes` in all now.

        Returns the account whose connection is to be closed for it, maybe this one: close it, and tell this
        again until None is returned. (The bytes count already: they are in memory.)
        """
        share = account.share
        change = kept_bytes - account._kept_bytes
        if not change:
            return self._to_close(share)
        if not account._kept_bytes:
            share._keepers[account] = None
        elif not kept_bytes:
            del share._keepers[account]
        account._kept_bytes = kept_bytes
        share.kept_bytes += change
        self.kept_bytes += change
        share.tune()
        if self.kept_bytes > self._tight_above_bytes:
            self._tighten(True)
        elif self.kept_bytes <= self._loose_below_bytes:
            self._tighten(False)
        return self._to_close(share) if change > 0 else None

    def move(self, account: BufferAccount[Owner], user: str) -> BufferAccount[Owner] | None:
        """The connection's principal is known now; what it keeps is his. Returns what `kept` returns."""
        if account.share.user == user:
            return None
        kept_bytes = account._kept_bytes
        self.kept(account, 0)
        self._leave(account.share)
        account.share = self._enter(user)
        return self.kept(account, kept_bytes)

    def close(self, account: BufferAccount[Owner]) -> None:
        """The connection has ended, and keeps nothing any more; may be called twice."""
        if account.owner is None:
            return
        account.owner = None
        self.kept(account, 0)
        self._leave(account.share)

    def shares(self) -> int:
        """Users that have a connection, those not authenticated as one."""
        return len(self._shares)

    def _enter(self, user: str | None) -> BufferShare[Owner]:
        share = self._shares.get(user)
        if share is None:
            share = self._shares[user] = BufferShare(self, user)
        share._connections += 1
        return share

    def _leave(self, share: BufferShare[Owner]) -> None:
        share._connections -= 1
        if not share._connections:
            del self._shares[share.user]

    def _tighten(self, is_tight: bool) -> None:
        if is_tight is not self.is_tight:
            self.is_tight = is_tight
            for share in self._shares.values():
                share.tune()

    def _to_close(self, share: BufferShare[Owner]) -> BufferAccount[Owner] | None:
        if share.kept_bytes > self._max_bytes_per_user:
            self.closed_for_share += 1
            return share.worst_keeper()
        if self.kept_bytes > self._max_bytes:
            self.closed_for_budget += 1
            return max(self._shares.values(), key=lambda one: one.kept_bytes).worst_keeper()
        return None
