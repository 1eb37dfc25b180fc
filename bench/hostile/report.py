"""Results of the hostile benchmark → tables for people, JSON, a plot, and the summary for programs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final

from rich.table import Table

from bench.hostile.good import FETCH, LAG, PRODUCE, Samples
from bench.hostile.probes import ProbeRun
from bench.hostile.rig import CONTROL, DECOY, DIRECT, FETCHERS, HOSTILE, PERIOD_MS, PRODUCERS, SINK, Phase
from bench.lib.results import machine, print_last_line, wide_console, write_json
from bench.lib.stats import Spread, median, pairwise_ratios, percentile, spread

GOAL_P99_RATIO: Final = 1.2
GOAL_CPU_SHARE: Final = 0.25  # of one core
BOTH: Final = (PRODUCE, FETCH)
SHOWN: Final = {
    CONTROL: "good clients alone",
    HOSTILE: "hostile connections through Sluice",
    DIRECT: "the same hostile connections at the broker itself",
    DECOY: "the same hostile connections at a sink",
    SINK: "the same hostile connections through Sluice to a sink",
}
COLOURS: Final = {CONTROL: "C2", HOSTILE: "C0", DIRECT: "C1", DECOY: "C3", SINK: "C4"}


@dataclass(frozen=True, slots=True)
class HostileRun:
    """All that one run found."""

    phases: Sequence[Phase]
    samples: Samples
    records: int  # acknowledged to good clients, and stored
    frame_kinds: int  # (API, version) pairs
    faults_logged: Sequence[str]
    probes: ProbeRun

    def of(self, kind: str) -> list[Phase]:
        return [phase for phase in self.phases if phase.kind == kind]

    def p99s_s(self, kind: str, requests: Sequence[str] = BOTH) -> list[float]:
        """One for each round."""
        return [p99_s(phase, self.samples, requests) for phase in self.of(kind)]

    def ratio(self, kind: str, requests: Sequence[str] = BOTH) -> Spread:
        """p99 with hostile connections ÷ p99 without, round by round."""
        return spread(pairwise_ratios(self.p99s_s(kind, requests), self.p99s_s(CONTROL, requests)))

    def hostile_cpu_cores(self) -> float:
        """What Sluice used with hostile connections and not without, round by round; the median."""
        pairs = zip(self.of(HOSTILE), self.of(CONTROL), strict=True)
        return median(
            [with_them.cpu_cores["sluice"] - without.cpu_cores["sluice"] for with_them, without in pairs]
        )

    def control_ratio(self) -> Spread | None:
        """Each control ÷ the one before: what the same load differs by from minute to minute."""
        p99s = self.p99s_s(CONTROL)
        return spread([b / a for a, b in pairwise(p99s)]) if len(p99s) > 1 else None


def p99_s(phase: Phase, samples: Samples, requests: Sequence[str] = BOTH) -> float:
    """The p99 latency of the good clients' requests of a phase. Raises ValueError when there are none."""
    return percentile(_latencies_s(phase, samples, requests), 99)


def _latencies_s(phase: Phase, samples: Samples, requests: Sequence[str]) -> list[float]:
    return [x for kind in requests for x in samples.latencies_s(kind, phase.start_s, phase.end_s)]


def progress(phase: Phase, samples: Samples) -> str:
    """One line on a phase that has just ended."""
    latencies_s = _latencies_s(phase, samples, BOTH)
    parts = [
        f"{phase.kind:<8} {len(latencies_s):5} good requests, p50 {percentile(latencies_s, 50) * 1e3:.2f} ms"
        f" p99 {percentile(latencies_s, 99) * 1e3:.2f} ms"
    ]
    if phase.connections:
        parts.append(f"{phase.connections} hostile, {phase.uncounted} of them uncounted")
    parts.append(f"{phase.rss_bytes / 2**20:.1f} MiB, {phase.open_files} files")
    parts.append("cores: " + ", ".join(f"{name} {cores:.2f}" for name, cores in phase.cpu_cores.items()))
    return "; ".join(parts)


