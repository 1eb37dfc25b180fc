"""Runs one command and ends it when whoever started this script is gone. Started by guarded_process.

    guard.py OUTPUT_FD FOLDER COMMAND...      (FOLDER "-": none)

Writes the command's pid, and later its exit code, as lines to standard output. Ends when standard input
closes: a byte before that means a farewell, none means that the starter died; then FOLDER is removed as
well. What the command has started in its process group ends with it. The command itself gets SIGKILL from
the kernel should this script be killed. Only the standard library: it starts in 20 ms.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import shutil
import signal
import subprocess
import sys

PR_SET_PDEATHSIG = 1  # linux/prctl.h
PR_SET_CHILD_SUBREAPER = 36
_libc = ctypes.CDLL(None, use_errno=True)  # loaded here: nothing may be loaded between fork and exec


def _die_with_guard() -> None:
    # The signal comes when the *thread* that forked ends. Here that is the main thread of this small
    # process; in the starter it could be any thread of a pool, which is why this script exists.
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _stop_guarding(_signal_number: int, _frame: object) -> None:
    raise SystemExit(1)


def main(output_fd: int, folder: str, command: list[str]) -> None:
    signal.signal(signal.SIGTERM, _stop_guarding)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    farewell = b""
    _libc.prctl(PR_SET_CHILD_SUBREAPER, 1)  # so that orphans of the command are ours to wait for
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=output_fd,
        stderr=output_fd,
        process_group=0,
        preexec_fn=_die_with_guard,  # noqa: PLW1509 - this process has one thread
    )
    os.close(output_fd)  # or a reader of the command's output would wait for this script as well
    try:
        _tell(process.pid)
        pidfd = os.pidfd_open(process.pid)
        readable, _, _ = select.select([0, pidfd], [], [])
        if pidfd in readable:
            _kill_group(process.pid)
            _tell(process.wait())
        farewell = os.read(0, 1)
    finally:
        if process.returncode is None:
            _kill_group(process.pid)
            process.wait()
        with contextlib.suppress(ChildProcessError):
            while True:
                os.waitpid(-process.pid, 0)
        if not farewell and folder != "-":
            shutil.rmtree(folder, ignore_errors=True)


def _kill_group(leader: int) -> None:
    # A shell that was killed leaves what it had started. Only before the leader is waited for: till then its
    # number can be nobody else's.
    with contextlib.suppress(ProcessLookupError):
        os.killpg(leader, signal.SIGKILL)


def _tell(number: int) -> None:
    with contextlib.suppress(BrokenPipeError):  # the starter died: standard input is about to say so
        os.write(1, b"%d\n" % number)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], sys.argv[3:])
