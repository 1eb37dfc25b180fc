"""Quotas at a server, by Kafka's own API: DescribeClientQuotas (48) and AlterClientQuotas (49), version 1.

The server is a broker, or a proxy that answers these in its place. Blocking: for commands, never the proxy.
Source: KIP-546; DescribeClientQuotasRequest.json.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import Any, Final

from kafka.protocol.admin import AlterClientQuotasRequest, DescribeClientQuotasRequest
from kafka.protocol.api_message import ApiMessage

from sluice.protocol.errors import ProtocolError
from sluice.proxy.cli.options import CommandFailed, in_words
from sluice.proxy.cli.quotas.client_properties import ClientSettings
from sluice.proxy.cli.quotas.edit import Changes, Whom
from sluice.proxy.cli.quotas.listing import Listing, described
from sluice.proxy.cli.quotas.remote import UNTOLD, RemotePlace, names_of, refusal, whom_of_names
from sluice.proxy.cli.receive import log_in, receive_exactly
from sluice.proxy.config.options import host_and_port
from sluice.proxy.kafka_client.messages import decoded, encoded
from sluice.quotas.files.config_error import ConfigError, Problem

_VERSION: Final = 1
_Entry: Final = AlterClientQuotasRequest.EntryData
_MAX_ANSWER_BYTES: Final = 64 * 1024 * 1024


class QuotaServer(RemotePlace):
    """A place; each step has a connection of its own."""

    def __init__(self, bootstrap: str, settings: ClientSettings) -> None:
        """`bootstrap`: `host:port,…`, tried in order. Raises ConfigError."""
        try:
            self._addresses = [host_and_port(part.strip()) for part in bootstrap.split(",")]
        except ValueError as error:
            raise ConfigError([Problem(str(error), path="--bootstrap-server")]) from None
        self.name = bootstrap
        self._settings = settings

    @property
    def written(self) -> str:
        """A proxy and a broker answer alike."""
        return (
            f"Taken by {self.name}: of a proxy, written to its quota topic, in force there, and at other "
            "proxies within a second; of a broker, one of the cluster's own quotas."
        )

    def _found(self) -> Listing:
        """Those in force: a proxy leaves out what is in shadow mode, for which the protocol has no field."""
        answer = self._ask(DescribeClientQuotasRequest(components=[], strict=False))
        if answer.error_code:
            raise CommandFailed(f"{self.name}: {refusal(answer.error_code, answer.error_message)}")
        limits = {
            _whom(entry.entity): {value.key: float(value.value) for value in entry.values}
            for entry in answer.entries or []
        }
        return Listing(limits, untold=UNTOLD)

    def _change(self, changes: Mapping[Whom, Changes]) -> list[str]:
        entries = [_Entry(entity=_entity(whom), ops=list(_ops(limits))) for whom, limits in changes.items()]
        answer = self._ask(AlterClientQuotasRequest(entries=entries, validate_only=False))
        return [
            f"{described(_whom(entry.entity))}: {refusal(entry.error_code, entry.error_message)}"
            for entry in answer.entries
            if entry.error_code
        ]

    # The wire ---------------------------------------------------------------------------------------------

    def _connect(self) -> socket.socket:
        """Raises CommandFailed that names each address that was tried."""
        faults = []
        for host, port in self._addresses:
            try:
                return self._connected(host, port)
            except (OSError, ProtocolError) as error:
                faults.append(f"{host}:{port}: {in_words(error)}")
        raise CommandFailed("cannot connect to " + "; ".join(faults))

    def _connected(self, host: str, port: int) -> socket.socket:
        settings = self._settings
        sock = socket.create_connection((host, port), timeout=settings.timeout_s)
        try:
            if settings.tls is not None:
                sock = settings.tls.wrap_socket(sock, server_hostname=host)
            if settings.credentials is not None:
                log_in(sock, settings.mechanism, settings.credentials, settings.client_id)
        except BaseException:
            sock.close()
            raise
        return sock

    def _ask(self, request: ApiMessage) -> Any:
        frame = encoded(request, _VERSION, int(request.API_KEY), self._settings.client_id)
        try:
            with closing(self._connect()) as sock:
                sock.sendall(len(frame).to_bytes(4) + frame)
                size = int.from_bytes(receive_exactly(sock, 4))
                if size > _MAX_ANSWER_BYTES:
                    raise CommandFailed(f"{self.name}: an answer of {size} bytes; is this a Kafka listener?")
                data = receive_exactly(sock, size)
            return decoded(request, data)
        except (OSError, ProtocolError) as error:
            raise CommandFailed(f"{self.name}: {in_words(error)}") from None


def _whom(entity: list[Any]) -> Whom:
    return whom_of_names({part.entity_type: part.entity_name for part in entity})


def _entity(whom: Whom) -> list[Any]:
    return [_Entry.EntityData(entity_type=key, entity_name=name) for key, name in names_of(whom).items()]


def _ops(changes: Changes) -> Iterator[Any]:
    for key, limit in changes.items():
        yield _Entry.OpData(key=key, value=float(limit or 0.0), remove=limit is None)
