"""Records → rows of single requests: those that were throttled, refused, slow or failed, or brought producer
ids, and a sample of the others.

A sample without bias and without work for what is not in it: the number of requests to pass over until the
next one is drawn from the geometric distribution, so that each is taken with the same probability. A row has
the weight 1 ÷ share then, all others the weight 1. Bounded in rows a window; what is beyond is counted, and
lost. The records are gathered, and become columns at once when they are told. Knows no frames and no clock.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterable, Sequence
from math import log
from random import Random
from typing import Any, Final, TypeVar

from sluice.quotas.limits.client_ids import MAX_CLIENT_ID
from sluice.usage.access_record import (
    CODES,
    MOST,
    REQUEST_COLUMNS,
    STEPS_PER_MS,
    Column,
    Columns,
    ColumnType,
)
from sluice.usage.flow import AccessFlow
from sluice.usage.records import RequestRecord, Unanswered, finished_ms_of

_Number = TypeVar("_Number", int, float)
SAMPLE: Final = "sample"
FAILED: Final = "failed"
THROTTLED: Final = "throttled"
SLOW: Final = "slow"
_NEVER: Final = 2**63
"""of a sample of nothing"""


class RequestRows:
    """The rows of one process that have not been told."""

    def __init__(
        self, proxy: str, *, share: float, slow_ms: float, max_rows: int, random: Random | None = None
    ) -> None:
        """`share`: of the requests that no other reason gives a row (0 to 1). `slow_ms`: to the answer, from
        which on a request gets one. `max_rows`: of a window."""
        self._proxy = proxy
        self._share = share
        self.slow_ms: Final = slow_ms
        self._max_rows = max_rows
        self._random = random or Random()  # noqa: S311 - a sample, no secret
        self._log_rest = log(1.0 - share) if 0.0 < share < 1.0 else 0.0
        self._room = max_rows
        self._next = -1 if share > 0.0 else _NEVER
        self._pass_over()
        self._records: list[RequestRecord] = []
        self._whys: list[str] = []
        self._finished_ms: list[int] = []
        """Unix time"""
        self.rows_dropped = 0
        """for want of room in their window"""

    def __len__(self) -> int:
        return len(self._records)

    def begin(self) -> None:
        """Begin another window: there is room again."""
        self._room = self._max_rows

    def add(
        self, records: Sequence[RequestRecord], marked: Iterable[RequestRecord], offset_ms: float
    ) -> None:
        """Gather the rows of these records; `marked`: those among them that `Rollup.add_requests` found.

        `offset_ms`: Unix time less monotonic time.
        """
        for record in marked:
            self._gather(record, self._why(record), offset_ms)
        count = len(records)
        while self._next < count:
            record = records[self._next]
            if not self._why(record):
                self._gather(record, SAMPLE, offset_ms)
            self._pass_over()
        if self._share > 0.0:
            self._next -= count

    def add_unanswered(self, ended: Iterable[Unanswered], offset_ms: float) -> None:
        """Likewise, of requests whose answers will never come."""
        for one in ended:
            if isinstance(one.flow, AccessFlow):
                record = (
                    one.flow, one.request_bytes, 0, one.ended_ms - one.forwarded_ms, 0.0, one.held_ms,
                    one.ended_ms, one.api_key, one.api_version, one.flow.origin.user, None,
                )  # fmt: skip
                self._gather(record, FAILED, offset_ms)

    def take(self) -> Columns:
        """All that are gathered, and there is one at least; then there are none."""
        records, self._records = self._records, []
        whys, self._whys = self._whys, []
        finished_ms, self._finished_ms = self._finished_ms, []
        # fmt: off
        (
            flows, request_bytes, response_bytes, upstream_ms, throttle_ms, held_ms, _,
            api_keys, versions, users, sensors,
        ) = zip(*records, strict=True)
        # fmt: on
        origins = [flow.origin for flow in flows]
        weight = 1.0 / self._share if self._share else 0.0
        # The job multiplies by it; of a sample that takes a request in a million two gigabytes are a lot.
        most_bytes = int(MOST[ColumnType.LONG] / max(weight, 1.0))
        most_ms = MOST[ColumnType.DOUBLE] / max(weight, 1.0)
        columns: Columns = (
            finished_ms,
            [self._proxy] * len(records),
            [origin.broker for origin in origins],
            users,
            [flow.client_id[:MAX_CLIENT_ID] for flow in flows],
            [origin.address for origin in origins],
            api_keys,
            versions,
            [flow.named_topic() if flow.topic_id else flow.topic for flow in flows],
            _bounded(request_bytes, most_bytes),
            _bounded(response_bytes, most_bytes),
            _rounded(_bounded(upstream_ms, most_ms), STEPS_PER_MS["upstream_ms"]),
            _rounded(_bounded(held_ms, most_ms), STEPS_PER_MS["held_ms"]),
            _rounded(_bounded(throttle_ms, most_ms), STEPS_PER_MS["throttle_ms"]),
            ["" if sensor is None else sensor.level.value for sensor in sensors],
            whys,
            [weight if why == SAMPLE else 1.0 for why in whys],
        )
        return [_packed(column, values) for column, values in zip(REQUEST_COLUMNS, columns, strict=True)]

    def _pass_over(self) -> None:
        """Draw the next request of the sample. Any k − 1 are passed over with probability (1 − share)^(k − 1)
        · share: with a share of 0.5 the next one is it in half of all cases."""
        if self._share >= 1.0:
            self._next += 1
        elif self._share > 0.0:
            self._next += int(log(1.0 - self._random.random()) / self._log_rest) + 1

    def _gather(self, record: RequestRecord, why: str, offset_ms: float) -> None:
        if not self._room:
            self.rows_dropped += 1
            return
        self._room -= 1
        self._records.append(record)
        self._whys.append(why)
        self._finished_ms.append(int(finished_ms_of(record) + offset_ms))

    def _why(self, record: RequestRecord) -> str:
        flow, _, _, upstream_ms, throttle_ms, *_ = record
        if isinstance(flow, AccessFlow) and flow.why:
            return flow.why
        if throttle_ms > 0.0:
            return THROTTLED
        return SLOW if upstream_ms >= self.slow_ms else ""


def _packed(column: Column, values: Sequence[Any]) -> Sequence[Any]:
    """Numbers are, for objects are dear to a thread on another core: it has to fetch each of them."""
    code = CODES.get(column.type)
    return values if code is None else array(code, struct.pack(f"{len(values)}{code}", *values))


def _bounded(values: Sequence[_Number], most: _Number) -> Sequence[_Number]:
    return values if max(values) <= most else [min(value, most) for value in values]


def _rounded(times_ms: Sequence[float], steps: float) -> Sequence[float]:
    if not any(times_ms):
        return times_ms
    return [time_ms and round(time_ms * steps) / steps for time_ms in times_ms]
