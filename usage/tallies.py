"""Requests counted by size and time, in a list that is one to many thousands of them.

A tally is a list: how many requests had a size in slot k, …, a duration in slot k, …, and the two sums.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple, TypeAlias

from sluice.usage.records import RequestRecord

SIZE_SLOTS: Final = 33
"""slot k: sizes of at most 2^k bytes (and more than 2^(k−1))"""
DURATION_SLOTS: Final = 64
"""slot k: durations of less than 2^k / 8 ms (and at least 2^(k−1) / 8)"""
SLOTS_PER_MS: Final = 8.0
DURATION_AT: Final = SIZE_SLOTS
SIZE_SUM: Final = DURATION_AT + DURATION_SLOTS
"""bytes"""
DURATION_SUM: Final = SIZE_SUM + 1
"""ms"""
Tally: TypeAlias = list[float]
PackedRequests: TypeAlias = tuple[bytes, bytes, bytes, bytes]
"""their flows' numbers, request bytes and response bytes (uint32), and times to the answer (double, ms)"""


class Counting(NamedTuple):
    """Compiled functions that look at each request's record, where Python need not (proxy/pump/usage.pxi)."""

    tally: Callable[[list[RequestRecord], dict[int, Tally]], list[RequestRecord]]
    """Into the tallies of their APIs, those within a quota; the others are returned, uncounted."""
    pack: Callable[[list[RequestRecord], float], PackedRequests | None]
    """None: one of them has a flow without a number, was throttled, or took so many ms or more."""


def new_tally() -> Tally:
    """A tally in which all is zero."""
    return [0] * (DURATION_SUM + 1)
