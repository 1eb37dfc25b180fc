"""The whole process: several ports, its end by signals, and what it does when it runs out of something.

The brokers behind it are this test's own, so that it decides when they answer.
"""

from __future__ import annotations

import asyncio
import json
import resource
import signal
import socket
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from importlib.metadata import version
from typing import Any

import pytest

from testkit.frames.frames import API_VERSIONS, PRODUCE, fetch, produce
from testkit.frames.wire import WITHIN_S, Wire, dial, most_on_the_way_bytes
from testkit.peers.fault_broker import BrokerSide, FaultBroker, answer_of, answer_to, answers
from testkit.processes.guarded_process import GuardedProcess
from testkit.processes.ports import LOOPBACK, free_port, free_ports
from testkit.proxy.sluice_process import SLUICE, Door, SluiceProcess

pytestmark = pytest.mark.asyncio
MIB = 1024 * 1024


@asynccontextmanager
async def running(*upstream_ports: int, **options: Any) -> AsyncIterator[SluiceProcess]:
    """`sluice run` with a door D0, D1, … before each port."""
    ports = free_ports(len(upstream_ports))
    doors = [
        Door(f"D{number}", port, (LOOPBACK, upstream_port))
        for number, (port, upstream_port) in enumerate(zip(ports, upstream_ports, strict=True))
    ]
    proxy = SluiceProcess(doors, **options)
    await asyncio.to_thread(proxy.__enter__)
    try:
        yield proxy
    except BaseException as error:
        await asyncio.to_thread(proxy.__exit__, type(error), error, None)
        raise
    await asyncio.to_thread(proxy.__exit__, None, None, None)


async def client_of(proxy: SluiceProcess, door: str = "D0", **options: Any) -> Wire:
    return await dial(proxy.doors[door].port, **options)


async def until(proxy: SluiceProcess, seen: Callable[[], bool], what: str) -> None:
    await asyncio.to_thread(proxy.wait_until, seen, what)


async def served_in_the_end(proxy: SluiceProcess, *which: str) -> None:
    """As a client does that connects again until it is served."""
    for _ in range(100):
        with await client_of(proxy, *which) as client:
            try:
                await served(client)
            except (EOFError, ConnectionResetError):
                await asyncio.sleep(0.05)
            else:
                return
    raise AssertionError("nobody was served")


async def served(client: Wire, correlation_id: int = 4) -> None:
    await client.send(produce(correlation_id=correlation_id))
    assert (await client.frame())[4:8] == correlation_id.to_bytes(4, "big")


def health(proxy: SluiceProcess, page: str) -> int:
    """The status code of an admin page."""
    try:
        with urllib.request.urlopen(f"http://{LOOPBACK}:{proxy.admin_port}/{page}", timeout=5) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


