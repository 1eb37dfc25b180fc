"""Figures and names as people read them, in `sluice top` and on the status page. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from sluice.quotas.names import printable
from sluice.quotas.numbers import number

BYTES_PER_S: Final = "bytes per second"
IDS_PER_HOUR: Final = "new producer ids per hour"
SHORT_UNITS: Final = {
    "percent of one broker thread": "%",
    "partitions created or deleted per second": "partitions/s",
    IDS_PER_HOUR: "ids/h",
    "new connections per second": "connections/s",
}
_COUNTED: Final = ("partitions", "connections")
_SI: Final = ((1e9, "GB/s"), (1e6, "MB/s"), (1e3, "kB/s"))
LEAST_SHARE: Final = 0.01
"""below it a share is told as less than that"""
_MS_PER: Final = ((3_600_000.0, "h"), (60_000.0, "min"), (1_000.0, "s"))


def who(bucket: Mapping[str, str]) -> str:
    """`user alice, client-id app`."""
    return ", ".join(f"{key} {printable(name)}" for key, name in bucket.items()) or "everybody"


def amount(value: float, unit: str) -> str:
    """A rate with its unit, as short as can be: `1.05 MB/s`, `50 %`."""
    if unit == BYTES_PER_S:
        for factor, name in _SI:
            if value >= factor:
                return f"{value / factor:,.2f} {name}"
        return f"{value:,.0f} B/s"
    return f"{number(value, 4)} {SHORT_UNITS.get(unit, unit)}"


def brief(text: str) -> str:
    """An amount beside its quota's name, which says what is counted: `12 connections/s` → `12/s`."""
    for counted in _COUNTED:
        text = text.replace(f" {counted}/s", "/s")
    return text


def used(value: float, unit: str) -> str:
    """What is used of a limit: of ids an hour so many are gone of the burst, and no rate."""
    return f"{number(value, 4)} ids" if unit == IDS_PER_HOUR else amount(value, unit)


def share(part: float) -> str:
    """A share of a minute, say, as people read it: `37%`, `<1%`; nothing for none."""
    if part <= 0.0:
        return ""
    return f"{part:.0%}" if part >= LEAST_SHARE else "<1%"


def duration(ms: float) -> str:
    """`523 ms`, `3.2 s`, `1.5 h`; nothing for none."""
    for factor, name in _MS_PER:
        if ms >= factor:
            return f"{ms / factor:,.1f} {name}"
    return f"{ms:,.0f} ms" if ms > 0.0 else ""
