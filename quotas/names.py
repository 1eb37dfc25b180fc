"""Names that clients give themselves, as they are shown to people. Pure."""

from __future__ import annotations

from typing import Final

MAX_NAME: Final = 256
"""characters of a name that are told; a client id may have 32 KiB"""


def clean(name: str) -> str:
    """A name that can be told: not too long, and UTF-8 can write it."""
    return name[:MAX_NAME].encode(errors="replace").decode()


def printable(name: str) -> str:
    """A name that does nothing to a terminal or a page: what is not printable in it is escaped, for it could
    steer the terminal, make lines of its own, or turn a line's order around."""
    if name.isprintable():
        return name
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode()
        for character in name.encode(errors="replace").decode()
    )
