"""The admin port: /metrics, /top, /status, /livez, /readyz, /startupz. Nothing can be changed through it.

    /metrics/kafka   404 unless metrics.kafka_page is set
    /top, /replication  who is throttled, which followers catch up, as JSON (top/snapshot.py,
                replication/rows.py); ?rows=20, of /top also &why=true
    /connections  live ones by throughput (top/throughput.py); ?rows=20&user=al*&sort=in
    /status     the status page, and its API under /api/v1; all these for who may see them (status/access.py)
    /livez      200 as long as the event loop turns
    /startupz   503 until quotas are loaded and listeners are up
    /readyz     503, with the reasons, before that, while draining, and while an upstream cannot be reached,
                says nothing, or ends TLS

Runs in the proxy's own event loop, so that an answer says that the loop turns; without signal handlers. The
admin socket, through which things can be changed, and the probe port (probe_port.py), which has the last
three alone, start and stop with it.
"""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Final, cast

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from sluice.proxy.admin.handlers import AdminDesk
from sluice.proxy.admin.http import AdminHttp, Waiting
from sluice.proxy.admin.probe_port import ProbePort, bound
from sluice.proxy.admin.questions import BadRequest, asked_flag, asked_rows
from sluice.proxy.admin.socket import AdminSocket, refuse_path
from sluice.proxy.admin.status.routes import Handler, StatusRoutes
from sluice.proxy.admin.status.service import StatusDesk
from sluice.proxy.admin.status.token import token_file
from sluice.proxy.admin.top.order import MAX_ROWS
from sluice.proxy.admin.top.throughput import MAX_ROWS as MAX_CONNECTION_ROWS
from sluice.proxy.config.admin import AdminOptions
from sluice.proxy.listener.upstream_watch import UpstreamWatch
from sluice.proxy.metrics.collector import SluiceCollector
from sluice.proxy.metrics.exposition import Page, exposition
from sluice.proxy.metrics.kafka_page import KafkaPage
from sluice.proxy.runtime.listening import CannotListen, listening
from sluice.proxy.runtime.supervision import keep_running

_MAX_CONNECTIONS: Final = 64
_BACKLOG: Final = 64


class Health:
    """What the server says of itself; it sets these attributes as they come true."""

    __slots__ = ("draining", "started", "upstreams")

    def __init__(self) -> None:
        self.started = False
        """quotas are loaded and all listeners accept connections"""
        self.draining = False
        """no more connections are accepted"""
        self.upstreams: list[UpstreamWatch] = []
        """of the listeners"""

    def not_ready(self) -> list[str]:
        """Why no client should be sent here; empty: ready."""
        reasons = []
        if not self.started:
            reasons.append("starting: quotas and listeners are not up yet")
        if self.draining:
            reasons.append("draining: no more connections are accepted")
        return reasons + [problem for upstream in self.upstreams if (problem := upstream.problem)]


