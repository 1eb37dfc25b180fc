"""JSON that a program of ours wrote and anything may have damaged since: read strictly. Pure.

Python's reader takes NaN and Infinity for numbers, makes 1e999 infinite, takes halves of surrogate pairs,
which no file can be written with, and ends in RecursionError. Here each is a ValueError, as any other damage.
"""

from __future__ import annotations

import json
import math
import sys
from typing import Any, Final, NoReturn

from sluice.quotas.files.config_error import shown

MOST_LEVELS: Final = 100
"""of lists and objects within each other; ours have six"""


def parse_json(text: str | bytes) -> Any:
    """The value. Raises ValueError if the text is not JSON, or has what Sluice never writes."""
    try:
        found = json.loads(text, parse_constant=_no_number, parse_float=_finite)
    except RecursionError:
        raise ValueError(f"has more than {MOST_LEVELS} levels") from None
    _check_levels(found)
    if (b"\\u" if isinstance(text, bytes) else "\\u") in text:  # type: ignore[operator]
        json.dumps(found, ensure_ascii=False).encode()  # UnicodeEncodeError is a ValueError
    return found


def number_from(value: Any) -> float:
    """A number that Sluice has kept: finite, and not below 0. Raises ValueError for anything else."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not 0 <= value <= sys.float_info.max:
        raise ValueError(f"{shown(value)} is no number from 0 on")
    return float(value)


def text_from(value: Any) -> str:
    """A text that Sluice has kept. Raises ValueError for anything else."""
    if not isinstance(value, str):
        raise ValueError(f"{shown(value)} is no text")
    return value


def _check_levels(found: Any) -> None:
    level = [found]
    for _ in range(MOST_LEVELS + 1):
        containers = [one for one in level if isinstance(one, dict | list)]
        if not containers:
            return
        level = [each for one in containers for each in (one.values() if isinstance(one, dict) else one)]
    raise ValueError(f"has more than {MOST_LEVELS} levels")


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"{text} is no number")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text} is no number that can be kept")
    return value
