"""A child process that never outlives this one, however this one ends (return, exception, SIGKILL).

For brokers, proxies and tools of tests and benchmarks. Knows nothing of what it runs.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import BinaryIO, Self

GUARD = Path(__file__).with_name("guard.py")


class GuardedProcess:
    """A running command, in a session of its own (Ctrl-C reaches only its starter), without standard input.

    `output` is a file that gets both output streams, appended; without it they come through `.output`, a
    pipe that the caller must drain. `remove_on_death` is a folder to remove if this Python process dies
    without `close()`.
    """

    def __init__(
        self,
        command: Sequence[str | Path],
        *,
        output: Path | None = None,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        remove_on_death: Path | None = None,
    ) -> None:
        self._exit_code: int | None = None
        self.output: BinaryIO | None = None
        if output is None:
            read_fd, write_fd = os.pipe()
            self.output = os.fdopen(read_fd, "rb")
        else:
            write_fd = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            self._guard = subprocess.Popen(
                [sys.executable, "-I", "-S", GUARD, str(write_fd), remove_on_death or "-", *command],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                pass_fds=[write_fd],
                env=env,
                cwd=cwd,
                start_new_session=True,
            )
        finally:
            os.close(write_fd)
        first_line = self._read_number()
        if first_line is None:
            self.close()
            raise OSError(f"{command[0]} could not be started")
        self.pid: int = first_line
        try:
            self._pidfd: int | None = os.pidfd_open(self.pid)
        except ProcessLookupError:  # it has ended already; its exit code comes as the next line
            self._pidfd = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc_info: object) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "running" if self._exit_code is None else f"exit code {self._exit_code}"
        return f"<GuardedProcess pid {self.pid} {state}>"

    def exit_code(self) -> int | None:
        """Return the exit code (negative: ended by that signal), or None while it runs."""
        return self._await_exit(0.0)

    def wait(self, timeout_s: float) -> int:
        """Wait for the end by itself and return the exit code. Raises TimeoutError; it then still runs."""
        code = self._await_exit(timeout_s)
        if code is None:
            raise TimeoutError(f"pid {self.pid} still runs after {timeout_s} s")
        return code

    def send_signal(self, signal_number: int) -> None:
        """Send a signal, to this process alone: by pidfd, so never to another that got the same pid."""
        if self._pidfd is not None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, signal_number)

    def stop(self, timeout_s: float = 10.0) -> int:
        """End it: SIGTERM, and SIGKILL if it still runs after `timeout_s`. Returns the exit code."""
        self.send_signal(signal.SIGTERM)
        code = self._await_exit(timeout_s)
        return self.kill() if code is None else code

    def kill(self) -> int:
        """End it at once with SIGKILL. Returns the exit code."""
        self.send_signal(signal.SIGKILL)
        return self.wait(30.0)

    def close(self) -> None:
        """End it at once if it still runs and free everything. May be called twice."""
        if self._guard.stdin is not None and not self._guard.stdin.closed:
            with contextlib.suppress(BrokenPipeError):
                self._guard.stdin.write(b"f")
                self._guard.stdin.close()
        self._guard.wait()
        if self._exit_code is None and self._guard.stdout is not None and not self._guard.stdout.closed:
            self._exit_code = -signal.SIGKILL
        if self._guard.stdout is not None:
            self._guard.stdout.close()
        if self.output is not None:
            self.output.close()
        pidfd = getattr(self, "_pidfd", None)
        if pidfd is not None:
            os.close(pidfd)
            self._pidfd = None

    def _await_exit(self, timeout_s: float) -> int | None:
        if self._exit_code is None and self._guard.stdout is not None:
            readable, _, _ = select.select([self._guard.stdout], [], [], timeout_s)
            if readable:
                number = self._read_number()
                self._exit_code = -signal.SIGKILL if number is None else number
        return self._exit_code

    def _read_number(self) -> int | None:
        # One byte at a time: a buffered read could swallow the next line, and select() would wait for it
        # in vain.
        line = b""
        assert self._guard.stdout is not None
        fd = self._guard.stdout.fileno()
        while not line.endswith(b"\n"):
            byte = os.read(fd, 1)
            if not byte:
                return None
            line += byte
        return int(line)


def log_tail(log: Path, lines: int = 40) -> str:
    """Return the last lines of a log file, or a note that there is none."""
    try:
        text = log.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return f"(no log {log.name})"
    return "\n".join(text.splitlines()[-lines:])


def wait_for_line(process: GuardedProcess, log: Path, text: str, timeout_s: float) -> None:
    """Wait until `text` stands in the log of a starting process.

    Raises RuntimeError with the log's tail if the process ends or the time is up before.
    """
    deadline = time.monotonic() + timeout_s
    with log.open("r", encoding="utf-8", errors="replace") as lines:
        seen = ""
        while True:
            code = process.exit_code()  # before the read: what a process wrote before its end is still seen
            seen = seen[-len(text) :] + lines.read()
            if text in seen:
                return
            if code is not None:
                raise RuntimeError(f"it ended with exit code {code}; its log ends:\n{log_tail(log)}")
            if time.monotonic() > deadline:
                raise RuntimeError(f"not ready after {timeout_s:g} s; its log ends:\n{log_tail(log)}")
            time.sleep(0.02)
