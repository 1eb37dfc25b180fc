"""The admin port over real HTTP on loopback."""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, TypeAlias

import pytest
import uvloop

from sluice.proxy.admin import http
from sluice.proxy.admin.handlers import AdminDesk
from sluice.proxy.admin.server import AdminServer, Health, _Server
from sluice.proxy.config.admin import AdminOptions
from sluice.proxy.metrics.collector import SluiceCollector
from sluice.proxy.metrics.kafka_page import KafkaPage, KafkaWindows
from sluice.proxy.metrics.usage_meter import UsageMeter
from sluice.proxy.runtime.gauges import Gauges
from sluice.proxy.runtime.supervision import restarts
from sluice.proxy.runtime.watched_file import ReloadStatus
from sluice.proxy.session.producer_ids.shared import ProducerIds
from sluice.quotas.limits.limits import QuotaLimits
from sluice.quotas.manager import QuotaManager
from sluice.usage.records import Recorder
from testkit.proxy.local_proxy import until


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


async def get(
    port: int, path: str, *, method: str = "GET", accept: str = "*/*", host: str = "127.0.0.1"
) -> Answer:
    reader, writer = await asyncio.open_connection(host, port)
    request = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nAccept: {accept}\r\nConnection: close\r\n\r\n"
    writer.write(request.encode())
    head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    await writer.wait_closed()
    first, *lines = head.decode().split("\r\n")
    headers = dict(line.lower().split(": ", 1) for line in lines)
    return Answer(int(first.split()[1]), headers, body)


Use: TypeAlias = Callable[[AdminServer, Health], Awaitable[None]]


def with_server(use: Use, host: str = "127.0.0.1", *, kafka_page: bool = False) -> None:
    """Run `use` against a started server, in uvloop as in the proxy."""

    async def run() -> None:
        quotas = QuotaManager(QuotaLimits())
        meter = UsageMeter(Recorder(), quotas)
        health = Health()
        collector = SluiceCollector(meter, quotas, Gauges(), {"quotas": [ReloadStatus()]})
        page = KafkaPage(meter, Gauges(), KafkaWindows()) if kafka_page else None
        desk = AdminDesk(quotas, ProducerIds(), list, None)
        server = AdminServer(AdminOptions(bind_host=host, bind_port=0), health, collector, page, desk)
        await server.start()
        try:
            await use(server, health)
        finally:
            await server.stop()

    uvloop.run(run())


def test_metrics_are_served_in_the_format_that_was_asked_for() -> None:
    async def use(server: AdminServer, _: Health) -> None:
        text = await get(server.port, "/metrics")
        assert text.status == 200
        assert text.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
        assert b"\nsluice_connections 0.0\n" in text.body
        openmetrics = await get(server.port, "/metrics", accept="application/openmetrics-text; version=1.0.0")
        assert openmetrics.headers["content-type"].startswith("application/openmetrics-text; version=1.0.0")
        assert openmetrics.body.endswith(b"# EOF\n")

    with_server(use)


def test_ready_and_started_follow_the_servers_life() -> None:
    async def statuses(port: int) -> list[int]:
        return [(await get(port, path)).status for path in ("/livez", "/startupz", "/readyz")]

    async def use(server: AdminServer, health: Health) -> None:
        assert await statuses(server.port) == [200, 503, 503]
        health.started = True
        assert await statuses(server.port) == [200, 200, 200]
        health.draining = True
        assert await statuses(server.port) == [200, 200, 503]

    with_server(use)


def test_not_ready_tells_why() -> None:
    async def use(server: AdminServer, health: Health) -> None:
        health.draining = True
        answer = await get(server.port, "/readyz")
        assert answer.json == {
            "status": "unavailable",
            "reasons": [
                "starting: quotas and listeners are not up yet",
                "draining: no more connections are accepted",
            ],
        }
        health.started, health.draining = True, False
        assert (await get(server.port, "/readyz")).json == {"status": "ok"}

    with_server(use)


def test_nothing_else_is_served_and_nothing_can_be_changed() -> None:
    async def use(server: AdminServer, _: Health) -> None:
        assert (await get(server.port, "/index.html")).status == 404
        assert (await get(server.port, "/docs")).status == 404
        assert (await get(server.port, "/readyz", method="POST")).status == 405
        assert "server" not in (await get(server.port, "/livez")).headers

    with_server(use)


def test_many_scrapes_at_once_are_all_answered() -> None:
    async def use(server: AdminServer, _: Health) -> None:
        answers = await asyncio.gather(*(get(server.port, "/metrics") for _ in range(10)))
        assert {answer.status for answer in answers} == {200}

    with_server(use)


def test_garbage_ends_only_its_own_connection() -> None:
    async def use(server: AdminServer, _: Health) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(b"\x00\x00\x00\x10garbage\r\n\r\n")
        assert b"400" in (await reader.read()).split(b"\r\n")[0]
        writer.close()
        await writer.wait_closed()
        assert (await get(server.port, "/livez")).status == 200

    with_server(use)


def test_signal_handlers_are_left_alone() -> None:
    before = signal.getsignal(signal.SIGTERM)

    async def use(server: AdminServer, _: Health) -> None:
        assert (await get(server.port, "/livez")).status == 200
        assert signal.getsignal(signal.SIGTERM) is before

    with_server(use)


def test_a_taken_port_is_an_error_of_start_not_the_programs_end() -> None:
    async def use(server: AdminServer, health: Health) -> None:
        other = AdminServer(
            AdminOptions(bind_host="127.0.0.1", bind_port=server.port), health, server._collector
        )
        with pytest.raises(OSError, match="in use"):
            await other.start()
        await other.stop()

    with_server(use)


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="no IPv6 here")
def test_the_ipv6_wildcard_answers_ipv4_too() -> None:
    async def use(server: AdminServer, _: Health) -> None:
        assert (await get(server.port, "/livez")).status == 200
        assert (await get(server.port, "/livez", host="::1")).status == 200

    with_server(use, host="::")


