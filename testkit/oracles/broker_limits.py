"""Which limit a real broker applies to a client, told by the delay of its first Produce."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

from sluice.quotas.entity import QuotaEntity
from testkit.frames.frames import SASL_AUTHENTICATE, SASL_HANDSHAKE, decoded, produce, record_batch, request
from testkit.kafka.node import KafkaNode
from testkit.kafka.sasl_clients import unsigned_token

DESCRIBE_CLIENT_QUOTAS: Final = 48
ALTER_CLIENT_QUOTAS: Final = 49
KEY: Final = "producer_byte_rate"
PAYLOAD_BYTES: Final = 200_000
MOST_WAIT_S: Final = 6.0
WITHIN_S: Final = 30.0
IN_FORCE_S: Final = 0.1
"""after the broker tells of quotas they are in force: the same thread does both"""
PRODUCE_VERSION: Final = 9


class BrokerLimits:
    """A broker with native quotas. Each client asks once: what it used counts for the next eleven seconds."""

    def __init__(self, node: KafkaNode) -> None:
        self._node = node
        self._in_force: dict[QuotaEntity, int] = {}

    def set(self, limits: Mapping[QuotaEntity, int]) -> None:
        """From now on these are all quotas; others are deleted."""
        gone = {entity: None for entity in self._in_force if entity not in limits}
        entries = [_entry(entity, limit) for entity, limit in {**gone, **limits}.items()]
        with self._connect("PLAINTEXT") as sock:
            body = _ask(sock, ALTER_CLIENT_QUOTAS, 1, {"entries": entries, "validateOnly": False})
            assert [entry["errorCode"] for entry in body["entries"]] == [0] * len(entries)
            self._in_force = dict(limits)
            ends_s = time.monotonic() + WITHIN_S
            while _described(sock) != {_path(entity): float(limit) for entity, limit in limits.items()}:
                assert time.monotonic() < ends_s
        time.sleep(IN_FORCE_S)

    def limit(self, user: str, client_id: str | None, among: Sequence[int]) -> int | None:
        """Which of some limits, in bytes per second, applies; None: none.

        All windows idle, B bytes at a limit of T delay by B ÷ T − W, where W is the 10 to 11 s since the
        oldest window began, and longer if the broker's thread had to wait meanwhile for the processor. So the
        limits must differ so much that B ÷ T differs by more than MOST_WAIT_S.
        """
        frame = produce(
            {"no-such-topic": [(0, record_batch(bytes(PAYLOAD_BYTES)))]},
            version=PRODUCE_VERSION,
            client_id=client_id,
        )
        with self._connect("SASL") as sock:
            _ask(sock, SASL_HANDSHAKE, 1, {"mechanism": "OAUTHBEARER"})
            token = f"n,,\x01auth=Bearer {unsigned_token(user)}\x01\x01".encode()
            answered = _ask(sock, SASL_AUTHENTICATE, 1, {"authBytes": token.hex()})
            assert answered["errorCode"] == 0, answered
            sock.sendall(frame)
            delay_ms = decoded("response", 0, PRODUCE_VERSION, _frame(sock)).body["throttleTimeMs"]
        assert isinstance(delay_ms, int)
        if not delay_ms:
            return None
        window_s = {limit: (len(frame) - 4) / limit - delay_ms / 1_000.0 for limit in among}
        fitting = [limit for limit in among if 9.9 < window_s[limit] < 9.9 + MOST_WAIT_S]
        assert len(fitting) == 1, f"{delay_ms} ms fit {fitting}"
        return fitting[0]

    def _connect(self, listener: str) -> socket.socket:
        return socket.create_connection(self._node.address(listener), timeout=WITHIN_S)


@contextmanager
def broker_limits() -> Iterator[BrokerLimits]:
    """Start a broker of its own, for default quotas are everybody's, and end it."""
    with KafkaNode(native=["SASL"]) as node:
        yield BrokerLimits(node)


def _entry(entity: QuotaEntity, limit: int | None) -> dict[str, Any]:
    parts = [{"entityType": key, "entityName": name} for key, name in _path(entity)]
    return {
        "entity": parts,
        "ops": [{"key": KEY, "value": float(limit or 0), "remove": limit is None}],
    }


def _path(entity: QuotaEntity) -> tuple[tuple[str, str | None], ...]:
    return tuple((key, name if isinstance(name, str) else None) for key, name in sorted(entity.parts.items()))


def _described(sock: socket.socket) -> dict[tuple[tuple[str, str | None], ...], float]:
    body = _ask(sock, DESCRIBE_CLIENT_QUOTAS, 1, {"components": [], "strict": False})
    return {
        tuple(sorted((part["entityType"], part["entityName"]) for part in entry["entity"])): entry["values"][
            0
        ]["value"]
        for entry in body["entries"] or ()
    }


def _ask(sock: socket.socket, api_key: int, version: int, body: dict[str, Any]) -> Any:
    sock.sendall(request(api_key, version, body))
    return decoded("response", api_key, version, _frame(sock)).body


def _frame(sock: socket.socket) -> bytes:
    data = b""
    while len(data) < 4 or len(data) < 4 + struct.unpack_from(">i", data)[0]:
        more = sock.recv(65_536)
        assert more, "the broker closed the connection"
        data += more
    return data
