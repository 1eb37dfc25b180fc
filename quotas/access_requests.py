"""Records → rows of single requests: those that were throttled, refused, slow or failed, or brought producer
ids, and a sample of the others.

A sample without bias and without work for what is not in it: the number of requests to pass over until the
next one is drawn from the geometric distribution, so that each is taken with the same probability. A row has
the weight 1 ÷ share then, all others the weight 1. Bounded in rows a window; what is beyond is counted, and
lost. Knows no frames and no clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import log
from random import Random
from typing import Any, Final, TypeAlias

from sluice.quotas.access_flow import AccessFlow
from sluice.quotas.access_record import STEPS_PER_MS
from sluice.quotas.records import ASK, RequestRecord, Unanswered

Row: TypeAlias = tuple[Any, ...]
SAMPLE: Final = "sample"
FAILED: Final = "failed"
THROTTLED: Final = "throttled"
SLOW: Final = "slow"
_NEVER: Final = 2**63
"""of a sample of nothing"""
_UPSTREAM_STEPS: Final = STEPS_PER_MS["upstream_ms"]
_HELD_STEPS: Final = STEPS_PER_MS["held_ms"]
_THROTTLE_STEPS: Final = STEPS_PER_MS["throttle_ms"]


class RequestRows:
    """Of one process."""

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
        self.rows_dropped = 0
        """for want of room in their window"""

    def begin(self) -> None:
        """Another window."""
        self._room = self._max_rows

    def rows(
        self, records: Sequence[RequestRecord], marked: Iterable[RequestRecord], offset_ms: float
    ) -> list[Row]:
        """Of these records; `marked`: those among them that `Rollup.add_requests` found.

        `offset_ms`: Unix time less monotonic time.
        """
        rows = [self._row(record, self._why(record), 1.0, offset_ms) for record in marked]
        count = len(records)
        while self._next < count:
            record = records[self._next]
            if not self._why(record):
                rows.append(self._row(record, SAMPLE, 1.0 / self._share, offset_ms))
            self._pass_over()
        if self._share > 0.0:
            self._next -= count
        return self._within(rows)

    def unanswered(self, ended: Iterable[Unanswered], offset_ms: float) -> list[Row]:
        """Of requests whose answers will never come."""
        return self._within([
            self._of(
                one.flow, one.ended_ms + offset_ms, one.api_key, one.api_version, one.request_bytes, 0,
                one.ended_ms - one.forwarded_ms, one.held_ms, 0.0, "", FAILED, 1.0,
            )
            for one in ended
            if isinstance(one.flow, AccessFlow)
        ])  # fmt: skip

    def _pass_over(self) -> None:
        """Draw the next request of the sample. Any k − 1 are passed over with probability (1 − share)^(k − 1)
        · share: with a share of 0.5 the next one is it in half of all cases."""
        if self._share >= 1.0:
            self._next += 1
        elif self._share > 0.0:
            self._next += int(log(1.0 - self._random.random()) / self._log_rest) + 1

    def _within(self, rows: list[Row]) -> list[Row]:
        kept = rows[: self._room]
        self._room -= len(kept)
        self.rows_dropped += len(rows) - len(kept)
        return kept

    def _why(self, record: RequestRecord) -> str:
        flow, upstream_ms, throttle_ms = record[3], record[7], record[9]
        if isinstance(flow, AccessFlow) and flow.why:
            return flow.why
        if throttle_ms > 0.0:
            return THROTTLED
        return SLOW if upstream_ms >= self.slow_ms else ""

    def _row(self, record: RequestRecord, why: str, weight: float, offset_ms: float) -> Row:
        (
            api_key, version, _, flow, request_bytes, response_bytes, finished_ms,
            upstream_ms, held_ms, throttle_ms, sensor,
        ) = record  # fmt: skip
        rule = "" if sensor is None else sensor.level.value
        return self._of(
            flow, finished_ms + offset_ms, api_key, version, request_bytes, response_bytes,
            upstream_ms, held_ms, throttle_ms, rule, why, weight,
        )  # fmt: skip

    def _of(
        self,
        flow: Any,
        finished_unix_ms: float,
        api_key: int,
        version: int,
        request_bytes: int,
        response_bytes: int,
        upstream_ms: float,
        held_ms: float,
        throttle_ms: float,
        rule: str,
        why: str,
        weight: float,
    ) -> Row:
        key = flow.named_key() if flow.number == ASK else flow.place.key
        broker, user, client_id, _, _, topic = key
        return (
            int(finished_unix_ms), self._proxy, broker, user, client_id, flow.origin.address,
            api_key, version, topic, request_bytes, response_bytes,
            round(upstream_ms * _UPSTREAM_STEPS) / _UPSTREAM_STEPS,
            held_ms and round(held_ms * _HELD_STEPS) / _HELD_STEPS,
            throttle_ms and round(throttle_ms * _THROTTLE_STEPS) / _THROTTLE_STEPS,
            rule, why, weight,
        )  # fmt: skip
