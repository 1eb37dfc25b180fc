"""What a client must show before it is connected to anybody: whom a balancer speaks for, and TLS."""

from __future__ import annotations

import asyncio
import errno
import gc
import os
import socket
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from sluice.protocol.proxy_protocol import LOCAL_HEADER, SIGNATURE, build_v2
from sluice.proxy.config.limits import LimitsOptions
from sluice.proxy.runtime.error_words import words_of
from sluice.proxy.session.causes import DisconnectCause
from sluice.quotas.entity import ANONYMOUS
from testkit.frames.frames import METADATA, produce, request
from testkit.frames.wire import WITHIN_S, Wire
from testkit.peers.certificates import CertificateAuthority
from testkit.peers.fault_broker import FaultBroker, answers
from testkit.processes.ports import LOOPBACK
from testkit.proxy.local_proxy import until
from testkit.proxy.secured_proxy import SecuredProxy

pytestmark = pytest.mark.asyncio
BALANCER = {"proxy_protocol_from": ["127.0.0.0/8"]}
CLIENT = ("203.0.113.7", 4711)
HEADER = build_v2(CLIENT, ("192.0.2.1", 9092))
ASK = request(METADATA, 12, correlation_id=4)
SOON = LimitsOptions(authentication_timeout_s=0.3)


@asynccontextmanager
async def proxy_of(
    listener: dict[str, Any], **options: Any
) -> AsyncIterator[tuple[SecuredProxy, FaultBroker]]:
    async with (
        FaultBroker(answers) as broker,
        SecuredProxy(broker.port, listener=listener, **options) as proxy,
    ):
        yield proxy, broker


async def is_served(client: Wire) -> bool:
    await client.send(ASK)
    return (await client.frame())[4:8] == (4).to_bytes(4, "big")


def peers(proxy: SecuredProxy) -> set[str]:
    return {connection.peer for connection in proxy.connections}


# PROXY protocol v2 ------------------------------------------------------------------------------------------


async def test_a_header_from_a_trusted_network_tells_the_client() -> None:
    async with proxy_of(BALANCER) as (proxy, broker):
        with await proxy.client() as client:
            await client.send(HEADER)
            assert await is_served(client)
            assert peers(proxy) == {"203.0.113.7:4711"}
        assert (await proxy.end()).peer == "203.0.113.7:4711"
        assert len(broker.clients) == 1


@pytest.mark.parametrize("piece_bytes", [1, 7, 16, 10_000])
async def test_what_follows_the_header_is_the_clients_however_it_is_cut(piece_bytes: int) -> None:
    with_tlv = SIGNATURE + b"\x21\x11\x00\x13" + HEADER[16:] + b"\x04\x00\x04abcd"
    for header in (HEADER, with_tlv):
        async with proxy_of(BALANCER) as (proxy, _):
            with await proxy.client() as client:
                await client.send_in_pieces(header + ASK, piece_bytes)
                assert (await client.frame())[4:8] == (4).to_bytes(4, "big")
                assert peers(proxy) == {"203.0.113.7:4711"}


async def test_a_header_that_names_nobody_leaves_the_balancer_as_the_client() -> None:
    async with proxy_of(BALANCER) as (proxy, _):
        with await proxy.client() as client:
            await client.send(LOCAL_HEADER)
            assert await is_served(client)
            assert {peer.rpartition(":")[0] for peer in peers(proxy)} == {LOOPBACK}


