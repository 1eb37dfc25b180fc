"""The text of a quota file → the same text with other limits; comments and order of what stays stay.

Only what changes is written anew, at its place in the text. The outcome is read back, and all of the
document must say exactly what was asked for; what cannot be edited so (a layout that nobody writes) is
refused. Works on YAML and JSON. Knows no file. All changes are made in one pass: 1,000 of them take no
longer than one.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, TypeAlias

import yaml
from yaml.cyaml import CSafeLoader

from sluice.quotas.addresses import usual_address
from sluice.quotas.files.config_error import ConfigError, Problem, QuotaFileError
from sluice.quotas.files.entries import OVER_BUDGET_KEY, REFUSABLE_KEY
from sluice.quotas.files.quota_file import DEFAULT_NAME, ENTITY_KEYS
from sluice.quotas.files.yaml_lines import parse_yaml
from sluice.quotas.kinds import KIND_BY_KEY

Whom: TypeAlias = tuple[tuple[str, str], ...]
"""(key, name) of each part of an entity, keys and names as in the quota file, in the order of ENTITY_KEYS"""
Changes: TypeAlias = Mapping[str, float | None]
"""config key → limit; None: the key goes"""
Entry: TypeAlias = dict[str, Any]
"""an item of `quotas:`"""
_Edit: TypeAlias = tuple[int, int, str]
"""from, to, what stands there then"""
_BOM: Final = "\ufeff"
_BLOCKS: Final = ("|", ">")
_LONG_MAX: Final = 2**63 - 1
_LAST_OF_FOUR_DIGITS: Final = 0xFFFF
_NOT_IN_YAML: Final = re.compile(
    "[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff"
    "\xad\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufff9-\ufffb\U000e0000-\U000e007f]"
)
"""JSON may have them in a text as they are. YAML takes the first for damage, or for the end of a line; the
others are not seen, or have what stands behind them read from right to left, and a person reads this file."""


def whom_of(item: Mapping[str, Any]) -> Whom:
    """The entity of an item of a good quota file; an address in its canonical form."""
    return tuple((key, canonical(key, item[key])) for key in ENTITY_KEYS if key in item)


def canonical(key: str, name: str) -> str:
    """A name as it is compared: addresses have several spellings. Raises ValueError for no address."""
    return usual_address(name) if key == "ip" and name != DEFAULT_NAME else name


def entries_of(text: str) -> list[Entry]:
    """The items of `quotas:` in a good quota file."""
    entries: list[Entry] = _document(text, "quotas")["quotas"]
    return entries


def _document(text: str, source: str) -> dict[str, Any]:
    document: Any = parse_yaml(text, source).value
    return dict(document)


def edited(
    text: str,
    source: str,
    changes: Mapping[Whom, Changes],
    *,
    gone: Iterable[Whom] = (),
    new: Sequence[Entry] = (),
) -> str:
    """The text of a good quota file with these limits.

    `gone`: entries that go as a whole, `new`: entries that are added as they are, before those that `changes`
    makes necessary. Raises QuotaFileError if the layout does not allow it.
    """
    if text.startswith(_BOM):  # which YAML's marks do not count
        return _BOM + edited(text.removeprefix(_BOM), source, changes, gone=gone, new=new)
    document = _document(text, source)
    entries: list[Entry] = document["quotas"]
    kept, added = _outcome(entries, changes, set(gone), new)
    expected = [entry for entry in kept if entry is not None] + added
    if expected == entries:
        return text
    after = _apply(text, list(_edits(text, entries, kept, added)))
    return _checked(after, source, document | {"quotas": expected})


def with_section(text: str, source: str, section: str, items: Sequence[Entry] | Mapping[str, Any]) -> str:
    """The text with these items of `exempt:`, `tenants:`, `replication:`, on one line.

    Raises QuotaFileError if the layout does not allow it.
    """
    if text.startswith(_BOM):
        return _BOM + with_section(text.removeprefix(_BOM), source, section, items)
    document = _document(text, source)
    if not items and section not in document:
        return text
    expected = document | {section: json.loads(json.dumps(items))}
    return _checked(_section_edited(text, section, items), source, expected)


def _section_edited(text: str, section: str, items: Sequence[Entry] | Mapping[str, Any]) -> str:
    root = yaml.compose(text, Loader=CSafeLoader)
    assert isinstance(root, yaml.MappingNode)
    shown = _shown(items)
    for name, value in root.value:
        if name.value == section:
            # A list may stand as far left as its key, what is written in its place may not.
            indent = "  " if value.start_mark.column <= name.start_mark.column else ""
            return text[: value.start_mark.index] + indent + shown + text[_end(text, value) :]
    if root.flow_style:
        end = _end(text, root.value[-1][1])
        return f"{text[:end]}, {json.dumps(section)}: {shown}{text[end:]}"
    end = _document_end(text)
    before = text[:end]
    return f"{before}{'' if before.endswith(chr(10)) else chr(10)}{section}: {shown}\n{text[end:]}"


def _document_end(text: str) -> int:
    """Where `...` ends it, or the text does."""
    for event in yaml.parse(text, Loader=CSafeLoader):
        if isinstance(event, yaml.DocumentEndEvent) and event.explicit and event.start_mark is not None:
            return event.start_mark.index
    return len(text)


def number(limit: float) -> str:
    """As in a quota file: 1048576, not 1048576.0; but 1e+308."""
    return str(int(limit)) if _is_whole(limit) else repr(float(limit))


def _is_whole(limit: float) -> bool:
    """And may be a LONG: what is larger has more digits than YAML's reader takes."""
    return limit <= _LONG_MAX and limit == int(limit)


