"""A field description and a version → two closures, one that reads and one that writes.

Knows nothing of frames and headers (codec.py). Descriptions are finite (tools/protocol_tables/jar.py refuses
a struct that contains itself), so the depth of a read does not depend on the bytes. A count is checked
against the bytes that are left, by the smallest size that an element can have, before anything is allocated
for it. Source: Kafka's generator, MessageDataGenerator; KIP-482 (flexible versions).
"""

from __future__ import annotations

import struct
from typing import Final

from sluice.protocol.codec.spec_model import INT_TYPES, Field
from sluice.protocol.codec.tags import TAG_ORDER, UNKNOWN_TAGS, tag_section
from sluice.protocol.codec.wire import (
    Codec,
    Reader,
    Struct,
    Value,
    WireError,
    Writer,
    float_from_bits,
    float_to_bits,
    from_hex,
    shorten,
    uuid_bytes,
    uuid_text,
)

_FORMATS: Final = {"int8": "b", "int16": "h", "uint16": "H", "int32": "i", "uint32": "I", "int64": "q"}


def struct_codec(fields: tuple[Field, ...], version: int, flexible: bool) -> Codec:
    """The fields of one struct in wire order; in a flexible version its tagged fields behind them.

    Reading gives a dict with the fields of this version; a tagged field only if it was on the wire. Writing
    takes such a dict: a missing field gets its default, a missing tagged one is not written, an unknown name
    is refused.
    """
    present = [f for f in fields if version in f.versions]
    plain = [(f.name, _field_codec(f, version), _default(f)) for f in present if version not in f.tagged]
    tagged = {f.tag: (f.name, _field_codec(f, version)) for f in present if version in f.tagged}
    readers = [(name, codec.read) for name, codec, _ in plain]
    names = frozenset(f.name for f in present) | ({UNKNOWN_TAGS, TAG_ORDER} if flexible else set())
    read_tags, write_tags = tag_section(tagged)

    def read(r: Reader) -> Struct:
        value: Struct = {}
        name = ""
        try:
            for name, read_field in readers:
                value[name] = read_field(r)
        except WireError as error:
            raise error.within(name) from None
        if flexible:
            read_tags(r, value)
        return value

    def write(w: Writer, value: Value) -> None:
        if not isinstance(value, dict):
            raise WireError(f"not an object: {shorten(value)}")
        if not value.keys() <= names:
            raise WireError(f"no such field in this version: {shorten(min(value.keys() - names))}")
        name = ""
        try:
            for name, codec, default in plain:
                codec.write(w, value.get(name, default))
        except WireError as error:
            raise error.within(name) from None
        if flexible:
            write_tags(w, value)

    return Codec(read, write, sum(codec.min_bytes for _, codec, _ in plain) + flexible)


def _default(field: Field) -> Value:
    if field.default is None:
        return None
    if field.is_array:
        return []
    return {} if field.type == "struct" else field.default


# --- fields ----------------------------------------------------------------------------------------------


def _field_codec(field: Field, version: int) -> Codec:
    compact = version in field.flexible
    nullable = version in field.nullable
    if field.is_array:
        if field.type in INT_TYPES:
            return _int_array_codec(field.type, compact, nullable)
        return _array_codec(_single_codec(field, version, compact, nullable=False), compact, nullable)
    return _single_codec(field, version, compact, nullable)


def _single_codec(field: Field, version: int, compact: bool, nullable: bool) -> Codec:
    if field.type == "struct":
        codec = struct_codec(field.fields, version, compact)
        return _nullable_struct_codec(codec) if nullable else codec
    if field.type in INT_TYPES:
        return _int_codec(field.type)
    if field.type == "string":
        return _string_codec(compact, nullable)
    if field.type in {"bytes", "records"}:
        return _bytes_codec(compact, nullable)
    return {"bool": _BOOL, "uuid": _UUID, "float64": _FLOAT64}[field.type]


def _int_codec(type_name: str) -> Codec:
    layout = struct.Struct(">" + _FORMATS[type_name])
    size = layout.size

    def read(r: Reader) -> int:
        number: int = layout.unpack_from(r.data, r.skip(size))[0]
        return number

    def write(w: Writer, value: Value) -> None:
        if isinstance(value, bool) or not isinstance(value, int):
            raise WireError(f"not an integer: {shorten(value)}")
        try:
            w.out += layout.pack(value)
        except struct.error:
            raise WireError(f"not an {type_name}: {shorten(value)}") from None

    return Codec(read, write, size)


def _read_bool(r: Reader) -> Value:
    byte = r.data[r.skip(1)]
    return byte == 1 if byte < 2 else byte  # Java takes any byte but 0 for true: keep which one it was


def _write_bool(w: Writer, value: Value) -> None:
    if not isinstance(value, int) or not 0 <= value <= 0xFF:
        raise WireError(f"not a bool: {shorten(value)}")
    w.out.append(value)


