"""Committed runs of benchmarks → their tables in docs/benchmarks.md, which nobody copies by hand.

Each stands between two marks; what explains the figures stands outside of them, and is written by a person.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from tools.recorded import cost, evenness

ROOT: Final = Path(__file__).resolve().parents[2]
RESULTS: Final = ROOT / "bench" / "results"
PAGE: Final = ROOT / "docs" / "benchmarks.md"
TABLES: Final[Mapping[str, Callable[[Mapping[str, Any]], Iterator[str]]]] = {
    "cost": cost.lines,
    "evenness": evenness.lines,
}
"""Name of the JSON file in bench/results → what makes lines of it"""


def marks(name: str) -> tuple[str, str]:
    """What stands before a table, and behind it."""
    begin = f"<!-- {name}: of bench/results/{name}.json by `make reference`; do not edit. -->\n"
    return begin, f"<!-- {name}: end -->\n"


def with_table(page: str, name: str, run: Mapping[str, Any]) -> str:
    """The page with the tables of that run. Raises ValueError where it has no place for them."""
    begin, end = marks(name)
    before, is_begun, rest = page.partition(begin)
    _, is_ended, after = rest.partition(end)
    if not is_begun or not is_ended:
        raise ValueError(f"the page lacks {begin.strip()} or {end.strip()}")
    return before + begin + "\n" + "\n".join(TABLES[name](run)) + "\n\n" + end + after


def page_text() -> str:
    """docs/benchmarks.md as it is to be."""
    page = PAGE.read_text(encoding="utf-8")
    for name in TABLES:
        page = with_table(page, name, json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8")))
    return page
