"""What proxies do with a day's demand under given limits, and what of it the access log shows.

A token bucket in steps of a second, with a burst of one second. What does not pass waits and comes next, up
to 30 s of the limit: then clients give up. Columns are (way, entity and proxy): all at once, second
after second.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np

from bench.calibration.entities import DAY_S, WINDOW_S, Array
from sluice.recalibration.policy.demand import DayState
from sluice.recalibration.state.buckets import GROWTH, SCALE

QUEUE_S: Final = 30.0
BURST_S: Final = 1.0
WAIT_S: Final = 0.1
INFLATION_MAX: Final = 10.0


@dataclass(frozen=True, slots=True)
class Passed:
    """A day. Rows are 10-second windows, columns as the limits'."""

    rate: Array
    """bytes per second, as the job takes a window"""
    throttled: Array
    waited: Array
    """of each column: bytes that waited for more than 0.1 s"""


def pass_day(demand: Array, limits: Array, queue: Array, tokens: Array) -> Passed:
    """`demand`: seconds × entities, for each of the ways. `queue` and `tokens` go on from day to day."""
    ways, columns = limits.shape
    windows = DAY_S // WINDOW_S
    rate = np.zeros((windows, ways, columns), np.float32)
    throttled = np.zeros((windows, ways, columns), bool)
    waited = np.zeros((ways, columns), np.float64)
    most, patience = limits * QUEUE_S, limits * WAIT_S
    passed, waiting = np.empty((WINDOW_S, ways, columns)), np.empty((WINDOW_S, ways, columns))
    for window in range(windows):
        chunk = demand[window * WINDOW_S : (window + 1) * WINDOW_S]
        for second in range(WINDOW_S):
            served = passed[second]
            np.add(queue, chunk[second], out=queue)
            np.add(tokens, limits, out=tokens)
            np.minimum(queue, tokens, out=served)
            np.subtract(tokens, served, out=tokens)
            np.minimum(tokens, limits, out=tokens)
            np.subtract(queue, served, out=queue)
            np.minimum(queue, most, out=queue)
            waiting[second] = queue
        # As the job takes a window: its mean, or what the burst cannot take of its busiest second.
        rate[window] = np.maximum(passed.mean(axis=0), passed.max(axis=0) / (1.0 + BURST_S))
        throttled[window] = (waiting > 1e-6 * limits).any(axis=0)
        waited += ((waiting > patience) * chunk[:, None, :]).sum(axis=0)
    return Passed(rate, throttled, waited)


def day_state(rate: Array, throttled: Array) -> DayState | None:
    """As the job folds the log of one entity at one proxy; None: no traffic."""
    busy = rate > 0
    if not busy.any():
        return None
    free, held = busy & ~throttled, busy & throttled
    return DayState(
        free=_counts(rate[free]),
        throttled=_counts(rate[held]),
        # Who is throttled sends as fast as it may: its inflated rate tells nothing.
        inflated=_counts(rate[held] * INFLATION_MAX),
    )


def _counts(rates: Array) -> dict[int, int]:
    buckets = np.ceil(np.log(np.maximum(rates.astype(np.float64) * SCALE, 1.0)) / np.log(GROWTH)).astype(int)
    found, counts = np.unique(buckets, return_counts=True)
    return {int(bucket): int(count) for bucket, count in zip(found, counts, strict=True)}
