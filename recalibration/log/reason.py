"""Which numbers of a log's row are beyond all reason: another program wrote them, or a disk has failed.

A row is of 10 s, or of one request. Kafka's "none" is -1; mutations of older proxies may be below 0. NaN is
above all. No client can bring a proxy's rows near these bounds (MOST in usage/access_record.py).
"""

from __future__ import annotations

from typing import Final

from sluice.usage.access_record import LIMIT_KEYS, REQUESTS, TABLES, ColumnType

_BOUNDS: Final = {
    ColumnType.INT: ("-1", "1000000000"),
    ColumnType.LONG: ("-1L", "1000000000000000L"),
    ColumnType.DOUBLE: ("-1e12D", "1e12D"),
}
"""of counts, bytes, times in ms: the least and the most"""
_WEIGHT: Final = "weight"
_MOST_WEIGHT: Final = "1e9D"
"""it is a count"""
_WEIGHED: Final = frozenset({"request_bytes", "response_bytes", "upstream_ms", "held_ms", "throttle_ms"})
"""of a request row, that count as often as it stands for requests (request_rows.py)"""


class BeyondReasonError(Exception):
    """Some row of a log has a number beyond all reason."""


def within_sql(table: str) -> str:
    """Whether the numbers of a row are within reason; null: some are, of others nothing is known."""
    return " AND ".join(f"({within})" for _, within in _each(table))


def beyond_sql(table: str) -> str:
    """The name of a column of which a row has a number beyond reason; null: it has none."""
    cases = " ".join(f"WHEN NOT ({within}) THEN '{name}'" for name, within in _each(table))
    return f"CASE {cases} END"


def _each(table: str) -> list[tuple[str, str]]:
    found = []
    for column in TABLES[table]:
        if column.type is ColumnType.TEXT or column.name in LIMIT_KEYS:  # 2⁶³−1: unlimited
            continue
        least, most = _BOUNDS[column.type]
        if column.name == _WEIGHT:
            most = _MOST_WEIGHT
        found.append((column.name, f"`{column.name}` BETWEEN {least} AND {most}"))
        if table == REQUESTS and column.name in _WEIGHED:
            found.append((column.name, f"`{column.name}` * `{_WEIGHT}` BETWEEN {least} AND {most}"))
    return found
