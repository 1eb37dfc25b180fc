"""What hostile bytes may cost before a login: a share of one core, whoever pours; good clients go on."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing import get_context
from multiprocessing.synchronize import Event

import pytest

from testkit.frames.frames import METADATA, SASL_AUTHENTICATE, SASL_HANDSHAKE, answer, request
from testkit.frames.wire import Wire, dial
from testkit.peers.fault_broker import BrokerSide, FaultBroker, answer_to
from testkit.processes.ports import LOOPBACK, free_port
from testkit.proxy.sluice_process import Door, SluiceProcess

pytestmark = pytest.mark.asyncio
SHARE = 0.1
GARBAGE = b"GET / HTTP/1.1\r\n\r\n"
ASK = request(METADATA, 12, correlation_id=4)


async def answers_all(client: BrokerSide) -> None:
    while True:
        asked = await client.request()
        version = {SASL_AUTHENTICATE: 2, SASL_HANDSHAKE: 1}.get(asked.api_key)
        if version is None:
            await client.send(answer_to(asked))
        else:
            await client.send(answer(asked.api_key, version, correlation_id=asked.correlation_id))


def pour(port: int, hostile: Sequence[bytes], ended: Event) -> None:
    """Connect, send one of `hostile`, and again."""
    count = 0
    while not ended.is_set():
        count += 1
        with socket.socket() as sock:
            sock.settimeout(0.5)
            try:
                sock.connect((LOOPBACK, port))
                sock.sendall(hostile[count % len(hostile)])
                sock.recv(1)
            except OSError:
                pass


@contextmanager
def pourers(port: int, hostile: Sequence[bytes], count: int) -> Iterator[None]:
    """As processes of their own: they shall be faster than the proxy."""
    context = get_context("spawn")
    ended = context.Event()
    running = [context.Process(target=pour, args=(port, hostile, ended)) for _ in range(count)]
    for process in running:
        process.start()
    try:
        yield
    finally:
        ended.set()
        for process in running:
            process.join()


async def log_in(client: Wire) -> None:
    await client.send(request(SASL_HANDSHAKE, 1, {"mechanism": "PLAIN"}))
    await client.frame()
    await client.send(request(SASL_AUTHENTICATE, 2, {"authBytes": b"\0alice\0secret".hex()}))
    await client.frame()


@pytest.mark.parametrize(
    ("security", "hostile"),
    [("SASL_PLAINTEXT", (GARBAGE, ASK)), pytest.param("PLAINTEXT", (GARBAGE,), marks=pytest.mark.long)],
)
async def test_hostile_connections_take_their_share_of_a_core_and_no_more(
    security: str, hostile: Sequence[bytes]
) -> None:
    async with FaultBroker(answers_all) as broker:
        door = Door("DOOR", free_port(), (LOOPBACK, broker.port), security)
        process = SluiceProcess([door], limits={"unauthenticated_cpu_share": SHARE})
        sluice = await asyncio.to_thread(process.__enter__)
        try:
            with await dial(door.port) as good:
                if security != "PLAINTEXT":
                    await log_in(good)
                manager = pourers(door.port, hostile, 3)
                await asyncio.to_thread(manager.__enter__)
                try:
                    await asyncio.to_thread(
                        sluice.wait_until,
                        lambda: sluice.metric("sluice_accepts_delayed_total") > 0,
                        "the share is used up",
                        60.0,
                    )
                    begun_s, cpu_s = time.monotonic(), sluice.metric("process_cpu_seconds_total")
                    guests_s = sluice.metric("sluice_unauthenticated_seconds_total")
                    for _ in range(40):
                        await good.send(ASK)
                        assert (await good.frame())[4:8] == (4).to_bytes(4, "big")
                        await asyncio.sleep(0.1)
                    cpu_s = sluice.metric("process_cpu_seconds_total") - cpu_s
                    guests_s = sluice.metric("sluice_unauthenticated_seconds_total") - guests_s
                    took_s = time.monotonic() - begun_s
                finally:
                    await asyncio.to_thread(manager.__exit__, None, None, None)
            print(f"guests {guests_s / took_s:.3f}, process {cpu_s / took_s:.3f} of a core")
            assert 0.5 * SHARE < guests_s / took_s < 1.3 * SHARE
            assert cpu_s / took_s < 1.5 * SHARE + 0.06  # all that the process did, for the good one too
        finally:
            await asyncio.to_thread(process.__exit__, None, None, None)
