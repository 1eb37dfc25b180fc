"""Quotas at a server, by Kafka's own API: DescribeClientQuotas (48) and AlterClientQuotas (49), version 1.

The server is a broker, or a proxy that answers these in its place. One connection, one request at a time,
blocking: for commands, never for the proxy. Source: KIP-546; DescribeClientQuotasRequest.json.
"""

from __future__ import annotations

import secrets
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any, Final

from sluice.protocol.codec import DecodedFrame, decode_frame, encode_frame
from sluice.protocol.codec_wire import Struct, Value
from sluice.protocol.errors import ProtocolError
from sluice.proxy.cli_options import CommandFailed
from sluice.proxy.client_properties import ClientSettings
from sluice.proxy.config_error import ConfigError, Problem
from sluice.proxy.options import host_and_port
from sluice.proxy.quota_edit import Changes, Whom, canonical
from sluice.proxy.quota_file import DEFAULT_NAME
from sluice.proxy.quota_listing import Difference, Listing, described, sort_key
from sluice.proxy.upstream_login import UpstreamLogin

DESCRIBE_CLIENT_QUOTAS: Final = 48
ALTER_CLIENT_QUOTAS: Final = 49
KAFKA_KEYS: Final = ("user", "client-id", "ip")
"""types of entities that the API knows"""
_VERSION: Final = 1
_MAX_ANSWER_BYTES: Final = 64 * 1024 * 1024
_ENTITIES_PER_REQUEST: Final = 500
_ERRORS: Final = {
    29: "TOPIC_AUTHORIZATION_FAILED",
    31: "CLUSTER_AUTHORIZATION_FAILED",
    35: "UNSUPPORTED_VERSION",
    41: "NOT_CONTROLLER",
    42: "INVALID_REQUEST",
    44: "POLICY_VIOLATION",
}


class QuotaServerError(CommandFailed):
    """The server cannot be reached, lets nobody in, or refuses. Exit code 1."""


