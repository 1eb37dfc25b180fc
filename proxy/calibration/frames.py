"""Requests for a calibration, from plain values: whole frames that a broker answers without an error.

Written by the codec of the cold path, once each; what is sent over and over is their bytes. Pure.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib import import_module
from typing import Any, Final

from sluice.protocol.apis import API_VERSIONS, FETCH, JOIN_GROUP, METADATA, PRODUCE, ApiKey, ErrorCode
from sluice.protocol.codec.codec import DecodedFrame, decode_frame, encode_frame
from sluice.protocol.codec.error_codes import error_codes
from sluice.protocol.codec.wire import Struct, Value

VERSIONS: Final[Mapping[int, int]] = {
    PRODUCE: 12,
    FETCH: 12,
    ApiKey.LIST_OFFSETS: 7,
    METADATA: 12,
    ApiKey.OFFSET_COMMIT: 8,
    ApiKey.OFFSET_FETCH: 8,
    ApiKey.FIND_COORDINATOR: 4,
    JOIN_GROUP: 9,
    ApiKey.HEARTBEAT: 4,
    ApiKey.LEAVE_GROUP: 5,
    ApiKey.SYNC_GROUP: 5,
    ApiKey.DESCRIBE_GROUPS: 5,
    ApiKey.LIST_GROUPS: 4,
    API_VERSIONS: 3,
    ApiKey.CREATE_TOPICS: 7,
    ApiKey.DELETE_TOPICS: 6,
    ApiKey.INIT_PRODUCER_ID: 4,
    ApiKey.DESCRIBE_CONFIGS: 4,
    ApiKey.ALTER_CLIENT_QUOTAS: 1,
    ApiKey.DESCRIBE_CLUSTER: 0,
}
"""which version of each API is sent: topics by their names, as Kafka 3.0 and newer know it"""


def _crc32c_table() -> tuple[int, ...]:
    table = []
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = (crc >> 1) ^ 0x82F63B78 if crc & 1 else crc >> 1
        table.append(crc)
    return tuple(table)


_CRC32C: Final = _crc32c_table()


def crc32c(data: bytes) -> int:
    """Castagnoli's CRC, which a batch's checksum is: 0.15 s a MiB, before any clock starts."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _CRC32C[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return crc ^ 0xFFFFFFFF


def _gzip(data: bytes) -> bytes:
    writer = zlib.compressobj(wbits=31)
    return writer.compress(data) + writer.flush()


def compressors() -> dict[str, Callable[[bytes], bytes]]:
    """By the names of request_cost_file.CODECS; those whose library (lz4, snappy, zstandard) is not here are
    left out."""
    found: dict[str, Callable[[bytes], bytes]] = {"none": lambda data: data, "gzip": _gzip}
    for codec, module in (("snappy", "snappy"), ("lz4", "lz4.frame"), ("zstd", "zstandard")):
        try:
            library: Any = import_module(module)
        except ImportError:
            continue
        if codec == "lz4":
            found[codec] = partial(library.compress, block_linked=False)
        else:
            found[codec] = library.compress
    return found


def record_batch(
    values: Sequence[bytes], codec: int = 0, compress: Callable[[bytes], bytes] = bytes
) -> bytes:
    """One batch of magic 2 without a producer id. `codec`: its number in the attributes."""
    records = bytearray()
    for delta, value in enumerate(values):
        body = b"\0" + _varint(0) + _varint(delta) + _varint(-1) + _varint(len(value)) + value + _varint(0)
        records += _varint(len(body)) + body
    last = len(values) - 1
    behind_crc = struct.pack(">hiqqqhii", codec, last, 0, 0, -1, -1, -1, len(values)) + compress(
        bytes(records)
    )
    behind_length = struct.pack(">ibI", 0, 2, crc32c(behind_crc)) + behind_crc
    return struct.pack(">qi", 0, len(behind_length)) + behind_length


def request(api_key: int, client_id: str, body: Struct) -> bytes:
    """A whole frame with correlation id 0; fields that `body` leaves out have their defaults."""
    version = VERSIONS[api_key]
    header: Struct = {
        "requestApiKey": api_key,
        "requestApiVersion": version,
        "correlationId": 0,
        "clientId": client_id,
    }
    frame = encode_frame("request", api_key, version, DecodedFrame(header, body))
    return struct.pack(">i", len(frame)) + frame


def answered(api_key: int, frame: bytes) -> Struct:
    """The body of an answer without its size."""
    return decode_frame("response", api_key, VERSIONS[api_key], frame).body


def error_in(body: Value) -> int:
    """An error code in an answer that is one; 0: none."""
    return next((code for code in error_codes(body) if code != ErrorCode.NONE), ErrorCode.NONE)


def produce(client_id: str, topic: str, batches: Mapping[int, bytes], acks: int) -> bytes:
    """One batch for each partition."""
    data: list[Value] = [{"index": index, "records": batch.hex()} for index, batch in batches.items()]
    topics: list[Value] = [{"name": topic, "partitionData": data}]
    return request(PRODUCE, client_id, {"acks": acks, "timeoutMs": 30_000, "topicData": topics})


def fetch(client_id: str, topic: str, offsets: Mapping[int, int], max_bytes: int) -> bytes:
    """Without a session; what is there is answered at once."""
    partitions: list[Value] = [
        {"partition": index, "fetchOffset": offset, "partitionMaxBytes": max_bytes}
        for index, offset in offsets.items()
    ]
    body: Struct = {
        "replicaId": -1,
        "maxWaitMs": 0,
        "minBytes": 0,
        "maxBytes": max_bytes,
        "sessionId": 0,
        "sessionEpoch": -1,
        "topics": [{"topic": topic, "partitions": partitions}],
    }
    return request(FETCH, client_id, body)


def set_request_percentage(client_ids: Sequence[str], percentage: float | None) -> bytes:
    """An AlterClientQuotas; None: remove the limit."""
    entries: list[Value] = [
        {
            "entity": [{"entityType": "client-id", "entityName": client_id}],
            "ops": [
                {
                    "key": "request_percentage",
                    "value": 0.0 if percentage is None else percentage,
                    "remove": percentage is None,
                }
            ],
        }
        for client_id in client_ids
    ]
    return request(
        ApiKey.ALTER_CLIENT_QUOTAS, "sluice-calibration", {"entries": entries, "validateOnly": False}
    )


def _varint(value: int) -> bytes:
    """Zigzag, as inside a record."""
    number = value << 1 if value >= 0 else (-value << 1) - 1
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)
