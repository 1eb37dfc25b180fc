"""Readiness hangs on answers: a broker that takes connections and says nothing for a while is not ready."""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from sluice.proxy.config.listener import ListenerOptions
from sluice.proxy.connection.undialled import NotConnected
from sluice.proxy.listener.circuit import Circuits, Rotation
from sluice.proxy.listener.route import GatewayRoute
from sluice.proxy.listener.tls.context import ClientTls
from sluice.proxy.listener.upstream import Upstream
from sluice.proxy.listener.upstream_watch import Answered, Patience, UpstreamWatch
from sluice.proxy.session.causes import DisconnectCause
from sluice.proxy.session.gateway.broker_map import BrokerMap
from testkit.frames.wire import WITHIN_S
from testkit.peers.certificates import CertificateAuthority
from testkit.peers.fault_broker import BrokerSide, FaultBroker, Request, answer_to
from testkit.processes.ports import LOOPBACK, free_port
from testkit.proxy.local_proxy import until

pytestmark = pytest.mark.asyncio
Lines = list[Any]
SHORT = Patience(interval_s=0.02, retry_s=0.02, silence_s=1.2)  # a question waits for 0.4 s


@pytest.fixture
def lines() -> Iterator[Lines]:
    with capture_logs() as caught:
        yield caught


class Freezes:
    """Answers while it is not frozen; takes connections always, and what was asked is answered later."""

    def __init__(self) -> None:
        self.thawed = asyncio.Event()
        self.thawed.set()
        self.asked: list[tuple[int, int]] = []

    async def __call__(self, client: BrokerSide) -> None:
        while True:
            question = await client.request()
            self.asked.append((question.api_key, question.api_version))
            await self.thawed.wait()
            await client.send(answer_to(question))


@dataclass(eq=False)
class Session:
    bytes_to_client: int = 0


class Busy:
    """Has been answered again whenever it is looked at."""

    _answers = count(1)

    @property
    def bytes_to_client(self) -> int:
        return next(self._answers)


@dataclass(slots=True)
class Rig:
    watch: UpstreamWatch
    upstream: Upstream
    circuits: Circuits
    brokers: BrokerMap
    sessions: list[Answered]


@asynccontextmanager
async def watching(*ports: int, known: int | None = None, tls: ClientTls | None = None) -> AsyncIterator[Rig]:
    """`ports`: of the bootstrap upstreams; `known`: of a broker that the cluster has told of."""
    loop, circuits = asyncio.get_running_loop(), Circuits()
    brokers = BrokerMap("gw", 9100, 0, 5, bind_port=9092)
    if known is not None:
        brokers.learn(1, LOOPBACK, known)
    options = ListenerOptions(name="gw", bind_port=0)
    upstream = Upstream(loop, options, circuits, dial_timeout_s=0.4, dial_total_s=1.2, tls=tls)
    route = GatewayRoute(brokers, Rotation([(LOOPBACK, port) for port in ports], circuits))
    sessions: list[Answered] = []
    watch = UpstreamWatch(loop, "gw", upstream, route, circuits, lambda: sessions, SHORT)
    task = loop.create_task(watch.run())
    try:
        yield Rig(watch, upstream, circuits, brokers, sessions)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def becomes(watch: UpstreamWatch, problem: str) -> None:
    await until(lambda: (problem in watch.problem) if problem else not watch.problem)


def silent(rig: Rig) -> bool:
    return rig.watch.is_silent


def events(lines: Lines) -> list[str]:
    return [line["event"] for line in lines]


