"""When requests came that were read while their connection waits, and when they are to go for it. Pure.

A client counts its timeout from when it sent a request. One that sends requests behind one another would see
their delays add up, if each were judged, and given its answer budget, when its turn to be judged comes. So
what is read ahead keeps the time at which it came, and goes before its client's patience ends:

    deadline = came + what the client may be made to wait (delays.WaitBudget)

Many requests that came at the same time would then go in one lump. So the first of them has only its part of
the time that is left, by bytes, and the others have theirs. Where the quota, shared by all that wait now, can
still pay in time what came with it, it may wait longer:

    first goes at now + (deadline − now) · its bytes ÷ bytes not gone yet of that deadline
           or at deadline − the other bytes of it · time a byte · requests that wait     if that is later

Worked example, 14 requests of 16 kB that came at 0 and may wait 48 s, 10 kB/s for twenty such connections:
they go 48 ÷ 14 = 3.4 s apart, the last at 48 s. What lies in socket buffers has not come yet.
"""

from __future__ import annotations

from math import inf
from typing import Final

from sluice.proxy.session.delays import WaitBudget

AHEAD_BYTES: Final = 256 * 1024
"""So much of what a waiting connection keeps counts as come behind its held request"""
_TOGETHER_MS: Final = 250.0
"""What comes so soon after other bytes counts as one with them, or a mark for each byte would be kept."""


class Arrivals:
    """When bytes of one connection's client came that have not gone on yet. Positions count all its bytes."""

    __slots__ = ("_marks", "budget", "is_pipelined")

    def __init__(self, budget: WaitBudget) -> None:
        self._marks: list[tuple[int, float]] = []  # (end, came_ms), both rising; few, and a deque has 0.7 kB
        self.budget = budget
        self.is_pipelined = False
        """the client has sent a request before the one before it was answered"""

    def __len__(self) -> int:
        return len(self._marks)

    def came(self, begin: int, end: int, now_ms: float) -> None:
        """The connection waits, and the bytes from `begin` to `end` are here; what was told before is not
        new."""
        marks = self._marks
        self._forget(begin)
        if not marks:
            marks.append((end, now_ms))
        elif end > marks[-1][0]:
            came_ms = marks[-1][1]
            if now_ms - came_ms < _TOGETHER_MS:
                marks[-1] = end, came_ms
            else:
                marks.append((end, now_ms))

    def latest_ms(self, begin: int, request_bytes: int, now_ms: float, shared_ms_per_byte: float) -> float:
        """When the request goes at the latest that begins at `begin`; inf: it was not read ahead.

        `shared_ms_per_byte`: how long a byte takes if all that wait are given the same.
        """
        self._forget(begin)
        latest_ms = inf
        if self._marks:
            budget = self.budget
            wait_ms = budget.pipelined_ms if self.is_pipelined else budget.alone_ms
            for end, came_ms in self._marks:
                remaining_ms = max(came_ms + wait_ms - now_ms, 0.0)
                others_bytes = max(end - begin - request_bytes, 0)
                share_ms = remaining_ms * request_bytes / (request_bytes + others_bytes)
                own_ms = max(share_ms, remaining_ms - others_bytes * shared_ms_per_byte)
                latest_ms = min(latest_ms, now_ms + own_ms)
        return latest_ms

    def _forget(self, begin: int) -> None:
        """What is before has gone on."""
        marks = self._marks
        while marks and marks[0][0] <= begin:
            del marks[0]
