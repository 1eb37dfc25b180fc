"""Results of the evenness benchmark → tables for people, JSON, plots, and the summary for programs."""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from rich.table import Table

from bench.evenness.case_runs import CaseRun, case_summary
from bench.evenness.cases import QUOTA_BYTES_PER_S, SETTLE_S, BoundResult, Evenness
from bench.lib.light_rig import NATIVE
from bench.lib.plots import figure, save
from bench.lib.results import machine, print_last_line, wide_console, write_json
from testkit.proxy.proxies import SLUICE

SHOWN: Final = {
    "produce": "produce, 1 × Java ProducerPerformance",
    "consume": "consume, 1 × Java ConsumerPerformance",
    "produce_5": "produce, 5 light connections",
    "produce_50": "produce, 50 light connections",
    "fetch_5": "fetch, 5 light connections",
    "fetch_50": "fetch, 50 light connections",
}
COLOURS: Final = {NATIVE: "C1", SLUICE: "C0"}

# setup → side → figures
Results = Mapping[str, Mapping[str, Evenness]]


def report(
    results: Results,
    bounds: Mapping[str, BoundResult],
    cases: CaseRun | None,
    seconds: float,
    folder: Path,
) -> None:
    """Prints the tables, writes evenness.json and evenness.png, and prints the summary as the last line."""
    console = wide_console()
    if results:
        console.print(_table(results))
    if bounds:
        console.print(_bounds_table(bounds))
    summary = summary_of(results, bounds)
    if cases is not None:
        console.print(_cases_table(cases))
        summary |= case_summary(cases)
    write_json(
        folder / "evenness.json",
        {
            "summary": summary,
            "machine": machine(),
            "quota_bytes_per_s": QUOTA_BYTES_PER_S,
            "seconds": seconds,
            "measured_from_s": SETTLE_S,
            "setups": {
                name: {"what": SHOWN[name], **{side: asdict(figures) for side, figures in sides.items()}}
                for name, sides in results.items()
            },
            "bounds": {name: asdict(bound) for name, bound in bounds.items()},
            "cases": None if cases is None else asdict(cases),
        },
    )
    console.print(f"written: {folder / 'evenness.json'}")
    if results:
        _plot(results, folder / "evenness.png")
    print_last_line(summary)


def summary_of(results: Results, bounds: Mapping[str, BoundResult]) -> dict[str, object]:
    """What `make bench-evenness` promises: Sluice's figures, the broker's with `native_` before them."""
    summary: dict[str, object] = {}
    for side in (SLUICE, NATIVE):
        prefix = "" if side == SLUICE else f"{side}_"
        found = {name: sides[side] for name, sides in results.items() if side in sides}
        for name, figures in found.items():
            summary[f"{prefix}{name}_rate_ratio"] = round(figures.rate_ratio, 4)
            summary[f"{prefix}{name}_cv"] = round(figures.cv, 4)
            if figures.latency_s:
                summary[f"{prefix}{name}_p99_s"] = round(figures.latency_s["p99"], 3)
            if len(figures.bytes_per_connection) > 1:
                summary[f"{prefix}{name}_jain"] = round(figures.jain, 4)
                summary[f"{prefix}{name}_longest_gap_s"] = round(figures.longest_gap_s, 2)
        for connections in (5, 50):
            pair = [found[x] for x in (f"produce_{connections}", f"fetch_{connections}") if x in found]
            if pair:  # the worse of both counts
                summary[f"{prefix}jain_{connections}"] = round(min(x.jain for x in pair), 4)
                summary[f"{prefix}longest_gap_{connections}_s"] = round(max(x.longest_gap_s for x in pair), 2)
    for name, bound in bounds.items():
        summary[f"{name}_rate_vs_bound"] = round(bound.ratio, 3)
    return summary


