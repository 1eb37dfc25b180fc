"""What the connections of one event loop share: the loop, the receive buffer, what bounds them together."""

from __future__ import annotations

from asyncio import AbstractEventLoop, Event
from typing import TYPE_CHECKING, Any, Final

from sluice.proxy.connection.budget import WINDOW_BYTES, BufferBudget
from sluice.proxy.connection.guests import WaitingRoom
from sluice.proxy.connection.kernel_pipe import KernelPipe
from sluice.proxy.connection.limits import ConnectionLimits
from sluice.proxy.connection.poller import Poller
from sluice.proxy.connection.rates import ConnectionRates
from sluice.proxy.connection.timeouts import SweepClock
from sluice.proxy.runtime.gauges import Gauges
from sluice.usage.records import Recorder

if TYPE_CHECKING:
    from sluice.proxy.quota_store.service import QuotaDesk

THROTTLED_RECEIVE_BYTES: Final = 64 * 1024
"""A throttled connection's unread requests belong in the kernel's buffers, not in copies of ours."""
HEAD_BYTES: Final = 16 * 1024
"""Enough to judge nearly every large frame by; what is behind it need not be copied (kernel_pipe.py)."""


class Worker:
    """What the connections of one event loop share."""

    __slots__ = (
        "budget",
        "buf",
        "clock",
        "gauges",
        "guests",
        "head_view",
        "limits",
        "loop",
        "occupied",
        "pipe",
        "poller",
        "quota_desk",
        "rates",
        "recorder",
        "small_view",
        "view",
    )

    def __init__(
        self,
        loop: AbstractEventLoop,
        recorder: Recorder,
        gauges: Gauges,
        limits: ConnectionLimits | None = None,
        budget: BufferBudget[Any] | None = None,
        poller: type[Poller] = Poller,
    ) -> None:
        """`limits`, `budget` (of Connections, which know their worker): if not given, no limits and the
        default budget. `poller`: the data path's."""
        self.loop = loop
        self.recorder = recorder
        self.gauges = gauges
        self.limits = limits or ConnectionLimits()
        self.guests = WaitingRoom(loop, self.limits.guests, gauges)
        self.budget: BufferBudget[Any] = budget or BufferBudget()
        self.rates: ConnectionRates | None = None
        """how fast each address may connect"""
        self.quota_desk: QuotaDesk | None = None
        """who answers what clients ask about quotas, where sessions take that out"""
        self.clock = SweepClock(loop.time() * 1000.0)
        self.occupied = Event()
        """set while a client connection is open: what has to do with clients alone sleeps until then"""
        # A window of 1 MiB halves the CPU per byte against 64 KiB (docs/decisions.md).
        self.buf = bytearray(WINDOW_BYTES)
        self.view = memoryview(self.buf)
        self.small_view = self.view[:THROTTLED_RECEIVE_BYTES]
        self.head_view = self.view[:HEAD_BYTES]
        self.pipe = KernelPipe()
        self.poller = poller(loop)

    def opened(self) -> None:
        """A client connection more."""
        gauges = self.gauges
        gauges.connections += 1
        gauges.connections_opened += 1
        if gauges.connections == 1:
            self.occupied.set()

    def closed(self) -> None:
        """One of them less."""
        self.gauges.connections -= 1
        if not self.gauges.connections:
            self.occupied.clear()

    def close(self) -> None:
        """Connections are not served any more."""
        self.poller.close()
        self.pipe.close()
