"""Real OpenSSL peers in threads, which know nothing of the code under test, and the files of both sides."""

from __future__ import annotations

import _ssl
import asyncio
import ctypes
import os
import socket
import ssl
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from random import Random

import pytest

from sluice.proxy.listener.tls.context import ClientTls, MinVersion, ServerTls
from sluice.proxy.listener.tls.stream import TlsStream
from testkit.frames.wire import WITHIN_S
from testkit.peers.certificates import CertificateAuthority, Identity

MIB = 1024 * 1024
_UPDATE_REQUESTED = 1
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
        for peer in (self.client, self.openssl_server):
            # Python up to 3.11.3 asks OpenSSL to take an end without close_notify for one with it.
            peer.options &= ~ssl.OP_IGNORE_UNEXPECTED_EOF

    def server_with(self, client_auth: str, min_version: MinVersion = "TLSv1.2") -> ssl.SSLContext:
        tls = ServerTls(
            certificate_file=self.folder / "server.crt",
            key_file=self.folder / "server.key",
            client_ca_file=self.ca_file if client_auth != "none" else None,
            client_auth=client_auth,  # type: ignore[arg-type]
            min_version=min_version,
            server_names=True,
        )
        tls.load(time.time())
        return tls.context

    def client_as(self, identity: Identity) -> ssl.SSLContext:
        files = identity.write(self.folder, "client")
        context = ssl.create_default_context(cafile=self.ca_file)
        context.load_cert_chain(files.certificate, files.key)
        return context

    def broker(self) -> ssl.SSLContext:
        tls = ClientTls(ca_file=self.ca_file)
        tls.load(time.time())
        return tls.context


def server_tls(folder: Path) -> ServerTls:
    """A listener's, of the files that Contexts has written there."""
    tls = ServerTls(certificate_file=folder / "server.crt", key_file=folder / "server.key")
    tls.load(time.time())
    return tls


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


def ask_for_new_keys(tls: ssl.SSLSocket) -> None:
    """By the next record (KeyUpdate with update_requested), for which Python has no function."""
    openssl = ctypes.CDLL(getattr(_ssl, "__file__", None))
    openssl.SSL_key_update.argtypes = [ctypes.c_void_p, ctypes.c_int]
    made = tls._sslobj  # type: ignore[attr-defined]
    tls_at = ctypes.c_void_p.from_address(id(made) + 3 * ctypes.sizeof(ctypes.c_void_p))
    assert openssl.SSL_key_update(tls_at, _UPDATE_REQUESTED) == 1


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))
