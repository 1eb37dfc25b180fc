"""What a night makes of request rows before it plans, in DuckDB: how little the same can cost on one machine.

    python -m bench.recalibration.duckdb_sums LOGS OUT CORES

    OUT/windows.parquet     state/windows.py's: what each entity used in each window at each proxy
    OUT/state.parquet       state/daily_state.py's: a histogram per kind, entity and proxy, and all proxies
                            together where there are several
    OUT/hours.parquet       the hours in which each proxy had a window (state/store.py)

The tables are the job's, number for number (tests/recalibration/state/test_against_duckdb.py), for a quota
file that has byte rates alone and makes each pair of user and client id an entity of its own, as the
benchmark's has. Of such a file the job looks at Produce and Fetch alone, too. Request rows tell no busiest
second, and have no heartbeats.
"""

import sys
from pathlib import Path
from typing import Final

import duckdb

from sluice.recalibration.state.buckets import GROWTH, SCALE
from sluice.recalibration.state.windows import INFLATION_MAX
from sluice.usage.access_record import REQUESTS, WINDOW_MS

_WINDOW_S: Final = WINDOW_MS / 1000.0


def _weighted(condition: str) -> str:
    return f"IF({condition}, CAST(TRUNC(weight) AS INT), 0)"


_REFUSED: Final = "why = 'refused'"
_FOR_IDS: Final = f"{_REFUSED} AND api_key = 0 AND rule = ''"
_HELD_FOR_IDS: Final = f"held_ms > 0 AND {_FOR_IDS}"
_WAITED: Final = (
    f"{_weighted('held_ms > 0')} + {_weighted('throttle_ms > held_ms')} + {_weighted(_REFUSED)}"
    f" - {_weighted(_HELD_FOR_IDS)} - {_weighted(_FOR_IDS)} > 0"
)
"""for a byte rate, not for producer ids"""


def _bucket(rate: str) -> str:
    parts = f"(({rate}) * {SCALE!r}::DOUBLE)"
    return f"CAST(CASE WHEN {parts} > 1 THEN CEIL(LN({parts}) / LN({GROWTH!r}::DOUBLE)) ELSE 0 END AS INT)"


WINDOWS: Final = f"""
WITH charged AS (
  SELECT user, client_id, proxy, api_key = 0 AS is_produce, finished_ms // {WINDOW_MS} AS window_number,
    TRUNC(weight * IF(api_key <> 0, response_bytes, IF({_REFUSED}, 0, request_bytes))) AS amount,
    {_WAITED} AS throttled,
    CAST(ROUND(throttle_ms * weight * 1000) AS BIGINT) AS throttle_us,
    CAST(TRUNC(weight) AS INT) AS connections
  FROM {{rows}} WHERE api_key IN (0, 1, 78) AND user <> ''
), windows AS (
  SELECT user, client_id, proxy, is_produce, window_number, SUM(amount) / {_WINDOW_S!r}::DOUBLE AS rate,
    BOOL_OR(throttled) AS throttled, SUM(throttle_us) / 1000 AS throttle_ms, SUM(connections) AS connections
  FROM charged WHERE amount > 0 OR throttled GROUP BY ALL HAVING SUM(amount) > 0
)
SELECT IF(is_produce, 'produce', 'fetch') AS kind, user, client_id, proxy, window_number, rate,
  IF(throttled, rate / GREATEST(1 - throttle_ms / (GREATEST(connections, 1) * {WINDOW_MS}),
    {1.0 / INFLATION_MAX!r}::DOUBLE), NULL) AS offered, 0::DOUBLE AS busiest
FROM windows
"""
_POOLED: Final = """, several AS (
  SELECT kind, user, client_id FROM own GROUP BY ALL HAVING MIN(proxy) <> MAX(proxy)
), each AS (
  FROM own UNION ALL
  SELECT kind, user, client_id, '' AS proxy, SUM(rate) AS rate,
    IF(COUNT(offered) > 0, SUM(COALESCE(offered, rate)), NULL) AS offered, window_number
  FROM own SEMI JOIN several USING (kind, user, client_id) GROUP BY kind, user, client_id, window_number
)"""
_ALONE: Final = ", each AS (FROM own)"
STATE: Final = f"""
WITH own AS (
  SELECT kind, user, client_id, proxy, GREATEST(rate, busiest) AS rate, offered, window_number
  FROM {{windows}}
){{each}}, alike AS (
  SELECT kind, user, client_id, proxy, {_bucket("rate")} AS bucket,
    IF(offered IS NULL, NULL, {_bucket("offered")}) AS of_offered, COUNT(*)::INT AS count
  FROM each GROUP BY ALL
), parts AS (
  SELECT kind, user, client_id, proxy, bucket, IF(of_offered IS NULL, count, 0) AS free,
    IF(of_offered IS NULL, 0, count) AS throttled, 0 AS inflated FROM alike
  UNION ALL
  SELECT kind, user, client_id, proxy, of_offered, 0, 0, count FROM alike WHERE of_offered IS NOT NULL
), counted AS (
  SELECT kind, user, client_id, proxy, bucket, SUM(free)::INT AS free, SUM(throttled)::INT AS throttled,
    SUM(inflated)::INT AS inflated
  FROM parts GROUP BY ALL
)
SELECT kind, user, client_id, proxy,
  LIST(STRUCT_PACK(bucket, free, throttled, inflated) ORDER BY bucket) AS buckets
FROM counted GROUP BY ALL
"""
HOURS: Final = (
    f"SELECT DISTINCT proxy, window_number * {WINDOW_MS // 1000} // 3600 % 24 AS hour FROM {{windows}}"
)


def main(logs: str, out: str, cores: str) -> int:
    rows = f"read_parquet('{Path(logs, REQUESTS)}/date=*/hour=*/*.parquet', hive_partitioning = false)"
    with duckdb.connect() as database:
        database.execute(f"SET threads = {int(cores)}")
        database.execute("SET memory_limit = '3GB'")
        database.execute("SET preserve_insertion_order = false")

        def keep(table: str, query: str) -> str:
            file = f"{out}/{table}.parquet"
            database.execute(f"COPY ({query}) TO '{file}' (FORMAT parquet, COMPRESSION zstd)")
            return f"'{file}'"

        windows = keep("windows", WINDOWS.format(rows=rows))
        hours = keep("hours", HOURS.format(windows=windows))
        found = database.execute(f"SELECT COUNT(DISTINCT proxy) FROM {hours}").fetchone()
        is_several = found is not None and found[0] > 1
        keep("state", STATE.format(windows=windows, each=_POOLED if is_several else _ALONE))
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
