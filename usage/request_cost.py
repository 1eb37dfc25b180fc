"""What a request costs a broker: milliseconds of its network and I/O threads, by a linear model (KIP-124).

A proxy sees no broker threads. What it sees, the time from a request to its answer, holds what neighbours
made the request wait for, too. So request_percentage charges what such a request takes on a broker that was
measured:

    amount = min(request + request_byte · b + batch · n + record · r, upstream) + response_byte · a

b, a: bytes of the frames; n, r: record batches and records of a Produce; upstream: from the request to the
answer's first byte, for threads cannot have worked longer on it. (What is sent takes its time behind it.)

Worked example, request 0.1 ms, request_byte 0.000002, batch 0.02, record 0.0001, response_byte 0.000001:
    10,000 B, a batch of 100 records, answer of 60 B after 5 ms   0.1 + 0.02 + 0.02 + 0.01 + 0.00006 = 0.15006
    the same, answered after 0.08 ms                              0.08 + 0.00006 = 0.08006
Knows no frames, no clock, no files. Source: KIP-124; ClientRequestQuotaManager, RequestChannel.Request.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

_MAX_REMEMBERED: Final = 4_096
"""look-ups; clients can send any of 65,536 keys in as many versions"""


class Coefficients(NamedTuple):
    """What one kind of request costs; all ≥ 0, in ms (of a thread)."""

    request_ms: float = 0.0
    request_byte_ms: float = 0.0
    response_byte_ms: float = 0.0
    batch_ms: float = 0.0
    """a record batch of a Produce"""
    record_ms: float = 0.0
    """a record of a Produce, which the broker looks at one by one"""

    def plus(self, other: Coefficients) -> Coefficients:
        """The sum of both costs."""
        return Coefficients(*(mine + others for mine, others in zip(self, other, strict=True)))


@dataclass(frozen=True, slots=True)
class CostRow:
    """Which requests these coefficients are for; what is None is not looked at."""

    coefficients: Coefficients
    api_key: int | None = None
    versions: tuple[int, int] | None = None
    """first and last"""
    codec: int | None = None
    """compression of a Produce, as in a batch's attributes: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd"""
    acks_all: bool | None = None
    """of a Produce: acks −1 (True) or 1"""

    def fits(self, api_key: int, version: int, codec: int, acks_all: bool) -> bool:
        """Is it for such a request?"""
        return (
            self.api_key in {None, api_key}
            and (self.versions is None or self.versions[0] <= version <= self.versions[1])
            and self.codec in {None, codec}
            and self.acks_all in {None, acks_all}
        )


class RequestCosts:
    """The coefficients of every request: those of the first row that fits."""

    __slots__ = ("_remembered", "rows")

    def __init__(self, rows: Iterable[CostRow]) -> None:
        """Raises ValueError if the last row does not fit everything, or a coefficient is negative."""
        self.rows: Final = tuple(rows)
        last = self.rows[-1] if self.rows else None
        if last is None or last != CostRow(last.coefficients):
            raise ValueError("the last entry must be for every other request")
        if any(value < 0.0 for row in self.rows for value in row.coefficients):
            raise ValueError("a cost cannot be negative")
        self._remembered: dict[tuple[int, int, int, bool], Coefficients] = {}

    def of(self, api_key: int, version: int, codec: int = 0, acks_all: bool = False) -> Coefficients:
        """What such a request costs; `codec` and `acks_all` are of Produce."""
        key = (api_key, version, codec, acks_all)
        found = self._remembered.get(key)
        if found is None:
            if len(self._remembered) >= _MAX_REMEMBERED:
                self._remembered.clear()
            found = next(row.coefficients for row in self.rows if row.fits(*key))
            self._remembered[key] = found
        return found

    def plus(self, extra: Coefficients) -> RequestCosts:
        """The same with `extra` for every request: TLS."""
        return RequestCosts(
            CostRow(row.coefficients.plus(extra), row.api_key, row.versions, row.codec, row.acks_all)
            for row in self.rows
        )


FLAT_COSTS: Final = RequestCosts([CostRow(Coefficients(request_ms=0.1))])
"""a tenth of a ms each, where nothing was measured"""


def request_cost_ms(
    coefficients: Coefficients,
    request_bytes: int,
    response_bytes: int,
    upstream_ms: float,
    batches: int = 0,
    records: int = 0,
) -> float:
    """Thread time of a finished request, in ms."""
    request_ms, request_byte_ms, response_byte_ms, batch_ms, record_ms = coefficients
    before_answer_ms = request_ms + request_byte_ms * request_bytes + batch_ms * batches + record_ms * records
    if upstream_ms < before_answer_ms:  # noqa: PLR1730  min() is a call and costs as much as all the rest
        before_answer_ms = upstream_ms
    return before_answer_ms + response_byte_ms * response_bytes
