"""How good limits were, 0 to 100, from what the entities really wanted. Pure.

Five parts, each 0 … 1, weighted 25, 30, 15, 20, 10; halved if the limits of the last night pass the room.
*Share right* (25): legitimate entities whose last limit is within ± 25 % of 1.15 × their worst day's p99.
*Unthrottled* (30): legitimate entity-days, from day 1 on, on which at most 1 % of the windows were throttled.
*Slack* (15): 1 for a limit up to 1.25 × that target, down to 0 at 4 ×.
*Abuse* (20): abusers whose limit never passed 2.5 × what it was when the abuse began.
*Stability* (10): nights of the second week on which the limit of an entity that does not change stayed.
The idle have no demand to be right about; they count as unthrottled or not.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np

from bench.calibration.entities import ABUSIVE, BATCH, BURSTY, DIURNAL, IDLE, STEADY, THROTTLED, WEEKLY
from bench.calibration.loop import Outcome

WEIGHTS: Final = {"share_right": 25, "unthrottled": 30, "slack": 15, "abuse": 20, "stability": 10}
_UNCHANGING: Final = frozenset({STEADY, DIURNAL, WEEKLY, BURSTY, THROTTLED, BATCH})
_SECOND_WEEK: Final = 7


@dataclass(frozen=True, slots=True)
class Score:
    """Of one run."""

    parts: dict[str, float]
    by_class: dict[str, dict[str, float]]
    fits: bool

    @property
    def total(self) -> float:
        """0 … 100."""
        weighted = sum(weight * self.parts[part] for part, weight in WEIGHTS.items())
        return weighted if self.fits else weighted / 2


def score(outcome: Outcome) -> Score:
    samples: dict[str, dict[str, list[float]]] = {}
    limits = np.array(outcome.limits)
    p99 = np.array(outcome.p99)
    for index, entity in enumerate(outcome.entities):
        own = limits[:, index]
        of_class = samples.setdefault(entity.kind, {part: [] for part in WEIGHTS})
        if entity.kind == ABUSIVE:
            begun = entity.event_day
            of_class["abuse"].append(float(own[begun + 1 :].max() <= 2.5 * own[begun]))
            continue
        of_class["unthrottled"] += [
            float(outcome.throttled[day][index] <= 0.01) for day in range(1, len(p99)) if p99[day, index] > 0
        ]
        if entity.kind == IDLE:
            continue
        ratio = own[-1] / (1.15 * p99[:, index].max())
        of_class["share_right"].append(float(abs(ratio - 1) <= 0.25))
        of_class["slack"].append(min(1.0, max(0.0, 1 - (ratio - 1.25) / (4 - 1.25))))
        if entity.kind in _UNCHANGING:
            changed = np.abs(np.diff(np.log(own[_SECOND_WEEK:]))) > 0.01
            of_class["stability"].append(1.0 - float(changed.mean()))
    return Score(
        parts={part: _mean([x for of_class in samples.values() for x in of_class[part]]) for part in WEIGHTS},
        by_class={
            kind: {part: _mean(found) for part, found in of_class.items() if found}
            for kind, of_class in samples.items()
        },
        fits=bool(limits[-1].sum() <= outcome.room * 1.000001),
    )


def _mean(found: list[float]) -> float:
    return float(np.mean(found))
