"""What the connections of one event loop share: the loop, the receive buffer, and where they leave their
numbers."""

from __future__ import annotations

from asyncio import AbstractEventLoop
from typing import Final

from sluice.proxy.gauges import Gauges
from sluice.quotas.records import Recorder

RECEIVE_BYTES: Final = 1024 * 1024
"""1 MiB halves the CPU per byte against 64 KiB (docs/decisions.md)."""
THROTTLED_RECEIVE_BYTES: Final = 64 * 1024
"""A throttled connection's unread requests belong in the kernel's buffers, not in copies of ours."""


class Worker:
    """What the connections of one event loop share."""

    __slots__ = ("buf", "gauges", "loop", "recorder", "small_view", "view")

    def __init__(self, loop: AbstractEventLoop, recorder: Recorder, gauges: Gauges) -> None:
        self.loop = loop
        self.recorder = recorder
        self.gauges = gauges
        self.buf = bytearray(RECEIVE_BYTES)
        self.view = memoryview(self.buf)
        self.small_view = self.view[:THROTTLED_RECEIVE_BYTES]
