"""Asks a running JVM by HotSpot's attach mechanism, as jcmd does: no JMX port, no tool of a JDK needed.

Source: HotSpot's attachListener_posix.cpp: a file .attach_pidPID in the JVM's working folder and SIGQUIT make
it open the socket /tmp/.java_pidPID; a request is protocol version, command and three arguments, each with a
zero behind it; the answer begins with a result code on a line of its own.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import time
from pathlib import Path
from typing import Final

from testkit.processes.process import BenchError

ATTACH_WITHIN_S: Final = 10.0
ANSWER_WITHIN_S: Final = 30.0
CLASS_HISTOGRAM: Final = "GC.class_histogram"
"""collects all garbage first: what it counts lives"""
_PROTOCOL: Final = b"1"


def jcmd(pid: int, command: str) -> str:
    """The JVM's answer to a diagnostic command. Raises BenchError when it does not answer, or refuses."""
    try:
        with socket.socket(socket.AF_UNIX) as sock:
            sock.settimeout(ANSWER_WITHIN_S)
            sock.connect(str(_attached(pid)))
            sock.sendall(b"\0".join([_PROTOCOL, b"jcmd", command.encode(), b"", b"", b""]))
            answer = bytearray()
            while data := sock.recv(65536):
                answer += data
    except OSError as error:
        raise BenchError(f"the JVM with pid {pid} does not answer {command}: {error}") from error
    code, _, text = answer.decode("utf-8", errors="replace").partition("\n")
    if code != "0":
        raise BenchError(f"the JVM refuses {command} (code {code}): {text[:200]}")
    return text


def detach(pid: int) -> None:
    """Remove the socket, which a JVM that is killed leaves behind."""
    with contextlib.suppress(FileNotFoundError):
        _socket_of(pid).unlink()


def _socket_of(pid: int) -> Path:
    return Path(f"/tmp/.java_pid{pid}")


def _attached(pid: int) -> Path:
    path = _socket_of(pid)
    if path.exists():
        return path
    wish = Path(f"/proc/{pid}/cwd/.attach_pid{pid}")
    wish.touch(mode=0o600)
    try:
        os.kill(pid, signal.SIGQUIT)
        deadline_s = time.monotonic() + ATTACH_WITHIN_S
        while not path.exists():
            if time.monotonic() > deadline_s:
                raise BenchError(f"the JVM with pid {pid} opens no socket for questions")
            time.sleep(0.02)
    finally:
        with contextlib.suppress(FileNotFoundError):
            wish.unlink()
    return path
