"""Limits on connections through the process itself, and the configuration that changes under its traffic.

The broker is a fake that answers: what is shown here happens before any broker is asked, or whatever it says.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from sluice.protocol.proxy_protocol import build_v2
from testkit.frames.frames import (
    METADATA,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    answer,
    decoded,
    produce_of,
    request,
)
from testkit.frames.wire import WITHIN_S, Wire, dial
from testkit.peers.fault_broker import BrokerSide, FaultBroker, answer_to
from testkit.processes.ports import LOOPBACK, free_ports
from testkit.proxy.sluice_process import Door, SluiceProcess
from testkit.thorough import few

pytestmark = pytest.mark.asyncio
ASK = request(METADATA, 12, correlation_id=4)


async def answers_all(client: BrokerSide) -> None:
    """And lets in everybody who logs in."""
    while True:
        asked = await client.request()
        if asked.api_key == SASL_AUTHENTICATE:
            await client.send(answer(SASL_AUTHENTICATE, 2, correlation_id=asked.correlation_id))
        elif asked.api_key == SASL_HANDSHAKE:
            await client.send(answer(SASL_HANDSHAKE, 1, correlation_id=asked.correlation_id))
        else:
            await client.send(answer_to(asked))


@asynccontextmanager
async def running(listener: dict[str, Any] | None = None, **options: Any) -> AsyncIterator[SluiceProcess]:
    """Doors PLAIN and SASL, the first with the listener's options."""
    plain, sasl = free_ports(2)
    async with FaultBroker(answers_all) as broker:
        there = (LOOPBACK, broker.port)
        doors = [
            Door("PLAIN", plain, there, options=listener or {}),
            Door("SASL", sasl, there, "SASL_PLAINTEXT"),
        ]
        process = SluiceProcess(doors, **options)
        entered = await asyncio.to_thread(process.__enter__)
        try:
            yield entered
        except BaseException as error:
            await asyncio.to_thread(process.__exit__, type(error), error, None)
            raise
        await asyncio.to_thread(process.__exit__, None, None, None)


async def seen(sluice: SluiceProcess, what: Callable[[], bool], text: str) -> None:
    await asyncio.to_thread(sluice.wait_until, what, text)


async def counted(sluice: SluiceProcess, cause: str, count: int) -> None:
    await seen(sluice, lambda: sluice.disconnects(cause) == count, f"{cause} {count} times")


async def is_served(client: Wire) -> bool:
    await client.send(ASK)
    return (await client.frame())[4:8] == (4).to_bytes(4, "big")


async def log_in(client: Wire, user: str) -> None:
    await client.send(request(SASL_HANDSHAKE, 1, {"mechanism": "PLAIN"}))
    await client.frame()
    token = f"\0{user}\0secret".encode()
    await client.send(request(SASL_AUTHENTICATE, 2, {"authBytes": token.hex()}))
    body = decoded("response", SASL_AUTHENTICATE, 2, await client.frame()).body
    assert body["errorCode"] == 0


# How many ---------------------------------------------------------------------------------------------------


async def test_no_more_connections_than_allowed_in_all_and_a_free_place_is_taken() -> None:
    async with running(limits={"max_connections": 3}) as sluice:
        port = sluice.doors["PLAIN"].port
        with ExitStack() as stack:
            clients = [stack.enter_context(await dial(port)) for _ in range(3)]
            assert all([await is_served(client) for client in clients])
            for _ in range(2):
                with await dial(port) as refused:
                    assert await refused.end() == "closed"
            await counted(sluice, "too_many_connections", 2)
            assert all([await is_served(client) for client in clients])
            clients[0].close()
            await counted(sluice, "client_closed", 1)
            with await dial(port) as another:
                assert await is_served(another)


