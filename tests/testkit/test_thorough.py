"""`make test` and `make test-long` → how many cases a test of very many tries in each."""

from __future__ import annotations

import subprocess
import sys

import pytest

from testkit.repository.page_run import ROOT
from testkit.thorough import VARIABLE, few

PROGRAM = "from testkit.thorough import cases, some; print(cases(1), cases(11), list(some(range(12))))"


@pytest.mark.parametrize(
    ("value", "told"), [("", "1 3 [0, 5, 10, 11]"), ("1", "1 11 [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]")]
)
def test_a_fifth_is_tried_or_all(value: str, told: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env={VARIABLE: value}, cwd=ROOT, capture_output=True, check=True
    )
    assert done.stdout.decode().strip() == told


@pytest.mark.parametrize(
    ("values", "count", "kept"),
    [(range(10), 2, [0, 9]), (range(5), 3, [0, 2, 4]), ("ab", 1, ["a"]), ([(1, 2), (3, 4)], 1, [(1, 2)])],
)
def test_the_few_are_spread_over_all_and_the_others_are_long(
    values: list[object], count: int, kept: list[object]
) -> None:
    marked = few(values, count)
    assert [value for value in marked if value in kept] == kept
    others = [one for one in marked if one not in kept]
    assert all(mark.name == "long" for one in others for mark in one.marks)
    assert len(others) == len(values) - len(kept)
    flat = [one.values if isinstance(kept[0], tuple) else one.values[0] for one in others]
    assert flat == [value for value in values if value not in kept]
