"""What is wrong with a configuration or quota file: all problems at once, each with key, line and remedy."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Final, TypeVar

Loaded = TypeVar("Loaded")


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing to repair."""

    message: str
    """what is wrong and what would be right"""
    path: str = ""
    """dotted, as in `listeners[0].bind_port`; empty when the file as a whole is meant"""
    source: str = ""
    """the file, or the environment variable, that brought the value"""
    line: int | None = None
    """1-based; None when there is no file or no place in it"""

    def __str__(self) -> str:
        place = f"{self.source}:{self.line}" if self.line is not None else self.source
        return ": ".join(part for part in (place, self.path, self.message) if part)


class ConfigError(Exception):
    """The configuration cannot be used. At start-up: exit code 2. `str()` is one line per problem."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))


class Problems:
    """Collects what is wrong with several things that do not depend on one another, to tell all of it."""

    def __init__(self) -> None:
        self.found: list[Problem] = []

    def tried(self, load: Callable[[], Loaded]) -> Loaded | None:
        """What `load` returns; None after a ConfigError, whose problems are kept."""
        try:
            return load()
        except ConfigError as error:
            self.found += (problem for problem in error.problems if problem not in self.found)
            return None

    def refuse(self) -> None:
        """Raises ConfigError if there are any."""
        if self.found:
            raise ConfigError(self.found)


class QuotaFileError(ConfigError):
    """The quota file cannot be used. At start-up: exit code 2; on a reload: the limits in force are kept."""


def unknown_key_message(key: str, known: Iterable[str]) -> str:
    """`unknown key; did you mean burst_s?`, or the list of what may stand there."""
    names = sorted(known)
    close = get_close_matches(key.lower(), names, n=1, cutoff=0.6)
    if close:
        return f"unknown key; did you mean {close[0]}?"
    return f"unknown key; known here: {', '.join(names)}"


USER_TYPE: Final = "User:"
"""the type that Kafka puts before a principal's name; the names of this configuration go without it"""


def why_not_user(name: str) -> str | None:
    """`write it without its type: alice` for `User:alice`, as no client is ever called; None: it is fine."""
    if not name.startswith(USER_TYPE):
        return None
    return f"write it without its type: {name.removeprefix(USER_TYPE)}"


_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt])i?b?(?:ytes)?(?:/s|ps)?", re.IGNORECASE)
_POWERS = {"k": 1, "m": 2, "g": 3, "t": 4}


def in_bytes(value: object) -> str:
    """`; write 1048576` for a text as `1MB`, `1 MiB/s` or `1m`: a number of bytes with a unit. Else empty."""
    found = _SIZE.fullmatch(value.strip()) if isinstance(value, str) else None
    if found is None:
        return ""
    return f"; write {round(float(found[1]) * 1024 ** _POWERS[found[2].lower()])}"


def shown(value: object) -> str:
    """A value for an error message, cut at 60 characters."""
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
