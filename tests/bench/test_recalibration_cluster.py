"""`cluster_equals_local` compares bytes."""

from __future__ import annotations

from bench.recalibration.__main__ import _cluster_summary
from bench.recalibration.cluster import _compared


def test_a_plan_is_equal_only_with_the_same_files_and_bytes() -> None:
    expected = {"plan.json": b"1", "report.html": b"2"}
    same = _compared("client", lambda: dict(expected), expected)
    assert same.differing == []
    other = _compared("cluster", lambda: {"plan.json": b"1 ", "more": b""}, expected)
    assert other.differing == ["more", "plan.json", "report.html"]
    assert _cluster_summary([same, same]) == {"cluster_equals_local": True}
    assert _cluster_summary([same, other]) == {"cluster_equals_local": False}
