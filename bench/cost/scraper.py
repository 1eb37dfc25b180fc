"""A Prometheus that asks proxies for their metrics, in a process of its own.

python -m bench.cost.scraper INTERVAL_S PORT …
"""

from __future__ import annotations

import contextlib
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from testkit.processes.guarded_process import GuardedProcess
from testkit.processes.ports import LOOPBACK

INTERVAL_S: Final = 1.0
"""Fifteen times as often as usual, so that each repeat, of a second or so, has its scrape."""
# As Prometheus 3 asks.
_HEADERS: Final = {
    "Accept": "application/openmetrics-text;version=1.0.0;q=0.6,text/plain;version=0.0.4;q=0.3,*/*;q=0.1",
    "Accept-Encoding": "gzip",
}


def scrape(port: int) -> int:
    """The bytes of one page, as they came."""
    request = urllib.request.Request(f"http://{LOOPBACK}:{port}/metrics", headers=_HEADERS)
    with urllib.request.urlopen(request, timeout=30) as page:
        return len(page.read())


@contextlib.contextmanager
def scraping(ports: Sequence[int], log: Path) -> Iterator[None]:
    """All of them at intervals, while the block runs. Raises RuntimeError if scrapes have failed."""
    command = [sys.executable, "-m", "bench.cost.scraper", str(INTERVAL_S), *map(str, ports)]
    with GuardedProcess(command, output=log) as process:
        yield
        if process.exit_code() is not None:
            raise RuntimeError(f"the scraper ended: {log.read_text()}")
        process.stop()


def main(interval_s: float, ports: Sequence[int]) -> None:
    """Until it is ended."""
    due_s = time.monotonic()
    while True:
        for port in ports:
            scrape(port)
        due_s = max(due_s + interval_s, time.monotonic())
        time.sleep(max(due_s - time.monotonic(), 0.0))


if __name__ == "__main__":
    main(float(sys.argv[1]), [int(port) for port in sys.argv[2:]])
