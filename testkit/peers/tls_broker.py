"""A broker behind TLS, in threads: what it does with new connections can change while others go on."""

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
    """Answers each request that comes in one piece."""

    def __init__(self, authority: CertificateAuthority, folder: Path, port: int = 0) -> None:
        """`folder`: for its files. `port` 0: a free one."""
        files = authority.server().write(folder, "broker")
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(files.certificate, files.key)
        self.context.load_verify_locations(authority.write(folder))
        self._listening = socket.create_server((LOOPBACK, port))
        self.port = int(self._listening.getsockname()[1])
        self.accepted = 0
        """connections so far"""
        self.shakes_hands = True
        """False: it says nothing to new connections"""
        self._silent: list[socket.socket] = []

    def demand_certificate(self, demanded: bool) -> None:
        """Of connections from now on. A refusal comes behind the handshake in TLS 1.3."""
        self.context.verify_mode = ssl.CERT_REQUIRED if demanded else ssl.CERT_NONE

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts
        self._listening.close()
        for client in self._silent:
            client.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                plain, _ = self._listening.accept()
                self.accepted += 1
                if not self.shakes_hands:
                    self._silent.append(plain)
                    continue
                client = self.context.wrap_socket(plain, server_side=True, do_handshake_on_connect=False)
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: ssl.SSLSocket) -> None:
        with client, suppress(OSError):
            try:
                client.do_handshake()
            except ssl.SSLError:
                while socket.socket.recv(client, 4096):  # a reset would overtake the alert
                    pass
            while frame := client.recv(4096):
                _, key, version, correlation_id = _HEAD.unpack_from(frame)
                client.sendall(answer(key, version, correlation_id=correlation_id))
