"""The last line of bench-recalibration has the five figures that have goals, reckoned from its runs."""

from __future__ import annotations

import pytest

from bench.recalibration.__main__ import GOALS, Runs, figures
from bench.recalibration.cluster import ClusterNight
from bench.recalibration.runs import Run

GIB_AS_GB = 1.073741824


def run(rows: int = 1, *, cpu_s: float = 1.0, wall_s: float = 1.0, gib: float = 1.0) -> Run:
    return Run("", rows, cpu_s, wall_s, gib)


def runs(**given: Run) -> Runs:
    its = {name: run() for name in ("largest", "bound", "night", "states", "most_states")} | given
    return Runs(**its, growth=[], growth_of_states=[])


def test_the_last_line_has_the_figures_of_the_goals() -> None:
    found = figures(
        runs(
            largest=run(100, cpu_s=150.0),
            bound=run(100, cpu_s=30.0, gib=9.0),
            night=run(10, wall_s=41.04),
            most_states=run(5, wall_s=222.2, gib=3.0),
        ),
        [ClusterNight("client", 60.0, [])],
    )
    assert list(found) == list(GOALS)
    assert found == {
        "vs_duckdb": 5.0,
        "night_10m_rows_s": 41.0,
        "peak_rss_gb": round(3.0 * GIB_AS_GB, 2),
        "entities_100k_28_days_s": 222.2,
        "cluster_equals_local": True,
    }


@pytest.mark.parametrize("name", ["largest", "night", "states", "most_states"])
def test_memory_is_the_highest_of_all_runs_of_the_job(name: str) -> None:
    assert runs(**{name: run(gib=2.0)}).peak_rss_gb == pytest.approx(2.0 * GIB_AS_GB)


def test_memory_of_runs_of_growth_counts_and_duckdb_s_does_not() -> None:
    few = runs(bound=run(gib=7.0))
    assert few.peak_rss_gb == pytest.approx(GIB_AS_GB)
    more = Runs(
        few.largest, few.bound, few.night, few.states, few.most_states, [run(gib=4.0)], [run(gib=5.0)]
    )
    assert more.peak_rss_gb == pytest.approx(5.0 * GIB_AS_GB)
