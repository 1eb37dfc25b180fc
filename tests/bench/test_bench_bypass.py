"""The arithmetic of the bypass benchmark: what is allowed, what is stated, and what the last line says."""

from __future__ import annotations

import pytest

from bench.bypass.outcome import (
    FETCH,
    PRODUCE,
    Attack,
    Outcome,
    Transactions,
    at_rate,
    ids_bound,
    of_outstanding,
    summary_of,
)


def outcome(passed: float, bound: float = 200.0) -> Outcome:
    return Outcome("100 B/s", 100.0, bound, passed)


def test_what_is_outstanding_bounds_what_waits_no_longer_than_the_budget() -> None:
    assert at_rate(1_000.0, 60.0, 1.0) == 61_000
    assert of_outstanding(1_000.0, 4_000.0, 8.0, 60.0, 1.0) == 61_000
    assert of_outstanding(1_000.0, 16_000.0, 8.0, 60.0, 1.0) == 122_000


@pytest.mark.parametrize(
    ("per_hour", "seconds", "bound"), [(1, 600, 2), (1, 3600, 3), (10, 3600, 22), (10, 600, 12)]
)
def test_ids_are_admitted_whole_and_a_bucket_holds_at_least_one(
    per_hour: float, seconds: float, bound: int
) -> None:
    assert ids_bound(per_hour, 1.0, 0.1, seconds) == bound


def test_the_last_line_has_the_worst_of_each() -> None:
    attacks = [
        Attack("many", "", FETCH, "", outcome(110.0), outcome(70.0), counts_for_fetch=True),
        Attack("share", "", FETCH, "", outcome(390.0)),
        Attack("pour", "", PRODUCE, "", outcome(150.0), outcome(460.0)),
    ]
    lived = Transactions(600.0, True, None, 9, 1, 1000, 1.0, "")
    died = Transactions(600.0, False, 99.0, 40, 40, 40_000, None, "its process ended")
    assert summary_of(attacks, {"sluice": lived, "native": died}) == {
        "worst_vs_stated_bound": 1.95,
        "worst_fetch_vs_limit": 1.1,
        "produce_vs_limit": 1.5,
        "native_produce_vs_limit": 4.6,
        "broker_survives_transactions": True,
        "native_broker_survives_transactions": False,
        "vs_stated_bound": {"many": 0.55, "share": 1.95, "pour": 0.75},
    }


def test_ids_beyond_their_bound_count_as_the_worst() -> None:
    poured = Transactions(600.0, True, None, 40, 40, 40_000, 1.0, "")
    assert summary_of([], {"sluice": poured})["worst_vs_stated_bound"] == 40


def test_sides_that_did_not_run_are_not_told() -> None:
    attacks = [Attack("pour", "", PRODUCE, "", None, outcome(460.0))]
    assert summary_of(attacks, {}) == {"native_produce_vs_limit": 4.6, "vs_stated_bound": {}}
