"""Numbers as people read them: thousands apart, never an exponent. Pure."""

from __future__ import annotations

from math import floor, isfinite, log10
from typing import Final

_MOST_DECIMALS: Final = 12


def number(value: float, digits: int = 6) -> str:
    """`1,048,576`, `12.5`, `0.00012`: so many significant digits where it is no whole number."""
    if value == 0.0 or not isfinite(value):
        return f"{value + 0.0:g}"  # no -0
    before = floor(log10(abs(value))) + 1
    decimals = min(max(digits - before, 0), _MOST_DECIMALS)
    text = f"{value:,.{decimals}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def as_yaml(value: object) -> str:
    """A value as files have it: Python's True is their true."""
    if value is None or isinstance(value, bool):
        return "null" if value is None else str(value).lower()
    return repr(value)
