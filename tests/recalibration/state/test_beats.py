"""A date's heartbeats, as the nightly job reads and keeps them."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from sluice.quotas.entity import QuotaEntity
from sluice.quotas.entity_key import key_of
from sluice.quotas.kinds import QuotaKind
from sluice.quotas.limits.limits import QuotaLimits
from sluice.recalibration.job import take_day
from sluice.recalibration.log.reader import find_files, read_table
from sluice.recalibration.policy.holes import Beats
from sluice.recalibration.policy.settings import JobSettings
from sluice.recalibration.state.beats import beats_of, read_beats, write_beats
from sluice.recalibration.state.store import WINDOWS, StateStore
from sluice.recalibration.state.windows import entity_id
from sluice.usage.access_record import (
    FILE_PART,
    FILE_PARTS,
    HEARTBEAT_CLASS,
    HEARTBEAT_END_CLASS,
    ROLLUP_COLUMNS,
    heartbeat,
)
from testkit.access_log.access_logs import DAY, begin_ms, row, write

NAMES = [column.name for column in ROLLUP_COLUMNS]


def beat(window: int, proxy: str = "p1", *, is_last: bool = False) -> dict[str, object]:
    """As the proxy writes it."""
    columns = heartbeat(begin_ms(DAY) + window * 10_000, proxy, is_last=is_last)
    return {name: value for name, (value,) in zip(NAMES, columns, strict=True)}


def test_holes_lie_between_heartbeats_but_not_after_an_orderly_end(
    spark: SparkSession, tmp_path: Path
) -> None:
    rows = [beat(window) for window in (3, 4, 10, 11)]
    rows += [beat(12, is_last=True), beat(50), beat(50), row(20, user="alice", request_bytes=5)]
    rows += [beat(7, "p2"), beat(9, "p2", is_last=True)]
    write(tmp_path, rows)
    found = beats_of(read_table(spark, find_files(str(tmp_path), DAY), skip_damaged=False))
    first = begin_ms(DAY) // 10_000
    assert found == {
        "p1": Beats(
            first + 3, first + 50, False, ((first + 5, first + 9),), (), ((first + 50, first + 50, 2),)
        ),
        "p2": Beats(first + 7, first + 9, True, ((first + 8, first + 8),)),
    }
    write_beats(str(tmp_path / "out"), DAY, found)
    write_beats(str(tmp_path / "out"), DAY - timedelta(days=2), {})
    assert read_beats(str(tmp_path / "out"), DAY, 14) == {DAY: found, DAY - timedelta(days=2): {}}
    assert read_beats(str(tmp_path / "out"), DAY + timedelta(days=1), 1) == {}


def test_heartbeats_of_a_file_without_the_column_proxy_tell_of_no_proxy(
    spark: SparkSession, tmp_path: Path
) -> None:
    """None and a name cannot be sorted: the night ended in a traceback."""
    write(tmp_path, [beat(window) for window in range(3)])
    write(tmp_path, [beat(window) for window in range(5, 8)], "b.parquet", without=("proxy",))
    found = beats_of(read_table(spark, find_files(str(tmp_path), DAY), skip_damaged=False))
    write_beats(str(tmp_path / "out"), DAY, found)
    first = begin_ms(DAY) // 10_000
    assert read_beats(str(tmp_path / "out"), DAY, 1)[DAY] == {"p1": Beats(first, first + 2, False)}


def test_windows_in_which_clients_had_no_row_of_their_own_are_stretches_of_their_proxy(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Pauses of two minutes at most are part of a stretch: who crowds others out now and then hides them."""

    def other(window: int, proxy: str = "p1") -> dict[str, object]:
        return row(window, proxy=proxy, user="", client_id="", api_class="other", requests=5)

    rows = [*map(beat, range(100)), beat(0, "p2"), beat(99, "p2")]
    rows += [
        *map(other, (10, 11, 24, 37, 60, 90)),
        row(95, api_class="other"),
        other(5, "without heartbeats"),
    ]
    write(tmp_path, rows)
    found = beats_of(read_table(spark, find_files(str(tmp_path), DAY), skip_damaged=False))
    first = begin_ms(DAY) // 10_000
    crowded = ((first + 10, first + 37), (first + 60, first + 60), (first + 90, first + 90))
    assert found == {
        "p1": Beats(first, first + 99, False, (), crowded),
        "p2": Beats(first, first + 99, False, ((first + 1, first + 98),)),
    }
    write_beats(str(tmp_path / "out"), DAY, found)
    assert read_beats(str(tmp_path / "out"), DAY, 1) == {DAY: found}


def cut(windows: Iterable[int], *parts: tuple[int, int], **given: Any) -> list[dict[str, object]]:
    """Heartbeats of a file's parts that are there: (which, of how many)."""
    return [
        beat(window, **given) | {FILE_PART: part, FILE_PARTS: of} for window in windows for part, of in parts
    ]