async def test_a_frozen_broker_is_not_ready_and_is_again_when_it_answers(lines: Lines) -> None:
    freezes = Freezes()
    async with FaultBroker(freezes) as broker, watching(broker.port) as rig:
        await becomes(rig.watch, "")
        freezes.thawed.clear()
        await becomes(rig.watch, "has not answered for")
        assert silent(rig)
        freezes.thawed.set()
        await becomes(rig.watch, "")
        assert not silent(rig)
        circuit = rig.circuits.of((LOOPBACK, broker.port))
    assert set(freezes.asked) == {(18, 0)}
    assert events(lines) == ["upstream_reached", "upstream_does_not_answer", "upstream_answers_again"]
    assert lines[1]["silent_for_s"] >= SHORT.silence_s
    assert (circuit.openings, circuit.failures, circuit.refused) == (0, 0, 0), "silence opens no circuit"


async def test_a_pause_that_ends_in_time_is_no_silence(lines: Lines) -> None:
    freezes = Freezes()
    async with FaultBroker(freezes) as broker, watching(broker.port) as rig:
        await becomes(rig.watch, "")
        for _ in range(4):
            freezes.thawed.clear()
            asked = len(freezes.asked)
            await until(lambda asked=asked: len(freezes.asked) > asked)  # type: ignore[misc]
            freezes.thawed.set()
            await until(lambda asked=asked: len(freezes.asked) > asked + 2)  # type: ignore[misc]
    assert events(lines) == ["upstream_reached"]


async def test_a_broker_that_never_answered_is_not_ready_at_the_start() -> None:
    freezes = Freezes()
    freezes.thawed.clear()
    async with FaultBroker(freezes) as broker, watching(broker.port) as rig:
        await until(lambda: len(freezes.asked) > 1)
        assert "not been reached yet" in rig.watch.problem
        freezes.thawed.set()
        await becomes(rig.watch, "")


async def test_clients_that_are_answered_spare_the_question() -> None:
    freezes = Freezes()
    async with FaultBroker(freezes) as broker, watching(broker.port) as rig:
        await becomes(rig.watch, "")
        busy, idle = Busy(), Session(5)
        rig.sessions += [busy, idle]
        freezes.thawed.clear()
        await asyncio.sleep(0.1)  # a question that was under way
        asked = len(freezes.asked)
        await asyncio.sleep(SHORT.silence_s * 2)
        assert len(freezes.asked) == asked
        assert not rig.watch.problem
        rig.sessions.remove(busy)
        await becomes(rig.watch, "has not answered for")
        idle.bytes_to_client += 1
        await becomes(rig.watch, "")


async def test_a_gateway_is_ready_while_any_broker_answers() -> None:
    frozen, freezes = Freezes(), Freezes()
    frozen.thawed.clear()
    async with (
        FaultBroker(frozen) as first,
        FaultBroker(freezes) as other,
        watching(first.port, free_port(), other.port) as rig,
    ):
        await becomes(rig.watch, "")
        asked = len(frozen.asked)
        await asyncio.sleep(SHORT.silence_s * 2)
        assert not rig.watch.problem
        assert len(frozen.asked) == asked, "the one that answers is asked first from now on"
        freezes.thawed.clear()
        await becomes(rig.watch, "has not answered for")
        frozen.thawed.set()
        await becomes(rig.watch, "")


async def test_a_known_broker_that_answers_makes_a_gateway_ready_too() -> None:
    frozen, freezes = Freezes(), Freezes()
    frozen.thawed.clear()
    async with (
        FaultBroker(frozen) as first,
        FaultBroker(freezes) as other,
        watching(first.port, known=other.port) as rig,
    ):
        await becomes(rig.watch, "")
        await asyncio.sleep(SHORT.silence_s * 2)
        assert not rig.watch.problem


async def test_where_nobody_may_ask_a_connection_will_do(lines: Lines) -> None:
    async def closes(client: BrokerSide) -> None:
        await client.request()

    async with FaultBroker(closes) as broker, watching(broker.port) as rig:
        await becomes(rig.watch, "")
        await until(lambda: len(broker.clients) > 4)
        assert not rig.watch.problem
    assert events(lines) == ["upstream_takes_no_probe", "upstream_reached"]