def _write_uuid(w: Writer, value: Value) -> None:
    w.out += uuid_bytes(value)


def _write_float(w: Writer, value: Value) -> None:
    w.out += float_to_bits(value)


_BOOL: Final = Codec(_read_bool, _write_bool, 1)
_UUID: Final = Codec(lambda r: uuid_text(r.take(16)), _write_uuid, 16)
_FLOAT64: Final = Codec(lambda r: float_from_bits(r.take(8)), _write_float, 8)


def _string_codec(compact: bool, nullable: bool) -> Codec:
    def read(r: Reader) -> str | None:
        length = r.length(compact, narrow=True, nullable=nullable)
        return None if length is None else r.take(length).decode("utf-8", "surrogateescape")

    def write(w: Writer, value: Value) -> None:
        if value is None and nullable:
            w.length(None, compact, narrow=True)
            return
        if not isinstance(value, str):
            raise WireError(f"not a string: {shorten(value)}")
        try:
            raw = value.encode("utf-8", "surrogateescape")
        except UnicodeEncodeError:
            raise WireError(f"not a string of characters: {shorten(value)}") from None
        w.length(len(raw), compact, narrow=True)
        w.out += raw

    return Codec(read, write, 1 if compact else 2)


def _bytes_codec(compact: bool, nullable: bool) -> Codec:
    def read(r: Reader) -> str | None:
        length = r.length(compact, narrow=False, nullable=nullable)
        return None if length is None else r.take(length).hex()

    def write(w: Writer, value: Value) -> None:
        if value is None and nullable:
            w.length(None, compact, narrow=False)
            return
        raw = from_hex(value)
        w.length(len(raw), compact, narrow=False)
        w.out += raw

    return Codec(read, write, 1 if compact else 4)


def _nullable_struct_codec(codec: Codec) -> Codec:
    """A byte before the struct: 1, or -1 for null and nothing behind it."""

    def read(r: Reader) -> Value:
        start = r.skip(1)
        marker = r.data[start]
        if marker == 0xFF:
            return None
        if marker != 1:
            raise WireError(f"neither null (-1) nor a struct (1), but {marker}", start)
        return codec.read(r)

    def write(w: Writer, value: Value) -> None:
        w.out.append(0xFF if value is None else 1)
        if value is not None:
            codec.write(w, value)

    return Codec(read, write, 1)


def _read_count(r: Reader, compact: bool, nullable: bool, min_bytes: int) -> int | None:
    start = r.pos
    count = r.length(compact, narrow=False, nullable=nullable)
    left = r.end - r.pos
    if count is not None and count > left // min_bytes:
        raise WireError(f"{count} elements of at least {min_bytes} bytes where {left} are left", start)
    return count


def _array_codec(element: Codec, compact: bool, nullable: bool) -> Codec:
    # An element that takes no byte would let a few bytes ask for 2³¹ objects.
    min_bytes = max(element.min_bytes, 1)

    def read(r: Reader) -> list[Value] | None:
        count = _read_count(r, compact, nullable, min_bytes)
        if count is None:
            return None
        values: list[Value] = []
        try:
            for _ in range(count):
                values.append(element.read(r))
        except WireError as error:
            raise error.within(f"[{len(values)}]") from None
        return values

    def write(w: Writer, value: Value) -> None:
        if not _write_count(w, value, compact, nullable):
            return
        assert isinstance(value, list)
        for index, item in enumerate(value):
            try:
                element.write(w, item)
            except WireError as error:
                raise error.within(f"[{index}]") from None

    return Codec(read, write, 1 if compact else 4)


def _int_array_codec(type_name: str, compact: bool, nullable: bool) -> Codec:
    letter = _FORMATS[type_name]
    size = struct.calcsize(">" + letter)

    def read(r: Reader) -> list[Value] | None:
        count = _read_count(r, compact, nullable, size)
        if count is None:
            return None
        return list(struct.unpack_from(f">{count}{letter}", r.data, r.skip(count * size)))

    def write(w: Writer, value: Value) -> None:
        if not _write_count(w, value, compact, nullable):
            return
        assert isinstance(value, list)
        try:
            if any(isinstance(item, bool) for item in value):
                raise struct.error
            w.out += struct.pack(f">{len(value)}{letter}", *value)
        except struct.error:
            raise WireError(f"not an array of {type_name}: {shorten(value)}") from None

    return Codec(read, write, 1 if compact else 4)


def _write_count(w: Writer, value: Value, compact: bool, nullable: bool) -> bool:
    """Write an array's length; tells whether its elements follow."""
    if value is None and nullable:
        w.length(None, compact, narrow=False)
        return False
    if not isinstance(value, list):
        raise WireError(f"not an array: {shorten(value)}")
    w.length(len(value), compact, narrow=False)
    return True
