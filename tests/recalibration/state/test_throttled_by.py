"""A wait counts for the limit that brought it about, and for no other."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest
from pyspark.sql import SparkSession

from sluice.quotas.entity import QuotaEntity
from sluice.quotas.limits.limits import QuotaLimits
from sluice.recalibration.job import make_plan, take_day
from sluice.recalibration.log.reader import read_log
from sluice.recalibration.policy.settings import JobSettings, PolicySettings
from sluice.recalibration.state.store import StateStore
from sluice.recalibration.state.windows import windows_of
from testkit.access_log.access_logs import DAY, row, write
from testkit.thorough import few

ALICE: Final = {
    "producer_byte_rate": 1_000.0,
    "consumer_byte_rate": 1_000.0,
    "request_percentage": 5.0,
    "controller_mutation_rate": 10.0,
    "producer_ids_rate": 10.0,
}
LIMITS: Final = QuotaLimits([(QuotaEntity("alice"), ALICE)])
JOB: Final = JobSettings(policy=replace(PolicySettings(), min_traffic_s=30.0), compact=False)
NEW: Final = ("request_mutes", "request_throttle_ms", "producer_id_holds")
BYTES: Final[dict[str, dict[str, Any]]] = {
    "produce": {"request_bytes": 8_000},
    "fetch": {"api_class": "fetch", "response_bytes": 8_000},
}
RATES: Final[dict[str, dict[str, Any]]] = {
    **BYTES,
    "controller_mutation": {"api_class": "admin", "mutations": 8_000.0},
}


def throttled(
    spark: SparkSession, folder: Path, *rows: dict[str, Any], without: tuple[str, ...] = ()
) -> dict[str, set[float]]:
    """Kind → the throttle-inflated rates of alice's throttled windows."""
    write(folder, list(rows), without=without)
    read, _ = read_log(spark, str(folder), DAY, skip_damaged=False)
    found = windows_of(read, LIMITS, DAY)
    held = found.rows.where("offered IS NOT NULL").join(found.names, "entity_id").collect()
    return {
        kind: {round(one.offered, 9) for one in held if one.kind == kind}
        for kind in {one.kind for one in held}
    }


def test_who_is_throttled_by_request_percentage_alone_has_that_limit_raised_and_no_other(
    spark: SparkSession, tmp_path: Path
) -> None:
    """800 B/s each way of 1,000; 50 ms of broker threads a second, all that 5 % allows."""
    muted: dict[str, Any] = {
        "request_cost_ms": 250.0,
        "mutes": 30,
        "request_mutes": 30,
        "request_throttle_ms": 9_000.0,
    }
    write(tmp_path, [row(window, **its, **muted) for window in range(40) for its in BYTES.values()])
    store = StateStore(str(tmp_path / "out"))
    files = take_day(spark, str(tmp_path), store, DAY, LIMITS, JOB)
    plan = make_plan(spark, store, DAY, LIMITS, JOB, files)
    found = {entry.key: (entry.throttled_share, entry.proposed) for entry in plan.entries}
    assert found == {
        "producer_byte_rate": (0.0, 1_000.0),
        "consumer_byte_rate": (0.0, 1_000.0),
        "request_percentage": (1.0, 10.0),
    }


@pytest.mark.parametrize("kind", BYTES)
def test_who_is_muted_for_bytes_alone_is_not_throttled_by_request_percentage(
    spark: SparkSession, tmp_path: Path, kind: str
) -> None:
    muted = row(0, **BYTES[kind], request_cost_ms=250.0, mutes=2, throttle_ms=5_000.0)
    assert throttled(spark, tmp_path, muted) == {kind: {1_600.0}}


@pytest.mark.parametrize("kind", BYTES)
def test_each_limit_has_the_time_that_it_brought_about(
    spark: SparkSession, tmp_path: Path, kind: str
) -> None:
    """2 s for bytes: 800 / 0.8; 6 s for request time: 25 ms/s / 0.4."""
    both: dict[str, Any] = {
        "mutes": 5,
        "throttle_ms": 2_000.0,
        "request_mutes": 3,
        "request_throttle_ms": 6_000.0,
    }
    found = throttled(spark, tmp_path, row(0, **BYTES[kind], request_cost_ms=250.0, **both))
    assert found == {kind: {1_000.0}, "request": {62.5}}


