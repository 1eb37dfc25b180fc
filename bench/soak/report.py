"""Results of the soak benchmark → tables for people, JSON, a plot, and the summary for programs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path

from rich.table import Table

from bench.lib.results import machine, print_last_line, wide_console, write_json
from bench.lib.stats import spread
from bench.soak.run import Restart, SoakRun
from bench.soak.verdict import acknowledged_per_s, longest_silence, silences_by_phase
from testkit.proxy.proxies import SLUICE

MIB = 2**20


def summary_of(run: SoakRun) -> dict[str, object]:
    """What `make bench-soak` promises: exactly once and in order, flat, and how long a client waited."""
    silences = {name: longest_silence(run.signs_of_life_s(name))[1] for name in run.verdicts}
    flat = run.flat().values()
    return {
        "proxy": run.proxy,
        "mode": run.mode,
        "restarts": sum(phase.restarts for phase in run.phases),
        "broker_kills": sum(phase.kills for phase in run.phases),
        "took_s": round(run.took_s),
        "acknowledged": run.total("acknowledged"),
        "lost": run.total("lost"),
        "doubled": run.total("doubled"),
        "out_of_order": run.total("out_of_order"),
        "failed": run.total("failed"),
        "unexplained": run.total("unexplained"),
        "producers_replaced": sum(answers.replaced for answers in run.answers.values()),
        "clients_that_hung": [name for name, x in run.answers.items() if x.hung],
        "clients_not_exact": [name for name, verdict in run.verdicts.items() if not verdict.is_exact],
        "longest_silence_s": round(max(silences.values()), 1),
        "longest_silence_by_client_s": {name: round(x, 1) for name, x in silences.items()},
        # The others have no drain: the signal ends them.
        "unclean_ends_of_proxies": sum(x.exit_code != 0 for x in run.restarts)
        if run.proxy == SLUICE
        else None,
        "faults_logged": len(run.faults_logged),
        "drain_s": _range([x.drain_s for x in run.restarts]),
        "away_s": _range([x.away_s for x in run.restarts]),
        "rss_growth_without_restarts_mib": [round((x.rss_last - x.rss_first) / MIB, 2) for x in flat],
        "open_files_growth_without_restarts": [x.open_files_last - x.open_files_first for x in flat],
        "rss_before_restarts_mib": _range([x.rss_bytes / MIB for x in run.restarts]),
        "open_files_before_restarts": _range([x.open_files for x in run.restarts]),
    }


def _range(samples: Sequence[float]) -> list[float]:
    """[median, lowest, highest], or nothing."""
    if not samples:
        return []
    found = spread(samples)
    return [round(x, 2) for x in (found.median, found.low, found.high)]


def report(run: SoakRun, folder: Path) -> None:
    """Prints the tables, writes soak-MODE.json and .png, and prints the summary as the last line."""
    console = wide_console()
    console.print(_client_table(run))
    console.print(_proxy_table(run))
    for line in run.faults_logged[:10]:
        console.print(f"a fault in a proxy's log: {line[:300]}", markup=False)
    summary = summary_of(run)
    name = f"soak-{run.mode}" if run.proxy == SLUICE else f"soak-{run.proxy}"
    begin_s = run.phases[0].start_s
    write_json(
        folder / f"{name}.json",
        {
            "summary": summary,
            "machine": machine(),
            "phases": [asdict(phase) for phase in run.phases],
            "clients": {
                client: asdict(verdict)
                | {
                    "errors": run.answers[client].errors,
                    "replaced": run.answers[client].replaced,
                    "unanswered": run.answers[client].unanswered,
                    "ended_in_order": run.answers[client].ended_in_order,
                    "silences_by_phase_s": _silences(run, client),
                    "acknowledged_per_s": acknowledged_per_s(
                        run.acknowledged_s(client), begin_s, run.stopped_s
                    ),
                }
                for client, verdict in run.verdicts.items()
            },
            "events": [asdict(event) for event in run.events],
            "restarts": [asdict(restart) for restart in run.restarts],
            "samples": [asdict(sample) for sample in run.samples],
            "faults_logged": list(run.faults_logged),
        },
    )
    _plot(run, folder / f"{name}.png")
    console.print(f"written: {folder / name}.json, {name}.png")
    print_last_line(summary)


def _silences(run: SoakRun, client: str) -> dict[str, float]:
    phases = {phase.name: (phase.start_s, phase.end_s) for phase in run.phases}
    return {
        name: round(silence_s, 2)
        for name, silence_s in silences_by_phase(run.signs_of_life_s(client), phases).items()
    }


def _client_table(run: SoakRun) -> Table:
    done = ", ".join(
        f"{x.name}: {x.restarts} restarts, {x.kills} kills in {x.seconds:.0f} s" for x in run.phases
    )
    table = Table(
        title=f"Idempotent producers through {run.proxy}, mode {run.mode}",
        caption=f"{done}; silence: longest time between two acknowledgements",
    )
    table.add_column("client")
    for column in ("acknowledged", "failed", "lost", "doubled", "out of order", "unexplained"):
        table.add_column(column, justify="right")
    for phase in run.phases:
        table.add_column(f"silence: {phase.name}", justify="right")
    for name, found in run.verdicts.items():
        figures = (found.acknowledged, found.failed, found.lost, found.doubled, found.out_of_order)
        table.add_row(
            name,
            *(f"{x:,}" for x in (*figures, found.unexplained)),
            *(f"{x:.1f} s" for x in _silences(run, name).values()),
            style=None if found.is_exact and not run.answers[name].hung else "bold red",
        )
        for error, count in run.answers[name].errors.items():
            table.add_row("", f"{count} ×", error[:100])
    return table


def _proxy_table(run: SoakRun) -> Table:
    table = Table(
        title="The proxies", caption="median (lowest–highest) of all restarts; growth: without restarts"
    )
    table.add_column("proxy")
    for column in ("drain s", "away s", "MiB before", "open files before", "growth MiB", "growth files"):
        table.add_column(column, justify="right")
    flat = run.flat()
    for name in dict.fromkeys([*(x.proxy for x in run.restarts), *flat]):
        own: list[Restart] = [x for x in run.restarts if x.proxy == name]
        shown = (
            [x.drain_s for x in own],
            [x.away_s for x in own],
            [x.rss_bytes / MIB for x in own],
            [float(x.open_files) for x in own],
        )
        table.add_row(
            name,
            *(str(spread(samples)) if samples else "" for samples in shown),
            *(
                (
                    f"{(flat[name].rss_last - flat[name].rss_first) / MIB:+.2f}",
                    f"{flat[name].open_files_last - flat[name].open_files_first:+d}",
                )
                if name in flat
                else ("", "")
            ),
        )
    return table


def _plot(run: SoakRun, path: Path) -> None:
    from bench.lib.plots import figure, save

    plot, axes = figure(3, 1)
    plot.set_size_inches(14, 12)
    begin_s = run.phases[0].start_s
    for index, name in enumerate(run.verdicts):
        per_s = acknowledged_per_s(run.acknowledged_s(name), begin_s, run.stopped_s)
        axes[0].plot(per_s, label=name, linewidth=0.8, color=f"C{index}")
        times_s = run.signs_of_life_s(name)
        gaps = [(b - begin_s, b - a) for a, b in pairwise(times_s) if b - a > 0.5]
        if gaps:
            axes[1].scatter(*zip(*gaps, strict=True), s=10, color=f"C{index}", label=name)
    axes[0].set_yscale("symlog")
    axes[0].set_ylabel("records acknowledged in a second")
    axes[1].set_ylabel("silence of a client, s (over 0.5 s)")
    axes[1].set_yscale("log")
    proxies = list(dict.fromkeys([*(x.proxy for x in run.restarts), *(x.proxy for x in run.samples)]))
    for index, name in enumerate(proxies):
        points = sorted(
            [(x.at_s - begin_s, x.rss_bytes / MIB) for x in run.samples if x.proxy == name]
            + [(x.begun_s - begin_s, x.rss_bytes / MIB) for x in run.restarts if x.proxy == name]
        )
        files = sorted(
            [(x.at_s - begin_s, x.open_files) for x in run.samples if x.proxy == name]
            + [(x.begun_s - begin_s, x.open_files) for x in run.restarts if x.proxy == name]
        )
        for values, marker, what in ((points, ".", "resident, MiB"), (files, "x", "open files")):
            if values:
                axes[2].scatter(
                    *zip(*values, strict=True), s=8, marker=marker, color=f"C{index}", label=f"{name}: {what}"
                )
    axes[2].set_ylim(bottom=0)
    axes[2].set_xlabel("s")
    for axis in axes:
        axis.set_xlim(0, run.stopped_s - begin_s)
        for event in run.events:
            colour = "C3" if event.what.startswith("kill") else "0.7"
            axis.axvspan(
                event.begun_s - begin_s, event.over_s - begin_s, color=colour, alpha=0.15, linewidth=0
            )
        axis.legend(fontsize="small", loc="upper right", ncols=2)
    axes[0].set_title("grey: a proxy is restarted; red: a broker is dead or catching up")
    save(plot, path)
