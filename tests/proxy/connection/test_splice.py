"""Large frames are moved by the kernel, and arrive as they were; small ones are not moved."""

from __future__ import annotations

import errno
import os
import socket
import struct

import pytest

from sluice.proxy.connection.kernel_pipe import KernelPipe
from sluice.proxy.connection.peer import Peer
from sluice.proxy.connection.splice import expect, move
from testkit.frames.frames import fetch, produce, record_batch, sized
from testkit.frames.wire import Wire
from testkit.peers.fault_broker import BrokerSide, FaultBroker, answer_to
from testkit.proxy.local_proxy import LocalProxy

pytestmark = pytest.mark.asyncio
MIB = 1024 * 1024


class Moves(list[int]):
    """How many bytes each move took."""


@pytest.fixture
def moves(monkeypatch: pytest.MonkeyPatch) -> Moves:
    moves = Moves()
    move = KernelPipe.move

    def seen(self: KernelPipe, source: int, target: int, max_bytes: int) -> tuple[int, bytes]:
        taken, rest = move(self, source, target, max_bytes)
        moves.append(taken)
        return taken, rest

    monkeypatch.setattr(KernelPipe, "move", seen)
    return moves


class Large:
    """The rest of a large frame is to come."""

    passing_bytes = 10 * MIB

    def passed(self, size: int) -> None:
        """So much of it has gone on."""


def answer_with(correlation_id: int, rest: bytes) -> bytes:
    """An answer whose head is Kafka's."""
    return sized(struct.pack(">ib", correlation_id, 0) + bytes(20) + rest)


async def ask(client: Wire, number: int, payload_bytes: int) -> bytes:
    """Send a Produce with so many random bytes, and return it."""
    request = produce({"t": [(0, record_batch(os.urandom(payload_bytes)))]}, correlation_id=number)
    await client.send(request)
    return request


@pytest.mark.parametrize("payload_bytes", [8 * MIB, 2 * MIB + 1])
async def test_a_large_request_arrives_as_it_was_and_what_follows_it_too(
    moves: Moves, payload_bytes: int
) -> None:
    had: list[bytes] = []

    async def keeps(client: BrokerSide) -> None:
        while True:
            request = await client.request()
            had.append(request.frame)
            await client.send(answer_to(request))

    async with FaultBroker(keeps) as broker, LocalProxy(broker.port) as proxy:
        with await proxy.client() as client:
            sent = []
            for number, size in enumerate([100, payload_bytes, payload_bytes, 200, payload_bytes, 0]):
                sent.append(await ask(client, number, size))
            for number in range(6):
                assert (await client.frame())[4:8] == number.to_bytes(4, "big")
            assert had == sent
            (connection,) = proxy.connections
            assert connection.session.bytes_from_client == sum(len(frame) for frame in sent)
    assert sum(moves) > payload_bytes // 2


async def test_a_large_answer_arrives_as_it_was_and_is_counted(moves: Moves) -> None:
    records = os.urandom(20 * MIB)

    async def answers(client: BrokerSide) -> None:
        while True:
            request = await client.request()
            await client.send(answer_with(request.correlation_id, records))

    async with FaultBroker(answers) as broker, LocalProxy(broker.port) as proxy:
        with await proxy.client() as client:
            for number in range(3):
                await client.send(fetch(correlation_id=number))
                assert await client.frame() == answer_with(number, records)
            (connection,) = proxy.connections
            assert connection.session.bytes_to_client == 3 * len(answer_with(0, records))
    assert sum(moves) > 30 * MIB


async def test_frames_of_a_mebibyte_are_not_moved(moves: Moves) -> None:
    async with FaultBroker(_answers_all) as broker, LocalProxy(broker.port) as proxy:
        with await proxy.client() as client:
            for number in range(10):
                await ask(client, number, MIB - 1000)
                await client.frame()
    assert not moves


async def test_without_such_a_way_large_frames_are_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "splice")
    async with FaultBroker(_answers_all) as broker, LocalProxy(broker.port) as proxy:
        with await proxy.client() as client:
            for number in range(3):
                await ask(client, number, 8 * MIB)
                assert (await client.frame())[4:8] == number.to_bytes(4, "big")


async def test_where_no_pipe_can_be_had_large_frames_are_read_in_large_pieces(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Once it could not: after that a try costs more than the copies that it spares."""

    def none_left(flags: int) -> tuple[int, int]:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(os, "pipe2", none_left)
    async with FaultBroker(_answers_all) as broker, LocalProxy(broker.port) as proxy:
        worker = proxy._worker
        frames = Large()
        one, other = socket.socketpair()
        with one, other:
            peer = Peer(worker.poller, one, print, print, worker.view)
            expect(peer, frames, worker)
            assert not move(peer, Peer(worker.poller, other, print, print, worker.view), frames, worker)
            expect(peer, frames, worker)
            assert (peer.passing, peer.view is worker.view) == (False, True)
        with await proxy.client() as client:
            await ask(client, 0, 8 * MIB)
            assert (await client.frame())[4:8] == (0).to_bytes(4, "big")


async def _answers_all(client: BrokerSide) -> None:
    while True:
        await client.send(answer_to(await client.request()))