class QuotaServer:
    """A place (quota_commands.Place)."""

    def __init__(self, bootstrap: str, settings: ClientSettings) -> None:
        """`bootstrap`: `host:port,…`, tried in order. Raises ConfigError."""
        try:
            self._addresses = [host_and_port(part.strip()) for part in bootstrap.split(",")]
        except ValueError as error:
            raise ConfigError([Problem(str(error), path="--bootstrap-server")]) from None
        self.name = bootstrap
        self._settings = settings

    def listing(self) -> Listing:
        """All limits of the server; shadow mode and exempt rules are none of its."""
        with closing(self._connect()) as sock:
            return self._listing(sock)

    def alter(self, changes: Mapping[Whom, Changes]) -> bool:
        """Raises QuotaServerError; of several entities some may have been changed then."""
        with closing(self._connect()) as sock:
            now = self._listing(sock).limits
            needed: dict[Whom, Changes] = {}
            for whom, limits in changes.items():
                wanted = {key: limit for key, limit in limits.items() if now.get(whom, {}).get(key) != limit}
                if wanted:
                    needed[whom] = wanted
            self._alter(sock, needed)
        return bool(needed)

    def become(self, wanted: Listing, found: Sequence[Difference]) -> None:
        """Raises ConfigError for what a server cannot keep: shadow mode, entities that only Sluice has."""
        problems = [
            Problem(f"{described(whom)}: {why}; a server cannot keep that", source=self.name)
            for whom in wanted.limits
            for why in _beyond_kafka(wanted, whom)
        ]
        if problems:
            raise ConfigError(problems)
        changes: dict[Whom, dict[str, float | None]] = {}
        for difference in found:
            limit = wanted.limits.get(difference.whom, {}).get(difference.key)
            changes.setdefault(difference.whom, {})[difference.key] = limit
        with closing(self._connect()) as sock:
            self._alter(sock, changes)

    def _listing(self, sock: socket.socket) -> Listing:
        body = self._ask(sock, DESCRIBE_CLIENT_QUOTAS, {"components": [], "strict": False})
        if body["errorCode"]:
            raise QuotaServerError(f"{self.name}: {_refusal(body)}")
        limits = {
            _whom(entry["entity"]): {value["key"]: float(value["value"]) for value in entry["values"]}
            for entry in body["entries"] or []
        }
        return Listing({whom: limits[whom] for whom in sorted(limits, key=sort_key) if limits[whom]})

    def _alter(self, sock: socket.socket, changes: Mapping[Whom, Changes]) -> None:
        whoms = list(changes)
        for start in range(0, len(whoms), _ENTITIES_PER_REQUEST):
            some = whoms[start : start + _ENTITIES_PER_REQUEST]
            entries: list[Value] = [
                {"entity": _entity(whom), "ops": list(_ops(changes[whom]))} for whom in some
            ]
            body = self._ask(sock, ALTER_CLIENT_QUOTAS, {"entries": entries, "validateOnly": False})
            refused = [
                f"{self.name}: {described(_whom(entry['entity']))}: {_refusal(entry)}"
                for entry in body["entries"]
                if entry["errorCode"]
            ]
            if refused:
                raise QuotaServerError("\n".join(refused))

    # The wire ---------------------------------------------------------------------------------------------

    def _connect(self) -> socket.socket:
        """Raises QuotaServerError that names each address that was tried."""
        faults = []
        for host, port in self._addresses:
            try:
                return self._connected(host, port)
            except (OSError, ProtocolError) as error:
                faults.append(f"{host}:{port}: {error}")
        raise QuotaServerError("cannot connect to " + "; ".join(faults))

    def _connected(self, host: str, port: int) -> socket.socket:
        settings = self._settings
        sock = socket.create_connection((host, port), timeout=settings.timeout_s)
        try:
            if settings.tls is not None:
                sock = settings.tls.wrap_socket(sock, server_hostname=host)
            if settings.credentials is not None:
                self._log_in(sock)
        except BaseException:
            sock.close()
            raise
        return sock

    def _log_in(self, sock: socket.socket) -> None:
        settings = self._settings
        assert settings.credentials is not None
        login = UpstreamLogin(
            settings.mechanism,
            settings.credentials,
            client_id=settings.client_id,
            nonce=secrets.token_urlsafe(24),
        )
        sock.sendall(login.start())
        while not login.done:
            data = sock.recv(65_536)
            if not data:
                raise login.broker_closed()
            _, reply = login.received(memoryview(data), 0, len(data))
            if reply:
                sock.sendall(reply)

    def _ask(self, sock: socket.socket, api_key: int, body: Struct) -> dict[str, Any]:
        header: Struct = {
            "requestApiKey": api_key,
            "requestApiVersion": _VERSION,
            "correlationId": api_key,
            "clientId": self._settings.client_id,
        }
        frame = encode_frame("request", api_key, _VERSION, DecodedFrame(header, body))
        try:
            sock.sendall(len(frame).to_bytes(4) + frame)
            size = int.from_bytes(_exactly(sock, 4))
            if size > _MAX_ANSWER_BYTES:
                raise QuotaServerError(f"{self.name}: an answer of {size} bytes; is this a Kafka listener?")
            answer = decode_frame("response", api_key, _VERSION, _exactly(sock, size))
        except (OSError, ProtocolError) as error:
            raise QuotaServerError(f"{self.name}: {error}") from None
        return answer.body


def _exactly(sock: socket.socket, count: int) -> bytes:
    data = bytearray()
    while len(data) < count:
        more = sock.recv(min(65_536, count - len(data)))
        if not more:
            raise OSError("it closed the connection; does its listener want TLS or SASL (--command-config)?")
        data += more
    return bytes(data)


def _whom(entity: list[dict[str, Any]]) -> Whom:
    names = {part["entityType"]: part["entityName"] for part in entity}
    order = [*(key for key in KAFKA_KEYS if key in names), *(key for key in names if key not in KAFKA_KEYS)]
    return tuple((key, DEFAULT_NAME if names[key] is None else _canonical(key, names[key])) for key in order)


def _canonical(key: str, name: str) -> str:
    try:
        return canonical(key, name)
    except ValueError:  # a broker takes host names for addresses
        return name


def _entity(whom: Whom) -> list[Value]:
    return [{"entityType": key, "entityName": None if name == DEFAULT_NAME else name} for key, name in whom]


def _ops(changes: Changes) -> Iterator[Value]:
    for key, limit in changes.items():
        yield {"key": key, "value": float(limit or 0.0), "remove": limit is None}


def _beyond_kafka(wanted: Listing, whom: Whom) -> Iterator[str]:
    if any(key not in KAFKA_KEYS for key, _ in whom):
        yield "is an entity that only Sluice has"
    for key in sorted(wanted.shadow.get(whom, ())):
        yield f"{key} is in shadow mode"


def _refusal(answer: Mapping[str, Any]) -> str:
    code = answer["errorCode"]
    name = _ERRORS.get(code, "")
    return f"error {code} {name}".rstrip() + (f": {answer['errorMessage']}" if answer["errorMessage"] else "")
