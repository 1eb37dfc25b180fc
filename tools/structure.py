"""The structure of the source, measured: folders, modules, functions, import cycles, purity.

    python -m tools.structure

Read from the syntax trees of the files that git tracks; nothing is imported. Exit code 1 if a figure is above
its goal. The last line of standard output is one JSON object.
"""

from __future__ import annotations

import ast
import json
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from testkit.repository.tracked_files import tracked_files

ROOT: Final = Path(__file__).resolve().parents[1]
PRODUCT: Final = ("protocol", "quotas", "usage", "proxy", "recalibration")
"""these are installed below `sluice`"""
GENERATED: Final = frozenset({"protocol/_tables.py", "protocol/codec/_schemas.py"})

PURE: Final = ("protocol", "quotas", "usage", "proxy/session")
"""no clock, socket, loop, thread or file: time is an argument, decisions are values"""
EXCEPTIONS: Final[Mapping[str, str]] = {
    "quotas/files/load.py": "reads quota files for the proxy and the nightly job, which share nothing else",
}
ALLOWED: Final = frozenset(
    {
        "__future__",
        "abc",
        "array",
        "base64",
        "binascii",
        "bisect",
        "collections",
        "contextlib",
        "dataclasses",
        "datetime",
        "difflib",
        "enum",
        "functools",
        "hashlib",
        "heapq",
        "hmac",
        "io",
        "ipaddress",
        "itertools",
        "json",
        "math",
        "mmh3",
        "operator",
        "random",
        "rbloom",
        "re",
        "struct",
        "sys",
        "types",
        "typing",
        "weakref",
        "yaml",
        "zoneinfo",
    }
)
"""what pure modules may import beside each other: none of it waits, or asks the system for anything but
random bytes and the database of time zones (`io`: types of given streams; `sys`: the byte order)"""
IMPURE_NAMES: Final = frozenset(
    {"open", "input", "print", "eval", "exec", "compile", "__import__", "globals"}
)
"""built in; not even named, for an alias would be called"""
IMPURE_ATTRIBUTES: Final = frozenset(
    {"now", "today", "utcnow", "FileIO", "open_code", "modules", "stdin", "stdout", "stderr", "__stdout__"}
    | {"__stderr__", "__stdin__", "os", "_os", "sys", "socket", "argv", "exit", "settrace"}
)
"""of modules that pure code may import: datetime's clock, io's files, and what they import themselves"""

GOALS: Final = {
    "largest_folder_files": 25,
    "largest_module_lines": 400,
    "longest_function_lines": 60,
    "import_cycles": 0,
    "impure_imports": 0,
}


@dataclass(slots=True)
class Structure:
    """What was found; each worst case with its place."""

    folders: Counter[str] = field(default_factory=Counter)
    modules: Counter[str] = field(default_factory=Counter)
    functions: Counter[str] = field(default_factory=Counter)
    cycles: list[list[str]] = field(default_factory=list)
    impure: list[str] = field(default_factory=list)

    def figures(self) -> dict[str, int]:
        """By the names of GOALS."""
        return {
            "largest_folder_files": max(self.folders.values(), default=0),
            "largest_module_lines": max(self.modules.values(), default=0),
            "longest_function_lines": max(self.functions.values(), default=0),
            "import_cycles": len(self.cycles),
            "impure_imports": len(self.impure),
        }

    def places(self) -> dict[str, list[str]]:
        """What is above the goal, else the worst three."""
        counted = {
            "largest_folder_files": self.folders,
            "largest_module_lines": self.modules,
            "longest_function_lines": self.functions,
        }
        shown = {
            name: [f"{count} {what}" for what, count in found.most_common() if count > GOALS[name]]
            or [f"{count} {what}" for what, count in found.most_common(3)]
            for name, found in counted.items()
        }
        return {
            **shown,
            "import_cycles": [" → ".join(cycle) for cycle in self.cycles],
            "impure_imports": self.impure,
        }


def measure(sources: Mapping[str, str]) -> Structure:
    """The structure of these files: path from the root → text."""
    found = Structure()
    trees = {path: ast.parse(text.lstrip("\ufeff"), path) for path, text in sources.items()}
    for path, text in sources.items():
        found.folders[path.rpartition("/")[0] or "."] += 1
        if path not in GENERATED:
            found.modules[path] = len(text.splitlines())
            found.functions.update(dict(_functions(path, trees[path])))
    graph = _imports(trees)
    found.cycles = sorted(sorted(names) for names in _circles(graph))
    for path, tree in trees.items():
        if path not in EXCEPTIONS and _is_below_pure(path):
            found.impure += [f"{path}:{line} {what}" for line, what in _impurities(tree)]
    return found


