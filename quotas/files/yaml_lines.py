"""YAML text → plain values plus the line of every key, so that an error can name its place.

A small subset on purpose, read as YAML 1.2 reads it (`no`, `1:30` are strings): mappings, sequences, scalars.
Duplicate keys, anchors, aliases, tags and further documents are refused. Built on libyaml's events (PyYAML's
C parser: 1,000 quota entries in 30 ms where a pure-Python parser with line numbers takes 500 ms), and it can
be driven in small steps, so that the event loop reloads a large quota file without stalling connections.
"""

from __future__ import annotations

import math
import re
from collections.abc import Generator
from dataclasses import dataclass, field
from typing import TypeAlias

import yaml
from yaml.cyaml import CSafeLoader

from sluice.quotas.files.config_error import ConfigError, Problem
from sluice.quotas.steps import at_once

YamlValue: TypeAlias = "str | int | float | bool | list[YamlValue] | dict[str, YamlValue] | None"
YamlPath: TypeAlias = tuple[str | int, ...]

EVENTS_PER_STEP = 200
"""About 0.5 ms of work."""
MAX_DEPTH = 32
"""Deeper nesting is nobody's configuration; it stops a crafted file from exhausting the stack."""

_INTEGER = re.compile(r"[-+]?[0-9]+")
_OCTAL = re.compile(r"0o[0-7]+")
_HEXADECIMAL = re.compile(r"0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_BEGIN_NUMBERS = frozenset("+-.0123456789")
_LINE_BREAK = re.compile("\r\n|[\n\r\x85\u2028\u2029]")
_GLUED = re.compile(r"\s*(-\s+)?[\w-]+:\S")
"""a key whose value follows the colon at once"""
_INDENTED = "mapping values are not allowed in this context"
_CONSTANTS: dict[str, bool | float | None] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **dict.fromkeys((".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF"), math.inf),
    **dict.fromkeys(("-.inf", "-.Inf", "-.INF"), -math.inf),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), math.nan),
}


@dataclass(slots=True)
class YamlDocument:
    """A parsed file: its value, and where each part of it stands."""

    value: YamlValue = None
    lines: dict[YamlPath, int] = field(default_factory=dict)
    """1-based line of each key and each list item"""

    def line_of(self, path: YamlPath) -> int | None:
        """The line of `path`, or of the nearest thing around it that is in the file."""
        while path:
            if path in self.lines:
                return self.lines[path]
            path = path[:-1]
        return None


def dotted(path: YamlPath) -> str:
    """`listeners[0].bind_port` for ("listeners", 0, "bind_port")."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            text += f".{part}" if text else part
    return text


def parse_yaml(text: str, source: str) -> YamlDocument:
    """The document in `text`. Raises ConfigError naming `source` and the line."""
    return at_once(parse_yaml_in_steps(text, source))


def parse_yaml_in_steps(text: str, source: str) -> Generator[None, None, YamlDocument]:
    """The same, pausing after each EVENTS_PER_STEP events; the document is the generator's return value."""
    builder = _Builder(source)
    try:
        parser = CSafeLoader(text)
        try:
            count = 0
            while parser.check_event():
                event = parser.get_event()
                assert event is not None
                builder.take(event)
                count += 1
                if count % EVENTS_PER_STEP == 0:
                    yield
        finally:
            parser.dispose()
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        reason = f"not YAML: character U+{error.character:04X} is not allowed"
        raise ConfigError([Problem(reason, source=source, line=line)]) from None
    except yaml.MarkedYAMLError as error:
        raise ConfigError([_syntax_problem(error, source, text)]) from None
    if builder.duplicates:
        raise ConfigError(builder.duplicates)
    return builder.document


def _syntax_problem(error: yaml.MarkedYAMLError, source: str, text: str) -> Problem:
    context, mark = error.context, error.problem_mark or error.context_mark
    tab = None if mark is None else _tab(text, mark.line)
    if mark is not None and tab is not None:
        reason = f"not YAML: column {tab} of this line is a tab; indent with spaces"
        return Problem(reason, source=source, line=mark.line + 1)
    if context == "while scanning a simple key" and error.context_mark:
        line = error.context_mark.line
        is_glued = _GLUED.match(_line_of(text, line)) is not None
        reason = "a blank is missing behind the colon" if is_glued else "no `key: value`, and no `- entry`"
        return Problem(f"not YAML: {reason}", source=source, line=line + 1)
    if error.problem == _INDENTED and mark:
        reason = f"{_INDENTED}: is this line indented as the one before it?"
        return Problem(f"not YAML: {reason}", source=source, line=mark.line + 1)
    if context and error.context_mark:
        context += f" that begins on line {error.context_mark.line + 1}"
    reason = ", ".join(part for part in (context, error.problem) if part)
    return Problem(f"not YAML: {reason}", source=source, line=mark.line + 1 if mark else None)


def _tab(text: str, line: int) -> int | None:
    """The column, from 1 on, of a tab in the indentation of a line; None: there is none."""
    begin = _line_of(text, line)
    indentation = begin[: len(begin) - len(begin.lstrip())]
    return indentation.index("\t") + 1 if "\t" in indentation else None


