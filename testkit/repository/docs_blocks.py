"""Fenced blocks of a page of the documentation: language, text, and why one is not run.

A comment before a block, `<!-- not run: REASON -->`, says why it cannot be. A configuration block whose first
line is a comment with a file name is that file.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

_BLOCK: Final = re.compile(r"(?:^ *<!-- not run: ([^\n]+?) -->\n)?^ *```(\w*)\n(.*?)^ *```$", re.S | re.M)
_FILE: Final = re.compile(r"# ([\w.-]+\.(?:yaml|properties))\b")


@dataclass(frozen=True, slots=True)
class Block:
    """One fenced block of a page."""

    language: str
    text: str
    not_run: str
    """the reason, or empty"""

    @property
    def is_make(self) -> bool:
        """Whether it starts targets of the Makefile."""
        return self.text.startswith("make ")

    @property
    def file_name(self) -> str:
        """The file that the block's first line names, or empty."""
        found = None if self.language == "sh" else _FILE.match(self.text)
        return found[1] if found else ""


def blocks_of(page: str) -> list[Block]:
    """The blocks of a page's text, in order."""
    return [Block(found[2], found[3], found[1] or "") for found in _BLOCK.finditer(page)]
