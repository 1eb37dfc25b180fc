"""Requests of our own codec over aiokafka's connections: APIs and versions that aiokafka does not know.

(Topic ids stand in Metadata from version 10 on; aiokafka 0.14 asks for version 5.)
"""

from __future__ import annotations

from io import BytesIO
from typing import Any, Final

from aiokafka.client import AIOKafkaClient

from sluice.protocol._tables import VERSIONS
from sluice.protocol.codec.codec import DecodedFrame, decode_frame, encode_frame
from sluice.protocol.codec.wire import Struct


async def call(
    client: AIOKafkaClient, api_key: int, body: Struct, *, max_version: int, node_id: int | None = None
) -> Any:
    """The body of a broker's answer, as the codec shows it. `node_id`: which one; None: any.

    The version: the newest that the broker, the codec and `max_version` share. Raises KafkaError, OSError,
    TimeoutError, ProtocolError.
    """
    node = client.get_random_node() if node_id is None else node_id
    return await client.send(node, _Call(api_key, body, max_version))


class _Call:
    """What aiokafka's connection takes for a request of its own (aiokafka.protocol.api.Request)."""

    def __init__(self, api_key: int, body: Struct, max_version: int) -> None:
        self.API_KEY: Final = api_key
        self.RESPONSE_TYPE: Final = self
        self.API_VERSION = 0
        self._body = body
        self._max_version = max_version
        self._correlation_id = 0
        self._client_id = ""

    def prepare(self, versions: dict[int, tuple[int, int]]) -> _Call:
        known, broker = VERSIONS[self.API_KEY][1], versions.get(self.API_KEY, (0, 0))[1]
        self.API_VERSION = min(known, broker, self._max_version)
        return self

    def build_request_header(self, correlation_id: int, client_id: str) -> _Head:
        self._correlation_id, self._client_id = correlation_id, client_id
        return _Head()

    def encode(self) -> bytes:
        """Header and body; `_Head` is empty."""
        header: Struct = {
            "requestApiKey": self.API_KEY,
            "requestApiVersion": self.API_VERSION,
            "correlationId": self._correlation_id,
            "clientId": self._client_id,
        }
        return encode_frame("request", self.API_KEY, self.API_VERSION, DecodedFrame(header, self._body))

    def parse_response_header(self, frame: BytesIO) -> _Head:
        """The connection compares its `correlation_id`."""
        return _Head(int.from_bytes(frame.getvalue()[:4], "big", signed=True))

    def decode(self, frame: BytesIO) -> Any:
        return decode_frame("response", self.API_KEY, self.API_VERSION, frame.getvalue()).body


class _Head:
    """A header in the eyes of aiokafka's connection."""

    def __init__(self, correlation_id: int = 0) -> None:
        self.correlation_id = correlation_id

    @staticmethod
    def encode() -> bytes:
        return b""
