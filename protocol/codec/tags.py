"""The tagged fields at the end of each struct of a flexible version: known ones by name, others kept as hex.

Knows nothing of what a field means. Source: KIP-482, "Tagged Fields".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from sluice.protocol.codec.wire import (
    Codec,
    Reader,
    Struct,
    Value,
    WireError,
    Writer,
    encode_varint,
    from_hex,
    shorten,
)

UNKNOWN_TAGS: Final = "_unknownTaggedFields"
TAG_ORDER: Final = "_tagOrder"


def tag_section(
    known: dict[int, tuple[str, Codec]],
) -> tuple[Callable[[Reader, Struct], None], Callable[[Writer, Struct], None]]:
    """Tagged fields: known ones by name, others as hex under `_unknownTaggedFields`.

    Kafka writes tags in ascending order and reads them in any; another order is kept in `_tagOrder`. A tag
    that comes twice is refused: two readers could take two different meanings from it.
    """

    def read(r: Reader, value: Struct) -> None:
        start = r.pos
        count = r.varint()
        if count > (r.end - r.pos) // 2:  # a tag and a size: two bytes at least
            raise WireError(f"{count} tagged fields where {r.end - r.pos} bytes are left", start)
        order: list[int] = []
        seen: set[int] = set()
        unknown: list[Value] = []
        for _ in range(count):
            start = r.pos
            tag = r.varint()
            if tag in seen:
                raise WireError(f"tag {tag} comes twice", start)
            seen.add(tag)
            order.append(tag)
            size = r.varint()
            if tag in known:
                name, codec = known[tag]
                value[name] = _read_sized(r, name, codec, size)
            else:
                unknown.append({"tag": tag, "hex": r.take(size).hex()})
        if unknown:
            value[UNKNOWN_TAGS] = unknown
        if order != sorted(order):
            value[TAG_ORDER] = [*order]

    def write(w: Writer, value: Struct) -> None:
        entries: dict[int, tuple[str, Codec] | bytes] = {
            tag: (name, codec) for tag, (name, codec) in known.items() if name in value
        }
        for tag, content in _unknown_tags(value.get(UNKNOWN_TAGS, [])):
            if tag in known or tag in entries:
                raise WireError(f"tag {tag} is not unknown, or comes twice").within(UNKNOWN_TAGS)
            entries[tag] = content
        w.varint(len(entries))
        for tag in _order(entries, value.get(TAG_ORDER)):
            entry = entries[tag]
            w.varint(tag)
            if isinstance(entry, bytes):
                w.varint(len(entry))
                w.out += entry
            else:
                _write_sized(w, *entry, value[entry[0]])

    return read, write


def _read_sized(r: Reader, name: str, codec: Codec, size: int) -> Value:
    """One known tagged field; it must fill its size exactly."""
    frame_end = r.end
    r.end = r.skip(size) + size
    r.pos = r.end - size
    try:
        value = codec.read(r)
        if r.pos != r.end:
            raise WireError(f"the tagged field ends {r.end - r.pos} bytes before its size says", r.pos)
    except WireError as error:
        raise error.within(name) from None
    r.end = frame_end
    return value


def _write_sized(w: Writer, name: str, codec: Codec, value: Value) -> None:
    w.varints += 1  # the size stands before the content, so its ordinal comes first
    min_bytes = w.wide.get(w.varints, 1)
    start = len(w.out)
    try:
        codec.write(w, value)
    except WireError as error:
        raise error.within(name) from None
    w.out[start:start] = encode_varint(len(w.out) - start, min_bytes)


def _unknown_tags(value: Value) -> Iterator[tuple[int, bytes]]:
    if not isinstance(value, list):
        raise WireError(f"not an array: {shorten(value)}").within(UNKNOWN_TAGS)
    for entry in value:
        if not isinstance(entry, dict) or entry.keys() != {"tag", "hex"} or not _is_tag(entry["tag"]):
            raise WireError(f"not a tag and its hex: {shorten(entry)}").within(UNKNOWN_TAGS)
        tag = entry["tag"]
        assert isinstance(tag, int)
        yield tag, from_hex(entry["hex"])


def _is_tag(value: Value) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**31


def _order(entries: dict[int, tuple[str, Codec] | bytes], wanted: Value) -> list[int]:
    if wanted is None:
        return sorted(entries)
    if isinstance(wanted, list):
        order = [tag for tag in wanted if isinstance(tag, int)]
        if len(order) == len(wanted) and sorted(order) == sorted(entries):
            return order
    raise WireError("does not name each tagged field once").within(TAG_ORDER)
