"""What a page tells of one metric family, in the words that Prometheus reads.

prometheus_client's Metric makes an object and a dict of each sample at every scrape. A sample's name and
labels are the same text each time: here it is kept, and a sample is that text and a number.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

from prometheus_client.core import Metric

_KEPT: Final = 20_000
"""texts of some 150 bytes; twice what metrics.max_series allows by default"""


@dataclass(slots=True)
class Family:
    """One family at the moment of a scrape."""

    name: str
    """of the family: a counter's is without `_total`"""
    type: str
    """as Prometheus calls it"""
    documentation: str
    samples: list[tuple[str, float]] = field(default_factory=list)
    """(name and labels, value)"""


@lru_cache(maxsize=_KEPT)
def series_text(name: str, labels: tuple[str, ...], values: tuple[str, ...]) -> str:
    """A sample's name and labels: `name{label="value"}`."""
    if not labels:
        return name
    pairs = [f'{label}="{_escaped(value)}"' for label, value in zip(labels, values, strict=True)]
    return f"{name}{{{','.join(pairs)}}}"


def family_of(metric: Metric) -> Family:
    """One of prometheus_client's own."""
    family = Family(metric.name, metric.type, metric.documentation)
    for sample in metric.samples:
        text = series_text(sample.name, tuple(sample.labels), tuple(sample.labels.values()))
        family.samples.append((text, sample.value))
    return family


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
