"""The tables of figures in the documentation are those of the recorded runs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from tools.recorded.tables import PAGE, RESULTS, marks, page_text, with_table


def recorded(name: str) -> Any:
    return json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))


def page_of(name: str, run: Mapping[str, Any]) -> str:
    begin, end = marks(name)
    page = with_table(f"before\n{begin}former table\n{end}after\n", name, run)
    assert page.startswith("before\n")
    assert page.endswith("after\n")
    assert "former table" not in page
    return page


def test_the_page_has_the_recorded_runs() -> None:
    assert page_text() == PAGE.read_text(encoding="utf-8"), "run `make reference`"


@pytest.mark.parametrize(
    ("cost", "shown"), [(1.31, "**1.31 (1.31–1.31)**: 1.3 µs"), (1.3, "1.30 (1.30–1.30): 1.3 µs")]
)
def test_a_ratio_over_its_goal_is_bold(cost: float, shown: str) -> None:
    run = recorded("cost")
    for part in ("free", "one-core"):
        run["placements"][part]["cases"]["request_50"]["cost"] |= {"sluice": [cost] * 5, "haproxy": [1.0] * 5}
    (line,) = [
        x for x in page_of("cost", run).splitlines() if x.startswith("| per request, 50 connections × 1")
    ]
    assert line.count(f"| {shown} |") == 2


@pytest.mark.parametrize(
    ("name", "found", "line"),
    [
        ("produce_cv", 0.0304, "| … variation per second | ≤ 3% | 3.0% |"),
        ("produce_cv", 0.0306, "| … variation per second | ≤ 3% | **3.1%** |"),
        ("jain_50", 0.9, "| ≥ 0.98 | **0.900** |"),
        ("told_vs_waited", 1.26, "| 0.8 to 1.25 | **1.260** |"),
        ("produce_p99_s", 1.058, "| … p99 latency | ≤ 1.1 s | 1.06 s |"),
        ("broker_sessions_leaked", 1, "| 0 | **1** |"),
    ],
)
def test_a_figure_beyond_its_goal_is_bold(name: str, found: float, line: str) -> None:
    run = recorded("evenness")
    run["summary"][name] = found
    assert line in page_of("evenness", run)


def test_a_page_without_a_place_is_an_error() -> None:
    with pytest.raises(ValueError, match="the page lacks"):
        with_table("before\nafter\n", "cost", recorded("cost"))
