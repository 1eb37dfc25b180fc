"""A guarded process ends with its starter, whatever ends that."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from testkit.processes.guarded_process import GuardedProcess, log_tail, wait_for_line

ROOT = Path(__file__).resolve().parents[3]
# Starts a process that would run for an hour, tells its pid, and is killed in a way that runs no clean-up.
STARTER = """
import os, pathlib, signal, sys
from testkit.processes.guarded_process import GuardedProcess
process = GuardedProcess(["sleep", "3600"], remove_on_death=pathlib.Path(sys.argv[1]))
print(process.pid, flush=True)
sys.stdin.readline()
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_the_exit_code_and_the_output_are_those_of_the_command() -> None:
    with GuardedProcess(["sh", "-c", "echo out; echo err >&2; exit 3"]) as process:
        assert process.output is not None
        assert process.output.read() == b"out\nerr\n"
        assert process.wait(10) == 3


def test_output_to_a_file_is_appended(tmp_path: Path) -> None:
    log = tmp_path / "log"
    for word in ("one", "two"):
        with GuardedProcess(["echo", word], output=log) as process:
            process.wait(10)
    assert log.read_text(encoding="utf-8") == "one\ntwo\n"


def test_a_running_process_has_no_exit_code_and_stops_on_sigterm() -> None:
    with GuardedProcess(["sleep", "3600"]) as process:
        assert process.exit_code() is None
        assert process.stop() == -signal.SIGTERM


def test_a_process_that_ignores_sigterm_is_killed() -> None:
    with GuardedProcess(["sh", "-c", "trap '' TERM; echo ready; while :; do sleep 0.1; done"]) as process:
        assert process.output is not None
        assert process.output.readline() == b"ready\n"
        assert process.stop(timeout_s=0.2) == -signal.SIGKILL


def test_leaving_the_block_ends_the_process() -> None:
    with GuardedProcess(["sleep", "3600"]) as process:
        pass
    assert process.exit_code() == -signal.SIGKILL


@pytest.mark.parametrize("ends_first", [False, True])
def test_what_the_command_has_started_ends_with_it(ends_first: bool) -> None:
    script = "sleep 3600 & echo $!; " + ("exit 4" if ends_first else "wait")
    with GuardedProcess(["sh", "-c", script]) as process:
        assert process.output is not None
        child = int(process.output.readline())
        if ends_first:
            assert process.wait(10) == 4
    assert not Path(f"/proc/{child}").exists(), "a child outlived the command"


def test_waiting_for_a_process_that_goes_on_raises_and_leaves_it_running() -> None:
    with GuardedProcess(["sleep", "3600"]) as process:
        with pytest.raises(TimeoutError):
            process.wait(0.05)
        assert process.exit_code() is None


def test_a_command_that_does_not_exist_is_an_error(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(OSError, match="/no/such/command could not be started"):
        GuardedProcess(["/no/such/command"])
    assert "FileNotFoundError" in capfd.readouterr().err


def test_a_starter_that_is_killed_takes_process_and_folder_with_it(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    (folder / "data").mkdir(parents=True)
    starter = subprocess.Popen(
        [sys.executable, "-c", STARTER, folder],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with starter:
        assert starter.stdout is not None
        pid = int(starter.stdout.readline())
        with open(f"/proc/{pid}/cmdline", encoding="utf-8") as cmdline:
            assert cmdline.read() == "sleep\x003600\x00"
        ended = _pidfd(pid)
        starter.communicate("go\n")
    assert starter.returncode == -signal.SIGKILL
    assert _is_readable(ended, 10.0), "the process outlived its starter"
    assert _wait_until_gone(folder), "the folder outlived its starter"


def test_waiting_for_a_line_ends_with_the_log_when_the_process_does(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with (
        GuardedProcess(["sh", "-c", "echo no such option; exit 2"], output=log) as process,
        pytest.raises(RuntimeError, match=r"(?s)exit code 2.*no such option"),
    ):
        wait_for_line(process, log, "ready", timeout_s=10)


def test_the_tail_of_a_log_is_its_last_lines(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("a\nb\nc\n", encoding="utf-8")
    assert log_tail(log, 2) == "b\nc"
    assert "no log" in log_tail(tmp_path / "missing")


def _pidfd(pid: int) -> int:
    return os.pidfd_open(pid)


def _is_readable(fd: int, timeout_s: float) -> bool:
    readable, _, _ = select.select([fd], [], [], timeout_s)
    os.close(fd)
    return bool(readable)


def _wait_until_gone(folder: Path) -> bool:
    deadline = time.monotonic() + 10
    while folder.exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    return not folder.exists()
