"""A process that writes the access log until it is killed: `-m …access_log_process FOLDER WHEN`

WHEN: `open` (rows are taken, no file is finished), or `renaming` (it kills itself when the file has been
written under its temporary name, and not yet been renamed). Prints `ready` once rows are noted.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

from sluice.proxy.access_log.sinks.directory import WRITING
from sluice.usage.access_record import ROLLUP
from testkit.access_log.access_rows import BEGIN_MS, columns, rows
from testkit.access_log.access_writers import writing
from testkit.processes.waiting import wait_until


def _kill_self(*_: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def main(folder: Path, when: str) -> None:
    """Serve until the process is ended; never returns."""
    if when == "renaming":
        os.replace = _kill_self  # type: ignore[assignment]
    with writing(folder, rotate_s=3600.0 if when == "open" else 0.1) as writer:
        writer.offer(ROLLUP, columns(rows(3, at_ms=BEGIN_MS - 10_000)))
        writer.offer(ROLLUP, columns(rows(4)))
        (journal,) = _journals(folder)
        wait_until(lambda: b'"rows": 7' in journal.read_bytes())
        print("ready", flush=True)
        time.sleep(600)


def _journals(folder: Path) -> list[Path]:
    wait_until(lambda: bool(list((folder / WRITING).glob("*.journal"))))
    return list((folder / WRITING).glob("*.journal"))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
