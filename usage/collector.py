"""The recorder's lists → rows and windows of the access log: what belongs to which, in the order of time.

Asked often (UsageMeter.drain), so that nearly always all of it is of the window that grows. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from operator import attrgetter, itemgetter
from typing import Any, Final, TypeVar

from sluice.usage.access_record import Columns
from sluice.usage.records import Recorder, RequestRecord, finished_ms_of
from sluice.usage.requests import RequestRows
from sluice.usage.rollup import Rollup, Window

ROWS_AT_ONCE: Final = 1000
"""for fewer the writer is not woken before their window is over, for that would cost it more than they do"""
_T = TypeVar("_T")


class AccessCollector:
    """Usage of one process, on its way to the access log."""

    def __init__(self, rollup: Rollup, requests: RequestRows) -> None:
        self.rollup: Final = rollup
        self.requests: Final = requests
        self._are_rows_due = False

    def take(self, recorder: Recorder, now_ms: float, unix_ms: float) -> None:
        """Add up what is in the lists, all of it finished by now; they stay as they are.

        `now_ms` (monotonic) and `unix_ms` are the same moment.
        """
        rollup = self.rollup
        if now_ms < rollup.ends_ms:
            self._add(
                recorder.requests, recorder.throttles, recorder.amounts, recorder.arrivals,
                recorder.connections, unix_ms - now_ms,
            )  # fmt: skip
        else:
            self._take_in_parts(recorder, now_ms, unix_ms)
        if recorder.unanswered:
            self.requests.add_unanswered(recorder.unanswered, unix_ms - now_ms)

    def close(self, now_ms: float, unix_ms: float) -> None:
        """What is gathered is all there will be of this window: the end of the process."""
        self._end_window(unix_ms - now_ms)

    @property
    def is_ready(self) -> bool:
        """Whether `ready` has something, or a window is over that had nothing."""
        return bool(self.rollup.ended) or len(self.requests) >= ROWS_AT_ONCE

    def ready(self) -> Iterator[Columns | Window]:
        """What is to be written; each once: rows of single requests when there are ROWS_AT_ONCE, or their
        window is over."""
        rows = len(self.requests)
        if rows >= ROWS_AT_ONCE or (rows and self._are_rows_due):
            yield self.requests.take()
        self._are_rows_due = False
        while self.rollup.over:
            yield self.rollup.over.popleft()

    def _take_in_parts(self, recorder: Recorder, now_ms: float, unix_ms: float) -> None:
        requests, throttles, amounts, arrivals, ends = (
            list(recorder.requests), list(recorder.throttles), list(recorder.amounts),
            list(recorder.arrivals), list(recorder.connections),
        )  # fmt: skip
        offset_ms = unix_ms - now_ms
        while True:
            until_ms = self.rollup.ends_ms
            is_last = now_ms < until_ms
            if is_last:
                self._add(requests, throttles, amounts, arrivals, ends, offset_ms)
                return
            first_requests, requests = _parted(requests, finished_ms_of, until_ms)
            first_throttles, throttles = _parted(throttles, _BEGUN, until_ms)
            first_amounts, amounts = _parted(amounts, _AT, until_ms)
            first_arrivals, arrivals = _parted(arrivals, _ARRIVED, until_ms)
            first_ends, ends = _parted(ends, _CLOSED, until_ms)
            self._add(first_requests, first_throttles, first_amounts, first_arrivals, first_ends, offset_ms)
            self._end_window(offset_ms)

    def _end_window(self, offset_ms: float) -> None:
        self.rollup.close(offset_ms)
        self.requests.begin()
        self._are_rows_due = True

    def _add(
        self,
        requests: list[RequestRecord],
        throttles: list[Any],
        amounts: list[Any],
        arrivals: list[Any],
        ends: list[Any],
        offset_ms: float,
    ) -> None:
        rollup = self.rollup
        if requests:
            marked = rollup.add_requests(requests, self.requests.slow_ms)
            self.requests.add(requests, marked, offset_ms)
        if throttles:
            rollup.add_events(throttles)
        if amounts:
            rollup.add_amounts(amounts)
        if arrivals:
            rollup.add_arrivals(arrivals)
        if ends:
            rollup.add_ends(ends)


_BEGUN: Final[Callable[[Any], float]] = attrgetter("begun_ms")
_AT: Final[Callable[[Any], float]] = attrgetter("at_ms")
_ARRIVED: Final[Callable[[Any], float]] = itemgetter(1)
_CLOSED: Final[Callable[[Any], float]] = attrgetter("closed_ms")


def _parted(
    items: Iterable[_T], when_ms: Callable[[Any], float], until_ms: float
) -> tuple[list[_T], list[_T]]:
    """Those before a time, and those from it on."""
    before: list[_T] = []
    after: list[_T] = []
    for item in items:
        (before if when_ms(item) < until_ms else after).append(item)
    return before, after