async def test_no_more_of_one_address_also_behind_a_balancer() -> None:
    balancer = {"proxy_protocol_from": ["127.0.0.1/32"]}
    async with running(balancer, limits={"max_connections_per_ip": 2}) as sluice:
        port = sluice.doors["PLAIN"].port
        with ExitStack() as stack:

            async def coming_from(host: str) -> Wire:
                client = stack.enter_context(await dial(port))
                await client.send(build_v2((host, 1), ("192.0.2.1", 9092)))
                return client

            hosts = ("203.0.113.1", "203.0.113.2") * 2
            assert all([await is_served(await coming_from(host)) for host in hosts])
            refused = await coming_from("203.0.113.1")
            assert await refused.end() == "closed"
            assert await is_served(await coming_from("203.0.113.3"))
        await counted(sluice, "too_many_connections_of_address", 1)
        line = sluice.log_lines("connection_closed", cause="too_many_connections_of_address")[0]
        assert line["peer"] == "203.0.113.1:1"


async def test_no_more_of_one_user_and_others_come_in() -> None:
    async with running(limits={"max_connections_per_user": 2}) as sluice:
        port = sluice.doors["SASL"].port
        with ExitStack() as stack:
            for user in ("alice", "alice", "bob"):
                client = stack.enter_context(await dial(port))
                await log_in(client, user)
                assert await is_served(client)
            third = stack.enter_context(await dial(port))
            await log_in(third, "alice")  # the broker's yes is delivered
            assert await third.end() == "closed"
            await counted(sluice, "too_many_connections_of_user", 1)
            line = sluice.log_lines("connection_closed", cause="too_many_connections_of_user")[0]
            assert line["user"] == "alice"


@pytest.mark.parametrize("says", [b"", request(SASL_HANDSHAKE, 1, {"mechanism": "PLAIN"})[:9]])
@pytest.mark.parametrize("door", few(["SASL", "PLAIN"], 1))
async def test_silent_clients_make_room_for_good_ones_and_who_is_known_stays(door: str, says: bytes) -> None:
    places = 8
    async with running(limits={"max_unauthenticated_connections": places}) as sluice:
        port = sluice.doors[door].port
        with ExitStack() as stack:
            first = stack.enter_context(await dial(port))
            if door == "SASL":
                await log_in(first, "alice")
            assert await is_served(first)
            silent = [stack.enter_context(await dial(port)) for _ in range(2 * places)]
            for client in silent:
                await client.send(says)
            for number in range(2 * places):
                good = stack.enter_context(await dial(port))
                if door == "SASL":
                    await log_in(good, f"user-{number}")
                assert await is_served(good)
            assert await is_served(first)
            assert [await client.end() for client in silent[:places]] == ["closed"] * places
        assert sluice.disconnects("too_many_unauthenticated") >= places
        assert sluice.metric("sluice_accepts_delayed_total") > 0  # those of the first second


async def test_new_connections_beyond_the_rate_wait_and_are_not_refused() -> None:
    async with running(limits={"connections_per_s": 20}) as sluice:
        begun_s = time.monotonic()
        with ExitStack() as stack:
            clients = [stack.enter_context(await dial(sluice.doors["PLAIN"].port)) for _ in range(50)]
            assert all(await asyncio.gather(*(is_served(client) for client in clients)))
        assert time.monotonic() - begun_s > (50 - 20) / 20 - 0.1
        assert sluice.metric("sluice_connections_opened_total") == 50


# How long ---------------------------------------------------------------------------------------------------


async def says_nothing(client: Wire) -> None:
    await client.send(b"")


async def begins_to_log_in(client: Wire) -> None:
    await client.send(request(SASL_HANDSHAKE, 1, {"mechanism": "PLAIN"}))
    await client.frame()


@pytest.mark.parametrize("does", [says_nothing, begins_to_log_in])
async def test_a_login_that_does_not_come_ends_in_time_and_nobody_elses(
    does: Callable[[Wire], Awaitable[None]],
) -> None:
    async with running(limits={"authentication_timeout_s": 3.0}) as sluice:  # in which the good one logs in
        port = sluice.doors["SASL"].port
        with await dial(port) as good, await dial(port) as bad:
            await log_in(good, "alice")
            await does(bad)
            assert await bad.end() == "closed"
            await counted(sluice, "authentication_timeout", 1)
            assert await is_served(good)


