"""The overload: many connections of one principal on each side, all flat out, with far more than its quota.

Light clients in this process (bench/lib/wire_clients.py): fifty Java producers on each side would leave two
cores nothing to measure with. They go straight to the broker, or to Sluice, and count what they are answered.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import Final

from bench.demo.figures import SIDES
from bench.demo.interrupts import Interrupts
from bench.demo.overload_figures import OverloadFigures, Poured, overload_figures
from bench.demo.overload_screen import OverloadScreen
from bench.lib.wire_clients import ClientLog, produce
from testkit.frames import load_frames as frames

CONNECTIONS: Final = 50
REQUEST_BYTES: Final = 100_000
DEPTH: Final = 5
TOPIC: Final = "demo-overload"
TICK_S: Final = 0.2


def overload_client_id(side: str) -> str:
    """All connections of a side are this principal's."""
    return f"{side}-overload"


async def run_overload(
    ports: Mapping[str, int], seconds: float, screen: OverloadScreen, interrupts: Interrupts
) -> list[OverloadFigures]:
    """Both sides at once; `ports`: where each connects. Raises BenchError when a broker refuses records."""
    requests = {side: _frame(side) for side in SIDES}  # checksums take their time
    start_s = time.monotonic()
    sides = [Poured(side, start_s, [ClientLog() for _ in range(CONNECTIONS)]) for side in SIDES]
    tasks = [
        asyncio.ensure_future(produce(ports[poured.side], requests[poured.side], DEPTH, log))
        for poured in sides
        for log in poured.logs
    ]
    try:
        with screen:
            while (now_s := time.monotonic()) < start_s + seconds:
                interrupts.check()
                _raise_failed(tasks)
                screen.update(sides, now_s, seconds)
                await asyncio.sleep(TICK_S)
            screen.update(sides, start_s + seconds, seconds)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return [overload_figures(poured, start_s + seconds) for poured in sides]


def _frame(side: str) -> bytes:
    return bytes(frames.produce_request_of(overload_client_id(side), TOPIC, REQUEST_BYTES))


def _raise_failed(tasks: Sequence[asyncio.Future[None]]) -> None:
    for task in tasks:
        if task.done():
            task.result()
