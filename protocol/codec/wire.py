"""The codec's two cursors, Reader over a frame and Writer of one, and the types that take more than an int.

Every read is checked against the bytes that are left. Where the wire has several spellings of one value, the
one that was used is kept: a varint in more bytes than it needs is remembered by its ordinal in the walk, a
bool byte other than 0 and 1 stays a number, invalid UTF-8 becomes surrogate escapes, a NaN keeps its bits.
Source: Kafka's protocol guide; KIP-482; ByteBufferAccessor, ByteUtils.readUnsignedVarint.
"""

from __future__ import annotations

import binascii
import math
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

Value: TypeAlias = "bool | int | float | str | list[Value] | dict[str, Value] | None"
Struct: TypeAlias = "dict[str, Value]"

MAX_VARINT_BYTES: Final = 5
MAX_INT32: Final = 0x7FFFFFFF
_CANONICAL_NAN: Final = 0x7FF8_0000_0000_0000


class WireError(Exception):
    """Bytes that contradict the layout, or a value that cannot be bytes. `path` names the field."""

    def __init__(self, reason: str, offset: int | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.offset = offset
        self.path = ""

    def within(self, step: str) -> WireError:
        """The same error seen from one level further out; `step` is a field's name or `[index]`."""
        self.path = step + ("." if self.path and not self.path.startswith("[") else "") + self.path
        return self

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}" if self.path else self.reason


class Reader:
    """A cursor over data[pos:end]. `wide`: (ordinal, bytes) of each varint that is longer than needed."""

    __slots__ = ("data", "end", "pos", "varints", "wide")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.pos = 0
        self.end = len(data)
        self.varints = 0
        self.wide: list[tuple[int, int]] = []

    def skip(self, size: int) -> int:
        """Move over `size` bytes and return where they begin. Raises WireError if fewer are left."""
        start = self.pos
        if size > self.end - start:
            raise WireError(f"{size} bytes are due where {self.end - start} are left", start)
        self.pos = start + size
        return start

    def take(self, size: int) -> bytes:
        """The next `size` bytes. Raises WireError if fewer are left."""
        start = self.skip(size)
        return self.data[start : start + size]

    def varint(self) -> int:
        """An unsigned varint of at most 5 bytes and 31 bits. Raises WireError beyond that."""
        self.varints += 1
        start = self.pos
        value = 0
        for width in range(1, MAX_VARINT_BYTES + 1):
            byte = self.data[self.skip(1)]
            value |= (byte & 0x7F) << (7 * (width - 1))
            if byte < 0x80:
                if value > MAX_INT32:
                    break
                if byte == 0 and width > 1:
                    self.wide.append((self.varints, width))
                return value
        raise WireError("a varint of more than 31 bits", start)

    def length(self, compact: bool, narrow: bool, nullable: bool) -> int | None:
        """Length of a string (`narrow`: int16), of bytes or an array (int32), or of any in compact form.

        None is null: -1, or 0 in compact form. Raises WireError for null if not `nullable`, and below -1.
        """
        start = self.pos
        if compact:
            value = self.varint() - 1
        else:
            size = 2 if narrow else 4
            value = int.from_bytes(self.data[self.skip(size) : self.pos], "big", signed=True)
        if value >= 0:
            return value
        if value < -1:
            raise WireError(f"a length of {value}", start)
        if not nullable:
            raise WireError("null where this version has none", start)
        return None


class Writer:
    """Collects one frame in `out`. `wide` holds, by ordinal, how many bytes a varint shall have at least."""

    __slots__ = ("out", "varints", "wide")

    def __init__(self, wide: Mapping[int, int]) -> None:
        self.out = bytearray()
        self.varints = 0
        self.wide = wide

    def varint(self, value: int) -> None:
        """Write a variable-length integer: the counterpart of Reader.varint."""
        self.varints += 1
        self.out += encode_varint(value, self.wide.get(self.varints, 1))

    def length(self, value: int | None, compact: bool, narrow: bool) -> None:
        """Counterpart of Reader.length. Raises WireError if the length does not fit."""
        if compact:
            self.varint(0 if value is None else value + 1)
            return
        size = 2 if narrow else 4
        try:
            self.out += (-1 if value is None else value).to_bytes(size, "big", signed=True)
        except OverflowError:
            raise WireError(f"too long: {value}") from None


Read = Callable[[Reader], Value]
Write = Callable[[Writer, Value], None]


@dataclass(frozen=True, slots=True)
class Codec:
    """How one field, or one struct, is read and written. `min_bytes`: no value takes less."""

    read: Read
    write: Write
    min_bytes: int


def encode_varint(value: int, min_bytes: int = 1) -> bytes:
    """`value` (>= 0) as an unsigned varint, in `min_bytes` or as many as it needs."""
    out = bytearray()
    while value > 0x7F or len(out) < min_bytes - 1:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def float_from_bits(bits: bytes) -> float | str:
    """A float64 as JSON can say it: a number, or `NaN`, `Infinity`, `-Infinity`, `NaN:` and 16 hex digits."""
    number: float = struct.unpack(">d", bits)[0]
    if math.isnan(number):
        return "NaN" if int.from_bytes(bits, "big") == _CANONICAL_NAN else "NaN:" + bits.hex()
    if math.isinf(number):
        return "Infinity" if number > 0 else "-Infinity"
    return number


def float_to_bits(value: Value) -> bytes:
    """Counterpart of float_from_bits. Raises WireError for anything else."""
    if isinstance(value, str):
        if value in {"Infinity", "-Infinity"}:
            return struct.pack(">d", float(value))
        if value == "NaN":
            return _CANONICAL_NAN.to_bytes(8, "big")
        if value.startswith("NaN:") and len(value) == 20:
            return from_hex(value[4:])
    elif isinstance(value, int | float) and not isinstance(value, bool):
        try:
            return struct.pack(">d", value)
        except (OverflowError, struct.error):  # an int beyond all floats gives the second
            pass
    raise WireError(f"not a float64: {shorten(value)}")


def uuid_text(raw: bytes) -> str:
    """Sixteen bytes as Kafka's Uuid.toString writes them: base64 for URLs, without padding."""
    return binascii.b2a_base64(raw, newline=False).decode().translate(_TO_URL)[:22]


def uuid_bytes(value: Value) -> bytes:
    """Counterpart of uuid_text. Raises WireError for anything else."""
    if isinstance(value, str) and len(value) == 22:
        try:
            raw = binascii.a2b_base64(value.translate(_FROM_URL) + "==", strict_mode=True)
        except ValueError:
            raw = b""
        if len(raw) == 16 and uuid_text(raw) == value:
            return raw
    raise WireError(f"not a uuid: {shorten(value)}")


_TO_URL = str.maketrans("+/", "-_")
_FROM_URL = str.maketrans("-_", "+/")


def from_hex(value: Value) -> bytes:
    """Bytes of an even number of hex digits, and of nothing else (bytes.fromhex would let blanks pass)."""
    if not isinstance(value, str):
        raise WireError(f"not a string of hex digits: {shorten(value)}")
    try:
        return binascii.unhexlify(value)
    except ValueError as error:
        raise WireError(f"not hex: {str(error).lower()}") from None


def shorten(value: object) -> str:
    """A value for an error message, at most 60 characters; of what can nest without end, only its kind."""
    if isinstance(value, dict | list):
        return "an object" if isinstance(value, dict) else f"an array of {len(value)}"
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