@pytest.mark.parametrize("kind", few([*RATES], 1))
@pytest.mark.parametrize("how", ["holds", "mutes", "refusals"])
def test_whatever_was_done_for_a_rate_is_throttling(
    spark: SparkSession, tmp_path: Path, kind: str, how: str
) -> None:
    """A Fetch in debt is held, and its answer is no larger than its grant: no mute follows; or it has no turn
    in time, and gets no records."""
    done: dict[str, Any] = {how: 1, "throttle_ms": 5_000.0}
    assert throttled(spark, tmp_path, row(0, **RATES[kind], **done)) == {kind: {1_600.0}}


def test_what_waits_or_is_refused_for_producer_ids_is_not_throttled_by_bytes(
    spark: SparkSession, tmp_path: Path
) -> None:
    ids: dict[str, Any] = {"producer_ids_new": 3, "producer_id_holds": 2, "producer_ids_refused": 1}
    held = row(0, request_bytes=8_000, holds=2, refusals=1, **ids)
    assert throttled(spark, tmp_path, held).keys() == {"producer_ids"}


def test_a_log_that_does_not_tell_is_taken_as_before(spark: SparkSession, tmp_path: Path) -> None:
    """A mute of Produce or Fetch is for bytes then, of other requests for request time."""
    muted: dict[str, Any] = {"request_cost_ms": 250.0, "mutes": 1, "throttle_ms": 5_000.0}
    rows = [row(0, **BYTES["produce"], **muted), row(1, **BYTES["fetch"], **muted)]
    rows.append(row(2, api_class="metadata", **muted))
    found = throttled(spark, tmp_path, *rows, without=NEW)
    assert found == {"produce": {1_600.0}, "fetch": {1_600.0}, "request": {50.0}}


@pytest.mark.parametrize(
    ("kind", "held_ms"),
    few([("produce", 0.0), ("produce", 5_000.0), ("fetch", 0.0), ("controller_mutation", 5_000.0)], 2),
)
def test_what_was_held_or_muted_in_the_window_before_its_bytes_is_throttled(
    spark: SparkSession, tmp_path: Path, kind: str, held_ms: float
) -> None:
    """Half of a request before the edge of a window and half behind it: the bytes were free, and by six such
    requests a night a limit of 10 kB/s rose to 2.9 MB/s in twelve."""
    own: dict[str, Any] = {"api_class": RATES[kind].get("api_class", "produce")}
    own["holds" if held_ms else "mutes"] = 1
    begun = row(0, **own)
    finished = row(1, **RATES[kind], throttle_ms=5_000.0, held_ms=held_ms)
    assert throttled(spark, tmp_path, begun, finished) == {kind: {1_600.0}}


def test_a_fetch_that_waited_for_another_and_not_for_the_quota_is_free(
    spark: SparkSession, tmp_path: Path
) -> None:
    """It is in no event, and its time is told as its hold: ten consumers at a third of their limit looked
    throttled in every window, and had it raised for ever."""
    waited = row(1, **BYTES["fetch"], throttle_ms=5_000.0, held_ms=5_000.0)
    assert not throttled(spark, tmp_path, waited)


def test_a_producer_id_beside_it_hides_no_wait_for_bytes(spark: SparkSession, tmp_path: Path) -> None:
    """Held for its id alone; muted besides; more than any burst."""
    limit: dict[str, Any] = {"producer_byte_rate": 1_000.0, "producer_ids_new": 1}
    assert not throttled(
        spark, tmp_path, row(1, request_bytes=8_000, throttle_ms=5_000.0, held_ms=5_000.0, **limit)
    )
    muted = row(1, request_bytes=8_000, throttle_ms=5_000.0, held_ms=4_000.0, **limit)
    assert throttled(spark, tmp_path, muted) == {"produce": {1_600.0}}
    large = row(1, request_bytes=80_000, throttle_ms=5_000.0, held_ms=5_000.0, **limit)
    assert throttled(spark, tmp_path, large) == {"produce": {16_000.0}}
