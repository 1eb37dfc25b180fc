"""How good limits were, 0 to 100 a class, from what the entities really wanted, second by second. Pure.

A legitimate class has three parts:
*unwaited* (60): days from the eighth on with traffic; 1 if at most 0.1 % of the bytes waited for more than
  100 ms, down to 0 at 5.1 %.
*fit* (30): every seventh night from the 28th on, the limit ÷ the largest need of the 28 days before and
  the 28 after: 1 between 0.9 and 1.6, down to 0 at 0.45 and at 4.
*stability* (10): nights from the 28th on, for classes that do not change, on which the limit stayed
  within 1 %.
An abuser's class is 100 × the share whose limit never passed 2.5 × the larger of what it was when the abuse
began and its own calm need. A class that fits no more into the room on some night counts half.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np

from bench.calibration.entities import ABUSERS, CHANGELESS, CLASSES, NIGHTS, STEPS, Array
from bench.calibration.loop import Outcome

PARTS: Final = {"unwaited": 60, "fit": 30, "stability": 10}
ALLOWED: Final = 0.001
ABUSE_FACTOR: Final = 2.5
_FIRST_DAY: Final = 7
_SETTLED: Final = 28
_FORESEEN: Final = 1.6
"""as far as a limit may lie above the need and fit it"""


@dataclass(frozen=True, slots=True)
class Score:
    """How well one run did, in one way of applying plans."""

    by_class: dict[str, float]
    parts: dict[str, dict[str, float]]
    """class → part → 0 … 1"""
    step_days: list[float]
    """of each legitimate step: days until the limit reached the largest need of its first seven days"""
    step_days_waited: list[float]
    """of each: days until at most 0.1 % of the bytes waited; a limit 3 % below that need may do, and then
    it stays, for changes below 10 % are not made"""
    ratios: list[float]
    """limit ÷ need of each legitimate entity after the last night"""
    never_waited: int
    """legitimate entities that never wait under the limits that they were given at first"""
    now_wait: int
    """of these, how many do"""
    foreseen_never_waited: int
    """of those who never waited, the ones whose days could be told from the days before (`_is_foreseen`)"""
    foreseen_now_wait: int

    @property
    def total(self) -> float:
        return float(np.mean(list(self.by_class.values())))


def score(outcome: Outcome, way: str) -> Score:
    parts: dict[str, dict[str, list[float]]] = {kind: {} for kind in CLASSES}
    steps, waits_of_steps, ratios, still, worse, foreseen, surprised = [], [], [], 0, 0, 0, 0
    limits, waited = outcome.limits[way], outcome.waited[way]
    for index, entity in enumerate(outcome.entities):
        own, needs = limits[:, index], outcome.need[:, index]
        found = parts[entity.kind]
        if entity.is_abuser:
            allowed = ABUSE_FACTOR * max(own[entity.event_day], needs.max())
            found.setdefault("contained", []).append(float(own[entity.event_day :].max() <= allowed))
            continue
        busy = [day for day in range(_FIRST_DAY, len(needs)) if needs[day] > 0]
        late = waited[busy, index]
        found.setdefault("unwaited", []).extend(np.clip(1 - (late - ALLOWED) / 0.05, 0, 1))
        for night in range(_SETTLED, len(own), 7):
            near = needs[max(0, night - 28) : night + 28].max()
            if near > 0:
                found.setdefault("fit", []).append(_fit(own[night] / near))
        if entity.kind in CHANGELESS:
            moved = np.abs(np.diff(np.log(own[_SETTLED:]))) > 0.01
            found.setdefault("stability", []).append(1 - float(moved.mean()))
        ratios.append(float(own[-1] / needs[-_SETTLED:].max()) if needs[-_SETTLED:].max() else 1.0)
        if entity.kind in STEPS:
            after = needs[entity.event_day : entity.event_day + 7].max()
            enough = np.nonzero(own[entity.event_day :] >= after)[0]
            steps.append(float(enough[0]) if len(enough) else float(NIGHTS - entity.event_day))
            calm = np.nonzero(waited[entity.event_day :, index] <= ALLOWED)[0]
            waits_of_steps.append(float(calm[0]) if len(calm) else float(NIGHTS - entity.event_day))
        if (outcome.waited["static"][:, index] <= ALLOWED).all():
            waits = bool(_share(outcome, way, index) > ALLOWED)
            still, worse = still + 1, worse + waits
            if _is_foreseen(needs):
                foreseen, surprised = foreseen + 1, surprised + waits
    means = {
        kind: {part: float(np.mean(each)) for part, each in found.items()} for kind, found in parts.items()
    }
    fits = bool((limits[-1].sum()) <= outcome.room * 1.000001)
    by_class = {
        kind: (100 * found["contained"] if kind in ABUSERS else _weighted(found)) * (1 if fits else 0.5)
        for kind, found in means.items()
    }
    return Score(by_class, means, steps, waits_of_steps, ratios, still, worse, foreseen, surprised)


def _is_foreseen(needs: Array) -> bool:
    """No day from its second week with traffic on asks for more than 1.6 × all the days before it.

    Who never waited under a limit of several times its need, and then wants three times as much on a day that
    nothing announced, waits under every limit that fits the need; it is counted in `now_wait` all the same.
    """
    busy = needs[needs > 0]
    before = np.maximum.accumulate(busy)[_FIRST_DAY - 1 : -1]
    return bool((busy[_FIRST_DAY:] <= _FORESEEN * before).all())


def _share(outcome: Outcome, way: str, index: int) -> float:
    """Of all its days with traffic, alike."""
    return float(outcome.waited[way][outcome.need[:, index] > 0, index].mean())


def _fit(ratio: float) -> float:
    if ratio < 0.9:
        return max(0.0, (ratio - 0.45) / 0.45)
    return 1.0 if ratio <= 1.6 else max(0.0, 1 - (ratio - 1.6) / 2.4)


def _weighted(found: dict[str, float]) -> float:
    weight = sum(PARTS[part] for part in found)
    return 100 * sum(PARTS[part] * value for part, value in found.items()) / weight
