"""Records as sessions write them with an access log, and their roll-up by brute force."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable
from typing import Any, TypeAlias

from sluice.usage.access_record import WINDOW_MS
from sluice.usage.flow import AccessFlow, Origin
from sluice.usage.records import Recorder, RequestRecord
from sluice.usage.request_cost import Coefficients, CostRow, RequestCosts
from sluice.usage.rollup import Limits, Rollup
from testkit.access_log.finished import Finished

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
BucketOf: TypeAlias = Callable[[str, str, str], Hashable | None]


class Limited:
    """The same limits for everybody, and buckets by user, client id and API class."""

    def __init__(self, limits: Limits = (None,) * 5, bucket_of: BucketOf = lambda *_: None) -> None:
        self._limits = limits
        self.bucket_of = bucket_of

    def __call__(self, user: str, client_id: str) -> Limits:
        return self._limits


NO_LIMITS = Limited()


def rollup(**options: Any) -> Rollup:
    given = {"limits_now": lambda: NO_LIMITS, "now_ms": NOW_MS, "unix_ms": UNIX_MS, **options}
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
) -> Finished:
    """Finished so long after NOW_MS."""
    return Finished(
        of, request_bytes, response_bytes, upstream_ms, throttle_ms, held_ms, NOW_MS + after_ms,
        api_key, 9, of.origin.user,
    )  # fmt: skip


def recorder_of(records: Iterable[RequestRecord]) -> Recorder:
    found = Recorder()
    found.requests.extend(records)
    return found


def brute_force(records: Iterable[RequestRecord]) -> dict[tuple[Any, ...], RowOfNames]:
    """(window, user, client id, class, topic) → what a roll-up row says of requests, from their records."""
    groups: defaultdict[tuple[Any, ...], list[Finished]] = defaultdict(list)
    for one in map(Finished._make, records):
        of = one.flow
        assert isinstance(of, AccessFlow)
        window = int((one.finished_ms + OFFSET_MS) // WINDOW_MS) * WINDOW_MS
        groups[window, of.origin.user, of.client_id, of.api_class, of.topic].append(one)
    return {key: _summed(group) for key, group in groups.items()}


def _summed(records: list[Finished]) -> RowOfNames:
    seconds: defaultdict[int, int] = defaultdict(int)
    for one in records:
        seconds[int((one.finished_ms + OFFSET_MS) // 1000)] += one.request_bytes + one.response_bytes
    return {
        "requests": len(records),
        "request_bytes": sum(one.request_bytes for one in records),
        "response_bytes": sum(one.response_bytes for one in records),
        "upstream_ms": sum(one.upstream_ms for one in records),
        "held_ms": sum(one.held_ms for one in records),
        "throttle_ms": sum(one.throttle_ms for one in records),
        "connections": len({id(one.flow.origin) for one in records if isinstance(one.flow, AccessFlow)}),
        "peak_bytes_1s": max(seconds.values()),
    }
