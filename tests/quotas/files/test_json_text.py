"""JSON of our own, read strictly: what Sluice never writes is a ValueError, and nothing else is raised."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sluice.quotas.files.json_text import MOST_LEVELS, number_from, parse_json, text_from


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[NaN]",
        '{"a": Infinity}',
        "-Infinity",
        "1e999",
        "[-1e999]",
        "[" * 100_000,
        '{"a":' * 100_000,
        "[" * (MOST_LEVELS + 1) + "]" * (MOST_LEVELS + 1),
        '{"\\ud800": 1}',
        '["\\udfff"]',
        "9" * 5_000,
        "\ufeff{}",
    ],
)
def test_what_sluice_never_writes_is_refused(text: str) -> None:
    for given in (text, text.encode()):
        if given != b"\xef\xbb\xbf{}":  # bytes may begin so
            with pytest.raises(ValueError, match=r"."):
                parse_json(given)


def test_bytes_that_are_no_text_are_refused() -> None:
    with pytest.raises(ValueError, match="utf-8"):
        parse_json(b'{"a": "\xff"}')


def test_what_is_written_is_read() -> None:
    value: Any = {"é\u2028😀": [1, -2.5, 1e308, 10**400, True, None, {"\x00": []}]}
    for ascii_only in (False, True):
        text = json.dumps(value, ensure_ascii=ascii_only)
        assert parse_json(text) == parse_json(text.encode()) == value
    deep = "[" * MOST_LEVELS + "]" * MOST_LEVELS
    assert json.dumps(parse_json(deep)) == deep


@pytest.mark.parametrize("value", [0, 5, 2.5, 1e308, 2**70])
def test_numbers_from_0_on_are_kept(value: float) -> None:
    assert number_from(value) == value


@pytest.mark.parametrize(
    "value", [None, True, "5", [5], -1, -1e-9, 10**400, float("nan"), float("inf"), -float("inf"), {}]
)
def test_anything_else_is_no_number(value: Any) -> None:
    with pytest.raises(ValueError, match="is no number from 0 on"):
        number_from(value)


def test_only_texts_are_texts() -> None:
    assert text_from("") == ""
    for value in (None, 5, ["a"]):
        with pytest.raises(ValueError, match="is no text"):
            text_from(value)
