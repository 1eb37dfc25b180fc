"""What a scrape costs, made and written by prometheus_client's own exposition and by ours.

    python -m bench.scrape [--quick] [--out FOLDER]

Pages of 10, 1,000 and 10,000 series with the labels of a limit. Beside each scrape a task of the same event
loop notes how long it was kept from running, as connections are. The last line of standard output is one JSON
object; docs/decisions.md says what follows from it.
"""

import argparse
import asyncio
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter, process_time
from typing import Final

import uvloop
from prometheus_client import exposition as prometheus_text
from prometheus_client.core import Metric
from prometheus_client.openmetrics import exposition as openmetrics_text
from prometheus_client.registry import Collector, CollectorRegistry
from rich.table import Table

from bench.lib.results import machine, print_last_line, results_folder, wide_console, write_json
from bench.lib.stats import Spread, spread
from sluice.proxy.metrics.exposition import exposition
from sluice.proxy.metrics.family import Family, series_text

COUNTS: Final = (10, 1_000, 10_000)
REPEATS: Final = 21
QUICK_REPEATS: Final = 3
TEXT: Final = "text/plain"
OPENMETRICS: Final = "application/openmetrics-text; version=1.0.0"
SERIES_OF_A_LIMIT: Final = (
    ("sluice_throttled_requests", "counter", "Requests that were delayed."),
    ("sluice_throttled_seconds", "counter", "Time that requests were delayed."),
    ("sluice_quota_limit", "gauge", "The limit in force."),
    ("sluice_quota_utilization_ratio", "gauge", "The use of a limit."),
)
LABELS: Final = ("quota", "user", "client_id")
Scrape = Callable[[], Awaitable[bytes]]


class Page:
    """So many series, of four families as a limit has them, made of labels and numbers at each scrape."""

    def __init__(self, series: int) -> None:
        self._rows: list[list[tuple[tuple[str, ...], float]]] = [
            [
                (("produce", f"team-{index // 40}", f"orders-{index:05}"), index * 1.25)
                for index in range(at, series, len(SERIES_OF_A_LIMIT))
            ]
            for at in range(len(SERIES_OF_A_LIMIT))
        ]
        self.registry = CollectorRegistry()
        self.registry.register(Theirs(self._rows))

    async def refresh(self) -> None:
        """Nothing is counted here."""

    def collect(self) -> Iterator[Family]:
        """As the product's own page makes them."""
        for (name, kind, text), rows in zip(SERIES_OF_A_LIMIT, self._rows, strict=True):
            family = Family(name, kind, text)
            sample = f"{name}_total" if kind == "counter" else name
            family.samples = [(series_text(sample, LABELS, values), value) for values, value in rows]
            yield family


class Theirs(Collector):
    """The same for prometheus_client."""

    def __init__(self, rows: list[list[tuple[tuple[str, ...], float]]]) -> None:
        self._rows = rows

    def collect(self) -> Iterator[Metric]:
        for (name, kind, text), rows in zip(SERIES_OF_A_LIMIT, self._rows, strict=True):
            family = Metric(name, text, kind)
            sample = f"{name}_total" if kind == "counter" else name
            for values, value in rows:
                family.add_sample(sample, dict(zip(LABELS, values, strict=True)), value)
            yield family


@dataclass(frozen=True, slots=True)
class Row:
    """One way to write a page. `wait_ms`: the longest that others on the event loop waited."""

    way: str
    series: int
    size_bytes: int
    cpu_ms: Spread
    wait_ms: Spread

    @property
    def cpu_us_per_series(self) -> float:
        return 1_000.0 * self.cpu_ms.median / self.series


def ways(page: Page) -> dict[str, Scrape]:
    """All that are compared."""

    async def theirs() -> bytes:
        return prometheus_text.generate_latest(page.registry)

    async def theirs_openmetrics() -> bytes:
        body: bytes = openmetrics_text.generate_latest(page.registry)  # type: ignore[no-untyped-call]
        return body

    async def theirs_in_a_thread() -> bytes:
        return await asyncio.to_thread(prometheus_text.generate_latest, page.registry)

    async def ours() -> bytes:
        return (await exposition(page, TEXT))[0]

    async def ours_openmetrics() -> bytes:
        return (await exposition(page, OPENMETRICS))[0]

    return {
        "prometheus_client, text": theirs,
        "prometheus_client, text, in a thread": theirs_in_a_thread,
        "prometheus_client, OpenMetrics": theirs_openmetrics,
        "ours, text": ours,
        "ours, OpenMetrics": ours_openmetrics,
    }


async def measured(scrape: Scrape) -> tuple[int, float, float]:
    """(bytes, ms of processor time, ms that another task of the loop waited at most)."""
    longest_s, last_s, is_over = 0.0, perf_counter(), False

    async def neighbour() -> None:
        nonlocal longest_s, last_s
        while not is_over:
            await asyncio.sleep(0.0005)  # wakes as a connection does, and leaves the core to the scrape
            now_s = perf_counter()
            longest_s, last_s = max(longest_s, now_s - last_s), now_s

    task = asyncio.ensure_future(neighbour())
    await asyncio.sleep(0.005)
    longest_s, begun_s = 0.0, process_time()
    body = await scrape()
    cpu_s = process_time() - begun_s
    is_over = True
    await task
    return len(body), 1_000.0 * cpu_s, 1_000.0 * longest_s


async def rows_of(series: int, repeats: int) -> list[Row]:
    """Each way by turns, so that a slow moment of the machine meets all."""
    scrapes = ways(Page(series))
    found: dict[str, list[tuple[int, float, float]]] = {way: [] for way in scrapes}
    for _ in range(repeats):
        for way, scrape in scrapes.items():
            found[way].append(await measured(scrape))
    return [
        Row(
            way,
            series,
            samples[0][0],
            spread([cpu_ms for _, cpu_ms, _ in samples]),
            spread([wait_ms for _, _, wait_ms in samples]),
        )
        for way, samples in found.items()
    ]


def shown(rows: Sequence[Row]) -> Table:
    table = Table(title="A scrape: medians (least to most)")
    for head in ("written by", "series", "bytes", "processor ms", "µs a series", "longest wait ms"):
        table.add_column(head, justify="left" if head == "written by" else "right")
    for row in rows:
        table.add_row(
            row.way,
            f"{row.series:,}",
            f"{row.size_bytes:,}",
            f"{row.cpu_ms.median:.2f} ({row.cpu_ms.low:.2f} to {row.cpu_ms.high:.2f})",
            f"{row.cpu_us_per_series:.1f}",
            f"{row.wait_ms.median:.1f} ({row.wait_ms.low:.1f} to {row.wait_ms.high:.1f})",
        )
    return table


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.scrape", description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="few repeats; results go to .cache/bench")
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="where results go")
    options = parser.parse_args(arguments)
    repeats = QUICK_REPEATS if options.quick else REPEATS
    rows: list[Row] = []
    for series in COUNTS:
        rows += uvloop.run(rows_of(series, repeats))
    wide_console().print(shown(rows))
    folder = results_folder(options.out, official=not options.quick)
    write_json(folder / "scrape.json", {"machine": machine(), "rows": [asdict(row) for row in rows]})
    print_last_line(
        {
            "benchmark": "scrape",
            "us_per_series_of_10000": {
                row.way: round(row.cpu_us_per_series, 2) for row in rows if row.series == COUNTS[-1]
            },
            "longest_wait_ms_of_10000": {
                row.way: round(row.wait_ms.median, 2) for row in rows if row.series == COUNTS[-1]
            },
        }
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
