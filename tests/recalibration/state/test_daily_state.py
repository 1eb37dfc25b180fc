"""The roll-up of a day → histograms per kind, entity and proxy; files that cannot be read are named."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from sluice.quotas.entity import DEFAULT, QuotaEntity, Tenant
from sluice.quotas.kinds import KINDS, QuotaKind, Scope
from sluice.quotas.limits.limits import QuotaLimits
from sluice.recalibration.log.reader import LogError, find_files, read_log
from sluice.recalibration.policy.plan import POOLED
from sluice.recalibration.state import windows
from sluice.recalibration.state.buckets import bucket_of, bucket_sql
from sluice.recalibration.state.daily_state import daily_state
from sluice.recalibration.state.windows import windows_of
from testkit.access_log.access_logs import DAY, row, write

ALICE, BOB = '{"user": "alice"}', '{"user": "bob"}'
ENTITY_ID = 2_183_040_865_258_599_336
"""of alice's produce rate: windows that lie on disks have it"""
LIMITS = QuotaLimits(
    [
        (QuotaEntity("alice"), {"producer_byte_rate": 1_000, "producer_ids_rate": 10}),
        (QuotaEntity(DEFAULT), {"producer_byte_rate": 5_000}),
        (QuotaEntity(ip=DEFAULT), {"connection_creation_rate": 5}),
    ]
)


def states(rows: DataFrame, limits: QuotaLimits) -> DataFrame:
    used = windows_of(rows, limits, DAY)
    dated = used.rows.withColumn("date", f.lit(DAY))  # as they lie on disk
    return daily_state(dated, used.names)


def state_of(spark: SparkSession, folder: Path) -> Mapping[tuple[str, str, str], dict[int, tuple[int, ...]]]:
    """(kind, entity, proxy) → bucket → (free, throttled, inflated)."""
    rows, _ = read_log(spark, str(folder), DAY, skip_damaged=False)
    return {
        (kind, entity, proxy): {bucket: tuple(counts) for bucket, *counts in buckets}
        for kind, entity, proxy, buckets in states(rows, LIMITS).collect()
    }


def test_windows_are_counted_by_entity_and_proxy_and_pooled(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path, [
        row(0, request_bytes=5_000),
        row(0, request_bytes=2_000, client_id="other", topic="t"),
        row(0, request_bytes=3_000, proxy="p2"),
        row(1, request_bytes=10_000, mutes=1, throttle_ms=5_000.0),
        row(0, request_bytes=400, user="bob"),
        row(0, request_bytes=9_000, user=""),  # of many, in a window that was full
    ])  # fmt: skip
    state = state_of(spark, tmp_path)
    assert state["produce", ALICE, "p1"] == {
        bucket_of(700): (1, 0, 0),
        bucket_of(1_000): (0, 1, 0),
        bucket_of(2_000): (0, 0, 1),
    }
    assert state["produce", ALICE, "p2"] == {bucket_of(300): (1, 0, 0)}
    assert state["produce", ALICE, POOLED] == {
        bucket_of(1_000): (1, 1, 0),
        bucket_of(2_000): (0, 0, 1),
    }
    assert state["produce", BOB, "p1"] == {bucket_of(40): (1, 0, 0)}
    assert {entity for kind, entity, _ in state if kind == "produce"} == {ALICE, BOB}
    assert not any(kind == "fetch" for kind, _, _ in state), "nobody has such a limit"


def test_ids_are_counted_by_the_hour_and_connections_by_address(spark: SparkSession, tmp_path: Path) -> None:
    connection: dict[str, Any] = {"user": "", "api_class": "connection", "address": "10.0.0.1"}
    write(tmp_path, [
        row(0, request_bytes=1, producer_ids_new=3),
        row(359, request_bytes=1, producer_ids_new=4),
        row(360, request_bytes=1, producer_ids_new=5, producer_ids_refused=1),
        row(0, connections_opened=20, client_id="", **connection),
    ])  # fmt: skip
    state = state_of(spark, tmp_path)
    hours = state["producer_ids", ALICE, "p1"]
    assert hours[bucket_of(7 / 3600)] == (1, 0, 0)
    assert hours[bucket_of(5 / 3600)][:2] == (0, 1)
    assert state["connection_creation", '{"ip": "10.0.0.1"}', "p1"] == {bucket_of(2): (1, 0, 0)}
    assert not any(proxy == POOLED for _, _, proxy in state), "there is one proxy only"


@pytest.mark.parametrize("rate", [0.0, 1e-7, 1e-6, 0.003, 1.0, 999.9, 1_000.0, 1e9, 1e12])
def test_spark_and_python_agree_on_the_bucket(spark: SparkSession, rate: float) -> None:
    found = spark.sql(f"SELECT {bucket_sql(f'{rate!r}D')} AS bucket").collect()[0].bucket
    assert found == bucket_of(rate)


