"""Numbers as people read them."""

from __future__ import annotations

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.quotas.numbers import number


@pytest.mark.parametrize(
    ("value", "digits", "text"),
    [
        (1_048_576, 6, "1,048,576"),
        (1_096_240.5, 6, "1,096,240"),
        (12.5, 6, "12.5"),
        (10_000, 4, "10,000"),
        (220_000.0, 4, "220,000"),
        (0.1, 6, "0.1"),
        (0.000_012_345_678, 4, "0.00001235"),
        (1 / 3, 4, "0.3333"),
        (999.999_9, 4, "1,000"),
        (-523_456.789, 6, "-523,457"),
        (0, 6, "0"),
        (-0.0, 6, "0"),
        (inf, 6, "inf"),
        (1e15, 6, "1,000,000,000,000,000"),
        (1.234_567_8e-10, 6, "0.000000000123"),  # twelve places are the most
        (4e-13, 6, "0"),
    ],
)
def test_numbers(value: float, digits: int, text: str) -> None:
    assert number(value, digits) == text


@given(st.floats(1e-6, 1e15), st.integers(1, 12))
def test_a_number_is_never_far_from_what_is_shown_and_has_no_exponent(value: float, digits: int) -> None:
    shown = number(value, digits)
    assert "e" not in shown
    assert float(shown.replace(",", "")) == pytest.approx(value, rel=0.51 * 10 ** (1 - digits))