def test_ordinary_life_leaves_no_warnings(caplog: pytest.LogCaptureFixture) -> None:
    async def use(server: AdminServer, _: Health) -> None:
        await get(server.port, "/livez")

    with_server(use)
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


def test_the_page_under_kafkas_names_is_there_only_if_it_is_wanted() -> None:
    async def without(server: AdminServer, _: Health) -> None:
        assert (await get(server.port, "/metrics/kafka")).status == 404

    async def with_it(server: AdminServer, _: Health) -> None:
        answer = await get(server.port, "/metrics/kafka")
        assert answer.status == 200
        assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
        assert b"\nkafka_server_produce_queue_size 0.0\n" in answer.body

    with_server(without)
    with_server(with_it, kafka_page=True)


def test_the_snapshot_of_top_is_served() -> None:
    async def use(server: AdminServer, _: Health) -> None:
        for path in (
            "/top",
            "/top?rows=3&why=true",
            "/top?rows=0&why=false",
            "/top?rows=200",
            "/top?rows=&why=",
        ):
            answer = await get(server.port, path)
            assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
            assert (answer.json["buckets"], answer.json["rows"]) == (0, [])
        assert (await get(server.port, "/top", method="POST")).status == 405

    with_server(use)


@pytest.mark.parametrize("path", ["/top", "/connections", "/replication"])
def test_a_wrong_parameter_is_refused_by_its_name(path: str) -> None:
    async def use(server: AdminServer, _: Health) -> None:
        for rows in ("abc", "-1", "1.5", "9" * 20, "9" * 5_000, "%D9%A3", "1001", "+5", "1_0"):
            answer = await get(server.port, f"{path}?rows={rows}")
            most = 1000 if path == "/connections" else 200
            told = f"rows must be a whole number from 0 to {most}"
            assert (answer.status, answer.json) == (400, {"status": 400, "detail": told})
        if path == "/top":
            answer = await get(server.port, "/top?why=maybe")
            assert (answer.status, answer.json["detail"]) == (400, "why must be true or false")
        if path == "/connections":
            answer = await get(server.port, "/connections?sort=age")
            assert (answer.status, answer.json["detail"][:19]) == (400, "sort must be one of")

    with_server(use)


def test_connections_that_say_nothing_keep_nobody_from_the_metrics_or_the_probes() -> None:
    async def use(server: AdminServer, _: Health) -> None:
        silent = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(200)]
        await asyncio.sleep(0.1)
        assert (await get(server.port, "/livez")).status == 200
        assert (await get(server.port, "/metrics")).status == 200
        assert (await get(server.probes.port, "/livez")).status == 200
        for each in silent:
            each.close()

    with_server(use)


def test_half_a_request_is_not_waited_for_and_a_pause_between_two_is_fine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http, "REQUEST_S", 0.2)

    async def use(server: AdminServer, _: Health) -> None:
        for said in (
            b"",
            b"GET /livez HTTP/1.1\r\nX-Half: ",
            b"POST /livez HTTP/1.1\r\nContent-Length: 9\r\n\r\nx",
        ):
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            writer.write(said)
            await asyncio.wait_for(reader.read(), 5.0)
            writer.close()
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        for _attempt in range(2):
            writer.write(b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
            assert (await reader.readuntil(b"}")).startswith(b"HTTP/1.1 200")
            await asyncio.sleep(0.1)
        writer.close()

    with_server(use)


def test_a_server_that_fails_is_begun_again_on_its_port(monkeypatch: pytest.MonkeyPatch) -> None:
    """One exception in uvicorn's own loop ended /metrics until the next restart."""
    main_loop = _Server.main_loop
    fails = [True]

    async def failing(server: _Server) -> None:
        if fails:
            fails.clear()
            raise RuntimeError("boom")
        await main_loop(server)

    monkeypatch.setattr(_Server, "main_loop", failing)
    before = restarts["admin"]

    async def use(server: AdminServer, _: Health) -> None:
        port = server.port
        await until(lambda: restarts["admin"] == before + 1)
        await until(lambda: server._server is not None and server._server.started)
        assert (server.port, (await get(port, "/metrics")).status) == (port, 200)

    with_server(use)


def test_one_that_has_failed_and_not_begun_again_yet_stops_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def failing(*_: object) -> None:
        raise RuntimeError("boom")

    monkeypatch.setattr(_Server, "main_loop", failing)
    before = restarts["admin"]

    async def use(server: AdminServer, _: Health) -> None:
        await until(lambda: restarts["admin"] > before)
        await asyncio.wait_for(server.stop(), 5.0)

    with_server(use)


def test_an_idle_server_wakes_nobody_and_its_answers_have_the_date_of_today() -> None:
    async def use(server: AdminServer, _: Health) -> None:
        steps = 0
        sleep = asyncio.sleep
        loop = asyncio.get_running_loop()

        async def counted(delay_s: float, result: Any = None) -> Any:
            nonlocal steps
            # other tests keep loops of their own in threads
            steps += 0.0 < delay_s < 1.0 and asyncio.get_running_loop() is loop
            return await sleep(delay_s, result)

        asyncio.sleep = counted  # type: ignore[assignment]
        try:
            await sleep(0.5)
        finally:
            asyncio.sleep = sleep
        # a tick would be many; one may be the point of the curves, whose place comes every few seconds
        assert steps <= 1
        told = parsedate_to_datetime((await get(server.port, "/livez")).headers["date"])
        assert abs((datetime.now(UTC) - told).total_seconds()) < 60.0

    with_server(use)
