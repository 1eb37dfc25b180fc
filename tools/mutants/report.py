"""What became of the mutants: shown while they run, told as a table, kept as a file."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Final, TextIO

from tools.mutants.argued import reason_of
from tools.mutants.mutant import Mutant
from tools.mutants.operators import OPERATORS
from tools.mutants.trial import KILLED, Outcome

_EVERY_S: Final = 10.0


class Progress:
    """A line every ten seconds, and one for each survivor as it is found."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._begun_s = time.monotonic()
        self._told_s = 0.0
        self._verdicts: Counter[str] = Counter()

    def __call__(self, outcome: Outcome, number: int, count: int) -> None:
        """Tell how far it is, after each mutant."""
        self._verdicts[outcome.verdict] += 1
        if not outcome.is_killed:
            self._say(f"  {outcome.verdict}: {told(outcome)}")
        now_s = time.monotonic()
        if now_s - self._told_s >= _EVERY_S or number == count:
            self._told_s = now_s
            left_s = (now_s - self._begun_s) / number * (count - number)
            counts = ", ".join(f"{found} {verdict}" for verdict, found in self._verdicts.most_common())
            self._say(f"{number} of {count}: {counts}; about {left_s / 60:.0f} min left")

    def _say(self, line: str) -> None:
        print(line, file=self._out, flush=True)


def told(outcome: Outcome) -> str:
    """A mutant in one line."""
    mutant = outcome.mutant
    tests = f" ({outcome.tests} tests)" if outcome.tests else ""
    return f"{mutant.place} {mutant.where}, {mutant.operator}: {mutant.change}{tests}"


def judged(outcomes: Sequence[Outcome]) -> list[Outcome]:
    """Without those that could not be put into the process."""
    return [outcome for outcome in outcomes if outcome.verdict != "not applicable"]


def killed_share(outcomes: Sequence[Outcome]) -> float:
    """The share of judged mutants that were killed; one that is argued counts as a survivor."""
    found = judged(outcomes)
    return sum(outcome.is_killed for outcome in found) / len(found) if found else 0.0


def table(outcomes: Sequence[Outcome]) -> str:
    """By package and by operator, then all survivors with what is said for them."""
    rows = [f"{'':24}{'mutants':>9}{'killed':>9}{'timeout':>9}{'survived':>10}{'share':>8}"]
    found = judged(outcomes)
    packages = sorted({_package(outcome) for outcome in found})
    groups = [(name, [o for o in found if _package(o) == name]) for name in packages]
    groups += [(name, [o for o in found if o.mutant.operator == name]) for name in OPERATORS]
    for name, group in [*groups, ("all", found)]:
        verdicts = Counter(outcome.verdict for outcome in group)
        left = sum(not outcome.is_killed for outcome in group)
        rows.append(
            f"{name:24}{len(group):9}{verdicts['killed']:9}{verdicts['timeout']:9}{left:10}"
            f"{killed_share(group):8.1%}"
        )
    rows += ["", "survivors:"]
    for outcome in found:
        if not outcome.is_killed:
            rows += [f"  {told(outcome)}", f"    {reason_of(outcome.mutant) or 'not argued'}"]
    return "\n".join(rows)


def _package(outcome: Outcome) -> str:
    path = outcome.mutant.path
    return "proxy/session" if path.startswith("proxy/") else path.split("/")[0]


def keep(file: Path, seed: int, outcomes: Sequence[Outcome], by_name: dict[str, Outcome]) -> None:
    """For whoever compares two runs."""
    rows = [
        {
            "place": outcome.mutant.place, "where": outcome.mutant.where, "operator": outcome.mutant.operator,
            "change": outcome.mutant.change, "verdict": outcome.verdict, "test": outcome.test,
            "argued": reason_of(outcome.mutant),
        }
        for outcome in judged(outcomes)
    ]  # fmt: skip
    named = {name: {"verdict": outcome.verdict, "test": outcome.test} for name, outcome in by_name.items()}
    whole = {"seed": seed, "killed_share": round(killed_share(outcomes), 4), "named": named, "mutants": rows}
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")


def key_of(mutant: Mutant) -> tuple[str, ...]:
    """The same for the same change at the same place."""
    return mutant.place, mutant.where, mutant.operator, mutant.change


def killed_before(file: Path) -> dict[tuple[str, ...], tuple[str, str]]:
    """By key_of, of a file that `keep` wrote: verdict and test of those that were killed."""
    rows = json.loads(file.read_text(encoding="utf-8"))["mutants"]
    return {
        (row["place"], row["where"], row["operator"], row["change"]): (row["verdict"], row["test"])
        for row in rows
        if row["verdict"] in KILLED
    }
