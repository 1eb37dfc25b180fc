"""A quota file edited in place, however its scalars are written: all else in it means the same afterwards."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sluice.proxy.cli.quotas.edit import Whom, edited, entries_of, whom_of, with_section
from sluice.quotas.files.config_error import ConfigError, QuotaFileError
from sluice.quotas.files.quota_file import parse_quotas
from sluice.quotas.files.yaml_lines import parse_yaml
from sluice.quotas.kinds import KIND_BY_KEY
from testkit.thorough import cases

PRODUCE, CONSUME = "producer_byte_rate", "consumer_byte_rate"
BLOCKS = [style + chomping for style in "|>" for chomping in ("", "-", "+")]
BEFORE = "quotas:\n- user: bob\n  producer_byte_rate: 5\n- producer_byte_rate: 100\n  user: "
BEHIND = {
    "a section": "exempt: [{user: backup}]\n",
    "a comment": "# the auditors'\nexempt: [{user: backup}]\n",
    "a blank line": "\n# the auditors'\nexempt: [{user: backup}]\n",
    "another entry": "- user: carol\n  producer_byte_rate: 7\nexempt: [{user: backup}]\n",
    "the end": "",
}


def document_of(text: str) -> dict[str, Any]:
    value: Any = parse_yaml(text, "f").value
    return dict(value)


def edited_all(text: str, changes: Mapping[Whom, Mapping[str, float | None]]) -> dict[str, Any]:
    after = edited(text, "f", {whom: dict(limits) for whom, limits in changes.items()})
    assert all(line in after for line in text.split("\n") if line.startswith("#"))
    return document_of(after)


@pytest.mark.parametrize("ends", ["\n", "\r\n"])
@pytest.mark.parametrize("behind", BEHIND)
@pytest.mark.parametrize("block", BLOCKS)
def test_an_entry_that_ends_with_a_block_scalar_is_changed_alone(block: str, behind: str, ends: str) -> None:
    """The line behind it went with it: all exempt rules, for example, and exit code 0."""
    text = f"{BEFORE}{block}\n    alice\n{BEHIND[behind]}".replace("\n", ends)
    before = document_of(text)
    bob, alice, *others = before["quotas"]
    gone = edited_all(text, {whom_of(alice): {PRODUCE: None}})
    assert gone == before | {"quotas": [bob, *others]}
    more = edited_all(text, {whom_of(alice): {CONSUME: 9}})
    assert more == before | {"quotas": [bob, alice | {CONSUME: 9}, *others]}
    dave = {"user": "dave", CONSUME: 3}
    assert edited_all(text, {whom_of(dave): {CONSUME: 3}}) == before | {"quotas": [*before["quotas"], dave]}


@pytest.mark.parametrize("block", BLOCKS)
def test_a_section_that_ends_with_a_block_scalar_is_exchanged_alone(block: str) -> None:
    text = f"exempt:\n- user: {block}\n    backup\n\n# whose limits these are\nquotas: []\n"
    after = with_section(text, "f", "exempt", [{"user": "mirror"}])
    assert document_of(after) == {"exempt": [{"user": "mirror"}], "quotas": []}
    assert after.endswith("# whose limits these are\nquotas: []\n")


@pytest.mark.parametrize("block", ["|", "|+", ">", ">+"])
def test_what_would_mean_something_else_afterwards_is_refused(block: str) -> None:
    """It ends without a line's end, and has one as soon as something is put behind it."""
    text = f"quotas: []\nexempt:\n- user: {block}\n    backup"
    with pytest.raises(QuotaFileError, match="f: the layout of this file cannot be edited safely"):
        with_section(text, "f", "tenants", [{"name": "t", "members": ["x"]}])


def test_exempt_rules_are_put_into_a_file_that_has_none_or_others() -> None:
    rule = {"user": "backup"}
    assert with_section("quotas: []", "f", "exempt", [rule]) == 'quotas: []\nexempt: [{"user": "backup"}]\n'
    assert with_section("quotas: []\n", "f", "exempt", []) == "quotas: []\n"
    assert (
        with_section('{"quotas": []}', "f", "exempt", [rule])
        == '{"quotas": [], "exempt": [{"user": "backup"}]}'
    )
    block = "quotas: []\nexempt:\n  - user: a  # old\n  - user: b\n# end\n"
    assert with_section(block, "f", "exempt", []) == "quotas: []\nexempt:\n  []\n# end\n"
    flat = "exempt:\n- user: a\n- user: b\nquotas: []\n"
    assert with_section(flat, "f", "exempt", [rule]) == 'exempt:\n  [{"user": "backup"}]\nquotas: []\n'


# Any file ---------------------------------------------------------------------------------------------------

WHOLE_LINES = st.sampled_from(["", "", "", "# mine\n", "\n", "      # deep\n", "   \n"])


