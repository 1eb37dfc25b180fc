"""One change of the source that must make a test fail, and how it is put into the running process.

A mutant is a piece of text in the place of another. It is applied to the modules that are already imported:
the code of the function that it stands in is exchanged where the function is, so that nothing is imported
anew, and all that refers to the function has the mutant. A constant of a module is given its new value there
and wherever it was imported by name; constants made from it keep their value.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[2]


class NotApplicable(Exception):
    """The place is not there, or the process cannot be changed like this."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """`replacement` in the place of source[begin:end]; offsets in bytes."""

    path: str
    """from the root of the repository"""
    where: str
    """qualified name of the outermost function, or of a constant of the module"""
    operator: str
    begin: int
    end: int
    replacement: str
    line: int
    last_line: int
    """1-based lines of what is changed: a test that runs none of them cannot notice"""

    @property
    def is_constant(self) -> bool:
        """It changes a module's constant, which no function's lines hold."""
        return self.operator == "constant" and self.where.isidentifier() and self.where.isupper()

    @property
    def place(self) -> str:
        """Where it is, as `path:line`."""
        return f"{self.path}:{self.line}"

    @property
    def change(self) -> str:
        """As it is told: what stood there → what stands there now."""
        old = source_of(self.path)[self.begin : self.end].decode()
        return f"{_short(old)} → {_short(self.replacement)}"

    def source(self) -> bytes:
        """The whole module, changed."""
        source = source_of(self.path)
        return source[: self.begin] + self.replacement.encode() + source[self.end :]


def _short(text: str, most: int = 60) -> str:
    text = " ".join(text.split())
    return text if len(text) <= most else text[: most - 1] + "…"


@cache
def source_of(path: str) -> bytes:
    """The module as it stands on disk."""
    return (ROOT / path).read_bytes()


def module_of(path: str) -> str:
    """The name by which it is imported."""
    return "sluice." + path.removesuffix(".py").replace("/", ".")


def _nested(code: CodeType) -> Iterator[CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from _nested(constant)


def _codes(source: bytes, path: str) -> dict[str, list[CodeType]]:
    whole = compile(source, str(ROOT / path), "exec", dont_inherit=True)
    found: dict[str, list[CodeType]] = {}
    for code in _nested(whole):
        found.setdefault(code.co_qualname, []).append(code)
    return found


class Process:
    """The functions and modules of this process, by where they come from."""

    def __init__(self) -> None:
        self._functions: dict[tuple[str, str], list[FunctionType]] = {}
        self._caches: list[Any] = []
        names = {module.__name__ for module in self._modules()}
        gc.unfreeze()  # what tests/conftest.py has frozen is not among the objects
        for thing in gc.get_objects():
            if type(thing).__name__ == "_lru_cache_wrapper" and thing.__module__ in names:
                self._caches.append(thing)
            elif isinstance(thing, FunctionType) and thing.__module__ in names:
                key = thing.__module__, thing.__code__.co_qualname
                self._functions.setdefault(key, []).append(thing)

    @staticmethod
    def _modules() -> list[ModuleType]:
        return [m for name, m in list(sys.modules.items()) if name.startswith("sluice.")]

    def apply(self, mutant: Mutant) -> None:
        """Change this process for good; what was reckoned before is forgotten. Raises NotApplicable."""
        for kept in self._caches:
            kept.cache_clear()
        if mutant.is_constant:
            self._set_constant(mutant)
            return
        old = _codes(source_of(mutant.path), mutant.path).get(mutant.where, [])
        try:
            new = _codes(mutant.source(), mutant.path).get(mutant.where, [])
        except SyntaxError as error:
            raise NotApplicable(str(error)) from None
        functions = self._functions.get((module_of(mutant.path), mutant.where), [])
        if not functions or len(old) != 1 or len(new) != 1:
            raise NotApplicable(f"{mutant.where}: {len(functions)} functions, {len(new)} codes")
        for function in functions:
            try:
                function.__code__ = new[0]
            except ValueError as error:  # another number of closed-over names
                raise NotApplicable(str(error)) from None

    def _set_constant(self, mutant: Mutant) -> None:
        module = sys.modules[module_of(mutant.path)]
        old = getattr(module, mutant.where)
        value = eval(mutant.replacement, dict(vars(module)))  # noqa: S307 - our own source
        if value == old:
            raise NotApplicable("the value stays")
        for other in list(sys.modules.values()):
            if other is module or mutant.where in _imported(other, module.__name__):
                setattr(other, mutant.where, value)


def _imported(module: ModuleType, source: str) -> frozenset[str]:
    """Names that `module` imports from the module `source`."""
    file = getattr(module, "__file__", None)
    if not file or not file.startswith(str(ROOT)) or "site-packages" in file:
        return frozenset()
    return imports_of(file).get(source, frozenset())


@cache
def imports_of(file: str) -> dict[str, frozenset[str]]:
    """Names that a file imports, by the module that they come from."""
    import ast

    found: dict[str, frozenset[str]] = {}
    for node in ast.walk(ast.parse(Path(file).read_bytes())):
        if isinstance(node, ast.ImportFrom) and node.module:
            names = {alias.name for alias in node.names if alias.asname is None}
            found[node.module] = found.get(node.module, frozenset()) | names
    return found
