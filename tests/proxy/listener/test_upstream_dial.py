"""One dial of a broker: what it asks the loop for, and what fails on it."""

from __future__ import annotations

import asyncio
from errno import ECONNREFUSED
from typing import Any

import pytest
from structlog.testing import capture_logs

from sluice.proxy.config.listener import ListenerOptions
from sluice.proxy.listener.circuit import Circuits
from sluice.proxy.listener.upstream import Upstream
from testkit.frames.wire import WITHIN_S
from testkit.peers.fault_broker import FaultBroker, answers
from testkit.processes.ports import LOOPBACK, free_port

pytestmark = pytest.mark.asyncio


class Asks:
    """The loop of a test, with a count of what it is asked for."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.resolved: list[str] = []
        self.waited = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loop, name)

    async def getaddrinfo(self, host: str, *args: Any, **options: Any) -> Any:
        self.resolved.append(host)
        return await self._loop.getaddrinfo(host, *args, **options)

    async def sock_connect(self, *args: Any) -> None:
        self.waited += 1
        await self._loop.sock_connect(*args)


def an_upstream(loop: Any) -> Upstream:
    options = ListenerOptions(
        name="a", bind_host=LOOPBACK, bind_port=0, upstream_host=LOOPBACK, upstream_port=1
    )
    return Upstream(loop, options, Circuits(), dial_timeout_s=WITHIN_S)


async def test_an_address_is_no_question_to_the_resolver_and_a_broker_here_is_connected_to_at_once() -> None:
    asks = Asks()
    async with FaultBroker(answers) as broker:
        stream = await an_upstream(asks).dial((LOOPBACK, broker.port), None)
        assert stream is not None
        stream.close()
        assert (asks.resolved, asks.waited) == ([], 0)
        stream = await an_upstream(asks).dial(("localhost", broker.port), None)
        assert stream is not None
        stream.close()
        assert asks.resolved == ["localhost"], "a name is asked for each time"


async def test_who_refuses_at_once_is_a_failed_dial_with_its_reason() -> None:
    with capture_logs() as logs:
        assert await an_upstream(asyncio.get_running_loop()).dial((LOOPBACK, free_port()), None) is None
    assert [(line["event"], line["reason"]) for line in logs] == [
        ("upstream_unreachable", f"[Errno {ECONNREFUSED}] Connection refused")
    ]
