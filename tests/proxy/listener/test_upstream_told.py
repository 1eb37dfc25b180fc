"""What /readyz, the metric and the log tell of an upstream that cannot be used is what was found last."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from sluice.proxy.config.listener import ListenerOptions
from sluice.proxy.listener.circuit import Circuits
from sluice.proxy.listener.route import BrokerRoute
from sluice.proxy.listener.tls.context import ClientTls
from sluice.proxy.listener.upstream import Upstream
from sluice.proxy.listener.upstream_watch import Patience, UpstreamWatch
from testkit.peers.certificates import CertificateAuthority
from testkit.peers.fault_broker import BrokerSide, FaultBroker
from testkit.peers.tls_broker import TlsBroker
from testkit.processes.ports import LOOPBACK, free_port
from testkit.proxy.local_proxy import until

pytestmark = pytest.mark.asyncio
Lines = list[Any]
NOT_YET = "listener one: its upstream has not been reached yet: "
SHORT = Patience(interval_s=0.02, retry_s=0.02, silence_s=1.2)


@pytest.fixture
def lines() -> Iterator[Lines]:
    with capture_logs() as caught:
        yield caught


@pytest.fixture
def authority() -> CertificateAuthority:
    return CertificateAuthority()


@asynccontextmanager
async def watching(port: int, ca_file: Path) -> AsyncIterator[UpstreamWatch]:
    """A broker behind TLS."""
    loop, circuits = asyncio.get_running_loop(), Circuits()
    tls = ClientTls(ca_file=ca_file)
    tls.load(time.time())
    options = ListenerOptions(name="one", bind_port=0)
    upstream = Upstream(loop, options, circuits, dial_timeout_s=0.2, tls=tls)
    watch = UpstreamWatch(loop, "one", upstream, BrokerRoute((LOOPBACK, port)), circuits, patience=SHORT)
    task = asyncio.ensure_future(watch.run())
    try:
        yield watch
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def becomes(watch: UpstreamWatch, problem: str) -> None:
    try:
        await until(lambda: (problem in watch.problem) if problem else not watch.problem)
    except AssertionError:
        raise AssertionError(f"{watch.problem!r} in the place of {problem!r}") from None


def answers_nobody(watch: UpstreamWatch) -> bool:
    return watch.answers_nobody


async def speaks_http(client: BrokerSide) -> None:
    await client.read(5)
    await client.send(b"HTTP/1.1 400 Bad Request\r\n\r\n")


async def closes(client: BrokerSide) -> None:
    await client.read(5)


@pytest.mark.parametrize(
    ("behaviour", "reason"),
    [
        (speaks_http, "the broker does not speak TLS on this port"),
        (closes, "the broker closed the connection during the TLS handshake"),
    ],
    ids=["HTTP", "closes, as Kafka in plain text"],
)
async def test_of_a_broker_that_was_never_reached_readiness_says_what_the_log_does(
    behaviour: Callable[[BrokerSide], Awaitable[None]],
    reason: str,
    lines: Lines,
    authority: CertificateAuthority,
    tmp_path: Path,
) -> None:
    async with FaultBroker(behaviour) as broker, watching(broker.port, authority.write(tmp_path)) as watch:
        await becomes(watch, NOT_YET + reason)
        assert not answers_nobody(watch)
    (line,) = [line for line in lines if line["event"] == "upstream_unreachable"]
    assert reason in line["reason"]


async def foreign(broker: TlsBroker) -> None:
    """Its authority is not the one that is trusted."""


async def demands_at_tls_1_2(broker: TlsBroker) -> None:
    broker.context.maximum_version = ssl.TLSVersion.TLSv1_2
    broker.demand_certificate(True)


async def says_nothing(broker: TlsBroker) -> None:
    broker.shakes_hands = False


@pytest.mark.parametrize(
    ("does", "reason"),
    [
        (foreign, "the broker's certificate is refused: "),
        (demands_at_tls_1_2, "the broker refused the TLS connection with the alert: "),
        (says_nothing, "no answer to the TLS handshake in time"),
    ],
)
async def test_of_a_broker_that_speaks_tls_as_well(
    does: Callable[[TlsBroker], Awaitable[None]], reason: str, authority: CertificateAuthority, tmp_path: Path
) -> None:
    trusted = CertificateAuthority() if does is foreign else authority
    with TlsBroker(authority, tmp_path / "broker") as broker:
        await does(broker)
        async with watching(broker.port, trusted.write(tmp_path)) as watch:
            await until(lambda: NOT_YET in watch.problem and reason in watch.problem)


async def test_a_refusal_is_told_no_longer_than_it_is_what_happens(
    lines: Lines, authority: CertificateAuthority, tmp_path: Path
) -> None:
    """Down, in plain text, frozen, refusing again: each told as what it is."""
    port, ca_file = free_port(), authority.write(tmp_path)
    refuses = "the broker refused the TLS connection with the alert: certificate required"
    async with watching(port, ca_file) as watch:
        with TlsBroker(authority, tmp_path, port) as broker:
            await becomes(watch, "")
            broker.demand_certificate(True)
            watch._cut_off.set()
            await becomes(watch, refuses)
            assert answers_nobody(watch)
        await becomes(watch, f"{LOOPBACK}:{port} cannot be reached: connection refused")
        assert not answers_nobody(watch)
        async with FaultBroker(closes, port=port):
            await becomes(watch, f"{port} cannot be reached: the broker closed the connection during the TLS")
        with TlsBroker(authority, tmp_path, port) as broker:
            broker.shakes_hands = False
            await becomes(watch, f"{port} cannot be reached: no answer to the TLS handshake in time")
            broker.demand_certificate(True)
            broker.shakes_hands = True
            await becomes(watch, refuses)
            broker.shakes_hands = False
            await becomes(watch, "has not answered since it ended TLS")
            assert not answers_nobody(watch)
            await becomes(watch, "refuses no connection, and has not answered for")
            assert answers_nobody(watch)
            broker.shakes_hands = True
            await becomes(watch, refuses)
            broker.demand_certificate(False)
            await becomes(watch, "")
            assert not answers_nobody(watch)


async def test_a_refusal_that_comes_and_goes_is_not_told_at_every_turn(
    lines: Lines, authority: CertificateAuthority, tmp_path: Path
) -> None:
    """As where one name leads to several brokers of which one demands a certificate."""
    with TlsBroker(authority, tmp_path) as broker:
        async with watching(broker.port, authority.write(tmp_path)) as watch:
            for _ in range(5):
                broker.demand_certificate(True)
                watch._cut_off.set()
                await becomes(watch, "certificate required")
                broker.demand_certificate(False)
                await becomes(watch, "")
    told = [line["event"] for line in lines]
    assert told in (
        ["upstream_reached", "upstream_refuses_tls", "upstream_reached"],
        ["upstream_refuses_tls", "upstream_reached"],
    )


async def test_a_broker_that_comes_back_wrong_is_told_anew(
    lines: Lines, authority: CertificateAuthority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sluice.proxy.listener.circuit._CAUSE_TOLD_EVERY_MS", 50.0)
    port = free_port()
    async with watching(port, authority.write(tmp_path)) as watch:
        await becomes(watch, NOT_YET + "connection refused")
        async with FaultBroker(closes, port=port) as broker:
            await becomes(watch, NOT_YET + "the broker closed the connection")
            asked = len(broker.clients)
            await until(lambda: len(broker.clients) > asked + 2)
    told = [line["reason"] for line in lines if line["event"] == "upstream_unreachable"]
    assert told[0] == "connection refused"
    assert told[1].startswith("the broker closed the connection during the TLS handshake")
    assert len(told) <= 3, "once for each change"
