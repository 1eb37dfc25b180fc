"""Long looks at what runs, in steps between which the loop serves connections."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from time import perf_counter
from typing import Final

LOOP_SHARE: Final = 0.1
"""of the loop's time, at most, that looks may take however often they are asked for"""


async def walked(steps: Iterator[None]) -> float:
    """Run all steps, each in a turn of the loop of its own. Returns their work in seconds."""
    work_s = 0.0
    while True:
        begun_s = perf_counter()
        over = next(steps, steps) is steps
        work_s += perf_counter() - begun_s
        if over:
            return work_s
        await asyncio.sleep(0)
