"""Which unit test runs which lines, and how long it takes: kept, and made anew for what has changed.

A changed test file is run again alone; after a changed source, of the product or of testkit, all are.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Final

import coverage
import pytest

from testkit.repository.tracked_files import unignored_files
from tools.mutants.mutant import ROOT

UNIT_TESTS: Final = (
    "tests/protocol", "tests/quotas", "tests/usage", "tests/proxy/session", "tests/recalibration/policy",
    # Not of these packages, but the nearest to them: what reads quotas, and what moves a session's bytes.
    "tests/proxy/cli/quotas", "tests/proxy/config", "tests/proxy/quota_store", "tests/proxy/replication",
    "tests/proxy/metrics", "tests/proxy/connection", "tests/proxy/access_log",
)  # fmt: skip
PACKAGES: Final = ("protocol", "quotas", "usage", "proxy/session", "recalibration/policy")
NO_KAFKA: Final = "not kafka and not slow"
OVER: Final = {"TESTS_OVER": "pure", "TESTS_THOROUGH": "1"}
"""for tests/proxy/conftest.py: not over the pump too, for it is the Python code that is changed; and for
testkit/thorough.py: all examples"""
KEPT: Final = ROOT / ".cache/mutants/lines.json"


@dataclass(slots=True)
class Lines:
    """What the tests run."""

    sources: str = ""
    """changes with every source that is no test"""
    files: dict[str, str] = field(default_factory=dict)
    """test files, and what changes with their text"""
    seconds: dict[str, float] = field(default_factory=dict)
    """of processor time, by test; those that pass"""
    tests: dict[str, dict[int, list[int]]] = field(default_factory=dict)
    """by path and line: numbers of tests in `names`"""
    names: list[str] = field(default_factory=list)

    def running(self, path: str, first: int, last: int) -> set[str]:
        """Tests that run any of these lines of a module."""
        lines = self.tests.get(path, {})
        return {self.names[test] for line in range(first, last + 1) for test in lines.get(line, ())}

    def forget(self, stale: set[str]) -> None:
        """Nothing is known any more of the tests in these files."""
        dropped = {n for n, name in enumerate(self.names) if name.split("::")[0] in stale}
        self.seconds = {name: s for name, s in self.seconds.items() if name.split("::")[0] not in stale}
        for lines in self.tests.values():
            for line, numbers in lines.items():
                lines[line] = [number for number in numbers if number not in dropped]

    def save(self) -> None:
        """Write it into the file KEPT."""
        KEPT.parent.mkdir(parents=True, exist_ok=True)
        KEPT.write_text(json.dumps(asdict(self)), encoding="utf-8")


def load() -> Lines:
    """What KEPT says; nothing if there is none."""
    try:
        kept = Lines(**json.loads(KEPT.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return Lines()
    kept.tests = {path: {int(line): n for line, n in lines.items()} for path, lines in kept.tests.items()}
    return kept


def _hashed(paths: Sequence[str]) -> str:
    summed = hashlib.sha256(sys.version.encode())
    for path in paths:
        summed.update(path.encode() + b"\0" + (ROOT / path).read_bytes())
    return summed.hexdigest()


def _python(folders: Sequence[str]) -> list[str]:
    return sorted(p for folder in folders for p in unignored_files(ROOT, folder) if p.endswith(".py"))


def stale(kept: Lines) -> tuple[str, dict[str, str]]:
    """What is to be run: the sources' hash as it is now, and the test files with theirs."""
    sources = _hashed(_python([*PACKAGES, "testkit"]))
    files = {path: _hashed([path]) for path in _python(UNIT_TESTS)}
    if sources == kept.sources:
        files = {path: found for path, found in files.items() if kept.files.get(path) != found}
    return sources, files


class _Recorder:
    """As a plugin: tells coverage whose lines it sees."""

    def __init__(self, cov: coverage.Coverage) -> None:
        self._cov = cov
        self.seconds: dict[str, float] = {}
        self.failed: set[str] = set()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self._cov.switch_context(item.nodeid)
        begun_s = time.process_time()
        try:
            return (yield)
        finally:
            self.seconds[item.nodeid] = time.process_time() - begun_s
            self._cov.switch_context("")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if not report.passed:
            self.failed.add(report.nodeid)


def update() -> int:
    """Run what is stale and keep what it ran: in a process of its own, which has imported nothing yet.

    Returns pytest's exit code.
    """
    kept = load()
    sources, files = stale(kept)
    kept.forget(set(files))
    kept.sources = sources
    kept.files.update(files)
    KEPT.parent.mkdir(parents=True, exist_ok=True)
    data_file = KEPT.with_suffix(".coverage")
    cov = coverage.Coverage(
        data_file=str(data_file), source=[str(ROOT / path) for path in PACKAGES], config_file=False
    )
    cov.erase()
    recorder = _Recorder(cov)
    cov.start()
    code = pytest.main(["-q", "-p", "no:cacheprovider", "-m", NO_KAFKA, *files], plugins=[recorder])
    cov.stop()
    cov.save()
    passed = {test: s for test, s in recorder.seconds.items() if test not in recorder.failed}
    kept.seconds.update({test: round(seconds, 4) for test, seconds in passed.items()})
    numbers = {test: len(kept.names) + number for number, test in enumerate(passed)}
    kept.names += passed
    data = cov.get_data()
    for file in sorted(data.measured_files()):
        lines = kept.tests.setdefault(os.path.relpath(file, ROOT), {})
        for line, tests in data.contexts_by_lineno(file).items():
            lines.setdefault(line, []).extend(sorted(numbers[test] for test in tests if test in numbers))
    kept.save()
    data_file.unlink(missing_ok=True)
    return int(code)


if __name__ == "__main__":
    sys.exit(update())
