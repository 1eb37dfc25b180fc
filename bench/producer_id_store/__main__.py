"""What a producer id costs to look up and to remember: ns and bytes of exact set and Bloom filters.

    python -m bench.producer_id_store [--quick]

Ids as brokers hand them out (blocks of 1,000, one after the other) and as an attacker sends them (63 random
bits). The last line of standard output is one JSON object. docs/producer-ids.md has the table.
"""

import argparse
import sys
import timeit
import tracemalloc
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random
from time import thread_time, thread_time_ns
from typing import Final, Protocol

from rich.table import Table

from bench.lib.plots import figure, save
from bench.lib.results import machine, print_last_line, results_folder, wide_console, write_json
from bench.producer_id_store.mmh3_bloom import Mmh3Bloom
from sluice.proxy.session.produce.header_prediction import LENGTHS_2, MAX_2, MIN_2, KnownProduce
from sluice.proxy.session.producer_ids.admission import ProduceIds
from sluice.proxy.session.producer_ids.shared import ProducerIds
from sluice.proxy.session.producer_ids.verdict import Verdict
from sluice.quotas.producer_ids.store import DEFAULT_FALSE_POSITIVE_RATE, BloomStore, ExactStore
from testkit.frames import load_frames as frames

MILLION: Final = 1_000_000
COUNTS: Final = (1_000, 100_000, MILLION)
QUICK_COUNTS: Final = (1_000, 100_000)
REPEATS: Final = 3
SERIES: Final = 300
LAYERS: Final = 11
LAYER_RATE: Final = 1.0 - (1.0 - DEFAULT_FALSE_POSITIVE_RATE) ** (1.0 / (2 * LAYERS))
"""of false positives, as each layer of BloomStore has it"""
HOUR_MS: Final = 3_600_000.0
SEQUENTIAL: Final = "blocks of 1,000"
RANDOM: Final = "random 63 bits"


class Store(Protocol):
    """What is measured of each."""

    def admit(self, producer_id: int, now_ms: float) -> None: ...
    def seen(self, producer_id: int, now_ms: float) -> bool: ...
    @property
    def size_bytes(self) -> int: ...


STORES: Final[dict[str, Callable[[int], Store]]] = {
    "exact": lambda _: ExactStore(),
    "bloom (mmh3, rbloom)": lambda count: BloomStore(layer_ids=count),
    "mmh3 + bytearray": lambda count: Mmh3Bloom(count, LAYER_RATE),
}


@dataclass(frozen=True, slots=True)
class Row:
    """One store, number and kind of ids. Times: the least of the repeats (of a million: one), no loop."""

    store: str
    ids: str
    count: int
    admit_ns: float
    known_ns: float
    unknown_ns: float
    bytes_per_id: float
    false_positives: float


