"""Python's garbage collector, set for a process whose objects live as long as it does, or a request."""

from __future__ import annotations

import gc


def tune_garbage_collection() -> None:
    """Everything loaded so far stays; the tuples that requests make die young, and none is in a cycle.

    Python's defaults would walk the young every 700 allocations, and all of 5,000 connections now and then.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 10, 10)
