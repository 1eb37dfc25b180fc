"""docs/design.md says of every thread and task what happens when it fails."""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).parents[2]


def names_of(path: Path) -> set[str]:
    """Of threads and tasks that are begun there: given to spawn and its like, or paired with their work."""
    found: list[ast.expr] = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if called == "Thread":
                found += [word.value for word in node.keywords if word.arg == "name"]
            elif called in {"spawn", "keep_running", "keep_thread_running"}:
                found += node.args[1:2]
        elif isinstance(node, ast.Tuple) and path.name in {"server.py", "source.py"} and len(node.elts) == 2:
            found += node.elts[1:]
    return {name.value for name in found if isinstance(name, ast.Constant) and isinstance(name.value, str)}


def test_whatever_runs_for_long_stands_in_the_list_of_what_watches_what() -> None:
    """Every thread and every task of proxy/ that has a name of its own, by the syntax trees."""
    sources = [path for path in (ROOT / "proxy").rglob("*.py") if "calibration" not in path.parts]
    found = set().union(*map(names_of, sources))
    text = (ROOT / "docs" / "design.md").read_text()
    section = text[text.index("## What watches what") :]
    section = section[: section.find("\n## ", 5)]
    assert {"usage_meter", "quota_file", "access_log_encoder", "file-work", "admin"} <= found
    assert sorted(name for name in found if f"`{name}`" not in section) == []