def producer_ids(kind: str, count: int, random: Random) -> tuple[list[int], list[int]]:
    """`count` ids to admit, and up to 100,000 others of their kind."""
    others = min(count, 100_000)
    if kind == RANDOM:
        return [random.getrandbits(63) for _ in range(count)], [random.getrandbits(63) for _ in range(others)]
    blocks = list(range(count // 1_000))
    random.shuffle(blocks)  # a broker's ids come in order, those of several brokers in turns
    ids = [block * 1_000 + index for block in blocks for index in range(1_000)]
    return ids, list(range(count, count + others))


def ns_each(call: Callable[[int, float], object], ids: Sequence[int], now_ms: float = 0.0) -> float:
    """Processor time of one call."""
    begun = thread_time_ns()
    for producer_id in ids:
        call(producer_id, now_ms)
    ended = thread_time_ns()
    for _ in ids:
        pass
    return (ended - begun - (thread_time_ns() - ended)) / len(ids)


def measure(name: str, kind: str, count: int) -> Row:
    """All figures of one row."""
    make = STORES[name]
    ids, others = producer_ids(kind, count, Random(count))
    admit, known, unknown = [], [], []
    for _ in range(REPEATS if count < MILLION else 1):
        store = make(count)
        admit.append(ns_each(store.admit, ids))
        known.append(ns_each(store.seen, ids))
        unknown.append(ns_each(store.seen, others))
    false = sum(store.seen(producer_id, 0.0) for producer_id in others) / len(others)
    return Row(name, kind, count, min(admit), min(known), min(unknown), bytes_each(make, ids), false)


def bytes_each(make: Callable[[int], Store], ids: Sequence[int]) -> float:
    """Memory of a store, its ids included; a filter tells its own, for what Rust allocates is not traced."""
    store = make(len(ids))
    if not isinstance(store, ExactStore):
        for producer_id in ids[:1]:
            store.admit(producer_id, 0.0)
        return store.size_bytes / len(ids)
    tracemalloc.start()
    store = make(len(ids))
    for producer_id in ids:
        store.admit(producer_id + 0, 0.0)  # a number of its own, as one that was read from a frame
    traced, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return traced / len(ids)


def full_window_ns(random: Random) -> dict[str, float]:
    """Look-ups with 1,000 ids in each of eleven layers: of one in the newest, in the oldest, in none."""
    found = {}
    for name, store in (("exact", ExactStore()), ("bloom (mmh3, rbloom)", BloomStore(layer_ids=1_000))):
        now_ms = (LAYERS - 1) * HOUR_MS
        layers = []
        for layer in range(LAYERS):
            layers.append([random.getrandbits(63) for _ in range(1_000)])
            for producer_id in layers[-1]:
                store.admit(producer_id, layer * HOUR_MS)
        for what, ids in (("newest", layers[-1]), ("none", [random.getrandbits(63) for _ in range(1_000)])):
            found[f"{name}, {what}"] = min(ns_each(store.seen, ids, now_ms) for _ in range(REPEATS))
    return found


def short_cut_ns() -> dict[str, float]:
    """The common path: the same id as the connection's last; and what it spares."""
    compared = {"producer_id": 4_001, "last_id": int("4001"), "now_ms": 5.0, "until_ms": 3.6e6, "gates": {}}
    found = {
        "the comparison": least_ns("producer_id == last_id and now_ms < until_ms and not gates", compared)
    }
    ids = ProduceIds(ProducerIds(), None)
    ids.use("alice", (1_000.0, True, "user"))
    batch = frames.record_batch(bytes(1_000), producer_id=7, epoch=0, sequence=0)
    one, other = (
        bytearray(frames.produce_request("bench", "orders", batch, acks=-1, partition=partition))
        for partition in (0, 1)
    )
    start, end = one.index(b"bench") + len(b"bench"), len(one)
    known = ids.known
    call = {
        "ids": ids,
        "known": known,
        "one": one,
        "other": other,
        "start": start,
        "end": end,
        "fits": fits_template,
    }
    judge = "ids.judge({}, 0, start + 1, end, end, 12, -1, 0.0, 1e4)".format
    fits = "fits(known, one)"
    assert eval(judge("one"), call) is Verdict.ADMIT
    ids.gate.forwarded(0.0)
    for _ in range(2):
        assert known.until_ms < 0.0, "nothing is known yet"
        assert eval(judge("one"), call) is Verdict.PASS
    assert eval(fits, call)
    found["all of a request that is like an earlier one"] = least_ns(fits, call)
    in_turns = least_ns(f"{judge('one')}; {judge('other')}", call)
    found["the same, walked and looked up"] = in_turns / 2
    return found


def fits_template(known: KnownProduce, frame: bytearray) -> bool:
    """As ProduceSide._produce asks it, where the records' length takes two bytes."""
    end = len(frame)
    batch_bytes = end - known.less_bytes
    if known.gates or known.until_ms <= 0.0 or not MIN_2 <= batch_bytes <= MAX_2:
        return False
    head, length, batch_length, producer_id = known.unpack(frame, 0)
    return bool(
        producer_id == known.producer_id
        and batch_length == batch_bytes
        and length == LENGTHS_2[batch_bytes]
        and (head == known.head or head in known.heads)
    )


def least_ns(statement: str, names: dict[str, object]) -> float:
    """Processor time of one run of a statement: of many short series the quickest."""
    number = 2_000
    times = timeit.repeat(statement, globals=names, timer=thread_time, number=number, repeat=SERIES)
    return min(times) / number * 1e9


def report(rows: list[Row], window: dict[str, float], short: dict[str, float], folder: Path) -> None:
    """Table, JSON and plot; the last line for programs."""
    console = wide_console()
    table = Table(
        "store", "ids", "count", "admit ns", "known ns", "unknown ns", "bytes an id", "false positives"
    )
    for row in rows:
        table.add_row(
            row.store, row.ids, f"{row.count:,}", f"{row.admit_ns:.0f}", f"{row.known_ns:.0f}",
            f"{row.unknown_ns:.0f}", f"{row.bytes_per_id:.1f}", f"{row.false_positives:.2%}",
        )  # fmt: skip
    console.print(table)
    for what, nanoseconds in {**window, **short}.items():
        console.print(f"{what}: {nanoseconds:.0f} ns")
    plot, (left, right) = figure(1, 2)
    for name in STORES:
        mine = [row for row in rows if row.store == name and row.ids == RANDOM]
        left.plot([row.count for row in mine], [row.known_ns for row in mine], "o-", label=name)
        right.plot([row.count for row in mine], [row.bytes_per_id for row in mine], "o-", label=name)
    for axes, label in ((left, "ns to look up a known id"), (right, "bytes an id")):
        axes.set(xscale="log", yscale="log", xlabel="ids (random)", ylabel=label)
        axes.legend()
    save(plot, folder / "producer-id-store.png")
    content = {"rows": [asdict(row) for row in rows], "full_window_ns": window, "short_cut_ns": short}
    write_json(folder / "producer-id-store.json", {"machine": machine(), **content})
    print_last_line({
        "benchmark": "producer_id_store",
        "short_cut_ns": round(short["the comparison"], 1),
        "exact_bytes_per_id_max": round(max(r.bytes_per_id for r in rows if r.store == "exact"), 1),
    })  # fmt: skip


def main(argv: Sequence[str] | None = None) -> int:
    """Measure the stores; returns exit code 0."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.producer_id_store", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--quick", action="store_true", help="without the million: a trial, no result")
    parser.add_argument("--out", type=Path, help="folder for results instead of bench/results")
    arguments = parser.parse_args(argv)
    rows = [
        measure(name, kind, count)
        for count in (QUICK_COUNTS if arguments.quick else COUNTS)
        for kind in (SEQUENTIAL, RANDOM)
        for name in STORES
    ]
    folder = results_folder(arguments.out, official=not arguments.quick)
    report(rows, full_window_ns(Random(1)), short_cut_ns(), folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
