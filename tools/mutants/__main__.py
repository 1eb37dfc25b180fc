"""Do the unit tests notice when the pure packages are changed? `make mutants`.

    python -m tools.mutants [--count 620] [--seed 1] [--only PATH] [--named]
                            [--again FILE] [--results FILE]

Mutants (operators.py) are drawn by a seed, stratified by module, beside those that have a name (named.py);
each is tried on the unit tests that run its lines (trial.py). Exit code 1 if less than 90 % are killed, or
one with a name survives. The last line of standard output is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final, TextIO

import pytest

from tools.mutants import lines
from tools.mutants.mutant import ROOT, Mutant
from tools.mutants.named import NAMED
from tools.mutants.operators import mutants_of
from tools.mutants.report import Progress, judged, keep, key_of, killed_before, killed_share, table
from tools.mutants.sample import modules, sample
from tools.mutants.trial import Outcome, Trial

LEAST_SHARE: Final = 0.9
WHOLE: Final = 600
RESULTS: Final = ROOT / "bench/results/mutants.json"


class _Derandomised:
    """As a plugin: property tests try the same examples each time, and keep none on disk."""

    def pytest_collection(self) -> None:
        from hypothesis import settings  # pytest first: it rewrites the plugin's assertions

        settings.register_profile("mutants", settings.default, derandomize=True, database=None)
        settings.load_profile("mutants")


def arguments_of(given: Sequence[str] | None) -> argparse.Namespace:
    """The arguments of a command line."""
    parser = argparse.ArgumentParser(prog="python -m tools.mutants", description="Mutants and unit tests.")
    add = parser.add_argument
    add("--count", type=int, default=WHOLE + 20, help="how many are drawn; some cannot be applied")
    add("--seed", type=int, default=1, help="by which they are drawn")
    add("--only", help="all mutants of the modules whose path begins like this, none drawn")
    add("--named", action="store_true", help="only those that have a name")
    add("--again", type=Path, help="results: what was killed there is not tried again")
    add("--results", type=Path, help="file for them; of a whole run bench/results/mutants.json")
    return parser.parse_args(given)


def drawn_by(chosen: argparse.Namespace) -> list[Mutant]:
    """Those without a name."""
    if chosen.named:
        return []
    if chosen.only:
        return [mutant for path in modules() if path.startswith(chosen.only) for mutant in mutants_of(path)]
    return sample(chosen.count, chosen.seed)


def tried(mutants: Sequence[Mutant], out: TextIO) -> list[Outcome]:
    """What became of each. Raises RuntimeError if pytest ends before."""
    trial = Trial(mutants, lines.load(), Progress(out))
    code = pytest.main(
        ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-m", lines.NO_KAFKA, *lines.UNIT_TESTS],
        plugins=[trial, _Derandomised()],
    )
    if len(trial.outcomes) != len(mutants):
        raise RuntimeError(f"pytest ended with code {code} before all mutants were tried")
    return trial.outcomes


def main(given: Sequence[str] | None = None) -> int:
    """Judge the mutants, and return the exit code."""
    chosen = arguments_of(given)
    os.environ.update(lines.OVER)
    out = os.fdopen(os.dup(1), "w")  # pytest takes the other
    if files := lines.stale(lines.load())[1]:
        print(f"which test runs which line: of {len(files)} test files anew", file=out, flush=True)
        subprocess.run([sys.executable, "-m", "tools.mutants.lines"], check=False, cwd=ROOT)
    named, drawn = [one.mutant() for one in NAMED], drawn_by(chosen)
    before = killed_before(chosen.again) if chosen.again else {}
    found = tried([*named, *(mutant for mutant in drawn if key_of(mutant) not in before)], out)
    by_name = {one.name: outcome for one, outcome in zip(NAMED, found, strict=False)}
    others = iter(found[len(named) :])
    outcomes = [
        Outcome(mutant, *before[key_of(mutant)]) if key_of(mutant) in before else next(others)
        for mutant in drawn
    ]
    if outcomes:
        print(table(outcomes), file=out)
    for name, outcome in by_name.items():
        print(f"named {name}: {outcome.verdict} {outcome.test}", file=out)
    file = chosen.results or (RESULTS if not chosen.only and len(drawn) >= WHOLE else None)
    if file is not None:
        keep(file, chosen.seed, outcomes, by_name)
    survivors = sum(not outcome.is_killed for outcome in by_name.values())
    share = int(killed_share(outcomes) * 10_000) / 10_000
    figures = {"mutants": len(judged(outcomes)), "killed_share": share, "named_survivors": survivors}
    print(json.dumps(figures), file=out, flush=True)
    return int(survivors > 0 or (not chosen.named and share < LEAST_SHARE))


if __name__ == "__main__":
    sys.exit(main())
