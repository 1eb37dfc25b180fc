"""How well the nights that ship fit demands that are known: scores from 0 to 100, by class and in three ways.

    python -m bench.calibration [--quick] [--seeds 301 302 …]

The loop is what ships: the log's windows → the job's policy → a plan → `sluice quotas apply` with its default
guards → the limits of the next day; 71 nights. The last line of standard output is one JSON object. What is
scored, and how: bench/calibration/score.py.
"""

import argparse
import sys
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Final

import numpy as np
from rich.table import Table

from bench.calibration.entities import ABUSERS, CLASSES, NIGHTS, draw_entities
from bench.calibration.loop import Outcome, run
from bench.calibration.score import Score, score
from bench.lib.results import machine, print_last_line, results_folder, wide_console, write_json

SEEDS: Final = (301, 302)
"""nothing was tuned on them"""
PER_CLASS: Final = 4
SHOWN: Final = ("all", "unattended", "reviewed")


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.calibration", description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="few entities: a trial, no result")
    parser.add_argument("--seeds", nargs="+", type=int, default=list(SEEDS))
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--out", type=Path, help="folder for results instead of bench/results")
    arguments = parser.parse_args(argv)
    per_class = 1 if arguments.quick else PER_CLASS
    with ProcessPoolExecutor(arguments.processes) as pool:
        outcomes = list(pool.map(_run, arguments.seeds, [per_class] * len(arguments.seeds)))
    scores = {way: [score(outcome, way) for outcome in outcomes] for way in (*SHOWN, "static")}
    official = not arguments.quick and tuple(arguments.seeds) == SEEDS
    _report(scores, outcomes, results_folder(arguments.out, official=official), arguments.seeds)
    return 0


def _run(seed: int, per_class: int) -> Outcome:
    return run(draw_entities(seed, per_class))


def _report(
    scores: dict[str, list[Score]], outcomes: Sequence[Outcome], folder: Path, seeds: Sequence[int]
) -> None:
    console = wide_console()
    by_class = {
        way: {kind: _mean(each.by_class[kind] for each in found) for kind in CLASSES}
        for way, found in scores.items()
    }
    table = Table(title="Score by class; parts: unattended")
    for name in ("class", *by_class, "parts"):
        table.add_column(name)
    for kind in CLASSES:
        parts = scores["unattended"][0].parts[kind]
        shown = "  ".join(
            f"{part} {_mean(each.parts[kind].get(part, 0.0) for each in scores['unattended']):.2f}"
            for part in parts
        )
        table.add_row(kind, *(f"{each[kind]:.1f}" for each in by_class.values()), shown)
    console.print(table)
    for outcome in outcomes:
        for line in outcome.refusals[:3]:
            console.print(f"frozen: {line}")
    worst, where = min((by_class[way][kind], f"{way}: {kind}") for way in SHOWN for kind in CLASSES)
    still = sum(each.never_waited for each in scores["unattended"])
    foreseen = max(1, sum(each.foreseen_never_waited for each in scores["unattended"]))
    summary: dict[str, object] = {
        **{f"score_{way}": round(_mean(each.total for each in scores[way]), 1) for way in SHOWN},
        "worst_class": round(worst, 1),
        "abuse_contained": round(
            min(each.parts[kind]["contained"] for way in SHOWN for each in scores[way] for kind in ABUSERS), 3
        ),
        "legit_step_days_to_enough": round(
            _mean(days for each in scores["reviewed"] for days in each.step_days), 2
        ),
        "legit_step_days_waited": round(
            _mean(days for each in scores["reviewed"] for days in each.step_days_waited), 2
        ),
        "never_waited_now_waits": round(sum(each.now_wait for each in scores["unattended"]) / still, 3),
        "never_waited_now_waits_foreseen": round(
            sum(each.foreseen_now_wait for each in scores["unattended"]) / foreseen, 3
        ),
        "slack": round(_mean(ratio for each in scores["unattended"] for ratio in each.ratios), 2),
        "frozen_nights_on_whole_logs": sum(outcome.frozen_nights for outcome in outcomes),
        "cuts_on_incomplete_logs": sum(outcome.cuts_on_incomplete for outcome in outcomes),
    }
    facts = {
        "worst_class_is": where,
        "score_static": round(_mean(each.total for each in scores["static"]), 1),
        "seeds": list(seeds),
        "nights": NIGHTS,
        "entities": len(outcomes[0].entities),
    }
    content = {"summary": summary, "facts": facts, "machine": machine(), "by_class": by_class}
    write_json(folder / "calibration.json", content)
    console.print(f"{facts}\nwritten: {folder / 'calibration.json'}")
    print_last_line(summary)


def _mean(found: Iterable[float]) -> float:
    return float(np.mean(list(found)))


if __name__ == "__main__":
    sys.exit(main())
