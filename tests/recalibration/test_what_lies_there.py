"""Nights over folders as people keep them: odd paths, idle dates, lost state, foreign files, mad numbers."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet
from pyspark.sql import SparkSession

from sluice.quotas.entity import QuotaEntity
from sluice.quotas.limits.limits import QuotaLimits
from sluice.recalibration import job as nights
from sluice.recalibration.job import NothingToPlanError, Plan, make_plan, take_day
from sluice.recalibration.log import culprits as blame
from sluice.recalibration.log.reader import LogError, read_log
from sluice.recalibration.night import Night, run_night
from sluice.recalibration.policy.settings import JobSettings, PolicySettings
from sluice.recalibration.state.store import StateStore
from testkit.access_log.access_logs import DAY, row, write

LIMITS = QuotaLimits([(QuotaEntity("alice"), {"producer_byte_rate": 1_000})])
JOB = JobSettings(policy=replace(PolicySettings(), min_traffic_s=30.0))
BEFORE = DAY - timedelta(days=1)
Rows = list[dict[str, Any]]


def traffic(day: date, **values: Any) -> Rows:
    return [row(window, day=day, request_bytes=500, **values) for window in range(5)]


def beats(day: date) -> Rows:
    return [
        row(window, day=day, user="", client_id="", api_class="heartbeat", connections=0)
        for window in range(8_640)
    ]


def night(spark: SparkSession, logs: Path | str, out: Path | str, day: date = DAY) -> Plan:
    store = StateStore(str(out))
    return make_plan(spark, store, day, LIMITS, JOB, take_day(spark, str(logs), store, day, LIMITS, JOB))


def damage(file: Path) -> None:
    """Its pages, not its end."""
    content = bytearray(file.read_bytes())
    content[4:2_000] = b"\xff" * 1_996
    file.write_bytes(content)


# What a log's folder is called ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "called",
    [
        lambda logs: logs.name,
        lambda logs: f"./{logs.name}/",
        lambda logs: f"{logs.parent}/other/../{logs.name}",
        lambda logs: f"{logs.parent}//{logs.name}",
        lambda logs: f"file://{logs}",
    ],
    ids=["relative", "dot", "up", "slashes", "uri"],
)
def test_a_file_damaged_in_its_middle_is_left_out_however_the_folder_is_called(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    called: Callable[[Path], str],
) -> None:
    monkeypatch.chdir(tmp_path)
    logs = tmp_path / "logs"
    write(logs, traffic(DAY))
    bad = write(logs, traffic(DAY) * 200, "bad.parquet")
    damage(bad)
    reads = 0

    def counted(*args: Any, **options: Any) -> Any:
        nonlocal reads
        reads += 1
        assert reads < 4, "again and again"
        return read_log(*args, **options)

    monkeypatch.setattr(nights, "read_log", counted)
    plan = night(spark, called(logs), tmp_path / "out")
    assert plan.files.damaged == {str(bad): "a part of it cannot be read"}
    assert reads == 2


def test_a_file_that_is_no_file_of_the_log_s_ends_the_night(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "logs", traffic(DAY))
    damage(write(tmp_path / "logs", traffic(DAY) * 200, "bad.parquet"))
    monkeypatch.setattr(blame, "unreadable_file", lambda _: {"/elsewhere": "unreadable"})
    with pytest.raises(Exception, match="FAILED_READ_FILE"):
        night(spark, tmp_path / "logs", tmp_path / "out")


def test_names_that_spark_would_take_for_patterns_are_read_as_they_are(
    spark: SparkSession, tmp_path: Path
) -> None:
    logs, out = tmp_path / "a[1]{c}*", tmp_path / "out[2]*"
    write(logs, traffic(DAY), "f[3]?.parquet")
    write(tmp_path / "a1c*", traffic(DAY, user="mallory"))
    assert [entry.entity for entry in night(spark, logs, out).entries] == ['{"user": "alice"}']
    write(logs, traffic(BEFORE), "f[3]?.parquet", day=BEFORE)
    assert len(night(spark, logs, out, DAY).entries[0].days) == 1


def test_files_of_other_types_cost_no_further_reading(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs = tmp_path / "logs"
    good = write(logs, traffic(DAY))
    table = parquet.read_table(good, partitioning=None)
    wrong: dict[str, pa.Array] = {
        "user": pa.array([5] * 5),
        "requests": pa.array(["many"] * 5),
        "throttle_ms": pa.array([True] * 5),
        "request_bytes": pa.array([[1]] * 5),
        "holds": pa.array([0.5] * 5),
    }
    for name, values in wrong.items():
        place = table.schema.get_field_index(name)
        parquet.write_table(table.set_column(place, name, values), good.with_name(f"{name}.parquet"))
    monkeypatch.setattr(nights, "culprits", lambda *_: pytest.fail("read to be found out"))
    plan = night(spark, logs, tmp_path / "out")
    assert len(plan.files.damaged) == len(wrong)
    assert plan.files.damaged[str(good.with_name("user.parquet"))] == "its column user is INT64, not string"


# Dates ------------------------------------------------------------------------------------------------------


def test_a_date_in_which_nobody_asked_for_anything_is_no_hole(spark: SparkSession, tmp_path: Path) -> None:
    logs, out = tmp_path / "logs", tmp_path / "out"
    days = [DAY - timedelta(days=age) for age in (2, 1, 0)]
    for day in days:
        write(logs, beats(day) + (traffic(day) if day != BEFORE else []), day=day)
    night(spark, logs, out, days[0])
    idle = night(spark, logs, out, BEFORE)
    assert (idle.missing, len(idle.entries[0].days)) == ({}, 1)
    plan = night(spark, logs, out, DAY)
    assert (plan.missing, len(plan.entries[0].days), plan.replayed_days) == ({}, 2, 3)
    write(logs, traffic(BEFORE), "late.parquet", day=BEFORE)
    night(spark, logs, out, BEFORE)
    assert len(night(spark, logs, out, DAY).entries[0].days) == 3, "files that came late"
    (logs / f"rollup/date={BEFORE}/hour=00/late.parquet").unlink()
    night(spark, logs, out, BEFORE)
    assert len(night(spark, logs, out, DAY).entries[0].days) == 2


def test_another_cluster_s_quota_file_destroys_no_date(spark: SparkSession, tmp_path: Path) -> None:
    logs, out = tmp_path / "logs", tmp_path / "out"
    for day in (BEFORE, DAY):
        write(logs, beats(day) + traffic(day), day=day)
    whole = night(spark, logs, out, BEFORE)
    others = QuotaLimits([(QuotaEntity("carol"), {"producer_byte_rate": 1_000})])
    store = StateStore(str(out))
    with pytest.raises(NothingToPlanError, match="has a limit"):
        take_day(spark, str(logs), store, BEFORE, others, JOB)
    files = take_day(spark, str(logs), store, DAY, others, JOB)
    with pytest.raises(NothingToPlanError, match="did anything"):
        make_plan(spark, store, DAY, others, JOB, files)
    assert store.dates(DAY, 7) == [BEFORE], "it is no idle date, either"
    assert night(spark, logs, out, BEFORE).entries == whole.entries
    assert len(night(spark, logs, out, DAY).entries[0].days) == 2


def test_of_an_idle_log_alone_nothing_can_be_planned(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path / "logs", beats(DAY))
    with pytest.raises(NothingToPlanError, match="no client with a limit did anything"):
        night(spark, tmp_path / "logs", tmp_path / "out")


@pytest.mark.parametrize("table", ["state", "windows"])
def test_a_date_whose_files_are_gone_is_missing(spark: SparkSession, tmp_path: Path, table: str) -> None:
    logs, out = tmp_path / "logs", tmp_path / "out"
    for day in (DAY - timedelta(days=2), BEFORE, DAY):
        write(logs, beats(day) + traffic(day), day=day)
        night(spark, logs, out, day)
    for file in (out / f"{table}/date={BEFORE}").iterdir():
        file.unlink()
    plan = night(spark, logs, out, DAY)
    assert plan.missing == {BEFORE: ["all of it"]}


def test_what_is_not_ours_is_left_alone(spark: SparkSession, tmp_path: Path) -> None:
    logs, out = tmp_path / "logs", tmp_path / "out"
    write(logs, traffic(BEFORE), day=BEFORE)
    write(logs, traffic(DAY))
    night(spark, logs, out, BEFORE)
    for table in ("state", "windows"):
        whole = out / table / f"date={BEFORE}"
        for name in (
            f"date={BEFORE}.bak",
            "date=2026-13-45",
            "date=20261119",
            "backup",
            "backup/date=2026-11-18",
        ):
            shutil.copytree(whole, out / table / name)
        (out / table / "date=2026-11-10").write_text("a file")
        shutil.copytree(whole, whole / "backup/x=1")
        (whole / "notes.txt").write_text("of a person")
    plan = night(spark, logs, out, DAY)
    assert [len(entry.days) for entry in plan.entries] == [2]
    assert json.loads(json.dumps(plan.as_json()))["entities"] == 1


# Numbers ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("column", ["throttle_ms", "holds"])
def test_a_file_with_numbers_beyond_all_reason_is_named_and_left_out(
    spark: SparkSession, tmp_path: Path, column: str
) -> None:
    mad: dict[str, Any] = {"throttle_ms": 1e300, "holds": 1}
    if column == "holds":
        mad = {"holds": 2**31 - 1, "mutes": 2**31 - 1}
    good = write(tmp_path / "logs", traffic(DAY, producer_byte_rate=float(2**63 - 1)))
    bad = write(tmp_path / "logs", traffic(DAY, **mad), "mad one.parquet")
    torn = write(tmp_path / "logs", traffic(DAY) * 200, "torn.parquet")
    damage(torn)
    plan = night(spark, tmp_path / "logs", tmp_path / "out")
    assert plan.files.damaged == {
        str(bad): f"a number in its column {column} is beyond all reason",
        str(torn): "a part of it cannot be read",
    }
    assert plan.files.good == [str(good)]
    torn.unlink()
    with pytest.raises(LogError, match="beyond all reason"):
        take_day(
            spark, str(tmp_path / "logs"), StateStore(str(tmp_path / "out")), DAY, LIMITS,
            replace(JOB, skip_damaged=False),
        )  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize("how", ["mad number", "flipped bit", "other case"])
def test_a_file_that_a_night_has_named_is_there_for_the_next(
    spark: SparkSession, tmp_path: Path, how: str
) -> None:
    """Compaction took it in with the others, and all of the hour could not be read any more."""
    logs, out = tmp_path / "logs", tmp_path / "out"
    for number, name in enumerate(("a.parquet", "b.parquet")):
        write(logs, traffic(DAY, connections=number + 1), name)
    file = write(logs, traffic(DAY, connections=7), "victim.parquet")
    if how == "mad number":
        write(logs, [*traffic(DAY), row(9, request_bytes=10**18)], "victim.parquet")
    elif how == "flipped bit":
        content = file.read_bytes()
        at = content.index(b"request_bytes", len(content) - 8 - int.from_bytes(content[-8:-4], "little"))
        file.write_bytes(content[:at] + b"s" + content[at + 1 :])
    else:
        table = parquet.read_table(file)
        names = ["Request_bytes" if name == "request_bytes" else name for name in table.column_names]
        parquet.write_table(table.rename_columns(names), file)
    before = file.read_bytes()
    plans = []
    for _ in range(2):
        outcome = run_night(spark, Night(str(logs), str(out), DAY), LIMITS, JOB, lambda _: None)
        assert outcome.not_tidied == ""
        plans.append(outcome.plan)
    assert file.read_bytes() == before
    assert [list(plan.files.damaged) for plan in plans] == [[str(file)]] * 2
    assert plans[0].entries == plans[1].entries
    assert len(list(logs.rglob("compacted-*.parquet"))) == 1


def test_what_a_clock_that_was_ahead_has_left_is_told_by_one_night(
    spark: SparkSession, tmp_path: Path
) -> None:
    logs, out = tmp_path / "logs", tmp_path / "out"
    write(logs, traffic(DAY))
    long_ago = out / "state" / f"date={DAY - timedelta(days=40)}"
    long_ago.mkdir(parents=True)
    (long_ago / "part-idle.parquet").touch()
    (out / "standing").mkdir()
    (out / "standing" / "2999-01-01.json").write_text("{}")
    told: list[str] = []
    for _ in range(2):
        run_night(spark, Night(str(logs), str(out), DAY), LIMITS, JOB, told.append)
    assert sum(f"ahead: {out}/standing/2999-01-01.json; " in line for line in told) == 1
    nothing = [line for line in told if f"nothing removed: before {DAY} the last date known is" in line]
    assert len(nothing) == 2
    assert long_ago.exists()
