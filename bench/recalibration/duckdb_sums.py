"""The nightly job's sums and histograms in DuckDB: how little the same SQL can cost on one machine.

python -m bench.recalibration.duckdb_sums LOGS CORES
"""

import sys
from pathlib import Path
from typing import Final

import duckdb

from sluice.recalibration.state.buckets import GROWTH, SCALE
from sluice.usage.access_record import REQUESTS, WINDOW_MS

SQL: Final = f"""
WITH charged AS (
  SELECT user, client_id, proxy, IF(api_key = 0, 'produce', 'fetch') AS kind,
    finished_ms // {WINDOW_MS} AS window_number,
    weight * IF(api_key = 0, request_bytes, response_bytes) AS amount,
    throttle_ms > 0 AS throttled, throttle_ms * weight AS throttle_ms, weight
  FROM read_parquet(?)
), windows AS (
  SELECT user, client_id, proxy, kind, window_number, SUM(amount) AS amount, BOOL_OR(throttled) AS throttled,
    SUM(throttle_ms) AS throttle_ms, SUM(weight) AS connections
  FROM charged GROUP BY ALL
), buckets AS (
  SELECT user, client_id, proxy, kind, throttled,
    CAST(CEIL(LN(amount / {WINDOW_MS / 1000.0} * {SCALE}) / LN({GROWTH})) AS INT) AS bucket
  FROM windows WHERE amount > 0
)
SELECT user, client_id, proxy, kind, bucket, COUNT(*) FILTER (NOT throttled), COUNT(*) FILTER (throttled)
FROM buckets GROUP BY ALL
"""


def main(logs: str, cores: str) -> int:
    with duckdb.connect() as database:
        database.execute(f"SET threads = {int(cores)}")
        database.execute("SET memory_limit = '3GB'")
        database.execute(
            f"CREATE TABLE histograms AS {SQL}", [f"{Path(logs, REQUESTS)}/date=*/hour=*/*.parquet"]
        )
        print(database.execute("SELECT COUNT(*) FROM histograms").fetchone())
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
