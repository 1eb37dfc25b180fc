"""Waiting for what will be so in a moment."""

from __future__ import annotations

import time
from collections.abc import Callable


def wait_until(seen: Callable[[], bool], within_s: float = 20.0) -> None:
    """Until something can be seen."""
    deadline_s = time.monotonic() + within_s
    while not seen():
        assert time.monotonic() < deadline_s, "it was not seen in time"
        time.sleep(0.005)
