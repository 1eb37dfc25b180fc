"""When work that comes round and round is done: all of one interval at the same moment.

A process with nothing to do then wakes up once a second for all of it, and not once for each. The moment is
each process's own, so that the proxies of one machine do not wake up together.
"""

from __future__ import annotations

import asyncio
from random import random
from time import monotonic
from typing import Final

_OFFSET_S: Final = random()  # noqa: S311  no secret
_EARLY_SHARE: Final = 0.1
"""of the interval: who asks so shortly before a moment was just woken by it"""


def to_next_s(interval_s: float, now_s: float) -> float:
    """Until the next moment of this interval; `now_s` is monotonic."""
    left_s = interval_s - (now_s + _OFFSET_S) % interval_s
    return left_s if left_s > _EARLY_SHARE * interval_s else left_s + interval_s


async def next_tick(interval_s: float) -> None:
    """Sleep until the next moment."""
    await asyncio.sleep(to_next_s(interval_s, monotonic()))
