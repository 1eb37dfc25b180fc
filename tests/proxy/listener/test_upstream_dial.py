"""One dial of a broker: what it asks the loop for, and what fails on it."""

from __future__ import annotations

import asyncio
import socket
from time import monotonic
from typing import TYPE_CHECKING, Any, cast

import pytest
from structlog.testing import capture_logs

from sluice.proxy.config.listener import ListenerOptions
from sluice.proxy.listener import upstream as module
from sluice.proxy.listener.circuit import Circuits
from sluice.proxy.listener.dial_queue import MAX_DIALS, DialQueue
from sluice.proxy.listener.host_addresses import opened
from sluice.proxy.listener.upstream import Upstream
from testkit.frames.frames import produce
from testkit.frames.wire import WITHIN_S, Wire
from testkit.peers.fault_broker import FaultBroker, answers
from testkit.processes.ports import LOOPBACK, free_port, full_port

if TYPE_CHECKING:
    from sluice.proxy.listener.tls.context import ClientTls

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


def options_of(port: int) -> ListenerOptions:
    return ListenerOptions(
        name="a", bind_host=LOOPBACK, bind_port=0, upstream_host=LOOPBACK, upstream_port=port
    )


def an_upstream(loop: Any) -> Upstream:
    return Upstream(loop, options_of(1), Circuits(), dial_timeout_s=WITHIN_S)


async def test_an_address_is_no_question_to_the_resolver_and_a_broker_here_is_connected_to_at_once() -> None:
    asks = Asks()
    async with FaultBroker(answers) as broker:
        dialled = await an_upstream(asks).dial((LOOPBACK, broker.port), None)
        assert dialled is not None
        dialled.stream.close()
        assert (asks.resolved, asks.waited) == ([], 0)
        dialled = await an_upstream(asks).dial(("localhost", broker.port), None)
        assert dialled is not None
        dialled.stream.close()
        assert asks.resolved == ["localhost"], "a name is asked for each time"


async def test_who_refuses_at_once_is_a_failed_dial_with_its_reason() -> None:
    with capture_logs() as logs:
        assert await an_upstream(asyncio.get_running_loop()).dial((LOOPBACK, free_port()), None) is None
    assert [(line["event"], line["reason"]) for line in logs] == [
        ("upstream_unreachable", "connection refused")
    ]


@pytest.mark.parametrize("must_wait", [False, True])
async def test_a_dial_that_reaches_itself_is_refused_and_leaves_the_port_to_the_broker(
    must_wait: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where the kernel chooses the port of a broker of this machine that is down for the dial's own."""
    port = free_port()

    def opened_there(family: int) -> socket.socket:
        broker = opened(family)
        broker.bind((LOOPBACK, port))
        return broker

    monkeypatch.setattr(module, "opened", opened_there)
    upstream = an_upstream(asyncio.get_running_loop())
    assert upstream.at_once([(LOOPBACK, port)]) is None
    if must_wait:
        monkeypatch.setattr(module, "connects_at_once", lambda *_: False)
    with capture_logs() as logs:
        assert await upstream.dial((LOOPBACK, port), None) is None
    assert [(line["event"], line["reason"]) for line in logs] == [
        ("upstream_unreachable", "connection refused")
    ]
    with socket.socket() as broker:
        broker.bind((LOOPBACK, port))


# Without a task, where nothing has to be waited for ---------------------------------------------------------


async def test_a_broker_of_this_machine_is_connected_to_without_a_wait() -> None:
    upstream = an_upstream(asyncio.get_running_loop())
    async with FaultBroker(answers) as broker:
        found = upstream.at_once([(LOOPBACK, broker.port), ("b", 9092)])
        assert found is not None
        assert found.address == (LOOPBACK, broker.port)
        with Wire(cast("socket.socket", found.stream)) as wire:
            await wire.send(produce())
            assert await wire.frame()


@pytest.mark.parametrize("address", [("localhost", 9092), ("192.0.2.1", 9092), ("b", 9092)])
async def test_what_may_be_far_away_is_left_to_who_can_wait(address: tuple[str, int]) -> None:
    assert an_upstream(asyncio.get_running_loop()).at_once([address]) is None


async def test_nobody_is_connected_to_at_once_where_something_is_said_first() -> None:
    """A PROXY header, TLS, a login."""
    loop = asyncio.get_running_loop()
    async with FaultBroker(answers) as broker:
        options = ListenerOptions(
            name="a",
            bind_host=LOOPBACK,
            bind_port=0,
            upstream_host=LOOPBACK,
            upstream_port=broker.port,
            upstream_proxy_protocol=True,
        )
        upstream = Upstream(loop, options, Circuits(), dial_timeout_s=WITHIN_S)
        assert upstream.at_once([(LOOPBACK, broker.port)]) is None
        tls = cast("ClientTls", object())
        upstream = Upstream(loop, options_of(broker.port), Circuits(), dial_timeout_s=WITHIN_S, tls=tls)
        assert upstream.at_once([(LOOPBACK, broker.port)]) is None
        assert not broker.clients


async def test_who_refuses_is_not_a_failure_until_somebody_asked_who_tells_it() -> None:
    circuits = Circuits()
    address = (LOOPBACK, free_port())
    upstream = Upstream(asyncio.get_running_loop(), options_of(address[1]), circuits, dial_timeout_s=WITHIN_S)
    assert upstream.at_once([address]) is None
    assert (circuits.of(address).failures, circuits.of(address).under_way) == (0, 0)


async def test_an_open_circuit_is_not_passed_by() -> None:
    circuits = Circuits()
    async with FaultBroker(answers) as broker:
        address = (LOOPBACK, broker.port)
        upstream = Upstream(
            asyncio.get_running_loop(), options_of(broker.port), circuits, dial_timeout_s=WITHIN_S
        )
        circuit = circuits.of(address)
        assert circuit.may_dial(monotonic() * 1000.0)
        circuit.failed(monotonic() * 1000.0, 0.5)
        assert upstream.at_once([address]) is None


async def test_a_broker_whose_queue_is_full_is_left_to_who_can_wait() -> None:
    with full_port() as server:
        upstream = an_upstream(asyncio.get_running_loop())
        assert upstream.at_once([server.getsockname()]) is None


async def test_nobody_passes_those_who_wait_for_their_turn() -> None:
    queue = DialQueue()
    place = queue.place((LOOPBACK, 1))
    for _ in range(MAX_DIALS - 1):
        await place.acquire()
    assert not queue.is_full((LOOPBACK, 1))
    await place.acquire()
    assert queue.is_full((LOOPBACK, 1))
    assert not queue.is_full((LOOPBACK, 2))
