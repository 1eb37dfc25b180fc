"""Kafka's own message classes at work: kafka-clients in a JVM, driven by py4j.

One JVM as long as the oracle is open; a call takes about a millisecond. Nothing is compiled: a JRE will do.
"""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

from py4j.protocol import Py4JJavaError

from sluice.protocol.codec.spec_model import Direction, Field
from sluice.protocol.codec.tags import UNKNOWN_TAGS
from sluice.protocol.codec.wire import Struct, Value
from testkit.frames.message_values import header_version, message_of
from testkit.kafka.java_machine import java_machine


class JavaOracle:
    """Frames without their size, as Kafka's classes write and read them."""

    def __init__(self, jvm: Any) -> None:
        kafka = jvm.org.apache.kafka.common
        self._jvm = jvm
        self._messages = kafka.message
        self._type_of = kafka.message.ApiMessageType.fromApiKey
        self._serialize = kafka.requests.RequestUtils.serialize
        self._accessor = kafka.protocol.ByteBufferAccessor
        self._wrap = jvm.java.nio.ByteBuffer.wrap
        self._read_tree = jvm.com.fasterxml.jackson.databind.ObjectMapper().readTree
        self._converters: dict[str, Any] = {}

    def api_keys(self) -> set[int]:
        """Every API that Kafka knows a request or response of."""
        types = self._messages.ApiMessageType.values()
        return {int(api.apiKey()) for api in types if api.highestSupportedVersion(True) >= 0}

    def versions(self, api_key: int) -> tuple[int, int, int]:
        """First, last stable, last version."""
        api = self._type_of(api_key)
        stable, last = api.highestSupportedVersion(False), api.highestSupportedVersion(True)
        return int(api.lowestSupportedVersion()), int(stable), int(last)

    def header_version(self, direction: Direction, api_key: int, version: int) -> int:
        api = self._type_of(api_key)
        return int(
            api.requestHeaderVersion(version)
            if direction == "request"
            else api.responseHeaderVersion(version)
        )

    def encode_default(self, direction: Direction, api_key: int, version: int, header: Struct) -> bytes:
        """A message on which nothing has been set."""
        api = self._type_of(api_key)
        message = api.newRequest() if direction == "request" else api.newResponse()
        return self._frame(direction, api_key, version, header, message)

    def encode(self, direction: Direction, api_key: int, version: int, header: Struct, body: Struct) -> bytes:
        """`body` goes through Kafka's JSON converter, so it must not have unknown tags."""
        fields = message_of(direction, api_key).fields
        node = self._read_tree(json.dumps(java_json(fields, body, keep_records=True)))
        message = self._converter(direction, api_key).read(node, version)
        return self._frame(direction, api_key, version, header, message)

    def rewrite(self, direction: Direction, api_key: int, version: int, frame: bytes) -> tuple[bytes, Value]:
        """What Kafka writes after it has read this frame, and the body as its JSON converter shows it."""
        accessor = self._accessor(self._wrap(frame))
        api = self._type_of(api_key)
        head = self._header_class(direction)(accessor, header_version(direction, api_key, version))
        message = api.newRequest() if direction == "request" else api.newResponse()
        message.read(accessor, version)
        assert accessor.remaining() == 0
        written = self._serialize(head, header_version(direction, api_key, version), message, version)
        shown = self._converter(direction, api_key).write(message, version, True).toString()
        return cast(bytes, written.array()), cast(Value, json.loads(shown))

    def can_read(self, api_key: int, version: int, rest: bytes) -> bool:
        """Whether a broker reads a request: `rest` is of its frame, from behind the client id."""
        head = struct.pack(">hhih", api_key, version, 0, -1)
        accessor = self._accessor(self._wrap(head + rest))
        try:
            self._messages.RequestHeaderData(accessor, self.header_version("request", api_key, version))
            self._type_of(api_key).newRequest().read(accessor, version)
        except Py4JJavaError:
            return False
        return True

    def _frame(self, direction: Direction, api_key: int, version: int, header: Struct, message: Any) -> bytes:
        head = self._header_class(direction)().setCorrelationId(header["correlationId"])
        if direction == "request":
            head = (
                head.setRequestApiKey(api_key).setRequestApiVersion(version).setClientId(header["clientId"])
            )
        frame = self._serialize(head, self.header_version(direction, api_key, version), message, version)
        return cast(bytes, frame.array())

    def _header_class(self, direction: Direction) -> Any:
        return getattr(self._messages, f"{direction.capitalize()}HeaderData")

    def _converter(self, direction: Direction, api_key: int) -> Any:
        name = f"{message_of(direction, api_key).name}DataJsonConverter"
        if name not in self._converters:
            self._converters[name] = getattr(self._messages, name)
        return self._converters[name]


def java_json(fields: tuple[Field, ...], value: Value, *, keep_records: bool) -> Value:
    """Our value as Kafka's JSON converters have it: bytes in base64, no unknown tags.

    They read records, but write an empty string for them (`keep_records=False`).
    """
    if value is None:
        return None
    assert isinstance(value, dict)
    known = {field.name: field for field in fields}
    return {
        name: _java_field(known[name], content, keep_records)
        for name, content in value.items()
        if name != UNKNOWN_TAGS
    }


def _java_field(field: Field, value: Value, keep_records: bool) -> Value:
    if isinstance(value, list):
        return [_java_single(field, item, keep_records) for item in value]
    return _java_single(field, value, keep_records)


def _java_single(field: Field, value: Value, keep_records: bool) -> Value:
    if field.type == "struct":
        return java_json(field.fields, value, keep_records=keep_records)
    if field.type in {"bytes", "records"} and isinstance(value, str):
        if field.type == "records" and not keep_records:
            return ""
        return base64.b64encode(bytes.fromhex(value)).decode()
    return value


@contextmanager
def java_oracle() -> Iterator[JavaOracle]:
    """Start a JVM with Kafka's jars, and end it."""
    with java_machine() as jvm:
        yield JavaOracle(jvm)
