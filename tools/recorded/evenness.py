"""The committed run of bench-evenness → its table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from tools.recorded.machine import told

_ROWS: Final[Sequence[tuple[str, str, str, float, float]]] = (
    ("produce, one Java producer: rate ÷ quota", "produce_rate_ratio", "{:.3f}", 0.99, 1.01),
    ("… variation per second", "produce_cv", "{:.1%}", 0.0, 0.03),
    ("… p99 latency", "produce_p99_s", "{:.2f} s", 0.0, 1.1),
    ("consume, one Java consumer: rate ÷ quota", "consume_rate_ratio", "{:.3f}", 0.99, 1.01),
    ("… variation per second", "consume_cv", "{:.1%}", 0.0, 0.03),
    ("50 connections: Jain (worse of produce and fetch)", "jain_50", "{:.3f}", 0.98, 1.0),
    ("… longest gap of a connection", "longest_gap_50_s", "{:.2f} s", 0.0, 3.0),
    (
        "50 connections × 1 MiB × 5 in flight ÷ stated bound",
        "large_requests_rate_vs_bound",
        "{:.3f}",
        0.0,
        1.0,
    ),
    ("who reconnects for every request ÷ stated bound", "reconnecting_rate_vs_bound", "{:.3f}", 0.0, 1.0),
    ("`overload_peak_vs_bound`: the highest second of three", "overload_peak_vs_bound", "{:.2f}", 0.0, 1.05),
    ("`overload_cv`", "overload_cv", "{:.3f}", 0.0, 0.1),
    ("`small_beside_large_p99_s`", "small_beside_large_p99_s", "{:.3f} s", 0.0, 0.25),
    ("`fetch_50_small_vs_rate`", "fetch_50_small_vs_rate", "{:.3f}", 0.0, 1.1),
    ("`fetch_reconnect_vs_rate`", "fetch_reconnect_vs_rate", "{:.3f}", 0.0, 1.1),
    ("`fetch_useful_share`", "fetch_useful_share", "{:.3f}", 0.95, 1.0),
    ("`fetch_longest_wait_rounds`", "fetch_longest_wait_rounds", "{:.2f}", 0.0, 2.0),
    ("`told_vs_waited` of Produce", "told_vs_waited", "{:.3f}", 0.8, 1.25),
    ("`fetch_told_vs_waited`", "fetch_told_vs_waited", "{:.3f}", 0.8, 1.25),
    ("`broker_sessions_leaked`", "broker_sessions_leaked", "{:.0f}", 0.0, 0.0),
)
"""What, the figure's name, how it is written, the goal's ends"""


def lines(run: Mapping[str, Any]) -> Iterator[str]:
    """A row for each figure, the broker's own quota beside it where it was measured."""
    summary = run["summary"]
    yield told(run["machine"])
    yield ""
    yield "| evenness, quota 1,000,000 B/s | goal | Sluice | the broker's own |"
    yield "|---|---|---|---|"
    for what, name, form, least, most in _ROWS:
        found, native = summary[name], summary.get(f"native_{name}")
        shown = form.format(found)
        # Judged as it is written: 1.0003 is told as 1.000, and is no miss of ≤ 1.
        written = float(shown.removesuffix(" s").removesuffix("%")) / (100 if "%" in form else 1)
        is_met = least <= written <= most
        beside = "" if native is None else form.format(native)
        yield f"| {what} | {_goal(form, least, most)} | {shown if is_met else f'**{shown}**'} | {beside} |"


def _goal(form: str, least: float, most: float) -> str:
    unit = " s" if form.endswith(" s") else ""
    if form.endswith("%}"):
        return f"≤ {most:.0%}"
    if not least and not most:
        return "0"
    if not least:
        return f"≤ {most:g}{unit}"
    if most == 1.0:
        return f"≥ {least:g}{unit}"
    return f"{least:g} to {most:g}{unit}"
