"""What `sluice doctor` says of one thing that it looked at. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any


class Status(StrEnum):
    """How well what was looked at is."""

    OK = "ok"
    WARNING = "warning"
    """it works, and is not as it should be"""
    FAILED = "failed"
    """it does not work so"""
    NOT_ASKED = "not_asked"
    """it could not be looked at"""


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of what `sluice doctor` says."""

    status: Status
    check: str
    """of what, the same in every run: for programs"""
    told: str
    todo: str = ""
    """what to do; empty where all is well"""

    def as_json(self) -> dict[str, Any]:
        """{"status", "check", "told", "todo"}"""
        return asdict(self)


_MARKS = {Status.OK: "√", Status.WARNING: "!", Status.FAILED: "×", Status.NOT_ASKED: "-"}


def lines_of(findings: Iterable[Finding]) -> list[str]:
    """For people: a mark, the check, what was found, and under it what to do."""
    lines = []
    for finding in findings:
        # A warning of `sluice check` is called by its event, which says in words what was found.
        is_said = finding.told.startswith(finding.check.replace("_", " "))
        said = finding.told if is_said else f"{finding.check}: {finding.told}"
        lines.append(f"{_MARKS[finding.status]} {said}")
        if finding.todo:
            lines.append(f"    {finding.todo}")
    return lines
