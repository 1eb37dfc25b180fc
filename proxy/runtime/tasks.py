"""The one way to start a task: named, referenced until it ends, and never failing in silence; and to do long
work in turns with others.

asyncio keeps only weak references to tasks; one that nobody holds may vanish in mid-air.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Generator
from time import monotonic
from typing import Any, Final, TypeVar

from sluice.proxy.runtime.log import get_logger

_RARER: Final = 5.0
"""how much, of beats while no client is there: a second's become those at which the broker is asked, too"""

_log = get_logger()
_running: set[asyncio.Task[Any]] = set()
_Found = TypeVar("_Found")


def spawn(work: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
    """Run `work` as a task of the running loop. An exception that ends it is logged."""
    task = asyncio.get_running_loop().create_task(work, name=name)
    _running.add(task)
    task.add_done_callback(_ended)
    return task


async def in_turns(steps: Generator[None, None, _Found]) -> _Found:
    """What the steps come to; connections are served between them."""
    while True:
        try:
            next(steps)
        except StopIteration as done:
            found: _Found = done.value
            return found
        await asyncio.sleep(0)


async def next_beat(every_s: float) -> None:
    """Sleep until the next multiple of `every_s` (monotonic), at least a tenth of it.

    Tasks that have little to do wake up together: on an idle machine the wake-up is what costs, not the work.
    """
    await asyncio.sleep(to_beat_s(every_s))


async def beat_of_clients(every_s: float, occupied: asyncio.Event) -> float:
    """`next_beat` for what has to do with clients alone: while none is there (`occupied` is clear) a rarer
    one, or the next one after one came: as often as with clients, however often they come and go. Returns how
    late it is, in seconds."""
    if not occupied.is_set():
        left_s = to_beat_s(every_s * _RARER)
        due_s = monotonic() + left_s
        try:
            async with asyncio.timeout(left_s):
                await occupied.wait()
        except TimeoutError:
            return monotonic() - due_s
    left_s = to_beat_s(every_s)
    due_s = monotonic() + left_s
    await asyncio.sleep(left_s)
    return monotonic() - due_s


def to_beat_s(every_s: float) -> float:
    """How long `next_beat` sleeps, for waits that something else may end."""
    left_s = every_s - now_s() % every_s
    return left_s if left_s > every_s / 10.0 else left_s + every_s


def now_s() -> float:
    """The loop's, which stands still while it works: by the clock's, tasks that it woke together would sleep
    to another millisecond each, and wake it as often."""
    return asyncio.get_running_loop().time()


def _ended(task: asyncio.Task[Any]) -> None:
    _running.discard(task)
    if not task.cancelled() and (error := task.exception()) is not None:
        _log.error("task_failed", task=task.get_name(), exc_info=error)
