#!/usr/bin/env python3
"""No published vulnerability in the packages that the images are made of (pip-audit).

Asks the two services that pip-audit knows, PyPI's and OSV. A package that neither could tell anything about
was not audited, though pip-audit calls the whole "no known vulnerabilities" then. Here it is not done.
"""

# limit: 240 s

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[2]
PIP_AUDIT: Final = Path(sys.executable).with_name("pip-audit")
LOCKS: Final = ("recalibration", "build")
"""image.txt is a part of recalibration.txt; a test says so"""
SERVICES: Final = ("pypi", "osv")
NOT_DONE: Final = 3


@dataclass(frozen=True, slots=True)
class Answer:
    """What a service said of a lock file's packages."""

    vulnerable: tuple[str, ...]
    """`name version: id, id`"""
    audited: int
    unknown: int
    """packages of which it told nothing"""
    failure: str
    """why it could not be asked; empty if it could"""

    @property
    def is_complete(self) -> bool:
        return self.audited > 0 and self.unknown == 0 and not self.failure


def read_answer(report: str, errors: str) -> Answer:
    """pip-audit's JSON, or, where it has none, the last line of what it said instead."""
    try:
        dependencies: Sequence[Mapping[str, Any]] = json.loads(report)["dependencies"]
    except (ValueError, KeyError, TypeError):
        said = [line for line in errors.splitlines() if line.strip()]
        return Answer((), 0, 0, said[-1].strip() if said else "pip-audit ended without a report")
    vulnerable = tuple(
        f"{one['name']} {one['version']}: {', '.join(found['id'] for found in one['vulns'])}"
        for one in dependencies
        if one.get("vulns")
    )
    unknown = sum("skip_reason" in one for one in dependencies)
    return Answer(vulnerable, len(dependencies) - unknown, unknown, "")


def ask(lock: str, service: str) -> Answer:
    """Have pip-audit look up a lock file's packages; nothing is downloaded or installed."""
    asked = subprocess.run(
        [
            *(PIP_AUDIT, "--requirement", ROOT / "requirements" / f"{lock}.txt", "--require-hashes"),
            *("--disable-pip", "--vulnerability-service", service, "--format", "json"),
            *("--progress-spinner", "off", "--timeout", "10"),
        ],
        check=False,
        capture_output=True,
        text=True,
    )
    return read_answer(asked.stdout, asked.stderr)


def main() -> None:
    vulnerable: set[str] = set()
    undone = []
    for lock in LOCKS:
        for service in SERVICES:
            answer = ask(lock, service)
            vulnerable.update(answer.vulnerable)
            told = answer.failure or f"{answer.audited} audited, {answer.unknown} unknown to it"
            print(f"requirements/{lock}.txt, {service}: {told}", flush=True)
            if answer.is_complete:
                break
        else:
            undone.append(f"requirements/{lock}.txt")
    if vulnerable:
        sys.exit("vulnerable: " + "; ".join(sorted(vulnerable)))
    if undone:
        print(f"no vulnerability service could be asked about all of {', '.join(undone)}")
        sys.exit(NOT_DONE)
    print("no published vulnerability")


if __name__ == "__main__":
    main()
