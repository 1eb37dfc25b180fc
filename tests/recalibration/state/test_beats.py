"""A date's heartbeats, as the nightly job reads and keeps them."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from sluice.recalibration.log.reader import find_files, read_table
from sluice.recalibration.policy.holes import Beats
from sluice.recalibration.state.beats import beats_of, read_beats, write_beats
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
        "p1": Beats(first + 3, first + 50, False, ((first + 5, first + 9),)),
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
        "p1": Beats(first, first + 12, False, ((first + 6, first + 11),)),
        "p2": Beats(first, first + 8, True, ((first, first + 5), (first + 8, first + 8))),
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


def test_the_classes_are_those_that_the_proxy_writes() -> None:
    assert [beat(0, is_last=last)["api_class"] for last in (False, True)] == [
        HEARTBEAT_CLASS,
        HEARTBEAT_END_CLASS,
    ]
