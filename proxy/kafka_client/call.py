"""Requests of kafka-python's protocol classes over aiokafka's connections: newer ones than aiokafka knows.

(Topic ids stand in Metadata from version 10 on; aiokafka 0.14 asks for version 5.)
"""

from __future__ import annotations

from io import BytesIO
from typing import Any, Final

from aiokafka.client import AIOKafkaClient
from kafka.protocol.api_message import ApiMessage

from sluice.proxy.kafka_client.messages import decoded, encoded


async def call(client: AIOKafkaClient, request: ApiMessage, *, node_id: int | None = None) -> Any:
    """A broker's answer, as kafka-python's class of it. `node_id`: which one; None: any.

    The version: the newest that the broker and kafka-python share. Raises KafkaError, OSError, TimeoutError,
    ProtocolError.
    """
    node = client.get_random_node() if node_id is None else node_id
    return await client.send(node, _Call(request))


class _Call:
    """What aiokafka's connection takes for a request of its own (aiokafka.protocol.api.Request)."""

    def __init__(self, request: ApiMessage) -> None:
        self._request = request
        self.API_KEY: Final = int(request.API_KEY)
        self.RESPONSE_TYPE: Final = self
        self.API_VERSION = 0
        self._correlation_id = 0
        self._client_id = ""

    def prepare(self, versions: dict[int, tuple[int, int]]) -> _Call:
        _, broker = versions.get(self.API_KEY, (0, 0))
        self.API_VERSION = min(self._request.max_version, broker)
        return self

    def build_request_header(self, correlation_id: int, client_id: str) -> _Head:
        self._correlation_id, self._client_id = correlation_id, client_id
        return _Head()

    def encode(self) -> bytes:
        """Header and body; `_Head` is empty."""
        return encoded(self._request, self.API_VERSION, self._correlation_id, self._client_id)

    def parse_response_header(self, frame: BytesIO) -> _Head:
        """The connection compares its `correlation_id`."""
        return _Head(int.from_bytes(frame.getvalue()[:4], "big", signed=True))

    def decode(self, frame: BytesIO) -> Any:
        return decoded(self._request, frame.getvalue())


class _Head:
    """A header in the eyes of aiokafka's connection."""

    def __init__(self, correlation_id: int = 0) -> None:
        self.correlation_id = correlation_id

    @staticmethod
    def encode() -> bytes:
        return b""
