"""How much a test tries that could go on for ever: a part in `make test`, all of it in `make test-long`.

A test of random or very many cases asks here how many, and is marked `thorough` (what Hypothesis runs has a
mark of Hypothesis's own), so that `make test-long` runs it again with all of them. `make coverage` and
`make mutants` try all, too.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from typing import Any, Final, TypeVar

import pytest

VARIABLE: Final = "TESTS_THOROUGH"
IS_THOROUGH: Final = bool(os.environ.get(VARIABLE))
_T = TypeVar("_T")
_PART: Final = 5
"""of so many cases `make test` tries one"""


def cases(all_of_them: int) -> int:
    """How many of so many random cases are tried, at least one."""
    return all_of_them if IS_THOROUGH else math.ceil(all_of_them / _PART)


def some(all_of_them: Sequence[_T]) -> Sequence[_T]:
    """Of so many, those that are tried: each fifth, the first and the last among them."""
    return all_of_them if IS_THOROUGH else [*all_of_them[::_PART], *all_of_them[-1:]]


def few(values: Sequence[Any], count: int) -> list[Any]:
    """Parameters of a test: so many of them, spread over all, as they are; the others are marked `long`."""
    kept = {round(index * (len(values) - 1) / max(1, count - 1)) for index in range(count)}
    return [
        value if number in kept else pytest.param(*_as_parameters(value), marks=pytest.mark.long)
        for number, value in enumerate(values)
    ]


def _as_parameters(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)