def test_a_window_of_a_file_of_which_a_part_is_lost_is_in_a_hole(spark: SparkSession, tmp_path: Path) -> None:
    rows = cut(range(6), (1, 2), (2, 2), (2, 2))
    rows += [*cut(range(6, 12), (1, 3), (1, 3), (3, 3)), beat(12)]
    rows.append(beat(9, is_last=True))  # started anew, and the file of before is lost in part
    rows += cut(range(6), (1, 2), (1, 3), (2, 3), proxy="p2") + cut(range(6, 8), (2, 2), (1, 2), proxy="p2")
    rows += cut([8], (1, 2), proxy="p2", is_last=True)
    rows += cut(range(4), (2, 2), proxy="p3")
    write(tmp_path, rows)
    found = beats_of(read_table(spark, find_files(str(tmp_path), DAY), skip_damaged=False))
    first = begin_ms(DAY) // 10_000
    assert found == {
        "p1": Beats(first, first + 12, False, ((first + 6, first + 11),), (), ((first + 6, first + 11, 2),)),
        "p2": Beats(
            first, first + 8, True, ((first, first + 5), (first + 8, first + 8)), (), ((first, first + 5, 2),)
        ),
        "p3": Beats(first, first + 3, False, ((first, first + 3),)),
    }
    write_beats(str(tmp_path / "out"), DAY, found)
    assert read_beats(str(tmp_path / "out"), DAY, 1) == {DAY: found}


def test_a_file_that_lost_a_part_behind_an_orderly_end_is_a_hole(spark: SparkSession, tmp_path: Path) -> None:
    rows = [beat(0), beat(1, is_last=True), *cut(range(2, 6), (1, 2)), beat(6), beat(7)]
    write(tmp_path, rows)
    found = beats_of(read_table(spark, find_files(str(tmp_path), DAY), skip_damaged=False))
    first = begin_ms(DAY) // 10_000
    assert found == {"p1": Beats(first, first + 7, False, ((first + 2, first + 5),))}


def test_heartbeats_of_files_that_do_not_tell_their_parts_are_whole(
    spark: SparkSession, tmp_path: Path
) -> None:
    write(tmp_path, [beat(0), beat(2)], without=(FILE_PART, FILE_PARTS))
    write(tmp_path, cut([1], (1, 2), (2, 2)), "b.parquet")
    found = beats_of(read_table(spark, find_files(str(tmp_path), DAY), skip_damaged=False))
    first = begin_ms(DAY) // 10_000
    assert found == {"p1": Beats(first, first + 2, False)}


def test_windows_that_a_clock_set_back_has_had_twice_are_told_and_a_restart_is_none(
    spark: SparkSession, tmp_path: Path
) -> None:
    rows = [beat(window) for window in (*range(10), *range(4, 10), *range(6, 8), 20, 20)]
    rows += [beat(10, is_last=True), beat(10), *cut([11, 12], (1, 2), (2, 2)), beat(13, is_last=True)]
    write(tmp_path, rows)
    found = beats_of(read_table(spark, find_files(str(tmp_path), DAY), skip_damaged=False))
    first = begin_ms(DAY) // 10_000
    stretches = ((4, 5, 2), (6, 7, 3), (8, 9, 2), (20, 20, 2))
    assert found["p1"].repeated == tuple((first + a, first + b, times) for a, b, times in stretches)
    write_beats(str(tmp_path / "out"), DAY, found)
    assert read_beats(str(tmp_path / "out"), DAY, 1) == {DAY: found}


def test_a_window_that_was_there_twice_has_the_rate_of_one(spark: SparkSession, tmp_path: Path) -> None:
    """A steady client was seen at twice its rate, and its limit rose by 1.7 in a night."""
    limits = QuotaLimits([(QuotaEntity("alice"), {"producer_byte_rate": 1_000, "producer_ids_rate": 100})])

    def used(window: int, **values: Any) -> dict[str, object]:
        return row(window, request_bytes=8_500, peak_bytes_1s=900, producer_ids_new=1, **values)

    waited = {"holds": 1, "throttle_ms": 5_000.0}
    rows = [*map(beat, (0, 1, 1, 2, 2, 3)), used(0), used(1), used(1), used(3)]
    rows += [used(2, **waited), used(2, **waited), beat(0, "p2"), used(1, proxy="p2")]
    write(tmp_path / "logs", rows)
    store = StateStore(str(tmp_path / "out"))
    take_day(spark, str(tmp_path / "logs"), store, DAY, limits, JobSettings())
    windows = store.read(spark, WINDOWS, DAY, 1)
    assert windows is not None
    first = begin_ms(DAY) // 10_000
    (produce, hourly), found = (
        [
            entity_id(kind, key_of(QuotaEntity("alice")))
            for kind in (QuotaKind.PRODUCE, QuotaKind.PRODUCER_IDS)
        ],
        {(one.entity_id, one.proxy, one.window): one for one in windows.collect()},
    )
    rates = {
        window - first: one for (its, proxy, window), one in found.items() if (its, proxy) == (produce, "p1")
    }
    assert {window: (one.rate, one.busiest) for window, one in rates.items()} == dict.fromkeys(
        range(4), (850.0, 450.0)
    )
    assert rates[2].offered == pytest.approx(850 / 0.5)
    assert found[produce, "p2", first + 1].rate == 850
    assert found[hourly, "p1", first // 360].rate == pytest.approx(6 / 3_620)
    assert found[hourly, "p2", first // 360].rate == pytest.approx(1 / 3_600)


def test_the_classes_are_those_that_the_proxy_writes() -> None:
    assert [beat(0, is_last=last)["api_class"] for last in (False, True)] == [
        HEARTBEAT_CLASS,
        HEARTBEAT_END_CLASS,
    ]