def _line_of(text: str, number: int) -> str:
    """A line, from 0 on, as YAML counts them; empty behind the last."""
    lines = _LINE_BREAK.split(text, number + 1)
    return lines[number] if number < len(lines) else ""


class _Builder:
    """Events in, values and lines out; a stack instead of recursion, so that it can pause anywhere."""

    __slots__ = ("_documents", "_keys", "_path", "_source", "_stack", "document", "duplicates")

    def __init__(self, source: str) -> None:
        self.document = YamlDocument()
        self.duplicates: list[Problem] = []
        """collected: the file can be read on, and all of them are to be told"""
        self._source = source
        self._stack: list[list[YamlValue] | dict[str, YamlValue]] = []
        self._keys: list[str | None] = []  # of each open mapping: the key that waits for its value
        self._path: list[str | int] = []  # of each open container below the outermost: where it stands
        self._documents = 0

    def take(self, event: yaml.Event) -> None:
        if type(event) is yaml.ScalarEvent:  # most are
            self._scalar(event)
            return
        match event:
            case yaml.MappingStartEvent():
                self._open({}, event)
            case yaml.SequenceStartEvent():
                self._open([], event)
            case yaml.MappingEndEvent() | yaml.SequenceEndEvent():
                self._stack.pop()
                self._keys.pop()
                if self._path:
                    self._path.pop()
            case yaml.AliasEvent():
                raise self._error(event, f"aliases (*{event.anchor}) are not supported; write the value out")
            case yaml.DocumentStartEvent():
                self._documents += 1
                if self._documents > 1:
                    raise self._error(event, "a second document (---) begins here; one file holds one")
            case _:
                pass

    def _open(
        self, container: list[YamlValue] | dict[str, YamlValue], event: yaml.CollectionStartEvent
    ) -> None:
        if self._stack and isinstance(self._stack[-1], dict) and self._keys[-1] is None:
            raise self._error(event, "a key must be a plain name, not a list or a mapping")
        if len(self._stack) >= MAX_DEPTH:
            raise self._error(event, f"nested deeper than {MAX_DEPTH} levels")
        self._refuse_properties(event)
        if self._stack:
            self._path.append(self._place(event, container))
        else:
            self.document.value = container
        self._stack.append(container)
        self._keys.append(None)

    def _scalar(self, event: yaml.ScalarEvent) -> None:
        self._refuse_properties(event)
        if not self._stack:
            self.document.value = _resolve(event)
            return
        parent = self._stack[-1]
        if isinstance(parent, dict) and self._keys[-1] is None:
            key = str(event.value)
            path = (*self._path, key)
            if key in parent:
                earlier = self.document.lines[path]
                message = f"duplicate key; it stands on line {earlier} already"
                self.duplicates.append(self._problem(event, message, path))
            self.document.lines[path] = _line(event)
            parent[key] = None
            self._keys[-1] = key
            return
        self._place(event, _resolve(event))

    def _place(self, event: yaml.Event, value: YamlValue) -> str | int:
        """Put `value` where it belongs in the innermost container and return that place."""
        parent = self._stack[-1]
        if isinstance(parent, list):
            place = len(parent)
            parent.append(value)
            self.document.lines[*self._path, place] = _line(event)
            return place
        key = self._keys[-1]
        assert key is not None
        parent[key] = value
        self._keys[-1] = None
        return key

    def _refuse_properties(self, event: yaml.ScalarEvent | yaml.CollectionStartEvent) -> None:
        # An anchor needs no alias to do harm: the value `&abc`, without quotes, would be read as null.
        if event.anchor is not None:
            message = f"anchors (&{event.anchor}) are not supported; write the value out, or quote it"
            raise self._error(event, message)
        if event.tag is not None and event.tag != "!":
            raise self._error(event, f"tags ({event.tag}) are not supported")

    def _error(self, event: yaml.Event, message: str) -> ConfigError:
        return ConfigError([*self.duplicates, self._problem(event, message)])

    def _problem(self, event: yaml.Event, message: str, path: YamlPath | None = None) -> Problem:
        if path is None:
            key = self._keys[-1] if self._keys else None
            path = (*self._path, key) if key is not None else tuple(self._path)
        return Problem(message, path=dotted(path), source=self._source, line=_line(event))


def _line(event: yaml.Event) -> int:
    """The 1-based line of an event."""
    assert event.start_mark is not None
    return event.start_mark.line + 1


def _resolve(event: yaml.ScalarEvent) -> str | int | float | bool | None:
    """The value of a scalar by YAML 1.2's core schema; anything quoted, or in a block, is a string."""
    text = str(event.value)
    if event.style not in {None, ""} or event.tag == "!":
        return text
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    if text[0] not in _BEGIN_NUMBERS:
        return text
    if _INTEGER.fullmatch(text):
        # Python bounds the digits of a conversion (4300); what is longer is no number of ours.
        return int(text) if len(text) <= 40 else text
    if _FLOAT.fullmatch(text):
        return float(text)
    if _OCTAL.fullmatch(text) or _HEXADECIMAL.fullmatch(text):
        return int(text, 0) if len(text) <= 40 else text
    return text
