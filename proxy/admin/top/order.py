"""Which rows of a snapshot of `sluice top` are shown, and in which order. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any, Final

from sluice.proxy.admin.top.search import fits_pattern, is_found

MAX_ROWS: Final = 200
"""of a snapshot: the most throttled, then those nearest to their limits"""


class Sort(StrEnum):
    """What comes first in `sluice top`."""

    THROTTLED = "throttled"
    """who is throttled the most, then who is nearest to the limit: the proxy's own order"""
    THROUGHPUT = "throughput"
    """who uses the most, in bytes; then all else by its share of its limit"""
    UTILISATION = "utilisation"
    """who is nearest to the limit"""
    NAME = "name"


class ConnectionSort(StrEnum):
    """What comes first of `sluice connections`."""

    THROUGHPUT = "throughput"
    """in and out together"""
    IN = "in"
    OUT = "out"
    REQUESTS = "requests"
    IN_FLIGHT = "in-flight"
    DELAY = "delay"


_BYTES: Final = "bytes per second"


def _by_throughput(row: Mapping[str, Any]) -> tuple[bool, float]:
    is_bytes = row["unit"] == _BYTES
    return not is_bytes, -row["used"] if is_bytes else -row["utilisation"]


_KEYS: Final[dict[Sort, Callable[[Mapping[str, Any]], Any]]] = {
    Sort.THROUGHPUT: _by_throughput,
    Sort.UTILISATION: lambda row: -row["utilisation"],
    Sort.NAME: lambda row: [*row["bucket"].values(), row["quota"]],
}


def chosen(snapshot: Mapping[str, Any], *, user: str, sort: Sort, rows: int) -> dict[str, Any]:
    """The snapshot with at most `rows` of its rows, sorted, of the buckets that `user` finds: a name, or a
    pattern with * and ?, of a bucket or of its members (search.py), with or without `User:`. Empty: all."""
    fits = fits_pattern(user)
    found = [row for row in snapshot["rows"] if not user or is_found(row, fits)]
    key = _KEYS.get(sort)
    if key is not None:
        found.sort(key=key)
    return {**snapshot, "rows": found[:rows]}
