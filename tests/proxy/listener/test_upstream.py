"""The way to a broker: the PROXY header that goes ahead, TLS, the proxy's own login, and what fails on it."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from sluice.protocol.proxy_protocol import LOCAL_HEADER, ProxyHeader, build_v2, parse_v2
from sluice.proxy.config.listener import ListenerOptions
from sluice.proxy.connection.undialled import NotConnected
from sluice.proxy.listener.circuit import Circuits
from sluice.proxy.listener.upstream import Upstream
from sluice.proxy.session.causes import DisconnectCause
from testkit.frames.frames import (
    METADATA,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    answer,
    decoded,
    produce,
    request,
)
from testkit.frames.wire import WITHIN_S, Wire
from testkit.peers.certificates import CertificateAuthority, IdentityFiles
from testkit.peers.fault_broker import BrokerSide, FaultBroker, answer_to, answers
from testkit.processes.ports import LOOPBACK, free_port
from testkit.proxy.secured_proxy import SecuredProxy, credentials_file

pytestmark = pytest.mark.asyncio
ASK = request(METADATA, 12, correlation_id=4)


async def is_served(client: Wire) -> bool:
    await client.send(ASK)
    return (await client.frame())[4:8] == (4).to_bytes(4, "big")


# PROXY protocol v2 ------------------------------------------------------------------------------------------


class Told(list[ProxyHeader]):
    """A broker that reads a header before everything else, and keeps what it said."""

    async def __call__(self, client: BrokerSide) -> None:
        head = await client.read(16)
        head += await client.read(int.from_bytes(head[14:16], "big"))
        header = parse_v2(head, 0, len(head))
        assert header is not None
        assert header.end == len(head)
        self.append(header)
        await answers(client)


async def test_the_broker_is_told_who_connected_to_what() -> None:
    told = Told()
    async with (
        FaultBroker(told) as broker,
        SecuredProxy(broker.port, listener={"upstream_proxy_protocol": True}) as proxy,
    ):
        with await proxy.client() as client:
            assert await is_served(client)
            assert told[0].source == client.sock.getsockname()
            assert told[0].destination == (LOOPBACK, proxy.listener.port)


@pytest.mark.parametrize("source", ["203.0.113.7", "2001:db8::7"])
async def test_what_a_balancer_said_is_passed_on(source: str) -> None:
    told = Told()
    options = {"upstream_proxy_protocol": True, "proxy_protocol_from": ["127.0.0.1/32"]}
    async with (
        FaultBroker(told) as broker,
        SecuredProxy(broker.port, listener=options) as proxy,
    ):
        with await proxy.client() as client:
            await client.send(build_v2((source, 4711), ("2001:db8::1", 9092)))
            assert await is_served(client)
    assert told == [ProxyHeader((source, 4711), ("2001:db8::1", 9092), 52)]  # type: ignore[arg-type]


async def test_for_itself_the_proxy_names_nobody() -> None:
    found: asyncio.Queue[bytes] = asyncio.Queue()

    async def reads(client: BrokerSide) -> None:
        found.put_nowait(await client.read(len(LOCAL_HEADER)))

    async with FaultBroker(reads) as broker:
        options = ListenerOptions(
            name="x", bind_port=0, upstream_host="x", upstream_port=1, upstream_proxy_protocol=True
        )
        upstream = Upstream(asyncio.get_running_loop(), options, Circuits(), dial_timeout_s=5.0)
        there = await upstream.connect(lambda: [(LOOPBACK, broker.port)], None, None)
        async with asyncio.timeout(WITHIN_S):
            assert await found.get() == LOCAL_HEADER
        there.stream.close()


# TLS --------------------------------------------------------------------------------------------------------


class TlsBroker:
    """Answers every request, in TLS, behind a PROXY header if there must be one."""

    def __init__(self, identity: IdentityFiles, ca_file: Path | None = None, *, header: bool = False) -> None:
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(identity.certificate, identity.key)
        if ca_file is not None:
            self.context.verify_mode = ssl.CERT_REQUIRED
            self.context.load_verify_locations(ca_file)
        self.header = header
        self.names: list[str | None] = []
        self.subjects: list[object] = []
        self.headers: list[bytes] = []
        self.context.sni_callback = lambda _sock, name, _context: self.names.append(name)

    async def __call__(self, client: BrokerSide) -> None:
        loop = asyncio.get_running_loop()
        if self.header:
            self.headers.append(await loop.sock_recv(client.sock, 28))  # and nothing of what follows
        reader = asyncio.StreamReader()
        protocol = asyncio.StreamReaderProtocol(reader)
        try:
            transport, _ = await loop.connect_accepted_socket(
                lambda: protocol, client.sock.dup(), ssl=self.context
            )
        except OSError:
            return  # the other side does not like the certificate
        writer = asyncio.StreamWriter(transport, protocol, reader, loop)
        self.subjects.append(writer.get_extra_info("peercert"))
        try:
            while True:
                size = await reader.readexactly(4)
                frame = size + await reader.readexactly(int.from_bytes(size, "big"))
                writer.write(answer(METADATA, 12, correlation_id=int.from_bytes(frame[8:12], "big")))
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            transport.abort()


class Files:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authority = CertificateAuthority()
        self.ca_file = self.authority.write(folder)

    def broker(self, *hosts: str) -> IdentityFiles:
        return self.authority.server(*hosts).write(self.folder, "broker")


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


def to_tls(**upstream_tls: Any) -> dict[str, Any]:
    return {
        "upstream_security_protocol": "SSL",
        "upstream_tls": upstream_tls,
        "accept_shared_upstream_identity": True,
    }


@asynccontextmanager
async def tls_rig(behaviour: TlsBroker, listener: dict[str, Any]) -> AsyncIterator[SecuredProxy]:
    async with FaultBroker(behaviour) as broker, SecuredProxy(broker.port, listener=listener) as proxy:
        yield proxy


async def test_the_header_goes_ahead_of_the_handshake(files: Files) -> None:
    behaviour = TlsBroker(files.broker(), header=True)
    listener = to_tls(ca_file=str(files.ca_file)) | {"upstream_proxy_protocol": True}
    async with tls_rig(behaviour, listener) as proxy:
        with await proxy.client() as client:
            assert await is_served(client)
            header = parse_v2(behaviour.headers[0], 0, 28)
            assert header is not None
            assert header.source == client.sock.getsockname()


async def test_the_broker_sees_the_proxys_certificate_and_the_name_that_it_was_given(files: Files) -> None:
    behaviour = TlsBroker(files.broker("kafka.test"), files.ca_file)
    ours = files.authority.client("CN=sluice").write(files.folder, "ours")
    listener = to_tls(
        ca_file=str(files.ca_file),
        server_name="kafka.test",
        certificate_file=str(ours.certificate),
        key_file=str(ours.key),
    )
    async with tls_rig(behaviour, listener) as proxy:
        with await proxy.client() as client:
            assert await is_served(client)
    assert behaviour.names == ["kafka.test"]
    assert "sluice" in str(behaviour.subjects[0])


@pytest.mark.parametrize(
    ("hosts", "upstream_tls", "foreign", "said"),
    [
        (("kafka.test",), {}, False, "mismatch"),
        ((), {}, True, "certificate"),
        (("kafka.test",), {"verify_hostname": False}, True, "certificate"),
    ],
    ids=["another name", "another authority", "any name, but not any authority"],
)
async def test_a_broker_that_is_not_who_it_should_be_is_not_spoken_to_and_the_log_says_why_once(
    files: Files, hosts: tuple[str, ...], upstream_tls: dict[str, Any], foreign: bool, said: str
) -> None:
    trusted = CertificateAuthority().write(files.folder, "other") if foreign else files.ca_file
    listener = to_tls(ca_file=str(trusted), **upstream_tls)
    with capture_logs() as lines:
        async with tls_rig(TlsBroker(files.broker(*hosts)), listener) as proxy:
            for _ in range(3):
                with await proxy.client() as client:
                    await client.send(produce())
                    assert await client.end() == "closed"
            assert [end.cause for end in proxy.ended] == [DisconnectCause.UPSTREAM_UNREACHABLE] * 3
    (line,) = [line for line in lines if line["event"] == "upstream_unreachable"]
    assert said in line["reason"]


async def test_any_name_will_do_if_that_is_said(files: Files) -> None:
    listener = to_tls(ca_file=str(files.ca_file), verify_hostname=False)
    async with tls_rig(TlsBroker(files.broker("kafka.test")), listener) as proxy:
        with await proxy.client() as client:
            assert await is_served(client)


async def test_silence_in_the_handshake_is_told_with_the_client_and_no_other_is_refused() -> None:
    async with (
        FaultBroker(answers) as broker,  # without TLS, it waits for the rest of what it takes for a frame
        SecuredProxy(broker.port, listener=to_tls(), dial_timeout_s=0.2, dial_total_s=0.5) as proxy,
    ):
        with await proxy.client() as client:
            await client.send(produce())
            assert await client.end() == "closed"
        end = await proxy.end()
        assert end.cause is DisconnectCause.UPSTREAM_UNREACHABLE
        assert end.detail.startswith(f"127.0.0.1:{broker.port}: no answer to the TLS handshake in time")
        assert len(broker.clients) > 1  # it was tried again


# The proxy's login ------------------------------------------------------------------------------------------


class LoginBroker:
    """PLAIN; who says `wrong` is refused."""

    def __init__(self) -> None:
        self.tokens: list[str] = []

    async def __call__(self, client: BrokerSide) -> None:
        while True:
            asked = await client.request()
            if asked.api_key == SASL_HANDSHAKE:
                await client.send(answer(SASL_HANDSHAKE, 1, correlation_id=asked.correlation_id))
            elif asked.api_key == SASL_AUTHENTICATE:
                body = decoded("request", SASL_AUTHENTICATE, 2, asked.frame).body
                self.tokens.append(bytes.fromhex(str(body["authBytes"])).decode())
                error = 58 if self.tokens[-1].endswith("\0wrong") else 0
                await client.send(
                    answer(SASL_AUTHENTICATE, 2, {"errorCode": error}, correlation_id=asked.correlation_id)
                )
                if error:
                    return
            else:
                await client.send(answer_to(asked))


def logs_in(folder: Path, text: str) -> dict[str, Any]:
    return {
        "upstream_security_protocol": "SASL_PLAINTEXT",
        "upstream_sasl": {"mechanism": "PLAIN", "credentials_file": credentials_file(folder, text)},
        "accept_shared_upstream_identity": True,
    }


SERVICE = "service: {username: sluice, password: secret}"


async def test_nothing_of_the_client_goes_before_the_login(tmp_path: Path) -> None:
    behaviour = LoginBroker()
    async with (
        FaultBroker(behaviour) as broker,
        SecuredProxy(broker.port, listener=logs_in(tmp_path, SERVICE)) as proxy,
    ):
        with await proxy.client() as client:
            await client.send(ASK * 3)
            for _ in range(3):
                assert (await client.frame())[4:8] == (4).to_bytes(4, "big")
    assert behaviour.tokens == ["\0sluice\0secret"]


async def test_a_refused_login_ends_that_client_alone_and_the_broker_is_dialled_on(tmp_path: Path) -> None:
    """One user's bad credentials are not the broker's fault."""
    behaviour = LoginBroker()
    with capture_logs() as lines:
        async with (
            FaultBroker(behaviour) as broker,
            SecuredProxy(broker.port, listener=logs_in(tmp_path, SERVICE)) as proxy,
        ):
            credentials = proxy.security.credentials
            assert credentials is not None
            for password in ("wrong", "right"):
                credentials_file(tmp_path, f"service: {{username: sluice, password: {password}}}")
                assert credentials.reload_if_changed(time.time() + 10.0) is not None
                for _ in range(3):
                    with await proxy.client() as client:
                        if password == "right":
                            assert await is_served(client)
                        else:
                            await client.send(produce())
                            assert await client.end() == "closed"
            ends = [end for end in proxy.ended if end.cause is DisconnectCause.UPSTREAM_LOGIN_FAILED]
            assert len(ends) == 3
            assert all(
                f"{LOOPBACK}:{broker.port}: PLAIN login at the broker: refused" in end.detail for end in ends
            )
    assert not [line for line in lines if line["event"] == "upstream_unreachable"]


async def says_nothing(client: BrokerSide) -> None:
    while True:
        await client.request()


async def leaves(client: BrokerSide) -> None:
    await client.request()


async def talks_nonsense(client: BrokerSide) -> None:
    await client.request()
    await client.send(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    await says_nothing(client)


@pytest.mark.parametrize(
    ("behaviour", "said"),
    [(says_nothing, "timed out"), (leaves, "closed the connection"), (talks_nonsense, "an answer of")],
)
async def test_a_login_that_gets_no_answer_ends_in_time_and_in_words(
    tmp_path: Path, behaviour: Any, said: str
) -> None:
    async with (
        FaultBroker(behaviour) as broker,
        SecuredProxy(broker.port, listener=logs_in(tmp_path, SERVICE), dial_timeout_s=0.5) as proxy,
    ):
        with await proxy.client() as client:
            await client.send(ASK)
            assert await client.end() == "closed"
        end = await proxy.end()
        assert end.cause is DisconnectCause.UPSTREAM_LOGIN_FAILED
        assert said in end.detail
        assert "secret" not in end.detail


# Several addresses ------------------------------------------------------------------------------------------


async def test_the_first_address_that_can_be_had_is_taken_and_a_dead_one_is_not_asked_again_at_once() -> None:
    async with FaultBroker(answers) as broker:
        circuits, dead, good = Circuits(), (LOOPBACK, free_port()), (LOOPBACK, broker.port)
        options = ListenerOptions(name="x", bind_port=0, upstream_host="x", upstream_port=1)
        upstream = Upstream(asyncio.get_running_loop(), options, circuits, dial_timeout_s=5.0)
        for _ in range(3):
            found = await upstream.connect(lambda: [dead, good], None, None)
            assert found.address == good
            found.stream.close()
        assert circuits.of(dead).failures == 1
        with pytest.raises(NotConnected) as refused:
            await upstream.connect(lambda: [dead], None, None)
        assert refused.value.cause is DisconnectCause.UPSTREAM_UNREACHABLE
