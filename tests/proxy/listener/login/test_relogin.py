"""The proxy's login is renewed while a connection is at work (KIP-368): nothing stands between its frames,
and nothing is sent that the broker would close on."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from sluice.proxy.listener.login.relogin import Relogin
from sluice.proxy.session.causes import DisconnectCause
from sluice.quotas.limits.limits import QuotaLimits
from testkit.frames.frames import (
    METADATA,
    PRODUCE,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    answer,
    decoded,
    produce_of,
    request,
)
from testkit.frames.wire import WITHIN_S, Wire
from testkit.peers.fault_broker import BrokerSide, FaultBroker, Request, answer_to
from testkit.peers.loop_clock import LoopClock
from testkit.proxy.local_proxy import until
from testkit.proxy.playbook import limits_of
from testkit.proxy.secured_proxy import SecuredProxy, credentials_file

pytestmark = pytest.mark.asyncio
LIFETIME_MS = 400
"""of a session at the broker: it is renewed after 340 to 380 ms"""


class Broker:
    """As Kafka: closes on anything between a login's frames, and on anything but a login once it is over."""

    def __init__(self, lifetime_ms: int = LIFETIME_MS) -> None:
        self.lifetime_ms = lifetime_ms
        self.logins: list[str] = []
        """tokens that were accepted, in order"""
        self.broke: list[str] = []
        """what it closed on"""
        self.is_strict = True
        """about the session's end"""
        self.answers_login: Callable[[BrokerSide, Request], Any] | None = None
        self.holds_answers = asyncio.Event()
        self.holds_answers.set()
        self.holds_handshakes = asyncio.Event()
        self.holds_handshakes.set()
        self.handshakes = 0
        self.unanswered: list[int] = []
        """correlation ids of Produces with acks = 0"""
        self.clock = LoopClock()

    async def __call__(self, client: BrokerSide) -> None:
        over_s, logging_in = 0.0, False
        while True:
            request = await client.request()
            if request.api_key == SASL_HANDSHAKE:
                logging_in = True
                self.handshakes += 1
                await self.holds_handshakes.wait()
                await client.send(answer(SASL_HANDSHAKE, 1, correlation_id=request.correlation_id))
            elif request.api_key == SASL_AUTHENTICATE:
                if not logging_in:
                    return self.broke.append("a token without a handshake")
                body = decoded("request", SASL_AUTHENTICATE, 2, request.frame).body
                if self.answers_login is not None and self.logins:
                    await self.answers_login(client, request)
                    return None
                self.logins.append(bytes.fromhex(str(body["authBytes"])).decode())
                over_s, logging_in = self.clock.now_s + self.lifetime_ms / 1000.0, False
                await client.send(
                    answer(
                        SASL_AUTHENTICATE,
                        2,
                        {"sessionLifetimeMs": self.lifetime_ms},
                        correlation_id=request.correlation_id,
                    )
                )
            elif logging_in:
                return self.broke.append("a request within a login")
            elif self.is_strict and self.lifetime_ms and self.clock.now_s > over_s:
                return self.broke.append("a request behind the session's end")
            else:
                await self.holds_answers.wait()
                if request.api_key == PRODUCE and request.acks == 0:
                    self.unanswered.append(request.correlation_id)
                else:
                    await client.send(answer_to(request))


def listener(folder: Path, password: str = "secret") -> dict[str, Any]:
    file = credentials_file(folder, f"service: {{username: sluice, password: {password}}}")
    return {
        "upstream_security_protocol": "SASL_PLAINTEXT",
        "upstream_sasl": {"mechanism": "PLAIN", "credentials_file": file},
        "accept_shared_upstream_identity": True,
    }


@asynccontextmanager
async def rig(
    folder: Path,
    limits: QuotaLimits | None = None,
    lifetime_ms: int = LIFETIME_MS,
    dial_timeout_s: float = 5.0,
) -> AsyncIterator[tuple[SecuredProxy, Broker]]:
    behaviour = Broker(lifetime_ms)
    async with (
        FaultBroker(behaviour) as broker,
        SecuredProxy(broker.port, limits, listener=listener(folder), dial_timeout_s=dial_timeout_s) as proxy,
    ):
        yield proxy, behaviour
        behaviour.clock.stop()


async def answered(client: Wire, correlation_id: int) -> None:
    assert (await client.frame())[4:8] == correlation_id.to_bytes(4, "big")


