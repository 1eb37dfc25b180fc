"""Errors in words, whoever raised them."""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl

import pytest
import uvloop
from aiokafka.errors import KafkaConnectionError

from sluice.proxy.listener.tls.error import TlsError, TlsFailure
from sluice.proxy.runtime.error_words import reason_of, words_of
from testkit.processes.ports import LOOPBACK, free_port


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (ConnectionRefusedError(errno.ECONNREFUSED, "Connect call failed ('::1', 1)"), "connection refused"),
        (OSError(errno.EHOSTUNREACH, "No route to host"), "no route to host"),
        (socket.gaierror(socket.EAI_NONAME, "Name or service not known"), "name or service not known"),
        (OSError("no address for Kafka"), "no address for Kafka"),
        (TlsError(TlsFailure.CLOSED, "the broker closed the connection"), "the broker closed the connection"),
        (ssl.SSLError(ssl.SSL_ERROR_SSL, "wrong version number"), "wrong version number"),
        (TimeoutError(), "timed out"),
        (TimeoutError(errno.ETIMEDOUT, "Connection timed out"), "connection timed out"),
        (ValueError("no credentials for 'Bob'"), "no credentials for 'Bob'"),
    ],
)
def test_an_error_is_told_in_words(error: Exception, words: str) -> None:
    assert words_of(error) == words


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_both_event_loops_errors_are_told_alike(new_loop: type[asyncio.AbstractEventLoop]) -> None:
    async def refused() -> str:
        loop = asyncio.get_running_loop()
        with socket.socket() as sock:
            sock.setblocking(False)
            try:
                await loop.sock_connect(sock, (LOOPBACK, free_port()))
            except OSError as error:
                return words_of(error)
        raise AssertionError("it took the connection")

    async def unknown() -> str:
        try:
            await asyncio.get_running_loop().getaddrinfo("nobody.invalid", 9092)
        except OSError as error:
            return words_of(error)
        raise AssertionError("there is such a host")

    with asyncio.Runner(loop_factory=new_loop) as runner:
        assert runner.run(refused()) == "connection refused"
        words = runner.run(unknown())
        assert words == words.lower()
        assert "errno" not in words


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (
            KafkaConnectionError("Unable to bootstrap from [('127.0.0.1', 1, <AddressFamily.AF_INET: 2>)]"),
            "KafkaConnectionError: Unable to bootstrap from [127.0.0.1:1]",
        ),
        (
            ConnectionRefusedError(111, "Connect call failed ('127.0.0.1', 1)"),
            "ConnectionRefusedError: connection refused",
        ),
        (ValueError("of the kind"), "ValueError: of the kind"),
        (ValueError(), "ValueError"),
    ],
)
def test_a_reason_has_its_kind_once_and_no_python(error: Exception, told: str) -> None:
    assert reason_of(error) == told
