"""Nights of calibration in a closed loop: each night's limits shape what the next day's log can show.

What a proxy does with a demand over its limit is simulated as a queue of bytes: what a window leaves behind
comes in the next, up to 30 s of the limit (then clients give up). The state of a day is folded from what
passed, exactly as from an access log; the demand itself is known to the score alone.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import numpy as np

from bench.calibration.entities import NEW, NIGHTS, WINDOW_S, Array, Entity, p99_rate
from sluice.recalibration.policy.capacity import fitted
from sluice.recalibration.policy.demand import DayState, estimate
from sluice.recalibration.policy.policy import Day, propose
from sluice.recalibration.policy.settings import PolicySettings
from sluice.recalibration.state.buckets import GROWTH, SCALE

QUEUE_S: Final = 30.0
INFLATION_MAX: Final = 10.0
OVERSUBSCRIPTION: Final = 1.3

History: TypeAlias = list[DayState | None]
Method: TypeAlias = Callable[[History, float], float]
"""(days so far, None without traffic; the limit in force) → the next limit; bytes per second"""


@dataclass(slots=True)
class Outcome:
    """A run over all nights; row n is day n, a column an entity."""

    entities: Sequence[Entity]
    room: float
    """what all limits together may come to"""
    limits: list[Array] = field(default_factory=list)
    p99: list[list[float]] = field(default_factory=list)
    """of the true demand"""
    throttled: list[Array] = field(default_factory=list)
    """share of the windows with traffic"""


def run(entities: Sequence[Entity], method: Method, nights: int = NIGHTS) -> Outcome:
    """Every entity of one broker under one method."""
    p99 = [[p99_rate(entity.demand(day)) for entity in entities] for day in range(nights)]
    needed = sum(1.15 * max(day[index] for day in p99) for index in range(len(entities)))
    outcome = Outcome(entities, needed * OVERSUBSCRIPTION)
    limits = np.array([_first_limit(entity, p99[0][index]) for index, entity in enumerate(entities)])
    queued = np.zeros(len(entities))
    histories: list[History] = [[] for _ in entities]
    for day in range(nights):
        demand = np.stack([entity.demand(day) for entity in entities])
        served, wanted, queued = _pass(demand, limits, queued)
        throttled = wanted > limits[:, None] * WINDOW_S * 1.0001
        busy = served > 0
        outcome.limits.append(limits)
        outcome.p99.append(p99[day])
        outcome.throttled.append((throttled & busy).sum(1) / np.maximum(busy.sum(1), 1))
        for history, state in zip(histories, _states(served, throttled), strict=True):
            history.append(state if state.windows else None)
        proposed = {index: method(history, float(limits[index])) for index, history in enumerate(histories)}
        limits = np.array(list(fitted(proposed, outcome.room).values()))
    outcome.limits.append(limits)
    return outcome


def sluice(history: History, limit: float) -> float:
    """Ours."""
    latest = len(history) - 1
    states = [(latest - day, state) for day, state in enumerate(history) if state is not None]
    demands = estimate((state for _, state in states), _SETTINGS.quantile)
    days = [
        Day(age, demand, state.windows * WINDOW_S)
        for (age, state), demand in zip(states, demands, strict=True)
    ]
    return propose(days, limit, _SETTINGS).limit


def static(_: History, limit: float) -> float:
    """What teams do by hand, or never."""
    return limit


def naive(history: History, limit: float) -> float:
    """Last day's p99 at face value, × 1.15."""
    state = history[-1]
    if state is None:
        return limit
    seen = dict(state.free)
    for bucket, count in state.throttled.items():
        seen[bucket] = seen.get(bucket, 0) + count
    return max(1.0, 1.15 * estimate([DayState(seen)])[0].rate)


METHODS: Final[dict[str, Method]] = {"sluice": sluice, "static": static, "naive p99": naive}
_SETTINGS: Final = PolicySettings()


def _first_limit(entity: Entity, p99: float) -> float:
    return (
        max(1.0, 1.15 * (entity.base if entity.kind == NEW or not p99 else p99)) * entity.first_limit_factor
    )


def _pass(demand: Array, limits: Array, queued: Array) -> tuple[Array, Array, Array]:
    """(served, wanted, queued at the end), in bytes, all entities at once, window after window."""
    served = np.empty_like(demand)
    wanted = np.empty_like(demand)
    cap = limits * WINDOW_S
    for window in range(demand.shape[1]):
        wanted[:, window] = waiting = queued + demand[:, window]
        served[:, window] = passed = np.minimum(waiting, cap)
        queued = np.minimum(waiting - passed, limits * QUEUE_S)
    return served, wanted, queued


def _states(served: Array, throttled: Array) -> list[DayState]:
    rates = served / WINDOW_S
    buckets = _buckets(rates)
    inflated = _buckets(rates * INFLATION_MAX)  # who is throttled sends as fast as it may: it tells nothing
    busy = served > 0
    return [
        DayState(
            free=_counts(buckets[index][busy[index] & ~throttled[index]]),
            throttled=_counts(buckets[index][busy[index] & throttled[index]]),
            inflated=_counts(inflated[index][busy[index] & throttled[index]]),
        )
        for index in range(len(served))
    ]


def _buckets(rates: Array) -> Array:
    """As sluice.recalibration.state.buckets.bucket_of."""
    found: Array = np.ceil(np.log(np.maximum(rates * SCALE, 1.0)) / np.log(GROWTH)).astype(int)
    return found


def _counts(buckets: Array) -> dict[int, int]:
    return {
        int(bucket): int(count) for bucket, count in zip(*np.unique(buckets, return_counts=True), strict=True)
    }
