"""TLS in place of a socket: every byte, every end, and what a handshake leaves behind, against real OpenSSL
peers on uvloop.

The other side is Python's blocking ssl module in a thread, which knows nothing of the code under test.
"""

from __future__ import annotations

import asyncio
import gc
import os
import socket
import ssl
import struct
import sys
import weakref
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from random import Random

import pytest
from certificates import CertificateAuthority, Identity
from frames import produce
from wire import WITHIN_S

from sluice.proxy.tls_context import ClientTls, MinVersion, ServerTls
from sluice.proxy.tls_error import TlsError, TlsFailure
from sluice.proxy.tls_stream import RECORD_BYTES, TlsStream

pytestmark = pytest.mark.asyncio

MIB = 1024 * 1024
AUTHORITY = CertificateAuthority()
SERVER = AUTHORITY.server()
ALICE = AUTHORITY.client("CN=alice,OU=Payments,O=Example")


class Contexts:
    """Both sides' contexts, from files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ca_file = AUTHORITY.write(folder)
        files = SERVER.write(folder, "server")
        self.server = self.server_with("none")
        self.client = ssl.create_default_context(cafile=self.ca_file)
        plain = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        plain.load_cert_chain(files.certificate, files.key)
        self.openssl_server = plain

    def server_with(self, client_auth: str, min_version: MinVersion = "TLSv1.2") -> ssl.SSLContext:
        tls = ServerTls(
            certificate_file=self.folder / "server.crt",
            key_file=self.folder / "server.key",
            client_ca_file=self.ca_file if client_auth != "none" else None,
            client_auth=client_auth,  # type: ignore[arg-type]
            min_version=min_version,
            server_names=True,
        )
        tls.load(0.0)
        return tls.context

    def client_as(self, identity: Identity) -> ssl.SSLContext:
        files = identity.write(self.folder, "client")
        context = ssl.create_default_context(cafile=self.ca_file)
        context.load_cert_chain(files.certificate, files.key)
        return context

    def broker(self) -> ssl.SSLContext:
        tls = ClientTls(ca_file=self.ca_file)
        tls.load(0.0)
        return tls.context


@pytest.fixture(scope="module")
def contexts(tmp_path_factory: pytest.TempPathFactory) -> Contexts:
    return Contexts(tmp_path_factory.mktemp("tls"))


def tcp_pair(*, buffer_bytes: int | None = None) -> tuple[socket.socket, socket.socket]:
    """(ours, non-blocking; theirs, blocking) on loopback."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        if buffer_bytes:
            server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer_bytes)
        theirs = socket.socket()
        theirs.settimeout(WITHIN_S)
        if buffer_bytes:
            theirs.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer_bytes)
        theirs.connect(server.getsockname())
        theirs.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        ours, _ = server.accept()
    if buffer_bytes:
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, buffer_bytes)
    ours.setblocking(False)
    return ours, theirs


@contextmanager
def tcp() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = tcp_pair()
    with ours, theirs:
        yield ours, theirs


@asynccontextmanager
async def connected(
    server: ssl.SSLContext,
    client: ssl.SSLContext,
    *,
    as_client: bool = False,
    buffer_bytes: int | None = None,
    server_hostname: str | None = "localhost",
) -> AsyncIterator[tuple[TlsStream, ssl.SSLSocket]]:
    """Our stream, the server's end or (`as_client`) the client's, and OpenSSL's, which blocks."""
    ours, theirs = tcp_pair(buffer_bytes=buffer_bytes)
    context = server if as_client else client
    peer = asyncio.create_task(  # noqa: TID251  awaited below
        asyncio.to_thread(
            context.wrap_socket,
            theirs,
            server_side=as_client,
            server_hostname=None if as_client else server_hostname,
            suppress_ragged_eofs=False,
        )
    )
    async with asyncio.timeout(WITHIN_S):
        stream = await TlsStream.handshake(
            asyncio.get_running_loop(),
            ours,
            client if as_client else server,
            server_side=not as_client,
            server_hostname=server_hostname if as_client else None,
        )
        with await peer as other:
            try:
                yield stream, other
            finally:
                stream.close()