def summary_of(run: HostileRun) -> dict[str, object]:
    """What `make bench-hostile` promises."""
    hostile = run.of(HOSTILE)
    ratio = run.ratio(HOSTILE)
    began: Counter[str] = Counter()
    causes: Counter[str] = Counter()
    for phase in hostile:
        began.update(phase.load["began"] if phase.load else {})
        causes.update(phase.disconnects)
    files = [phase.open_files for phase in hostile]
    summary: dict[str, object] = {
        "good_p99_ratio_median": round(ratio.median, 3),
        "good_p99_ratio_range": ratio.as_range(),
        "good_p99_ratio_goal": GOAL_P99_RATIO,
        "rounds": len(hostile),
        "rounds_discarded": 0,  # there is no rule by which one could be
        "p99_ratio_produce": round(run.ratio(HOSTILE, [PRODUCE]).median, 3),
        "p99_ratio_fetch": round(run.ratio(HOSTILE, [FETCH]).median, 3),
        "p99_control_ms": round(median(run.p99s_s(CONTROL)) * 1e3, 2),
        "p99_hostile_ms": round(median(run.p99s_s(HOSTILE)) * 1e3, 2),
    }
    summary["hostile_cpu_share"] = round(run.hostile_cpu_cores(), 3)
    summary["hostile_cpu_share_goal"] = GOAL_CPU_SHARE
    if run.of(DIRECT):
        direct = run.ratio(DIRECT)
        summary["p99_ratio_past_sluice"] = round(direct.median, 3)
        summary["p99_ratio_past_sluice_range"] = direct.as_range()
    for kind in (DECOY, SINK):
        if run.of(kind):
            part = run.ratio(kind)
            summary[f"p99_ratio_{kind}"] = round(part.median, 3)
            summary[f"p99_ratio_{kind}_range"] = part.as_range()
    if noise := run.control_ratio():
        summary["p99_ratio_of_controls_range"] = noise.as_range()
    return summary | {
        **run.probes.summary(),
        "hostile_connections": sum(began.values()),
        "hostile_connections_uncounted": sum(phase.uncounted for phase in hostile),
        "hostile_connections_refused": sum(phase.load["not_connected"] for phase in hostile if phase.load),
        "frame_kinds": run.frame_kinds,
        "causes": dict(causes.most_common()),
        "good_records_acknowledged_and_stored": run.records,
        "faults_logged": len(run.faults_logged),
        "rss_first_hostile_mib": round(hostile[0].rss_bytes / 2**20, 2),
        "rss_end_mib": round(hostile[-1].rss_bytes / 2**20, 2),
        "open_files_first_and_end": [files[0], files[-1]],
    }


def report(run: HostileRun, folder: Path) -> None:
    """Prints the tables, writes hostile.json and hostile.png, and prints the summary as the last line."""
    console = wide_console()
    console.print(_latency_table(run))
    console.print(_ends_table(run))
    summary = summary_of(run)
    write_json(
        folder / "hostile.json",
        {
            "summary": summary,
            "machine": machine(),
            "good_clients": {"producers": PRODUCERS, "fetchers": FETCHERS, "period_ms": PERIOD_MS},
            "phases": [
                asdict(phase)
                | {
                    "p99_ms": {name: round(p99_s(phase, run.samples, [name]) * 1e3, 3) for name in BOTH},
                    "latest_send_of_good_clients_ms": round(
                        max(run.samples.latencies_s(LAG, phase.start_s, phase.end_s)) * 1e3, 3
                    ),
                }
                for phase in run.phases
            ],
            "probes": run.probes.shown(),
            "faults_logged": list(run.faults_logged),
        },
    )
    _plot(run, folder / "hostile.png")
    console.print(f"written: {folder / 'hostile.json'}, hostile.png")
    print_last_line(summary)


