"""Nothing of the product waits by asyncio.wait_for, which loses a cancellation now and then (Python 3.11)."""

from __future__ import annotations

import ast

import pytest

from testkit.repository.tracked_files import tracked_files
from tools.structure import PRODUCT, ROOT


def waits(text: str) -> list[int]:
    """The lines that use it."""
    names = (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Attribute | ast.alias))
    return [
        node.lineno for node in names if "wait_for" in (getattr(node, "attr", ""), getattr(node, "name", ""))
    ]


@pytest.mark.parametrize("package", PRODUCT)
def test_a_wait_with_an_end_is_one_of_asyncio_timeout(package: str) -> None:
    """One that comes together with what is waited for is lost, and the task goes on for good; a
    `asyncio.timeout` around the plain wait loses none."""
    paths = [path for path in tracked_files(ROOT, package) if path.endswith(".py")]
    found = {path: lines for path in paths if (lines := waits((ROOT / path).read_text()))}
    assert found == {}


@pytest.mark.parametrize("text", ["await asyncio.wait_for(x, 1)", "from asyncio import wait_for"])
def test_it_is_seen_however_it_is_written(text: str) -> None:
    assert waits(f"async def f():\n    {text}" if "await" in text else text)
