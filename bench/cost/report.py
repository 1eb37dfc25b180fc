"""Results of the cost benchmark → a table for people, JSON, a plot, and the summary for programs."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.table import Table

from bench.cost import wakeups
from bench.cost.cases import SLOPE_FROM, SLOPES, CaseResult, Entities, ProxyMemory
from bench.cost.churn import Lives
from bench.cost.fleet import PURE
from bench.lib.load import Measured
from bench.lib.placement import Placement
from bench.lib.results import machine, print_last_line, wide_console, write_json
from bench.lib.stats import median, pairwise_ratios, spread


@dataclass(slots=True)
class Part:
    """All rounds in one placement. The keys of `memory` are proxy names; `slopes`: the same load over 50, 500
    and 5,000 connections."""

    placement: Placement
    results: Sequence[CaseResult]
    memory: dict[str, ProxyMemory]
    slopes: Sequence[CaseResult] = ()
    entities: Entities | None = None


@dataclass(frozen=True, slots=True)
class CostRun:
    """All that one run found. `ours` and `theirs` are proxy names: keys of the samples and of the memory.

    The first part is the one that the goals are judged by, and the only one whose memory is reported.
    """

    ours: str
    theirs: str
    theirs_version: str
    idle_connections: int
    parts: Sequence[Part]
    lives: Lives
    interpreter: str = ""
    """that ours ran on"""


def report(run: CostRun, folder: Path, stem: str = "cost") -> None:
    """Prints the tables, writes cost.json and cost.png, and prints the summary as the last line."""
    console = wide_console()
    for part in run.parts:
        console.print(_cost_table(run, part))
        for table in _slope_tables(run, part):
            console.print(table)
    console.print(_memory_table(run))
    summary = summary_of(run)
    write_json(
        folder / f"{stem}.json",
        {
            "summary": summary,
            "machine": machine(),
            "haproxy": run.theirs_version,
            "interpreter": run.interpreter,
            "idle_connections": run.idle_connections,
            "lives": asdict(run.lives),
            "placements": {str(part.placement): _as_json(part) for part in run.parts},
        },
    )
    _plot(run, folder / f"{stem}.png")
    console.print(f"written: {folder / stem}.json, {stem}.png")
    print_last_line(summary)


def _as_json(part: Part) -> dict[str, object]:
    return {
        "cases": {result.case.name: _case_as_json(result) for result in part.results},
        "slopes": {result.case.name: _case_as_json(result) for result in part.slopes},
        "entities": asdict(part.entities) if part.entities else None,
        "memory_bytes": {name: asdict(memory) for name, memory in part.memory.items()},
    }


def _case_as_json(result: CaseResult) -> dict[str, object]:
    return {
        "what": result.case.shown,
        "unit": result.case.unit,
        "cost": {name: [round(c, 4) for c in result.costs(name)] for name in result.samples},
        "samples": {
            name: [asdict(measured) for measured in samples] for name, samples in result.samples.items()
        },
    }


def progress(result: CaseResult, ours: str, theirs: str) -> str:
    """One line on the newest repeat of a case."""
    parts = [f"{result.case.name:<17}"]
    for name in (ours, theirs):
        measured = result.samples[name][-1]
        parts.append(f"{name} {result.case.cost(measured):7.2f} ({requests_per_s(measured):,.0f}/s)")
    ratio = result.costs(ours)[-1] / result.costs(theirs)[-1]
    return "  ".join([*parts, f"ratio {ratio:.2f}  [{result.case.unit}]"])


def requests_per_s(measured: Measured) -> float:
    return measured.requests / measured.wall_s


def summary_of(run: CostRun) -> dict[str, object]:
    """What `make bench-cost` promises: medians of ratios (ours ÷ HAProxy), and their ranges beside them."""
    first = run.parts[0]
    summary: dict[str, object] = {"against": run.ours, "placement": str(first.placement)}
    summary |= _ratios(run, first, "")
    ours, theirs = first.memory[run.ours], first.memory[run.theirs]
    summary["idle_kib_per_connection"] = round(ours.per_idle_connection / 1024, 1)
    summary["haproxy_idle_kib_per_connection"] = round(theirs.per_idle_connection / 1024, 1)
    summary["idle_connections"] = run.idle_connections
    summary["rss_start_mib"] = round(ours.at_start / 2**20, 1)
    summary["rss_first_round_mib"] = round(ours.by_round[0] / 2**20, 1)
    summary["rss_end_mib"] = round(ours.by_round[-1] / 2**20, 1)
    for part in run.parts[1:]:
        summary |= _ratios(run, part, f"{part.placement}_".replace("-", "_"))
    return summary | run.lives.summary(run.ours, run.theirs)


def _ratios(run: CostRun, part: Part, prefix: str) -> dict[str, object]:
    ratios = {result.case.name: result.ratio(run.ours, run.theirs) for result in part.results}
    summary: dict[str, object] = {
        f"{prefix}{name}_vs_haproxy": round(ratio.median, 3) for name, ratio in ratios.items()
    }
    per_gib = [ratios[result.case.name] for result in part.results if result.case.frame_bytes]
    if per_gib:
        summary[f"{prefix}gib_vs_haproxy"] = round(max(ratio.median for ratio in per_gib), 3)
    summary |= _slopes(run, part, prefix)
    summary[f"{prefix}ratios_of_lowest"] = {
        f"{result.case.name}_vs_haproxy": round(result.ratio_of_lowest(run.ours, run.theirs), 3)
        for result in part.results
    }
    summary[f"{prefix}ranges"] = {f"{name}_vs_haproxy": ratio.as_range() for name, ratio in ratios.items()}
    equal = {x.case.name: wakeups.equal_ratio(x, run.ours, run.theirs) for x in part.results}
    summary[f"{prefix}vs_haproxy_at_equal_wakeups"] = {
        name: None if found is None else [round(found.median, 3), *found.as_range()]
        for name, found in equal.items()
    }
    summary[f"{prefix}requests_per_wakeup"] = {
        x.case.name: wakeups.medians(x, list(x.samples)) for x in part.results if not x.case.frame_bytes
    }
    if PURE in part.memory:
        summary |= {
            f"{prefix}{PURE}_{result.case.name}_vs_haproxy": round(result.ratio(PURE, run.theirs).median, 3)
            for result in part.results
            if PURE in result.samples
        }
    for name in part.memory:
        if name not in {run.ours, run.theirs, PURE}:
            summary[f"{prefix}{name}_vs_haproxy"] = {
                result.case.name: round(result.ratio(name, run.theirs).median, 3)
                for result in part.results
                if name in result.samples
            }
    return summary


def _slopes(run: CostRun, part: Part, prefix: str) -> dict[str, object]:
    summary: dict[str, object] = {}
    base = next((x for x in part.slopes if x.case.name == SLOPE_FROM), None)
    for result in part.slopes:
        if base is None or result is base:
            continue
        for name, shown in ((run.ours, ""), (run.theirs, "haproxy_")):
            slope = spread(pairwise_ratios(result.costs(name), base.costs(name)))
            key = f"{prefix}{shown}slope_{SLOPES[result.case.name]}_vs_{base.case.work.connections}"
            summary[key] = round(slope.median, 3)
            summary[f"{key}_range"] = slope.as_range()
    if part.entities is not None:
        summary |= part.entities.summary(prefix)
    return summary


def _slope_tables(run: CostRun, part: Part) -> Iterator[Table]:
    if part.slopes:
        table = Table(title=f"CPU-µs per request by number of connections; {part.placement}")
        for column in ("load", run.ours, run.theirs, "ratio", "requests per wake-up"):
            table.add_column(column, justify="left" if column == "load" else "right")
        for result in part.slopes:
            table.add_row(
                result.case.shown,
                *(str(spread(result.costs(name))) for name in (run.ours, run.theirs)),
                str(result.ratio(run.ours, run.theirs)),
                _shown(wakeups.medians(result, (run.ours, run.theirs))),
            )
        yield table
    if part.entities is not None:
        table = Table("entities in use", "CPU-µs per request", title=f"{run.ours}; {part.placement}")
        for count in part.entities.samples:
            table.add_row(f"{count:,}", str(spread(part.entities.costs_us(count))))
        yield table


def _shown(by_proxy: Mapping[str, float]) -> str:
    return " / ".join(f"{value:.1f}" for value in by_proxy.values())


def _cost_table(run: CostRun, part: Part) -> Table:
    title = f"CPU time of the proxy process, {run.ours} against {run.theirs_version} (TCP); {part.placement}"
    table = Table(
        title=title,
        caption="median (lowest–highest) of the rounds; of lowest: ratio of each side's cheapest round",
    )
    table.add_column("case")
    table.add_column("unit")
    table.add_column(run.ours, justify="right")
    table.add_column(run.theirs, justify="right")
    table.add_column("ratio", justify="right", style="bold")
    table.add_column("of lowest", justify="right")
    table.add_column("requests/s", justify="right")
    table.add_column("requests per wake-up", justify="right")
    table.add_column("ratio at equal wake-ups", justify="right", style="bold")
    others = [name for name in part.memory if name not in {run.ours, run.theirs}]
    for name in others:
        table.add_column(f"{name} ÷ {run.theirs}", justify="right")
    for result in part.results:
        pair = [result.samples[name] for name in (run.ours, run.theirs)]
        table.add_row(
            result.case.shown,
            result.case.unit,
            str(spread(result.costs(run.ours))),
            str(spread(result.costs(run.theirs))),
            str(result.ratio(run.ours, run.theirs)),
            f"{result.ratio_of_lowest(run.ours, run.theirs):.2f}",
            " / ".join(f"{median([requests_per_s(m) for m in samples]):,.0f}" for samples in pair),
            _shown(wakeups.medians(result, (run.ours, run.theirs))),
            str(wakeups.equal_ratio(result, run.ours, run.theirs) or "–"),
            *(str(result.ratio(name, run.theirs)) if name in result.samples else "–" for name in others),
        )
    return table


def _memory_table(run: CostRun) -> Table:
    table = Table(title="Resident memory")
    table.add_column("proxy")
    table.add_column(f"KiB per idle connection ({run.idle_connections:,})", justify="right")
    for column in ("MiB at start", "after the first round", "at the end", "growth since the first round"):
        table.add_column(column, justify="right")
    for name, memory in run.parts[0].memory.items():
        table.add_row(
            name,
            f"{memory.per_idle_connection / 1024:.1f}",
            f"{memory.at_start / 2**20:.1f}",
            f"{memory.by_round[0] / 2**20:.1f}",
            f"{memory.by_round[-1] / 2**20:.1f}",
            f"{memory.growth_after_first_round / 2**20:+.1f}",
        )
    return table


def _plot(run: CostRun, path: Path) -> None:
    from bench.lib.plots import figure, save

    plot, axes = figure(1, 2, width_ratios=[3, 1])
    names = [result.case.name for result in run.parts[0].results]
    width = 0.8 / len(run.parts)
    for number, part in enumerate(run.parts):
        for position, result in enumerate(part.results):
            ratio = result.ratio(run.ours, run.theirs)
            error = [[ratio.median - ratio.low], [ratio.high - ratio.median]]
            x = position + (number - (len(run.parts) - 1) / 2) * width
            label = str(part.placement) if position == 0 else None
            axes[0].bar(x, ratio.median, width, yerr=error, capsize=3, color=f"C{number}", label=label)
            axes[0].annotate(f"{ratio.median:.2f}", (x, ratio.high), ha="center", va="bottom")
    if names:
        axes[0].legend()
    axes[0].axhline(1.0, color="grey", linewidth=1)
    axes[0].set_xticks(range(len(names)), names, rotation=20, ha="right")
    axes[0].set_ylabel(f"CPU time, {run.ours} ÷ HAProxy")
    axes[0].set_title("Cost: median and range of the rounds")
    for name, memory in run.parts[0].memory.items():
        rounds = range(len(memory.by_round) + 1)
        axes[1].plot(rounds, [x / 2**20 for x in (memory.at_start, *memory.by_round)], marker=".", label=name)
    axes[1].set_ylim(bottom=0)
    axes[1].set_xlabel("round of all cases")
    axes[1].set_ylabel("resident memory, MiB")
    axes[1].set_title("Memory over the run")
    axes[1].legend()
    save(plot, path)
