"""The demo itself, against real brokers: it comes to its end, and Ctrl-C ends all of it in every act."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.kafka]

REPOSITORY = Path(__file__).parents[2]
WITHIN_S = 240.0  # three times what it takes on two quiet cores


@contextlib.contextmanager
def the_demo(folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """`python -m bench.demo` with its output in a pipe; all that it makes lies in `folder`."""
    # What is started in the background, as tests may be, ignores Ctrl-C, and so would the demo.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    process = subprocess.Popen(
        [sys.executable, "-m", "bench.demo"],
        cwd=REPOSITORY,
        env={**os.environ, "TMPDIR": str(folder), "COLUMNS": "80"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    signal.signal(signal.SIGINT, before)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def read_until(process: subprocess.Popen[bytes], text: bytes) -> bytes:
    """The output up to a text, or to its end."""
    assert process.stdout is not None
    seen, end_s = b"", time.monotonic() + WITHIN_S
    while text not in seen:
        ready, _, _ = select.select([process.stdout], [], [], max(0.0, end_s - time.monotonic()))
        assert ready, f"no {text!r} within {WITHIN_S:.0f} s: {seen[-2000:].decode()}"
        more = os.read(process.stdout.fileno(), 65536)
        if not more:
            break
        seen += more
    return seen


def left_running(folder: Path) -> list[int]:
    """Processes that were started with this folder for temporary files: all that the demo starts."""
    mark = f"TMPDIR={folder}".encode()
    found = []
    for path in Path("/proc").iterdir():
        if path.name.isdigit():
            with contextlib.suppress(OSError):
                if mark in (path / "environ").read_bytes().split(b"\0"):
                    found.append(int(path.name))
    return found


def test_it_tells_all_three_acts_and_leaves_nothing(tmp_path: Path) -> None:
    with the_demo(tmp_path) as process:
        text = read_until(process, b"\0never").decode()
        assert process.wait() == 0, text[-2000:]
    told = json.loads(text.splitlines()[-1])
    assert told["native_longest_standstill_s"] > told["sluice_longest_standstill_s"]
    assert told["sluice_storm_lives"]
    assert told["sluice_storm_ids_taken"] < told["sluice_storm_ids_offered"]
    assert left_running(tmp_path) == []
    assert list(tmp_path.iterdir()) == []


def test_ctrl_c_while_its_modules_load_ends_it_without_a_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPROFILEIMPORTTIME", "1")  # a line for each module
    with the_demo(tmp_path) as process:
        read_until(process, b" rich.")
        process.send_signal(signal.SIGINT)
        text = read_until(process, b"\0never").decode()
        assert process.wait() in {-signal.SIGINT, 128 + signal.SIGINT}
    assert "Traceback" not in text
    assert left_running(tmp_path) == []


@pytest.mark.parametrize(
    "shown",
    [b"starting Kafka", b"  2 of ", b"Act 2 of 3", b"Act 3 of 3", b"     2 s "],
    ids=["set-up", "act 1", "act 2", "between acts 2 and 3", "act 3"],
)
def test_ctrl_c_ends_all_of_it(tmp_path: Path, shown: bytes) -> None:
    with the_demo(tmp_path) as process:
        read_until(process, shown)
        time.sleep(1.0)
        assert left_running(tmp_path)
        process.send_signal(signal.SIGINT)
        text = read_until(process, b"\0never").decode()
        assert process.wait() == 128 + signal.SIGINT
    assert "Traceback" not in text
    assert text.splitlines()[-1] == "demo: ended by you; nothing of it is left running"
    assert left_running(tmp_path) == []
    assert list(tmp_path.iterdir()) == []
