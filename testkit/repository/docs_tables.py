"""Tables of docs/*.md, for tests that compare them with what the code does."""

from __future__ import annotations

from pathlib import Path
from typing import Final

DOCS: Final = Path(__file__).parents[2] / "docs"


def rows_below(heading: str, doc: str = "quotas.md") -> list[list[str]]:
    """The cells of the first table below a heading, without its two head lines."""
    text = (DOCS / doc).read_text(encoding="utf-8")
    before, found, below = text.partition(f" {heading}\n")
    assert found, f"no heading {heading!r} in {doc}"
    assert before.rsplit("\n", 1)[-1].strip("#") == ""
    lines = below.splitlines()
    begin = next(i for i, line in enumerate(lines) if line.startswith("|"))
    rows = []
    for line in lines[begin + 2 :]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in line.strip("|").split("|")])
    return rows
