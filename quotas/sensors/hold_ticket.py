"""One held request, in the queue of its bucket (hold_queue.py)."""

from __future__ import annotations

from collections.abc import Callable
from math import inf

from sluice.quotas.sensors.place import Place


class HoldTicket:
    """One held request, as its queue knows it."""

    __slots__ = (
        "ahead", "begin_tag", "clears_at_ms", "deadline_ms", "due_bytes", "eligible_at_ms", "guess_ms",
        "here_bytes", "is_in", "number", "pace", "place", "refuse_ms", "request_bytes",
        "room_bytes", "tag", "told_ms", "wake",
    )  # fmt: skip

    def __init__(
        self,
        request_bytes: float,
        begin_tag: float,
        number: int,
        deadline_ms: float,
        wake: Callable[[], object] | None,
        place: Place | None,
    ) -> None:
        self.request_bytes = request_bytes
        self.begin_tag = begin_tag
        """the virtual time from which on it waits"""
        self.tag = begin_tag + request_bytes
        self.number = number
        self.deadline_ms = deadline_ms
        self.wake = wake
        self.place = place
        self.eligible_at_ms = inf
        """when all that went before it is paid; known when it goes"""
        self.clears_at_ms = inf
        """when it is paid itself; known when it goes"""
        self.ahead = 0  # of its queue, when it was held
        self.here_bytes = request_bytes
        """what of it has come"""
        self.pace = 0.0  # bytes per ms that it needs; 0: it is not late
        self.due_bytes = 0.0  # with no later deadline, its own included; found by the last plan
        self.room_bytes = 0.0  # by which it may overtake those that are due earlier; found by the next plan
        self.refuse_ms = inf
        """when its budget is over, of a limit that refuses: it has no deadline then"""
        self.guess_ms = deadline_ms  # when it goes, if none overtakes another
        self.told_ms = inf  # when its connection looks again
        self.is_in = True

    def __lt__(self, other: HoldTicket) -> bool:
        return (self.tag, self.number) < (other.tag, other.number)
