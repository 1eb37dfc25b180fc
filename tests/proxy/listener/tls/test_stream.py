"""TLS in place of a socket: every byte and every end, against real OpenSSL peers on uvloop."""

from __future__ import annotations

import asyncio
import gc
import socket
import ssl
import struct
import weakref
from random import Random

import pytest

from sluice.proxy.listener.tls.error import TlsError
from sluice.proxy.listener.tls.stream import RECORD_BYTES, TlsStream
from testkit.frames.wire import WITHIN_S
from testkit.peers.tls_peers import (
    MIB,
    Contexts,
    connected,
    read,
    read_exactly,
    readable,
    recv_exactly,
    tcp_pair,
    write,
)

pytestmark = [pytest.mark.asyncio, pytest.mark.usefixtures("read_and_written")]


# Bytes ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("room_bytes", [RECORD_BYTES, 3 * RECORD_BYTES + 7, MIB])
async def test_ten_mebibytes_in_records_of_any_size_arrive_as_they_were(
    contexts: Contexts, room_bytes: int
) -> None:
    random = Random(1)
    data = random.randbytes(10 * MIB)

    def send(tls: ssl.SSLSocket) -> None:
        pos = 0
        while pos < len(data):
            size = random.choice([1, 7, 1000, RECORD_BYTES - 1, RECORD_BYTES, RECORD_BYTES + 1, 300_000])
            tls.sendall(data[pos : pos + size])
            pos += size

    async with connected(contexts.server, contexts.client) as (stream, client):
        sending = asyncio.get_running_loop().run_in_executor(None, send, client)
        assert await read_exactly(stream, len(data), room_bytes) == data
        await sending


async def test_ten_mebibytes_through_partial_writes_and_a_moving_buffer_arrive_as_they_were(
    contexts: Contexts,
) -> None:
    random = Random(2)
    data = random.randbytes(10 * MIB)
    async with connected(contexts.server, contexts.client, buffer_bytes=4096) as (stream, client):
        reading = asyncio.get_running_loop().run_in_executor(None, recv_exactly, client, len(data), random)
        pos, out = 0, bytearray()
        partly = blocked = 0
        while pos < len(data) or out:
            more = b""
            if len(out) < 200_000:
                more = data[pos : pos + random.choice([1, 5000, 40_000, 300_000])]
            pos += len(more)
            out = bytearray(bytes(out)) + more  # elsewhere in memory, and maybe longer than at the last try
            try:
                sent = stream.send(out)
            except BlockingIOError:
                blocked += 1
                await asyncio.sleep(0)
            else:
                partly += sent < len(out)
                del out[:sent]
        assert await reading == data
        # How often depends on who is scheduled when; each way has been gone, and more than once.
        assert partly > 2
        assert blocked > 2


async def test_both_ways_at_once_nothing_is_mixed_up(contexts: Contexts) -> None:
    ours, theirs = tcp_pair(buffer_bytes=16_384)
    theirs.setblocking(False)
    loop = asyncio.get_running_loop()
    server, client = await asyncio.gather(
        TlsStream.handshake(loop, ours, contexts.server, server_side=True),
        TlsStream.handshake(loop, theirs, contexts.broker(), server_side=False, server_hostname="localhost"),
    )
    up, down = Random(3).randbytes(10 * MIB), Random(4).randbytes(10 * MIB)
    async with asyncio.timeout(WITHIN_S):
        got = await asyncio.gather(
            read_exactly(server, len(up)),
            read_exactly(client, len(down)),
            write(server, bytearray(down)),
            write(client, bytearray(up)),
        )
    assert got[0] == up
    assert got[1] == down
    server.close()
    client.close()


async def test_nothing_stays_inside_where_epoll_would_not_see_it(contexts: Contexts) -> None:
    data = bytes(range(256)) * 64 * 9 + b"the end"  # nine full records and a short one, all there at once
    async with connected(contexts.server, contexts.client) as (stream, client):
        client.sendall(data)
        assert await read_exactly(stream, len(data), RECORD_BYTES) == data
        with pytest.raises(BlockingIOError):
            stream.recv_into(memoryview(bytearray(RECORD_BYTES)))


async def test_short_records_that_are_there_come_in_one_read(contexts: Contexts) -> None:
    async with connected(contexts.server, contexts.client) as (stream, client):
        for part in (b"size", b"header", b"records"):  # so Java writes a request
            client.sendall(part)
        view = memoryview(bytearray(MIB))
        assert bytes(view[: stream.recv_into(view)]) == b"sizeheaderrecords"


async def test_less_room_than_a_record_gets_its_parts_one_call_after_the_other(contexts: Contexts) -> None:
    async with connected(contexts.server, contexts.client) as (stream, client):
        client.sendall(b"0123456789")
        view = memoryview(bytearray(4))
        got = []
        for _ in range(3):
            got.append(bytes(view[: stream.recv_into(view)]))
        assert got == [b"0123", b"4567", b"89"]
        with pytest.raises(BlockingIOError):
            stream.recv_into(view)


