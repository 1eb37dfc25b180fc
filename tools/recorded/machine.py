"""The line above a table: when and on what it was measured."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def told(machine: Mapping[str, Any], *more: str) -> str:
    """`more`: what else took part."""
    parts = [
        f"Of {machine['ended'][:10]}, {machine['processor']}, {machine['cores']} cores",
        f"Python {machine['python']}",
        *more,
        f"{machine['steal_share']:.1%} stolen by the host",
    ]
    return f"{', '.join(parts)}. Bold: a goal missed."
