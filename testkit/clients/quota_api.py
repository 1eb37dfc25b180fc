"""Kafka's API of quotas in plain values, over one socket: to a broker, or to a proxy in its place."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from typing import Any, Self

from testkit.frames.frames import decoded, request

DESCRIBE, ALTER = 48, 49
Whom = tuple[tuple[str, str | None], ...]


class QuotaApi:
    """One connection that asks about quotas."""

    def __init__(self, bootstrap: str) -> None:
        host, _, port = bootstrap.rpartition(":")
        self._sock = socket.create_connection((host, int(port)), timeout=30)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """May be called twice."""
        self._sock.close()

    def ask(self, api_key: int, body: Any, version: int = 1) -> Any:
        """The body of the answer."""
        self._sock.sendall(request(api_key, version, body))
        return self._answer(api_key, version)

    def limits(self) -> dict[Whom, dict[str, float]]:
        """All that is configured."""
        answer = self.ask(DESCRIBE, {"components": [], "strict": False})
        assert answer["errorCode"] == 0, answer
        return {
            tuple((part["entityType"], part["entityName"]) for part in entry["entity"]): {
                value["key"]: value["value"] for value in entry["values"]
            }
            for entry in answer["entries"]
        }

    def alter(
        self, whom: Mapping[str, str | None], limits: Mapping[str, float | None]
    ) -> tuple[int, str | None]:
        """Change limits; returns (error code, message)."""
        self.send_alter(whom, limits)
        return self.result()

    def send_alter(self, whom: Mapping[str, str | None], limits: Mapping[str, float | None]) -> None:
        """As `alter`; `result` waits for the answer."""
        ops = [{"key": key, "value": value or 0.0, "remove": value is None} for key, value in limits.items()]
        entity = [{"entityType": kind, "entityName": name} for kind, name in whom.items()]
        entry: Any = {"entity": entity, "ops": ops}
        self._sock.sendall(request(ALTER, 1, {"entries": [entry], "validateOnly": False}))

    def result(self) -> tuple[int, str | None]:
        """(error code, message) of the alteration that was sent."""
        (entry,) = self._answer(ALTER, 1)["entries"]
        return entry["errorCode"], entry["errorMessage"]

    def _answer(self, api_key: int, version: int) -> Any:
        size = int.from_bytes(self._read(4), "big")
        return decoded("response", api_key, version, size.to_bytes(4, "big") + self._read(size)).body

    def _read(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            more = self._sock.recv(count - len(data))
            if not more:
                raise EOFError(f"ended after {data!r}")
            data += more
        return data
