"""What is wrong with a configuration or quota file: all problems at once, each with key, line and remedy."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Final, TypeVar

from sluice.quotas.numbers import as_yaml

if TYPE_CHECKING:
    from sluice.quotas.kinds import KindSpec

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


_SEPARATORS: Final = "[,_' ]"
_PLAIN: Final = re.compile(rf"\d+|\d{{1,3}}(?:{_SEPARATORS}\d{{3}})+")
_LONGEST_NUMBER: Final = 60
"""characters; int refuses 4,300"""
_WITH_UNIT: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z%µ]+)(?:/s|ps)?", re.IGNORECASE)
_THOUSANDS: Final = {"k": 1, "m": 2, "g": 3, "t": 4}
_SECONDS: Final = {
    **dict.fromkeys(("ms", "millis", "milliseconds"), 0.001),
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), 1.0),
    **dict.fromkeys(("m", "min", "mins", "minute", "minutes"), 60.0),
    **dict.fromkeys(("h", "hour", "hours"), 3600.0),
    **dict.fromkeys(("d", "day", "days"), 86_400.0),
}


def measure_of(key: str) -> str:
    """In what the number of a key is: `bytes`, `ms`, `s`, or empty where it is a count or a share."""
    if key.endswith(("_bytes", "_byte_rate")) or "bytes_per_" in key:
        return "bytes"
    return "ms" if key.endswith("_ms") else "s" if key.endswith("_s") and "_per_" not in key else ""


def number_meant(value: object, measure: str) -> str:
    """`; write 1048576` for a text as `1 MiB/s`, `1,048,576` or '1048576' in quotes where a number is to be;
    `measure`: see measure_of, or `%`, a percentage. By `1MB` and `1M` people mean either, so these are told
    as `; write 1000000 (1 MB) or 1048576 (1 MiB)`. Else empty."""
    if not isinstance(value, str):
        return ""
    text = value.strip()
    if len(text) > _LONGEST_NUMBER:
        return ""
    if _PLAIN.fullmatch(text):
        return f"; write {int(re.sub(_SEPARATORS, '', text))}"  # of digits of any script
    found = _WITH_UNIT.fullmatch(text)
    if found is None:
        return ""
    factors = _bytes_factors(found[2].lower()) if measure == "bytes" else _factors(found[2].lower(), measure)
    amount = float(found[1])
    ways = [
        f"{amount * factor:.15g}{f' ({amount:.15g} {unit})' if len(factors) > 1 else ''}"
        for unit, factor in factors
    ]
    return f"; write {' or '.join(ways)}" if ways else ""


def _bytes_factors(unit: str) -> list[tuple[str, float]]:
    """What a number with this unit may be multiplied by, and the unit of which that is meant; none: it is no
    unit of bytes."""
    power = _THOUSANDS.get(unit[0], 0)
    rest = unit[1 if power else 0 :]
    letter = unit[0].upper()
    binary = (f"{letter}iB", 1024.0**power)
    if rest in {"ib", "ibyte", "ibytes"} and power:
        return [binary]
    if rest not in {"", "b", "byte", "bytes"}:
        return []
    return [(f"{'k' if letter == 'K' else letter}B", 1000.0**power), binary] if power else [("B", 1.0)]


def _factors(unit: str, measure: str) -> list[tuple[str, float]]:
    """The same of the other measures."""
    if measure in {"s", "ms"}:
        factor = _SECONDS.get(unit)
        return [] if factor is None else [(unit, factor * (1000.0 if measure == "ms" else 1.0))]
    if measure == "%":
        return [(unit, 1.0)] if unit == "%" else []
    power = _THOUSANDS.get(unit, 0)
    return [(unit, 1000.0**power)] if power else []


def shown(value: object) -> str:
    """A value for an error message, as it stands in the file, cut at 60 characters."""
    text = as_yaml(value)
    return text if len(text) <= 60 else text[:57] + "..."


def wrong_limit(spec: KindSpec, value: object, reason: str) -> str:
    """`reason`, which may name the value already, then the value, its unit, and what is meant by it."""
    text, unit = reason.rstrip("."), spec.limit_unit
    of_value = f" ({unit})" if text.endswith(f"not {as_yaml(value)}") else f"; is {shown(value)} ({unit})"
    measure = "%" if unit.startswith("percent") else measure_of(spec.config_key)
    return f"{text}{of_value}{number_meant(value, measure)}"
