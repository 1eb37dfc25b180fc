"""Metric families → what Prometheus reads: its own text, or OpenMetrics if it asks for that.

Made a few samples at a time, so that a scrape of 10,000 series stalls no connection, and by code of our own:
prometheus_client 0.26 takes 5 to 8 µs a sample, and writes all of them in one call.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from functools import lru_cache
from typing import Final, Protocol

from prometheus_client.exposition import choose_encoder

from sluice.proxy.metrics.family import Family

_SAMPLES_PER_STEP: Final = 200
"""about 0.5 ms of work between which connections are served"""


class Page(Protocol):
    """What one path of the admin port shows."""

    async def refresh(self) -> None:
        """Take in what was counted up to now."""

    def collect(self) -> Iterable[Family]:
        """All families, as they are now."""


async def exposition(page: Page, accept: str) -> tuple[bytes, str]:
    """What the page answers now: (body, content type).

    `accept` is the request's Accept header: OpenMetrics if it asks for that, else Prometheus' text.
    """
    await page.refresh()
    _, content_type = choose_encoder(accept)
    is_openmetrics = content_type.startswith("application/openmetrics-text")
    parts: list[str] = []
    until = _SAMPLES_PER_STEP
    for family in page.collect():
        # OpenMetrics names the family, Prometheus' text its samples.
        is_named_total = family.type == "counter" and not is_openmetrics
        name = f"{family.name}_total" if is_named_total else family.name
        parts.append(_heading(name, family.type, family.documentation))
        for begin in range(0, len(family.samples), _SAMPLES_PER_STEP):
            parts.extend(map(_line, family.samples[begin : begin + _SAMPLES_PER_STEP]))
            if len(parts) >= until:
                until = len(parts) + _SAMPLES_PER_STEP
                await asyncio.sleep(0)
    if is_openmetrics:
        parts.append("# EOF\n")
    return "".join(parts).encode(), content_type


@lru_cache(maxsize=1_000)
def _heading(name: str, type_: str, documentation: str) -> str:
    text = documentation.replace("\\", r"\\").replace("\n", r"\n")
    return f"# HELP {name} {text}\n# TYPE {name} {type_}\n"


def _line(sample: tuple[str, float]) -> str:
    shown = repr(float(sample[1]))
    return f"{sample[0]} NaN\n" if shown == "nan" else f"{sample[0]} {shown}\n"
