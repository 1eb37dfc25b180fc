"""The one way to start a task: named, referenced until it ends, and never failing in silence.

asyncio keeps only weak references to tasks; one that nobody holds may vanish in mid-air.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from sluice.proxy.log import get_logger

_log = get_logger()
_running: set[asyncio.Task[Any]] = set()


def spawn(work: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
    """Run `work` as a task of the running loop. An exception that ends it is logged."""
    task = asyncio.get_running_loop().create_task(work, name=name)
    _running.add(task)
    task.add_done_callback(_ended)
    return task


def _ended(task: asyncio.Task[Any]) -> None:
    _running.discard(task)
    if not task.cancelled() and (error := task.exception()) is not None:
        _log.error("task_failed", task=task.get_name(), exc_info=error)
