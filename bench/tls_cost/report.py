"""Results of the TLS benchmark → a table for people, JSON, a plot, and the summary for programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.table import Table

from bench.cost.cases import CaseResult
from bench.lib.load import Measured
from bench.lib.results import machine, print_last_line, wide_console, write_json
from bench.lib.stats import Spread, median, pairwise_ratios, spread


@dataclass(frozen=True, slots=True)
class TlsRun:
    """All that one run found. `ours` and `theirs` are proxy names: keys of the samples."""

    ours: str
    theirs: str
    theirs_version: str
    agreed: str
    """TLS version and cipher, the same with both"""
    key: str
    placement: str
    results: Sequence[CaseResult]
    handshakes: Mapping[str, Sequence[Measured]]
    rss_bytes: Mapping[str, Sequence[int]]
    """of each proxy behind each round"""

    def handshakes_per_cpu_s(self, name: str) -> list[float]:
        return [measured.requests / measured.cpu_s for measured in self.handshakes[name]]

    def handshake_ratio(self) -> Spread:
        """CPU time of a handshake, ours ÷ theirs, pair by pair."""
        return spread(
            pairwise_ratios(self.handshakes_per_cpu_s(self.theirs), self.handshakes_per_cpu_s(self.ours))
        )


def summary_of(run: TlsRun) -> dict[str, object]:
    """What `make bench-tls` promises: medians of ratios (ours ÷ HAProxy), and their ranges beside them."""
    ratios = {result.case.name: result.ratio(run.ours, run.theirs) for result in run.results}
    if run.handshakes:
        ratios["handshake"] = run.handshake_ratio()
    summary: dict[str, object] = {"against": run.ours, "tls": run.agreed, "key": run.key}
    summary |= {f"{name}_vs_haproxy": round(ratio.median, 3) for name, ratio in ratios.items()}
    if per_gib := [ratios[x.case.name].median for x in run.results if x.case.frame_bytes]:
        summary["gib_vs_haproxy"] = round(max(per_gib), 3)
    summary["handshakes_per_cpu_s"] = {
        name: round(median(run.handshakes_per_cpu_s(name))) for name in run.handshakes
    }
    summary["rss_first_and_last_round_mib"] = {
        name: [round(rss[0] / 2**20, 1), round(rss[-1] / 2**20, 1)] for name, rss in run.rss_bytes.items()
    }
    summary["ranges"] = {f"{name}_vs_haproxy": ratio.as_range() for name, ratio in ratios.items()}
    return summary


def report(run: TlsRun, folder: Path) -> None:
    """Prints the table, writes tls.json and tls.png, and prints the summary as the last line."""
    console = wide_console()
    console.print(_table(run))
    summary = summary_of(run)
    write_json(
        folder / "tls.json",
        {
            "summary": summary,
            "machine": machine(),
            "haproxy": run.theirs_version,
            "placement": run.placement,
            "cases": {
                result.case.name: {
                    "what": result.case.shown,
                    "unit": result.case.unit,
                    "cost": {name: [round(c, 4) for c in result.costs(name)] for name in result.samples},
                    "samples": {
                        name: [asdict(x) for x in samples] for name, samples in result.samples.items()
                    },
                }
                for result in run.results
            },
            "handshakes": {name: [asdict(x) for x in samples] for name, samples in run.handshakes.items()},
            "rss_bytes": {name: list(rss) for name, rss in run.rss_bytes.items()},
        },
    )
    _plot(run, folder / "tls.png")
    console.print(f"written: {folder / 'tls.json'}, tls.png")
    print_last_line(summary)


def _table(run: TlsRun) -> Table:
    table = Table(
        title=f"TLS ends at {run.ours} or at {run.theirs_version}: CPU time of the proxy; {run.placement}",
        caption=f"{run.agreed}, {run.key}; median (lowest–highest) of the rounds",
    )
    table.add_column("case")
    table.add_column("unit")
    for column in (run.ours, run.theirs, "ratio", "of lowest", "requests/s"):
        table.add_column(column, justify="right", style="bold" if column == "ratio" else None)
    for result in run.results:
        pair = [result.samples[name] for name in (run.ours, run.theirs)]
        table.add_row(
            result.case.shown,
            result.case.unit,
            str(spread(result.costs(run.ours))),
            str(spread(result.costs(run.theirs))),
            str(result.ratio(run.ours, run.theirs)),
            f"{result.ratio_of_lowest(run.ours, run.theirs):.2f}",
            " / ".join(f"{median([m.requests / m.wall_s for m in samples]):,.0f}" for samples in pair),
        )
    if run.handshakes:
        costs = {
            name: [1e6 / rate for rate in run.handshakes_per_cpu_s(name)] for name in (run.ours, run.theirs)
        }
        table.add_row(
            "handshake, one request, end",
            "CPU-µs each",
            str(spread(costs[run.ours])),
            str(spread(costs[run.theirs])),
            str(run.handshake_ratio()),
            f"{min(costs[run.ours]) / min(costs[run.theirs]):.2f}",
            " / ".join(
                f"{median([m.requests / m.wall_s for m in run.handshakes[name]]):,.0f}"
                for name in (run.ours, run.theirs)
            ),
        )
    return table


def _plot(run: TlsRun, path: Path) -> None:
    from bench.lib.plots import figure, save

    plot, axes = figure(1, 2, width_ratios=[3, 1])
    ratios = {result.case.name: result.ratio(run.ours, run.theirs) for result in run.results}
    if run.handshakes:
        ratios["handshake"] = run.handshake_ratio()
    for position, ratio in enumerate(ratios.values()):
        error = [[ratio.median - ratio.low], [ratio.high - ratio.median]]
        axes[0].bar(position, ratio.median, yerr=error, capsize=4, color="C0")
        axes[0].annotate(f"{ratio.median:.2f}", (position, ratio.high), ha="center", va="bottom")
    axes[0].axhline(1.0, color="grey", linewidth=1)
    axes[0].set_xticks(range(len(ratios)), list(ratios), rotation=20, ha="right")
    axes[0].set_ylabel(f"CPU time, {run.ours} ÷ HAProxy, both ending TLS")
    axes[0].set_title(f"{run.agreed}, {run.key}: median and range of the rounds")
    for name, rss in run.rss_bytes.items():
        axes[1].plot(range(1, len(rss) + 1), [x / 2**20 for x in rss], marker=".", label=name)
    axes[1].set_ylim(bottom=0)
    axes[1].set_xlabel("round of all cases")
    axes[1].set_ylabel("resident memory, MiB")
    axes[1].legend()
    save(plot, path)
