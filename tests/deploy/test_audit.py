"""A package that no service told anything about does not count as audited, whatever pip-audit calls it."""

from __future__ import annotations

import json
import re

import pytest
from audit import LOCKS, ROOT, Answer, read_answer


def report(*dependencies: dict[str, object]) -> str:
    return json.dumps({"dependencies": dependencies, "fixes": []})


CLEAN: dict[str, object] = {"name": "idna", "version": "3.20", "vulns": []}
BAD: dict[str, object] = {"name": "h11", "version": "0.1", "vulns": [{"id": "PYSEC-1"}, {"id": "PYSEC-2"}]}
SKIPPED: dict[str, object] = {
    "name": "rich",
    "skip_reason": "Dependency not found on PyPI and could not be audited: rich (15)",
}


def test_all_packages_known_and_none_vulnerable_is_a_complete_answer() -> None:
    assert read_answer(report(CLEAN), "") == Answer((), 1, 0, "")
    assert read_answer(report(CLEAN), "").is_complete


def test_a_package_that_was_skipped_leaves_the_audit_undone() -> None:
    answer = read_answer(report(CLEAN, SKIPPED), "No known vulnerabilities found")
    assert (answer.audited, answer.unknown, answer.is_complete) == (1, 1, False)


def test_an_empty_report_is_no_audit() -> None:
    assert not read_answer(report(), "").is_complete


def test_what_is_vulnerable_is_named_with_its_advisories() -> None:
    assert read_answer(report(CLEAN, BAD), "").vulnerable == ("h11 0.1: PYSEC-1, PYSEC-2",)


def test_a_service_out_of_reach_is_a_failure_with_its_last_word() -> None:
    answer = read_answer("", "Traceback\n  File x\nConnectionError: no such host\n")
    assert (answer.failure, answer.is_complete) == ("ConnectionError: no such host", False)


def test_a_run_that_said_nothing_is_a_failure_too() -> None:
    assert read_answer("", "").failure


@pytest.mark.parametrize("lock", ["run", "image"])
def test_what_the_images_install_is_among_what_is_audited(lock: str) -> None:
    audited = set().union(*(_pins(name) for name in LOCKS))
    assert _pins(lock) <= audited
    assert len(_pins(lock)) > 20


def _pins(lock: str) -> set[str]:
    text = (ROOT / "requirements" / f"{lock}.txt").read_text(encoding="utf-8")
    return set(re.findall(r"^([a-z0-9-]+==\S+)", text, re.M))
