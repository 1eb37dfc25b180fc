"""What many configured entities cost: to load, in memory, to look up, and in the cost of each request.

    python -m bench.entities [--quick] [--repeats N] [--placement one-core]

Requests go through proxies with 1 to 10,000 entities, all of whose buckets run, by turns, and from as many
connections. The last line of standard output is one JSON object; docs/benchmarks.md says what is measured.
"""

import argparse
import random
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Final

from rich.table import Table

from bench.entities.figures import COUNTS, KEYS, Loads, LookUps, Memory, load, memory
from bench.lib.fake_broker import FakeBroker
from bench.lib.load import Load, Measured, Work
from bench.lib.placement import Placement, place_benchmark, place_proxy
from bench.lib.plots import figure, save
from bench.lib.poller import Poller
from bench.lib.results import machine, print_last_line, results_folder, wide_console, write_json
from bench.lib.stats import Spread, pairwise_ratios, spread
from testkit.frames import load_frames as frames
from testkit.processes.process import BenchError, rss_bytes, usage
from testkit.proxy import proxies

TOPIC: Final = "bench"
REPEATS: Final = 9
QUICK_REPEATS: Final = 2
REQUEST_COUNTS: Final = (1, 100, 10_000)
CONNECTIONS: Final = 50
DEPTH: Final = 5
REQUESTS: Final = 40_000
AT_ONCE: Final = 250  # connections, where each entity is used once
CLOSE_WITHIN_S: Final = 60.0
NO_LIMIT: Final = 10**13


class Rig:
    """Load generator and fake broker in one loop of this process; the proxies are processes of their own."""

    def __init__(self) -> None:
        self.poller = Poller()
        self.broker = FakeBroker(self.poller, TOPIC)
        self._random = random.Random(1)

    def use_all(self, proxy: proxies.Proxy, entities: int) -> None:
        """One connection and request of each entity, so that all buckets run."""
        for start in range(0, entities, AT_ONCE):
            self._run(proxy, range(start, min(start + AT_ONCE, entities)), depth=1, requests=1)

    def measure(self, proxy: proxies.Proxy, entities: int, requests: int) -> Measured:
        """One repeat: fresh connections, each of an entity by chance."""
        chosen = self._random.choices(range(entities), k=CONNECTIONS)
        return self._run(proxy, chosen, depth=DEPTH, requests=requests)

    def _run(self, proxy: proxies.Proxy, entities: Sequence[int], depth: int, requests: int) -> Measured:
        batch = frames.record_batch(bytes(1000))
        requests_of = [bytes(frames.produce_request(client_id(index), TOPIC, batch)) for index in entities]
        answer = self.broker.produce_answer
        work = Work(
            requests_of[0], answer, len(requests_of), depth, requests, requests // 20, frames=requests_of
        )
        running = Load(self.poller, proxy.port, work)
        try:
            return running.measure(lambda: usage(proxy.pid))
        finally:
            running.close()
            self.poller.run_until(
                lambda: not self.broker.connections, "the proxy closing upstream", CLOSE_WITHIN_S
            )


def client_id(index: int) -> str:
    return f"client-{index:05}"


def limits_for(entities: int) -> list[Mapping[str, object]]:
    """Entries of the quota file, which charge every request and are never exceeded."""
    limits = dict.fromkeys(KEYS, NO_LIMIT)
    return [{"user": "ANONYMOUS", "client-id": client_id(index), **limits} for index in range(entities)]


def measure_requests(
    placement: Placement, repeats: int, requests: int
) -> tuple[dict[int, list[float]], dict[int, int]]:
    """By number of entities: µs of processor time a request, one a repeat; resident bytes at the start.

    Raises BenchError when it cannot be measured.
    """
    place_benchmark(placement)
    rig = Rig()
    costs: dict[int, list[float]] = {count: [] for count in REQUEST_COUNTS}
    with ExitStack() as stack:
        running = {}
        for count in REQUEST_COUNTS:
            pid, ports = stack.enter_context(proxies.sluice([rig.broker.port], limits_for(count)))
            running[count] = proxies.Proxy(proxies.SLUICE, pid, ports[0])
        resident = {count: rss_bytes(proxy.pid) for count, proxy in running.items()}
        for count, proxy in running.items():
            place_proxy(placement, proxy.pid)
            rig.use_all(proxy, count)
        for number in range(repeats):
            # Who goes first changes, so that none always runs on the warmer machine.
            for count in REQUEST_COUNTS if number % 2 == 0 else reversed(REQUEST_COUNTS):
                measured = rig.measure(running[count], count, requests)
                costs[count].append(measured.cpu_s / measured.requests * 1e6)
            shown = ", ".join(f"{count:,} entities {costs[count][-1]:.1f}" for count in REQUEST_COUNTS)
            print(f"{number + 1}/{repeats}  CPU-µs a request: {shown}", flush=True)
    return costs, resident


