"""DescribeClientQuotas (48) and AlterClientQuotas (49): frames ↔ the values of client_quotas.py. Pure.

By the codec of the cold path. An answer that tells thousands of entities is made in steps, between which
connections are served. Source: {Describe,Alter}ClientQuotas{Request,Response}.json 4.3.1.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from sluice.protocol.apis import ApiKey, ErrorCode
from sluice.protocol.codec.codec import DecodedFrame, decode_frame, encode_frame
from sluice.protocol.codec.wire import Struct, Value, encode_varint
from sluice.protocol.headers import SIZE_BYTES
from sluice.protocol.primitives import java_text
from sluice.proxy.quota_store.client_quotas import Alteration, Component, Result
from sluice.proxy.quota_store.entities import Parts, shortened

_FIRST_FLEXIBLE: Final = 1
_ENTRIES_PER_STEP: Final = 100
"""about a millisecond"""


@dataclass(frozen=True, slots=True)
class DescribeRequest:
    """What a DescribeClientQuotas asks."""

    components: tuple[Component, ...]
    strict: bool


@dataclass(frozen=True, slots=True)
class AlterRequest:
    """What an AlterClientQuotas asks."""

    alterations: tuple[Alteration, ...]
    validate_only: bool


def read_request(api_key: int, version: int, frame: bytes) -> DescribeRequest | AlterRequest:
    """`frame`: without its size. Texts are read as Java's are. Raises ProtocolError for one that is none."""
    body: Any = decode_frame("request", api_key, version, frame).body
    if api_key == ApiKey.DESCRIBE_CLIENT_QUOTAS:
        components = (
            Component(_text(one["entityType"]), one["matchType"], _name(one["match"]))
            for one in body["components"]
        )
        return DescribeRequest(tuple(components), body["strict"])
    alterations = (
        Alteration(
            tuple((_text(part["entityType"]), _name(part["entityName"])) for part in entry["entity"]),
            tuple((_text(op["key"]), None if op["remove"] else _number(op["value"])) for op in entry["ops"]),
        )
        for entry in body["entries"]
    )
    return AlterRequest(tuple(alterations), body["validateOnly"])


def described_in_steps(
    version: int, correlation_id: int, entries: Sequence[tuple[Parts, Mapping[str, float]]]
) -> Generator[None, None, bytes]:
    """The answer with these entries, size included; pauses every millisecond or so."""
    flexible = version >= _FIRST_FLEXIBLE
    empty = _described(version, correlation_id, ())
    tail = b"\0" if flexible else b""
    head = empty[: len(empty) - len(_count(0, flexible)) - len(tail)]
    answer = bytearray(head) + _count(len(entries), flexible)
    for start in range(0, len(entries), _ENTRIES_PER_STEP):
        some = entries[start : start + _ENTRIES_PER_STEP]
        part = _described(version, correlation_id, some)
        answer += part[len(head) + len(_count(len(some), flexible)) : len(part) - len(tail)]
        yield
    return _sized(bytes(answer + tail))


def describe_refused(version: int, correlation_id: int, code: int, message: str) -> bytes:
    """The answer that tells an error, size included."""
    body: Struct = {
        "throttleTimeMs": 0,
        "errorCode": code,
        "errorMessage": shortened(message),
        "entries": None,
    }
    return _sized(_encode(ApiKey.DESCRIBE_CLIENT_QUOTAS, version, correlation_id, body))


def altered(version: int, correlation_id: int, results: Iterable[Result]) -> bytes:
    """The answer to an AlterClientQuotas, size included. Of a name that is too long a part is told."""
    entries: list[Value] = [
        {
            "errorCode": code,
            "errorMessage": None if message is None else shortened(message),
            "entity": [
                {
                    "entityType": shortened(entity_type),
                    "entityName": None if name is None else shortened(name),
                }
                for entity_type, name in parts
            ],
        }
        for parts, code, message in results
    ]
    body: Struct = {"throttleTimeMs": 0, "entries": entries}
    return _sized(_encode(ApiKey.ALTER_CLIENT_QUOTAS, version, correlation_id, body))


def _described(
    version: int, correlation_id: int, entries: Iterable[tuple[Parts, Mapping[str, float]]]
) -> bytes:
    found: list[Value] = [
        {
            "entity": _entity(parts),
            "values": [{"key": key, "value": float(value)} for key, value in limits.items()],
        }
        for parts, limits in entries
    ]
    body: Struct = {"throttleTimeMs": 0, "errorCode": ErrorCode.NONE, "errorMessage": "", "entries": found}
    return _encode(ApiKey.DESCRIBE_CLIENT_QUOTAS, version, correlation_id, body)


def _entity(parts: Parts) -> list[Value]:
    return [{"entityType": entity_type, "entityName": name} for entity_type, name in parts]


def _encode(api_key: int, version: int, correlation_id: int, body: Struct) -> bytes:
    frame = DecodedFrame({"correlationId": correlation_id}, body)
    return encode_frame("response", api_key, version, frame)


def _count(count: int, flexible: bool) -> bytes:
    return encode_varint(count + 1) if flexible else count.to_bytes(4, "big")


def _sized(frame: bytes) -> bytes:
    return len(frame).to_bytes(SIZE_BYTES, "big") + frame


def _number(value: Value) -> float:
    """The codec tells NaN and infinity as JSON must: in words."""
    if isinstance(value, str):
        return float(value.partition(":")[0])
    return cast(float, value)


def _text(value: str) -> str:
    """The codec keeps bytes that are no UTF-8 as halves of surrogate pairs, which no record could hold."""
    return value if value.isascii() else java_text(value.encode("utf-8", "surrogateescape"))


def _name(value: str | None) -> str | None:
    return None if value is None else _text(value)