@st.composite
def scalars(draw: st.DrawFn, name: str, indent: int) -> str:
    """A name in any style, with the end of its line."""
    style = draw(st.sampled_from(["plain", "single", "double", "folded quotes", *BLOCKS, *BLOCKS]))
    note = draw(st.sampled_from(["", "  # why"]))
    inner = " " * (indent + draw(st.integers(1, 4)))
    if style in BLOCKS:
        lines = draw(st.lists(st.sampled_from(["", " ", "more", "# no comment"]), max_size=3))
        return f"{style}{note}\n" + "".join(f"{inner}{line}\n" for line in [name, *lines])
    if style == "folded quotes":
        return f'"{name}\n{inner}of the \\\n{inner}shop"{note}\n'
    shown = {"plain": name, "single": f"'{name}'", "double": f'"{name}"'}[style]
    return f"{shown}{note}\n"


@st.composite
def entries(draw: st.DrawFn, number: int, indent: int) -> str:
    inner = indent + 2
    limits = draw(st.lists(st.sampled_from([PRODUCE, CONSUME]), min_size=1, unique=True))
    pairs = {"user": draw(scalars(f"u{number}", inner)), **dict.fromkeys(limits, f"{number + 1}\n")}
    if draw(st.booleans()):
        pairs["client-id"] = draw(scalars("app", inner))
    if draw(st.booleans()):
        key = " " * inner + f"  - {limits[0]}\n"
        pairs["shadow"] = draw(st.sampled_from(["true\n", f"[{limits[0]}]  # yet\n", f"\n{key}"]))
    if draw(st.booleans()):
        pairs["schedule"] = f"\n{' ' * inner}- days: [sat]\n{' ' * inner}  {limits[0]}: 7\n"
    if draw(st.integers(0, 4)) == 0:
        flow = ", ".join(f"{key}: {number + 1}" for key in limits)
        return f"{' ' * indent}- {{user: u{number}, {flow}}}\n"
    text = ""
    for place, key in enumerate(draw(st.permutations(sorted(pairs)))):
        begin = f"{' ' * indent}- " if place == 0 else draw(WHOLE_LINES) + " " * inner
        text += f"{begin}{key}:{'' if pairs[key].startswith(chr(10)) else ' '}{pairs[key]}"
    return text


@st.composite
def files(draw: st.DrawFn) -> str:
    indent = draw(st.sampled_from([0, 2]))
    items = [draw(WHOLE_LINES) + draw(entries(number, indent)) for number in range(draw(st.integers(0, 3)))]
    parts = ["quotas:\n" + "".join(items) if items else "quotas: []  # none yet\n"]
    if draw(st.booleans()):
        parts.append(f"exempt:\n- user: {draw(scalars('backup', 2))}")
    if draw(st.booleans()):
        parts.append(f"tenants:\n- name: t\n  members:\n  - y\n  - {draw(scalars('x', 4))}")
    if draw(st.booleans()):
        parts.append("replication:\n  brokers: [{id: 1, leader.replication.throttled.rate: 5}]\n")
    text = draw(st.sampled_from(["", "---\n"]))
    text += "".join(draw(WHOLE_LINES) + part for part in draw(st.permutations(parts))) + draw(WHOLE_LINES)
    text = draw(st.sampled_from([text, text, text.rstrip("\n"), f"{text}...\n"]))
    return draw(st.sampled_from([text, text, text.replace("\n", "\r\n")]))


CHANGES = st.dictionaries(st.sampled_from([PRODUCE, CONSUME]), st.none() | st.integers(1, 99), min_size=1)


def with_limits(entry: dict[str, Any], limits: Mapping[str, float | None]) -> dict[str, Any]:
    """The entry as it is to be; {}: it goes."""
    after = {key: value for key, value in {**entry, **limits}.items() if value is not None}
    return after if any(key in KIND_BY_KEY for key in after) else {}


@settings(max_examples=cases(1_500))
@given(files(), st.data())
def test_all_that_is_not_asked_for_means_the_same_afterwards(text: str, data: st.DataObject) -> None:
    try:
        parse_quotas(text, "f")
    except ConfigError:
        return
    before = document_of(text)
    now = {whom_of(entry): entry for entry in entries_of(text)}
    whoms = st.sampled_from([*now, whom_of({"user": "new"}), whom_of({"client-id": "new"})])
    changes = data.draw(st.dictionaries(whoms, CHANGES, max_size=3))
    changed = {whom: with_limits(now.get(whom, dict(whom)), limits) for whom, limits in changes.items()}
    section = data.draw(st.sampled_from(["exempt", "tenants"]))
    items = data.draw(st.sampled_from([[], [{"user": "z"}]]))
    wanted = {whom: entry for whom, entry in {**now, **changed}.items() if entry}
    try:
        after = document_of(edited(text, "f", changes))
        assert {whom_of(entry): entry for entry in after.pop("quotas")} == wanted
        assert after == {name: value for name, value in before.items() if name != "quotas"}
    except QuotaFileError:
        pass
    try:
        after = document_of(with_section(text, "f", section, items))
        assert after == (before | {section: items} if items or section in before else before)
    except QuotaFileError:
        pass