async def test_the_limit_of_an_address_is_that_of_the_clients_behind_the_balancer() -> None:
    limits = LimitsOptions(max_connections_per_ip=1)
    async with proxy_of(BALANCER, connections=limits) as (proxy, broker):
        clients = [await proxy.client() for _ in range(3)]
        try:
            for client, last in zip(clients, (7, 8, 7), strict=True):
                await client.send(build_v2((f"203.0.113.{last}", 4711), ("192.0.2.1", 9092)))
                if client is not clients[2]:
                    assert await is_served(client)
            assert await clients[2].end() == "closed"
            assert (await proxy.end()).cause is DisconnectCause.TOO_MANY_CONNECTIONS_OF_ADDRESS
            assert (await proxy.end()).peer == "203.0.113.7:4711"
            assert len(broker.clients) == 2, "who is refused costs no dial"
        finally:
            for client in clients:
                client.close()


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        (ASK, "no PROXY v2 header, though this address is in proxy_protocol_from"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(20), "but a TLS handshake"),
        (b"PROXY TCP4 203.0.113.7 192.0.2.1 4711 9092\r\n", "set the sender to v2"),
        (SIGNATURE + b"\x31\x11\x00\x0c" + bytes(12), "version 3"),
        (SIGNATURE + b"\x21\x11\xff\xff" + bytes(12), "65535 bytes"),
        (SIGNATURE + b"\x21\x11\x00\x02" + bytes(2), "its addresses need 12"),
    ],
)
async def test_who_should_send_a_header_and_does_not_is_refused_in_words(sent: bytes, said: str) -> None:
    async with proxy_of(BALANCER) as (proxy, broker):
        with await proxy.client() as client:
            await client.send(sent)
            assert await client.end() == "closed"
        end = await proxy.end()
        assert end.cause is DisconnectCause.PROXY_PROTOCOL
        assert said in end.detail
        assert not broker.clients


async def test_from_others_no_header_is_read() -> None:
    """A client cannot say that it is somebody else: its header is a frame that cannot be."""
    async with proxy_of({"proxy_protocol_from": ["10.0.0.0/8", "2001:db8::/32"]}) as (proxy, _):
        with await proxy.client() as client:
            assert await is_served(client)
        with await proxy.client() as client:
            await client.send(HEADER + ASK)
            assert await client.end() == "closed"
        end = await proxy.end(2)
        assert end.cause is DisconnectCause.FRAME_TOO_LARGE
        assert end.peer.startswith(LOOPBACK)


@pytest.mark.parametrize("sent", [b"", SIGNATURE[:5], SIGNATURE + b"\x21\x11\x00\x0c", HEADER[:-1]])
async def test_a_header_that_does_not_come_is_waited_for_no_longer_than_a_login(sent: bytes) -> None:
    async with proxy_of(BALANCER, connections=SOON) as (proxy, broker):
        with await proxy.client() as client:
            await client.send(sent)
            assert await client.end() == "closed"
        assert (await proxy.end()).cause is DisconnectCause.AUTHENTICATION_TIMEOUT
        assert not broker.clients


async def test_a_balancer_that_leaves_before_its_header_leaves_nothing_behind() -> None:
    async with proxy_of(BALANCER, connections=LimitsOptions(max_connections=1)) as (proxy, _):
        for number in range(3):
            with await proxy.client() as client:
                await client.send(HEADER[:20])
            assert (await proxy.end(number + 1)).cause is DisconnectCause.CLIENT_RESET
        with await proxy.client() as client:
            await client.send(HEADER)
            assert await is_served(client), "its place is free again"


# TLS --------------------------------------------------------------------------------------------------------


class Files:
    """An authority, a server's certificate, and a listener's options with them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authority = CertificateAuthority()
        self.ca_file = self.authority.write(folder)
        self.server = self.authority.server().write(folder, "server")

    def listener(self, client_auth: str = "none", rules: str = "DEFAULT") -> dict[str, Any]:
        tls: dict[str, Any] = {
            "certificate_file": str(self.server.certificate),
            "key_file": str(self.server.key),
            "client_auth": client_auth,
            "principal_mapping_rules": rules,
        }
        if client_auth != "none":
            tls["client_ca_file"] = str(self.ca_file)
        return {"security_protocol": "SSL", "tls": tls, "accept_shared_upstream_identity": True}

    def client(
        self, subject: str | None = None, authority: CertificateAuthority | None = None
    ) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=str(self.ca_file))
        if subject is not None:
            files = (authority or self.authority).client(subject).write(self.folder, "client")
            context.load_cert_chain(files.certificate, files.key)
        return context


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


async def secured(
    proxy: SecuredProxy, context: ssl.SSLContext, before: bytes = b""
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A client's TLS; `before` goes ahead of it."""
    plain = await proxy.client()
    await plain.send(before)
    async with asyncio.timeout(WITHIN_S):
        return await asyncio.open_connection(sock=plain.sock, ssl=context, server_hostname=LOOPBACK)


