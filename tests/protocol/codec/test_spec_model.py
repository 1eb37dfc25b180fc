"""Message descriptions that this program does not understand are refused, not guessed."""

from __future__ import annotations

import pytest

from sluice.protocol.codec.spec_model import ANY_VERSION, SpecError, Versions, message_from_json


def message(*fields: list[object]) -> object:
    return {"name": "Example", "versions": "0-9", "flexible": "none", "fields": list(fields)}


@pytest.mark.parametrize(
    ("text", "first", "last", "is_any"),
    [("3-13", 3, 13, True), ("9+", 9, ANY_VERSION, True), ("0", 0, 0, True), ("5-4", 5, 4, False)],
)
def test_ranges_of_versions(text: str, first: int, last: int, is_any: bool) -> None:
    versions = Versions.parse(text)
    assert (versions.first, versions.last, bool(versions)) == (first, last, is_any)
    assert (first in versions, last + 1 in versions) == (is_any, False)


def test_none_is_no_version() -> None:
    assert not Versions.parse("none")


@pytest.mark.parametrize("text", ["", "-", "3-", "a", "1-b", "+", "all"])
def test_what_is_no_range_is_refused(text: str) -> None:
    with pytest.raises(SpecError, match="not a range of versions"):
        Versions.parse(text)


def test_a_field_of_an_unknown_type_is_refused_by_its_name() -> None:
    with pytest.raises(SpecError, match="field odd has the unknown type int128"):
        message_from_json(message(["odd", "int128", "0+"]))


def test_what_stands_in_the_body_and_how_long_it_is() -> None:
    read = message_from_json(
        message(["a", "int32", "0+"], ["b", "[]int32", "0+"], ["c", "string", "3+"], ["d", "uuid", "0-2"])
    )
    assert [field.name for field in read.present(2)] == ["a", "b", "d"]
    assert [field.name for field in read.present(3)] == ["a", "b", "c"]
    assert [field.fixed_size() for field in read.fields] == [4, None, None, 16]
