"""A Produce that its byte rate refuses (`over_budget: refuse`), until it is answered. Pure.

It is refused as one with new producer ids is, and its batches become sequence gates (gate.py), whether or not
its user has a limit on ids: else the next batch of an idempotent producer would overtake it. Source:
wire-semantics 1.6, 3.4, 3.5.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from sluice.quotas.kinds import KINDS
from sluice.quotas.numbers import number
from sluice.quotas.sensors.sensor import Sensor


class ByteReason(StrEnum):
    """Why a request was refused; the value goes into the access record."""

    OVER_BUDGET = "over_budget"
    """it waited for its turn until its answer budget was over"""
    GATE = "sequence_gate"
    """an earlier batch was refused and has not come again"""


_WHAT_IT_WAITS_FOR: Final = {
    ByteReason.OVER_BUDGET: "this request waits for its turn; it may be sent again",
    ByteReason.GATE: "an earlier batch of this producer waits for its turn",
}


@dataclass(frozen=True, slots=True)
class ByteRefusal:
    """The refusal of one request for its bytes."""

    sensor: Sensor
    """whose limit it is"""
    reason: ByteReason
    held_ms: float = 0.0
    told_ms: float = 0.0
    """how long it will wait if it is sent again"""

    @property
    def message(self) -> str:
        """What the refusal tells people; names the quota."""
        sensor = self.sensor
        spec = KINDS[sensor.kind]
        quota = f"quota {spec.config_key} of {sensor.entity} ({number(sensor.limit)} {spec.limit_unit})"
        return f"{quota}: {_WHAT_IT_WAITS_FOR[self.reason]}"