async def answer_to(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
    """To one request; empty if there is none for good."""
    async with asyncio.timeout(WITHIN_S):
        try:
            writer.write(ASK)
            return await reader.readexactly(8)
        except (OSError, asyncio.IncompleteReadError):
            return b""


async def test_a_header_stands_before_the_handshake(files: Files) -> None:
    async with proxy_of(files.listener() | BALANCER) as (proxy, _):
        reader, writer = await secured(proxy, files.client(), HEADER)
        assert await answer_to(reader, writer)
        assert peers(proxy) == {"203.0.113.7:4711"}
        writer.transport.abort()


@pytest.mark.parametrize(
    ("subject", "rules", "user"),
    [
        ("CN=alice,OU=Payments", "DEFAULT", "CN=alice,OU=Payments"),
        ("CN=alice,OU=Payments", "RULE:^CN=(.*?),.*$/$1/U", "ALICE"),
        ("CN=alice,OU=Payments", "RULE:^CN=bob.*$/bob/, RULE:^.*OU=(.*)$/of-$1/L", "of-payments"),
    ],
)
async def test_the_certificate_names_the_user_by_the_rules(
    files: Files, subject: str, rules: str, user: str
) -> None:
    async with proxy_of(files.listener("required", rules)) as (proxy, _):
        reader, writer = await secured(proxy, files.client(subject))
        assert await answer_to(reader, writer)
        assert [connection.session.user for connection in proxy.connections] == [user]
        writer.transport.abort()


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_a_session_does_not_outlive_the_certificate_that_began_it(
    files: Files, version: ssl.TLSVersion
) -> None:
    """Resumed, OpenSSL does not look at the certificate again."""
    identity = files.authority.client("CN=alice", ends_in_days=3.0 / 86_400.0)
    context = ssl.create_default_context(cafile=str(files.ca_file))
    context.maximum_version = version
    written = identity.write(files.folder, "short")
    context.load_cert_chain(written.certificate, written.key)

    def ask(session: ssl.SSLSession | None) -> tuple[bytes, ssl.SSLSession | None, bool]:
        with (
            socket.create_connection((LOOPBACK, proxy.listener.port), WITHIN_S) as plain,
            context.wrap_socket(plain, server_hostname=LOOPBACK, session=session) as own,
        ):
            own.sendall(ASK)
            try:
                answer = own.recv(8)
            except OSError:
                answer = b""
            return answer, own.session, own.session_reused is True

    async with proxy_of(files.listener("required")) as (proxy, _):
        answer, session, _ = await asyncio.to_thread(ask, None)
        assert answer
        answer, session, is_resumed = await asyncio.to_thread(ask, session)
        assert (bool(answer), is_resumed) == (True, True)
        await asyncio.sleep(max(0.0, identity.not_after.timestamp() - time.time()) + 1.0)
        answer, _, is_resumed = await asyncio.to_thread(ask, session)
        assert (answer, is_resumed) == (b"", True)
        end = await proxy.end(3)
        assert (end.cause, "it has ended" in end.detail) == (DisconnectCause.TLS_FAILED, True)


async def test_who_was_only_requested_to_may_come_without_a_certificate_as_nobody(files: Files) -> None:
    async with proxy_of(files.listener("requested")) as (proxy, _):
        for subject, user in ((None, ANONYMOUS), ("CN=alice", "CN=alice")):
            reader, writer = await secured(proxy, files.client(subject))
            assert await answer_to(reader, writer)
            assert [connection.session.user for connection in proxy.connections] == [user]
            writer.transport.abort()
            await until(lambda: not proxy.connections)
        reader, writer = await secured(proxy, files.client("CN=alice", CertificateAuthority()))
        assert not await answer_to(reader, writer), "but not with a bad one"
        assert (await proxy.end(3)).cause is DisconnectCause.TLS_FAILED


@pytest.mark.parametrize(
    ("subject", "rules", "said"),
    [
        ("CN=bob", "RULE:^CN=alice$/alice/", "CN=bob"),
        ("CN=bob", "RULE:^.*$/<unknown>/", "reserved"),
        ("CN=bob", "RULE:^.*$/<delegation-token>/", "reserved"),
    ],
)
async def test_a_certificate_that_makes_no_user_is_refused(
    files: Files, subject: str, rules: str, said: str
) -> None:
    """No rule fits, or the name is one that others share."""
    async with proxy_of(files.listener("required", rules)) as (proxy, broker):
        reader, writer = await secured(proxy, files.client(subject))
        assert not await answer_to(reader, writer)
        end = await proxy.end()
        assert end.cause is DisconnectCause.TLS_FAILED
        assert said in end.detail
        assert not broker.clients


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE])
async def test_want_of_descriptors_for_a_handshake_is_not_told_as_the_clients_fault(
    files: Files, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none_left(_sock: socket.socket) -> socket.socket:
        raise OSError(number, os.strerror(number))

    async with proxy_of(files.listener()) as (proxy, _):
        monkeypatch.setattr(socket.socket, "dup", none_left)
        with await proxy.client() as client:
            assert await client.end() == "closed"
        end = await proxy.end()
        assert end.cause is DisconnectCause.OUT_OF_FILE_DESCRIPTORS
        assert end.detail == words_of(OSError(number, os.strerror(number)))


@pytest.mark.parametrize("sent", [b"", b"\x16\x03\x01\x02\x00\x01"])
async def test_a_handshake_that_does_not_go_on_is_waited_for_no_longer_than_a_login(
    files: Files, sent: bytes
) -> None:
    async with proxy_of(files.listener(), connections=SOON) as (proxy, broker):
        with await proxy.client() as client:
            await client.send(sent)
            assert await client.end() == "closed"
        assert (await proxy.end()).cause is DisconnectCause.AUTHENTICATION_TIMEOUT
        assert not broker.clients


async def test_slow_and_broken_handshakes_keep_no_place_and_hold_up_nobody(files: Files) -> None:
    limits = LimitsOptions(authentication_timeout_s=1.0, max_connections=40)
    async with proxy_of(files.listener(), connections=limits) as (proxy, _):
        silent = [await proxy.client() for _ in range(20)]
        garbage = [await proxy.client() for _ in range(15)]
        for client in garbage:
            await client.send(produce())
        reader, writer = await secured(proxy, files.client())
        assert await answer_to(reader, writer)
        await until(lambda: len(proxy.ended) == 35)
        causes = [end.cause for end in proxy.ended]
        assert causes.count(DisconnectCause.TLS_FAILED) == 15
        assert causes.count(DisconnectCause.AUTHENTICATION_TIMEOUT) == 20
        more = [await secured(proxy, files.client()) for _ in range(39)]
        assert all([await answer_to(*client) for client in more]), "all places are free again"
        for _, each in (*more, (reader, writer)):
            each.transport.abort()
        for client in (*silent, *garbage):
            client.close()


@pytest.mark.parametrize("rounds", range(5))
async def test_who_arrives_while_the_listener_stops_is_closed_however_far_it_came(rounds: int) -> None:
    """Also who was accepted in that round: a task that is cancelled before its first step runs nothing."""
    async with proxy_of(BALANCER) as (proxy, _):
        accepted_soon = socket.create_connection((LOOPBACK, proxy.listener.port))
        with Wire(accepted_soon) as client:
            for _ in range(rounds):
                await asyncio.sleep(0)
            proxy.listener.stop()
            assert (await client.rest())[0] == b""
            gc.collect()  # a socket that nobody closed would be closed now, with a warning
        assert proxy.gauges.connections == 0
