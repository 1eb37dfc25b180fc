"""Random values for every message of Kafka 4.3.1, from the same descriptions that the codec is compiled from.

Knows nothing of bytes. What a value looks like is what sluice.protocol.codec.codec says: names, hex, uuids.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

from sluice.protocol.apis import API_VERSIONS
from sluice.protocol.codec.codec import DecodedFrame
from sluice.protocol.codec.spec_model import Direction, Field, Message, load_header, load_message
from sluice.protocol.codec.tags import UNKNOWN_TAGS
from sluice.protocol.codec.wire import Struct, Value, uuid_text

DIRECTIONS: tuple[Direction, ...] = ("request", "response")
FIRST_UNKNOWN_TAG = 100  # Kafka 4.3.1 has no tag above 3

_BOUNDS = {
    "int8": (-(2**7), 2**7 - 1),
    "int16": (-(2**15), 2**15 - 1),
    "uint16": (0, 2**16 - 1),
    "int32": (-(2**31), 2**31 - 1),
    "uint32": (0, 2**32 - 1),
    "int64": (-(2**63), 2**63 - 1),
}
_CHARACTERS = 'abcXYZ0._-/ "\\\n\x00\x7fé߿€￿𝄞🎛'


def message_of(direction: Direction, api_key: int) -> Message:
    """The message, which must exist."""
    message = load_message(direction, api_key)
    assert message is not None
    return message


def versions_of(message: Message) -> range:
    return range(message.versions.first, message.versions.last + 1)


def all_versions() -> Iterator[tuple[Direction, int, int]]:
    """(direction, api key, version): all 604."""
    from sluice.protocol.codec._schemas import REQUESTS

    for direction in DIRECTIONS:
        for api_key in REQUESTS:
            for version in versions_of(message_of(direction, api_key)):
                yield direction, api_key, version


def header_version(direction: Direction, api_key: int, version: int) -> int:
    """Written down a second time, apart from the codec: request v1, v2; response v0, v1; ApiVersions v0."""
    flexible = version in message_of(direction, api_key).flexible
    if direction == "request":
        return 1 + flexible
    return 0 if api_key == API_VERSIONS else int(flexible)


def random_frame(
    direction: Direction,
    api_key: int,
    version: int,
    random: Random,
    *,
    unknown_tags: bool = False,
    tame: bool = False,
) -> DecodedFrame:
    """A value for each field that this version has. Tagged fields are there or not, never with their default.

    With unknown_tags, structs of a flexible version (the header too) may have tags that Kafka does not know.
    Tame numbers are 1 to 80: error codes that exist, times that are dates.
    """
    maker = _Maker(random, unknown_tags, tame)
    message = message_of(direction, api_key)
    head = load_header(direction)
    head_version = header_version(direction, api_key, version)
    header = maker.struct(head.fields, head_version, head_version in head.flexible)
    if direction == "request":
        header |= {"requestApiKey": api_key, "requestApiVersion": version}
    body = maker.struct(message.fields, version, version in message.flexible)
    if direction == "response" and api_key == API_VERSIONS:
        body["errorCode"] = 0  # 35 means that the body is of version 0
    return DecodedFrame(header, body)


@dataclass(frozen=True, slots=True)
class _Maker:
    random: Random
    unknown_tags: bool
    tame: bool

    def struct(self, fields: tuple[Field, ...], version: int, flexible: bool) -> Struct:
        value: Struct = {}
        for field in fields:
            if version not in field.versions:
                continue
            content = self._field(field, version)
            if version in field.tagged and (is_default(field, content) or self.random.random() < 0.3):
                continue
            value[field.name] = content
        if flexible and self.unknown_tags and self.random.random() < 0.7:
            tags = sorted(self.random.sample(range(FIRST_UNKNOWN_TAG, 40_000), self.random.randint(1, 3)))
            value[UNKNOWN_TAGS] = [{"tag": tag, "hex": self._hex()} for tag in tags]
        return value

    def _field(self, field: Field, version: int) -> Value:
        if version in field.nullable and self.random.random() < 0.2:
            return None
        if field.is_array:
            return [self._single(field, version) for _ in range(self.random.randint(0, 3))]
        return self._single(field, version)

    def _single(self, field: Field, version: int) -> Value:
        match field.type:
            case "struct":
                return self.struct(field.fields, version, version in field.flexible)
            case "bool":
                return self.random.random() < 0.5
            case "float64":
                return self.random.choice((0.0, -1.5, 0.1, 1e300, self.random.uniform(-1e9, 1e9)))
            case "uuid":
                return uuid_text(self.random.randbytes(16))
            case "string":
                length = self.random.choice((0, 1, 3, 12, 130))  # 130: two bytes of varint
                return "".join(self.random.choice(_CHARACTERS) for _ in range(length))
            case "bytes" | "records":
                return self._hex()
        low, high = (1, 80) if self.tame else _BOUNDS[field.type]
        return self.random.choice((low, high, max(low, 0), 1, self.random.randint(low, high)))

    def _hex(self) -> str:
        return self.random.randbytes(self.random.choice((0, 1, 7, 200))).hex()


def is_default(field: Field, value: Value) -> bool:
    """Whether Kafka would leave this tagged field out."""
    if field.default is None or value is None:
        return value == field.default
    if field.is_array:
        return value == []
    if field.type == "struct":
        assert isinstance(value, dict)
        children = {child.name: child for child in field.fields}
        return all(name in children and is_default(children[name], v) for name, v in value.items())
    return value == field.default
