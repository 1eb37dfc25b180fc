"""Who is ended for a newer connection where those who have not logged in have all their places, and who is
not."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from time import monotonic
from typing import Any

import pytest

from sluice.proxy.connection import guests, limits
from sluice.proxy.connection.connection import Connection
from sluice.proxy.connection.guest_share import GuestShare
from sluice.proxy.connection.guests import LOGIN_READS
from sluice.proxy.session.causes import DisconnectCause
from testkit.frames.frames import API_VERSIONS, SASL_AUTHENTICATE, SASL_HANDSHAKE, answer, request
from testkit.frames.questions import is_served
from testkit.frames.wire import Wire, dial
from testkit.peers.fault_broker import BrokerSide, FaultBroker
from testkit.processes.ports import LOOPBACK
from testkit.proxy.local_proxy import until
from testkit.proxy.secured_proxy import SecuredProxy

pytestmark = pytest.mark.asyncio
SASL = {"security_protocol": "SASL_PLAINTEXT", "upstream_security_protocol": "SASL_PLAINTEXT"}
ASK = request(API_VERSIONS, 0)
KEYS = [{"apiKey": key, "minVersion": 0, "maxVersion": 3} for key in range(62)]
MANY = 700
"""requests whose answers Linux's buffers do not hold, where the client's are small"""


async def answers_all(client: BrokerSide) -> None:
    versions = {SASL_AUTHENTICATE: 2, SASL_HANDSHAKE: 1, API_VERSIONS: 0}
    while True:
        asked = await client.request()
        body: dict[str, Any] = {"apiKeys": KEYS} if asked.api_key == API_VERSIONS else {}
        version = versions[asked.api_key]
        await client.send(answer(asked.api_key, version, body, correlation_id=asked.correlation_id))


@asynccontextmanager
async def crowded(monkeypatch: pytest.MonkeyPatch, places: int) -> AsyncIterator[SecuredProxy]:
    """A proxy with so few places; nobody in them has to be let have its time."""
    monkeypatch.setattr(limits, "GRACE_MS", 0.0)
    async with FaultBroker(answers_all) as broker, SecuredProxy(broker.port, listener=SASL) as proxy:
        proxy._worker.limits.max_unauthenticated = places
        yield proxy


async def reads_little(port: int) -> Wire:
    """A client for which the kernel keeps little."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2_048)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, 88)
    sock.connect((LOOPBACK, port))
    return Wire(sock)


async def log_in(client: Wire) -> None:
    await client.send(request(SASL_HANDSHAKE, 1, {"mechanism": "PLAIN"}))
    await client.frame()
    await client.send(request(SASL_AUTHENTICATE, 2, {"authBytes": b"\0alice\0secret".hex()}))
    await client.frame()


def leaves_unread(connection: Connection) -> bool:
    return connection._client.out is not None


async def test_who_asks_without_end_and_reads_no_answer_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    async with crowded(monkeypatch, places=1) as proxy:
        with await reads_little(proxy.listener.port) as greedy:
            await greedy.send(ASK * MANY)
            await until(lambda: any(map(leaves_unread, proxy.connections)))
            with await dial(proxy.listener.port) as honest:
                assert await is_served(honest)
            assert (await proxy.end()).cause is DisconnectCause.TOO_MANY_UNAUTHENTICATED
            assert proxy._worker.limits.ended_for_others == 1


async def test_who_has_logged_in_stays_also_where_it_leaves_its_answers_unread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with crowded(monkeypatch, places=1) as proxy:
        with await reads_little(proxy.listener.port) as known, ExitStack() as stack:
            await log_in(known)
            await known.send(ASK * MANY)
            await until(lambda: any(map(leaves_unread, proxy.connections)))
            for _ in range(3):
                newer = stack.enter_context(await dial(proxy.listener.port))
                assert await is_served(newer)
            assert proxy._worker.limits.ended_for_others == 2
            for _ in range(MANY):
                await known.frame()
            assert await is_served(known)


@asynccontextmanager
async def waiting_for_the_share(
    monkeypatch: pytest.MonkeyPatch, asked: int
) -> AsyncIterator[tuple[SecuredProxy, GuestShare]]:
    """One that has asked so often before has the only place, and the share is there again."""
    monkeypatch.setattr(guests, "_PAUSE_S", 60.0)  # nobody is read meanwhile
    async with crowded(monkeypatch, places=1) as proxy:
        share = proxy._worker.limits.guests
        with await dial(proxy.listener.port) as waits:
            for _ in range(asked):
                await waits.send(ASK)
                await waits.frame()
            await until(lambda: proxy.gauges.connections == 1)
            share.charge(100.0, monotonic())
            await waits.send(ASK)
            await until(lambda: proxy.gauges.guests_delayed == 1)
            share.refund(100.0)
            yield proxy, share


async def test_who_asks_on_and_on_makes_room_where_nobody_else_can(monkeypatch: pytest.MonkeyPatch) -> None:
    async with waiting_for_the_share(monkeypatch, LOGIN_READS + 1) as (proxy, _):
        with await dial(proxy.listener.port) as honest:
            assert await is_served(honest)
        assert (await proxy.end()).cause is DisconnectCause.TOO_MANY_UNAUTHENTICATED


async def test_who_may_be_about_to_log_in_is_not_ended_while_it_waits_for_the_share(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of clients that came back all at once each ended the one that had waited longest: 8 of 150 were in
    after 15 s, and all after 12 where nobody is ended."""
    async with waiting_for_the_share(monkeypatch, LOGIN_READS - 1) as (proxy, _):
        with await dial(proxy.listener.port):
            await until(lambda: proxy.gauges.accepts_delayed > 3)
        assert proxy._worker.limits.ended_for_others == 0


async def test_a_connection_waits_for_the_share_once_however_often_it_is_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each answer put it into the room again: ten that had asked 400 times kept an honest one waiting for
    3 s, while nothing of the share was used."""
    monkeypatch.setattr(guests, "_PAUSE_S", 60.0)
    go_on = asyncio.Event()

    async def answers_one_by_one(client: BrokerSide) -> None:
        asked = [await client.request() for _ in range(20)]
        await go_on.wait()
        for each in asked:
            await client.send(answer(API_VERSIONS, 0, {}, correlation_id=each.correlation_id))
            await asyncio.sleep(0.002)
        await asyncio.Event().wait()

    async with FaultBroker(answers_one_by_one) as broker, SecuredProxy(broker.port, listener=SASL) as proxy:
        with await dial(proxy.listener.port) as client:
            await client.send(ASK * 20)
            await until(lambda: any(each.session.in_flight == 20 for each in proxy.connections))
            proxy._worker.limits.guests.charge(100.0, monotonic())
            await client.send(ASK)
            await until(lambda: proxy.gauges.guests_delayed == 1)
            go_on.set()
            for _ in range(20):
                await client.frame()
            assert proxy.gauges.guests_delayed == 1


async def test_nobody_is_ended_for_one_that_is_not_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The share is used up, so nobody is."""
    async with crowded(monkeypatch, places=1) as proxy:
        with await dial(proxy.listener.port):
            await until(lambda: proxy.gauges.connections == 1)
            proxy._worker.limits.guests.charge(100.0, monotonic())
            with await dial(proxy.listener.port):
                await until(lambda: proxy.gauges.accepts_delayed > 0)
            assert proxy._worker.limits.ended_for_others == 0
            assert not proxy.ended
