"""Early warning: who has come near its limit, before anything of it is delayed; and who has fallen back.

    QUIET ── utilisation ≥ share ──► NEAR ── still, SURE_MS later ──► WARNED ── < RELEASE · share ──► QUIET
      ▲                                │
      └───────── < share ──────────────┘

Utilisation is a mean over 10 to 20 s (Sensor.utilisation), and a warning needs two looks SURE_MS apart,
between which it was never seen below: so neither a burst nor the first seconds of a bucket warn. What ends a
warning lies a tenth lower than what begins it, so that who hovers at the share does not flap, and begins one
each SURE_MS at most. Of a limit in shadow mode the same is told. Values in, lines out: knows no clock and no
log.
"""

from __future__ import annotations

from typing import Final

from sluice.proxy.metrics.throttle_log import Fields, ThrottleLine, limit_field, whom
from sluice.proxy.runtime.log import LineBudget
from sluice.quotas.sensors.sensor import Sensor

SURE_MS: Final = 10_000.0
RELEASE: Final = 0.9
"""the share of the share below which a warning ends"""


class _Near:
    """A sensor at or above the share."""

    __slots__ = ("peak", "since_ms", "warned")

    def __init__(self, now_ms: float) -> None:
        self.since_ms = now_ms
        self.warned = False
        self.peak = 0.0


class QuotaWarnings:
    """The warnings of all running sensors; bounded by them."""

    def __init__(self, share: float, budget: LineBudget) -> None:
        """`share` of a limit at which to warn; 0: never. It may be set at any time."""
        self.share = share
        self._budget = budget
        self._near: dict[Sensor, _Near] = {}
        self.lines: list[ThrottleLine] = []
        """to be written and taken out"""

    def look(self, sensor: Sensor, utilisation: float, now_ms: float) -> bool:
        """To be called every few seconds of each sensor. True: a warning of it begins now."""
        near = self._near.get(sensor)
        if near is None:
            if 0.0 < self.share <= utilisation:
                self._near[sensor] = _Near(now_ms)
            return False
        near.peak = max(near.peak, utilisation)
        if near.warned:
            if not self.share or utilisation < RELEASE * self.share:
                self._end(sensor, near, now_ms)
        elif not self.share or utilisation < self.share:
            del self._near[sensor]
        elif now_ms - near.since_ms >= SURE_MS:
            near.warned = True
            self._line("quota_warning_began", sensor, {"utilization": round(utilisation, 3)}, now_ms)
            return True
        return False

    def is_warned(self, sensor: Sensor) -> bool:
        """Whether a warning of it has begun and not ended."""
        near = self._near.get(sensor)
        return near is not None and near.warned

    def forget(self, sensor: Sensor, now_ms: float) -> None:
        """It runs no more."""
        near = self._near.get(sensor)
        if near is not None and near.warned:
            self._end(sensor, near, now_ms)
        self._near.pop(sensor, None)

    def _end(self, sensor: Sensor, near: _Near, now_ms: float) -> None:
        del self._near[sensor]
        figures = {
            "lasted_s": round((now_ms - near.since_ms) / 1000.0, 1),
            "peak_utilization": round(near.peak, 3),
        }
        self._line("quota_warning_ended", sensor, figures, now_ms)

    def _line(self, name: str, sensor: Sensor, figures: dict[str, float], now_ms: float) -> None:
        if not self._budget.take(now_ms):
            return
        fields: Fields = {
            **whom(sensor.kind.value, sensor.level.value, sensor.entity),
            **limit_field(sensor.kind.value, sensor.limit),
            "share": self.share,
            **figures,
        }
        if sensor.shadow:
            fields["shadow"] = True
        suppressed = self._budget.suppressed()
        if suppressed:
            fields["lines_suppressed"] = suppressed
        self.lines.append((name, fields))
