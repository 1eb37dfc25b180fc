"""An address of a broker's name that takes connections and brings no answer: its others go before it.

Told by questions and logins of the proxy's own alone. What clients saw has it ask.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from sluice.proxy.config.listener import ListenerOptions
from sluice.proxy.connection.undialled import NotConnected
from sluice.proxy.listener import client_upstreams, cluster_watch
from sluice.proxy.listener.circuit import Circuits
from sluice.proxy.listener.cluster_watch import ClusterWatch
from sluice.proxy.listener.host_addresses import HostAddresses
from sluice.proxy.listener.route import BrokerRoute
from sluice.proxy.listener.upstream import Upstream
from sluice.proxy.listener.upstream_probe import Heard, UpstreamProbe
from sluice.proxy.session.gateway.broker_map import BrokerMap
from testkit.frames.frames import API_VERSIONS, request
from testkit.peers.fault_broker import Behaviour, BrokerSide, FaultBroker, answer_to, answers, never_answers
from testkit.peers.names import NAME, Names
from testkit.processes.ports import LOOPBACK, free_port
from testkit.proxy.credentials_folder import PLAIN, Folder
from testkit.proxy.local_proxy import LocalProxy, until

pytestmark = pytest.mark.asyncio
ANSWER_S = 0.3


async def closes(client: BrokerSide) -> None:
    await client.read(5)


ENDS = pytest.mark.parametrize(
    ("behaviour", "heard"),
    [(closes, Heard.CLOSED), (never_answers, Heard.NOTHING)],
    ids=["closes", "says nothing"],
)


def an_upstream(names: Any) -> Upstream:
    return Upstream(names, ListenerOptions(name="a", bind_port=0), Circuits(), dial_timeout_s=1.0)


async def first_of(upstream: Upstream) -> int:
    """The port that a client comes to."""
    dialled = await upstream.dial(NAME, None)
    assert dialled is not None
    dialled.stream.close()
    assert dialled.there is not None
    return int(dialled.there[1])


@asynccontextmanager
async def two(
    first: Behaviour, second: Behaviour = answers, answer_s: float = ANSWER_S
) -> AsyncIterator[tuple[FaultBroker, FaultBroker, Upstream, UpstreamProbe]]:
    """Two addresses of NAME, in this order, who dials it, and who asks there."""
    async with FaultBroker(first) as one, FaultBroker(second) as other:
        upstream = an_upstream(Names(one.port, other.port))
        probe = UpstreamProbe(asyncio.get_running_loop(), upstream, answer_s)
        try:
            yield one, other, upstream, probe
        finally:
            probe.close()


@ENDS
async def test_one_that_does_not_answer_the_probe_comes_last(behaviour: Behaviour, heard: Heard) -> None:
    async with two(behaviour) as (bad, good, upstream, probe):
        assert await first_of(upstream) == bad.port
        with capture_logs() as lines:
            assert await probe.ask(NAME, afresh=True) is heard
        assert [(line["event"], line["address"]) for line in lines] == [
            ("upstream_address_answers_nothing", LOOPBACK)
        ]
        assert await first_of(upstream) == good.port
        assert await probe.ask(NAME) is Heard.ANSWER
        assert await first_of(upstream) == good.port


async def test_one_that_lets_nobody_ask_stays_the_first_as_long_as_no_client_is_closed() -> None:
    async with two(closes) as (asks_nobody, _, upstream, probe):
        assert await probe.ask(NAME) is Heard.CLOSED
        assert await first_of(upstream) == asks_nobody.port


async def test_one_that_falls_silent_on_the_connection_that_is_kept_comes_last() -> None:
    async def answers_once(client: BrokerSide) -> None:
        await client.send(answer_to(await client.request()))
        await never_answers(client)

    async with two(answers_once) as (bad, good, upstream, probe):
        assert await probe.ask(NAME) is Heard.ANSWER
        assert await first_of(upstream) == bad.port
        assert await probe.ask(NAME) is Heard.NOTHING
        assert await first_of(upstream) == good.port


async def test_a_question_that_is_given_up_says_nothing() -> None:
    """As where another broker of a gateway has answered."""
    async with two(never_answers, answer_s=5.0) as (one, _, upstream, probe):
        question = asyncio.ensure_future(probe.ask(NAME))
        await until(lambda: bool(one.clients))
        await asyncio.sleep(0.02)
        question.cancel()
        await asyncio.gather(question, return_exceptions=True)
        assert await first_of(upstream) == one.port


@ENDS
async def test_one_where_the_proxys_login_comes_to_nothing_comes_last(
    behaviour: Behaviour, heard: Heard, tmp_path: Path
) -> None:
    credentials = Folder(tmp_path).loaded("service: {username: sluice, password: secret}", PLAIN)
    options = ListenerOptions.model_validate(
        {
            "name": "a",
            "bind_port": 0,
            "security_protocol": "PLAINTEXT",
            "upstream_security_protocol": "SASL_PLAINTEXT",
            "accept_shared_upstream_identity": True,
            "upstream_sasl": {"mechanism": PLAIN, "credentials_file": "unread.yaml"},
        }
    )
    async with FaultBroker(behaviour) as bad, FaultBroker(answers) as good:
        names: Any = Names(bad.port, good.port)
        upstream = Upstream(names, options, Circuits(), dial_timeout_s=ANSWER_S, credentials=credentials)
        with pytest.raises(NotConnected):
            await upstream.connect(lambda: [NAME], None, None)
        assert len(bad.clients) == 1
        assert upstream.cut_off.is_set(), "whether that happens to all is asked"
        assert await first_of(upstream) == good.port


@ENDS
async def test_a_gateways_question_for_brokers_that_comes_to_nothing_has_it_come_last(
    behaviour: Behaviour, heard: Heard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_watch, "_ANSWER_TIMEOUT_S", ANSWER_S)
    async with FaultBroker(behaviour) as bad, FaultBroker(answers) as good:
        upstream = an_upstream(Names(bad.port, good.port))
        brokers = BrokerMap("gw", 9100, 0, 5, bind_port=9092)
        loop = asyncio.get_running_loop()
        watch = ClusterWatch(loop, "gw", upstream, BrokerRoute(NAME), brokers, refresh_s=60.0)
        watching = asyncio.ensure_future(watch.run())
        await until(lambda: bool(good.clients))
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
        assert len(bad.clients) == 1


@pytest.mark.parametrize(("patience_s", "is_asked"), [(0.05, True), (60.0, False)])
@pytest.mark.parametrize("addresses", [2, 1])
async def test_a_client_that_left_without_an_answer_has_the_broker_asked(
    patience_s: float, is_asked: bool, addresses: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only where there is another address to go to, and not for one that leaves at once."""
    monkeypatch.setattr(client_upstreams, "_UNANSWERED_S", patience_s)
    async with FaultBroker(never_answers) as bad, LocalProxy(bad.port, upstream_host="localhost") as proxy:
        found = [(socket.AF_INET, (LOOPBACK, port)) for port in (bad.port, free_port())[:addresses]]

        async def of(_hosts: HostAddresses, _host: str, _port: int) -> Any:
            return found

        monkeypatch.setattr(HostAddresses, "of", of)
        with await proxy.client() as client:
            await client.send(request(API_VERSIONS, 3))
            await until(lambda: bool(bad.clients))
            await asyncio.sleep(0.1)
        await proxy.end()
        await asyncio.sleep(0)
        upstream = proxy.listener.upstreams.upstream
        assert upstream.cut_off.is_set() == (is_asked and addresses > 1)
