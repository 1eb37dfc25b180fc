"""Names that clients give themselves, as they are shown to people. Pure."""

from __future__ import annotations


def printable(name: str) -> str:
    """A name that does nothing to a terminal or a page: what is not printable in it is escaped, for it could
    steer the terminal, make lines of its own, or turn a line's order around."""
    if name.isprintable():
        return name
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode()
        for character in name.encode(errors="replace").decode()
    )
