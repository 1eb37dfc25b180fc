"""Sums of many small groups by Arrow: rows are put in order, so that each group is a run of rows.

A run's sum is the difference of two running totals, those at its end and at the end of the run before it:

    number  1   1   4   4   9        ends of runs   1   3   4   (rows, from 0)
    value   2   3   1   5   7        totals there   5  11  18
    total   2   5   6  11  18        sums           5   6   7

Beside a loop that uses the caches, too, two thirds of the time of Arrow's group_by, which reads and writes a
table all over where this goes from one end to the other.
Totals of doubles are rounded at each row, at some 10⁵ by 3 · 10⁻¹¹ at most: a sum is wrong by that much for
each of its own rows, whatever came before it, and one of zeros is zero.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

import pyarrow as pa
from pyarrow import compute

Pause: TypeAlias = Callable[[], None]
_BITS_AT_ONCE: Final = 12
"""of numbers that are put in order; of more, Arrow compares them"""
_MAX_SUM_BITS: Final = 38
"""of a sum whose largest is looked for: 275 GB; it leaves 25 for the number of its run"""


def no_pause() -> None:
    """For who need not let others run."""


def in_order(numbers: pa.Array, pause: Pause = no_pause) -> pa.Array:
    """The rows in the order of their numbers, and of themselves where those are the same.

    By twelve bits at a time, lowest first: numbers that are so close together are counted by Arrow instead of
    compared, which takes a seventh of the time in all. Where numbers below 0 are put is not said.
    """
    rows: pa.Array | None = None
    for shift in range(0, max(compute.max(numbers).as_py() or 0, 1).bit_length(), _BITS_AT_ONCE):
        digits = numbers if rows is None else compute.shift_right(take(numbers, rows), shift)
        by_digit = compute.array_sort_indices(compute.bit_wise_and(digits, 2**_BITS_AT_ONCE - 1))
        rows = by_digit if rows is None else take(rows, by_digit)
        pause()
    return rows


def take(values: pa.Array, rows: pa.Array) -> pa.Array:
    """Rows that are known to be there."""
    return compute.take(values, rows, boundscheck=False)


def inverse(of: pa.Array, count: int) -> pa.Array:
    """For each number below `count`, where in `of` it is, as int32; null: nowhere."""
    if not count:
        return pa.array((), pa.int32())
    return compute.inverse_permutation(of, max_index=count - 1, output_type=pa.int32())


def are_distinct(numbers: pa.Array, below: int) -> bool:
    """A fifth of the time that count_distinct takes."""
    return bool(below - inverse(numbers, below).null_count == len(numbers))


def ends_of_runs(numbers: pa.Array) -> pa.Array:
    """The last row of each run of the same number."""
    if not len(numbers):
        return pa.array((), pa.uint64())
    last = len(numbers) - 1
    changes = compute.not_equal(numbers.slice(1), numbers.slice(0, last))
    return pa.concat_arrays([compute.indices_nonzero(changes), pa.array([last], pa.uint64())])


def differences(values: pa.Array) -> pa.Array:
    """How much each value is above the one before it; the first, above 0."""
    if not len(values):
        return values
    before = pa.concat_arrays([pa.array([0], values.type), values.slice(0, len(values) - 1)])
    return compute.subtract(values, before)


def totals(values: pa.Array) -> pa.Array:
    """The sum of all values up to each row."""
    return compute.cumulative_sum(values)


def largest(runs: pa.Array, sums: pa.Array, ends: pa.Array) -> pa.Array:
    """The largest of the sums in each run; `runs`: whose, in order, `ends`: their ends, `sums`: int64.

    Whose it is stands above the bits of the sum, so that the largest up to a run's end is one of that run.
    """
    both = compute.bit_wise_or(compute.shift_left(runs.cast(pa.int64()), _MAX_SUM_BITS), sums)
    found = take(compute.cumulative_max(both), ends)
    return compute.bit_wise_and(found, 2**_MAX_SUM_BITS - 1)
