"""A broker behind TLS, in threads, whose demands on new connections can change while others go on."""

from __future__ import annotations

import socket
import ssl
import struct
import threading
from contextlib import suppress
from pathlib import Path
from typing import Final, Self

from testkit.frames.frames import answer
from testkit.peers.certificates import CertificateAuthority
from testkit.processes.ports import LOOPBACK

_HEAD: Final = struct.Struct(">ihhi")  # size, api key, api version, correlation id


class TlsBroker:
    """Answers each request that comes in one piece. `asked`: requests so far; `accepted`: connections."""

    def __init__(self, authority: CertificateAuthority, folder: Path) -> None:
        """`folder`: for its files."""
        files = authority.server().write(folder, "broker")
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(files.certificate, files.key)
        self._context.load_verify_locations(authority.write(folder))
        self._listening = socket.create_server((LOOPBACK, 0))
        self.port = int(self._listening.getsockname()[1])
        self.accepted = 0
        self.asked = 0

    def demand_certificate(self, demanded: bool) -> None:
        """Of connections from now on. A refusal comes behind the handshake in TLS 1.3."""
        self._context.verify_mode = ssl.CERT_REQUIRED if demanded else ssl.CERT_NONE

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts
        self._listening.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                plain, _ = self._listening.accept()
                self.accepted += 1
                client = self._context.wrap_socket(plain, server_side=True, do_handshake_on_connect=False)
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: ssl.SSLSocket) -> None:
        with client, suppress(OSError):
            try:
                client.do_handshake()
            except ssl.SSLError:
                while socket.socket.recv(client, 4096):  # a reset would overtake the alert
                    pass
            while frame := client.recv(4096):
                self.asked += 1
                _, key, version, correlation_id = _HEAD.unpack_from(frame)
                client.sendall(answer(key, version, correlation_id=correlation_id))  # type: ignore[arg-type]