async def ask(client: Wire, correlation_id: int) -> None:
    await client.send(request(METADATA, 12, correlation_id=correlation_id))
    await answered(client, correlation_id)


# At work ----------------------------------------------------------------------------------------------------


async def test_a_busy_connection_outlives_its_sessions(tmp_path: Path) -> None:
    """Five requests are in flight all the time."""
    async with rig(tmp_path) as (proxy, broker):
        with await proxy.client() as client:
            sent = done = 0
            while len(broker.logins) < 5:
                while sent < done + 5:
                    sent += 1
                    await client.send(request(METADATA, 12, correlation_id=sent))
                done += 1
                await answered(client, done)
            for number in range(done + 1, sent + 1):
                await answered(client, number)
        assert not broker.broke
        assert (await proxy.end()).cause is DisconnectCause.CLIENT_CLOSED


async def test_an_idle_connection_outlives_them_too(tmp_path: Path) -> None:
    async with rig(tmp_path) as (proxy, broker):
        with await proxy.client() as client:
            await ask(client, 0)
            await until(lambda: len(broker.logins) == 4)
            await ask(client, 1)
        assert not broker.broke


async def test_a_broker_that_sets_no_end_is_logged_in_to_once(tmp_path: Path) -> None:
    async with rig(tmp_path, lifetime_ms=0) as (proxy, broker):
        with await proxy.client() as client:
            await ask(client, 1)
            await asyncio.sleep(0.2)
            await ask(client, 2)
        assert len(broker.logins) == 1


async def test_a_login_waits_for_the_answers_that_are_due(tmp_path: Path) -> None:
    """Beyond the session's end, as Kafka lets it: it looks at the end when a request comes."""
    async with rig(tmp_path) as (proxy, broker):
        with await proxy.client() as client:
            await ask(client, 0)
            broker.holds_answers.clear()
            await client.send(request(METADATA, 12, correlation_id=1))
            await asyncio.sleep(1.2 * LIFETIME_MS / 1000.0)
            await client.send(request(METADATA, 12, correlation_id=2))  # waits in the proxy
            assert len(broker.logins) == 1
            broker.holds_answers.set()
            await answered(client, 1)
            await answered(client, 2)
            assert len(broker.logins) >= 2
        assert not broker.broke


async def test_a_login_waits_for_the_end_of_a_request_that_is_half_sent(tmp_path: Path) -> None:
    """At a broker that does not mind when it came."""
    async with rig(tmp_path) as (proxy, broker):
        broker.is_strict = False
        with await proxy.client() as client:
            frame = produce_of(400_000, correlation_id=7)
            await ask(client, 0)
            await client.send(frame[:200_000])
            await asyncio.sleep(1.2 * LIFETIME_MS / 1000.0)
            assert len(broker.logins) == 1
            await client.send(frame[200_000:])
            await answered(client, 7)
            await until(lambda: len(broker.logins) == 2)
        assert not broker.broke


async def test_nothing_of_an_ended_connection_waits_for_the_end_of_its_session(tmp_path: Path) -> None:
    """Which may be hours, and connections come and go."""

    def pending() -> int:
        gc.collect()
        return sum(isinstance(found, Relogin) for found in gc.get_objects())

    before = pending()
    async with rig(tmp_path, lifetime_ms=3_600_000) as (proxy, broker):
        for number in range(5):
            with await proxy.client() as client:
                await ask(client, 1)
                assert pending() == before + 1
            await until(lambda number=number: len(proxy.ended) == number + 1)  # type: ignore[misc]
            await until(lambda: not proxy.connections)
        assert pending() == before
        assert len(broker.logins) == 5


# Delayed by quotas ------------------------------------------------------------------------------------------


async def test_a_muted_connection_logs_in_again(tmp_path: Path) -> None:
    """100 kB/s: every request of 20 kB owes 200 ms."""
    async with rig(tmp_path, limits_of(100_000)) as (proxy, broker):
        with await proxy.client() as client:
            await client.send(b"".join(produce_of(20_000, correlation_id=n) for n in range(14)))
            for number in range(14):
                await answered(client, number)
            assert len(broker.logins) >= 3
        assert not broker.broke


