"""Rules about the files of this repository that no other tool checks."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from testkit.repository.tracked_files import tracked_files, unignored_files

ROOT = Path(__file__).resolve().parents[2]
GENERATED = {"protocol/_tables.py", "protocol/codec/_schemas.py"}
MAX_PYTHON_LINES = 400

# In two pieces each, or this file would break its own rule.
MACHINE_PATHS = re.compile("/(?:" + "work/" + "|home/" + r"[a-z]|root/|Users/" + "[A-Za-z])")
REGISTRY_HOSTS = re.compile(
    "|".join(
        (
            r"pypi\." + "org",
            r"pythonhosted\." + "org",
            r"repo1?\.maven\." + "(?:org|apache)",
            r"central\." + r"sonatype",
            r"registry\." + r"npmjs",
            r"deb\." + r"debian",
        )
    )
)


def _lines_with(pattern: re.Pattern[str]) -> list[str]:
    found = []
    for path in tracked_files(ROOT):
        try:
            lines = (ROOT / path).read_text(encoding="utf-8").splitlines()
        except UnicodeDecodeError:  # a picture
            continue
        found += [
            f"{path}:{number}: {line.strip()}" for number, line in enumerate(lines, 1) if pattern.search(line)
        ]
    return found


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="no checkout of git's")
def test_without_git_the_same_files_are_found() -> None:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    there = {path for path in listed.stdout.splitlines() if (ROOT / path).is_file()}
    assert set(unignored_files(ROOT)) == there


def test_no_file_names_a_folder_of_the_machine_that_it_was_written_on() -> None:
    assert _lines_with(MACHINE_PATHS) == []


def test_no_file_names_the_host_of_a_package_registry() -> None:
    assert _lines_with(REGISTRY_HOSTS) == []


def test_no_python_file_is_longer_than_a_reader_can_hold() -> None:
    too_long = {
        path: count
        for path in tracked_files(ROOT)
        if path.endswith(".py")
        and path not in GENERATED
        and (count := len((ROOT / path).read_text(encoding="utf-8").splitlines())) > MAX_PYTHON_LINES
    }
    assert too_long == {}


def _commands_of(paper: str) -> list[str]:
    """The lines of a paper's shell blocks, prompt and comment removed."""
    blocks = re.findall(
        r"```(?:sh|shell|bash|console)\n(.*?)```", (ROOT / paper).read_text(encoding="utf-8"), re.S
    )
    lines = [
        line.removeprefix("$ ").split(" #")[0].strip() for block in blocks for line in block.splitlines()
    ]
    return [line for line in lines if line]


def _make_targets() -> set[str]:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    return set(re.findall(r"^([a-z][a-z-]*):", makefile, re.M))


@pytest.mark.parametrize("paper", ["README.md", "CONTRIBUTING.md"])
def test_every_make_command_in_the_papers_is_a_target(paper: str) -> None:
    named = {
        target for command in _commands_of(paper) for target in re.findall(r"\bmake ([a-z][a-z-]*)", command)
    }
    assert named, f"{paper} shows no make command"
    assert named <= _make_targets()


def test_every_sluice_command_in_the_readme_exists() -> None:
    commands = [command.split()[1:] for command in _commands_of("README.md") if command.startswith("sluice ")]
    for words in commands:
        names = [word for word in words if re.fullmatch(r"[a-z][a-z-]*", word)]
        asked = subprocess.run(
            [Path(sys.executable).with_name("sluice"), *_command_path(names), "--help"],
            check=False,
            capture_output=True,
            text=True,
        )
        assert asked.returncode == 0, f"sluice {' '.join(words)}: {asked.stderr}"


def _command_path(names: list[str]) -> list[str]:
    groups = {"quotas"}
    return names[:2] if names and names[0] in groups else names[:1]


def test_every_make_target_that_people_call_has_a_line_of_help() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    phony = set(re.findall(r"[a-z-]+", " ".join(re.findall(r"^\.PHONY:(.*)", makefile, re.M))))
    with_help = set(re.findall(r"^([a-z-]+):.*  ## ", makefile, re.M))
    assert phony - with_help == {"setup", "kafka", "kafka-all"}
