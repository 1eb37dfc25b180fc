"""The recalibration demo names no file that it deletes."""

from __future__ import annotations

from pathlib import Path

from bench.recalibrate_demo.__main__ import report_told


def test_a_report_is_named_only_where_it_stays() -> None:
    plan = Path("/tmp/out/plans/2026-11-20-1")
    assert report_told(plan, is_kept=True) == f"its report: {plan}/report.html"
    told = report_told(plan, is_kept=False)
    assert str(plan) not in told
    assert "--keep FOLDER" in told