def _outcome(
    entries: list[Entry], changes: Mapping[Whom, Changes], gone: set[Whom], new: Sequence[Entry]
) -> tuple[list[Entry | None], list[Entry]]:
    """(what becomes of each entry, None: it goes; what is added)."""
    kept: list[Entry | None] = [copy.copy(entry) for entry in entries]
    places: dict[Whom, Entry] = {}
    for index, entry in enumerate(entries):
        whom = whom_of(entry)
        if whom in gone:
            kept[index] = None
        else:
            places[whom] = kept[index] or {}
    added = [dict(entry) for entry in new]
    for whom, limits in changes.items():
        entry = places.get(whom) or {}
        for key, limit in limits.items():
            if limit is None:
                entry.pop(key, None)
            else:
                entry[key] = limit
        if entry and whom not in places:
            added.append({**dict(whom), **entry})
    for index, left in enumerate(kept):
        if left is not None and REFUSABLE_KEY not in left:
            left.pop(OVER_BUDGET_KEY, None)
        if left is not None and not any(key in KIND_BY_KEY for key in left):
            kept[index] = None
    return kept, added


def _edits(text: str, entries: list[Entry], kept: list[Entry | None], added: list[Entry]) -> Iterator[_Edit]:
    root = yaml.compose(text, Loader=CSafeLoader)
    assert isinstance(root, yaml.MappingNode)
    name, sequence = next(pair for pair in root.value if pair[0].value == "quotas")
    assert isinstance(sequence, yaml.SequenceNode)
    nodes = sequence.value
    for node, before, after in zip(nodes, entries, kept, strict=True):
        if after is not None and after != before:
            yield from _entry_edits(text, node, before, after)
    if not added and nodes and all(entry is None for entry in kept):
        yield sequence.start_mark.index, _end(text, sequence), "[]" if sequence.flow_style else " []"
        return
    stays = [entry is not None for entry in kept]
    if added and not nodes and not root.flow_style:  # `quotas: []`, from now on an entry a line
        shown = "".join(f"\n  {line}" for entry in added for line in block_lines(entry))
        yield text.index(":", name.end_mark.index) + 1, _end(text, sequence), ""
        at = _line_end(text, _end(text, sequence))
        yield at, at, shown
        return
    if sequence.flow_style:
        yield from _without_parts([(node.start_mark.index, _end(text, node)) for node in nodes], stays)
        yield from _flow_entries(text, sequence, stays, added)
    else:
        for node, entry in zip(nodes, kept, strict=True):
            if entry is None:
                yield _lines(text, node.start_mark.index, _end(text, node))
        yield from _block_entries(text, sequence, stays, added)


def _entry_edits(text: str, node: yaml.MappingNode, before: Entry, after: Entry) -> Iterator[_Edit]:
    pairs = node.value
    stays = [name.value in after for name, _ in pairs]
    for name, value in pairs:
        key = name.value
        if key in after and after[key] != before[key]:
            yield value.start_mark.index, value.end_mark.index, number(after[key])
    last = next(value for (_, value), here in zip(reversed(pairs), reversed(stays), strict=True) if here)
    fresh = [(key, limit) for key, limit in after.items() if key not in before]
    if node.flow_style:
        yield from _without_parts(
            [(name.start_mark.index, _end(text, value)) for name, value in pairs], stays
        )
        shown = "".join(f", {json.dumps(key)}: {number(limit)}" for key, limit in fresh)
        yield _end(text, last), _end(text, last), shown
        return
    begin = stays.index(True)  # before it, on the line of the dash, nothing may stay
    if begin:
        yield pairs[0][0].start_mark.index, pairs[begin][0].start_mark.index, ""
    for (name, value), here in list(zip(pairs, stays, strict=True))[begin:]:
        if not here:
            yield _lines(text, name.start_mark.index, _end(text, value))
    indent = " " * node.start_mark.column
    at = _line_end(text, _end(text, last))
    yield at, at, "".join(f"\n{indent}{key}: {number(limit)}" for key, limit in fresh)