async def test_a_megabyte_is_taken_in_one_call_if_the_kernel_has_room(contexts: Contexts) -> None:
    async with connected(contexts.server, contexts.client) as (stream, client):
        reading = asyncio.get_running_loop().run_in_executor(None, recv_exactly, client, 200_000)
        assert stream.send(memoryview(bytes(200_000))) == 200_000
        assert await reading == bytes(200_000)


async def test_a_peer_that_does_not_read_is_blocking_and_not_an_error(contexts: Contexts) -> None:
    async with connected(contexts.server, contexts.client, buffer_bytes=4096) as (stream, client):
        data, taken = bytes(MIB), 0
        with pytest.raises(BlockingIOError):  # noqa: PT012  at some point
            while taken < 64 * MIB:
                taken += stream.send(data)
        stream.shutdown(socket.SHUT_WR)  # returns, though close_notify finds no room
        client.close()


# Ends -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, RECORD_BYTES, 2 * RECORD_BYTES], ids=["short", "full", "two"])
@pytest.mark.parametrize("farewell", ["close_notify", "fin"])
async def test_the_end_is_seen_behind_the_last_bytes_also_without_a_fin(
    contexts: Contexts, size: int, farewell: str
) -> None:
    async with connected(contexts.server, contexts.client) as (stream, client):
        stream.send(b"an answer")
        client.recv(100)  # and session tickets before it: to close on unread bytes would be a reset
        client.sendall(bytes(size))
        leaving = None
        if farewell == "close_notify":  # and waits for ours
            leaving = asyncio.get_running_loop().run_in_executor(None, client.unwrap)
        else:
            client.close()
        assert await read_exactly(stream, size) == bytes(size)
        assert await read(stream) == b""
        assert await read(stream) == b""
        if leaving is not None:
            stream.close()
            (await leaving).close()


async def test_a_reset_is_a_reset(contexts: Contexts) -> None:
    async with connected(contexts.server, contexts.client) as (stream, client):
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.close()
        with pytest.raises(ConnectionResetError):
            await read(stream)


async def test_bytes_that_are_not_of_this_session_are_an_error_behind_the_good_ones(
    contexts: Contexts,
) -> None:
    async with connected(contexts.server, contexts.client) as (stream, client):
        client.sendall(b"good")
        socket.socket.sendall(client, b"\x17\x03\x03\x00\x20" + bytes(32))
        assert await read(stream) == b"good"
        with pytest.raises(TlsError, match="the client failed: decryption failed or bad record mac"):
            await read(stream)


async def test_to_a_client_the_end_is_announced_and_what_it_still_sends_is_thrown_away(
    contexts: Contexts,
) -> None:
    async with connected(contexts.server, contexts.client) as (stream, client):
        client.sendall(b"a request that nobody read")
        stream.send(b"the last answer")
        stream.shutdown(socket.SHUT_WR)
        assert client.recv(100) == b"the last answer"
        assert client.recv(100) == b""  # would raise SSLError without close_notify
        client.sendall(b"another")
        assert b"another" not in await read(stream)
        client.close()
        while await read(stream):
            pass


async def test_to_a_broker_the_end_is_told_and_its_answers_are_still_read(contexts: Contexts) -> None:
    async with connected(contexts.openssl_server, contexts.broker(), as_client=True) as (stream, broker):
        stream.send(b"request")
        assert broker.recv(100) == b"request"
        broker.sendall(b"answer 1,")  # lies there while the end is told
        stream.shutdown(socket.SHUT_WR)
        broker.sendall(b"answer 2")
        with pytest.raises(ssl.SSLError, match="UNEXPECTED_EOF"):  # 3.11.2 has no SSLEOFError for it
            broker.recv(100)
        assert await read_exactly(stream, 17) == b"answer 1,answer 2"
        with pytest.raises(OSError):  # noqa: PT011, PT012  EPIPE or OpenSSL's word for it, soon
            for _ in range(100):
                stream.send(b"too late")


@pytest.mark.parametrize("as_client", [False, True], ids=["client", "broker"])
async def test_closing_says_goodbye(contexts: Contexts, as_client: bool) -> None:
    server = contexts.openssl_server if as_client else contexts.server
    client = contexts.broker() if as_client else contexts.client
    async with connected(server, client, as_client=as_client) as (stream, other):
        stream.send(b"last words")
        stream.close()
        stream.close()
        assert stream.fileno() == -1
        assert other.recv(100) == b"last words"
        assert other.recv(100) == b""


async def test_a_closed_stream_is_freed_at_once(contexts: Contexts) -> None:
    async with connected(contexts.server, contexts.client) as (stream, _):
        sock = weakref.ref(stream._sock)
        gc.disable()
        try:
            stream.close()
            del stream
        finally:
            gc.enable()
        assert sock() is not None  # `connected` still has the stream
    del _
    assert sock() is None


async def test_tcp_info_can_be_asked(contexts: Contexts) -> None:
    async with connected(contexts.server, contexts.client) as (stream, client):
        state = [stream.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0]]
        client.close()
        await readable(stream)
        state.append(stream.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0])
        assert state[0] == 1
        assert state[1] != 1
