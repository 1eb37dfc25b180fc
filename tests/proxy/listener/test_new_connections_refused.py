"""A broker that goes on with the connections that it has and ends every new one.

The first client that it happens to makes the proxy ask, so that /readyz says why and a gateway takes the next
broker. No client can make more of it than a question a second.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

from sluice.proxy.assembly import Assembled
from sluice.proxy.listener.upstream_watch import Patience
from testkit.frames.frames import API_VERSIONS, METADATA, answer, request
from testkit.frames.questions import is_served
from testkit.frames.wire import dial
from testkit.peers.certificates import CertificateAuthority
from testkit.peers.fault_broker import BrokerSide, FaultBroker, answer_to
from testkit.peers.tls_broker import TlsBroker
from testkit.processes.ports import LOOPBACK, free_port_range
from testkit.proxy.local_proxy import until
from testkit.proxy.secured_proxy import SecuredProxy, credentials_file

pytestmark = pytest.mark.asyncio
PATIENCE = Patience(interval_s=60.0)
SOON_S = 20.0
"""Long before it would be asked anyway. A second until the connection is closed, one until it may be asked
again, and a busy machine."""


@asynccontextmanager
async def serving(listener: Mapping[str, Any], port: int = 1) -> AsyncIterator[Assembled]:
    """A listener in front of the broker at `port`, ready, and its watch."""
    async with SecuredProxy(port, listener=listener) as proxy:
        watch = proxy.assembled.upstream
        watch._patience = PATIENCE
        watching = asyncio.ensure_future(watch.run())
        try:
            await until(lambda: not watch.problem)
            yield proxy.assembled
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)


def tls_of(ca_file: Path) -> dict[str, Any]:
    return {
        "upstream_security_protocol": "SSL",
        "accept_shared_upstream_identity": True,
        "upstream_tls": {"ca_file": str(ca_file)},
    }


def gateway_of(*ports: int) -> dict[str, Any]:
    first = free_port_range(4)
    options = {
        "bootstrap_upstreams": [f"{LOOPBACK}:{port}" for port in ports],
        "advertised_host": LOOPBACK,
        "first_broker_port": first + 1,
        "max_brokers": 3,
    }
    return {"bind_port": first, "gateway": options}


async def a_new_one_is_served(port: int) -> bool:
    with await dial(port) as client:
        return await is_served(client)


async def test_the_first_client_that_is_refused_makes_the_listener_not_ready_and_it_says_why(
    tmp_path: Path,
) -> None:
    authority = CertificateAuthority()
    with TlsBroker(authority, tmp_path) as broker:
        async with serving(tls_of(authority.write(tmp_path)), broker.port) as assembled:
            watch, port = assembled.upstream, assembled.listener.port
            with await dial(port) as open_before:
                assert await is_served(open_before)
                broker.demand_certificate(True)
                assert not await a_new_one_is_served(port)
                await until(lambda: "certificate required" in watch.problem, SOON_S)
                assert watch.answers_nobody
                # Who is connected goes on, which says nothing of those who come.
                until_s = monotonic() + 2.5
                while monotonic() < until_s:
                    assert await is_served(open_before)
                    assert "certificate required" in watch.problem
                    await asyncio.sleep(0.02)
                broker.demand_certificate(False)
                await until(lambda: not watch.problem, SOON_S)
            assert await a_new_one_is_served(port)


async def test_a_gateway_goes_on_with_the_next_broker(tmp_path: Path) -> None:
    authority = CertificateAuthority()
    with ExitStack() as stack:
        brokers = [stack.enter_context(TlsBroker(authority, tmp_path)) for _ in range(3)]
        options = tls_of(authority.write(tmp_path)) | gateway_of(*(broker.port for broker in brokers))
        async with serving(options) as assembled:
            port = assembled.listener.port
            assert await a_new_one_is_served(port)
            assert [broker.accepted > 0 for broker in brokers] == [True, False, False]
            brokers[0].demand_certificate(True)
            refused_s = monotonic()
            while not await a_new_one_is_served(port):
                assert monotonic() - refused_s < SOON_S
            assert not assembled.upstream.problem
            for _ in range(5):
                assert await a_new_one_is_served(port)


async def test_a_gateway_goes_on_with_the_next_one_where_the_first_only_closes() -> None:
    closes = False

    async def first(client: BrokerSide) -> None:
        while True:
            asked = await client.request()
            if closes:
                return
            await client.send(answer_to(asked))

    async with (
        FaultBroker(first) as one,
        FaultBroker(answers_api_versions_only) as other,
        serving(gateway_of(one.port, other.port)) as assembled,
    ):
        closes = True
        begun_s = monotonic()
        while not await a_new_one_is_served(assembled.listener.port):
            assert monotonic() - begun_s < SOON_S
        closed = [end.detail for end in assembled.listener._shared.recorder.connections]
        owed = "1 requests unanswered, the first ApiVersions (18) version 0"
        assert closed[0] == f"{LOOPBACK}:{one.port}: {owed}"


async def answers_api_versions_only(client: BrokerSide) -> None:
    while True:
        asked = await client.request()
        if asked.api_key != API_VERSIONS:
            return
        await client.send(answer_to(asked))


async def test_clients_on_whom_the_broker_closes_cost_it_a_question_a_second_and_no_readiness() -> None:
    async with (
        FaultBroker(answers_api_versions_only) as broker,
        serving({}, broker.port) as assembled,
    ):
        before, begun_s, bad = len(broker.clients), monotonic(), 0
        while monotonic() - begun_s < 2.5:
            with await dial(assembled.listener.port) as client:
                await client.send(request(METADATA, 12))
                assert await client.end() == "closed"
            bad += 1
            assert not assembled.upstream.problem
        questions = len(broker.clients) - before - bad
        assert bad > 10
        assert 1 <= questions <= 1 + (monotonic() - begun_s) + 1, "the beat of 5 s may be one of them"


@pytest.mark.parametrize("answered", [False, True])
async def test_a_login_of_the_proxys_that_is_cut_off_is_a_connection_that_is(
    answered: bool, tmp_path: Path
) -> None:
    """A login that is refused, or broken off behind an answer, is not: others may log in."""

    async def closes(client: BrokerSide) -> None:
        asked = await client.request()
        if answered:
            await client.send(answer_to(asked))

    credentials = credentials_file(tmp_path, "service: {username: sluice, password: secret}")
    listener = {
        "upstream_security_protocol": "SASL_PLAINTEXT",
        "upstream_sasl": {"mechanism": "PLAIN", "credentials_file": credentials},
        "accept_shared_upstream_identity": True,
    }
    async with FaultBroker(closes) as broker, SecuredProxy(broker.port, listener=listener) as proxy:
        assert not await a_new_one_is_served(proxy.listener.port)
        assert proxy.listener.upstreams.upstream.cut_off.is_set() is not answered


async def test_clients_of_one_brokers_port_do_not_choose_for_those_whom_any_may_serve() -> None:
    """They would lead these back to a broker that refuses, at each of their own tries."""

    async def tells(client: BrokerSide) -> None:
        while True:
            asked = await client.request()
            brokers = [{"nodeId": 0, "host": LOOPBACK, "port": other.port}]
            body: Any = {"brokers": brokers} if asked.api_key == METADATA else None
            await client.send(
                answer(asked.api_key, asked.api_version, body, correlation_id=asked.correlation_id)
            )

    async with FaultBroker(tells) as one, FaultBroker(tells) as other:
        options = gateway_of(one.port, other.port)
        async with serving(options) as assembled:
            with await dial(assembled.listener.port) as client:
                await client.send(request(METADATA, 12))
                await client.frame()
            assert await a_new_one_is_served(options["gateway"]["first_broker_port"])
            assert len(other.clients) == 1
            assert await a_new_one_is_served(assembled.listener.port)
            assert len(other.clients) == 1
