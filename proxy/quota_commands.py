"""`sluice configs`: Kafka's way to see and set the quotas of a user, on the quota file, edited in place.

Only what changes is written anew, at its place in the text, so that comments and order stay. The outcome is
read back before it takes the file's place, and must say exactly what was asked for; what cannot be edited so
(a layout that nobody writes) is refused, and the file stays as it was. A running proxy notices the new file.
"""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, TypeAlias

import yaml

from sluice.proxy.config_error import ConfigError, Problem, QuotaFileError, unknown_key_message
from sluice.proxy.config_file import read_text
from sluice.proxy.quota_file import DEFAULT_NAME, parse_quotas
from sluice.proxy.yaml_lines import parse_yaml
from sluice.quotas.kinds import KIND_BY_KEY, KINDS

Changes: TypeAlias = Mapping[str, float | None]
"""key → limit; None: the key goes"""
_ADD: Final = "--add-config"
_DELETE: Final = "--delete-config"


def changes_of(add: str, delete: str) -> dict[str, float | None]:
    """What `key=value,…` and `key,…` ask for. Raises QuotaFileError that names the option and the key."""
    problems: list[Problem] = []
    changes: dict[str, float | None] = {}
    for text in filter(None, (part.strip() for part in add.split(","))):
        key, _, value = (part.strip() for part in text.partition("="))
        if _is_known(_ADD, key, problems):
            try:
                changes[key] = KINDS[KIND_BY_KEY[key]].validated(key, _number(value))
            except ValueError as error:
                problems.append(Problem(str(error), path=key, source=_ADD))
    for key in filter(None, (part.strip() for part in delete.split(","))):
        if _is_known(_DELETE, key, problems):
            if key in changes:
                problems.append(Problem(f"is in {_ADD} too", path=key, source=_DELETE))
            changes[key] = None
    if problems:
        raise QuotaFileError(problems)
    return changes


def alter(file: Path, user: str, changes: Changes) -> bool:
    """Set and remove limits of a user (DEFAULT_NAME: of every other). False: all of it was so already.

    Raises QuotaFileError, the file untouched, if it cannot be read, used, edited so, or written.
    """
    parse_quotas(read_text(file, "quota"), str(file))
    before = file.read_bytes().decode("utf-8")  # with its own ends of lines
    after = edited(before, str(file), user, changes)
    if after == before:
        return False
    parse_quotas(after, f"{file}, as it would be")
    try:
        _replace(file, after)
    except OSError as error:
        raise QuotaFileError([Problem(f"cannot be written: {error}", source=str(file))]) from None
    return True


def described(file: Path, user: str | None) -> list[str]:
    """A line for each entry of users alone: of all, or of one."""
    text = read_text(file, "quota")
    parse_quotas(text, str(file))
    lines = []
    for item in _entries(text):
        if "client-id" in item or (user is not None and item["user"] != user):
            continue
        who = "the default user" if item["user"] == DEFAULT_NAME else f"user '{item['user']}'"
        limits = ", ".join(f"{key}={_shown(item[key])}" for key in KIND_BY_KEY if key in item)
        lines.append(f"Quota configs for {who} are {limits}")
    return lines


def edited(text: str, source: str, user: str, changes: Changes) -> str:
    """The text of a good quota file with these limits of `user`. Raises QuotaFileError where it cannot."""
    for key, limit in changes.items():
        expected = _expected(_entries(text), user, key, limit)
        if expected == _entries(text):
            continue
        changed = _edited(text, user, key, limit)
        if changed is None or not _says(changed, expected):
            message = f"the layout of this file cannot be edited safely for {key}; change it by hand"
            raise QuotaFileError([Problem(message, source=source)])
        text = changed
    return text


def _edited(text: str, user: str, key: str, limit: float | None) -> str | None:
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    assert isinstance(root, yaml.MappingNode)
    entries = next(value for name, value in root.value if name.value == "quotas")
    index = _find(_entries(text), user)
    if index is None:
        return None if limit is None else _with_entry(text, entries, user, key, limit)
    entry: yaml.MappingNode = entries.value[index]
    place = next((at for at, (name, _) in enumerate(entry.value) if name.value == key), None)
    if limit is None:
        if place is None:
            return None
        if sum(name.value in KIND_BY_KEY for name, _ in entry.value) == 1:
            return _without_entry(text, entries, index)
        return _without_pair(text, entry, place)
    if place is not None:
        value = entry.value[place][1]
        return text[: value.start_mark.index] + _shown(limit) + text[value.end_mark.index :]
    end = _end(entry.value[-1][1])
    if entry.flow_style:
        return f"{text[:end]}, {json.dumps(key)}: {_shown(limit)}{text[end:]}"
    end = _line_end(text, end)
    return f"{text[:end]}\n{' ' * entry.start_mark.column}{key}: {_shown(limit)}{text[end:]}"


