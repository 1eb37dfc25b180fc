"""Results of the storm benchmark → a table for people, JSON, a plot, and the summary for programs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from rich.table import Table

from bench.lib.results import machine, print_last_line, wide_console, write_json
from bench.lib.stats import median, percentile
from bench.storm.record import Good, Pause, StormAt
from bench.storm.rig import (
    CONTROL,
    DIRECT,
    GOOD_RATE,
    HEAP_MIB,
    IDS_PER_HOUR,
    QUIET,
    THROUGH,
    Phase,
    Setting,
)
from bench.storm.run import Direct, Through

GOAL_P99_RATIO: Final = 1.5
FORCED_SHARE: Final = 0.1
SHOWN: Final = {
    QUIET: "no storm",
    CONTROL: "storm without ids",
    THROUGH: "storm of new ids",
    DIRECT: "storm of new ids, no Sluice",
}
COLOURS: Final = {QUIET: "C2", CONTROL: "C7", THROUGH: "C0", DIRECT: "C3"}


def admission_bound(seconds: float, ids_per_hour: float = IDS_PER_HOUR) -> float:
    """New ids of one user that Sluice lets through in so many seconds, all of them with base sequence 0.

    The main and the forced bucket, full at the start: N·(burst + T) + 0.1·N·(burst + T), burst 1 h; the
    resumed one is for ids that were alive before. Worked example: 1,000 an hour for 72 s:
    1.1 · 1,000 · (1 + 72 ÷ 3600) = 1,122. Source: docs/producer-ids.md, "Who is admitted".
    """
    return (1 + FORCED_SHARE) * ids_per_hour * (1 + seconds / 3600)


@dataclass(frozen=True, slots=True)
class StormRun:
    """All that one run found."""

    setting: Setting
    took_s: float
    through: Through
    direct: Direct | None

    def of(self, kind: str) -> list[Phase]:
        """The phases of a kind, past Sluice too."""
        direct = [] if self.direct is None else [self.direct.phase]
        return [phase for phase in [*self.through.phases, *direct] if phase.kind == kind]

    def good(self, phase: Phase) -> Good:
        """The client beside a phase."""
        return self.direct.good if self.direct and phase is self.direct.phase else self.through.good

    def pauses(self, phase: Phase) -> list[Pause]:
        """Pauses of the broker's collector within a phase."""
        found = self.direct.pauses if self.direct and phase is self.direct.phase else self.through.pauses
        return [x for x in found if phase.start_s <= x.at_s < phase.end_s]

    def latencies_s(self, kind: str) -> list[float]:
        """Latencies of the good client's acknowledged records, all phases of the kind together."""
        return [
            x for phase in self.of(kind) for x in self.good(phase).latencies_s(phase.start_s, phase.end_s)
        ]

    def p99_ms(self, kind: str) -> float | None:
        """None: nothing was acknowledged."""
        found = self.latencies_s(kind)
        return percentile(found, 99) * 1e3 if found else None


def sent_and_acknowledged(good: Good, phase: Phase) -> tuple[int, int]:
    """How many records the good client sent within a phase through Sluice, and how many were acknowledged.

    Of what is never answered there is no line; so this is exact only when the whole run's counts agree.
    """
    during = [x for x in good.records if phase.start_s <= x.sent_s < phase.end_s]
    return len(during), sum(x.latency_s is not None for x in during)


def summary_of(run: StormRun) -> dict[str, object]:
    """What `make bench-storm` promises."""
    (through,) = run.of(THROUGH)
    good = run.through.good
    last = through.storm[-1]
    during_sent, during_acknowledged = sent_and_acknowledged(good, through)
    p99, control = run.p99_ms(THROUGH), run.p99_ms(CONTROL)
    controls = [_p99_ms(good, phase) for phase in run.of(CONTROL)]
    summary: dict[str, object] = {
        "through_heap_growth_mib": _growth_mib(through),
        "through_heap_after_gc_mib": _after_gc_range(run.pauses(through)),
        "through_ids_offered": last.offered,
        "through_ids_offered_per_s": round(last.offered / through.seconds),
        "through_ids_admitted": round(through.sluice_metrics["sluice_producer_ids_new_total"]),
        "through_ids_acknowledged": last.accepted,
        "through_broker_entries_growth": _entries_growth(through),
        "through_bound": int(admission_bound(through.seconds)),
        "through_seconds": round(through.seconds, 1),
        "through_broker_answers_to_end": through.answers_at_end,
        "good_sent": good.sent,
        "good_acked": good.acknowledged,
        "good_stored": run.through.good_stored,
        "good_sent_in_storm": during_sent,
        "good_acked_in_storm": during_acknowledged,
        "good_p99_ms": _rounded(p99),
        "control_p99_ms": _rounded(control),
        "p99_ratio": _rounded(p99 / control if p99 and control else None, 3),
        "p99_ratio_goal": GOAL_P99_RATIO,
        "control_p99_ms_each": [_rounded(x) for x in controls],
        "quiet_p99_ms": _rounded(run.p99_ms(QUIET)),
        "control_batches_per_s": round(
            median([x.storm[-1].accepted / x.seconds for x in run.of(CONTROL)]) if run.of(CONTROL) else 0
        ),
        "control_heap_growth_mib": [_growth_mib(x) for x in run.of(CONTROL)],
        "sluice_rss_mib": through.sluice_rss_mib,
        "faults_logged": len(run.through.faults_logged),
    }
    if run.direct is not None:
        summary |= _direct_summary(run.direct)
    return summary | {"took_s": round(run.took_s)}


