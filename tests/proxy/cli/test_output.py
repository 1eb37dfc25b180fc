"""What a command prints where the output has another encoding, or cannot be written: a change that was made
is never told as one that was not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import IO, Any

import pytest
import yaml

from testkit.proxy.sluice_command import Sluice
from tests.proxy.cli.plan.test_apply import of, write_plan

NAMES = "ÄЖora"
WANTED = f'quotas:\n  - user: "{NAMES}"\n    producer_byte_rate: 1048576\n'
ALTER = ("configs", "--alter", "--entity-type", "users", "--entity-name", NAMES, "--quotas", "quotas.yaml")


@pytest.fixture
def wanted(folder: Path) -> Path:
    (folder / "wanted.yaml").write_text(WANTED, encoding="utf-8")
    (folder / "quotas.yaml").write_text("quotas: []\n")
    return folder


def called(
    folder: Path, *arguments: str, encoding: str = "utf-8", stdout: int | IO[Any] = subprocess.PIPE
) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", "sluice.proxy", *arguments], cwd=folder, stdout=stdout, stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONIOENCODING": encoding}, timeout=60, check=False,
    )  # fmt: skip


def limits_in(file: Path) -> Any:
    return yaml.safe_load(file.read_text(encoding="utf-8"))["quotas"]


@pytest.mark.parametrize(
    ("arguments", "encoding", "code", "shown"),
    [
        (("quotas", "apply", "wanted.yaml", "-q", "quotas.yaml"), "ascii", 0, r"\xc4\u0416ora"),
        (("quotas", "apply", "wanted.yaml", "-q", "quotas.yaml"), "latin-1", 0, r"Ä\u0416ora"),
        (("quotas", "diff", "wanted.yaml", "-q", "quotas.yaml"), "ascii", 1, r"\u0416ora"),
        ((*ALTER, "--add-config", "producer_byte_rate=5000"), "ascii", 0, r"Completed updating"),
        (("configs", "--describe", "--entity-type", "users", "-q", "wanted.yaml"), "ascii", 0, r"\u0416ora"),
        (("doctor", "--help"), "ascii", 0, "doctor"),
    ],
)
def test_a_name_that_the_output_has_not_is_printed_with_escapes(
    arguments: tuple[str, ...], encoding: str, code: int, shown: str, wanted: Path
) -> None:
    done = called(wanted, *arguments, encoding=encoding)
    assert (done.returncode, b"Traceback" in done.stderr) == (code, False), done.stderr
    assert shown in done.stdout.decode(encoding)


def test_an_export_is_a_quota_file_in_any_locale(wanted: Path) -> None:
    with (wanted / "exported.yaml").open("wb") as exported:
        done = called(wanted, "quotas", "export", "-q", "wanted.yaml", encoding="latin-1", stdout=exported)
    assert (done.returncode, done.stderr) == (0, b"")
    assert limits_in(wanted / "exported.yaml") == limits_in(wanted / "wanted.yaml")


@pytest.mark.parametrize("encoding", ["latin-1", "utf-8"])
def test_json_is_json_in_any_locale(wanted: Path, encoding: str) -> None:
    done = called(
        wanted, "quotas", "explain", "--user", NAMES, "-q", "wanted.yaml", "--json", encoding=encoding
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["user"] == NAMES


@pytest.mark.parametrize("is_rollback", [False, True])
def test_a_plan_that_cannot_be_told_has_been_applied_or_rolled_back_with_exit_code_0(
    is_rollback: bool, folder: Path, sluice: Sluice, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write_plan(folder / "plan", of("dave", 9_000, 5_000))
    arguments = ["quotas", "apply", str(file), "-q", "quotas.yaml"]
    if is_rollback:
        assert sluice(*arguments)[0] == 0
        arguments.append("--rollback")
    with open("/dev/full", "w", encoding="ascii") as full:
        monkeypatch.setattr(sys, "stdout", full)
        code, _, told = sluice(*arguments)
    assert (code, "Standard output cannot be written" in told, told.count("\n")) == (0, True, 1), told
    users = [each["user"] for each in limits_in(folder / "quotas.yaml")]
    assert ("dave" in users) is not is_rollback


CHANGES = [
    ("quotas", "apply", "wanted.yaml", "-q", "quotas.yaml"),
    (*ALTER, "--add-config", "producer_byte_rate=1048576"),
]


@pytest.mark.parametrize("arguments", CHANGES)
def test_a_change_that_cannot_be_told_on_a_full_output_has_been_made_with_exit_code_0(
    arguments: tuple[str, ...], wanted: Path
) -> None:
    """It was 1, "cannot write", which reads as if the quota file had not been written."""
    with open("/dev/full", "wb") as full:
        done = called(wanted, *arguments, stdout=full)
    assert limits_in(wanted / "quotas.yaml") == limits_in(wanted / "wanted.yaml")
    told = done.stderr.decode()
    assert (done.returncode, told.count("\n")) == (0, 1), told
    assert told.startswith(("quotas.yaml: 1 change. ", "Completed updating"))
    assert told.endswith(" Standard output cannot be written: no space left on device\n")


@pytest.mark.parametrize("arguments", CHANGES)
def test_a_change_of_which_nobody_reads_has_been_made_with_exit_code_0(
    arguments: tuple[str, ...], wanted: Path
) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with open(writing, "wb") as pipe:
        done = called(wanted, *arguments, stdout=pipe)
    assert limits_in(wanted / "quotas.yaml") == limits_in(wanted / "wanted.yaml")
    assert (done.returncode, b"Standard output cannot be written" in done.stderr) == (0, True), done.stderr


@pytest.mark.parametrize("more", [("--dry-run",), ("--keep", "--dry-run")])
def test_what_changed_nothing_and_cannot_be_told_has_failed(more: tuple[str, ...], wanted: Path) -> None:
    with open("/dev/full", "wb") as full:
        done = called(wanted, "quotas", "apply", "wanted.yaml", "-q", "quotas.yaml", *more, stdout=full)
    assert limits_in(wanted / "quotas.yaml") == []
    assert (done.returncode, done.stderr) == (1, b"cannot write: no space left on device\n")


def test_a_full_output_does_not_hide_why_a_change_was_not_made(wanted: Path) -> None:
    too_long = "q" * 250 + ".yaml"  # for the new file beside it
    (wanted / too_long).write_text("quotas: []\n")
    with open("/dev/full", "wb") as full:
        done = called(wanted, "quotas", "apply", "wanted.yaml", "-q", too_long, stdout=full)
    assert done.returncode in {1, 2}
    assert b"file name too long" in done.stderr, done.stderr
    assert b"no space" not in done.stderr
