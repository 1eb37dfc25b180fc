"""Days far above the usual ones: who had them, when, and that they outlive the history."""

from __future__ import annotations

from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path

from pyspark.sql import SparkSession

from sluice.quotas.kinds import QuotaKind
from sluice.recalibration.policy.confidence import DayUse
from sluice.recalibration.policy.plan import PlanEntry
from sluice.recalibration.policy.policy import Reason
from sluice.recalibration.policy.seasons import Peak, season_of
from sluice.recalibration.state.peaks import peaks_in, read_peaks, unusual, write_peaks
from sluice.recalibration.state.windows import SCHEMA, entity_id

DAY = date(2026, 11, 21)
KEY = "producer_byte_rate"
ALICE = '{"user": "alice"}'
BEGIN = (DAY - date(1970, 1, 1)).days * 8_640


def used(*demands: float) -> PlanEntry:
    """The latest first."""
    days = tuple(DayUse(age, demand, True, 0.0, 86_400.0) for age, demand in enumerate(demands))
    return PlanEntry(
        KEY, ALICE, 1_000.0, 1_000.0, 1_000.0, Reason.UNCHANGED, False, 1.0, 1, 1_000.0, 0.0, days=days
    )


def test_unusual_is_what_asks_for_more_than_twice_the_median_of_its_days_before() -> None:
    assert unusual([used(2_500.0, *[1_000.0] * 5)]) == {(KEY, ALICE): 1_000.0}
    assert unusual([used(2_000.0, *[1_000.0] * 5)]) == {}
    assert unusual([used(2_500.0, *[1_000.0] * 4)]) == {}, "nothing is usual yet"
    quiet = used(2_500.0, *[1_000.0] * 5)
    assert unusual([replace(quiet, days=quiet.days[1:])]) == {}, "another day's"
    assert unusual([replace(quiet, key="producer_ids_rate")]) == {}


def test_peaks_of_three_saturdays_outlive_their_windows_and_make_a_season(
    spark: SparkSession, tmp_path: Path
) -> None:
    rates = {360: 3_000.0, 719: 4_000.0, 800: 900.0, 3_600: 1_000.0}
    number = entity_id(QuotaKind.PRODUCE, ALICE)
    rows: list[tuple[int, str, int, float, None, float | None]]
    rows = [(number, "p1", BEGIN + window, rate, None, None) for window, rate in rates.items()]
    rows += [(number, "p2", BEGIN + 400, 100.0, None, 5_000.0), (number + 1, "p1", BEGIN, 9e9, None, None)]
    found = peaks_in(spark.createDataFrame(rows, SCHEMA), DAY, {(KEY, ALICE): 1_000.0})
    begin_s = BEGIN * 10
    assert found == {(KEY, ALICE): [Peak(begin_s + 3_600, begin_s + 7_200, 5_000.0)]}
    out, week_s = str(tmp_path / "out"), 7 * 86_400
    for weeks in (60, 2, 1, 0, 0):
        (peak,) = found[KEY, ALICE]
        earlier = Peak(peak.begin_s - weeks * week_s, peak.end_s - weeks * week_s, peak.rate)
        write_peaks(out, DAY - timedelta(days=7 * weeks), {(KEY, ALICE): [earlier]}, 400)
    kept = read_peaks(out, DAY + timedelta(days=1), 400)
    assert sorted(kept) == [DAY - timedelta(days=14), DAY - timedelta(days=7), DAY]
    assert read_peaks(out, DAY, 400).keys() == kept.keys() - {DAY}, "a night takes what was before it"
    season = season_of([peak for its in kept.values() for peak in its[KEY, ALICE]], DAY)
    assert season is not None
    assert (season.weekdays, season.begin_s, season.end_s) == ((5,), 3_600, 7_200)


def test_without_unusual_limits_nothing_is_asked_of_the_windows(spark: SparkSession) -> None:
    assert peaks_in(spark.createDataFrame([], SCHEMA), DAY, {}) == {}
