"""The map in docs/design.md names every module, and no module that is not there."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("protocol", "quotas", "proxy", "recalibration")


def _named_patterns() -> set[str]:
    """`protocol/a.py, b_*.py` of the map's first column, each with its folder."""
    patterns = set()
    for row in re.findall(
        r"^\| ([a-z]+/[^|]*)\|", (ROOT / "docs/design.md").read_text(encoding="utf-8"), re.M
    ):
        folder = row.split("/")[0]
        for name in re.findall(r"[a-z_*]+\.py", row):
            patterns.add(f"{folder}/{name}")
    return patterns


def _modules() -> set[str]:
    return {
        f"{package}/{path.name}"
        for package in PACKAGES
        for path in (ROOT / package).glob("*.py")
        if path.name not in {"__init__.py", "__main__.py", "_tables.py", "_schemas.py"}
    }


def test_every_module_is_on_the_map() -> None:
    patterns = _named_patterns()
    lost = {module for module in _modules() if not any(Path(module).match(pattern) for pattern in patterns)}
    assert lost == set()


def test_the_map_names_no_module_that_is_gone() -> None:
    gone = {pattern for pattern in _named_patterns() if not list(ROOT.glob(pattern))}
    assert gone == set()
