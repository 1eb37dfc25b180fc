"""The committed run of bench-cost → its tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import Any, Final

from tools.recorded.machine import told

_CASES: Final = (
    ("low_rate", "per request, 1,000 requests/s over 50 connections", 1.15, 0.0),
    ("request_1", "per request, 1 connection × 1 in flight", 1.1, 0.0),
    ("request_50", "per request, 50 connections × 1 in flight", 1.3, 1.6),
    ("request_50x5", "per request, 50 connections × 5 in flight", 2.0, 2.5),
    ("gateway_50", "per request, 50 × 1 at a gateway", 1.4, 0.0),
    ("tls_50", "per request, 50 × 1 with TLS to clients", 1.2, 0.0),
    ("gib_produce_1mib", "per GiB, 1 MiB Produce frames", 0.5, 0.0),
    ("gib_fetch_1mib", "per GiB, 1 MiB Fetch answers", 0.5, 0.0),
    ("gib_fetch_10mib", "per GiB, 10 MiB Fetch answers", 0.5, 0.0),
)
"""name, what, the goal of Sluice's, that of Python alone (0: none)"""
_IN_US: Final = 5
"""below so many µs a cost is told with a decimal"""


def lines(run: Mapping[str, Any]) -> Iterator[str]:
    """Ratios by case, then what is no case."""
    free, one_core = run["placements"]["free"], run["placements"]["one-core"]
    rounds = len(next(iter(free["cases"].values()))["cost"]["sluice"])
    haproxy = run["haproxy"].split("+")[0].replace("version ", "")
    yield told(run["machine"], haproxy)
    yield ""
    yield (
        f"| CPU ÷ HAProxy's, everything on: median (lowest–highest) of {rounds} rounds | goal"
        " | both on one core: about equal wake-ups | … Python alone"
        " | requests at a wake-up, Sluice / HAProxy | as the scheduler places them | … Python alone"
        " | requests at a wake-up | … a bare relay on uvloop |"
    )
    yield "|---|---|---|---|---|---|---|---|---|"
    for name, what, goal, pure_goal in _CASES:
        cells = [what, f"≤ {goal}" + (f"; Python alone ≤ {pure_goal}" if pure_goal else "")]
        for part in (one_core, free):
            case = part["cases"][name]
            cells += [_ratio(case, "sluice", goal, is_told=True), _ratio(case, "pure", pure_goal)]
            cells.append(
                "" if "gib" in name else f"{_at_wakeup(case, 'sluice')} / {_at_wakeup(case, 'haproxy')}"
            )
        cells.append(_ratio(free["cases"][name], "relay", 0.0))
        yield f"| {' | '.join(cells)} |"
    yield from _other_lines(run["summary"])


def _other_lines(summary: Mapping[str, Any]) -> Iterator[str]:
    def ours_and_theirs(name: str) -> tuple[str, str]:
        is_steep = summary[name] > summary[f"{name.replace('slope', 'haproxy_slope')}"] * 1.1
        return _ranged(summary, name, is_missed=is_steep), _ranged(
            summary, name.replace("slope", "haproxy_slope")
        )

    steep, theirs = ours_and_theirs("slope_5000_vs_50")
    one_core_steep, one_core_theirs = ours_and_theirs("one_core_slope_5000_vs_50")
    entities = [
        _ranged(summary, name, is_missed=summary[name] > 1.05)
        for name in ("entities_10000_vs_1", "one_core_entities_10000_vs_1")
    ]
    churn = _ranged(summary, "churn_vs_haproxy", is_missed=summary["churn_vs_haproxy"] > 1.5)
    pages = summary["scrape_ms"]
    yield from (
        "",
        "| everything on, the same run | goal | Sluice | HAProxy |",
        "|---|---|---|---|",
        "| CPU per request with 5,000 connections ÷ with 50 | HAProxy's × 1.1"
        f" | {steep}; one core {one_core_steep} | {theirs}; one core {one_core_theirs} |",
        "| CPU per request with 10,000 entities in use ÷ with 1 | ≤ 1.05"
        f" | {entities[0]}; one core {entities[1]} | |",
        "| CPU of one page of metrics, with 1 entity; with 10,000 |"
        f" | {pages['1']:.1f} ms; {pages['10000']:.0f} ms | |",
        "| a connection opened, asked once and closed: CPU ÷ HAProxy's | ≤ 1.5"
        f" | {churn}: {summary['churn_us']:.0f} µs | {summary['haproxy_churn_us']:.0f} µs |",
        f"| KiB per connection at {summary['idle_connections']:,} idle ones | ≤ 8"
        f" | {_bold(summary['idle_kib_per_connection'], 8)} | {summary['haproxy_idle_kib_per_connection']} |",
        "| with no traffic, ms of CPU a second | ≤ 0.5"
        f" | {_bold(summary['idle_ms_per_s'], 0.5)} | {summary['haproxy_idle_ms_per_s']} |",
    )


def _ratio(case: Mapping[str, Any], whose: str, goal: float, *, is_told: bool = False) -> str:
    """Median of the pairs' ratios; `is_told`: with their range, and what it costs."""
    costs = case["cost"]
    if whose not in costs:
        return ""
    ratios = [ours / theirs for ours, theirs in zip(costs[whose], costs["haproxy"], strict=True)]
    text = f"{median(ratios):.2f}"
    if is_told:
        text += f" ({min(ratios):.2f}–{max(ratios):.2f})"
    if goal and median(ratios) > goal:
        text = f"**{text}**"
    if is_told and case["unit"].endswith("request"):
        cost_us = median(costs[whose])
        text += f": {cost_us:.{1 if cost_us < _IN_US else 0}f} µs"
    return text


def _at_wakeup(case: Mapping[str, Any], whose: str) -> str:
    samples: Sequence[Mapping[str, Any]] = case["samples"][whose]
    found = median(sample["requests"] / max(sample["wakeups"], 1) for sample in samples)
    return f"{found:.1f}" if found < 10.0 else f"{found:,.0f}"


def _ranged(summary: Mapping[str, Any], name: str, *, is_missed: bool = False) -> str:
    low, high = summary[f"{name}_range"]
    text = f"{summary[name]:.2f} ({low:.2f}–{high:.2f})"
    return f"**{text}**" if is_missed else text


def _bold(found: float, goal: float) -> str:
    return f"**{found}**" if found > goal else f"{found}"
