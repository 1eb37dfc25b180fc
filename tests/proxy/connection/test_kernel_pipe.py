"""Bytes moved between two sockets by the kernel: nothing lost, nothing left in the pipe."""

from __future__ import annotations

import errno
import os
import socket
import struct
from collections.abc import Iterator

import pytest

from sluice.proxy.connection.kernel_pipe import TRY_AGAIN_AFTER, KernelPipe
from testkit.peers.tls_peers import tcp_pair

MIB = 1024 * 1024


@pytest.fixture
def pipe() -> Iterator[KernelPipe]:
    pipe = KernelPipe()
    yield pipe
    pipe.close()


def test_what_has_come_goes_on_up_to_the_limit(pipe: KernelPipe) -> None:
    ours, client = tcp_pair()
    to_broker, broker = tcp_pair()
    with ours, client, to_broker, broker:
        client.sendall(b"0123456789")
        assert pipe.move(ours.fileno(), to_broker.fileno(), 8) == (8, b"")
        assert broker.recv(100) == b"01234567"
        assert ours.recv(100) == b"89"


def test_nothing_there_and_an_end_are_told_apart(pipe: KernelPipe) -> None:
    ours, client = tcp_pair()
    to_broker, broker = tcp_pair()
    with ours, client, to_broker, broker:
        with pytest.raises(BlockingIOError):
            pipe.move(ours.fileno(), to_broker.fileno(), MIB)
        client.shutdown(socket.SHUT_WR)
        ours.setblocking(True)
        assert ours.recv(1) == b""
        assert pipe.move(ours.fileno(), to_broker.fileno(), MIB) == (0, b"")


def test_what_the_target_does_not_take_is_given_back_and_the_pipe_is_empty(pipe: KernelPipe) -> None:
    data = os.urandom(8 * MIB)
    ours, client = tcp_pair()
    to_broker, broker = tcp_pair(buffer_bytes=16_384)
    client.setblocking(False)
    sent = taken = 0
    given_back = bytearray()
    with ours, client, to_broker, broker:
        while not given_back:
            sent += client.send(data[sent : sent + 100_000])
            moved, rest = pipe.move(ours.fileno(), to_broker.fileno(), MIB)
            taken += moved
            given_back += rest
        arrived = bytearray()
        while len(arrived) < taken - len(given_back):
            arrived += broker.recv(MIB)
        assert arrived + given_back == data[:taken]
        left = bytearray()
        ours.settimeout(5)
        while len(left) < sent - taken:
            left += ours.recv(MIB)
        assert left == data[taken:sent]
        client.sendall(b"next")
        ours.recv(0)
        other, its_broker = tcp_pair()
        with other, its_broker:
            ours.setblocking(True)
            assert ours.recv(4, socket.MSG_PEEK) == b"next"
            ours.setblocking(False)
            assert pipe.move(ours.fileno(), other.fileno(), MIB) == (4, b"")
            assert its_broker.recv(100) == b"next"


def test_a_target_that_is_gone_gives_back_all(pipe: KernelPipe) -> None:
    ours, client = tcp_pair()
    to_broker, broker = tcp_pair()
    with ours, client, to_broker:
        broker.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        broker.close()
        client.sendall(b"abc")
        to_broker.setblocking(True)
        with pytest.raises(ConnectionResetError):
            to_broker.recv(1)
        assert pipe.move(ours.fileno(), to_broker.fileno(), MIB) == (3, b"abc")


def test_a_source_that_was_reset_raises(pipe: KernelPipe) -> None:
    ours, client = tcp_pair()
    to_broker, broker = tcp_pair()
    with ours, to_broker, broker:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.close()
        with pytest.raises(ConnectionResetError):
            pipe.move(ours.fileno(), to_broker.fileno(), MIB)


def test_where_the_kernel_has_no_such_way_nothing_is_taken(pipe: KernelPipe) -> None:
    to_broker, broker = tcp_pair()
    with to_broker, broker, open("/dev/null", "rb") as no_source:
        os.set_blocking(no_source.fileno(), False)
        epoll = os.eventfd(0, os.EFD_NONBLOCK)
        try:
            assert pipe.move(epoll, to_broker.fileno(), MIB) == (0, b"")
        finally:
            os.close(epoll)
        assert not pipe.is_usable
        assert pipe.move(to_broker.fileno(), to_broker.fileno(), MIB) == (0, b"")


def test_where_no_pipe_can_be_had_nothing_is_taken_and_nobody_is_blamed(
    pipe: KernelPipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none_left(flags: int) -> tuple[int, int]:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(os, "pipe2", none_left)
    ours, client = tcp_pair()
    with ours, client:
        client.sendall(b"abc")
        assert pipe.move(ours.fileno(), ours.fileno(), MIB) == (0, b"")
        assert ours.recv(100) == b"abc"


def test_a_pipe_that_could_not_be_had_is_asked_for_again_and_not_each_time(
    pipe: KernelPipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries = 0

    def none_left(flags: int) -> tuple[int, int]:
        nonlocal tries
        tries += 1
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    ours, client = tcp_pair()
    to_broker, broker = tcp_pair()
    with ours, client, to_broker, broker:
        client.sendall(b"abc")
        with monkeypatch.context() as without:
            without.setattr(os, "pipe2", none_left)
            for _ in range(5):
                if pipe.is_worth_a_try():
                    assert pipe.move(ours.fileno(), to_broker.fileno(), MIB) == (0, b"")
            assert tries == 1
        assert any(pipe.is_worth_a_try() for _ in range(2 * TRY_AGAIN_AFTER))
        assert pipe.move(ours.fileno(), to_broker.fileno(), MIB) == (3, b"")
        assert broker.recv(100) == b"abc"
        assert pipe.is_worth_a_try()
