"""What lies between nights, as Parquet, one partition a date:

    OUT/state/date=YYYY-MM-DD/      a histogram per kind, entity and proxy (daily_state.py): 28 dates are read
    OUT/windows/date=YYYY-MM-DD/    what each used in each window (windows.py): a week of them is replayed

A date that is run again overwrites its partitions and no others; late files of a day are taken in that way. A
dry run writes its date to another folder (`tonight`), and reads the others where they are.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Final

import pyarrow as pa
from pyarrow import fs, parquet
from pyspark import StorageLevel
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from sluice.recalibration.log.reader import LogFolder, is_written
from sluice.recalibration.policy.demand import DayState, Demand
from sluice.recalibration.policy.plan import DayTotals, EntityDay
from sluice.recalibration.spark.parquet_paths import read_parquet
from sluice.recalibration.state import daily_state, windows
from sluice.recalibration.state.buckets import middle
from sluice.recalibration.state.day_figures import quantile_sql, top_sql, totals_sql
from sluice.usage.access_record import NAMELESS

STATE: Final = "state"
WINDOWS: Final = "windows"
_IDLE: Final = "part-idle.parquet"
_TEN_SECOND_WINDOWS: Final = 10_000_000
"""since 1973 their number is above it, that of hours until the year 3110 below"""
_SCHEMAS: Final = {STATE: daily_state.SCHEMA, WINDOWS: windows.SCHEMA}


@dataclass(frozen=True, slots=True)
class EntityHistory:
    """What is known of one kind and entity."""

    kind: str
    entity: str
    days: list[EntityDay]
    top_buckets: dict[int, int]
    """age of the day → the highest bucket of its rates and throttle-inflated rates, at any one proxy"""


@dataclass(frozen=True, slots=True)
class StateStore:
    """Folders are paths or URIs that Spark knows."""

    root: str
    tonight: str | None = None
    """where this night's date goes, if not into `root`"""

    def write(self, table: str, rows: DataFrame, day: date) -> bool:
        """Atomically for readers of whole partitions: Spark writes beside it and renames.

        False: there were no rows, and what was there before still is.
        """
        folder = f"{(self.tonight or self.root).rstrip('/')}/{table}"
        before = self._files(table, day)
        dated = rows.withColumn("date", f.lit(day))
        dated.write.mode("overwrite").option("partitionOverwriteMode", "dynamic").partitionBy("date").parquet(
            folder
        )
        return self._files(table, day) != before  # their names are new each time

    def _files(self, table: str, day: date) -> set[str]:
        place = LogFolder.of(self.tonight or self.root)
        selector = fs.FileSelector(_folder_of(place, table, day), allow_not_found=True)
        return {info.path for info in place.filesystem.get_file_info(selector) if is_written(info.path)}

    def read(self, spark: SparkSession, table: str, latest: date, days: int) -> DataFrame | None:
        """The last `days` dates up to `latest`, with their `date`. None: there is nothing."""
        first = latest - timedelta(days=days - 1)
        own = None if self.tonight is None else _rows(spark, self.tonight, table, latest, latest)
        found = _rows(spark, self.root, table, first, latest)
        if own is None or found is None:
            return found if own is None else own
        return found.where(f.col("date") != f.lit(latest)).unionByName(own)

    def write_idle(self, day: date) -> None:
        """A date with a log in which nothing was used: its partitions, without rows. Raises OSError.

        Spark makes no partition for no rows; and a date without one counts as lost.
        """
        place = LogFolder.of(self.tonight or self.root)
        for table in (WINDOWS, STATE):
            folder = _folder_of(place, table, day)
            place.filesystem.create_dir(folder, recursive=True)
            place.filesystem.delete_dir_contents(folder)
            with place.filesystem.open_output_stream(f"{folder}/{_IDLE}") as file:
                parquet.write_table(pa.table({"idle": pa.array([], pa.string())}), file)

    def drop_idle(self, day: date) -> None:
        """Such partitions: there is nothing to plan by them. Raises OSError."""
        if not self.has_rows(day):
            place = LogFolder.of(self.tonight or self.root)
            for table in (WINDOWS, STATE):
                if self._files(table, day):
                    place.filesystem.delete_dir(_folder_of(place, table, day))

    def has_rows(self, day: date) -> bool:
        """Whether an earlier run has found something that was used on the date."""
        return any(not path.endswith(f"/{_IDLE}") for path in self._files(WINDOWS, day))

    def seen(self, spark: SparkSession, latest: date, days: int) -> dict[date, dict[str, set[int]]]:
        """Date → proxy → hours (UTC) in which anything with a limit was used, of the last `days` dates."""
        rows = self.read(spark, WINDOWS, latest, days)
        if rows is None:
            return {}
        found: dict[date, dict[str, set[int]]] = {}
        # A number that is so large counts windows of 10 s; those of producer ids last an hour.
        span_s = f"IF(window > {_TEN_SECOND_WINDOWS}, 10, 3600)"
        hours = rows.selectExpr(
            "date", f"COALESCE(proxy, '{NAMELESS}') AS proxy", f"(window * {span_s} DIV 3600) % 24 AS hour"
        ).distinct()
        for day, proxy, hour in hours.collect():
            found.setdefault(day, {}).setdefault(proxy, set()).add(int(hour))
        return found

    def dates(self, latest: date, days: int) -> list[date]:
        """Those of the last `days` up to `latest` of which there is all that a night leaves, in order.

        Of one that was killed between the two there are windows alone, which no plan goes by.
        """
        place = LogFolder.of(self.root)
        there = partitions(place, WINDOWS).keys() & partitions(place, STATE).keys()
        if self.tonight is not None:
            there.add(latest)
        return sorted(day for day in there if 0 <= (latest - day).days < days)

    def histories(
        self, spark: SparkSession, latest: date, days: int, quantile: float
    ) -> Iterator[EntityHistory]:
        """All that did something in the last `days` dates up to `latest`, entity by entity, in any order.

        Whole histograms come with those alone of which some day's percentile is not known.
        """
        rows = self.read(spark, STATE, latest, days)
        if rows is None:
            return
        figures = _figures(rows, quantile).persist(StorageLevel.MEMORY_AND_DISK)
        try:
            unknown = figures.where("day.found IS NULL").select("kind", "entity").distinct()
            of_day = figures.groupBy("kind", "entity").agg(_sorted("day", "days"))
            whole = (
                rows.join(f.broadcast(unknown), ["kind", "entity"], "left_semi")
                .selectExpr("kind", "entity", "STRUCT(proxy, date, buckets) AS day")
                .groupBy("kind", "entity")
                .agg(_sorted("day", "whole"))
            )
            packed = of_day.join(whole, ["kind", "entity"], "left")
            for kind, entity, its_days, its_whole in packed.toLocalIterator(prefetchPartitions=True):
                yield _history(kind, entity, latest, its_days, its_whole)
        finally:
            figures.unpersist()