def _without_parts(parts: list[tuple[int, int]], stays: list[bool]) -> Iterator[_Edit]:
    """Parts of a flow collection go, each run of them with one comma."""
    index = 0
    while index < len(parts):
        if stays[index]:
            index += 1
            continue
        begin = index
        while index < len(parts) and not stays[index]:
            index += 1
        if begin:
            yield parts[begin - 1][1], parts[index - 1][1], ""
        else:
            end = parts[index][0] if index < len(parts) else parts[-1][1]
            yield parts[0][0], end, ""


def _flow_entries(
    text: str, sequence: yaml.SequenceNode, stays: list[bool], added: list[Entry]
) -> Iterator[_Edit]:
    if added:
        shown = ", ".join(_shown(_plain(entry)) for entry in added)
        if True in stays:
            at = _end(text, sequence.value[len(stays) - 1 - stays[::-1].index(True)])
            shown = f", {shown}"
        else:
            at = sequence.start_mark.index + 1
        yield at, at, shown


def _block_entries(
    text: str, sequence: yaml.SequenceNode, stays: list[bool], added: list[Entry]
) -> Iterator[_Edit]:
    if not added:
        return
    indent = " " * sequence.start_mark.column
    shown = "\n".join(f"{indent}{line}" for entry in added for line in block_lines(entry))
    if True not in stays:
        at = text.rfind("\n", 0, sequence.start_mark.index) + 1
        yield at, at, f"{shown}\n"
        return
    # Behind the last line that stands there now, be it kept or not: no other edit reaches over its end.
    end = _line_end(text, _end(text, sequence.value[len(stays) - 1 - stays[::-1].index(True)]))
    if end == len(text):
        yield end, end, f"\n{shown}"
    else:
        yield end + 1, end + 1, f"{shown}\n"


def block_lines(entry: Entry) -> list[str]:
    """One item of `quotas:` as YAML, without indentation."""
    pairs = [f"{key}: {_shown(value)}" for key, value in _plain(entry).items()]
    return [f"{'  ' if index else '- '}{pair}" for index, pair in enumerate(pairs)]


def _shown(value: object) -> str:
    """As JSON that is YAML, too: clients choose their ids, and one must not stop the writing of all."""
    return _NOT_IN_YAML.sub(_escaped, json.dumps(value, ensure_ascii=False))


def _escaped(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\u{code:04x}" if code <= _LAST_OF_FOUR_DIGITS else f"\\U{code:08x}"


def _plain(entry: Entry) -> Entry:
    """Whole numbers without a point."""
    return {
        key: int(value) if isinstance(value, float) and _is_whole(value) else value
        for key, value in entry.items()
    }


def _lines(text: str, start: int, end: int) -> _Edit:
    """Its lines, as a whole."""
    return text.rfind("\n", 0, start) + 1, _line_end(text, end) + 1, ""


def _end(text: str, node: yaml.Node) -> int:
    """Where its text ends, on its last line: the mark of a block stands behind the comments that follow it,
    that of a block scalar at the begin of the next line."""
    if isinstance(node, yaml.CollectionNode) and not node.flow_style and node.value:
        last = node.value[-1]
        return _end(text, last[1] if isinstance(last, tuple) else last)
    index: int = node.end_mark.index
    if isinstance(node, yaml.ScalarNode) and node.style in _BLOCKS:
        last_break = text[max(index - 2, 0) : index]
        index -= len(last_break) - len(last_break.removesuffix("\n").removesuffix("\r"))
    return index


def _line_end(text: str, index: int) -> int:
    found = text.find("\n", index)
    return len(text) if found < 0 else found


def _apply(text: str, edits: list[_Edit]) -> str:
    """All of them, each place as it was counted in `text`."""
    parts, begin = [], 0
    for start, end, shown in sorted(edits, key=lambda edit: edit[:2]):
        parts += [text[begin:start], shown]
        begin = max(begin, end)
    return "".join(parts) + text[begin:]


def _checked(text: str, source: str, document: Mapping[str, Any]) -> str:
    """The text, if it says this; else raises QuotaFileError."""
    with suppress(ConfigError):
        if _document(text, source) == document:
            return text
    message = "the layout of this file cannot be edited safely; change it by hand"
    raise QuotaFileError([Problem(message, source=source)])
