"""Branch coverage of the pure packages by the unit tests, held to gates: `make coverage`.

    python -m tools.branch_coverage

A share is (lines + branches that were run) ÷ (lines + branches); what was not run is listed. That a line is
run does not say that a test would notice a change of it: `make mutants` does. Exit code 1 below a gate, or if
a test fails. The last line of standard output is one JSON object.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

import coverage
import pytest

from tools.mutants.lines import NO_KAFKA, OVER, PACKAGES, UNIT_TESTS
from tools.mutants.mutant import ROOT
from tools.structure import GENERATED

PURE_LEAST: Final = 0.95
EXACT_LEAST: Final = 1.0
"""of the readers and the session"""
_NOT_READERS: Final = ("protocol/codec/", "protocol/_tables.py")
"""made from Kafka's descriptions of its messages, or reading by them: all else there is written by hand"""
_NEVER_RUN: Final = [
    "if TYPE_CHECKING:", "@abstractmethod", "@overload", r"class \w+\(Protocol\)",
    r"case _:\n\s+assert_never",  # mypy proves it
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Covered:
    """One module's lines and branches."""

    path: str
    there: int
    run: int
    missing: tuple[str, ...]
    """lines, and branches as from->to"""

    @property
    def is_exact(self) -> bool:
        """It is a reader or belongs to the session."""
        is_reader = self.path.startswith("protocol/") and not self.path.startswith(_NOT_READERS)
        return is_reader or self.path.startswith("proxy/session/")

    @property
    def package(self) -> str:
        return next(name for name in PACKAGES if self.path.startswith(f"{name}/"))


def share(modules: Iterable[Covered]) -> float:
    """The share of all lines and branches of these modules that were run."""
    found = list(modules)
    there = sum(module.there for module in found)
    return sum(module.run for module in found) / there if there else 1.0


def measured(data_file: str) -> tuple[int, list[Covered]]:
    """Run the unit tests: pytest's exit code, and every module of PACKAGES."""
    cov = coverage.Coverage(
        data_file=data_file, branch=True, config_file=False, source=[str(ROOT / path) for path in PACKAGES],
        omit=[str(ROOT / path) for path in GENERATED],
    )  # fmt: skip
    cov.erase()
    for never in _NEVER_RUN:
        cov.exclude(never)
    cov.start()
    code = pytest.main(["-q", "-p", "no:cacheprovider", "-m", NO_KAFKA, *UNIT_TESTS])
    cov.stop()
    cov.save()
    report = data_file + ".json"
    cov.json_report(outfile=report)
    with open(report, encoding="utf-8") as file:
        files = json.load(file)["files"]
    return int(code), [_covered(os.path.relpath(path, ROOT), found) for path, found in sorted(files.items())]


def _covered(path: str, found: dict[str, Any]) -> Covered:
    of = found["summary"]
    missing = [*map(str, found["missing_lines"])]
    # What is in lines that were not run at all is told by these.
    missing += [f"{a}->{b}" for a, b in found["missing_branches"] if a not in found["missing_lines"]]
    there = of["num_statements"] + of["num_branches"]
    return Covered(path, there, of["covered_lines"] + of["covered_branches"], tuple(missing))


def main() -> int:
    """Measure, print, and return the exit code."""
    os.environ.update(OVER)
    folder = ROOT / ".cache/coverage"
    folder.mkdir(parents=True, exist_ok=True)
    code, modules = measured(str(folder / "data"))
    for module in modules:
        if module.missing:
            print(f"{module.path}: {', '.join(module.missing)}")
    exact = [module for module in modules if module.is_exact]
    groups = {name: [m for m in modules if m.package == name] for name in PACKAGES}
    for name, group in {**groups, "readers and session": exact, "all": modules}.items():
        there = sum(module.there for module in group)
        print(f"{name:24}{len(group):5} modules{there:8} lines and branches{share(group):9.2%}")
    exact_share = share(exact)
    least_pure = min(share(group) for group in groups.values())
    # Rounded down: nothing short of all is 1.0.
    figures = {"pure": share(modules), "readers_and_session": exact_share}
    print(json.dumps({name: int(found * 10_000) / 10_000 for name, found in figures.items()}))
    return int(code != 0 or least_pure < PURE_LEAST or exact_share < EXACT_LEAST)


if __name__ == "__main__":
    sys.exit(main())
