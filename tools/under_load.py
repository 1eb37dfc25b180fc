"""Run a command on a machine that has other work to do: `make test-under-load`.

    python -m tools.under_load [--busy N] -- COMMAND …

N processes (twice the cores) walk through memory as long as the command runs, in bursts of random length
with pauses between, so that the scheduler takes the processor from the command at any place. Exits with
the command's code.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import random
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Final

BURST_S: Final = (0.05, 3.0)
PAUSE_S: Final = (0.0, 0.5)
WALKED_BYTES: Final = 64 * 2**20
"""more than the caches hold"""


def be_busy(seed: int, parent_pid: int) -> None:
    """Bursts of work until the parent is gone or ends this."""
    chance = random.Random(seed)  # noqa: S311 - no secret
    walked = bytearray(WALKED_BYTES)
    while os.getppid() == parent_pid:
        until_s = time.monotonic() + chance.uniform(*BURST_S)
        while time.monotonic() < until_s:
            sum(walked[chance.randrange(64) :: 64])
        time.sleep(chance.uniform(*PAUSE_S))


def main(arguments: Sequence[str] | None = None) -> int:
    """The command's exit code."""
    parser = argparse.ArgumentParser(prog="tools.under_load", description=__doc__)
    parser.add_argument("--busy", type=int, default=2 * (os.cpu_count() or 1), help="processes (2 a core)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("command", nargs="+")
    chosen = parser.parse_args(arguments)
    context = multiprocessing.get_context("spawn")
    load = [
        context.Process(target=be_busy, args=(chosen.seed + number, os.getpid()), daemon=True)
        for number in range(chosen.busy)
    ]
    for process in load:
        process.start()
    print(f"{len(load)} processes keep {os.cpu_count()} cores busy", flush=True)
    try:
        return subprocess.run(chosen.command, check=False).returncode
    finally:
        for process in load:
            process.terminate()
        for process in load:
            process.join()


if __name__ == "__main__":
    sys.exit(main())
