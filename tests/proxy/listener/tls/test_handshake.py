"""TLS handshakes: who is known by them, who is refused and in which words, and what they leave behind."""

from __future__ import annotations

import asyncio
import socket
import ssl
import sys
from contextlib import suppress

import pytest

from sluice.proxy.listener.tls.error import TlsError, TlsFailure
from sluice.proxy.listener.tls.stream import TlsStream
from testkit.frames.frames import produce
from testkit.peers.certificates import CertificateAuthority, Identity
from testkit.peers.tls_peers import (
    ALICE,
    AUTHORITY,
    MIB,
    Contexts,
    connected,
    failed_handshake,
    open_files,
    read,
    server_tls,
    shakes_hands,
    tcp,
    tcp_pair,
)

pytestmark = pytest.mark.asyncio


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
    tls = server_tls(contexts.folder)
    async with connected(tls.context, contexts.client) as (stream, _):
        assert stream.server_name is None
    bad = hello_with_a_bad_name(contexts)

    def say(theirs: socket.socket) -> None:
        theirs.sendall(bad)
        theirs.shutdown(socket.SHUT_WR)
        while theirs.recv(65_536):  # an answer to who has gone altogether would be met by a reset
            pass

    error = await failed_handshake(tls.context, say)
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