def report(
    loads: Sequence[Loads],
    memories: Sequence[Memory],
    look_ups: Mapping[str, Spread],
    costs: Mapping[int, list[float]],
    resident: Mapping[int, int],
    folder: Path,
) -> None:
    """Tables, JSON and plot; the last line for programs."""
    ratios = {count: spread(pairwise_ratios(costs[count], costs[1])) for count in costs}
    most = max(resident)
    resident_each = (resident[most] - resident[1]) / (most - 1)
    console = wide_console()
    for table in (
        _table_of_loads(loads),
        _table_of_memories(memories),
        _table_of_look_ups(look_ups),
        _table_of_costs(costs, ratios),
    ):
        console.print(table)
    console.print(f"resident memory of a proxy, for each entity of {most:,}: {resident_each:.0f} bytes")
    _plot(loads, costs, folder / "entities.png")
    summary = {
        "benchmark": "entities",
        "repeats": len(costs[1]),
        **_summary_of_loads(loads[-1]),
        "bytes_per_entity": round(memories[0].total),
        "bytes_per_entity_of_two_rates": round(memories[-1].total),
        "resident_bytes_per_entity": round(resident_each),
        **_summary_of_look_ups(look_ups),
        "request_cost_ratio_10000_vs_1": round(ratios[most].median, 3),
        "request_cost_ratio_range": ratios[most].as_range(),
    }
    content = {
        "loads": [asdict(one) for one in loads],
        "memory": [{**asdict(row), "total": row.total} for row in memories],
        "look_ups_us": {what: asdict(figures) for what, figures in look_ups.items()},
        "cpu_us_a_request": {str(count): samples for count, samples in costs.items()},
        "resident_bytes_at_start": {str(count): size for count, size in resident.items()},
    }
    write_json(folder / "entities.json", {"machine": machine(), "summary": summary, **content})
    print_last_line(summary)


def _table_of_loads(loads: Sequence[Loads]) -> Table:
    table = Table("entities", "load, s", "of that CPU, s", "longest step of a reload, ms")
    for one in loads:
        table.add_row(
            f"{one.count:,}",
            *(str(spread(samples)) for samples in (one.wall_s, one.cpu_s, one.longest_step_ms)),
        )
    return table


def _table_of_memories(memories: Sequence[Memory]) -> Table:
    table = Table("bytes an entity", "limits", "running buckets", "remembered look-ups", "all")
    for row in memories:
        table.add_row(
            row.shown, *(f"{value:.0f}" for value in (row.limits, row.buckets, row.look_ups, row.total))
        )
    return table


def _table_of_look_ups(look_ups: Mapping[str, Spread]) -> Table:
    table = Table("look-up of 10,000 entities", "µs")
    for what, figures in look_ups.items():
        table.add_row(what, f"{figures.median:.3f} ({figures.low:.3f}–{figures.high:.3f})")
    return table


def _table_of_costs(costs: Mapping[int, list[float]], ratios: Mapping[int, Spread]) -> Table:
    table = Table("entities, all in use", "CPU-µs a request", "÷ that with 1")
    for count, samples in costs.items():
        table.add_row(f"{count:,}", str(spread(samples)), str(ratios[count]))
    return table


def _summary_of_loads(most: Loads) -> dict[str, object]:
    slowest = spread(most.wall_s)
    return {
        "load_10000_s": round(slowest.median, 3),
        "load_10000_s_range": slowest.as_range(),
        "load_10000_cpu_s": round(spread(most.cpu_s).median, 3),
        "longest_step_ms": round(spread(most.longest_step_ms).median, 1),
    }


def _summary_of_look_ups(look_ups: Mapping[str, Spread]) -> dict[str, object]:
    cached, cold = look_ups["again, one name"], look_ups["the first after a reload"]
    return {
        "lookup_cached_us": round(cached.median, 3),
        "lookup_cached_us_range": cached.as_range(),
        "lookup_cold_us": round(cold.median, 3),
        "lookup_cold_us_range": cold.as_range(),
    }


def _plot(loads: Sequence[Loads], costs: Mapping[int, list[float]], path: Path) -> None:
    plot, (left, right) = figure(1, 2)
    for axes, counts, samples, label in (
        (left, [one.count for one in loads], [one.wall_s for one in loads], "seconds to load"),
        (right, list(costs), list(costs.values()), "CPU-µs a request"),
    ):
        figures = [spread(some) for some in samples]
        medians = [one.median for one in figures]
        beside = [
            [one.median - one.low for one in figures],
            [one.high - one.median for one in figures],
        ]
        axes.errorbar(counts, medians, yerr=beside, fmt="o-", capsize=4)
        axes.set(xscale="log", xlabel="entities", ylabel=label)
        axes.set_ylim(bottom=0)
    save(plot, path)


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code 0: measured; 2: could not be measured, and the message says why."""
    parser = argparse.ArgumentParser(prog="python -m bench.entities", description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="few and short repeats: a trial, no result")
    parser.add_argument("--repeats", type=int, help=f"of everything ({REPEATS}; quick: {QUICK_REPEATS})")
    parser.add_argument(
        "--placement",
        type=Placement,
        choices=list(Placement),
        default=Placement.ONE_CORE,
        help="of proxies and load on the cores (one-core); see docs",
    )
    parser.add_argument("--out", type=Path, help="folder for results instead of bench/results")
    arguments = parser.parse_args(argv)
    repeats = arguments.repeats or (QUICK_REPEATS if arguments.quick else REPEATS)
    loads = [Loads(count) for count in COUNTS]
    look_ups = LookUps(COUNTS[-1])
    for _ in range(repeats):
        for one in loads:
            load(one)
        look_ups.repeat()
    memories = [
        memory(COUNTS[-1], f"{who}, {limits}", client_ids=client_ids, keys=keys)
        for who, client_ids in (("a user", False), ("a user and client id", True))
        for limits, keys in (("one rate", KEYS[:1]), ("two rates", KEYS))
    ]
    requests = REQUESTS // 10 if arguments.quick else REQUESTS
    try:
        costs, resident = measure_requests(arguments.placement, repeats, requests)
    except BenchError as error:
        print(f"bench-entities: {error}", file=sys.stderr)
        return 2
    official = not arguments.quick and repeats >= 5 and arguments.placement is Placement.ONE_CORE
    folder = results_folder(arguments.out, official=official)
    report(loads, memories, look_ups.spreads(), costs, resident, folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
