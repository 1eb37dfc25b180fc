"""A test that ends its process, as one that hangs does, fails once, and all others are run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from testkit.repository.page_run import ROOT

WITHIN_S = 100.0
CONFTEST = """
from testkit.spark.one_process import OneSparkScheduling

def pytest_xdist_make_scheduler(config, log):
    return OneSparkScheduling(config, log)
"""
HANGS = """
import time, pytest

@pytest.mark.parametrize("number", range(6))
def test_it(number):
    time.sleep(100 if number in (1, 5) else 0)
"""
PASSES = "def test_it(): pass"


@pytest.mark.long
def test_one_that_hangs_fails_once_and_the_others_are_run(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_1.py").write_text(HANGS)
    for number in range(2, 8):
        (tmp_path / f"test_{number}.py").write_text(PASSES)
    command = [sys.executable, "-m", "pytest", "-n", "2", "--dist", "loadfile", "-c", "/dev/null"]
    limits = ["-o", "faulthandler_timeout=3", "-o", "faulthandler_exit_on_timeout=true"]
    done = subprocess.run(
        [*command, "--rootdir", tmp_path, *limits, tmp_path],
        check=False, capture_output=True, text=True, timeout=WITHIN_S, cwd=ROOT,
    )  # fmt: skip
    assert "2 failed, 10 passed" in done.stdout, done.stdout + done.stderr
    assert 'test_1.py", line 6 in test_it' in done.stderr
