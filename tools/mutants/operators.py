"""The source of a module → its mutants, by five operators that change behaviour.

    comparison  < ↔ <=, > ↔ >=, == ↔ !=, is ↔ is not, in ↔ not in
    bound       min ↔ max; the end of a slice or a range one earlier
    dropped     a statement that has an effect beyond a local name does nothing
    branch      the condition of if and of a conditional expression turned round; and ↔ or; not taken away
    constant    a number one higher, True ↔ False; also the numbers that a module names

Left out is what no behaviour hangs on (texts, annotations, assertions, __repr__), default arguments, and what
would be seen by any test at all: an attribute that __init__ does not set.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final, TypeAlias

from tools.mutants.mutant import Mutant, source_of

OPERATORS: Final = ("comparison", "bound", "dropped", "branch", "constant")

_COMPARISONS: Final[dict[type[ast.cmpop], type[ast.cmpop]]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
_NEGATED: Final = (ast.Eq, ast.NotEq, ast.Is, ast.IsNot, ast.In, ast.NotIn)
_UNSEEN: Final = frozenset({"__repr__", "__str__"})
_Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef
_Change: TypeAlias = tuple[str, ast.AST, str]
"""operator, the node that is replaced, by what"""


def mutants_of(path: str) -> list[Mutant]:
    """All of one module, in the order of its source."""
    source = source_of(path)
    starts = _starts(source)
    found = []
    for where, node in _units(ast.parse(source)):
        changes = _of_function(node) if isinstance(node, _Function) else _of_constant(node)
        for operator, old, replacement in changes:
            begin, end = _span(old, starts)
            last = getattr(old, "end_lineno", None) or 0
            found.append(Mutant(path, where, operator, begin, end, replacement, _line(old), last))
    return found


def spans_of(path: str) -> dict[str, tuple[int, int]]:
    """Where the outermost functions of a module stand in its source, in bytes."""
    source = source_of(path)
    starts = _starts(source)
    return {where: _span(node, starts) for where, node in _units(ast.parse(source))}


def _starts(source: bytes) -> list[int]:
    """Of the lines, in bytes."""
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    return starts


def _line(node: ast.AST) -> int:
    return int(getattr(node, "lineno", 0))


def _span(node: ast.AST, starts: list[int]) -> tuple[int, int]:
    assert isinstance(node, (ast.expr, ast.stmt))
    assert node.end_lineno is not None
    assert node.end_col_offset is not None
    return starts[node.lineno - 1] + node.col_offset, starts[node.end_lineno - 1] + node.end_col_offset


def _units(tree: ast.Module) -> Iterator[tuple[str, _Function | ast.AnnAssign]]:
    """Outermost functions, and numbers that the module names."""
    for node in tree.body:
        if isinstance(node, _Function):
            yield node.name, node
        elif isinstance(node, ast.ClassDef):
            for member in node.body:
                if isinstance(member, _Function) and member.name not in _UNSEEN:
                    yield f"{node.name}.{member.name}", member
        elif (
            isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id.isupper()
        ):
            yield node.target.id, node


def _of_constant(node: ast.AnnAssign) -> Iterator[_Change]:
    if isinstance(node.value, ast.Constant) and type(node.value.value) in {int, float}:
        yield "constant", node.value, _other(node.value)


def _of_function(function: _Function) -> Iterator[_Change]:
    for number, statement in enumerate(function.body):
        if not (number == 0 and _is_text(statement)):
            is_made = function.name == "__init__" and isinstance(statement, (ast.Assign, ast.AnnAssign))
            yield from (change for change in _of(statement) if not (is_made and change[0] == "dropped"))


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _of(node: ast.AST) -> Iterator[_Change]:
    """Those of a node and of what is in it."""
    if isinstance(node, (ast.Assert, ast.JoinedStr, ast.Import, ast.ImportFrom)) or _is_text(node):
        return
    if isinstance(node, ast.stmt) and _has_effect(node):
        yield "dropped", node, "pass"
    if isinstance(node, ast.Raise):  # what it says is a text
        return
    if isinstance(node, ast.Compare):
        yield from _of_comparison(node)
    elif isinstance(node, (ast.If, ast.IfExp)) and not _is_negated_anyway(node.test):
        yield "branch", node.test, f"(not ({ast.unparse(node.test)}))"
    elif isinstance(node, ast.BoolOp):
        other = ast.BoolOp(ast.Or() if isinstance(node.op, ast.And) else ast.And(), node.values)
        yield "branch", node, f"({ast.unparse(other)})"
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield "branch", node, f"({ast.unparse(node.operand)})"
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        yield from _of_call(node, node.func)
    elif isinstance(node, ast.Slice) and node.upper is not None:
        yield "bound", node.upper, f"{ast.unparse(node.upper)} - 1"
    elif isinstance(node, ast.Constant) and type(node.value) in {int, float, bool}:
        yield "constant", node, _other(node)
    for name, child in ast.iter_fields(node):
        if name not in {"annotation", "returns", "decorator_list", "args"} or isinstance(node, ast.Call):
            for one in child if isinstance(child, list) else [child]:
                if isinstance(one, ast.AST):
                    yield from _of(one)


def _has_effect(node: ast.stmt) -> bool:
    """Beyond the binding of a local name, without which what follows would not run at all."""
    if isinstance(node, ast.Assign):
        return any(not isinstance(target, (ast.Name, ast.Tuple)) for target in node.targets)
    if isinstance(node, ast.Return):
        return node.value is None
    return isinstance(
        node, (ast.Expr, ast.AugAssign, ast.Raise, ast.Break, ast.Continue, ast.Delete)
    ) and not (isinstance(node, ast.Expr) and isinstance(node.value, (ast.Yield, ast.YieldFrom)))


def _of_comparison(node: ast.Compare) -> Iterator[_Change]:
    for number, operator in enumerate(node.ops):
        operators = list(node.ops)
        operators[number] = _COMPARISONS[type(operator)]()
        yield "comparison", node, f"({ast.unparse(ast.Compare(node.left, operators, node.comparators))})"


def _is_negated_anyway(test: ast.expr) -> bool:
    """Another operator does the same."""
    if isinstance(test, ast.UnaryOp):
        return isinstance(test.op, ast.Not)
    return isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], _NEGATED)


def _of_call(node: ast.Call, function: ast.Name) -> Iterator[_Change]:
    if function.id in {"min", "max"}:
        yield "bound", function, "max" if function.id == "min" else "min"
    elif function.id == "range" and node.args:
        end = node.args[0] if len(node.args) == 1 else node.args[1]
        yield "bound", end, f"({ast.unparse(end)}) - 1"


def _other(node: ast.Constant) -> str:
    if isinstance(node.value, bool):
        return str(not node.value)
    assert isinstance(node.value, (int, float))
    return str(node.value + 1)
