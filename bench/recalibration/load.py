"""What the nightly job's benchmark is fed: request rows, states, a quota file. All drawn from a seed.

The standard load: 22,000 pairs of user and client id, used as Zipf's law with exponent 1.1 has it, on 50
topics, spread over one day.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from sluice.quotas.entity import QuotaEntity
from sluice.quotas.entity_key import key_of
from sluice.recalibration.state.buckets import bucket_of
from sluice.usage.access_record import REQUEST_COLUMNS, REQUESTS, SCHEMA_VERSION, VERSION_KEY, ColumnType

DAY: Final = date(2026, 11, 20)
PAIRS: Final = 22_000
CLIENT_IDS_OF_A_USER: Final = 10
ZIPF: Final = 1.1
TOPICS: Final = 50
MS_OF_A_DAY: Final = 86_400_000
FILES: Final = 144
"""of a day: one in ten minutes, as if compacted"""
BUCKETS: Final = 50
"""of an entity's day"""
PRODUCE_SHARE: Final = 0.6
THROTTLED_SHARE: Final = 0.01
ARROW: Final = {
    ColumnType.TEXT: pa.string(),
    ColumnType.INT: pa.int32(),
    ColumnType.LONG: pa.int64(),
    ColumnType.DOUBLE: pa.float64(),
}
Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Load:
    """One day of request rows."""

    rows: int
    hot_share: float = 0.0
    """of the rows that are one pair's, beyond Zipf's law"""
    proxies: int = 1


def pair(index: int) -> tuple[str, str]:
    """The entity of this number, as (user, client id)."""
    return f"user-{index // CLIENT_IDS_OF_A_USER:04}", f"app-{index:05}"


