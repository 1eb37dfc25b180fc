"""What is said of a metric."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class MetricDefinition:
    """What one metric family is called, counts and means."""

    name: str
    type: Literal["counter", "gauge", "histogram", "info"]
    labels: tuple[str, ...]
    unit: str
    help: str
    """one sentence"""

    @property
    def family(self) -> str:
        """The name without the suffix that its type adds."""
        suffix = {"counter": "_total", "info": "_info"}.get(self.type, "")
        return self.name.removesuffix(suffix)