async def failed_handshake(
    context: ssl.SSLContext,
    theirs_do: Callable[[socket.socket], object],
    *,
    server_side: bool = True,
    server_hostname: str | None = None,
) -> OSError:
    """What the handshake raises while the other side does `theirs_do` in a thread."""

    def act(theirs: socket.socket) -> None:
        with theirs, suppress(OSError):
            theirs_do(theirs)

    ours, theirs = tcp_pair()
    with ours:
        thread = asyncio.get_running_loop().run_in_executor(None, act, theirs)
        with pytest.raises(OSError) as caught:  # noqa: PT011  the caller looks at it
            async with asyncio.timeout(WITHIN_S):
                await TlsStream.handshake(
                    asyncio.get_running_loop(),
                    ours,
                    context,
                    server_side=server_side,
                    server_hostname=server_hostname,
                )
        assert ours.fileno() >= 0, "the socket is the caller's to close"
    await thread
    return caught.value


def shakes_hands(context: ssl.SSLContext) -> Callable[[socket.socket], None]:
    """Be a client, and read what the server says of it."""

    def act(theirs: socket.socket) -> None:
        try:
            with context.wrap_socket(theirs, server_hostname="localhost") as tls:
                tls.recv(1)
        except OSError:
            pass  # ours is the side that is looked at

    return act


async def readable(stream: TlsStream) -> None:
    """As epoll sees it: what is inside OpenSSL does not count."""
    loop = asyncio.get_running_loop()
    seen = asyncio.Event()
    loop.add_reader(stream.fileno(), seen.set)
    try:
        await seen.wait()
    finally:
        loop.remove_reader(stream.fileno())


async def read(stream: TlsStream, room_bytes: int = MIB) -> bytes:
    """What one wake-up brings; never without waiting for it first, as the relay does it."""
    view = memoryview(bytearray(room_bytes))
    while True:
        await readable(stream)
        try:
            return bytes(view[: stream.recv_into(view)])
        except BlockingIOError:
            continue


async def read_exactly(stream: TlsStream, count: int, room_bytes: int = MIB) -> bytes:
    parts = bytearray()
    while len(parts) < count:
        part = await read(stream, room_bytes)
        assert part, f"it ended after {len(parts)} bytes"
        parts += part
    return bytes(parts)


async def write(stream: TlsStream, out: bytearray) -> None:
    """Send all of it, as Peer does: what is left moves to the front of the same bytearray."""
    loop = asyncio.get_running_loop()
    while out:
        try:
            sent = stream.send(out)
        except BlockingIOError:
            ready = asyncio.Event()
            loop.add_writer(stream.fileno(), ready.set)
            await ready.wait()
            loop.remove_writer(stream.fileno())
        else:
            del out[:sent]


def recv_exactly(tls: ssl.SSLSocket, count: int, random: Random | None = None) -> bytes:
    got = bytearray()
    while len(got) < count:
        part = tls.recv(random.randint(1, 100_000) if random else MIB)
        assert part
        got += part
    return bytes(got)


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


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
        assert partly > 20
        assert blocked > 20


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
        assert client.recv(100) == b""  # would raise SSLEOFError without close_notify
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
        with pytest.raises(ssl.SSLEOFError):
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


# Handshakes -------------------------------------------------------------------------------------------------


async def test_the_stream_tells_version_cipher_and_the_name_that_was_asked_for(contexts: Contexts) -> None:
    async with connected(contexts.server, contexts.client) as (stream, client):
        assert (stream.version, stream.server_name) == ("TLSv1.3", "localhost")
        cipher = client.cipher()
        assert cipher is not None
        assert stream.cipher == cipher[0]
        assert stream.peer_certificate_der() is None


async def test_who_does_not_ask_for_names_is_told_none_and_hears_of_no_bad_ones(
    contexts: Contexts, capfd: pytest.CaptureFixture[str]
) -> None:
    """A name that is not ASCII does not even end the handshake."""
    tls = ServerTls(certificate_file=contexts.folder / "server.crt", key_file=contexts.folder / "server.key")
    tls.load(0.0)
    async with connected(tls.context, contexts.client) as (stream, _):
        assert stream.server_name is None
    bad = hello_with_a_bad_name(contexts)
    error = await failed_handshake(tls.context, lambda theirs: theirs.sendall(bad))
    assert "the client closed" in str(error)  # the handshake had gone on
    assert capfd.readouterr().err == ""


def hello_with_a_bad_name(contexts: Contexts) -> bytes:
    incoming, hello = ssl.MemoryBIO(), ssl.MemoryBIO()
    with suppress(ssl.SSLWantReadError):
        contexts.client.wrap_bio(incoming, hello, server_hostname="localhost").do_handshake()
    bad = hello.read().replace(b"localhost", b"\xff" * 9)
    assert b"\xff" * 9 in bad
    return bad


