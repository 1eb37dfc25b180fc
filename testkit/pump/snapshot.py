"""All that a session and what it shares have come to, as values that can be compared."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from enum import Enum
from typing import Any, Final

from sluice.usage.records import Flow

# What a look leaves behind and nothing reads again: caches, and where the last call began.
_OF_NO_MEANING: Final = {
    ("RequestTime", "_usage"),
    ("RequestTime", "_one_batch"),  # templates, which save the Python code alone a walk
    ("RequestCosts", "_remembered"),
    ("RequestSide", "_start"),
}
_PLAIN: Final = (int, float, str, bytes, type(None), Enum)


def snapshot(value: object) -> object:
    """`value` and all that it leads to; two of equal worlds are equal."""
    return _taken(value, {})


def _taken(value: Any, seen: dict[int, int]) -> object:
    if isinstance(value, _PLAIN):
        return (type(value).__name__, value)
    if isinstance(value, (bytearray, memoryview)):
        return bytes(value)
    if id(value) in seen:
        return ("seen", seen[id(value)])
    if callable(value) or isinstance(value, type):
        return "called"
    seen[id(value)] = len(seen)
    if isinstance(value, (list, tuple, deque)):
        return (type(value).__name__, *(_taken(item, seen) for item in value))
    if isinstance(value, dict):
        return ("dict", *((_taken(key, seen), _taken(item, seen)) for key, item in value.items()))
    if isinstance(value, (set, frozenset)):
        return ("set", frozenset(_taken(item, {}) for item in value))
    name = _class_of(value)
    return (name, *((key, _taken(item, seen)) for key, item in _attributes(value, name)))


def _class_of(value: object) -> str:
    """Its class, or what the pump's stands for."""
    return next(cls.__name__ for cls in type(value).__mro__ if cls.__module__ != "sluice.proxy.pump.compiled")


def _attributes(value: object, name: str) -> Iterator[tuple[str, object]]:
    names = {key for cls in type(value).__mro__ for key in _slots(cls)} | set(getattr(value, "__dict__", ()))
    for key in sorted(names - {"__weakref__", "__dict__"}):
        of_no_meaning = any((cls.__name__, key) in _OF_NO_MEANING for cls in type(value).__mro__)
        if not of_no_meaning and hasattr(value, key):
            yield key, getattr(value, key)


def _slots(cls: type) -> tuple[str, ...]:
    slots = cls.__dict__.get("__slots__", ())
    return (slots,) if isinstance(slots, str) else tuple(slots)


def flow_key(flow: Flow) -> tuple[object, ...]:
    """What tells flows of two worlds apart."""
    return (flow.client_id, flow.number, *(getattr(flow, key, "") for key in ("api_class", "topic", "why")))
