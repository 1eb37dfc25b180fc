"""The last look for the end of a client whose held request would go now: its time, its turn, what is read by
it. Pure: no socket, no clock. What it is for, and how much may be read: read_ahead.py.

    none ─► begin: until `until_ms` ─► end
      └► there is no room: ask ─► `waits` ─► take ─► begin: `is_by_turn` ─► end
                             └──── a turn is free ────▲
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

LOOK_MS: Final = 250.0
"""How long it may take. What has been read makes room in the kernel, and what follows needs a round trip"""
LOOK_WAIT_MS: Final = 1_750.0
"""How long a turn to look is waited for when the request's own has come: with the answer budget of 8 s within
10 s, the least patience of a client that is not known by name. A shorter wait lets dead clients' requests go
where the proxy is busy"""
LOOKS_AT_ONCE: Final = 8
"""by turn, for one user, whatever they bring"""
MOST_LOOKS_AT_ONCE: Final = 64
"""while they bring little. A turn is passed on once in a round of the event loop: with 8 a busy proxy, whose
rounds are long, did not keep up with a thousand connections a second"""


class LookTurns:
    """Which of a user's connections may read on to its client's end where there is no room for that: a few at
    a time, the others in the order in which they asked."""

    __slots__ = ("_little_bytes", "_waiting", "at_once", "lent_bytes")

    def __init__(self, little_bytes: int) -> None:
        """`little_bytes`: while all together have read less by turn and keep it, more of them may look. With
        64 at once from the start none would come to an end that stands behind megabytes: by turn 16 MiB may
        be read in all."""
        self._little_bytes = little_bytes
        self._waiting: deque[Callable[[], bool]] = deque()
        self.at_once = 0
        """so many have a turn now"""
        self.lent_bytes = 0
        """read so, and still kept, for clients that are there"""

    def begin(self, its_turn: Callable[[], bool]) -> bool:
        """True: now; whoever has a turn calls `end`, once. False: `its_turn` is called when that has come,
        and returns whether it takes it."""
        if self.at_once < LOOKS_AT_ONCE:
            self.at_once += 1
            return True
        self._waiting.append(its_turn)
        return False

    def end(self) -> None:
        """The next one's turn; the next two's, while all together bring little."""
        self.at_once -= 1
        given = 0
        while self._waiting and given < self._may_begin():
            if self._waiting.popleft()():
                self.at_once += 1
                given += 1

    def _may_begin(self) -> int:
        if self.lent_bytes < self._little_bytes and self.at_once < MOST_LOOKS_AT_ONCE:
            return 2
        return 1 if self.at_once < LOOKS_AT_ONCE else 0


class LastLook:
    """That of one connection."""

    __slots__ = ("_has_turn", "_lent_bytes", "_turns", "is_by_turn", "until_ms", "waits")

    def __init__(self) -> None:
        self._turns: LookTurns | None = None  # its user's, once it has asked: who holds something stays his
        self._has_turn = False
        self._lent_bytes = 0  # read by turn, and kept
        self.until_ms = 0.0
        """it, or the wait for a turn, ends; 0: none is under way"""
        self.waits = False
        """for its turn"""
        self.is_by_turn = False
        """it has, or had, its turn, and reads on without room"""

    def begin(self, now_ms: float) -> None:
        """Read from now on."""
        self.until_ms = now_ms + LOOK_MS

    def ask(self, turns: LookTurns, its_turn: Callable[[], bool]) -> bool:
        """True: its turn is now. False: `its_turn` is called when it has come, and calls `take`."""
        self._turns = turns
        self._has_turn = self.is_by_turn = turns.begin(its_turn)
        self.waits = not self._has_turn
        return self._has_turn

    def take(self, *, wanted: bool) -> bool:
        """Its turn has come. False: it has not waited any more, or is not `wanted`."""
        is_taken = self.waits and wanted
        self.waits = False
        if is_taken:
            self._has_turn = self.is_by_turn = True
        return is_taken

    def waits_on(self, now_ms: float, *, for_lent: bool) -> bool:
        """Though its request's own turn has come. False: that takes too long. `for_lent`: it waits for what
        clients that are there have of what may be read by turn, which may take as long as they like."""
        if not self.until_ms:
            self.until_ms = now_ms + LOOK_WAIT_MS
        over_ms = self.until_ms - (LOOK_WAIT_MS - LOOK_MS if for_lent else 0.0)
        self.waits = now_ms < over_ms
        return self.waits

    def lend(self, size_bytes: int) -> None:
        """So much more was read by turn."""
        self._lent_bytes += size_bytes
        if self._turns is not None:
            self._turns.lent_bytes += size_bytes

    def keeps(self, kept_bytes: int) -> None:
        """So much is kept in all: some of what was read by turn may have gone on."""
        if self._lent_bytes > kept_bytes:
            self.lend(kept_bytes - self._lent_bytes)

    def end_turn(self) -> None:
        """Let the next one read; what comes behind what was here is read all the same."""
        if self._has_turn and self._turns is not None:
            self._has_turn = False
            self._turns.end()

    def end(self) -> None:
        """It is over, or the wait for it."""
        self.until_ms = 0.0
        self.end_turn()
        self.is_by_turn = False

    def end_for_good(self) -> None:
        """Its client's end has been found, or it ends: what was read by turn is of nobody who is there."""
        self.lend(-self._lent_bytes)  # first, for who comes next may read as much as is left
        self.end()
        self.waits = False