def _with_entry(text: str, entries: yaml.SequenceNode, user: str, key: str, limit: float) -> str:
    name = json.dumps(user, ensure_ascii=False)
    if entries.flow_style:
        end = _end(entries.value[-1]) if entries.value else entries.start_mark.index + 1
        comma = ", " if entries.value else ""
        return f'{text[:end]}{comma}{{"user": {name}, {json.dumps(key)}: {_shown(limit)}}}{text[end:]}'
    end = _line_end(text, _end(entries))
    indent = " " * entries.start_mark.column
    return f"{text[:end]}\n{indent}- user: {name}\n{indent}  {key}: {_shown(limit)}{text[end:]}"


def _without_entry(text: str, entries: yaml.SequenceNode, index: int) -> str:
    items = entries.value
    if len(items) == 1:
        return f"{text[: entries.start_mark.index]} []{text[_end(entries) :]}"
    if not entries.flow_style:
        return _without_lines(text, items[index].start_mark.index, _end(items[index]))
    if index:
        return text[: _end(items[index - 1])] + text[_end(items[index]) :]
    return text[: items[0].start_mark.index] + text[items[1].start_mark.index :]


def _without_pair(text: str, entry: yaml.MappingNode, place: int) -> str:
    name, value = entry.value[place]
    if place == 0:
        return text[: name.start_mark.index] + text[entry.value[1][0].start_mark.index :]
    if not entry.flow_style:
        return _without_lines(text, name.start_mark.index, _end(value))
    return text[: _end(entry.value[place - 1][1])] + text[_end(value) :]


def _without_lines(text: str, start: int, end: int) -> str:
    return text[: text.rfind("\n", 0, start) + 1] + text[_line_end(text, end) + 1 :]


def _end(node: yaml.Node) -> int:
    """Where its text ends: the mark of a block stands behind the comments that follow it."""
    if isinstance(node, yaml.CollectionNode) and not node.flow_style and node.value:
        last = node.value[-1]
        return _end(last[1] if isinstance(last, tuple) else last)
    index: int = node.end_mark.index
    return index


def _line_end(text: str, index: int) -> int:
    found = text.find("\n", index)
    return len(text) if found < 0 else found


def _expected(
    entries: list[dict[str, Any]], user: str, key: str, limit: float | None
) -> list[dict[str, Any]]:
    """What the entries are to say afterwards."""
    entries = copy.deepcopy(entries)
    index = _find(entries, user)
    if limit is not None:
        if index is None:
            entries.append({"user": user, key: limit})
        else:
            entries[index][key] = limit
    elif index is not None:
        entries[index].pop(key, None)
        if not any(name in KIND_BY_KEY for name in entries[index]):
            del entries[index]
    return entries


def _says(text: str, expected: list[dict[str, Any]]) -> bool:
    try:
        return _entries(text) == expected
    except (ConfigError, KeyError, TypeError):
        return False


def _entries(text: str) -> list[dict[str, Any]]:
    document: Any = parse_yaml(text, "quotas").value
    entries: list[dict[str, Any]] = document["quotas"]
    return entries


def _find(entries: list[dict[str, Any]], user: str) -> int | None:
    for index, item in enumerate(entries):
        if item.get("user") == user and "client-id" not in item:
            return index
    return None


def _is_known(option: str, key: str, problems: list[Problem]) -> bool:
    if key not in KIND_BY_KEY:
        problems.append(Problem(unknown_key_message(key, KIND_BY_KEY), path=key, source=option))
    return key in KIND_BY_KEY


def _number(text: str) -> object:
    """What the quota file would make of it."""
    try:
        return parse_yaml(text, _ADD).value
    except ConfigError:
        return text


def _shown(limit: float) -> str:
    return str(int(limit)) if limit == int(limit) else repr(float(limit))


def _replace(file: Path, text: str) -> None:
    """At once, with the rights it has; a link stays one."""
    file = Path(os.path.realpath(file))
    beside = file.with_name(f".{file.name}.new")
    with open(beside, "w", encoding="utf-8", newline="") as new:
        new.write(text)
        new.flush()
        os.fsync(new.fileno())
    os.chmod(beside, file.stat().st_mode & 0o777)
    os.replace(beside, file)
