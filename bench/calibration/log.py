"""What goes wrong with the log of a date: whole dates and hours that are lost, files twice, clocks apart."""

from typing import Final

import numpy as np

from bench.calibration.entities import Array

LOST: Final[dict[int, frozenset[int]]] = {
    23: frozenset(range(24)),
    31: frozenset(range(8, 16)),
    44: frozenset(range(24)),
    45: frozenset(range(24)),
    58: frozenset(range(4)),
}
"""day → hours of which there are no rows"""
TWICE: Final = {38: 10, 60: 3}
"""day → the hour whose file lies there a second time under another name"""
TIMES_COUNTED: Final = 1
"""how often the job counts the rows of a file that lies there twice"""
CLOCK_APART_WINDOWS: Final = 30
"""by which the second proxy's clock is ahead: 5 minutes"""
WEEK: Final = 7
_WINDOWS_OF_HOUR: Final = 360


def is_missing(day: int) -> bool:
    """There is no log of this date at all: the job refuses the night."""
    return len(LOST.get(day, ())) == 24


def is_incomplete(day: int) -> bool:
    """Rows of this date, or of one of the six before, are lost."""
    return any(each in LOST for each in range(day - WEEK + 1, day + 1))


def as_logged(rate: Array, day: int, proxy: int) -> Array:
    """What the job reads of a proxy's windows."""
    logged = np.roll(rate, CLOCK_APART_WINDOWS) if proxy else rate.copy()
    for hour in LOST.get(day, ()):
        logged[hour * _WINDOWS_OF_HOUR : (hour + 1) * _WINDOWS_OF_HOUR] = 0.0
    if day in TWICE:
        begin = TWICE[day] * _WINDOWS_OF_HOUR
        logged[begin : begin + _WINDOWS_OF_HOUR] *= TIMES_COUNTED
    return logged
