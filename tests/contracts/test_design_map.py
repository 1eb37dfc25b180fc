"""The map in docs/design.md has a row for every folder of the product, and none for one that is not there."""

from __future__ import annotations

import re
from pathlib import Path

from tools.structure import PRODUCT

ROOT = Path(__file__).resolve().parents[2]
OTHERS = {"testkit", "tools", "bench", "tests", "deploy", "deploy/examples"}


def _on_the_map() -> set[str]:
    text = (ROOT / "docs/design.md").read_text(encoding="utf-8")
    return set(re.findall(r"^\| ([a-z_/]+)/ \|", text, re.M))


def _folders() -> set[str]:
    return {
        str(module.parent.relative_to(ROOT))
        for package in PRODUCT
        for module in (ROOT / package).rglob("*.py")
    }


def test_every_folder_is_on_the_map() -> None:
    assert _folders() - _on_the_map() == set()


def test_the_map_names_no_folder_that_is_gone() -> None:
    assert _on_the_map() - _folders() - OTHERS == set()
    assert all((ROOT / folder).is_dir() for folder in OTHERS)
