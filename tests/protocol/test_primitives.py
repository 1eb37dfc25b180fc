"""Each primitive reads what Kafka writes, and nothing behind `end`."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.serial import writers

from sluice.protocol import primitives as p
from sluice.protocol.errors import MalformedFrame
from sluice.protocol.primitives import skip_tags

untimed = settings(deadline=None)  # the machine may be busy
Reader = Callable[[bytes, int, int], Any]


def written(writer: Callable[[Any, Any], None], value: object) -> bytes:
    out = io.BytesIO()
    writer(out, value)
    return out.getvalue()


CASES: list[tuple[str, Reader, Callable[[Any, Any], None], st.SearchStrategy[Any]]] = [
    ("uvarint", p.uvarint, writers.write_unsigned_varint, st.integers(0, 2**32 - 1)),
    ("int16", p.int16, writers.write_int16, st.integers(-(2**15), 2**15 - 1)),
    ("int32", p.int32, writers.write_int32, st.integers(-(2**31), 2**31 - 1)),
    ("int64", p.int64, writers.write_int64, st.integers(-(2**63), 2**63 - 1)),
    ("string", p.string, writers.write_legacy_string, st.text()),
    ("nullable string", p.nullable_string, writers.write_nullable_legacy_string, st.none() | st.text()),
    ("compact string", p.compact_string, writers.write_compact_string, st.text()),
    (
        "compact nullable string",
        p.compact_nullable_string,
        writers.write_nullable_compact_string,
        st.none() | st.text(),
    ),
]
READERS = [pytest.param(reader, writer, values, id=name) for name, reader, writer, values in CASES]


@pytest.mark.parametrize(("reader", "writer", "values"), READERS)
@untimed
@given(data=st.data(), before=st.binary(max_size=3), behind=st.binary(max_size=3))
def test_what_kio_writes_is_read_wherever_it_stands(
    reader: Reader,
    writer: Callable[[Any, Any], None],
    values: st.SearchStrategy[Any],
    data: st.DataObject,
    before: bytes,
    behind: bytes,
) -> None:
    value = data.draw(values)
    field = written(writer, value)
    whole = before + field + behind
    end = len(before) + len(field)
    assert reader(whole, len(before), end) == (value, end)
    assert reader(bytearray(whole), len(before), len(whole)) == (value, end)  # type: ignore[arg-type]
    assert reader(memoryview(whole), len(before), end) == (value, end)  # type: ignore[arg-type]


@pytest.mark.parametrize(("reader", "writer", "values"), READERS)
@untimed
@given(data=st.data())
def test_every_prefix_of_a_field_is_refused_though_the_rest_lies_in_the_buffer(
    reader: Reader, writer: Callable[[Any, Any], None], values: st.SearchStrategy[Any], data: st.DataObject
) -> None:
    field = written(writer, data.draw(values))
    for cut in range(len(field)):
        with pytest.raises(MalformedFrame):
            reader(field, 0, cut)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("00", 0),
        ("8000", 0),
        ("8080808000", 0),
        ("7f", 127),
        ("ffffffff0f", 2**32 - 1),
        ("8080808008", 2**31),
    ],
)
def test_long_forms_of_a_varint_are_read_as_the_broker_reads_them(field: str, value: int) -> None:
    data = bytes.fromhex(field)
    assert p.uvarint(data, 0, len(data)) == (value, len(data))


@pytest.mark.parametrize("field", ["8080808010", "80808080ff00", "808080808000", "ffffffffff"])
def test_a_varint_that_java_would_truncate_is_refused(field: str) -> None:
    with pytest.raises(MalformedFrame, match="32 bits"):
        p.uvarint(bytes.fromhex(field), 0, 99)


@pytest.mark.parametrize("reader", [p.string, p.compact_string])
def test_a_null_where_none_may_be_is_refused(reader: Reader) -> None:
    with pytest.raises(MalformedFrame):
        reader(b"\xff\xff" if reader is p.string else b"\x00", 0, 2)


def test_a_negative_length_other_than_null_is_refused() -> None:
    for reader in (p.string, p.nullable_string, p.skip_nullable_string):
        with pytest.raises(MalformedFrame):
            reader(b"\xff\xfe" + bytes(10), 0, 12)


def test_bytes_that_are_not_utf8_are_refused_without_being_quoted_or_chained() -> None:
    with pytest.raises(MalformedFrame) as caught:
        p.string(b"\x00\x07secret\xff", 0, 9)
    assert "secret" not in str(caught.value)
    assert caught.value.__context__ is None
    assert caught.value.offset == 2


@untimed
@given(st.none() | st.binary(max_size=300))
def test_skipping_ends_where_reading_ends(value: bytes | None) -> None:
    compact = written(writers.write_nullable_compact_string, None if value is None else value.hex())
    assert p.skip_compact_nullable(compact, 0, len(compact)) == len(compact)
    legacy = written(writers.write_nullable_legacy_string, None if value is None else value.hex())
    assert p.skip_nullable_string(legacy, 0, len(legacy)) == len(legacy)


@pytest.mark.parametrize(
    ("count", "room", "element", "fits"),
    [
        (3, 12, 4, True),
        (4, 12, 4, False),
        (0, 0, 1, True),
        (-1, 0, 4, True),
        (-2, 99, 1, False),
        (2**31 - 1, 99, 1, False),
    ],
)
def test_a_count_is_bounded_by_the_bytes_left_and_the_least_an_element_takes(
    count: int, room: int, element: int, fits: bool
) -> None:
    field = p.INT32.pack(count) + bytes(room)
    if fits:
        assert p.array_count(field, 0, len(field), element) == (count, 4)
    else:
        with pytest.raises(MalformedFrame):
            p.array_count(field, 0, len(field), element)


def test_a_compact_count_is_one_less_than_written_and_bounded_too() -> None:
    assert p.compact_array_count(b"\x00", 0, 1, 4) == (p.NULL, 1)
    assert p.compact_array_count(b"\x01", 0, 1, 4) == (0, 1)
    assert p.compact_array_count(b"\x03" + bytes(8), 0, 9, 4) == (2, 1)
    with pytest.raises(MalformedFrame):
        p.compact_array_count(b"\x03" + bytes(7), 0, 8, 4)
    with pytest.raises(MalformedFrame):
        p.compact_array_count(b"\xff\xff\xff\xff\x0f" + bytes(99), 0, 104, 1)


TAGS = st.lists(st.tuples(st.integers(0, 2**31), st.binary(max_size=200)), max_size=5)


def tagged(fields: list[tuple[int, bytes]]) -> bytes:
    out = io.BytesIO()
    writers.write_unsigned_varint(out, len(fields))  # type: ignore[arg-type]
    for tag, content in fields:
        writers.write_unsigned_varint(out, tag)  # type: ignore[arg-type]
        writers.write_unsigned_varint(out, len(content))  # type: ignore[arg-type]
        out.write(content)
    return out.getvalue()


@untimed
@given(TAGS)
def test_tagged_fields_known_or_not_are_skipped_to_their_end_and_no_prefix_passes(
    fields: list[tuple[int, bytes]],
) -> None:
    section = tagged(fields)
    assert p.skip_tags(section + b"\x00", 0, len(section)) == len(section)
    for cut in range(len(section)):
        with pytest.raises(MalformedFrame) as caught:
            p.skip_tags(section, 0, cut)
        assert caught.value.offset is not None
        assert 0 <= caught.value.offset <= cut


def test_a_forged_number_of_tagged_fields_is_refused_before_the_loop() -> None:
    with pytest.raises(MalformedFrame, match="4294967295 tagged fields"):
        p.skip_tags(b"\xff\xff\xff\xff\x0f" + bytes(1000), 0, 1005)


def test_tagged_fields_without_content_fill_their_section_to_its_last_byte() -> None:
    """Two bytes each, tag and size: three in six. A fourth that is announced has no room."""
    section = b"\x05\x00\x06\x00\x07\x00"
    assert skip_tags(b"\x03" + section, 0, 7) == 7
    with pytest.raises(MalformedFrame):
        skip_tags(b"\x04" + section, 0, 7)


@pytest.mark.parametrize("field", [b"\x05\x00", b"\x05\x01a", b"\x85\x01\x00", b"\x05\x80\x01" + bytes(128)])
def test_a_section_has_100_tagged_fields_at_most(field: bytes) -> None:
    section = b"\x64" + field * 100
    assert skip_tags(section + b"\xff", 0, len(section)) == len(section)
    with pytest.raises(MalformedFrame, match="101 tagged fields in one section, must be ≤ 100"):
        skip_tags(b"\x65" + field * 101, 0, 1 + len(field) * 101)


JAVA_17 = {
    "61 ED A0 80 62": "a\ufffdb",
    "61 ED A0 BD ED B8 80 62": "a\ufffd\ufffdb",
    "ED A0": "\ufffd",
    "ED BF": "\ufffd",
    "61 ED A0": "a\ufffd",
    "ED A0 41": "\ufffdA",
    "ED BF 80": "\ufffd",
    "ED 9F BF": "\ud7ff",
    "ED 80": "\ufffd",
    "ED": "\ufffd",
    "ED EC A0 80": "\ufffd\uc800",
    "E1 80 ED A0 80": "\ufffd\ufffd",
    "F0 9F ED A0 80": "\ufffd\ufffd",
    "F0 9F 98 ED A0 80": "\ufffd\ufffd",
    "ED A0 ED A0 80": "\ufffd\ufffd",
    "C0 AF": "\ufffd\ufffd",
    "C1 BF 41": "\ufffd\ufffdA",
    "C2": "\ufffd",
    "C2 41": "\ufffdA",
    "E0 80 80": "\ufffd\ufffd\ufffd",
    "E0 9F 41": "\ufffd\ufffdA",
    "E0 A0": "\ufffd",
    "E1 80 41": "\ufffdA",
    "E1 80": "\ufffd",
    "EF BF BF": "\uffff",
    "F0 80 80 80": "\ufffd\ufffd\ufffd\ufffd",
    "F0 8F BF BF": "\ufffd\ufffd\ufffd\ufffd",
    "F0 90 80 80": "\U00010000",
    "F0 9F 98": "\ufffd",
    "F0 9F 98 41": "\ufffdA",
    "F0 9F 41": "\ufffdA",
    "F4 90 80 80": "\ufffd\ufffd\ufffd\ufffd",
    "F4 90": "\ufffd\ufffd",
    "F4 8F BF BF": "\U0010ffff",
    "F5 80 80 80": "\ufffd\ufffd\ufffd\ufffd",
    "F7 BF BF BF": "\ufffd\ufffd\ufffd\ufffd",
    "F8 88 80 80 80": "\ufffd\ufffd\ufffd\ufffd\ufffd",
    "FC 84 80 80 80 80": "\ufffd\ufffd\ufffd\ufffd\ufffd\ufffd",
    "FE FF": "\ufffd\ufffd",
    "80 BF 41": "\ufffd\ufffdA",
}


@pytest.mark.parametrize("octets", JAVA_17)
def test_what_is_not_utf_8_is_read_as_javas_string_has_it(octets: str) -> None:
    """What `new String(bytes, UTF_8)` gave: surrogates, overlong, truncated, above U+10FFFF."""
    assert p.java_text(bytes.fromhex(octets)) == JAVA_17[octets]


@untimed
@given(st.text(st.characters(codec="utf-8")))
def test_what_is_utf_8_is_read_as_it_is(value: str) -> None:
    assert p.java_text(value.encode()) == value
