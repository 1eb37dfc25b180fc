"""Nights over a small log: states, a plan, the same again, and what is written."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from sluice.quotas.entity import DEFAULT, QuotaEntity
from sluice.quotas.limits.limits import QuotaLimits
from sluice.recalibration.job import Plan, make_plan, take_day
from sluice.recalibration.log.reader import LogError
from sluice.recalibration.policy.seasons import Peak
from sluice.recalibration.policy.settings import JobSettings, PolicySettings
from sluice.recalibration.report.publish import LATEST, write_plan
from sluice.recalibration.state.peaks import write_peaks
from sluice.recalibration.state.store import WINDOWS, StateStore
from sluice.recalibration.state.windows import SCHEMA
from testkit.access_log.access_logs import DAY, begin_ms, row, write

LIMITS = QuotaLimits(
    [
        (QuotaEntity("alice"), {"producer_byte_rate": 1_000}),
        (QuotaEntity(DEFAULT), {"producer_byte_rate": 50_000}),
    ]
)
JOB = JobSettings(policy=replace(PolicySettings(), min_traffic_s=30.0))


def log_of(folder: Path, day: date) -> None:
    """Alice at 5,000 B/s throttled all day; bob far below what he may."""
    write(folder, [
        *(row(window, day=day, request_bytes=10_000, mutes=1, throttle_ms=8_000.0) for window in range(5)),
        *(row(window, day=day, request_bytes=20_000, user="bob") for window in range(5)),
    ], day=day)  # fmt: skip


def night(spark: SparkSession, logs: Path, out: Path, day: date) -> Plan:
    store = StateStore(str(out))
    files = take_day(spark, str(logs), store, day, LIMITS, JOB)
    return make_plan(spark, store, day, LIMITS, JOB, files)


@pytest.mark.slow  # a single night is in test_cli.py
def test_nights_lead_from_a_log_to_a_plan_and_the_same_night_again_to_the_same(
    spark: SparkSession, tmp_path: Path
) -> None:
    logs, out = tmp_path / "logs", tmp_path / "out"
    days = [DAY + timedelta(days=number) for number in range(9)]
    for day in days:
        log_of(logs, day)
        plan = night(spark, logs, out, day)
    found = {entry.entity: entry for entry in plan.entries}
    alice, bob = found['{"user": "alice"}'], found['{"user": "bob"}']
    assert (alice.proposed, alice.reason, alice.throttled_share) == (2_000, "growth_guard", 1.0)
    assert (alice.needs_review, alice.anchor) == (True, 1_000), "twice its limit, and no more without a word"
    assert (bob.proposed, bob.reason) == (35_000, "step_down")
    again = night(spark, logs, out, days[-1])
    assert again == plan
    assert night(spark, logs, out, days[0]).entries != plan.entries, (
        "later days do not count for an earlier one"
    )
    assert make_plan(spark, StateStore(str(out)), days[-1], LIMITS, JOB, plan.files) == plan


def test_a_hole_between_heartbeats_is_named_and_quiet_hours_are_not(
    spark: SparkSession, tmp_path: Path
) -> None:
    logs, out = tmp_path / "logs", tmp_path / "out"
    for day, missing in ((DAY - timedelta(days=1), range(0)), (DAY, range(100, 200))):
        beats = [
            row(window, day=day, user="", client_id="", api_class="heartbeat", connections=0)
            for window in range(8_640)
            if window not in missing
        ]
        write(logs, [*beats, row(4 if day == DAY else 4_000, day=day, request_bytes=50)], day=day)
        plan = night(spark, logs, out, day)
    assert plan.missing == {DAY: ["p1: 00:16:40 to 00:33:20"]}
    assert plan.as_json()["incomplete_log"] == {DAY.isoformat(): ["p1: 00:16:40 to 00:33:20"]}


def test_peaks_of_earlier_nights_make_a_season_of_whom_the_plan_has(
    spark: SparkSession, tmp_path: Path
) -> None:
    logs, out = tmp_path / "logs", tmp_path / "out"
    begin = begin_ms(DAY) // 1_000
    for days in (15, 8, 1):
        at = begin - days * 86_400
        peaks = [Peak(at + 3_600, at + 7_200, 9_000.0)]
        places = {("producer_byte_rate", f'{{"user": "{user}"}}'): peaks for user in ("bob", "gone")}
        write_peaks(str(out), DAY - timedelta(days=days), places, 400)
    log_of(logs, DAY)
    plan = night(spark, logs, out, DAY)
    assert [json.loads(entity)["user"] for _, entity in plan.seasons] == ["bob"]
    assert plan.as_json()["seasons"][0]["schedule"]["days"] == ["thu"]
    assert DAY.isoformat() in json.loads((out / "peaks.json").read_text())


@pytest.mark.long
def test_late_files_count_when_the_date_is_run_again(spark: SparkSession, tmp_path: Path) -> None:
    logs, out = tmp_path / "logs", tmp_path / "out"
    log_of(logs, DAY)
    before = night(spark, logs, out, DAY)
    write(logs, [row(window, request_bytes=900_000, user="bob") for window in range(5)], "late.parquet")
    after = night(spark, logs, out, DAY)
    assert [entry.wanted for entry in after.entries] != [entry.wanted for entry in before.entries]


@pytest.mark.long
def test_rows_without_a_proxys_name_stand_beside_those_with_one(spark: SparkSession, tmp_path: Path) -> None:
    """Names that are null could not be sorted with others; states of earlier nights have some."""
    logs, out = tmp_path / "logs", tmp_path / "out"
    log_of(logs, DAY)
    write(logs, [row(window, request_bytes=10_000) for window in range(5)], "b.parquet", without=("proxy",))
    before = [(1, None, (begin_ms(DAY) - 10_000) // 10_000, 5.0, None, None)]
    store = StateStore(str(out))
    store.write(WINDOWS, spark.createDataFrame(before, SCHEMA), DAY - timedelta(days=1))
    plan = night(spark, logs, out, DAY)
    assert [entry.entity for entry in plan.entries] == ['{"user": "alice"}', '{"user": "bob"}']
    assert store.seen(spark, DAY, 2) == {
        DAY - timedelta(days=1): {"?": {23}},
        DAY: {"?": {0}, "p1": {0}},
    }
    assert [entry.proxies for entry in plan.entries] == [2, 1]


def test_rows_without_a_proxys_name_are_evidence(spark: SparkSession, tmp_path: Path) -> None:
    """As of a proxy of its own, not as what all proxies saw together."""
    told = []
    for name, proxy in (("a", "p1"), ("b", None), ("c", "")):
        rows = [row(window, request_bytes=10_000, user="bob", proxy=proxy or "") for window in range(5)]
        write(tmp_path / name, rows, without=("proxy",) if proxy is None else ())
        (entry,) = night(spark, tmp_path / name, tmp_path / f"{name}-out", DAY).entries
        told.append((entry.wanted, entry.proxies, entry.reason))
    assert told[0] == told[1] == told[2]
    assert told[0][1] == 1


def test_rows_of_another_date_are_no_evidence_of_this_one(spark: SparkSession, tmp_path: Path) -> None:
    """A folder copied under another name, or a proxy whose clock was far off; it ended the night, too."""
    logs, out = tmp_path / "logs", tmp_path / "out"
    log_of(logs, DAY)
    before = night(spark, logs, out, DAY)
    earlier = DAY - timedelta(days=1)
    write(
        logs, [row(at, day=earlier, request_bytes=900_000, user="bob") for at in range(9)], "copied.parquet"
    )
    write(logs, [row(at, api_class="heartbeat_end") for at in (0, 3 * 10**14)], "far.parquet")
    after = night(spark, logs, out, DAY)
    assert [entry.as_json() for entry in after.entries] == [entry.as_json() for entry in before.entries]
    assert json.loads((out / "beats" / f"{DAY}.json").read_text()).keys() == {"p1"}


def test_a_plan_is_there_whole_or_not_at_all(spark: SparkSession, tmp_path: Path) -> None:
    logs, out = tmp_path / "logs", tmp_path / "out"
    log_of(logs, DAY)
    plan = night(spark, logs, out, DAY)
    first, second = Path(write_plan(plan, str(out))), Path(write_plan(plan, str(out)))
    assert (first.name, second.name) == (f"{DAY}-1", f"{DAY}-2")
    assert (out / LATEST).read_text() == f"{DAY}-2\n"
    written = json.loads((second / "plan.json").read_text())
    assert (written["date"], written["entities"], written["log_files"]) == (str(DAY), 2, 1)
    assert written == json.loads((first / "plan.json").read_text())


def test_a_night_without_a_log_says_so_and_writes_nothing(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(LogError, match="no log of this date"):
        night(spark, tmp_path / "logs", tmp_path / "out", DAY)
    assert not (tmp_path / "out").exists()