def _latency_table(run: HostileRun) -> Table:
    clients = f"{PRODUCERS} producers, {FETCHERS} fetchers"
    table = Table(
        title=f"{clients}, each a request in {PERIOD_MS:.0f} ms, through Sluice",
        caption="median (lowest–highest) of the rounds; ratio: p99 ÷ p99 of the control of the same round",
    )
    table.add_column("meanwhile")
    for column in ("p50 ms", "p99 ms", "p99 ratio", "hostile connections", "cores: Sluice", "broker", "load"):
        table.add_column(column, justify="right")
    for kind in SHOWN:
        phases = run.of(kind)
        if not phases:
            continue
        p50s = [percentile(_latencies_s(phase, run.samples, BOTH), 50) * 1e3 for phase in phases]
        cores = {
            name: median([phase.cpu_cores.get(name, 0.0) for phase in phases])
            for name in ("sluice", "broker", "load generator")
        }
        table.add_row(
            SHOWN[kind],
            str(spread(p50s)),
            str(spread([x * 1e3 for x in run.p99s_s(kind)])),
            "" if kind == CONTROL else str(run.ratio(kind)),
            f"{sum(phase.connections for phase in phases):,}",
            *(f"{x:.2f}" for x in cores.values()),
        )
    return table


def _ends_table(run: HostileRun) -> Table:
    causes: Counter[str] = Counter()
    for phase in run.of(HOSTILE):
        causes.update(phase.disconnects)
    uncounted = sum(phase.uncounted for phase in run.of(HOSTILE))
    table = Table(
        title="How the hostile connections ended (sluice_disconnects_total)", caption=f"{uncounted} uncounted"
    )
    table.add_column("cause")
    table.add_column("connections", justify="right")
    for cause, count in causes.most_common():
        table.add_row(cause, f"{count:,}")
    return table


def _plot(run: HostileRun, path: Path) -> None:
    from bench.lib.plots import figure, save

    plot, axes = figure(1, 3, width_ratios=[3, 2, 2])
    begin_s = run.phases[0].start_s
    for kind in BOTH:
        points = [(at_s - begin_s, x * 1e3) for at_s, x in run.samples.by_kind[kind] if at_s >= begin_s]
        marker = "." if kind == PRODUCE else "x"
        axes[0].scatter(
            *zip(*points, strict=True), s=3, marker=marker, color="0.4", label=kind, linewidths=0.5
        )
    for phase in run.phases:
        axes[0].axvspan(
            phase.start_s - begin_s, phase.end_s - begin_s, color=COLOURS[phase.kind], alpha=0.15, linewidth=0
        )
        axes[0].hlines(
            p99_s(phase, run.samples) * 1e3,
            phase.start_s - begin_s,
            phase.end_s - begin_s,
            color=COLOURS[phase.kind],
            linewidth=2,
        )
    axes[0].set_yscale("log")
    axes[0].set_xlabel("s")
    axes[0].set_ylabel("latency of good requests, ms")
    axes[0].set_title("Each good request; lines: p99 of each phase")
    axes[0].legend(loc="upper left")
    for kind in SHOWN:
        if phases := run.of(kind):
            latencies = sorted(x for phase in phases for x in _latencies_s(phase, run.samples, BOTH))
            shares = [(index + 1) / len(latencies) for index in range(len(latencies))]
            axes[1].plot(
                [x * 1e3 for x in latencies],
                [1 - x for x in shares[:-1]] + [1e-9],
                color=COLOURS[kind],
                label=SHOWN[kind],
            )
    axes[1].axhline(0.01, color="grey", linewidth=1, linestyle="--")
    axes[1].set_xscale("log")
    axes[1].set_yscale("log")
    axes[1].set_ylim(1e-4, 1)
    axes[1].set_xlabel("latency, ms")
    axes[1].set_ylabel("share of good requests that take longer")
    axes[1].set_title("All phases together; dashed: 1 %")
    axes[1].legend(fontsize="small", loc="lower left")
    numbers = range(len(run.phases))
    axes[2].plot(
        numbers, [phase.rss_bytes / 2**20 for phase in run.phases], marker=".", label="resident, MiB"
    )
    axes[2].plot(numbers, [phase.open_files for phase in run.phases], marker=".", label="open files")
    for number, phase in enumerate(run.phases):
        axes[2].axvspan(number - 0.5, number + 0.5, color=COLOURS[phase.kind], alpha=0.15, linewidth=0)
    axes[2].set_ylim(bottom=0)
    axes[2].set_xlabel("phase")
    axes[2].set_title("Sluice behind each phase")
    axes[2].legend()
    save(plot, path)
