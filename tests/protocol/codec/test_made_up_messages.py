"""The codec on messages that Kafka does not have: each kind of field at its smallest, its default, edges."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from sluice.protocol.codec.compile import struct_codec
from sluice.protocol.codec.spec_model import INT_TYPES, Field, message_from_json
from sluice.protocol.codec.tags import UNKNOWN_TAGS
from sluice.protocol.codec.wire import Codec, Reader, Value, WireError, Writer

ZERO_UUID = "A" * 22
DEFAULTS: dict[str, Value] = {
    **dict.fromkeys(INT_TYPES, 0), "uuid": ZERO_UUID, "bool": False, "float64": 0.0, "string": "",
    "bytes": "", "records": None, "struct": {}, "[]int32": [], "[]string": [], "[]struct": [],
}  # fmt: skip
SMALLEST = [
    # type, is it nullable, in a flexible version, the fewest bytes that it takes
    ("bool", False, False, 1), ("int8", False, False, 1), ("int16", False, False, 2),
    ("uint16", False, False, 2), ("int32", False, False, 4), ("uint32", False, False, 4),
    ("int64", False, False, 8), ("float64", False, False, 8), ("uuid", False, False, 16),
    ("string", False, False, 2), ("string", True, False, 2), ("bytes", False, False, 4),
    ("records", True, False, 4), ("[]int32", False, False, 4), ("[]string", False, False, 4),
    ("string", False, True, 2), ("bytes", False, True, 2), ("records", True, True, 2),
    ("[]int8", False, True, 2), ("[]string", False, True, 2), ("struct", False, True, 2),
    ("struct", True, True, 2),
]  # fmt: skip
"""In a flexible version the element's own empty tags are in it, too."""


def fields(*described: Sequence[object], flexible: bool = False) -> tuple[Field, ...]:
    raw = {"name": "Example", "versions": "0-9", "flexible": "0+" if flexible else "none"}
    return message_from_json({**raw, "fields": list(described)}).fields


def codec_of(*described: Sequence[object], flexible: bool = False, version: int = 0) -> Codec:
    return struct_codec(fields(*described, flexible=flexible), version, flexible)


def written(codec: Codec, value: Value) -> bytes:
    writer = Writer({})
    codec.write(writer, value)
    return bytes(writer.out)


def of_type(full_type: str, nullable: bool = False) -> list[object]:
    options: dict[str, object] = {"nullable": "0+"} if nullable else {}
    return ["of", full_type, "0+", options]


@pytest.mark.parametrize(("full_type", "nullable", "flexible", "smallest_bytes"), SMALLEST)
def test_an_array_of_the_smallest_elements_is_read_and_one_more_refused_at_its_count(
    full_type: str, nullable: bool, flexible: bool, smallest_bytes: int
) -> None:
    array = ["all", "[]struct", "0+", {"fields": [of_type(full_type, nullable)]}]
    codec = codec_of(array, flexible=flexible)
    element = codec_of(of_type(full_type, nullable), flexible=flexible)
    assert element.min_bytes == smallest_bytes
    one: Value = {"of": None} if nullable else {"of": DEFAULTS.get(full_type, [])}
    data = written(codec, {"all": [one] * 100})
    head_bytes, tail_bytes = (1, 1) if flexible else (4, 0)
    if flexible and full_type == "struct" and not nullable:
        assert len(written(element, one)) == 2, "its tags, and those of what holds it"
    assert len(data) == head_bytes + 100 * smallest_bytes + tail_bytes
    value = codec.read(Reader(data))
    assert value == {"all": [one] * 100}
    count = bytes([100 + 2]) if flexible else (101).to_bytes(4, "big")
    lie = count + data[head_bytes:][: 100 * smallest_bytes]
    with pytest.raises(WireError, match=r"^all: 101 elements of at least"):
        codec.read(Reader(lie))


@pytest.mark.parametrize(("full_type", "default"), DEFAULTS.items())
def test_a_field_without_a_default_of_its_own_is_written_as_nothing_or_null(
    full_type: str, default: Value
) -> None:
    options: dict[str, object] = {"nullable": "0+"} if full_type == "records" else {}
    if full_type.endswith("struct"):
        options["fields"] = [["inner", "int8", "0+"]]
    field = ["of", full_type, "0+", options]
    codec = codec_of(field)
    if full_type == "struct":
        default = {"inner": 0}
    assert codec.read(Reader(written(codec, {}))) == {"of": default}


def test_a_default_is_its_own_where_it_has_one_null_included() -> None:
    codec = codec_of(
        ["number", "int32", "0+", {"default": -1}],
        ["text", "string", "0+", {"default": None, "nullable": "0+"}],
        ["list", "[]int32", "0+", {"default": None, "nullable": "0+"}],
    )
    assert codec.read(Reader(written(codec, {}))) == {"number": -1, "text": None, "list": None}


