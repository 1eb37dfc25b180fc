"""The hosted workflow runs what people run, `.ci/run`, and nothing that may be another tomorrow."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any, Final

import yaml
from dockerfile_steps import read_stages

ROOT: Final = Path(__file__).resolve().parents[2]
FILE: Final = ROOT / ".github/workflows/ci.yml"
CHECKS: Final = ".ci/run"


def workflow() -> dict[Any, Any]:
    found: dict[Any, Any] = yaml.safe_load(FILE.read_text(encoding="utf-8"))
    return found


def steps() -> list[dict[str, Any]]:
    (job,) = workflow()["jobs"].values()
    found: list[dict[str, Any]] = job["steps"]
    return found


def test_the_one_job_ends_with_all_checks_and_no_check_is_written_a_second_time() -> None:
    last = steps()[-1]
    assert last["run"] == CHECKS
    assert os.access(ROOT / CHECKS, os.X_OK)
    assert not [step for step in steps() if "make " in step.get("run", "").replace(" git make ", " ")]


def test_it_runs_for_every_pull_request_and_the_main_branch() -> None:
    events = workflow()[True]  # YAML 1.1 reads the key `on` so
    assert {"push", "pull_request"} <= set(events)
    assert events["push"]["branches"] == ["main"]


def test_actions_are_pinned_by_commit_and_get_no_rights() -> None:
    used = re.findall(r"uses: (\S+)(.*)", FILE.read_text(encoding="utf-8"))
    assert used
    for action, comment in used:
        assert re.fullmatch(r"[\w/-]+@[0-9a-f]{40}", action), action
        assert re.fullmatch(r" # v\d+\.\d+\.\d+", comment), action
    assert workflow()["permissions"] == {"contents": "read"}


def test_it_is_the_debian_that_the_images_are_made_of() -> None:
    (job,) = workflow()["jobs"].values()
    base = read_stages(ROOT / "Dockerfile")[0].base
    assert base == f"{job['container']['image']}-slim"


def test_go_is_new_enough_for_the_checks() -> None:
    wanted = re.findall(r"^go (\d+\.\d+)", (ROOT / "deploy/checks/compose_files/go.mod").read_text(), re.M)
    (go,) = (step["with"]["go-version"] for step in steps() if "setup-go" in step.get("uses", ""))
    assert [go] == wanted


def test_all_checks_have_both_suites_and_end_with_the_larger_ones_closing_line() -> None:
    checks = re.findall(r"^check '.*' make (test\S*)", (ROOT / CHECKS).read_text(encoding="utf-8"), re.M)
    assert checks == ["test-long", "test"]