async def test_a_request_that_drips_ends_and_a_large_one_that_flows_does_not() -> None:
    async with running(limits={"slow_frame_timeout_s": 2.0}) as sluice:
        port, frame = sluice.doors["PLAIN"].port, produce_of(100_000, correlation_id=4)
        with await dial(port) as drips, await dial(port) as flows:
            ended = asyncio.get_running_loop().create_task(drips.rest())
            for start in range(0, len(frame), 10_000):
                await flows.send(frame[start : start + 10_000])
                if not ended.done():
                    await drips.send(frame[start // 10_000 : start // 10_000 + 1])
                await asyncio.sleep(0.3)
            assert (await flows.frame())[4:8] == (4).to_bytes(4, "big")
            async with asyncio.timeout(WITHIN_S):
                # A byte that meets the end on its way is answered with a reset, by the kernel.
                assert await ended in {(b"", "closed"), (b"", "reset")}
        await counted(sluice, "slow_frame", 1)


# While it runs ----------------------------------------------------------------------------------------------


def rewrite(sluice: SluiceProcess, change: Callable[[dict[str, Any]], None]) -> None:
    file = Path(sluice.folder, "sluice.yaml")
    config = json.loads(file.read_text())
    change(config)
    new = file.with_suffix(".new")
    new.write_text(json.dumps(config))
    os.replace(new, file)


@pytest.mark.long
async def test_limits_change_while_traffic_flows_and_what_needs_a_restart_is_named() -> None:
    async with running(limits={"max_connections": 100, "connections_per_s": 1000}) as sluice:
        port = sluice.doors["PLAIN"].port
        with ExitStack() as stack:
            clients = [stack.enter_context(await dial(port)) for _ in range(5)]
            stop, asked = asyncio.Event(), 0

            async def flow(client: Wire) -> None:
                nonlocal asked
                while not stop.is_set():
                    assert await is_served(client)
                    asked += 1
                    await asyncio.sleep(0.005)

            async with asyncio.TaskGroup() as tasks:
                for client in clients:
                    tasks.create_task(flow(client))
                await seen(sluice, lambda: asked > 50, "traffic")

                def change(config: dict[str, Any]) -> None:
                    config["limits"] = {"max_connections": 5, "connections_per_s": 7}
                    config["listeners"][0]["bind_port"] += 1

                rewrite(sluice, change)
                await seen(sluice, lambda: bool(sluice.log_lines("configuration_needs_restart")), "said")
                with await dial(port) as sixth:
                    assert await sixth.end() == "closed"
                rewrite(sluice, lambda config: config.update(limits={"max_connections": 6, "nonsense": 1}))
                await seen(sluice, lambda: bool(sluice.log_lines("configuration_not_applied")), "refused")
                with await dial(port) as sixth:
                    assert await sixth.end() == "closed"
                rewrite(sluice, lambda config: config.update(limits={"max_connections": 6}))
                await seen(sluice, lambda: len(sluice.log_lines("configuration_applied")) == 2, "applied")
                with await dial(port) as sixth:
                    assert await is_served(sixth)
                before = asked
                await seen(sluice, lambda: asked > before + 50, "traffic goes on")
                stop.set()
        applied = sluice.log_lines("configuration_applied")[0]
        assert applied["options"] == ["limits.max_connections"]
        waiting = sluice.log_lines("configuration_needs_restart")[0]
        assert sorted(waiting["options"]) == ["limits.connections_per_s", "listeners"]
        assert "nonsense" in str(sluice.log_lines("configuration_not_applied")[0]["problems"])
        reloads = {
            (labels["file"], labels["outcome"]): count
            for labels, count in sluice.samples("sluice_config_reloads_total")
        }
        assert reloads["configuration", "invalid"] == 1
        assert sluice.disconnects("too_many_connections") == 2


async def test_a_port_that_is_taken_is_told_and_nothing_is_left_running() -> None:
    with socket.create_server((LOOPBACK, 0)) as taken:
        door = Door("PLAIN", taken.getsockname()[1], (LOOPBACK, 9))
        process = SluiceProcess([door])
        try:
            with pytest.raises(AssertionError, match=r"exit code 1"):
                await asyncio.to_thread(process.start)
            assert "cannot_listen" in process.log.read_text()
        finally:
            process.close()
