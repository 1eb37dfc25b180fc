"""Sums by runs of rows, against sums that are made one by one."""

from __future__ import annotations

from collections import defaultdict

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from sluice.proxy.access_log.runs import differences, ends_of_runs, in_order, largest, take, totals

NUMBERS = st.one_of(
    st.integers(0, 9), st.integers(4090, 4100), st.integers(2**24 - 2, 2**24 + 2), st.integers(0, 2**62)
)


def int64(values: list[int]) -> pa.Array:
    return pa.array(values, pa.int64())


def test_the_example_of_the_docstring() -> None:
    ends = ends_of_runs(int64([1, 1, 4, 4, 9]))
    assert ends.to_pylist() == [1, 3, 4]
    at_ends = take(totals(int64([2, 3, 1, 5, 7])), ends)
    assert at_ends.to_pylist() == [5, 11, 18]
    assert differences(at_ends).to_pylist() == [5, 6, 7]


@given(st.lists(NUMBERS))
def test_rows_are_in_the_order_of_their_numbers_and_else_of_themselves(numbers: list[int]) -> None:
    assert in_order(int64(numbers)).to_pylist() == sorted(range(len(numbers)), key=numbers.__getitem__)


@given(st.lists(st.integers(-(2**63), 2**63 - 1)))
def test_every_row_has_a_place_whatever_its_number(numbers: list[int]) -> None:
    assert sorted(in_order(int64(numbers)).to_pylist()) == list(range(len(numbers)))


@given(st.lists(st.tuples(NUMBERS, st.integers(0, 2**32 - 1))))
def test_sums_of_runs(rows: list[tuple[int, int]]) -> None:
    expected: defaultdict[int, int] = defaultdict(int)
    for number, value in rows:
        expected[number] += value
    numbers, values = int64([number for number, _ in rows]), int64([value for _, value in rows])
    order = in_order(numbers)
    numbers = take(numbers, order)
    ends = ends_of_runs(numbers)
    sums = differences(take(totals(take(values, order)), ends))
    assert dict(zip(take(numbers, ends).to_pylist(), sums.to_pylist(), strict=True)) == expected


@given(st.lists(st.tuples(st.integers(0, 2**25 - 1), st.integers(0, 2**38 - 1))))
def test_the_largest_of_each_run(rows: list[tuple[int, int]]) -> None:
    rows.sort(key=lambda row: row[0])
    expected: dict[int, int] = {}
    for run, value in rows:
        expected[run] = max(expected.get(run, 0), value)
    runs = pa.array([run for run, _ in rows], pa.int32())
    found = largest(runs, int64([value for _, value in rows]), ends_of_runs(runs))
    assert found.to_pylist() == list(expected.values())


def test_a_time_is_not_changed_by_those_before_it() -> None:
    """To 10⁻⁹ ms behind 10⁵ others of 3.3 ms; a zero is zero."""
    sums = differences(totals(pa.array([3.3] * 100_000 + [0.0, 0.25], pa.float64())))
    zero, last = sums.to_pylist()[-2:]
    assert zero == 0.0
    assert abs(last - 0.25) < 1e-9