async def test_a_name_that_is_not_ascii_fails_in_words_and_without_a_traceback(
    contexts: Contexts, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python's own hook writes one for each, and anybody can send such a name."""
    monkeypatch.setattr(sys, "unraisablehook", sys.__unraisablehook__)
    context, bad = contexts.server_with("none"), hello_with_a_bad_name(contexts)
    error = await failed_handshake(context, lambda theirs: theirs.sendall(bad))
    assert str(error) == "the client asks for a server name that is not ASCII"
    assert capfd.readouterr().err == ""
    async with connected(context, contexts.client) as (stream, _):
        assert stream.server_name == "localhost"


async def test_what_else_cannot_be_raised_is_still_told(
    contexts: Contexts, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Bad:
        def __del__(self) -> None:
            b"\xff".decode("ascii")

    monkeypatch.setattr(sys, "unraisablehook", sys.__unraisablehook__)
    contexts.server_with("none")
    hook = sys.unraisablehook
    contexts.server_with("none")
    assert sys.unraisablehook is hook  # not one around the other
    bad = Bad()
    del bad
    assert "UnicodeDecodeError" in capfd.readouterr().err


async def test_without_a_name_there_is_none(contexts: Contexts) -> None:
    context = ssl.create_default_context(cafile=contexts.ca_file)
    context.check_hostname = False
    async with connected(contexts.server, context, server_hostname=None) as (stream, _):
        assert stream.server_name is None


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize("client_auth", ["requested", "required"])
async def test_the_clients_certificate_is_known(
    contexts: Contexts, client_auth: str, version: ssl.TLSVersion
) -> None:
    context = contexts.client_as(ALICE)
    context.maximum_version = version
    async with connected(contexts.server_with(client_auth), context) as (stream, _):
        assert stream.peer_certificate_der() == ALICE.der


async def test_a_certificate_that_is_only_requested_may_be_missing(contexts: Contexts) -> None:
    async with connected(contexts.server_with("requested"), contexts.client) as (stream, client):
        assert stream.peer_certificate_der() is None
        client.sendall(b"served")
        assert await read(stream) == b"served"


async def test_a_certificate_that_is_required_must_be_there(contexts: Contexts) -> None:
    error = await failed_handshake(contexts.server_with("required"), shakes_hands(contexts.client))
    assert isinstance(error, TlsError)
    assert error.failure is TlsFailure.NO_CERTIFICATE
    assert str(error) == "the client sent no certificate, and one is required"


@pytest.mark.parametrize("client_auth", ["requested", "required"])
@pytest.mark.parametrize(
    ("identity", "why"),
    [
        (AUTHORITY.expired_client("CN=alice"), "certificate has expired"),
        (AUTHORITY.client("CN=alice", starts_in_days=1), "certificate is not yet valid"),
        (CertificateAuthority().client("CN=alice"), "unable to get local issuer certificate"),
        (CertificateAuthority("Another").client("CN=alice"), "unable to get local issuer certificate"),
        (AUTHORITY.server(), None),
    ],
    ids=["expired", "not yet", "namesake CA", "foreign CA", "a server's, for both uses"],
)
async def test_a_bad_certificate_is_refused_also_where_none_would_do(
    contexts: Contexts, client_auth: str, identity: Identity, why: str | None
) -> None:
    context, server = contexts.client_as(identity), contexts.server_with(client_auth)
    if why is None:
        async with connected(server, context) as (stream, _):
            assert stream.peer_certificate_der() == identity.der
        return
    error = await failed_handshake(server, shakes_hands(context))
    assert isinstance(error, TlsError)
    assert error.failure is TlsFailure.BAD_CERTIFICATE
    assert why in str(error) or "certificate signature failure" in str(error)


async def test_a_client_that_learns_late_that_it_is_refused_ends_the_stream_with_its_alert(
    contexts: Contexts,
) -> None:
    """As in TLS 1.3: the client is done before the server has seen its certificate."""
    required = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    required.load_cert_chain(contexts.folder / "server.crt", contexts.folder / "server.key")
    required.verify_mode = ssl.CERT_REQUIRED
    required.load_verify_locations(contexts.ca_file)
    ours, theirs = tcp_pair()

    def refuse() -> None:
        with theirs, pytest.raises(ssl.SSLError):
            required.wrap_socket(theirs, server_side=True)

    refusing = asyncio.get_running_loop().run_in_executor(None, refuse)
    stream = await TlsStream.handshake(
        asyncio.get_running_loop(), ours, contexts.broker(), server_side=False, server_hostname="localhost"
    )
    with pytest.raises(TlsError, match=r"the broker refused .* alert: certificate required") as caught:
        await read(stream)
    assert caught.value.failure is TlsFailure.REFUSED
    stream.close()
    await refusing


@pytest.mark.parametrize(
    "garbage",
    [
        produce(),
        b"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
        b"\xff" * 64,
        bytes(64),
        b"\x16\x03\x01\x00\x40" + b"\xff" * 64,
    ],
    ids=["Kafka in plain text", "HTTP", "ones", "zeros", "a broken ClientHello"],
)
async def test_what_is_not_tls_is_refused_with_a_word_about_it(contexts: Contexts, garbage: bytes) -> None:
    def say(theirs: socket.socket) -> None:
        theirs.sendall(garbage)
        theirs.shutdown(socket.SHUT_WR)
        while theirs.recv(1000):
            pass

    error = await failed_handshake(contexts.server, say)
    assert isinstance(error, TlsError)
    if garbage[:1] == b"\x16":
        assert error.failure is TlsFailure.OTHER
    else:
        assert error.failure is TlsFailure.NOT_TLS
        assert "the client does not speak TLS (is its security.protocol PLAINTEXT" in str(error)


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\x00\x00\x00\x08" + bytes(8)])
async def test_a_broker_without_tls_is_told_as_that(contexts: Contexts, answer: bytes) -> None:
    def be_plain(theirs: socket.socket) -> None:
        theirs.recv(MIB)
        theirs.sendall(answer)

    error = await failed_handshake(
        contexts.broker(), be_plain, server_side=False, server_hostname="localhost"
    )
    assert isinstance(error, TlsError)
    if answer:
        assert error.failure is TlsFailure.NOT_TLS
        assert "the broker does not speak TLS on this port" in str(error)
    else:
        assert error.failure is TlsFailure.CLOSED
        assert "the broker closed the connection during the TLS handshake; is there TLS" in str(error)


async def test_a_broker_of_another_name_is_refused(contexts: Contexts) -> None:
    def serve(theirs: socket.socket) -> None:
        with pytest.raises(ssl.SSLError):
            contexts.openssl_server.wrap_socket(theirs, server_side=True)

    error = await failed_handshake(
        contexts.broker(), serve, server_side=False, server_hostname="elsewhere.example"
    )
    assert isinstance(error, TlsError)
    assert error.failure is TlsFailure.BAD_CERTIFICATE
    assert "Hostname mismatch" in str(error)


async def test_an_older_client_than_is_allowed_is_told_as_that(contexts: Contexts) -> None:
    context = ssl.create_default_context(cafile=contexts.ca_file)
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    error = await failed_handshake(contexts.server_with("none", "TLSv1.3"), shakes_hands(context))
    assert isinstance(error, TlsError)
    assert error.failure is TlsFailure.VERSION_OR_CIPHER
    assert "unsupported protocol" in str(error)


async def test_a_client_that_leaves_amid_its_handshake_is_told_as_that(contexts: Contexts) -> None:
    error = await failed_handshake(contexts.server, lambda theirs: theirs.sendall(b"\x16\x03\x01"))
    assert isinstance(error, TlsError)
    assert error.failure is TlsFailure.CLOSED
    assert str(error) == "the client closed the connection during the TLS handshake"


async def test_a_handshake_given_up_leaves_the_socket_to_its_owner_and_nothing_on_the_loop(
    contexts: Contexts,
) -> None:
    loop = asyncio.get_running_loop()
    with tcp() as (ours, theirs):
        files = open_files()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await TlsStream.handshake(loop, ours, contexts.server, server_side=True)
        assert open_files() == files
        theirs.sendall(b"still there")
        assert await loop.sock_recv(ours, 100) == b"still there"


async def test_a_handshake_takes_the_socket_over_and_neither_success_nor_failure_leaks_files(
    contexts: Contexts,
) -> None:
    async with connected(contexts.server, contexts.client):
        pass  # a thread of the executor and its files are there from now on
    files = open_files()
    for _ in range(5):
        async with connected(contexts.server, contexts.client):
            assert open_files() == files + 2
        await failed_handshake(contexts.server, lambda theirs: theirs.sendall(b"\0" * 20))
    assert open_files() == files