def _folder_of(place: LogFolder, table: str, day: date) -> str:
    return f"{place.root.rstrip('/')}/{table}/date={day}"


def partitions(place: LogFolder, table: str) -> dict[date, list[str]]:
    """Date → its files, of those that have some; whatever else lies there is not ours."""
    begin = f"{place.root.rstrip('/')}/{table}"
    found: dict[date, list[str]] = {}
    for info in place.filesystem.get_file_info(fs.FileSelector(begin, recursive=True, allow_not_found=True)):
        folder = info.path.rpartition("/")[0]
        day = folder.rpartition("/date=")[2]
        if info.type is fs.FileType.File and is_written(info.path) and folder == f"{begin}/date={day}":
            with suppress(ValueError):
                found.setdefault(_date_of(day), []).append(info.path)
    return found


def _rows(spark: SparkSession, root: str, table: str, first: date, latest: date) -> DataFrame | None:
    """Those of the dates between, with their `date`; None: there are none."""
    place = LogFolder.of(root)
    paths = [
        f"{place.scheme}{path}"
        for day, its in sorted(partitions(place, table).items())
        if first <= day <= latest
        for path in sorted(its)
    ]
    if not paths:
        return None
    base = f"{place.scheme}{place.root.rstrip('/')}/{table}"
    return read_parquet(spark, paths, f"{_SCHEMAS[table]}, date DATE", base)


def _figures(rows: DataFrame, quantile: float) -> DataFrame:
    """(kind, entity, day) of each histogram, which is gone through here alone."""
    return rows.selectExpr("*", f"{totals_sql('buckets')} AS totals").selectExpr(
        "kind",
        "entity",
        f"STRUCT(proxy, date, totals.windows, totals.throttled, {top_sql('buckets')} AS top,"
        f" {quantile_sql('buckets', 'totals', quantile)} AS found) AS day",
    )


def _sorted(column: str, name: str) -> SparkColumn:
    """They come in whatever order they were read."""
    return f.sort_array(f.collect_list(column)).alias(name)


def dates_in(place: LogFolder, table: str) -> list[tuple[str, date]]:
    """(path, date) of the folders called `date=DATE` there, in order; all else is not ours."""
    return [
        (info.path, day)
        for info, day in _dated(place, table, "date=", "")
        if info.type is fs.FileType.Directory
    ]


def json_dates_in(place: LogFolder, folder: str) -> list[tuple[str, date]]:
    """Likewise of what is called `DATE.json`, a folder too: who reads it says that it is in the way."""
    return [(info.path, day) for info, day in _dated(place, folder, "", ".json")]


def _dated(place: LogFolder, folder: str, begin: str, end: str) -> list[tuple[fs.FileInfo, date]]:
    found = []
    selector = fs.FileSelector(f"{place.root.rstrip('/')}/{folder}", allow_not_found=True)
    for info in place.filesystem.get_file_info(selector):
        name = info.base_name
        if name.startswith(begin) and name.endswith(end):
            with suppress(ValueError):
                found.append((info, _date_of(name[len(begin) : len(name) - len(end)])))
    return sorted(found, key=lambda one: one[1])


def _date_of(text: str) -> date:
    """In the one way in which nights write it. Raises ValueError."""
    day = date.fromisoformat(text)
    if day.isoformat() != text:
        raise ValueError(text)
    return day


def _history(
    kind: str,
    entity: str,
    latest: date,
    days: list[tuple[str, date, int, int, int, int | None]],
    whole: list[tuple[str, date, list[tuple[int, int, int, int]]]] | None,
) -> EntityHistory:
    tops: dict[int, int] = {}
    for _, day, _, _, top, _ in days:
        age = (latest - day).days
        tops[age] = max(top, tops.get(age, 0))
    if whole:
        found = [EntityDay(proxy, (latest - day).days, _state(buckets)) for proxy, day, buckets in whole]
    else:
        found = [
            EntityDay(proxy, (latest - day).days, DayTotals(count, throttled, _known(bucket)))
            for proxy, day, count, throttled, _, bucket in days
            if bucket is not None
        ]
    return EntityHistory(kind, entity, found, tops)


def _known(bucket: int) -> Demand:
    rate = middle(bucket)
    return Demand(rate, True, rate)


def _state(buckets: list[tuple[int, int, int, int]]) -> DayState:
    return DayState(
        free={bucket: free for bucket, free, _, _ in buckets if free},
        throttled={bucket: throttled for bucket, _, throttled, _ in buckets if throttled},
        inflated={bucket: inflated for bucket, _, _, inflated in buckets if inflated},
    )
