"""TLS over a non-blocking socket, by the calls that Connection and Peer make on a plain one.

On ssl.SSLSocket: OpenSSL reads record by record and keeps nothing of the next one, so what is not read stays
in the kernel, where epoll sees it (docs/decisions.md: measured against MemoryBIO). Knows nothing of Kafka.
"""

from __future__ import annotations

import errno
import os
import socket
import ssl
import sys
from asyncio import AbstractEventLoop
from collections.abc import Callable
from contextlib import suppress
from fcntl import ioctl
from termios import FIONREAD
from typing import Any, Final, Self

from sluice.proxy.connection.stream import readable, writable
from sluice.proxy.listener.tls.error import explained

RECORD_BYTES: Final = 16 * 1024
"""the most that one TLS record carries (RFC 8446, 5.1)"""
SEND_BYTES: Final = 64 * 1024
"""Given to OpenSSL at once. It takes all of a piece or nothing: a larger one would count as kept longer."""
_NOTHING: Final = bytes(4)  # an int of 0


class _ServerSocket(ssl.SSLSocket):
    """Remembers the name that the client asked for."""

    asked_name: str | None = None


class _Unraisable:
    """The hook for exceptions that nobody can catch, but for names that _ssl could not decode."""

    def __init__(self, before: Callable[[sys.UnraisableHookArgs], Any]) -> None:
        self._before = before

    def __call__(self, unraisable: sys.UnraisableHookArgs) -> None:
        # _ssl gives the name itself, or words; what else cannot be raised comes with a function.
        of_a_name = isinstance(unraisable.object, bytes) or "servername" in (unraisable.err_msg or "")
        if of_a_name and unraisable.exc_type is UnicodeDecodeError:
            return
        self._before(unraisable)


def remember_server_name(context: ssl.SSLContext) -> None:
    """Have the streams of this (server's) context know which name their client asked for.

    One that is not ASCII is none (RFC 6066, 3), and its handshake fails. Python, which decodes it, would also
    write a traceback for each, and anybody can send one: from now on it does not, in this process.
    """
    context.sslsocket_class = _ServerSocket
    context.sni_callback = _remember
    if not isinstance(sys.unraisablehook, _Unraisable):
        sys.unraisablehook = _Unraisable(sys.unraisablehook)


def _remember(sock: ssl.SSLSocket | ssl.SSLObject, name: str | None, _context: ssl.SSLContext) -> None:
    if isinstance(sock, _ServerSocket):
        sock.asked_name = name