class AdminServer:
    """The HTTP server of one process."""

    def __init__(
        self,
        options: AdminOptions,
        health: Health,
        collector: SluiceCollector,
        kafka_page: KafkaPage | None = None,
        desk: AdminDesk | None = None,
    ) -> None:
        """`kafka_page`, `desk` (for /top, the status page and the socket): if there is to be one.

        Raises ConfigError if the status page's token, or the path of the socket, cannot be used.
        """
        self._desk = desk
        self._status: StatusDesk | None = None
        if desk is not None and options.status.enabled:
            self._status = StatusDesk(options.status, desk.sources, health.not_ready)
        self._status_routes = StatusRoutes(options.status, self._status, token_file(options.status))
        self._following: asyncio.Task[None] | None = None
        self._socket = None
        if desk is not None and options.socket is not None:
            refuse_path(options.socket)
            self._socket = AdminSocket(options.socket, desk.answer)
        self._kafka_page = kafka_page
        self._options = options
        self._health = health
        self._collector = collector
        self._server: _Server | None = None
        self._serving: asyncio.Task[None] | None = None
        self._listening: socket.socket | None = None
        self._is_up = asyncio.Event()
        self.port = options.bind_port
        """the bound one once started (the option may be 0)"""
        host, port = options.probe_address
        answers = {"/livez": list[str], "/readyz": health.not_ready, "/startupz": self._not_started}
        self.probes = ProbePort(host, port, answers)
        """the port of the orchestrator's probes"""

    async def start(self) -> None:
        """Bind and serve. Raises CannotListen if an address, or the socket's path, cannot be bound."""
        host, port = self._options.bind_host, self._options.bind_port
        probe_host, probe_port = self._options.probe_address
        if self._socket is not None:
            with listening(option="admin.socket", path=str(self._socket.path)):
                await self._socket.start()
        with listening(option="admin.bind_port", host=host, port=port):
            made = bound(host, port, _BACKLOG)
        self.port = made.getsockname()[1]
        try:
            with listening(option="admin.probes.bind_port", host=probe_host, port=probe_port):
                self.probes.start()
        except CannotListen:
            made.close()
            raise
        self._listening = made
        self._serving = keep_running(self._serve, "admin")
        await self._is_up.wait()
        if self._status is not None:
            self._following = keep_running(self._status.run, "status")

    async def stop(self) -> None:
        """Answer what has been asked, close, and return when it is done; fine if not started."""
        self.probes.stop()
        if self._following is not None:
            self._following.cancel()
        if self._socket is not None:
            await self._socket.stop()
        if self._serving is None:
            return
        if self._server is not None:
            self._server.stop()
        else:  # it has failed, and waits until it is begun again
            self._serving.cancel()
        with suppress(asyncio.CancelledError):
            await self._serving
        self._serving = None

    async def _serve(self) -> None:
        """Until `stop`; begun again after a fault, on the same port. Raises OSError if that is taken."""
        listening, self._listening = self._listening, None
        if listening is None:
            listening = bound(self._options.bind_host, self.port, _BACKLOG)
        server = self._server = _Server(self._app(), self._is_up)
        try:
            await server.serve(sockets=[listening])
        finally:
            self._server = None
            for one in getattr(server, "servers", ()):  # after a fault they listen on
                one.close()
            listening.close()

    def _app(self) -> Starlette:
        routes = [
            Route("/metrics", partial(_shown, self._collector)),
            Route("/livez", self._livez),
            Route("/readyz", self._readyz),
            Route("/startupz", self._startupz),
        ]
        if self._kafka_page is not None:
            routes.append(Route("/metrics/kafka", partial(_shown, self._kafka_page)))
        if self._desk is not None:
            guarded = self._status_routes.guarded
            for path, answer in (
                ("/top", self._top),
                ("/replication", self._replication),
                ("/connections", self._connections),
            ):
                routes.append(guarded(path, partial(_or_refused, answer)))
        return Starlette(routes=routes + self._status_routes.routes())

    async def _top(self, request: Request) -> Response:
        assert self._desk is not None
        asked = request.query_params
        rows, why = asked_rows(asked, MAX_ROWS, MAX_ROWS), asked_flag(asked, "why")
        found = await self._desk.top.snapshot(rows, why=why)
        return Response(await asyncio.to_thread(json.dumps, found), media_type="application/json")

    async def _connections(self, request: Request) -> Response:
        assert self._desk is not None
        asked = request.query_params
        rows = asked_rows(asked, MAX_ROWS, MAX_CONNECTION_ROWS)
        found = await self._desk.connections(rows, asked.get("user", ""), asked.get("sort", ""))
        return Response(await asyncio.to_thread(json.dumps, found), media_type="application/json")

    async def _replication(self, request: Request) -> Response:
        assert self._desk is not None
        found = await self._desk.replication.snapshot(asked_rows(request.query_params, MAX_ROWS, MAX_ROWS))
        return Response(json.dumps(found), media_type="application/json")

    async def _livez(self, _: Request) -> Response:
        return _answer([])

    async def _readyz(self, _: Request) -> Response:
        return _answer(self._health.not_ready())

    async def _startupz(self, _: Request) -> Response:
        return _answer(self._not_started())

    def _not_started(self) -> list[str]:
        return [] if self._health.started else self._health.not_ready()


class _Server(uvicorn.Server):
    """uvicorn in a loop that is not its own: signals are the proxy's business, its start can be awaited."""

    def __init__(self, app: Starlette, is_up: asyncio.Event) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                http=cast("type[asyncio.Protocol]", partial(AdminHttp, Waiting())),
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                date_header=False,  # kept by a timer; AdminHttp writes it
                proxy_headers=False,
                limit_concurrency=_MAX_CONNECTIONS,
                timeout_graceful_shutdown=1,
            )
        )
        self._is_up = is_up
        self._stopping = asyncio.Event()

    def stop(self) -> None:
        """Answer what was asked, and end."""
        self.should_exit = True
        self._stopping.set()

    async def main_loop(self) -> None:
        """Waits for `stop`. uvicorn's own looks ten times a second, a third of an idle proxy's work."""
        await self._stopping.wait()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._is_up.set()


async def _or_refused(answer: Handler, request: Request) -> Response:
    try:
        return await answer(request)
    except BadRequest as error:
        return JSONResponse({"status": 400, "detail": str(error)}, status_code=400)


async def _shown(page: Page, request: Request) -> Response:
    body, content_type = await exposition(page, request.headers.get("accept", ""))
    return Response(body, headers={"content-type": content_type})


def _answer(reasons: list[str]) -> Response:
    if reasons:
        return JSONResponse({"status": "unavailable", "reasons": reasons}, status_code=503)
    return JSONResponse({"status": "ok"})