def write_requests(load: Load, logs: Path, seed: int = 1) -> int:
    """The rows, in order of time as proxies write them; returns the bytes on disk."""
    begin = _begin_ms(DAY)
    weights = np.arange(1, PAIRS + 1, dtype=np.float64) ** -ZIPF
    edges = np.cumsum(weights / weights.sum())
    users, clients = (pa.array(names) for names in zip(*map(pair, range(PAIRS)), strict=True))
    numbers = np.random.default_rng(seed)
    schema = pa.schema([(column.name, ARROW[column.type]) for column in REQUEST_COLUMNS])
    schema = schema.with_metadata({VERSION_KEY: str(SCHEMA_VERSION)})
    size = 0
    for index in range(FILES):
        count = load.rows * (index + 1) // FILES - load.rows * index // FILES
        who = np.minimum(np.searchsorted(edges, numbers.random(count)), PAIRS - 1).astype(np.int32)
        if load.hot_share:
            who[numbers.random(count) < load.hot_share] = 0
        columns = _columns(load, begin + index * (MS_OF_A_DAY // FILES), who, numbers)
        names = {"user": users, "client_id": clients}
        arrays = [
            pa.DictionaryArray.from_arrays(pa.array(who), names[field.name]).cast(pa.string())
            if field.name in names
            else columns[field.name].cast(field.type)
            for field in schema
        ]
        hour = index * 24 // FILES
        path = logs / f"{REQUESTS}/date={DAY}/hour={hour:02}/{index:03}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        parquet.write_table(pa.table(arrays, schema=schema), path, compression="zstd", row_group_size=500_000)
        size += path.stat().st_size
    return size


def _columns(load: Load, begin_ms: int, who: Any, numbers: np.random.Generator) -> dict[str, pa.Array]:
    """By name, but user and client id."""
    count = len(who)
    is_produce = numbers.random(count) < PRODUCE_SHARE
    small, large = (
        numbers.integers(60, 200, count),
        (1_000.0 * numbers.lognormal(1.0, 1.0, count)).astype(np.int64),
    )
    throttle_ms = np.where(numbers.random(count) < THROTTLED_SHARE, numbers.exponential(300.0, count), 0.0)
    why = np.where(throttle_ms > 0, 1, 0).astype(np.int8)
    proxies = [f"proxy-{index}" for index in range(load.proxies)]

    def texts(indices: Any, names: list[str]) -> pa.Array:
        return pa.DictionaryArray.from_arrays(pa.array(indices), pa.array(names)).cast(pa.string())

    def constant(text: str) -> pa.Array:
        return texts(np.zeros(count, dtype=np.int8), [text])

    return {
        "finished_ms": pa.array(np.sort(numbers.integers(0, MS_OF_A_DAY // FILES, count)) + begin_ms),
        "proxy": texts(numbers.integers(0, load.proxies, count).astype(np.int32), proxies),
        "broker": texts(numbers.integers(0, 3, count).astype(np.int8), ["1", "2", "3"]),
        "address": constant("10.0.0.1"),
        "api_key": pa.array(np.where(is_produce, 0, 1)),
        "api_version": pa.array(np.where(is_produce, 13, 18)),
        "topic": texts((who % TOPICS).astype(np.int32), [f"topic-{index:02}" for index in range(TOPICS)]),
        "request_bytes": pa.array(np.where(is_produce, large, small)),
        "response_bytes": pa.array(np.where(is_produce, small, large)),
        "upstream_ms": pa.array(np.round(numbers.exponential(2.0, count), 2)),
        "held_ms": pa.array(np.zeros(count)),
        "throttle_ms": pa.array(np.round(throttle_ms, 1)),
        "rule": constant("default_user_default_client"),
        "why": texts(why, ["sample", "throttled"]),
        "weight": pa.array(np.ones(count)),
    }


def write_quotas(path: Path) -> None:
    """Each pair is an entity of its own: the most that there can be of so many clients."""
    path.write_text(
        "quotas:\n  - user: <default>\n    client-id: <default>\n"
        "    producer_byte_rate: 100000\n    consumer_byte_rate: 100000\n",
        encoding="utf-8",
    )


def write_states(out: Path, days: int, entities: int, seed: int = 2) -> int:
    """States of `days` dates up to DAY as nights leave them, of one kind; returns how many buckets.

    An entity's rates spread over BUCKETS buckets around a level of its own; a tenth of the entities is
    throttled on a fifth of their days, at their limit.
    """
    levels = np.random.default_rng(seed).lognormal(9.0, 1.2, entities)
    keys = pa.array([key_of(QuotaEntity(*pair(index))) for index in range(entities)])
    middles = np.array([bucket_of(level) for level in levels], dtype=np.int32)
    around = np.arange(-BUCKETS // 2, BUCKETS // 2, dtype=np.int32)
    usual = np.maximum(1, 600 * np.exp(-((around / 10.0) ** 2))).astype(np.int32)
    offsets = pa.array(np.arange(0, (entities + 1) * BUCKETS, BUCKETS, dtype=np.int32))
    names = ("bucket", "free", "throttled", "inflated")
    for age in range(days):
        index = np.arange(entities)[:, np.newaxis]
        is_throttled = (index % 10 == 0) & ((age + index) % 5 == 0)
        columns = (
            middles[:, np.newaxis] + around,
            np.where(is_throttled & (around > 0), 0, usual),
            np.where(is_throttled & (around == 10), 900, 0),
            np.where(is_throttled & (around == 20), 900, 0),
        )
        buckets = pa.StructArray.from_arrays(
            [pa.array(column.ravel().astype(np.int32)) for column in columns], names
        )
        table = pa.table(
            {
                "kind": pa.DictionaryArray.from_arrays(np.zeros(entities, np.int8), ["produce"]).cast(
                    "string"
                ),
                "entity": keys,
                "proxy": pa.DictionaryArray.from_arrays(np.zeros(entities, np.int8), ["proxy-0"]).cast(
                    "string"
                ),
                "buckets": pa.ListArray.from_arrays(offsets, buckets),
            }
        )
        path = out / f"state/date={DAY - timedelta(days=age)}/part-0.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        parquet.write_table(table, path, compression="zstd")
    return days * entities * BUCKETS


def _begin_ms(day: date) -> int:
    return int(datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp() * 1000)
