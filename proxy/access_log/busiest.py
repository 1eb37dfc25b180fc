"""The busiest second of each bucket: what each flow had in it.

A limit counts the bytes of all rows of its bucket: a user's client ids, topics, brokers. Their own busiest
seconds may be ten different ones, whose sum nobody ever needed at once. So a row tells what it had in the
busiest second of its bucket, the first of those alike; the sum over a bucket's rows is that second's bytes:

    bytes in second      0    1    2     tells
    app-1               90    0   50        50
    app-2                0   80   60        60
    the bucket          90   80  110       110, and not 90 + 80 = 170
"""

from __future__ import annotations

from typing import Final, NamedTuple

import pyarrow as pa
from pyarrow import compute

from sluice.proxy.access_log.runs import (
    Pause,
    are_distinct,
    differences,
    ends_of_runs,
    in_order,
    inverse,
    largest,
    take,
    totals,
)

SECOND_BITS: Final = pa.scalar(4, pa.int32())
"""behind a number of a flow or bucket: a window has ten seconds"""
_LAST: Final = pa.scalar(15, pa.int32())
_MAX_BYTES: Final = pa.scalar(2**34 - 1, pa.int64())
"""of a second, as far as seconds are compared: 17 GB"""


class Seconds(NamedTuple):
    """A flow's requests of a second, in order."""

    flow: pa.Array
    """int32, as is the next"""
    at: pa.Array
    """flow and second"""
    bytes_: pa.Array
    """int64, both ways"""
    ends: pa.Array
    """of each flow the last row"""


def bytes_in_busiest_second(
    seconds: Seconds, flows: pa.Array, buckets: pa.Array, flows_below: int, pause: Pause
) -> pa.Array:
    """For each of `flows` its bytes in the busiest second of its bucket, int64. `buckets`: a number for each
    of `flows`; `flows_below`: the numbers of flows are."""
    count = (compute.max(buckets).as_py() or 0) + 1
    if are_distinct(buckets, count):  # each flow is a bucket by itself
        return largest(seconds.flow, seconds.bytes_, seconds.ends)
    bucket = take(buckets, take(inverse(flows, flows_below), seconds.flow))
    second = compute.bit_wise_and(seconds.at, _LAST)
    pause()
    busiest = take(_busiest_seconds(bucket, second, seconds.bytes_, count, pause), bucket)
    in_it = compute.if_else(compute.equal(second, busiest), seconds.bytes_, pa.scalar(0, pa.int64()))
    pause()
    return largest(seconds.flow, in_it, seconds.ends)


def _busiest_seconds(
    bucket: pa.Array, second: pa.Array, bytes_: pa.Array, count: int, pause: Pause
) -> pa.Array:
    """For each number of a bucket below `count` the second in which it had most bytes, the first of those
    alike; int32, null where there is no such bucket."""
    at = compute.bit_wise_or(compute.shift_left(bucket, SECOND_BITS), second)
    order = in_order(at, pause)
    at = take(at, order)
    second_ends = ends_of_runs(at)
    sums = differences(take(totals(take(bytes_, order)), second_ends))
    pause()
    at = take(at, second_ends)
    bucket = compute.shift_right(at, SECOND_BITS)
    ends = ends_of_runs(bucket)
    # The earlier a second is, the higher is what stands behind its bytes.
    left = compute.subtract(_LAST, compute.bit_wise_and(at, _LAST)).cast(pa.int64())
    sums = compute.shift_left(compute.min_element_wise(sums, _MAX_BYTES), SECOND_BITS.cast(pa.int64()))
    found = compute.bit_wise_and(largest(bucket, compute.bit_wise_or(sums, left), ends), _LAST)
    busiest = compute.subtract(_LAST, found.cast(pa.int32()))
    return take(busiest, inverse(take(bucket, ends), count))
