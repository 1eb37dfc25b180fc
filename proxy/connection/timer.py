"""The one timer of a connection, and that it counts as delayed while the proxy makes it wait."""

from __future__ import annotations

from asyncio import Handle
from collections.abc import Callable
from math import ceil
from time import monotonic
from typing import Final

from sluice.proxy.connection.worker import Worker
from sluice.quotas.kinds import QuotaKind

_GAIN_S: Final = 0.001
"""minimum gain before a call is made earlier"""


class DelayTimer:
    """At most one call is due at a time."""

    __slots__ = ("_counted_as", "_delayed", "_due_s", "_loop", "_timer")

    def __init__(self, worker: Worker) -> None:
        self._loop = worker.loop
        self._delayed = worker.gauges.delayed
        self._timer: Handle | None = None  # a call in 0 s gets one from uvloop that knows no time
        self._due_s = 0.0
        self._counted_as: str | None = None

    def delay_until(self, at_ms: float, kind: QuotaKind | None, call: Callable[[], None]) -> None:
        """Delayed by `kind`'s quota; `call` at `at_ms`, unless a call is due before (which asks again)."""
        if self._counted_as is None and kind is not None:
            self._counted_as = kind.value
            self._delayed[kind.value] += 1
        delay_s = max(0, ceil(at_ms - monotonic() * 1000.0)) / 1000.0
        if self._timer is None or self._due_s > self._loop.time() + delay_s + _GAIN_S:
            self.call_in(delay_s, call)

    def call_in(self, delay_s: float, call: Callable[[], None]) -> None:
        """In place of what is due now."""
        if self._timer is not None:
            self._timer.cancel()
        self._due_s = self._loop.time() + delay_s
        self._timer = self._loop.call_later(delay_s, call)

    def has_come(self) -> None:
        """The call is being made: none is due."""
        self._timer = None

    def end(self) -> None:
        """Nothing is due, and the connection is not delayed."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._counted_as is not None:
            self._delayed[self._counted_as] -= 1
            self._counted_as = None
