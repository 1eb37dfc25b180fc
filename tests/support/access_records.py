"""Records as sessions write them with an access log, and their roll-up by brute force."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any, TypeAlias

from sluice.quotas.access_flow import AccessFlow, Origin
from sluice.quotas.access_record import WINDOW_MS
from sluice.quotas.access_rollup import Limits, Rollup
from sluice.quotas.records import Recorder, RequestRecord
from sluice.quotas.request_cost import Coefficients, CostRow, RequestCosts

UNIX_MS = 1_795_000_000_000.0
"""a multiple of the window"""
NOW_MS = 5_000_000.0
"""the same on the monotonic clock"""
OFFSET_MS = UNIX_MS - NOW_MS
COSTS = RequestCosts([CostRow(Coefficients(0.5, 1 / 1024, 1 / 2048))])
"""so that sums are exact in binary"""
PROXY = "p1"
BROKER = "broker:9092"
_CLASSES = {0: "produce", 1: "fetch", 3: "metadata", 12: "group"}
RowOfNames: TypeAlias = dict[str, Any]


def no_limits(user: str, client_id: str) -> Limits:
    return (None,) * 5


def rollup(**options: Any) -> Rollup:
    given = {"limits_now": lambda: no_limits, "now_ms": NOW_MS, "unix_ms": UNIX_MS, **options}
    return Rollup(PROXY, **given)


def connection(user: str = "alice", address: str = "10.0.0.1") -> Origin:
    return Origin(user, address, BROKER, COSTS)


def flow(origin: Origin, client_id: str = "app", api_key: int = 0, topic: str = "") -> AccessFlow:
    return AccessFlow(origin, client_id, _CLASSES[api_key], topic)


def record(
    of: AccessFlow,
    after_ms: float,
    *,
    api_key: int = 0,
    request_bytes: int = 100,
    response_bytes: int = 40,
    upstream_ms: float = 2.0,
    held_ms: float = 0.0,
    throttle_ms: float = 0.0,
) -> RequestRecord:
    """Finished so long after NOW_MS."""
    return (
        api_key, 9, of.origin.user, of, request_bytes, response_bytes, NOW_MS + after_ms,
        upstream_ms, held_ms, throttle_ms, None,
    )  # fmt: skip


def recorder_of(records: Iterable[RequestRecord]) -> Recorder:
    found = Recorder()
    found.requests.extend(records)
    return found


def brute_force(records: Iterable[RequestRecord]) -> dict[tuple[Any, ...], RowOfNames]:
    """(window, user, client id, class, topic) → what a roll-up row says of requests, from their records."""
    groups: defaultdict[tuple[Any, ...], list[RequestRecord]] = defaultdict(list)
    for one in records:
        of = one[3]
        assert isinstance(of, AccessFlow)
        window = int((one[6] + OFFSET_MS) // WINDOW_MS) * WINDOW_MS
        groups[window, of.origin.user, of.client_id, of.api_class, of.topic].append(one)
    return {key: _summed(group) for key, group in groups.items()}


def _summed(records: list[RequestRecord]) -> RowOfNames:
    seconds: defaultdict[int, int] = defaultdict(int)
    for one in records:
        seconds[int((one[6] + OFFSET_MS) // 1000)] += one[4] + one[5]
    return {
        "requests": len(records),
        "request_bytes": sum(one[4] for one in records),
        "response_bytes": sum(one[5] for one in records),
        "upstream_ms": sum(one[7] for one in records),
        "held_ms": sum(one[8] for one in records),
        "throttle_ms": sum(one[9] for one in records),
        "connections": len({id(one[3].origin) for one in records if isinstance(one[3], AccessFlow)}),
        "peak_bytes_1s": max(seconds.values()),
    }