def _direct_summary(direct: Direct) -> dict[str, object]:
    death, good = direct.death, direct.good
    sent, acknowledged = good.sent or 0, good.acknowledged or 0
    return {
        "direct_broker_died": death.died,
        "direct_how": death.how,
        "direct_broker_answers_afterwards": death.answers_afterwards,
        "direct_ids_at_death": death.ids,
        "direct_ids_acknowledged": direct.phase.storm[-1].accepted if direct.phase.storm else 0,
        "direct_seconds": round(death.seconds, 1),
        "direct_ids_per_s": round(death.ids / death.seconds) if death.seconds else 0,
        "direct_good_sent": sent,
        "direct_good_lost": sent - acknowledged,
        "direct_good_p99_ms": _rounded(_p99_ms(good, direct.phase)),
    }


def report(run: StormRun, folder: Path) -> None:
    """Prints the table, writes storm.json and storm.png, and prints the summary as the last line."""
    console = wide_console()
    console.print(_table(run))
    summary = summary_of(run)
    everything = [phase for kind in SHOWN for phase in run.of(kind)]
    write_json(
        folder / "storm.json",
        {
            "summary": summary,
            "machine": machine(),
            "storm_batches_per_s": run.setting.rate,
            "storm_batches_per_request": run.setting.partitions,
            "collector": run.setting.collector,
            "ids_per_hour": IDS_PER_HOUR,
            "broker_heap_mib": HEAP_MIB,
            "good_records_per_s": GOOD_RATE,
            "phases": [_phase_json(run, phase) for phase in everything],
            "faults_logged": list(run.through.faults_logged),
        },
    )
    _plot(run, everything, folder / "storm.png")
    console.print(f"written: {folder / 'storm.json'}, storm.png")
    print_last_line(summary)


def _phase_json(run: StormRun, phase: Phase) -> dict[str, Any]:
    good = run.good(phase)
    return {
        "kind": phase.kind,
        "seconds": round(phase.seconds, 2),
        "live_heap_before": asdict(phase.live_before) if phase.live_before else None,
        "live_heap_after": asdict(phase.live_after) if phase.live_after else None,
        "broker_answers_at_end": phase.answers_at_end,
        "cpu_cores": phase.cpu_cores,
        "sluice_rss_mib": phase.sluice_rss_mib,
        "sluice_metrics_growth": phase.sluice_metrics,
        "heap_after_gc_mib": [[round(x.at_s - phase.start_s, 2), x.after_mib] for x in run.pauses(phase)],
        "gc_pauses_ms": round(sum(x.took_ms for x in run.pauses(phase))),
        "storm": [
            asdict(x) | {"at_s": round(x.at_s - phase.start_s, 2)}
            for x in [*phase.storm[::4], *phase.storm[-1:]]
        ],
        "good_latency_ms_by_second": good_by_second(good, phase.start_s, phase.end_s),
    }


def good_by_second(good: Good, start_s: float, end_s: float) -> list[dict[str, float | int]]:
    """Each second's number, records answered, p50 and highest latency; a second without any is left out."""
    seconds: dict[int, list[float]] = {}
    for x in good.records:
        if x.latency_s is not None and start_s <= x.sent_s < end_s:
            seconds.setdefault(int(x.sent_s - start_s), []).append(x.latency_s * 1e3)
    return [
        {
            "second": second,
            "answered": len(found),
            "p50_ms": round(median(found), 2),
            "max_ms": round(max(found), 2),
        }
        for second, found in sorted(seconds.items())
    ]


def _p99_ms(good: Good, phase: Phase) -> float | None:
    found = good.latencies_s(phase.start_s, phase.end_s)
    return percentile(found, 99) * 1e3 if found else None


def _growth_mib(phase: Phase) -> float | None:
    if phase.live_before is None or phase.live_after is None:
        return None
    return round(phase.live_after.mib - phase.live_before.mib, 2)


def _entries_growth(phase: Phase) -> int | None:
    if phase.live_before is None or phase.live_after is None:
        return None
    return phase.live_after.producer_entries - phase.live_before.producer_entries


def _after_gc_range(pauses: Sequence[Pause]) -> list[int]:
    after = [x.after_mib for x in pauses]
    return [min(after), max(after)] if after else []


def _rounded(value: float | None, digits: int = 2) -> float | None:
    return None if value is None else round(value, digits)


