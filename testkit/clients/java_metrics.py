"""What Kafka's performance tools print with --print-metrics."""

from __future__ import annotations

import re


def java_metric(output: str, name: str) -> float:
    """A client's metric of this name, in its unit; the highest, where several tags have one.

    Raises AssertionError if there is none.
    """
    shown = re.findall(rf"^\S+:{re.escape(name)}:\S*\s*: ([-\d.]+|NaN)", output, re.MULTILINE)
    values = [float(value) for value in shown if value != "NaN"]
    assert values, f"no {name} in:\n{output}"
    return max(values)
