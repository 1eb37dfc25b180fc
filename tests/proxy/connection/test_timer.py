"""The one timer of a connection."""

from __future__ import annotations

import asyncio
import time
from types import SimpleNamespace
from typing import cast

import pytest

from sluice.proxy.connection.timer import DelayTimer
from sluice.proxy.connection.worker import Worker
from sluice.quotas.kinds import QuotaKind

pytestmark = pytest.mark.asyncio


def timer_of_this_loop() -> DelayTimer:
    gauges = SimpleNamespace(delayed=dict.fromkeys((kind.value for kind in QuotaKind), 0))
    return DelayTimer(cast(Worker, SimpleNamespace(loop=asyncio.get_running_loop(), gauges=gauges)))


async def test_what_is_due_at_once_can_be_asked_for_again() -> None:
    """uvloop gives a call in 0 s a handle that does not know when it is due."""
    timer, called = timer_of_this_loop(), asyncio.Event()
    timer.call_in(0.0, called.set)
    timer.delay_until((time.monotonic() + 5.0) * 1_000.0, QuotaKind.PRODUCE, called.clear)
    await asyncio.wait_for(called.wait(), 5.0)
    timer.end()


async def test_an_earlier_call_replaces_a_later_one() -> None:
    timer, called = timer_of_this_loop(), asyncio.Event()
    timer.call_in(3_600.0, called.clear)
    timer.delay_until(time.monotonic() * 1_000.0, QuotaKind.PRODUCE, called.set)
    await asyncio.wait_for(called.wait(), 5.0)
    timer.end()
