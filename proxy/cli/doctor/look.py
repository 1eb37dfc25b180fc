"""Facts for `sluice doctor`: ports, limits of the machine, answers of brokers. Blocking."""

from __future__ import annotations

import ctypes
import errno
import socket
import ssl
import threading
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from itertools import islice
from pathlib import Path
from time import monotonic
from typing import Final, TypeAlias

from sluice.protocol.addresses.metadata_poll import brokers_of, metadata_request
from sluice.protocol.api_versions import api_versions_request
from sluice.protocol.apis import API_VERSIONS, PRODUCE, SASL_HANDSHAKE, ErrorCode
from sluice.protocol.codec.codec import DecodedFrame, decode_frame, encode_frame
from sluice.protocol.codec.wire import Struct
from sluice.protocol.errors import ProtocolError
from sluice.proxy.cli.doctor.judge import Endpoint
from sluice.proxy.cli.options import in_words
from sluice.proxy.cli.receive import log_in, receive_exactly
from sluice.proxy.listener.accept_port import bound
from sluice.proxy.listener.login.credential_entries import Credentials
from sluice.proxy.listener.tls.blocking import shaken_hands
from sluice.proxy.listener.tls.error import TlsError, explained
from sluice.proxy.runtime.listening import UNRESOLVED, is_unresolved

TIMEOUT_S: Final = 5.0
_MAX_ANSWER_BYTES: Final = 1024 * 1024
_MOST_NAMES: Final = 64
"""that are looked up: a cluster tells its brokers' names, which may be any number"""
_CLIENT_ID: Final = "sluice-doctor"
_SOMAXCONN: Final = Path("/proc/sys/net/core/somaxconn")
_STA_UNSYNC: Final = 0x40
_TIMEX_BYTES: Final = 256  # struct timex is 208 bytes
_STATUS_AT: Final = 40  # modes, offset, freq, maxerror, esterror, status: on 64-bit machines


class NoAnswer(Exception):
    """What was asked gave none. Says why."""


def why_not_bound(host: str, port: int) -> str:
    """Why no server could listen there now; empty: it could. By the server's own means."""
    try:
        bound(host, port).close()
    except OSError as error:
        if is_unresolved(error):
            return UNRESOLVED
        return "taken by another program" if error.errno == errno.EADDRINUSE else _why(error)
    return ""


