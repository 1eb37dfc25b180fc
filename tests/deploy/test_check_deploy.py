"""`make check-deploy` counts nothing as passed that has failed or was not done."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from deploy.check import (
    CHECKS,
    Check,
    Result,
    exit_code,
    find_checks,
    missing_packages,
    read_check,
    run,
    table,
)


def program(folder: Path, name: str, body: str, *, executable: bool = True) -> Path:
    path = folder / f"{name}.py"
    path.write_text(body)
    path.chmod(0o755 if executable else 0o644)
    return path


def checked(folder: Path, body: str) -> Result:
    return run(read_check(program(folder, "one", f'"""What it checks."""\n{body}')))


def test_a_check_says_its_title_its_packages_and_its_limit(tmp_path: Path) -> None:
    body = '"""Pages open.\n\nMore."""\n# debian: chromium fonts\n# debian: xvfb\n# limit: 20 s\n'
    path = program(tmp_path, "pages", body)
    assert read_check(path) == Check(path, "Pages open", ("chromium", "fonts", "xvfb"), 20.0, False)


def test_checks_are_the_executable_programs_in_the_order_of_their_names(tmp_path: Path) -> None:
    for name in ("b", "a"):
        program(tmp_path, name, '"""It."""')
    program(tmp_path, "shared", '"""No check."""', executable=False)
    assert [check.name for check in find_checks(tmp_path, [])] == ["a", "b"]
    assert [check.name for check in find_checks(tmp_path, ["b"])] == ["b"]


def test_a_check_on_request_is_run_only_when_it_is_named(tmp_path: Path) -> None:
    program(tmp_path, "long", '"""It."""\n# on request\n')
    program(tmp_path, "short", '"""It."""')
    assert [check.name for check in find_checks(tmp_path, [])] == ["short"]
    assert [check.name for check in find_checks(tmp_path, ["long"])] == ["long"]


def test_a_check_that_is_not_there_is_an_error_and_not_an_empty_run(tmp_path: Path) -> None:
    program(tmp_path, "a", '"""It."""')
    with pytest.raises(SystemExit, match="no check b; there are: a"):
        find_checks(tmp_path, ["b"])


@pytest.mark.parametrize(
    ("body", "outcome", "said"),
    [
        ("print('fine')", "passed", ""),
        ("print('a'); raise SystemExit(3)", "not done", "a"),
        ("raise SystemExit('wrong: b')", "FAILED", "wrong: b"),
        ("print('c'); raise SystemExit(75)", "FAILED", "c"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGTERM)", "FAILED", ""),
    ],
)
def test_the_exit_code_says_how_a_check_ended_and_its_last_line_why(
    tmp_path: Path, body: str, outcome: str, said: str
) -> None:
    result = checked(tmp_path, body)
    assert (result.outcome, result.said) == (outcome, said)


def test_a_check_that_passes_its_limit_is_ended_with_what_it_started(tmp_path: Path) -> None:
    body = "# limit: 1 s\nimport subprocess\nsubprocess.run(['sleep', '600'])"
    result = checked(tmp_path, body)
    assert (result.outcome, result.said) == ("FAILED", "ended after 1 s, its limit")


def test_a_check_finds_the_repositorys_packages_and_no_input(tmp_path: Path) -> None:
    assert (
        checked(tmp_path, "import testkit.processes.ports, sys\nassert sys.stdin.read() == ''").outcome
        == "passed"
    )


def of(*outcomes: str) -> list[Result]:
    return [Result(f"c{number}", "It", outcome, 1.0, "why") for number, outcome in enumerate(outcomes)]


@pytest.mark.parametrize(
    ("outcomes", "code"),
    [(("passed",), 0), (("passed", "not done"), 3), (("not done", "FAILED", "passed"), 1)],
)
def test_the_run_passes_only_if_all_was_done_and_passed(outcomes: tuple[str, ...], code: int) -> None:
    assert exit_code(of(*outcomes)) == code


def test_the_table_counts_and_gives_the_reasons() -> None:
    shown = table(of("passed", "not done", "FAILED", "not done"))
    assert shown.endswith("check-deploy: 1 passed, 1 failed, 2 not done")
    assert "c2" in shown
    assert "why" in shown


def test_a_package_that_nobody_has_is_missing() -> None:
    assert missing_packages(["surely-no-package-of-this-name"]) == {"surely-no-package-of-this-name"}
    assert missing_packages([]) == set()


def test_every_program_among_the_checks_can_be_read() -> None:
    found = find_checks(CHECKS, [])
    assert all(os.access(check.path, os.X_OK) for check in found)
