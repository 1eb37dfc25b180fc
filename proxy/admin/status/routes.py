"""The routes of the status page and its API on the admin port; GET and HEAD, for nothing is changed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from html import escape
from time import monotonic
from typing import Final, TypeAlias, TypeVar

from pydantic import BaseModel, ValidationError
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from sluice.proxy.admin.status.access import CHALLENGE, Access
from sluice.proxy.admin.status.model import ConnectionsQuery, Nothing, PageQuery, Problem, Query
from sluice.proxy.admin.status.openapi import DOCUMENT, ENDPOINTS, Endpoint, document_text
from sluice.proxy.admin.status.page import CONTENT_SECURITY_POLICY, PageData, render
from sluice.proxy.admin.status.service import Busy, StatusDesk
from sluice.proxy.admin.status.token import TokenFile
from sluice.proxy.config.admin import StatusOptions
from sluice.proxy.config.messages import mistake
from sluice.proxy.runtime.file_work import FileHangs, FileWork
from sluice.proxy.runtime.log import LineBudget, get_logger

PAGE: Final = "/status"
_TOKEN_LOOK_S: Final = 5.0
_PIECES_PER_STEP: Final = 10
_EVENTS_SHOWN: Final = 50
_KEY_TOLD: Final = 60
"""characters of a key that nobody knows"""
_HEADERS: Final = {
    "cache-control": "no-store",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}
_DATA_POLICY: Final = "default-src 'none'; frame-ancestors 'none'"

_Asked = TypeVar("_Asked", bound=BaseModel)
_log = get_logger()
Handler: TypeAlias = Callable[[Request], Awaitable[Response]]


class StatusRoutes:
    """The routes of one process, behind the rule of who may see them."""

    def __init__(
        self, options: StatusOptions, desk: StatusDesk | None, token: TokenFile | None = None
    ) -> None:
        """`desk`: None if there is to be no page; the rule then holds for what others bring to it."""
        self._desk = desk
        self._token = token
        self._access = Access(
            None if token is None else token.digest,
            options.hosts,
            token_on_loopback=options.token_on_loopback,
        )
        self._token_looked_s = monotonic()
        self._token_work: FileWork[None] = FileWork()
        self._lines = LineBudget(lines_per_s=1)

    def routes(self) -> list[Route]:
        """All of them, each behind the rule of access.py."""
        if self._desk is None:
            return []
        pages: list[tuple[str, Handler]] = [("/", _to_page), (PAGE, self._page), (DOCUMENT, self._document)]
        pages += [(endpoint.path, partial(self._answer, endpoint)) for endpoint in ENDPOINTS]
        return [self.guarded(path, handler) for path, handler in pages]

    def guarded(self, path: str, handler: Handler) -> Route:
        """A route behind that rule."""
        return Route(path, partial(self._guarded, handler), methods=["GET"])

    async def _guarded(self, handler: Handler, request: Request) -> Response:
        await self._follow_token()
        peer = "" if request.client is None else request.client.host
        refusal = self._access.refusal(peer, request.headers)
        if refusal is not None:
            response = _problem(request, refusal.status, refusal.title, refusal.detail)
            if refusal.status == 401:
                response.headers["www-authenticate"] = CHALLENGE
                if "authorization" in request.headers and self._lines.take(monotonic() * 1000.0):
                    _log.warning("status_page_refused", peer=peer, lines_suppressed=self._lines.suppressed())
        else:
            try:
                response = await handler(request)
            except _BadQuestion as error:
                response = _problem(request, 400, "The question is not understood", str(error))
            except Busy:
                response = _problem(request, 503, "Too many questions wait", "Ask again in a second.")
                response.headers["retry-after"] = "1"
        response.headers.update(_HEADERS)
        response.headers.setdefault("content-security-policy", _DATA_POLICY)
        return response

    async def _follow_token(self) -> None:
        token = self._token
        if token is not None and monotonic() - self._token_looked_s >= _TOKEN_LOOK_S:
            self._token_looked_s = monotonic()
            try:
                await self._token_work.run(token.look)
            except FileHangs as error:
                token.hangs(error)
            self._access.digest = token.digest

    async def _document(self, _: Request) -> Response:
        text = await asyncio.to_thread(document_text)  # made once, which takes a while
        return Response(text, media_type="application/json")

    async def _answer(self, endpoint: Endpoint, request: Request) -> Response:
        query = _asked(request, endpoint.query)
        key = request.path_params.get("id")
        method = getattr(self._desk, endpoint.name)
        arguments = (key,) if key is not None else () if isinstance(query, Nothing) else (query,)
        found: BaseModel | None = await method(*arguments)
        if found is None:
            why = "No bucket that was used in the last minute has this id."
            return _problem(request, 404, "Not in use", why)
        return Response(found.model_dump_json(), media_type="application/json")

    async def _page(self, request: Request) -> Response:
        query = _asked(request, PageQuery).model_copy(update={"history": True})
        desk = self._desk
        assert desk is not None
        rest = Query(search=query.search, limit=_EVENTS_SHOWN)
        clients = ConnectionsQuery(
            search=query.search, throttled=query.throttled, offset=query.connections_offset
        )
        data = PageData(
            query=query,
            principals=await desk.principals(query),
            detail=await desk.principal(query.bucket) if query.bucket else None,
            events=await desk.events(rest),
            connections=await desk.connections(clients),
            producer_ids=await desk.producer_ids(rest),
            replication=await desk.replication(rest),
            plan=await desk.plan(),
            summary=await desk.summary(),
        )
        pieces = []
        for number, piece in enumerate(render(data), start=1):
            pieces.append(piece)
            if number % _PIECES_PER_STEP == 0:
                await asyncio.sleep(0)
        return HTMLResponse("".join(pieces), headers={"content-security-policy": CONTENT_SECURITY_POLICY})


class _BadQuestion(Exception):
    """What is wrong with it, without what was given."""


def _asked(request: Request, model: type[_Asked]) -> _Asked:
    """What stands behind the `?`; a form's empty fields are as if they were left out. Raises _BadQuestion."""
    try:
        return model.model_validate({key: value for key, value in request.query_params.items() if value})
    except ValidationError as error:
        told = (
            f"{'.'.join(map(str, one['loc']))[:_KEY_TOLD]}: {mistake(model, one, shows_value=False)}"
            for one in error.errors(include_url=False)[:5]
        )
        raise _BadQuestion("; ".join(told)) from None


async def _to_page(_: Request) -> Response:
    return RedirectResponse(PAGE)


def _problem(request: Request, status: int, title: str, detail: str) -> Response:
    """For people as a page, for programs as RFC 9457 has it."""
    if request.url.path == PAGE and "text/html" in request.headers.get("accept", ""):
        shown = f"<h1>{escape(title)}</h1><p>{escape(detail)}</p>"
        head = f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{escape(title)}</title>'
        return HTMLResponse(f"{head}<body><main>{shown}</main></body></html>", status_code=status)
    body = Problem(status=status, title=title, detail=detail).model_dump_json()
    return Response(body, status_code=status, media_type="application/problem+json")
