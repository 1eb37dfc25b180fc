"""`make check-deploy`: every check of deploy/checks/, one after the other, and a table of how they ended.

deploy/checks/README.md says what a check is and what its exit code means. Debian packages that checks ask for
are installed first if this is root; who is not root is told their names.
"""

from __future__ import annotations

import ast
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
CHECKS: Final = ROOT / "deploy" / "checks"
NOT_DONE: Final = 3
"""exit code of a check that could not be made, and of a run in which there was one"""
LIMIT_S: Final = 300.0
PASSED, FAILED, UNDONE = "passed", "FAILED", "not done"


@dataclass(frozen=True, slots=True)
class Check:
    """A program that checks one thing, and what it says of itself."""

    path: Path
    title: str
    packages: tuple[str, ...]
    """Debian's, that it needs"""
    limit_s: float
    on_request: bool
    """only run when it is named"""

    @property
    def name(self) -> str:
        return self.path.stem


@dataclass(frozen=True, slots=True)
class Result:
    """How a check ended."""

    name: str
    title: str
    outcome: str
    took_s: float
    said: str
    """its last line, unless it passed"""


def read_check(path: Path) -> Check:
    """What a program of deploy/checks says of itself. Raises SystemExit if it has no docstring."""
    text = path.read_text(encoding="utf-8")
    document = ast.get_docstring(ast.parse(text))
    if not document:
        sys.exit(f"{path}: a check says in the first line of its docstring what it checks")
    packages = re.findall(r"^# debian: *(.*)$", text, re.M)
    limit = re.search(r"^# limit: *(\d+) s$", text, re.M)
    return Check(
        path,
        document.splitlines()[0].rstrip("."),
        tuple(name for line in packages for name in line.split()),
        float(limit[1]) if limit else LIMIT_S,
        re.search(r"^# on request$", text, re.M) is not None,
    )


def all_checks(folder: Path) -> list[Check]:
    """The executable programs of a folder by name."""
    return [read_check(path) for path in sorted(folder.glob("*.py")) if os.access(path, os.X_OK)]


def find_checks(folder: Path, wanted: Sequence[str]) -> list[Check]:
    """The executable programs of a folder by name; only `wanted` ones, or all but those on request."""
    found = all_checks(folder)
    unknown = set(wanted) - {check.name for check in found}
    if unknown:
        names = ", ".join(check.name for check in found)
        sys.exit(f"no check {', '.join(sorted(unknown))}; there are: {names}")
    return [check for check in found if (check.name in wanted if wanted else not check.on_request)]


def missing_packages(names: Iterable[str]) -> set[str]:
    """Which of these Debian packages are not installed; all of them where there is no dpkg."""
    wanted = set(names)
    if not wanted or shutil.which("dpkg-query") is None:
        return wanted
    shown = subprocess.run(
        ["dpkg-query", "-W", "-f", "${db:Status-Abbrev} ${Package}\n", *sorted(wanted)],
        check=False,
        capture_output=True,
        text=True,
    ).stdout
    return wanted - {line.split()[1] for line in shown.splitlines() if line.startswith("ii ")}


def install(names: set[str]) -> None:
    """Install Debian packages; what cannot be had is missing afterwards, and apt has said why."""
    print(f"=== Debian packages: {' '.join(sorted(names))}", flush=True)
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in (["update", "-qq"], ["install", "-qq", "-y", "--no-install-recommends", *sorted(names)]):
        done = subprocess.run(
            ["apt-get", *command],
            env=environment,
            stdin=subprocess.DEVNULL,
            check=False,
            capture_output=True,
            text=True,
        )
        if done.returncode:
            print(done.stdout[-2000:], done.stderr[-2000:], sep="\n", flush=True)


def run(check: Check) -> Result:
    """Run one check to its end or its limit, and show what it says while it does."""
    print(f"\n=== {check.name}: {check.title}", flush=True)
    since = time.monotonic()
    late = threading.Event()
    said = ""
    with subprocess.Popen(
        [sys.executable, check.path],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    ) as process:

        def end() -> None:
            late.set()
            os.killpg(process.pid, signal.SIGKILL)

        alarm = threading.Timer(check.limit_s, end)
        alarm.start()
        try:
            assert process.stdout is not None
            for line in process.stdout:
                print(line, end="", flush=True)
                said = line.strip() or said
            code = process.wait()
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            raise
        finally:
            alarm.cancel()
    if late.is_set():
        said = f"ended after {check.limit_s:.0f} s, its limit"
    outcome = {0: PASSED, NOT_DONE: UNDONE}.get(code, FAILED)
    return Result(check.name, check.title, outcome, time.monotonic() - since, "" if code == 0 else said)


def undone_for_lack_of(check: Check, missing: set[str]) -> Result:
    """What becomes of a check whose packages are not there."""
    why = f"needs Debian's {' '.join(sorted(missing))}; root installs them with this command"
    print(f"\n=== {check.name}: {check.title}\n{why}", flush=True)
    return Result(check.name, check.title, UNDONE, 0.0, why)


def table(results: Sequence[Result]) -> str:
    """One line for each check, and a last line with the counts."""
    width = max(len(result.name) for result in results)
    lines = [
        f"{result.name:<{width}}  {result.outcome:<8}  {result.took_s:5.0f} s  {result.title}"
        + (f"\n{'':<{width}}  {'':<8}  {'':5}    {result.said}" if result.said else "")
        for result in results
    ]
    counts = [
        f"{sum(r.outcome == outcome for r in results)} {outcome.lower()}" for outcome in (PASSED, FAILED)
    ]
    undone = sum(result.outcome == UNDONE for result in results)
    return "\n".join([*lines, "", f"check-deploy: {', '.join(counts)}, {undone} not done"])


def exit_code(results: Sequence[Result]) -> int:
    """1: something failed; 3: nothing failed, something was not done; 0: all passed."""
    outcomes = {result.outcome for result in results}
    return 1 if FAILED in outcomes else NOT_DONE if UNDONE in outcomes else 0


def main() -> None:
    checks = find_checks(CHECKS, sys.argv[1:])
    missing = missing_packages(name for check in checks for name in check.packages)
    if missing and os.geteuid() == 0 and shutil.which("apt-get") is not None:
        install(missing)
        missing = missing_packages(missing)
    results = []
    for check in checks:
        lacks = missing & set(check.packages)
        results.append(undone_for_lack_of(check, lacks) if lacks else run(check))
    print(f"\n=== table\n{table(results)}", flush=True)
    left_out = [] if sys.argv[1:] else [check.name for check in all_checks(CHECKS) if check.on_request]
    if left_out:
        print(f"not asked for: {', '.join(left_out)} (make check-deploy ARGS={left_out[0]})", flush=True)
    sys.exit(exit_code(results))


if __name__ == "__main__":
    main()
