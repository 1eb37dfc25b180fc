"""A large value → its JSON in pieces, the same as `json.dumps` makes at once.

That one call keeps the interpreter's lock until it is done, whatever thread it runs in: 45 ms for the limits
of 10,000 entities, in which the event loop stands still.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import chain
from typing import Any, Final

_ITEMS: Final = 100
"""of a list, at once; some 0.3 ms if each has a dozen values"""
_CHARACTERS: Final = 65_536
"""of a text, at once"""


def pieces_of(value: Any, *, ensure_ascii: bool = True) -> Iterator[str]:
    """The pieces: of lists as far as no other list is around them, of objects around these, of texts."""
    if isinstance(value, dict) and value:
        yield "{"
        for number, (key, one) in enumerate(value.items()):
            name = json.dumps(key, ensure_ascii=ensure_ascii)
            begin = f"{', ' if number else ''}{name}: "
            yield from chain((begin,), pieces_of(one, ensure_ascii=ensure_ascii))
        yield "}"
    elif isinstance(value, list) and len(value) > _ITEMS:
        yield from _in_parts(value, _ITEMS, "[", ", ", "]", ensure_ascii=ensure_ascii)
    elif isinstance(value, str) and len(value) > _CHARACTERS:
        yield from _in_parts(value, _CHARACTERS, '"', "", '"', ensure_ascii=ensure_ascii)
    else:
        yield json.dumps(value, ensure_ascii=ensure_ascii)


def _in_parts(
    value: list[Any] | str, size: int, begin: str, between: str, end: str, *, ensure_ascii: bool
) -> Iterator[str]:
    yield begin
    for start in range(0, len(value), size):
        part = json.dumps(value[start : start + size], ensure_ascii=ensure_ascii)[1:-1]
        yield between + part if start else part
    yield end
