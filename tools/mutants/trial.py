"""Mutants → which of them a test kills. A plugin of one pytest run, which collects all unit tests once.

For each mutant a child is forked (child.py) for the tests that run the changed lines: those that have killed
another mutant of the module first, then those of the mirrored folder, then all others, the fastest first; and
last those that are slow.
"""

from __future__ import annotations

import gc
import os
import select
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Final

import pytest

from tools.mutants import child
from tools.mutants.lines import Lines
from tools.mutants.mutant import Mutant, Process, imports_of, module_of, source_of

_WALL_S: Final = 60.0
"""a test that waits for what never comes, on a machine that is busy"""
_BUDGET_S: Final = 12.0
"""of processor time for one mutant, as the tests took while their lines were traced (about thrice what they
take here); what is beyond does not run"""
_SLOW_S: Final = 0.5
"""a test that takes longer comes behind all quicker ones: a few of a folder would leave no time for others"""
_KILLERS: Final = 20
"""of the tests that have killed mutants of a module, the last so many go first"""

KILLED: Final = frozenset({"killed", "timeout"})


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one mutant."""

    mutant: Mutant
    verdict: str
    """killed, timeout (killed, too), survived, uncovered (survived: no test runs it), not applicable"""
    test: str = ""
    """that killed it"""
    tests: int = 0
    """how many were run"""

    @property
    def is_killed(self) -> bool:
        return self.verdict in KILLED


@dataclass(slots=True)
class Trial:
    """The plugin. `tell` is called after each mutant, with its number and the number of all."""

    mutants: Sequence[Mutant]
    lines: Lines
    tell: Callable[[Outcome, int, int], None]
    outcomes: list[Outcome] = field(default_factory=list)
    _items: dict[str, pytest.Item] = field(default_factory=dict)
    _killers: dict[str, list[str]] = field(default_factory=dict)
    _trusted: dict[str, bool] = field(default_factory=dict)
    """of tests that killed: do they pass in such a child without a mutant?"""

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """In the place of pytest's own: no test is run in this process."""
        self._items = {
            item.nodeid: item
            for item in session.items
            if "kafka_dist" not in getattr(item, "fixturenames", ())  # a Java takes seconds to start
        }
        process = Process()
        gc.collect()
        gc.freeze()
        for number, mutant in enumerate(self.mutants, 1):
            outcome = self._try(process, mutant)
            self.outcomes.append(outcome)
            self.tell(outcome, number, len(self.mutants))
        return True

    def _try(self, process: Process, mutant: Mutant) -> Outcome:
        """Killed only by a test that passes in a child without a mutant."""
        while tests := self._in_order(mutant):
            last, status = self._run(process, mutant, tests)
            outcome = self._outcome(mutant, tests, last, status)
            if not outcome.is_killed or self._is_trusted(process, outcome.test):
                return outcome
        return Outcome(mutant, "uncovered")

    def _is_trusted(self, process: Process, test: str) -> bool:
        if test not in self._trusted:
            _, status = self._run(process, None, [test])
            self._trusted[test] = os.waitstatus_to_exitcode(status) == child.SURVIVED
            if not self._trusted[test]:
                del self._items[test]
        return self._trusted[test]

    def _run(self, process: Process, mutant: Mutant | None, tests: list[str]) -> tuple[int, int]:
        """The number of the last test that began, and how the child ended."""
        begins, told = os.pipe()
        pid = os.fork()
        if not pid:
            os.close(begins)
            seconds = [self.lines.seconds[test] for test in tests]
            child.run(process, mutant, [self._items[test] for test in tests], seconds, told)
        os.close(told)
        last, is_late = _follow(begins)
        os.close(begins)
        if is_late:
            os.kill(pid, 9)
        return last, os.waitpid(pid, 0)[1]

    def _outcome(self, mutant: Mutant, tests: list[str], last: int, status: int) -> Outcome:
        code = os.waitstatus_to_exitcode(status)
        if code == child.NOT_APPLICABLE:
            return Outcome(mutant, "not applicable")
        if code == child.SURVIVED:
            return Outcome(mutant, "survived", tests=len(tests))
        test = tests[max(last, 0)]
        killers = self._killers.setdefault(mutant.path, [])
        killers[:] = [test, *(other for other in killers if other != test)][:_KILLERS]
        return Outcome(mutant, "killed" if code == child.KILLED else "timeout", test, last + 1)

    def _in_order(self, mutant: Mutant) -> list[str]:
        """The tests that may notice, within the budget."""
        seconds = self.lines.seconds
        running = self._users(mutant) if mutant.is_constant else self.lines.running(
            mutant.path, mutant.line, mutant.last_line
        )  # fmt: skip
        running &= self._items.keys() & seconds.keys()
        killers = {test: place for place, test in enumerate(self._killers.get(mutant.path, []))}
        folder = f"tests/{PurePosixPath(mutant.path).parent}/"
        ordered = sorted(
            running,
            key=lambda test: (
                killers.get(test, 99), seconds[test] > _SLOW_S, not test.startswith(folder), seconds[test],
                test,
            ),
        )  # fmt: skip
        left_s = _BUDGET_S
        chosen: list[str] = []
        for test in ordered:
            left_s -= seconds[test]
            if left_s < 0.0 and chosen:
                break
            chosen.append(test)
        return chosen

    def _users(self, mutant: Mutant) -> set[str]:
        """Tests that run a line on which a module's constant is used, wherever it was imported."""
        module, running = module_of(mutant.path), set[str]()
        for path in self.lines.tests:
            names = imports_of(str(_file(path))).get(module, frozenset())
            if path == mutant.path or mutant.where in names:
                for number, line in enumerate(source_of(path).decode().splitlines(), 1):
                    if mutant.where in line:
                        running |= self.lines.running(path, number, number)
        return running


def _file(path: str) -> PurePosixPath:
    from tools.mutants.mutant import ROOT

    return PurePosixPath(ROOT / path)


def _follow(begins: int) -> tuple[int, bool]:
    """The number of the last test that began, and whether it took too long; returns when the child ends."""
    last, until_s = -1, time.monotonic() + _WALL_S
    while True:
        ready, _, _ = select.select([begins], [], [], max(0.0, until_s - time.monotonic()))
        if not ready:
            return last, True
        data = os.read(begins, 4)
        if not data:
            return last, False
        last, until_s = int.from_bytes(data, "big"), time.monotonic() + _WALL_S
