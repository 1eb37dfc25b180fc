"""YAML is read as version 1.2 has it: errors with their line, large documents in small steps."""

from __future__ import annotations

import json
import math
from collections.abc import Generator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.quotas.files.config_error import ConfigError
from sluice.quotas.files.yaml_lines import EVENTS_PER_STEP, YamlDocument, parse_yaml, parse_yaml_in_steps

ANCHOR = "anchors (&x) are not supported; write the value out, or quote it"
BAD_YAML = [
    (
        "a: [1\nb: 2\n",
        "f:2: not YAML: while parsing a flow sequence that begins on line 1, "
        "did not find expected ',' or ']'",
    ),
    (
        "a: 1\n\tb: 2\n",
        "f:2: not YAML: column 1 of this line is a tab; indent with spaces",
    ),
    ("a:\n  - b: 1\n  \t c: 2\n", "f:3: not YAML: column 3 of this line is a tab; indent with spaces"),
    ("a:\n\tb: 1\n", "f:2: not YAML: column 1 of this line is a tab; indent with spaces"),
    (
        "a: 'x\n",
        "f:2: not YAML: while scanning a quoted scalar that begins on line 1, found unexpected end of stream",
    ),
    ("a: 1\nb: \x01\n", "f:2: not YAML: character U+0001 is not allowed"),
    ("\n\x01", "f:2: not YAML: character U+0001 is not allowed"),
    ("a: 1\nb: 2\na: 3\n", "f:3: a: duplicate key; it stands on line 1 already"),
    ("a:\n - b: 1\n   b: 2\n", "f:3: a[0].b: duplicate key; it stands on line 2 already"),
    ("a: &x 1\nb: *x\n", f"f:1: a: {ANCHOR}"),
    ("a: 1\nb: &x\n", f"f:2: b: {ANCHOR}"),
    ("a:\n  - &x {b: 1}\n", f"f:2: a: {ANCHOR}"),
    ("a: &x [1]\n", f"f:1: a: {ANCHOR}"),
    ("a:\n  &x b: 1\n", f"f:2: a: {ANCHOR}"),
    ("&x 1\n", f"f:1: {ANCHOR}"),
    ("a: 1\nb: *x\n", "f:2: b: aliases (*x) are not supported; write the value out"),
    (
        "a: !!python/object:os.system 1\n",
        "f:1: a: tags (tag:yaml.org,2002:python/object:os.system) are not supported",
    ),
    ("a: 1\n---\nb: 2\n", "f:2: a second document (---) begins here; one file holds one"),
    ("? [1]\n: 2\n", "f:1: a key must be a plain name, not a list or a mapping"),
    ("[" * 40, "f:1: [0]" + "[0]" * 30 + ": nested deeper than 32 levels"),
]


@pytest.mark.parametrize(
    ("text", "message"), BAD_YAML, ids=[row[1].split(": ", 1)[1][:40] for row in BAD_YAML]
)
def test_an_error_of_syntax_names_the_line(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_yaml(text, "f")
    assert str(caught.value) == message


def test_scalars_are_read_as_yaml_1_2_reads_them() -> None:
    text = "[no, yes, 1:30, 010, 0x1F, 0o17, 1e3, .5, '5', \"true\", true, ~, 2024-01-01, 1_000, -3, .inf]"
    inf = float("inf")
    assert parse_yaml(text, "f").value == [
        "no", "yes", "1:30", 10, 31, 15, 1000.0, 0.5, "5", "true", True, None, "2024-01-01", "1_000", -3, inf,
    ]  # fmt: skip


def test_a_number_with_thousands_of_digits_does_not_break_the_reader() -> None:
    digits = "9" * 5000
    assert parse_yaml(f"a: {digits}", "f").value == {"a": digits}
    assert parse_yaml(f"a: {digits[:40]}", "f").value == {"a": 10**40 - 1}
    assert parse_yaml(f"a: {digits[:41]}", "f").value == {"a": digits[:41]}
    assert parse_yaml(f"a: 0x{digits[:38]}", "f").value == {"a": int(digits[:38], 16)}
    assert parse_yaml(f"a: 0x{digits[:39]}", "f").value == {"a": f"0x{digits[:39]}"}


def test_a_large_document_is_parsed_in_many_small_steps() -> None:
    text = "".join(f"- {index}\n" for index in range(1000))
    document = YamlDocument()

    def drive() -> Generator[None]:
        nonlocal document
        document = yield from parse_yaml_in_steps(text, "f")

    pauses = sum(1 for _ in drive())
    assert document.value == list(range(1000))
    assert pauses == (1000 + 6) // EVENTS_PER_STEP


# Without what JSON writes as a surrogate pair or leaves unescaped, which YAML knows otherwise.
TEXT = st.text(st.characters(max_codepoint=0xFFFF, exclude_categories=["Cs", "Cc"]), max_size=20)


@given(
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers(-(10**12), 10**12)
        | st.floats(allow_nan=False, allow_infinity=False)
        | TEXT,
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
        max_leaves=12,
    )
)
def test_what_json_says_is_read_as_said(value: Any) -> None:
    assert parse_yaml(json.dumps(value), "f").value == value


def test_infinity_is_written_as_yaml_writes_it() -> None:
    assert parse_yaml("[.inf, -.inf, Infinity]", "f").value == [math.inf, -math.inf, "Infinity"]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a:\n- user: alice\n  rate:5\n", "f:3: not YAML: a blank is missing behind the colon"),
        ("a:\n- user: alice\n  rate\nb: 1\n", "f:3: not YAML: no `key: value`, and no `- entry`"),
        # Breaks of lines, too, though no editor shows them as such; a page from the web may have them.
        ("a: 1\u2028b\u2028\u2028c: 1\n", "f:2: not YAML: no `key: value`, and no `- entry`"),
        ("a: 1\u2028\u2028\u2028rate:5\nb: 1\n", "f:4: not YAML: a blank is missing behind the colon"),
        (
            "a:\n- user: alice\n   rate: 5\n",
            "f:3: not YAML: mapping values are not allowed in this context: is this line indented as the one "
            "before it?",
        ),
    ],
)
def test_a_slip_of_the_pen_is_told_on_its_own_line_with_what_is_missing(text: str, told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_yaml(text, "f")
    assert str(caught.value) == told


def test_a_number_longer_than_any_stays_the_text_that_it_is() -> None:
    texts = ["9" * 41, "0x" + "f" * 400, "0o" + "7" * 400]
    assert parse_yaml(f"[{', '.join(texts)}]", "f").value == texts
