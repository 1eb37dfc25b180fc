"""A broker's name that leads to several addresses, of which some bring no connection, or no TLS."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from sluice.proxy.config.listener import ListenerOptions
from sluice.proxy.connection.undialled import NotConnected
from sluice.proxy.listener.circuit import Circuits
from sluice.proxy.listener.dial_outcome import SaysNothing
from sluice.proxy.listener.host_addresses import MAX_DOUBTED, HostAddresses
from sluice.proxy.listener.tls.context import ClientTls
from sluice.proxy.listener.upstream import Upstream
from sluice.proxy.session.causes import DisconnectCause
from testkit.peers.certificates import CertificateAuthority
from testkit.peers.fault_broker import BrokerSide, FaultBroker, answers
from testkit.peers.loop_clock import LoopClock
from testkit.peers.names import NAME, Names
from testkit.peers.tls_broker import TlsBroker
from testkit.processes.ports import LOOPBACK, free_port, full_port
from testkit.proxy.local_proxy import until

pytestmark = pytest.mark.asyncio
SHORT_S = 0.6
"""two addresses have half of it each"""
MANY_S = 2.4
"""where one that comes late to its part, as on a busy machine, would leave none for the last"""


@pytest.fixture(autouse=True)
def dialled(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The ports to which connections were begun, in order."""
    from sluice.proxy.listener import host_addresses, upstream

    ports: list[int] = []
    connects = host_addresses.connects_at_once

    def noted(broker: socket.socket, address: Any) -> bool:
        ports.append(address[1])
        return connects(broker, address)

    monkeypatch.setattr(upstream, "connects_at_once", noted)
    return ports


@pytest.fixture
def silent() -> Iterator[int]:
    with full_port() as server:
        yield int(server.getsockname()[1])


def an_upstream(
    names: Names, tls: ClientTls | None = None, dial_timeout_s: float = SHORT_S
) -> tuple[Upstream, Circuits]:
    options, circuits = ListenerOptions(name="a", bind_port=0), Circuits()
    loop: Any = names
    return Upstream(loop, options, circuits, dial_timeout_s=dial_timeout_s, tls=tls), circuits


async def served(upstream: Upstream) -> None:
    dialled = await upstream.dial(NAME, None)
    assert dialled is not None
    dialled.stream.close()


# One of them serves -----------------------------------------------------------------------------------------


async def test_behind_an_address_that_is_silent_the_next_is_dialled_and_from_then_on_it_is_the_first(
    silent: int, dialled: list[int]
) -> None:
    async with FaultBroker(answers) as broker:
        upstream, circuits = an_upstream(Names(silent, broker.port))
        await served(upstream)
        assert dialled == [silent, broker.port]
        assert circuits.of(NAME).is_closed
        assert circuits.of(NAME).failures == 0
        dialled.clear()
        for _ in range(3):
            await served(upstream)
        assert dialled == [broker.port] * 3


