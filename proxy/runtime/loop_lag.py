"""How late the event loop is: the largest of what a timer noticed, over the last 30 to 60 s.

A timer that is due at t and is called at t + x was x late, because something else ran. One number in each of
two slots, so that a scrape every 30 s misses no stall, and an old one is forgotten:

    note 0.2 s late at 10 s, 0.5 s late at 40 s: largest at 50 s is 0.5 s, at 65 s 0.5 s, at 100 s 0 s

Stalls shorter than the timer's own interval are seen by chance only. Knows no clock.
"""

from __future__ import annotations

from typing import Final

SLOT_S: Final = 30.0


class LoopLag:
    """Fed by a task that sleeps; read by a scrape."""

    __slots__ = ("_before_s", "_begun_s", "_now_s")

    def __init__(self) -> None:
        self._begun_s = 0.0
        self._before_s = 0.0
        self._now_s = 0.0

    def note(self, late_s: float, now_s: float) -> None:
        """A timer was `late_s` late. `now_s` is monotonic."""
        self._turn(now_s)
        self._now_s = max(self._now_s, late_s)

    def largest_s(self, now_s: float) -> float:
        """The largest delay of the last 30 to 60 s; 0: none was late."""
        self._turn(now_s)
        return max(self._before_s, self._now_s)

    def _turn(self, now_s: float) -> None:
        slots = int((now_s - self._begun_s) // SLOT_S)
        if slots > 0:
            self._before_s = self._now_s if slots == 1 else 0.0
            self._now_s = 0.0
            self._begun_s += slots * SLOT_S