def test_options_count_in_their_versions_alone() -> None:
    described: list[list[object]] = [
        ["plain", "int8", "0+"],
        ["may_be_null", "string", "0+", {"nullable": "2+"}],
        ["aside", "int16", "1+", {"tagged": "3+", "tag": 5, "default": 9}],
    ]
    read = fields(*described, flexible=True)
    assert [field.tag for field in read] == [-1, -1, 5]
    assert [2 in field.nullable for field in read] == [False, True, False]
    old = codec_of(*described, flexible=True, version=1)
    with pytest.raises(WireError, match="may_be_null: not a string"):
        written(old, {"may_be_null": None})
    assert written(old, {"may_be_null": ""}) == bytes.fromhex("00 01 0009 00")
    new = codec_of(*described, flexible=True, version=3)
    assert written(new, {"may_be_null": None}) == bytes.fromhex("00 00 00"), "not written where it is tagged"
    data = written(new, {"may_be_null": None, "aside": 3})
    assert data == bytes.fromhex("00 00 01 05 02 0003")
    assert new.read(Reader(data)) == {"plain": 0, "may_be_null": None, "aside": 3}


def test_a_field_of_its_own_flexible_versions_is_compact_in_these_alone() -> None:
    """As the client id of a request's header."""
    described = ["name", "string", "0+", {"flexible": "none"}]
    assert written(codec_of(described, flexible=True), {"name": "ab"}) == b"\0\2ab\0"
    assert written(codec_of(["name", "string", "0+"], flexible=True), {"name": "ab"}) == b"\3ab\0"


def test_a_section_of_the_smallest_tags_is_read_and_one_more_is_refused_at_its_count() -> None:
    """Each a tag and a size of 0."""
    codec = codec_of(flexible=True)
    tags = b"".join(bytes([tag, 0]) for tag in range(7))
    unknown: list[Value] = [{"tag": tag, "hex": ""} for tag in range(7)]
    assert codec.read(Reader(b"\7" + tags)) == {UNKNOWN_TAGS: unknown}
    assert written(codec, {UNKNOWN_TAGS: unknown}) == b"\7" + tags
    for tail in (b"", b"\7"):
        with pytest.raises(WireError, match=f"8 tagged fields where {14 + len(tail)} bytes"):
            codec.read(Reader(b"\10" + tags + tail))


def test_a_tag_may_be_any_number_of_31_bits() -> None:
    codec = codec_of(flexible=True)
    value: Value = {UNKNOWN_TAGS: [{"tag": 0, "hex": "ab"}, {"tag": 2**31 - 1, "hex": ""}]}
    data = written(codec, value)
    assert data == bytes.fromhex("02 00 01 ab ffffffff07 00")
    assert codec.read(Reader(data)) == value
    with pytest.raises(WireError, match="more than 31 bits"):
        codec.read(Reader(bytes.fromhex("01 8080808008 00")))
    for tag in (-1, 2**31, True):
        with pytest.raises(WireError, match="not a tag and its hex"):
            written(codec, {UNKNOWN_TAGS: [{"tag": tag, "hex": ""}]})


def test_null_is_refused_where_the_version_has_none_and_so_is_a_length_below_it() -> None:
    for full_type, null, below in (("string", "ffff", "fffe"), ("bytes", "ffffffff", "fffffffe")):
        strict, open_ = codec_of(of_type(full_type)), codec_of(of_type(full_type, nullable=True))
        assert open_.read(Reader(bytes.fromhex(null))) == {"of": None}
        assert written(open_, {"of": None}).hex() == null
        with pytest.raises(WireError, match="of: null where this version has none"):
            strict.read(Reader(bytes.fromhex(null)))
        for codec in (strict, open_):
            with pytest.raises(WireError, match="of: a length of -2"):
                codec.read(Reader(bytes.fromhex(below)))
        with pytest.raises(WireError, match=r"^of: not "):
            written(strict, {"of": None})


def test_a_nullable_struct_has_one_of_two_markers() -> None:
    field = ["of", "struct", "0+", {"nullable": "0+", "fields": [["inner", "int8", "0+"]]}]
    codec = codec_of(field)
    values: list[tuple[bytes, Value]] = [(b"\xff", None), (b"\1\5", {"inner": 5})]
    for data, value in values:
        assert codec.read(Reader(data)) == {"of": value}
        assert written(codec, {"of": value}) == data
    for marker in (b"\0\5", b"\2\5", b"\xfe\5"):
        with pytest.raises(WireError, match="neither null"):
            codec.read(Reader(marker))
