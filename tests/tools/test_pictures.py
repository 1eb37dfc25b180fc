"""The drawings of the documentation are those that the tool makes, and every picture is shown somewhere."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

from tools.pictures import EVENNESS, IMAGES, drawings

ROOT = Path(__file__).resolve().parents[2]


def test_the_drawings_are_what_the_tool_makes_of_the_recorded_figures() -> None:
    for name, text in drawings().items():
        assert (IMAGES / name).read_text(encoding="utf-8") == text, f"{name}: run `make reference`"


def test_a_drawing_is_svg_that_loads_nothing() -> None:
    for text in drawings().values():
        root = ElementTree.fromstring(text)
        assert root.tag.endswith("svg")
        assert root[0].text, "no title for those who cannot see it"
        assert not [
            one.tag for one in root.iter() if one.tag.rpartition("}")[2] in {"script", "image", "use"}
        ]


def test_the_figures_beside_the_lines_are_the_benchmarks() -> None:
    sides = json.loads(EVENNESS.read_text(encoding="utf-8"))["setups"]["produce"]
    for side in ("native", "sluice"):
        stall_s, p99_s = sides[side]["longest_gap_s"], sides[side]["latency_s"]["p99"]
        assert f"longest stall {stall_s:.1f} s, p99 latency {p99_s:.1f} s" in drawings()["sawtooth.svg"]


def test_every_picture_is_on_a_page() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    shown = "".join(page.read_text(encoding="utf-8") for page in pages)
    files = sorted(IMAGES.iterdir())
    assert len(files) >= 10
    assert [file.name for file in files if f"images/{file.name}" not in shown] == []