def addresses_of(host: str) -> list[str]:
    """What a name leads to from here. Raises NoAnswer."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise NoAnswer(_why(error) if isinstance(error, OSError) else "is no host name") from None
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


def resolved(hosts: Iterable[str], within_s: float = TIMEOUT_S) -> dict[str, frozenset[str]]:
    """What names lead to from here; those that lead nowhere in this time are left out.

    All are asked at once, each in a thread, as nothing else bounds a resolver's time: 64 of them at most.
    """
    found: dict[str, frozenset[str]] = {}

    def look_up(host: str) -> None:
        with suppress(NoAnswer):
            found[host] = frozenset(addresses_of(host))

    names = islice(dict.fromkeys(hosts), _MOST_NAMES)
    threads = [threading.Thread(target=look_up, args=(host,), daemon=True) for host in names]
    for thread in threads:
        thread.start()
    end_s = monotonic() + within_s
    for thread in threads:
        thread.join(max(0.0, end_s - monotonic()))
    return dict(found)


def somaxconn() -> int | None:
    """None: it is not told here."""
    with suppress(OSError, ValueError):
        return int(_SOMAXCONN.read_text(encoding="ascii"))
    return None


def is_clock_synchronised() -> bool | None:
    """As the kernel has it (adjtimex); None: it does not tell."""
    if ctypes.sizeof(ctypes.c_long) != 8:
        return None
    timex = ctypes.create_string_buffer(_TIMEX_BYTES)
    try:
        if ctypes.CDLL(None).adjtimex(timex) < 0:
            return None
    except (AttributeError, OSError):
        return None
    status = int.from_bytes(timex.raw[_STATUS_AT : _STATUS_AT + 4], "little", signed=True)
    return not status & _STA_UNSYNC


Connected: TypeAlias = "AbstractContextManager[BrokerLine]"


class BrokerLine:
    """A connection to a broker."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock

    def newest_produce(self) -> int | None:
        """The newest version of Produce that it offers; None: none. Raises NoAnswer."""
        frame = self._ask(api_versions_request(1, _CLIENT_ID))
        try:
            body = decode_frame("response", API_VERSIONS, 0, frame[4:]).body
        except ProtocolError as error:
            raise NoAnswer(f"its answer is none of Kafka's: {error}") from None
        keys = body["apiKeys"]
        assert isinstance(keys, list)
        versions = [key["maxVersion"] for key in keys if isinstance(key, dict) and key["apiKey"] == PRODUCE]
        return int(str(versions[0])) if versions else None

    def has_sasl(self, mechanism: str) -> bool | None:
        """Whether its listener wants a login, by its answer to a SaslHandshake; None: that does not tell.

        The connection is of no more use.
        """
        try:
            frame = self._ask(_handshake_request(mechanism))
            error_code = decode_frame("response", SASL_HANDSHAKE, 1, frame[4:]).body["errorCode"]
        except (NoAnswer, ProtocolError):
            return None
        if error_code == ErrorCode.ILLEGAL_SASL_STATE:
            return False
        return True if error_code in {0, ErrorCode.UNSUPPORTED_SASL_MECHANISM} else None

    def advertised(self) -> set[Endpoint]:
        """The addresses of brokers that it tells clients of this listener. Raises NoAnswer."""
        try:
            return {
                (found.host, found.port)
                for found in brokers_of(self._ask(metadata_request(2, _CLIENT_ID)), 2)
            }
        except ProtocolError as error:
            raise NoAnswer(str(error)) from None

    def log_in(self, mechanism: str, credentials: Credentials) -> None:
        """Raises NoAnswer with the broker's reason."""
        try:
            log_in(self._sock, mechanism, credentials, _CLIENT_ID)
        except OSError as error:
            raise NoAnswer(_why(error)) from None
        except (ProtocolError, ValueError) as error:
            raise NoAnswer(str(error)) from None

    def _ask(self, request: bytes) -> bytes:
        try:
            self._sock.sendall(request)
            head = receive_exactly(self._sock, 4)
            size = int.from_bytes(head, "big")
            if size > _MAX_ANSWER_BYTES:
                raise NoAnswer("its answer is none of Kafka's; does it speak TLS?")
            return head + receive_exactly(self._sock, size)
        except OSError as error:
            raise NoAnswer(_why(error)) from None


def _handshake_request(mechanism: str) -> bytes:
    """SaslHandshake v1, its size included."""
    header: Struct = {
        "requestApiKey": SASL_HANDSHAKE,
        "requestApiVersion": 1,
        "correlationId": 3,
        "clientId": _CLIENT_ID,
    }
    frame = encode_frame("request", SASL_HANDSHAKE, 1, DecodedFrame(header, {"mechanism": mechanism}))
    return len(frame).to_bytes(4) + frame


@contextmanager
def connected(host: str, port: int, tls: ssl.SSLContext | None, server_name: str) -> Iterator[BrokerLine]:
    """A connection to a broker, in a `with` block. Raises NoAnswer."""
    try:
        sock = socket.create_connection((host, port), timeout=TIMEOUT_S)
    except OSError as error:
        raise NoAnswer(_why(error)) from None
    with closing(sock):
        if tls is None:
            yield BrokerLine(sock)
            return
        try:
            wrapped = shaken_hands(sock, tls, server_name)
        except TlsError as error:
            raise NoAnswer(str(error)) from None
        except OSError as error:
            raise NoAnswer(f"TLS: {_why(error)}") from None
        with closing(wrapped):
            yield BrokerLine(wrapped)


def _why(error: OSError) -> str:
    if isinstance(error, TimeoutError):
        return f"no answer within {TIMEOUT_S:g} s"
    return in_words(explained(error, server_side=False))
