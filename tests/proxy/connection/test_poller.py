"""Readers and writers of the connections, on the epoll of their own."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import suppress
from functools import partial
from typing import Any

import pytest
import pytest_asyncio

from sluice.proxy.connection.poller import Poller
from testkit.proxy.data_paths import current

pytestmark = pytest.mark.asyncio

Pair = tuple[socket.socket, socket.socket]


class Counted(Poller):
    """One that counts the rounds in which the loop said that something is ready."""

    __slots__ = ("rounds",)

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.rounds = 0
        super().__init__(loop)

    def _ready(self) -> None:
        self.rounds += 1
        current().poller._ready(self)


@pytest_asyncio.fixture
async def poller() -> AsyncIterator[Counted]:
    made = Counted(asyncio.get_running_loop())
    yield made
    made.close()


def pair() -> Pair:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    theirs.setblocking(False)
    return ours, theirs


def tcp_pair() -> Pair:
    with socket.create_server(("127.0.0.1", 0)) as server:
        theirs = socket.create_connection(server.getsockname())
        ours, _ = server.accept()
    ours.setblocking(False)
    return ours, theirs


def read_into(told: list[Any], sock: socket.socket) -> None:
    """A reader that tells what it read."""
    told.append(sock.recv(9))


async def rounds(count: int = 5) -> None:
    """So many rounds of the loop, in each of which it looks at what is ready."""
    for _ in range(count):
        await asyncio.sleep(0.001)


async def test_what_is_left_unread_is_told_again(poller: Counted) -> None:
    ours, theirs = pair()
    told: list[Any] = []
    with ours, theirs:
        poller.add_reader(ours.fileno(), lambda: told.append(len(ours.recv(1))))
        await rounds()
        assert told == []
        theirs.send(b"abc")
        await rounds()
        assert told == [1, 1, 1]
        poller.remove_reader(ours.fileno())
        theirs.send(b"d")
        await rounds()
        assert told == [1, 1, 1]
        poller.remove_reader(ours.fileno())  # harmless


async def test_a_second_reader_takes_the_place_of_the_first(poller: Counted) -> None:
    ours, theirs = pair()
    told: list[Any] = []
    with ours, theirs:
        poller.add_reader(ours.fileno(), lambda: told.append("first"))
        poller.add_reader(ours.fileno(), lambda: told.append(ours.recv(9)))
        theirs.send(b"a")
        await rounds()
        assert told == [b"a"]


@pytest.mark.parametrize("reads_first", [True, False])
async def test_one_socket_is_read_and_written_and_each_ends_alone(poller: Counted, reads_first: bool) -> None:
    ours, theirs = pair()
    read: list[bytes] = []
    written: list[int] = []
    with ours, theirs:
        if reads_first:
            poller.add_reader(ours.fileno(), partial(read_into, read, ours))
        poller.add_writer(ours.fileno(), lambda: written.append(1))
        if not reads_first:
            poller.add_reader(ours.fileno(), partial(read_into, read, ours))
        theirs.send(b"a")
        await rounds()
        assert read == [b"a"]
        assert len(written) > 1
        poller.remove_writer(ours.fileno())
        count = len(written)
        theirs.send(b"b")
        await rounds()
        assert (read, len(written)) == ([b"a", b"b"], count)
        poller.add_writer(ours.fileno(), lambda: written.append(2))
        poller.remove_reader(ours.fileno())
        theirs.send(b"c")
        await rounds()
        assert (read, written[-1]) == ([b"a", b"b"], 2)


async def test_who_is_not_read_is_not_told_of_a_reset_for_ever(poller: Counted) -> None:
    ours, theirs = tcp_pair()
    told: list[Any] = []
    with ours:
        poller.add_reader(ours.fileno(), lambda: told.append(1))
        poller.remove_reader(ours.fileno())
        theirs.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        theirs.close()
        before = poller.rounds
        await rounds(20)
        assert poller.rounds == before

        def once() -> None:
            told.append(2)
            poller.remove_reader(ours.fileno())

        poller.add_reader(ours.fileno(), once)
        await rounds()
        assert told == [2]


async def test_a_writer_hears_that_the_other_side_is_gone(poller: Counted) -> None:
    ours, theirs = tcp_pair()
    told: list[Any] = []
    with ours:
        while True:  # until it takes no more
            try:
                ours.send(bytes(65536))
            except BlockingIOError:
                break

        def once() -> None:
            told.append(1)
            poller.remove_writer(ours.fileno())

        poller.add_writer(ours.fileno(), once)
        await rounds()
        assert told == []
        theirs.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        theirs.close()
        await rounds()
        assert told == [1]


async def test_a_watch_that_ends_in_the_same_round_is_not_called_any_more(poller: Counted) -> None:
    pairs = [pair() for _ in range(3)]
    told: list[Any] = []
    for ours, theirs in pairs:

        def only_one(mine: socket.socket = ours) -> None:
            told.append(mine.recv(9))
            for other, _ in pairs:
                if other is not mine:
                    poller.remove_reader(other.fileno())

        poller.add_reader(ours.fileno(), only_one)
        theirs.send(b"a")
    await rounds()
    assert told == [b"a"]
    for both in pairs:
        for sock in both:
            sock.close()


async def test_a_number_that_is_used_again_is_another_socket(poller: Counted) -> None:
    told: list[Any] = []
    for _ in range(3):
        ours, theirs = pair()
        theirs.send(b"a")
        fd = ours.fileno()
        poller.add_reader(fd, partial(told.append, "the closed one"))
        poller.forget(fd)
        ours.close()
        again, to_again = pair()
        assert again.fileno() == fd
        poller.add_reader(fd, partial(read_into, told, again))
        await rounds(2)
        to_again.send(b"b")
        await rounds(2)
        poller.forget(fd)
        for sock in (again, to_again, theirs):
            sock.close()
    assert told == [b"b"] * 3


async def test_a_fault_in_one_call_costs_no_other_its_turn(poller: Counted) -> None:
    pairs = [pair() for _ in range(3)]
    told: list[Any] = []
    faults: list[Exception] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: faults.append(context["exception"]))
    for number, (ours, theirs) in enumerate(pairs):

        def call(number: int = number, ours: socket.socket = ours) -> None:
            told.append((number, ours.recv(9)))
            if number == 1:
                raise RuntimeError("of the test")

        poller.add_reader(ours.fileno(), call)
        theirs.send(b"a")
    await rounds()
    assert sorted(told) == [(0, b"a"), (1, b"a"), (2, b"a")]
    assert [str(fault) for fault in faults] == ["of the test"]
    for both in pairs:
        for sock in both:
            sock.close()


async def test_more_sockets_than_one_round_takes_are_all_told(poller: Counted) -> None:
    pairs = [pair() for _ in range(300)]
    told: list[Any] = []
    for ours, theirs in pairs:
        poller.add_reader(ours.fileno(), partial(read_into, told, ours))
        theirs.send(b"%d" % ours.fileno())
    await rounds(10)
    assert sorted(told) == sorted(b"%d" % ours.fileno() for ours, _ in pairs)
    for both in pairs:
        for sock in both:
            sock.close()


async def test_closed_it_calls_nobody(poller: Counted) -> None:
    ours, theirs = pair()
    told: list[Any] = []
    with ours, theirs:
        poller.add_reader(ours.fileno(), lambda: told.append(1))
        theirs.send(b"a")
        poller.close()
        await rounds()
        assert told == []
        poller.close()  # harmless


@pytest.mark.parametrize("size", [0, 10, 300_000])
async def test_bytes_and_a_reset_at_once_are_both_told(poller: Counted, size: int) -> None:
    """uvloop's own reader is called for the bytes, and never again."""
    ours, theirs = tcp_pair()
    told: list[object] = []

    def read() -> None:
        try:
            told.append(len(ours.recv(65_536)))
        except OSError as error:
            told.append(type(error))
            poller.remove_reader(ours.fileno())

    with ours:
        poller.add_reader(ours.fileno(), read)
        await rounds()
        with suppress(BlockingIOError):
            theirs.setblocking(False)
            theirs.send(bytes(size))
        theirs.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        theirs.close()
        await rounds(20)
        assert told[-1] is ConnectionResetError
        assert len(told) > (size > 0)