async def test_who_needs_more_than_his_part_of_the_time_has_all_of_it_the_next_time(
    silent: int, dialled: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where TLS takes 3 of 5 s, and another address of the name is dead."""
    secured = Upstream._secured

    async def slowly(self: Upstream, broker: socket.socket, *others: Any) -> Any:
        await asyncio.sleep(0.7 * SHORT_S)
        return await secured(self, broker, *others)

    monkeypatch.setattr(Upstream, "_secured", slowly)
    async with FaultBroker(answers) as broker:
        upstream, _ = an_upstream(Names(broker.port, silent, broker.port))
        with pytest.raises(SaysNothing):
            await upstream.dial(NAME, None)
        assert dialled == [broker.port, silent], "what the resolver tells twice is one address"
        for _ in range(3):
            await served(upstream)
        assert dialled[2:] == [broker.port] * 3


async def test_each_of_many_has_some_time_and_the_others_come_in_the_next_dial(dialled: list[int]) -> None:
    with ExitStack() as stack:
        dead = [int(stack.enter_context(full_port()).getsockname()[1]) for _ in range(7)]
        async with FaultBroker(answers) as broker:
            upstream, _ = an_upstream(Names(*dead, broker.port), dial_timeout_s=MANY_S)
            with pytest.raises(SaysNothing):
                await upstream.dial(NAME, None)
            assert dialled == dead[:5]
            await served(upstream)
            assert dialled[5:] == [*dead[5:], broker.port]


async def test_one_that_is_whole_again_is_taken_back_once_the_other_brings_nothing(
    dialled: list[int],
) -> None:
    one, other = free_port(), free_port()
    upstream, _ = an_upstream(Names(one, other))
    async with FaultBroker(answers, port=other):
        await served(upstream)
    async with FaultBroker(answers, port=one):
        await served(upstream)
        assert dialled == [one, other, other, one]
        dialled.clear()
        await served(upstream)
        assert dialled == [one]


async def closes(client: BrokerSide) -> None:
    await client.read(5)


@pytest.mark.parametrize("behaviour", [closes, answers], ids=["it fails", "nothing answers"])
async def test_behind_an_address_where_tls_comes_to_nothing_the_next_is_dialled(
    behaviour: Any, tmp_path: Path, dialled: list[int]
) -> None:
    authority = CertificateAuthority()
    with TlsBroker(authority, tmp_path) as broker:
        tls = ClientTls(ca_file=authority.write(tmp_path), server_name="localhost")
        tls.load(time.time())
        async with FaultBroker(behaviour) as wrong:
            upstream, circuits = an_upstream(Names(wrong.port, broker.port), tls, dial_timeout_s=4.0)
            for _ in range(2):
                await served(upstream)
            assert dialled == [wrong.port, broker.port, broker.port]
            assert (circuits.of(NAME).is_closed, circuits.of(NAME).failures) == (True, 0)


async def test_all_of_them_share_the_time_of_one_dial(dialled: list[int]) -> None:
    with full_port() as one, full_port() as two, full_port() as three:
        ports = [server.getsockname()[1] for server in (one, two, three)]
        upstream, _ = an_upstream(Names(*ports), dial_timeout_s=MANY_S)
        begun_s = time.monotonic()
        with LoopClock() as clock, pytest.raises(SaysNothing):
            await upstream.dial(NAME, None)
        assert time.monotonic() - begun_s >= MANY_S - 0.05
        assert clock.now_s < 3.0 * MANY_S
        assert dialled == ports


# None of them serves ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("silent_first", [True, False])
async def test_where_one_was_silent_no_circuit_opens_and_its_address_is_named(
    silent: int, silent_first: bool
) -> None:
    ports = [silent, free_port()] if silent_first else [free_port(), silent]
    upstream, circuits = an_upstream(Names(*ports), dial_timeout_s=MANY_S)
    with capture_logs() as lines:
        for _ in range(2):
            with pytest.raises(SaysNothing) as told:
                await upstream.dial(NAME, None)
            assert str(told.value) == (
                "kafka.test:9092 (127.0.0.1): took no connection in time; at 127.0.0.1: connection refused"
            )
    assert circuits.of(NAME).is_closed
    assert circuits.of(NAME).is_slow
    (line,) = lines
    assert line["event"] == "upstream_accepts_slowly"
    assert line["reason"].startswith("at 127.0.0.1: no connection within ")
    assert "; at 127.0.0.1: connection refused" in line["reason"]
    assert circuits.of(NAME).reason.endswith("; at 127.0.0.1: connection refused")


async def test_where_all_refuse_the_circuit_opens_and_the_last_one_is_named() -> None:
    upstream, circuits = an_upstream(Names(free_port(), free_port()))
    with capture_logs() as lines:
        assert await upstream.dial(NAME, None) is None
    assert not circuits.of(NAME).is_closed
    assert circuits.of(NAME).failures == 1
    assert [line["reason"] for line in lines] == ["at 127.0.0.1: connection refused"]
    assert circuits.of(NAME).reason == "at 127.0.0.1: connection refused"


async def test_a_name_with_one_address_is_told_without_it() -> None:
    upstream, circuits = an_upstream(Names(free_port()))
    assert await upstream.dial(NAME, None) is None
    assert circuits.of(NAME).reason == "connection refused"


async def test_a_name_that_leads_nowhere_says_so() -> None:
    upstream, circuits = an_upstream(Names())
    assert await upstream.dial(NAME, None) is None
    assert circuits.of(NAME).reason == "no address for kafka.test"


async def test_a_dial_that_is_given_up_closes_its_socket(silent: int, dialled: list[int]) -> None:
    upstream, circuits = an_upstream(Names(silent, silent), dial_timeout_s=30.0)
    before = set(os.listdir("/proc/self/fd"))
    dial = asyncio.ensure_future(upstream.dial(NAME, None))
    await until(lambda: bool(dialled))
    dial.cancel()
    await asyncio.gather(dial, return_exceptions=True)
    assert set(os.listdir("/proc/self/fd")) <= before, "threads of earlier tests may close some"
    assert circuits.of(NAME).under_way == 0


async def test_want_of_descriptors_is_no_address_s_fault(
    monkeypatch: pytest.MonkeyPatch, dialled: list[int]
) -> None:
    from sluice.proxy.listener import upstream as module

    def none_left(_family: int) -> socket.socket:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    async with FaultBroker(answers) as one, FaultBroker(answers) as other:
        upstream, circuits = an_upstream(Names(one.port, other.port))
        with monkeypatch.context() as patch:
            patch.setattr(module, "opened", none_left)
            with pytest.raises(NotConnected) as told:
                await upstream.dial(NAME, None)
        assert told.value.cause is DisconnectCause.OUT_OF_FILE_DESCRIPTORS
        assert (circuits.of(NAME).failures, circuits.of(NAME).under_way) == (0, 0)
        await served(upstream)
        assert dialled == [one.port]


# What is remembered -----------------------------------------------------------------------------------------


async def order(names: Names, addresses: HostAddresses) -> list[int]:
    return [int(found[1][1]) for found in await addresses.of(*NAME)]


async def test_those_in_doubt_are_last_and_all_of_them_are_in_their_own_order() -> None:
    names: Any = Names(1, 2, 3)
    addresses = HostAddresses(names)
    assert await order(names, addresses) == [1, 2, 3]
    addresses.failed((LOOPBACK, 1))
    assert await order(names, addresses) == [2, 3, 1]
    addresses.failed((LOOPBACK, 2))
    assert await order(names, addresses) == [3, 1, 2]
    addresses.failed((LOOPBACK, 3))
    assert await order(names, addresses) == [1, 2, 3]
    addresses.served((LOOPBACK, 2))
    assert await order(names, addresses) == [2, 1, 3]


async def test_no_more_is_remembered_than_its_bound_and_the_oldest_is_forgotten() -> None:
    names: Any = Names(1, 2)
    addresses = HostAddresses(names)
    for port in range(1, MAX_DOUBTED + 1):
        addresses.failed((LOOPBACK, port))
    assert len(addresses) == MAX_DOUBTED
    addresses.failed((LOOPBACK, 1))  # again: now the newest
    addresses.failed((LOOPBACK, 0))
    assert len(addresses) == MAX_DOUBTED
    assert await order(names, addresses) == [2, 1]
