"""The shape of one Kafka message as its description tells it: fields, versions, tags, defaults.

Built from the JSON in `_schemas.py` (see tools/protocol_tables/generate.py). Knows nothing of bytes; the
codec turns it into readers and writers. Source: README.md of Kafka's common/message folder.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from typing import Final, Literal, cast

Direction = Literal["request", "response"]
Scalar = bool | int | float | str | None

ANY_VERSION: Final = 32767
INT_TYPES: Final = ("int8", "int16", "uint16", "int32", "uint32", "int64")
FIXED_SIZES: Final = {
    "bool": 1,
    "int8": 1,
    "int16": 2,
    "uint16": 2,
    "int32": 4,
    "uint32": 4,
    "int64": 8,
    "float64": 8,
    "uuid": 16,
}
VARIABLE_TYPES: Final = ("string", "bytes", "records")


class SpecError(Exception):
    """A message description that this program does not understand: a newer Kafka with a new kind of field."""


@dataclass(frozen=True, slots=True)
class Versions:
    """A closed range of versions; empty when first > last."""

    first: int
    last: int

    @classmethod
    def parse(cls, text: str) -> Versions:
        """`3-13`, `9+`, `0`, `none`. Raises SpecError for anything else."""
        try:
            if text == "none":
                return NO_VERSIONS
            if text.endswith("+"):
                return cls(int(text[:-1]), ANY_VERSION)
            first, dash, last = text.partition("-")
            return cls(int(first), int(last if dash else first))
        except ValueError:
            raise SpecError(f"not a range of versions: {text!r}") from None

    def __contains__(self, version: int) -> bool:
        return self.first <= version <= self.last

    def __bool__(self) -> bool:
        return self.first <= self.last


NO_VERSIONS: Final = Versions(1, 0)


@dataclass(frozen=True, slots=True)
class Field:
    """One field. `type` is an element type when `is_array`; `fields` is filled for `struct` only."""

    name: str
    type: str
    is_array: bool
    versions: Versions
    nullable: Versions
    tagged: Versions
    tag: int
    flexible: Versions
    default: Scalar  # None is null; of an array, a struct or bytes anything else means the empty one
    fields: tuple[Field, ...]

    def fixed_size(self) -> int | None:
        """Bytes on the wire if these are the same for every value, else None."""
        return None if self.is_array else FIXED_SIZES.get(self.type)


@dataclass(frozen=True, slots=True)
class Message:
    """One request, response or header, all versions."""

    name: str
    versions: Versions
    flexible: Versions
    fields: tuple[Field, ...]

    def present(self, version: int) -> list[Field]:
        """The fields that stand in the body itself at this version (not the tagged ones), in wire order."""
        return [f for f in self.fields if version in f.versions and version not in f.tagged]


def message_from_json(raw: object) -> Message:
    """Read one entry of `_schemas.py`. Raises SpecError if a field has an unknown type."""
    node = cast("dict[str, object]", raw)
    flexible = Versions.parse(cast(str, node["flexible"]))
    return Message(
        name=cast(str, node["name"]),
        versions=Versions.parse(cast(str, node["versions"])),
        flexible=flexible,
        fields=_fields(node["fields"], flexible),
    )


def _fields(raw: object, flexible: Versions) -> tuple[Field, ...]:
    return tuple(_field(cast("list[object]", entry), flexible) for entry in cast("list[object]", raw))


def _field(raw: list[object], flexible: Versions) -> Field:
    """`[name, type, versions, {options}]`; the options are left out when there are none."""
    name, full_type, versions = cast("tuple[str, str, str]", tuple(raw[:3]))
    options = cast("dict[str, object]", raw[3]) if len(raw) > 3 else {}
    element = full_type.removeprefix("[]")
    if element not in FIXED_SIZES and element not in VARIABLE_TYPES and element != "struct":
        raise SpecError(f"field {name} has the unknown type {full_type}")
    own_flexible = Versions.parse(cast(str, options["flexible"])) if "flexible" in options else flexible
    return Field(
        name=name,
        type=element,
        is_array=full_type.startswith("[]"),
        versions=Versions.parse(versions),
        nullable=Versions.parse(cast(str, options.get("nullable", "none"))),
        tagged=Versions.parse(cast(str, options.get("tagged", "none"))),
        tag=cast(int, options.get("tag", -1)),
        flexible=own_flexible,
        default=cast(Scalar, options["default"]) if "default" in options else _default(full_type),
        fields=_fields(options.get("fields", []), flexible),
    )


def _default(full_type: str) -> Scalar:
    """What a field without a default of its own has when it is left out."""
    if full_type in INT_TYPES:
        return 0
    if full_type == "uuid":
        return "A" * 22  # sixteen zero bytes as Kafka's Uuid.toString writes them
    return {"bool": False, "float64": 0.0, "records": None}.get(full_type, "")


@cache
def load_message(direction: Direction, api_key: int) -> Message | None:
    """The message of this API, parsed on first use; None if Kafka 4.3.1 has no such API."""
    from sluice.protocol.codec import _schemas  # text that most commands never need

    text = (_schemas.REQUESTS if direction == "request" else _schemas.RESPONSES).get(api_key)
    return None if text is None else message_from_json(json.loads(text))


@cache
def load_header(direction: Direction) -> Message:
    """The request or response header."""
    from sluice.protocol.codec import _schemas

    return message_from_json(
        json.loads(_schemas.REQUEST_HEADER if direction == "request" else _schemas.RESPONSE_HEADER)
    )