async def test_a_held_request_goes_behind_the_new_login(tmp_path: Path) -> None:
    """It is held for three sessions: 100 kB/s, and somebody of the same user has poured 220 kB."""
    async with rig(tmp_path, limits_of(100_000)) as (proxy, broker):
        with await proxy.client() as first, await proxy.client() as second:
            await ask(second, 1)
            await first.send(produce_of(220_000, correlation_id=2))
            await answered(first, 2)
            await second.send(produce_of(1_000, correlation_id=3))
            await answered(second, 3)
            assert proxy.gauges.connections == 2
        assert not broker.broke


async def test_many_connections_of_one_bucket_are_held_and_log_in_again_all_the_time(tmp_path: Path) -> None:
    async with rig(tmp_path, limits_of(150_000)) as (proxy, broker):

        async def pour(client: Wire) -> None:
            for number in range(12):
                await client.send(produce_of(5_000, correlation_id=number))
                await answered(client, number)

        with ExitStack() as stack:
            clients = [stack.enter_context(await proxy.client()) for _ in range(8)]
            await asyncio.gather(*(pour(client) for client in clients), return_exceptions=True)
        assert not broker.broke
        assert len(broker.logins) > 2 * len(clients)
        await until(lambda: len(proxy.ended) == len(clients))
        assert {end.cause for end in proxy.ended} == {DisconnectCause.CLIENT_CLOSED}


# What can go wrong ------------------------------------------------------------------------------------------


async def refuses(client: BrokerSide, request: Request) -> None:
    body: Any = {"errorCode": 58, "errorMessage": "Authentication failed: the secret is no more"}
    await client.send(answer(SASL_AUTHENTICATE, 2, body, correlation_id=request.correlation_id))


async def leaves(client: BrokerSide, request: Request) -> None:
    return


async def sends_more(client: BrokerSide, request: Request) -> None:
    frame = answer(SASL_AUTHENTICATE, 2, {"sessionLifetimeMs": 1}, correlation_id=request.correlation_id)
    await client.send(frame + b"\0\0\0\x08")
    await client.read(1)


async def answers_another(client: BrokerSide, request: Request) -> None:
    await client.send(answer(SASL_AUTHENTICATE, 2, correlation_id=request.correlation_id - 1))
    await client.read(1)


@pytest.mark.parametrize(
    ("behaviour", "said"),
    [
        (refuses, "the broker says: Authentication failed: the *** is no more"),
        (leaves, "closed the connection"),
        (sends_more, "more than it was asked for"),
        (answers_another, "awaited is"),
    ],
)
async def test_a_new_login_that_fails_ends_the_connection_and_says_why(
    tmp_path: Path, behaviour: Callable[[BrokerSide, Request], Any], said: str
) -> None:
    async with rig(tmp_path) as (proxy, broker):
        broker.answers_login = behaviour
        with await proxy.client() as client:
            await ask(client, 1)
            await client.send(b"\0")  # half a request is no answer's due
            assert await client.end() == "closed"
        end = await proxy.end()
        assert end.cause is DisconnectCause.UPSTREAM_LOGIN_FAILED
        assert said in end.detail


async def test_a_login_that_is_not_answered_ends_the_connection_though_the_client_has_left(
    tmp_path: Path,
) -> None:
    """What it sent waits, and its end behind that cannot be seen."""
    async with rig(tmp_path, dial_timeout_s=0.5) as (proxy, broker):
        begun, never = asyncio.Event(), asyncio.Event()

        async def hangs(client: BrokerSide, asked: Request) -> None:
            begun.set()
            await never.wait()

        broker.answers_login = hangs
        with await proxy.client() as client:
            await ask(client, 0)
            async with asyncio.timeout(WITHIN_S):
                await begun.wait()
            await client.send(request(METADATA, 12))
        end = await proxy.end()
        assert end.cause is DisconnectCause.UPSTREAM_LOGIN_FAILED
        assert "timed out" in end.detail
        await until(lambda: not proxy.connections)


async def test_the_credentials_are_those_of_the_time(tmp_path: Path) -> None:
    async with rig(tmp_path) as (proxy, broker):
        with await proxy.client() as client:
            await ask(client, 0)
            listener(tmp_path, "another")
            assert proxy.security.credentials is not None
            await until(
                lambda: (
                    proxy.security.credentials is not None
                    and proxy.security.credentials.reload_if_changed(time.time() + 10.0) is not None
                )
            )
            await until(lambda: len(broker.logins) >= 2)
    assert broker.logins[0] == "\0sluice\0secret"
    assert broker.logins[-1] == "\0sluice\0another"