class Slow:
    """A broker that answers when it is told to; who asks for its health (ApiVersions) is answered at once."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.go_on = asyncio.Event()

    async def __call__(self, client: BrokerSide) -> None:
        while True:
            request = await client.request()
            if request.api_key != API_VERSIONS:
                self.asked.set()
                await self.go_on.wait()
            await client.send(answer_to(request))


class Counting:
    """A broker that counts the connections on which a Produce came; /readyz has others."""

    def __init__(self) -> None:
        self.clients = 0

    async def __call__(self, client: BrokerSide) -> None:
        request = await client.request()
        self.clients += request.api_key == PRODUCE
        await client.send(answer_to(request))
        await answers(client)


# Several ports ----------------------------------------------------------------------------------------------


async def until_ready(proxy: SluiceProcess, status: int) -> None:
    """Until /readyz says so."""
    await asyncio.to_thread(
        proxy.wait_until, lambda: health(proxy, "readyz") == status, f"{status} of /readyz", WITHIN_S
    )


async def test_each_port_leads_to_its_own_broker() -> None:
    async with AsyncExitStack() as stack:
        counting = [Counting() for _ in range(3)]
        brokers = [await stack.enter_async_context(FaultBroker(broker)) for broker in counting]
        proxy = await stack.enter_async_context(running(*(broker.port for broker in brokers)))
        await until_ready(proxy, 200)
        for number in (2, 0, 1, 2):
            with await client_of(proxy, f"D{number}") as client:
                await served(client)
        assert [broker.clients for broker in counting] == [1, 1, 2]


async def test_it_is_ready_while_its_brokers_can_be_reached() -> None:
    away = free_port()
    async with FaultBroker(answers) as broker, running(away, broker.port) as proxy:
        assert health(proxy, "startupz") == 200
        assert health(proxy, "readyz") == 503
        async with FaultBroker(answers, port=away):
            await until_ready(proxy, 200)
            with await client_of(proxy, "D0") as client:
                await served(client)
        assert health(proxy, "readyz") == 200  # nobody has tried yet
        with await client_of(proxy, "D0") as client:
            await client.send(produce())
            assert await client.end() == "closed"
        assert health(proxy, "readyz") == 503
        async with FaultBroker(answers, port=away):  # found by the proxy, with no client
            await until_ready(proxy, 200)


async def test_a_broker_that_is_away_costs_its_own_port_only() -> None:
    away = free_port()
    async with FaultBroker(answers) as broker, running(away, broker.port) as proxy:
        for _ in range(3):
            with await client_of(proxy, "D0") as client:
                await client.send(produce())
                assert await client.end() == "closed"
            with await client_of(proxy, "D1") as client:
                await served(client)
        assert await asyncio.to_thread(proxy.disconnects, "upstream_unreachable") == 3
        assert len(proxy.log_lines("upstream_unreachable", listener="D0")) == 1
        async with FaultBroker(answers, port=away):
            await served_in_the_end(proxy, "D0")
        assert len(proxy.log_lines("upstream_reachable_again", listener="D0")) == 1


# Its end ----------------------------------------------------------------------------------------------------


async def test_the_log_begins_with_what_starts() -> None:
    async with FaultBroker(answers) as broker, running(broker.port) as proxy:
        first = json.loads(proxy.log.read_text().splitlines()[0])
        assert (first["event"], first["mode"], first["limits"]) == ("starting", "broker", 1)
        assert first["configuration"] == str(proxy.folder / "sluice.yaml")
        assert first["version"] == version("kafka-sluice")


@pytest.mark.parametrize("signal_number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_ends_it_once_what_is_in_flight_is_answered(signal_number: signal.Signals) -> None:
    slow = Slow()
    async with FaultBroker(slow) as broker, running(broker.port) as proxy:
        with await client_of(proxy) as client, await client_of(proxy) as idle:
            await client.send(produce(correlation_id=9))
            await slow.asked.wait()
            assert health(proxy, "readyz") == 200
            proxy.process.send_signal(signal_number)
            assert await idle.end() == "closed"
            assert health(proxy, "readyz") == 503
            assert health(proxy, "livez") == 200
            with pytest.raises(ConnectionRefusedError):
                await client_of(proxy)
            slow.go_on.set()
            assert (await client.frame())[4:8] == (9).to_bytes(4, "big")
            assert await client.end() == "closed"
        assert await asyncio.to_thread(proxy.stop) == 0
        assert [line["cut_off"] for line in proxy.log_lines("drained")] == [0]


async def test_a_hang_up_ends_nobody() -> None:
    """By default SIGHUP ends a process at once; many send it for files to be read anew."""
    async with FaultBroker(answers) as broker, running(broker.port) as proxy:
        with await client_of(proxy) as client:
            proxy.process.send_signal(signal.SIGHUP)
            await until(proxy, lambda: bool(proxy.log_lines("hang_up_ignored")), "hang_up_ignored")
            await client.send(produce(correlation_id=9))
            assert (await client.frame())[4:8] == (9).to_bytes(4, "big")
        assert await asyncio.to_thread(proxy.stop) == 0


async def test_past_its_deadline_it_ends_with_what_is_not_answered_cut_off() -> None:
    slow = Slow()
    async with (
        FaultBroker(slow) as broker,
        running(broker.port, drain={"deadline_s": 0.3}) as proxy,
    ):
        with await client_of(proxy) as client:
            await client.send(produce())
            await slow.asked.wait()
            assert await asyncio.to_thread(proxy.stop) == 0
            assert await client.rest() in {(b"", "closed"), (b"", "reset")}
        assert [line["cut_off"] for line in proxy.log_lines("drained")] == [1]


async def test_a_second_signal_ends_it_at_once() -> None:
    slow = Slow()
    async with FaultBroker(slow) as broker, running(broker.port, drain={"deadline_s": 600}) as proxy:
        with await client_of(proxy) as client:
            await client.send(produce())
            await slow.asked.wait()
            proxy.process.send_signal(signal.SIGTERM)
            await until(proxy, lambda: bool(proxy.log_lines("draining")), "draining")
            assert await asyncio.to_thread(proxy.stop, 20.0) == 0
        assert [line["cut_off"] for line in proxy.log_lines("drained")] == [1]


async def test_a_port_that_is_taken_ends_it_with_a_line_that_says_so() -> None:
    with socket.create_server((LOOPBACK, 0)) as taken:
        proxy = SluiceProcess([Door("D0", taken.getsockname()[1], (LOOPBACK, 9092))])
        command: Sequence[Any] = [SLUICE, "run", "--config", proxy.folder / "sluice.yaml"]
        try:
            with GuardedProcess(command, output=proxy.log) as process:
                assert await asyncio.to_thread(process.wait, 30.0) == 1
            (line,) = proxy.log_lines("cannot_listen")
            assert line["reason"] == "address already in use"
            assert f"ss -ltnp 'sport = :{taken.getsockname()[1]}'" in line["remedy"]
            assert (line["listener"], line["port"]) == ("D0", taken.getsockname()[1])
        finally:
            proxy.close()


@pytest.mark.parametrize("section", ["listeners", "admin"])
async def test_a_name_that_does_not_resolve_ends_it_with_a_line_that_says_so(section: str) -> None:
    proxy = SluiceProcess([Door("D0", free_port(), (LOOPBACK, 9092))])
    command: Sequence[Any] = [SLUICE, "run", "--config", proxy.folder / "sluice.yaml"]
    try:
        options = json.loads((proxy.folder / "sluice.yaml").read_text())
        changed = options["admin"] if section == "admin" else options["listeners"][0]
        changed["bind_host"] = "nowhere.invalid"
        (proxy.folder / "sluice.yaml").write_text(json.dumps(options))
        with GuardedProcess(command, output=proxy.log) as process:
            assert await asyncio.to_thread(process.wait, 30.0) == 1
        (line,) = proxy.log_lines("cannot_listen")
        assert (line["host"], line["reason"]) == ("nowhere.invalid", "it does not resolve")
        assert line["remedy"].endswith("getent hosts nowhere.invalid")
    finally:
        proxy.close()


# What it can run out of -------------------------------------------------------------------------------------


async def test_without_file_descriptors_it_serves_whom_it_has_and_later_the_others() -> None:
    async with FaultBroker(answers) as broker, running(broker.port) as proxy:
        with await client_of(proxy) as client:
            await served(client)
            limits = resource.prlimit(proxy.process.pid, resource.RLIMIT_NOFILE)
            resource.prlimit(proxy.process.pid, resource.RLIMIT_NOFILE, (20, limits[1]))
            crowd = [await client_of(proxy) for _ in range(40)]
            try:
                await until(proxy, lambda: bool(proxy.log_lines("accept_failed")), "out of descriptors")
                await served(client)
                resource.prlimit(proxy.process.pid, resource.RLIMIT_NOFILE, limits)
            finally:
                for other in crowd:
                    other.close()
            await served_in_the_end(proxy)


async def test_clients_that_take_nothing_of_what_they_ask_for_do_not_fill_its_memory() -> None:
    async def answers_hugely(client: BrokerSide) -> None:
        while True:
            await client.send(answer_of(await client.request(), 32 * MIB))

    count = 20
    async with FaultBroker(answers_hugely) as broker, running(broker.port) as proxy:
        before_bytes = proxy.rss_bytes()
        clients = [await client_of(proxy, receive_buffer_bytes=65536) for _ in range(count)]
        try:
            for client in clients:
                await client.send(fetch())
            await asyncio.sleep(1.0)
            # What lies in the kernel's buffers is not its memory; of its own, one receive buffer each.
            assert proxy.rss_bytes() - before_bytes < (count + 10) * MIB
            assert len(await clients[0].frame()) == 32 * MIB
        finally:
            for client in clients:
                client.close()


async def test_brokers_that_take_nothing_do_not_let_clients_fill_its_memory() -> None:
    count, go_on, sent_bytes = 20, asyncio.Event(), Counter[Wire]()

    async def reads_late(client: BrokerSide) -> None:
        await go_on.wait()
        await client.rest()

    async with (
        FaultBroker(reads_late, receive_buffer_bytes=65536) as broker,
        FaultBroker(answers) as good,
        running(broker.port, good.port) as proxy,
    ):
        before_bytes = proxy.rss_bytes()
        clients = [await client_of(proxy) for _ in range(count)]
        frame = produce_of_size(32 * MIB)
        pouring = [asyncio.ensure_future(pour(client, frame, sent_bytes)) for client in clients]
        try:
            await asyncio.sleep(1.0)
            assert not any(task.done() for task in pouring)
            assert max(sent_bytes.values(), default=0) <= most_on_the_way_bytes() + MIB
            assert proxy.rss_bytes() - before_bytes < (count + 10) * MIB
            with await client_of(proxy, "D1") as other:
                await served(other)
        finally:
            for task in pouring:
                task.cancel()
            await asyncio.gather(*pouring, return_exceptions=True)
            for client in clients:
                client.close()
        go_on.set()
        await until(proxy, lambda: proxy.metric("sluice_connections") == 0, "rid of them")


async def pour(client: Wire, frame: bytes, sent_bytes: Counter[Wire]) -> None:
    """One after the other, without end."""
    while True:
        await client.send(frame)
        sent_bytes[client] += len(frame)


def produce_of_size(size_bytes: int) -> bytes:
    """A Produce whose records are not looked at."""
    frame = bytearray(produce())
    frame += bytes(size_bytes - len(frame))
    frame[:4] = (len(frame) - 4).to_bytes(4, "big")
    return bytes(frame)