class TlsStream:
    """One end of an established TLS connection, non-blocking. It raises OSError where a socket would; that
    is a TlsError if TLS itself fails."""

    __slots__ = (
        "__weakref__",
        "_error",
        "_fd",
        "_recv_into",
        "_said_goodbye",
        "_send",
        "_server_side",
        "_sock",
        "_ssl",
    )

    def __init__(self, sock: ssl.SSLSocket, *, server_side: bool) -> None:
        """`sock` is non-blocking and its handshake is done; the stream owns it from now on."""
        self._sock = sock
        self._fd = sock.fileno()
        self._recv_into = sock.recv_into
        self._send = sock.send
        self._ssl: object = getattr(sock, "_sslobj", None)  # for the pump, while it may read and write by it
        self._server_side = server_side
        self._said_goodbye = False
        self._error: OSError | None = None

    @classmethod
    async def handshake(
        cls,
        loop: AbstractEventLoop,
        sock: socket.socket,
        context: ssl.SSLContext,
        *,
        server_side: bool,
        server_hostname: str | None = None,
    ) -> Self:
        """TLS over `sock`, which is connected and non-blocking and is taken over: it is closed on success.

        Not bounded in time: that is the caller's, who may cancel at any point. If this raises (TlsError or
        any other OSError, or because it was cancelled) `sock` is still open and the caller's to close; what
        was read of it is lost. Nothing stays on the loop.
        """
        # A FIN alone is an end, too; Java and librdkafka leave so, and Kafka's frames tell their size.
        context.options |= ssl.OP_IGNORE_UNEXPECTED_EOF
        own = sock.dup()
        try:
            own = context.wrap_socket(
                own,
                server_side=server_side,
                server_hostname=server_hostname,
                do_handshake_on_connect=False,
                suppress_ragged_eofs=False,
            )
            await _shake_hands(loop, own)
        except OSError as error:
            own.close()
            raise explained(error, server_side=server_side, shaking_hands=True) from None
        except BaseException:
            own.close()
            raise
        sock.close()
        return cls(own, server_side=server_side)

    def recv_into(self, view: memoryview) -> int:
        """Read into `view` as many records as there are; 0 at the end, with close_notify or without.

        Who next waits for the socket to be readable must have given at least RECORD_BYTES of room: of a
        record that found less, the rest is inside OpenSSL, where only the next call finds it.
        BlockingIOError: there is nothing.
        """
        if self._error is not None:
            raise self._error
        if self._said_goodbye:
            return socket.socket.recv_into(self._sock, view)  # undeciphered: only good to be thrown away
        room = len(view)
        got = 0
        try:
            while True:
                count = self._recv_into(view[got:] if got else view)
                got += count
                if not count:
                    self._stay_readable()
                    return got
                # Most requests are one short record. To ask the kernel costs 1 µs; to run into WantRead, 7.
                if count < RECORD_BYTES and ioctl(self._fd, FIONREAD, _NOTHING) == _NOTHING:
                    return got
                if room - got < RECORD_BYTES:
                    return got
        except ssl.SSLWantReadError:
            pass
        except OSError as error:  # WantWrite, too: it would stay readable, and nobody could read it
            self._error = self._explained(error)
            self._stay_readable()
            if not got:
                raise self._error from None
        if not got:
            raise BlockingIOError
        return got

    def send(self, data: memoryview | bytearray | bytes) -> int:
        """Encrypt and send from the beginning of `data`; returns how many bytes are taken.

        What is not taken must come first, the same bytes, in the next call: of them up to SEND_BYTES may be
        encrypted already, and even sent. They may have moved, and more may follow them. BlockingIOError:
        nothing is taken.
        """
        with memoryview(data) as view:  # a slice of a bytearray would be a copy
            size = len(view)
            sent = 0
            try:
                if size <= SEND_BYTES:
                    sent = self._send(view)
                while sent < size:
                    sent += self._send(view[sent : sent + SEND_BYTES])
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                pass
            except ssl.SSLError as error:
                raise self._explained(error) from None
        if not sent and size:
            raise BlockingIOError
        return sent

    def fileno(self) -> int:
        """−1 once it is closed."""
        return self._sock.fileno()

    def shutdown(self, how: int) -> None:
        """Tell the other side that nothing more comes. Never blocks. Raises OSError if it is gone.

        To a client: close_notify, then FIN; what still comes from it is read undeciphered, to be thrown
        away. To a broker: FIN alone, and its answers are still read. (Python's unwrap sends close_notify and
        then reads; were there an answer, that would be an error for good.)
        """
        if how != socket.SHUT_RD and self._server_side:
            self._say_goodbye()
        socket.socket.shutdown(self._sock, how)  # SSLSocket.shutdown would go on in plain text

    def getsockopt(self, level: int, name: int, size: int) -> bytes:
        """An option of the socket below."""
        return self._sock.getsockopt(level, name, size)

    def setsockopt(self, level: int, name: int, value: int) -> None:
        """Set an option of the socket below."""
        self._sock.setsockopt(level, name, value)

    def close(self) -> None:
        """Close at once, with a close_notify if it can be sent; harmless when closed already."""
        if self._sock.fileno() >= 0:
            self._say_goodbye()
            self._sock.close()

    @property
    def server_name(self) -> str | None:
        """The name that the client asked for (SNI), if its context remembers that."""
        return self._sock.asked_name if isinstance(self._sock, _ServerSocket) else None

    @property
    def version(self) -> str | None:
        """The protocol's version as OpenSSL calls it: `TLSv1.3`."""
        return self._sock.version()

    @property
    def cipher(self) -> str | None:
        """The cipher's name as OpenSSL has it: `TLS_AES_256_GCM_SHA384`."""
        cipher = self._sock.cipher()
        return cipher[0] if cipher else None

    def peer_certificate_der(self) -> bytes | None:
        """The other side's certificate, which OpenSSL has verified; None: it sent none, or was not asked."""
        return self._sock.getpeercert(binary_form=True)

    def _say_goodbye(self) -> None:
        """close_notify, once; in vain if the other side takes nothing, or is gone."""
        if not self._said_goodbye:
            self._said_goodbye = True
            self._ssl = None
            with suppress(OSError, ValueError):
                self._sock.unwrap()

    def _keep_failure(self) -> None:
        """OpenSSL has just told the pump of an end or an error, and tells it again: keep which."""
        try:
            if self._recv_into(bytearray(1)):
                self._error = explained(ssl.SSLError("it went on"), server_side=self._server_side)
        except OSError as error:
            self._error = self._explained(error)
        self._stay_readable()

    def _keep_reset(self) -> None:
        """The kernel has just told the pump that the connection is broken, and does not say so again."""
        self._error = _reset()
        self._stay_readable()

    def _explained(self, error: OSError) -> OSError:
        if isinstance(error, ssl.SSLEOFError):  # so Python (3.11) tells of a reset
            return _reset()
        return explained(error, server_side=self._server_side)

    def _stay_readable(self) -> None:
        """The end, or an error, is to be had again, as of a socket: epoll must tell of it."""
        with suppress(OSError):
            socket.socket.shutdown(self._sock, socket.SHUT_RD)


def _reset() -> ConnectionResetError:
    return ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET))


async def _shake_hands(loop: AbstractEventLoop, tls: ssl.SSLSocket) -> None:
    while True:
        try:
            tls.do_handshake()
        except ssl.SSLWantReadError:
            await readable(loop, tls)
        except ssl.SSLWantWriteError:
            await writable(loop, tls)
        else:
            return