def _table(run: StormRun) -> Table:
    storm = f"A storm of {run.setting.rate:,.0f} batches a second, {run.setting.partitions} a request"
    table = Table(
        title=f"{storm}, beside a good client of {GOOD_RATE:.0f} records a second;"
        f" broker heap {HEAP_MIB} MiB; limit: {IDS_PER_HOUR:,} ids an hour",
        caption=_caption(run),
    )
    table.add_column("phase", no_wrap=True)
    for column in (
        "s", "brought a s", "taken a s", "taken", "live heap MiB", "after GC MiB",
        "good p50 ms", "p99", "max", "answered", "cores: broker", "Sluice", "storm",
    ):  # fmt: skip
        table.add_column(column, justify="right")
    for phase in [phase for kind in SHOWN for phase in run.of(kind)]:
        table.add_row(*_row(run, phase))
    return table


def _row(run: StormRun, phase: Phase) -> list[str]:
    good = run.good(phase)
    latencies_ms = [x * 1e3 for x in good.latencies_s(phase.start_s, phase.end_s)]
    last = phase.storm[-1] if phase.storm else None
    live = [f"{x.mib:.1f}" for x in (phase.live_before, phase.live_after) if x is not None]
    figures = (
        [f"{percentile(latencies_ms, x):.2f}" for x in (50, 99, 100)] if latencies_ms else ["–", "–", "–"]
    )
    return [
        SHOWN[phase.kind],
        f"{phase.seconds:.0f}",
        f"{last.offered / phase.seconds:,.0f}" if last else "",
        f"{last.accepted / phase.seconds:,.0f}" if last else "",
        f"{last.accepted:,}" if last else "",
        " → ".join(live),
        "–".join(str(x) for x in _after_gc_range(run.pauses(phase))),
        *figures,
        f"{len(latencies_ms):,}",
        *(f"{phase.cpu_cores.get(name, 0.0):.2f}" for name in ("broker", "sluice", "storm")),
    ]


def _caption(run: StormRun) -> str:
    (through,) = run.of(THROUGH)
    admitted = through.sluice_metrics["sluice_producer_ids_new_total"]
    lines = [
        f"let through: {admitted:,.0f} new ids, bound {admission_bound(through.seconds):,.0f}",
        f"good client through Sluice: {run.through.good.acknowledged:,} of {run.through.good.sent:,} records"
        " acknowledged",
    ]
    if run.direct is not None:
        death = run.direct.death
        lines.append(f"without Sluice, after {death.seconds:.1f} s and {death.ids:,} ids: {death.how}")
    return "\n".join(lines)


def _plot(run: StormRun, phases: Sequence[Phase], path: Path) -> None:
    from bench.lib.plots import figure, save

    plot, (heap, latency, ids) = figure(1, 3)
    named: set[str] = set()
    for phase in phases:
        style: dict[str, Any] = {"color": COLOURS[phase.kind]}
        if phase.kind not in named:
            style["label"] = SHOWN[phase.kind]
        named.add(phase.kind)
        heap.plot(*_heap_points(run, phase), marker=".", ms=3, **style)
        sent_s, latencies_ms = _points(run.good(phase), phase)
        latency.scatter(sent_s, latencies_ms, s=2, linewidths=0, alpha=0.6, **style)
        taken = _taken(phase.storm, phase.start_s)
        if phase.kind in (THROUGH, DIRECT):
            ids.plot(*taken, **style)
            offered = [x.offered for x in phase.storm]
            ids.plot(taken[0], offered, linestyle=":", color=COLOURS[phase.kind], linewidth=1)
    heap.axhline(HEAP_MIB, color="0.3", linewidth=1, linestyle="--")
    heap.set_ylim(0, HEAP_MIB * 1.05)
    heap.set_ylabel("broker's heap behind each collection, MiB")
    heap.set_title(f"Heap; its ends: what lives; dashed: its {HEAP_MIB} MiB")
    latency.set_yscale("log")
    latency.set_ylabel("latency of the good client's records, ms")
    latency.set_title("Each acknowledged record of the good client")
    ids.set_yscale("symlog", linthresh=100)
    ids.set_ylim(bottom=0)
    ids.set_ylabel("new ids")
    ids.set_title("Taken by the broker; dotted: brought by the storm")
    for axes in (heap, latency, ids):
        axes.set_xlabel("s since the storm began")
        axes.set_xlim(0, max(phase.seconds for phase in phases))
    heap.legend(fontsize="small", loc="lower right")
    save(plot, path)


def _points(good: Good, phase: Phase) -> tuple[list[float], list[float]]:
    found = [
        (x.sent_s - phase.start_s, x.latency_s * 1e3)
        for x in good.records
        if x.latency_s is not None and phase.start_s <= x.sent_s < phase.end_s
    ]
    return [x for x, _ in found], [y for _, y in found]


def _heap_points(run: StormRun, phase: Phase) -> tuple[list[float], list[float]]:
    """What lived before the phase, what each collection left, and what lived behind it."""
    found = [(x.at_s - phase.start_s, float(x.after_mib)) for x in run.pauses(phase)]
    if phase.live_before is not None:
        found.insert(0, (0.0, phase.live_before.mib))
    if phase.live_after is not None:
        found.append((phase.seconds, phase.live_after.mib))
    return [x for x, _ in found], [y for _, y in found]


def _taken(storm: Sequence[StormAt], start_s: float) -> tuple[list[float], list[int]]:
    return [x.at_s - start_s for x in storm], [x.accepted for x in storm]
