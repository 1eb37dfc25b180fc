"""How well the nightly calibration finds the right limits: a score from 0 to 100, on seeds not tuned on.

    python -m bench.calibration [--quick] [--seeds 101 102 …]

220 entities in eleven classes, a closed loop of 14 nights: every night's limits shape the next day's log. The
last line of standard output is one JSON object. What is scored, and how: docs/recalibration.md.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from rich.table import Table

from bench.calibration.entities import CLASSES, draw_entities
from bench.calibration.loop import METHODS, Outcome, run
from bench.calibration.score import WEIGHTS, Score, score
from bench.lib.plots import figure, save
from bench.lib.results import machine, print_last_line, results_folder, wide_console, write_json
from bench.lib.stats import spread

UNSEEN_SEEDS: Final = (101, 102, 103, 104, 105)
"""the policy was tuned on seeds 1 to 3"""
PER_CLASS: Final = 20
OURS: Final = "sluice"


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.calibration", description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="few entities: a trial, no result")
    parser.add_argument("--seeds", nargs="+", type=int, default=list(UNSEEN_SEEDS))
    parser.add_argument("--out", type=Path, help="folder for results instead of bench/results")
    arguments = parser.parse_args(argv)
    per_class = 4 if arguments.quick else PER_CLASS
    scores: dict[str, list[Score]] = {name: [] for name in METHODS}
    shown: Outcome | None = None
    for seed in arguments.seeds:
        for name, method in METHODS.items():
            outcome = run(draw_entities(seed, per_class), method)
            scores[name].append(score(outcome))
            print(f"seed {seed}  {name:<10} {scores[name][-1].total:5.1f}", flush=True)
            if name == OURS and shown is None:
                shown = outcome
    assert shown is not None
    official = not arguments.quick and tuple(arguments.seeds) == UNSEEN_SEEDS
    _report(scores, shown, arguments.seeds, results_folder(arguments.out, official=official))
    return 0


def _report(scores: dict[str, list[Score]], shown: Outcome, seeds: Sequence[int], folder: Path) -> None:
    console = wide_console()
    for table in (_totals(scores), _classes(scores[OURS])):
        console.print(table)
    ours = scores[OURS]
    totals = spread([each.total for each in ours])
    summary: dict[str, object] = {
        "score": round(totals.median, 2),
        **{part: round(_mean([each.parts[part] for each in ours]), 4) for part in WEIGHTS},
        "score_range": totals.as_range(),
        "fits": all(each.fits for each in ours),
        "seeds": list(seeds),
        "entities": len(shown.entities),
        **{
            f"{name.replace(' ', '_')}_score": round(spread([each.total for each in found]).median, 2)
            for name, found in scores.items()
            if name != OURS
        },
    }
    by_class = {name: [each.by_class for each in found] for name, found in scores.items()}
    write_json(folder / "calibration.json", {"summary": summary, "machine": machine(), "by_class": by_class})
    _plot(scores, shown, folder / "calibration.png")
    console.print(f"written: {folder / 'calibration.json'}, calibration.png")
    print_last_line(summary)


def _totals(scores: dict[str, list[Score]]) -> Table:
    table = Table(title="Score: median (lowest–highest) over the seeds; parts: mean")
    table.add_column("method")
    table.add_column("score", justify="right", style="bold")
    for part, weight in WEIGHTS.items():
        table.add_column(f"{part} ({weight})", justify="right")
    for name, found in scores.items():
        parts = (f"{_mean([each.parts[part] for each in found]):.3f}" for part in WEIGHTS)
        table.add_row(name, str(spread([each.total for each in found])), *parts)
    return table


def _classes(found: list[Score]) -> Table:
    table = Table(title="Ours by class")
    table.add_column("class")
    for part in WEIGHTS:
        table.add_column(part, justify="right")
    for kind in CLASSES:
        cells = [
            [each.by_class[kind][part] for each in found if part in each.by_class[kind]] for part in WEIGHTS
        ]
        table.add_row(kind, *(f"{_mean(cell):.3f}" if cell else "" for cell in cells))
    return table


def _plot(scores: dict[str, list[Score]], shown: Outcome, path: Path) -> None:
    plot, axes = figure(1, 2, width_ratios=[1, 1.4])
    names = list(scores)
    bottom = [0.0] * len(names)
    for part, weight in WEIGHTS.items():
        heights = [weight * _mean([each.parts[part] for each in scores[name]]) for name in names]
        axes[0].bar(names, heights, bottom=bottom, label=f"{part} ({weight})")
        bottom = [low + height for low, height in zip(bottom, heights, strict=True)]
    axes[0].set_ylim(0, 100)
    axes[0].set_title("Score, mean of the seeds")
    axes[0].legend(loc="upper center", bbox_to_anchor=(0.5, -0.08), fontsize="small", ncols=3)
    for number, kind in enumerate(CLASSES):
        ratios = []
        for index, entity in enumerate(shown.entities):
            worst = max(day[index] for day in shown.p99)
            if entity.kind == kind and worst > 0:
                ratios.append([limit[index] / (1.15 * worst) for limit in shown.limits])
        nights = range(len(shown.limits))
        means = [_mean([row[night] for row in ratios]) for night in nights]
        axes[1].plot(nights, means, "-" if number < 10 else "--", label=kind)  # ten colours, then dashes
    axes[1].axhspan(0.75, 1.25, color="grey", alpha=0.15)
    axes[1].set_yscale("log")
    axes[1].set_xlabel("night")
    axes[1].set_title("Limit ÷ (1.15 × the worst day's p99), mean of the class")
    axes[1].legend(loc="upper center", bbox_to_anchor=(0.5, -0.14), fontsize="small", ncols=4)
    save(plot, path)


def _mean(found: Sequence[float]) -> float:
    return sum(found) / len(found)


if __name__ == "__main__":
    sys.exit(main())