async def test_a_broker_is_asked_again_on_the_connection_that_it_was_asked_on() -> None:
    """To dial for each question is what costs an idle proxy most."""
    answers = Freezes()
    ended = asyncio.Event()

    async def until_it_goes(client: BrokerSide) -> None:
        try:
            await answers(client)
        finally:
            ended.set()

    async with FaultBroker(until_it_goes) as broker:
        async with watching(broker.port):
            await until(lambda: len(answers.asked) > 5)
            assert len(broker.clients) == 1
            assert not ended.is_set()
        await asyncio.wait_for(ended.wait(), WITHIN_S)


async def test_where_it_may_be_asked_once_only_each_question_has_a_connection(lines: Lines) -> None:
    """As on a SASL listener: a second ApiVersions before the login is an error there."""
    asked = 0

    async def answers_once(client: BrokerSide) -> None:
        nonlocal asked
        asked += 1
        await client.send(answer_to(await client.request()))
        await client.request()

    async with FaultBroker(answers_once) as broker, watching(broker.port) as rig:
        await becomes(rig.watch, "")
        await until(lambda: asked > 6)
        assert not rig.watch.problem
        assert rig.circuits.of((LOOPBACK, broker.port)).failures == 0
    assert events(lines) == ["upstream_reached"]


async def test_half_an_answer_is_no_answer_to_the_next_question() -> None:
    async def answers_in_part(client: BrokerSide) -> None:
        whole = answer_to(await client.request())
        await client.send(whole[:-3])
        await asyncio.Event().wait()

    async with FaultBroker(answers_in_part) as broker, watching(broker.port) as rig:
        await until(lambda: silent(rig))


async def test_a_broker_that_is_away_is_found_again_soon() -> None:
    port = free_port()
    async with watching(port) as rig:
        await until(lambda: rig.circuits.of((LOOPBACK, port)).failures > 1)
        assert "not been reached yet" in rig.watch.problem
        async with FaultBroker(Freezes(), port=port):
            await becomes(rig.watch, "")
        await becomes(rig.watch, "cannot be reached")
        assert not silent(rig)


async def test_silence_in_the_tls_handshake_opens_no_circuit(tmp_path: Path, lines: Lines) -> None:
    async def says_nothing(client: BrokerSide) -> None:
        await asyncio.Event().wait()

    tls = ClientTls(
        ca_file=CertificateAuthority().write(tmp_path),
        certificate_file=None,
        key_file=None,
        server_name=None,
        verify_hostname=True,
    )
    tls.load(time.time())
    async with FaultBroker(says_nothing) as broker, watching(broker.port, tls=tls) as rig:
        address = (LOOPBACK, broker.port)
        with pytest.raises(NotConnected, match="no answer to the TLS handshake") as refused:
            await rig.upstream.connect(lambda: [address], None, None)
        assert refused.value.cause is DisconnectCause.UPSTREAM_UNREACHABLE
        circuit = rig.circuits.of(address)
        assert (circuit.failures, circuit.is_closed) == (0, True)
        assert "upstream_unreachable" not in events(lines)


def answers_with_tls(context: ssl.SSLContext, listening: socket.socket) -> None:
    """One connection after the other; who is refused hears of it."""
    with suppress(OSError):
        while True:
            plain, _ = listening.accept()
            client = context.wrap_socket(plain, server_side=True, do_handshake_on_connect=False)
            with client, suppress(OSError):
                try:
                    client.do_handshake()
                except ssl.SSLError:
                    while plain.recv(4096):
                        pass
                while frame := client.recv(4096):  # one request
                    key, version, correlation_id = struct.unpack_from(">hhi", frame, 4)
                    client.sendall(answer_to(Request(frame, key, version, correlation_id)))


