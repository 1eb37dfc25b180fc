"""Whether a night's date lies weeks behind all that are known: the clock may be wrong, or nights have paused.

By a clock that is a year ahead all that nights have left is too old to keep. So nothing is removed before
dates on this side of such a leap make up four weeks: no clock stays wrong for so long without being seen.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date
from typing import Final

LEAP_DAYS: Final = 28


def leap_before(known: Iterable[date], latest: date) -> date | None:
    """The last of the dates before the leap; None: there is none, or it is four weeks past.

    Nights on 1 to 3 November, by a clock that is ahead on 5 May, and on the next day: 3 November.
    """
    after = latest
    for day in sorted((day for day in known if day < latest), reverse=True):
        if (latest - after).days >= LEAP_DAYS:
            return None
        if (after - day).days >= LEAP_DAYS:
            return day
        after = day
    return None
