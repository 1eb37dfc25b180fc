"""Requests of commands to a broker, or to a proxy that answers in its place, one connection for each.

Blocking: for commands, never the proxy.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence
from contextlib import closing
from typing import Any, Final, TypeAlias

from kafka.protocol.api_message import ApiMessage

from sluice.protocol.errors import ProtocolError
from sluice.proxy.cli.options import CommandFailed, in_words
from sluice.proxy.cli.quotas.client_properties import ClientSettings
from sluice.proxy.cli.receive import log_in, receive_exactly
from sluice.proxy.config.options import host_and_port
from sluice.proxy.kafka_client.messages import decoded, encoded
from sluice.proxy.listener.tls.blocking import shaken_hands
from sluice.proxy.listener.tls.error import explained
from sluice.quotas.files.config_error import ConfigError, Problem

_MAX_ANSWER_BYTES: Final = 64 * 1024 * 1024
Address: TypeAlias = tuple[str, int]


class KafkaServer:
    """Brokers, or a proxy, that answer a command's requests."""

    def __init__(self, bootstrap: str, settings: ClientSettings) -> None:
        """`bootstrap`: `host:port,…`, tried in order. Raises ConfigError."""
        try:
            self._addresses = [host_and_port(part.strip()) for part in bootstrap.split(",")]
        except ValueError as error:
            raise ConfigError([Problem(str(error), path="--bootstrap-server")]) from None
        self.name = bootstrap
        self._settings = settings

    def ask(self, request: ApiMessage, version: int, address: Address | None = None) -> Any:
        """The answer, as kafka-python's class of it. `address`: of the broker that is to answer; None: any.

        Raises CommandFailed that names each address that was tried.
        """
        frame = encoded(request, version, int(request.API_KEY), self._settings.client_id)
        try:
            with closing(self._connect(self._addresses if address is None else [address])) as sock:
                sock.sendall(len(frame).to_bytes(4) + frame)
                size = int.from_bytes(receive_exactly(sock, 4))
                if size > _MAX_ANSWER_BYTES:
                    raise CommandFailed(f"{self.name}: an answer of {size} bytes; is this a Kafka listener?")
                data = receive_exactly(sock, size)
            return decoded(request, data)
        except (OSError, ProtocolError) as error:
            raise CommandFailed(f"{self.name}: {_why(error)}") from None

    def _connect(self, addresses: Sequence[Address]) -> socket.socket:
        faults = []
        for host, port in addresses:
            try:
                return self._connected(host, port)
            except (OSError, ProtocolError) as error:
                faults.append(f"{host}:{port}: {_why(error)}")
        raise CommandFailed("cannot connect to " + "; ".join(faults))

    def _connected(self, host: str, port: int) -> socket.socket:
        settings = self._settings
        sock = socket.create_connection((host, port), timeout=settings.timeout_s)
        try:
            if settings.tls is not None:
                sock = shaken_hands(sock, settings.tls, host)
            if settings.credentials is not None:
                log_in(sock, settings.mechanism, settings.credentials, settings.client_id)
        except BaseException:
            sock.close()
            raise
        return sock


def _why(error: OSError | ProtocolError) -> str:
    return in_words(explained(error, server_side=False) if isinstance(error, OSError) else error)