def _table(results: Results) -> Table:
    table = Table(
        title=f"One quota of {QUOTA_BYTES_PER_S:,} B/s: the broker's own and Sluice's",
        caption=f"bytes on the wire from second {SETTLE_S} on; cv: deviation ÷ mean of its rates per second",
    )
    table.add_column("setup")
    table.add_column("side")
    for column in ("rate ÷ quota", "cv", "p50", "p95", "p99", "Jain", "longest gap"):
        table.add_column(column, justify="right")
    for name, sides in results.items():
        for side, figures in sides.items():
            several = len(figures.bytes_per_connection) > 1
            table.add_row(
                SHOWN[name] if side == next(iter(sides)) else "",
                side,
                f"{figures.rate_ratio:.3f}",
                f"{figures.cv:.1%}",
                *(_seconds(figures.latency_s.get(p)) for p in ("p50", "p95", "p99")),
                f"{figures.jain:.3f}" if several else "",
                f"{figures.longest_gap_s:.2f} s",
            )
        table.add_section()
    return table


def _seconds(value: float | None) -> str:
    return "" if value is None else f"{value:.2f} s"


def _bounds_table(bounds: Mapping[str, BoundResult]) -> Table:
    table = Table(title="Loads that may pass the rate: max(rate, bytes outstanding ÷ answer budget)")
    table.add_column("load on Sluice")
    for column in ("measured", "stated bound", "measured ÷ bound"):
        table.add_column(column, justify="right")
    for bound in bounds.values():
        table.add_row(
            bound.shown,
            f"{bound.mean_bytes_per_s / 1e6:.3f} MB/s",
            f"{bound.bound_bytes_per_s / 1e6:.3f} MB/s",
            f"{bound.ratio:.3f}",
        )
    return table


def _cases_table(cases: CaseRun) -> Table:
    table = Table(title="Cases: one after the other, light clients")
    for column in ("case", "what", "side"):
        table.add_column(column)
    table.add_column("figure", justify="right")
    for name, sides in cases.results.items():
        for side, result in sides.items():
            table.add_row(name, result.shown, side, f"{result.figure:.3f}")
    for what, count in cases.sessions.items():
        table.add_row("fetch sessions", what.replace("_", " "), "", str(count))
    return table


def _plot(results: Results, path: Path) -> None:
    plot, axes = figure(2, 3)
    for axis, name in zip(axes[0], ("produce", "consume", "produce_50"), strict=True):
        if name in results:
            _plot_rates(axis, name, results[name])
    _plot_latencies(axes[1][0], results)
    for axis, name in zip(axes[1][1:], ("produce_50", "fetch_50"), strict=True):
        if name in results:
            _plot_shares(axis, name, results[name])
    save(plot, path)


def _plot_rates(axis: Any, name: str, sides: Mapping[str, Evenness]) -> None:
    for side, figures in sides.items():
        seconds = range(SETTLE_S, SETTLE_S + len(figures.bytes_per_s))
        axis.step(
            seconds, [x / 1e6 for x in figures.bytes_per_s], where="post", label=side, color=COLOURS[side]
        )
    axis.axhline(QUOTA_BYTES_PER_S / 1e6, color="grey", linewidth=1, linestyle="--")
    axis.set_title(SHOWN[name])
    axis.set_xlabel("s")
    axis.set_ylabel("MB in this second")
    axis.legend()


def _plot_latencies(axis: Any, results: Results) -> None:
    rows = [
        (name, side, figures.latency_s)
        for name, sides in results.items()
        for side, figures in sides.items()
        if figures.latency_s
    ]
    for position, (_, side, latency_s) in enumerate(rows):
        axis.barh(position, latency_s["p99"], color=COLOURS[side], alpha=0.45)
        axis.barh(position, latency_s["p50"], color=COLOURS[side])
    axis.set_yticks(range(len(rows)), [f"{name} {side}" for name, side, _ in rows])
    axis.invert_yaxis()
    axis.set_xscale("log")
    axis.set_xlabel("latency in s: p50 (dark) and p99 (light)")
    axis.set_title("Latency")


def _plot_shares(axis: Any, name: str, sides: Mapping[str, Evenness]) -> None:
    for index, (side, figures) in enumerate(sides.items()):
        shares = sorted((x / 1e6 for x in figures.bytes_per_connection), reverse=True)
        positions = [x + 0.4 * index for x in range(len(shares))]
        axis.bar(positions, shares, width=0.4, color=COLOURS[side], label=f"{side}: Jain {figures.jain:.2f}")
    axis.set_title(SHOWN[name] + ": share of each")
    axis.set_xlabel("connections, by share")
    axis.set_ylabel("MB")
    axis.legend()
