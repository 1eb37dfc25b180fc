"""Docstrings of the product begin with what a thing is or does, and say more than its name."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
PACKAGES: Final = ("protocol", "proxy", "quotas", "recalibration", "usage")
LEAST_WORDS: Final = 4


def docstrings(tree: ast.Module) -> Iterator[tuple[int, str, bool]]:
    """(line, text, whether it is of a module, class or function) of each, those of attributes too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if text is not None:
                yield node.body[0].lineno, text, True
            for before, after in zip(node.body, node.body[1:], strict=False):
                value = after.value if isinstance(after, ast.Expr) else None
                told = value.value if isinstance(value, ast.Constant) else None
                if isinstance(before, ast.Assign | ast.AnnAssign) and isinstance(told, str):
                    yield after.lineno, told, False


def faults(text: str) -> list[int]:
    """The lines of docstrings that begin with "Of ", or say next to nothing."""
    return [
        line
        for line, told, is_whole in docstrings(ast.parse(text))
        if told.startswith("Of ") or (is_whole and len(told.split()) < LEAST_WORDS)
    ]


def test_no_docstring_begins_with_of_or_says_next_to_nothing() -> None:
    found = []
    for package in PACKAGES:
        for file in sorted((ROOT / package).rglob("*.py")):
            name = file.relative_to(ROOT).as_posix()
            found += [f"{name}:{line}" for line in faults(file.read_text(encoding="utf-8"))]
    assert found == []


def test_the_test_finds_them() -> None:
    text = '"""A module that says enough."""\nLIMIT = 1\n"""Of one."""\ndef f():\n    """By us."""\n'
    assert faults(text) == [3, 5]