async def test_a_broker_that_ends_tls_for_want_of_a_certificate_is_not_ready_and_says_why(
    tmp_path: Path, lines: Lines
) -> None:
    """In TLS 1.3 the alert comes behind the handshake; each client would hear of a reset."""
    authority = CertificateAuthority()
    files = authority.server().write(tmp_path, "broker")
    ca_file = authority.write(tmp_path)
    demands = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    demands.load_cert_chain(files.certificate, files.key)
    demands.load_verify_locations(ca_file)
    demands.verify_mode = ssl.CERT_REQUIRED
    tls = ClientTls(ca_file=ca_file)
    tls.load(time.time())
    with socket.create_server((LOOPBACK, 0)) as listening:
        threading.Thread(target=answers_with_tls, args=(demands, listening), daemon=True).start()
        async with watching(listening.getsockname()[1], tls=tls) as rig:
            await becomes(
                rig.watch, "the broker refused the TLS connection with the alert: certificate required"
            )
            assert "upstream_reached" not in events(lines)
            demands.verify_mode = ssl.CERT_NONE
            await becomes(rig.watch, "")
    assert events(lines) == ["upstream_refuses_tls", "upstream_reached"]


async def test_a_broker_that_is_back_is_found_out_though_none_of_its_clients_returns() -> None:
    """Its circuit stayed open, and an alert paged, for as long as another broker answered."""
    freezes = Freezes()
    at = free_port()
    async with FaultBroker(freezes) as broker, watching(broker.port, known=at) as rig:
        circuit = rig.circuits.of((LOOPBACK, at))
        assert await rig.upstream.dial((LOOPBACK, at), None) is None
        assert not circuit.is_closed
        await until(lambda: circuit.failures > 2)
        assert rig.watch.problem == ""
        async with FaultBroker(Freezes(), port=at):
            await until(lambda: circuit.is_closed)
    assert circuit.openings == 1


async def test_of_many_brokers_that_are_all_away_none_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """More than are asked at once: the others were not dialled, forgotten, and so taken for there."""
    monkeypatch.setattr("sluice.proxy.listener.circuit.FORGOTTEN_MS", 30.0)
    monkeypatch.setattr("sluice.proxy.listener.upstream_watch._MAX_ASKED", 1)
    ports = [free_port() for _ in range(4)]
    async with watching(*ports) as rig:
        for port in ports:
            assert await rig.upstream.dial((LOOPBACK, port), None) is None
        await becomes(rig.watch, "not been reached")
        circuits = dict(rig.circuits.items())
        before = [circuit.failures for circuit in circuits.values()]
        await until(
            lambda: all(now.failures > was + 1 for now, was in zip(circuits.values(), before, strict=True))
        )
        assert "not been reached" in rig.watch.problem
        assert dict(rig.circuits.items()) == circuits


async def test_a_broker_that_refused_is_dialled_though_older_connections_are_answered() -> None:
    """It was not, and so not ready, until a client came."""
    at = free_port()
    async with watching(at) as rig:
        rig.sessions.append(Busy())
        assert await rig.upstream.dial((LOOPBACK, at), None) is None
        await becomes(rig.watch, "reached")
        async with FaultBroker(Freezes(), port=at):
            circuit = rig.circuits.of((LOOPBACK, at))
            await until(lambda: circuit.is_closed)
            await becomes(rig.watch, "")


@pytest.mark.parametrize("known", [False, True], ids=["moved", "left"])
async def test_a_broker_that_is_no_more_is_not_told_of_for_ever(
    known: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sluice.proxy.listener.circuit.FORGOTTEN_MS", 50.0)
    gone = (LOOPBACK, free_port())
    told = gone[1] if known else None
    async with FaultBroker(Freezes()) as broker, watching(broker.port, known=told) as rig:
        assert await rig.upstream.dial(gone, None) is None
        assert gone in dict(rig.circuits.items())
        for now_ms in (0.0, 24 * 3_600_000.0):
            rig.brokers.listed([0], now_ms)
        await until(lambda: gone not in dict(rig.circuits.items()))