def _functions(path: str, tree: ast.Module) -> Iterator[tuple[str, int]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield f"{path}:{node.lineno} {node.name}", (node.end_lineno or 0) - node.lineno + 1


def _impurities(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """(line, what) of each import, call and name by which a module would reach the world."""
    for node in ast.walk(tree):
        for name in _imported(node):
            if name.startswith("sluice."):
                path = name.removeprefix("sluice.").replace(".", "/")
                if not _is_below_pure(path) or f"{path}.py" in EXCEPTIONS:
                    yield node.lineno, f"imports {name}"  # type: ignore[attr-defined]
            elif name.partition(".")[0] not in ALLOWED:
                yield node.lineno, f"imports {name}"  # type: ignore[attr-defined]
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] in ALLOWED:
            for alias in node.names:
                if alias.name in IMPURE_ATTRIBUTES | IMPURE_NAMES:
                    yield node.lineno, f"imports {alias.name}"
        if isinstance(node, ast.Name) and node.id in IMPURE_NAMES and isinstance(node.ctx, ast.Load):
            yield node.lineno, f"names {node.id}"
        if isinstance(node, ast.Attribute) and node.attr in IMPURE_ATTRIBUTES and _is_module(node.value):
            yield node.lineno, f"uses {node.attr}"
        if isinstance(node, ast.Call) and _is_getattr_of_module(node):
            yield node.lineno, "asks a module for a name"


def _is_below_pure(path: str) -> bool:
    """A module or package in one of PURE, or one of these."""
    return any(f"{path}/".startswith(f"{pure}/") for pure in PURE)


def _is_module(node: ast.expr) -> bool:
    """By its name: one of ALLOWED, or a class of datetime's."""
    return isinstance(node, ast.Name) and node.id in ALLOWED | {"date"}


def _is_getattr_of_module(node: ast.Call) -> bool:
    return isinstance(node.func, ast.Name) and node.func.id == "getattr" and _is_module(node.args[0])


def _imported(node: ast.AST) -> list[str]:
    """The modules of an import statement, as they are written."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    return [node.module] if isinstance(node, ast.ImportFrom) and node.module else []


def _imports(trees: Mapping[str, ast.Module]) -> dict[str, set[str]]:
    """Path → paths of the modules that it imports, wherever in it, for types alone, too."""
    by_name = {_name(path): path for path in trees}
    graph: dict[str, set[str]] = {}
    for path, tree in trees.items():
        found = graph.setdefault(path, set())
        for node in ast.walk(tree):
            names = _imported(node)
            if isinstance(node, ast.ImportFrom):
                names += [f"{node.module}.{alias.name}" for alias in node.names]
            for name in names:
                # The packages around a module are imported with it.
                parts = name.split(".")
                around = (".".join(parts[:count]) for count in range(1, len(parts) + 1))
                found.update(by_name[one] for one in around if one in by_name)
        found.discard(path)
    return graph


def imported_modules(text: str) -> list[str]:
    """All that a source text imports, wherever in it, as it is written."""
    return [name for node in ast.walk(ast.parse(text.lstrip("\ufeff"))) for name in _imported(node)]


def _name(path: str) -> str:
    dotted = path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    return f"sluice.{dotted}" if dotted.partition(".")[0] in PRODUCT else dotted


def _circles(graph: Mapping[str, set[str]]) -> list[list[str]]:
    """The strongly connected components of more than one module (Tarjan's algorithm)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    circles: list[list[str]] = []

    def visit(path: str) -> None:
        index[path] = low[path] = len(index)
        stack.append(path)
        for other in graph[path]:
            if other not in index:
                visit(other)
                low[path] = min(low[path], low[other])
            elif other in stack:
                low[path] = min(low[path], index[other])
        if low[path] == index[path]:
            at = stack.index(path)
            if len(stack) - at > 1:
                circles.append(stack[at:])
            del stack[at:]

    for path in graph:
        if path not in index:
            visit(path)
    return circles


def main() -> int:
    """Exit code 1 if a figure is above its goal."""
    sources = {
        path: (ROOT / path).read_text(encoding="utf-8")
        for path in tracked_files(ROOT)
        if path.endswith(".py") and (ROOT / path).exists()
    }
    found = measure(sources)
    figures = found.figures()
    for name, places in found.places().items():
        verdict = "ok" if figures[name] <= GOALS[name] else "ABOVE"
        print(f"{name:24} {figures[name]:4}  goal {GOALS[name]:3}  {verdict}")
        for place in places:
            print(f"    {place}")
    print(json.dumps(figures))
    return int(any(figures[name] > goal for name, goal in GOALS.items()))


if __name__ == "__main__":
    sys.exit(main())