def test_a_damaged_file_is_named_and_skipped_or_refused(spark: SparkSession, tmp_path: Path) -> None:
    good = write(tmp_path, [row(0, request_bytes=5_000)])
    cut = write(tmp_path, [row(1, request_bytes=5_000)], "b.parquet")
    cut.write_bytes(cut.read_bytes()[:-20])
    good.with_name("_being_written.parquet").write_bytes(b"PAR1")
    files = find_files(str(tmp_path), DAY)
    assert (files.good, list(files.damaged)) == ([str(good)], [str(cut)])
    with pytest.raises(LogError, match=r"1 damaged file\(s\), the first .*b\.parquet"):
        read_log(spark, str(tmp_path), DAY, skip_damaged=False)
    rows, read = read_log(spark, str(tmp_path), DAY, skip_damaged=True)
    assert (rows.count(), read) == (1, files)


def test_a_day_without_a_log_is_told(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(LogError, match="no log of this date"):
        read_log(spark, str(tmp_path), DAY, skip_damaged=True)


def test_a_log_of_an_older_version_gets_the_defaults(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path, [row(0, request_bytes=5_000)], without=("request_cost_ms",))
    rows = read_log(spark, str(tmp_path), DAY, skip_damaged=False)[0].collect()
    assert (rows[0].request_cost_ms, rows[0].request_bytes) == (0.0, 5_000)


@pytest.mark.long
def test_clients_whose_hashes_are_alike_are_told_apart_by_their_names(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, [
        row(0, request_bytes=5_000),
        row(0, request_bytes=400, user="bob"),
        row(1, api_class="connection", user="", client_id="", address="10.0.0.9", connections_opened=3),
    ])  # fmt: skip
    usual = state_of(spark, tmp_path)
    assert len(usual) == 3
    monkeypatch.setattr(windows, "_HASH", "CAST(0 AS BIGINT)")
    assert state_of(spark, tmp_path) == usual


def test_members_of_a_tenant_are_one_entity(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path, [row(0, request_bytes=5_000, user=user) for user in ("carol", "dave")])
    limits = QuotaLimits(
        [(QuotaEntity(Tenant("team")), {"producer_byte_rate": 1_000})], tenants={"team": ["carol", "dave"]}
    )
    rows, _ = read_log(spark, str(tmp_path), DAY, skip_damaged=False)
    found = states(rows, limits).where("proxy = 'p1'").collect()
    assert [(row.entity, row.buckets) for row in found] == [
        ('{"tenant": "team"}', [(bucket_of(1_000), 1, 0, 0)])
    ]


@pytest.mark.slow
def test_kinds_that_share_a_look_at_a_row_count_as_each_alone(spark: SparkSession, tmp_path: Path) -> None:
    """A Produce counts for three kinds at once, a row of admin for two."""
    write(tmp_path, [
        row(0, request_bytes=5_000, response_bytes=60, producer_ids_new=3, request_cost_ms=2.5),
        row(0, api_class="fetch", request_bytes=80, response_bytes=7_000, request_cost_ms=1.5, mutes=1),
        row(1, api_class="admin", request_bytes=90, mutations=4.0, request_cost_ms=0.5, refusals=1),
        row(1, api_class="other", request_bytes=70, request_cost_ms=0.25),
        row(2, api_class="connection", user="", client_id="", address="10.0.0.9", connections_opened=3),
    ])  # fmt: skip
    rows, _ = read_log(spark, str(tmp_path), DAY, skip_damaged=False)
    of_clients = [spec.config_key for spec in KINDS.values() if spec.scope is not Scope.IPS]
    limits = [(QuotaEntity("alice"), {key: 1.0}) for key in of_clients]
    limits.append((QuotaEntity(ip="10.0.0.9"), {"connection_creation_rate": 1.0}))
    together = QuotaLimits([(QuotaEntity("alice"), dict.fromkeys(of_clients, 1.0)), limits[-1]])
    alone = [state for one in limits for state in states(rows, QuotaLimits([one])).collect()]
    assert sorted(state.kind for state in alone) == sorted(kind.value for kind in KINDS)
    assert sorted(states(rows, together).collect()) == sorted(alone)


def test_an_entity_has_the_same_id_in_the_windows_of_all_dates() -> None:
    assert windows.entity_id(QuotaKind.PRODUCE, ALICE) == ENTITY_ID
    assert windows.entity_id(QuotaKind.FETCH, ALICE) != ENTITY_ID != windows.entity_id(QuotaKind.PRODUCE, BOB)
