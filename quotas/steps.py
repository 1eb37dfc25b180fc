"""Work in steps: a generator that pauses where others may have their turn, and returns what it comes to."""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeVar

_Found = TypeVar("_Found")


def at_once(steps: Generator[None, None, _Found]) -> _Found:
    """What they come to, without a pause."""
    while True:
        try:
            next(steps)
        except StopIteration as done:
            found: _Found = done.value
            return found
