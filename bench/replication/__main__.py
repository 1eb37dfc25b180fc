"""Partition moves at 5 MB/s: Kafka's own throttle and Sluice's, beside clients with acks=all; with faults.

    python -m bench.replication [--megabytes 1024] [--quick] [--only native move faults plan uneven cost]

Three brokers, all traffic between them through Sluice; moves are begun by kafka-reassign-partitions. The last
line of standard output is one JSON object. What is measured, and why so: docs/benchmarks.md.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from bench.cost.rig import Rig, measure_rounds
from bench.lib.placement import Placement, place_benchmark
from bench.lib.results import machine, print_last_line, results_folder, write_json
from bench.replication.cost import session_cost_ms, unthrottled_answers, unthrottled_cases
from testkit.kafka.lock import KafkaDistError
from testkit.kafka.node import KafkaNodeError
from testkit.processes.process import BenchError
from testkit.proxy.proxies import HAPROXY, SLUICE_BEFORE_FOLLOWERS
from testkit.replication.clients import Growth, HotClient
from testkit.replication.rig import ReplicationRig, open_rig

RATE: Final = 5_000_000
COST_ROUNDS: Final = 9
QUICK_SCALE: Final = 0.1
HOT_BYTES_PER_S: Final = 300_000
HOT_PARTITIONS: Final = 6
MOVED_PARTITIONS: Final = 8
SETTLE_S: Final = 30.0
"""brokers that have just started answer within seconds at first, and in 15 ms later on"""
BASELINE_S: Final = 30.0
PARTS: Final = ("native", "move", "faults", "plan", "uneven", "cost")
MB: Final = 1_000_000


@dataclass(slots=True)
class Move:
    """What was seen of one move."""

    name: str
    moved_bytes: int
    took_s: float
    seconds: list[int] = field(default_factory=list)
    """bytes that the destination's logs grew by in each whole second"""
    identical: bool = False
    wire_bytes_per_s: float = 0.0
    """of throttled partitions, as the leader's Sluice counted them"""
    read_bytes_per_s: float = 0.0
    """that the leader read beyond what it reads without a move"""

    @property
    def bytes_per_s(self) -> float:
        return statistics.mean(self.seconds) if self.seconds else 0.0

    @property
    def cv(self) -> float:
        return statistics.pstdev(self.seconds) / self.bytes_per_s if self.bytes_per_s else 0.0


def read_bytes(pid: int) -> int:
    """What a process has read so far, by read and by sendfile, from files and sockets."""
    for line in Path(f"/proc/{pid}/io").read_text(encoding="utf-8").splitlines():
        if line.startswith("rchar:"):
            return int(line.split()[1])
    raise BenchError("no rchar")


class Bench:
    """One run of the benchmark."""

    def __init__(self, rig: ReplicationRig, moved_bytes: int) -> None:
        self.rig = rig
        self.moved_bytes = moved_bytes
        self.moves: list[Move] = []
        self.quiet_p50_ms = self.quiet_p99_ms = 0.0
        self.move_p50_ms = self.move_p99_ms = self.native_p99_ms = 0.0
        self.quiet_read_per_s = 0.0
        self.hot_failed = 0

    def hot(self) -> HotClient:
        return HotClient(self.rig, "hot", HOT_PARTITIONS, HOT_BYTES_PER_S)

    def baseline(self, hot: HotClient, seconds: float) -> None:
        """Measure the clients without a move."""
        time.sleep(SETTLE_S)
        hot.clear()
        leader = self.rig.cluster.node(1)
        before, begun_s = read_bytes(leader.pid), time.monotonic()
        time.sleep(seconds)
        self.quiet_read_per_s = (read_bytes(leader.pid) - before) / (time.monotonic() - begun_s)
        self.quiet_p50_ms, self.quiet_p99_ms = hot.p50_ms(), hot.p99_ms()
        hot.clear()

    def move(
        self,
        topic: str,
        come_from: list[list[int]],
        to: list[list[int]],
        total_bytes: int,
        meanwhile: Callable[[str, list[list[int]]], None] | None = None,
        *,
        throttle: int | None = RATE,
        hot: HotClient | None = None,
    ) -> Move:
        """Fill a topic, move it, wait until it is there, whole; `meanwhile` happens in mid-move.

        `hot` has afterwards what was timed while it moved: not while it was filled, nor while one of Kafka's
        tools, which take a core each to start, began the move or looks at what became of it.
        """
        rig = self.rig
        rig.create(topic, come_from)
        rig.fill(topic, total_bytes, len(come_from))
        source = come_from[0][0]
        is_one_way = come_from == come_from[:1] * len(come_from) and to == to[:1] * len(to)
        digest = rig.digest(topic, source) if is_one_way else ""
        nodes = sorted({node for replicas in to for node in replicas} - {source})
        sluice = rig.sluices[source]
        leader_pid = rig.cluster.node(source).pid
        wire = sluice.metric("sluice_replication_throttled_bytes_total")
        reads, begun_s = read_bytes(leader_pid), time.monotonic()
        with Growth(rig, topic, nodes) as growth:
            rig.begin_move(topic, to, throttle)
            if hot is not None:
                hot.clear()
            if meanwhile is not None:
                rig.cluster.await_until(
                    lambda: sum(rig.log_bytes(topic, node) for node in nodes) > total_bytes // 5,
                    f"{topic} under way",
                    120.0,
                )
                meanwhile(topic, to)
            limit_s = 60.0 + 3.0 * total_bytes / (throttle or 50 * MB)
            rig.cluster.await_until(lambda: rig.is_moved(topic, to), f"{topic} moved", limit_s)
            if hot is not None:
                hot.pause()
        ended_s = time.monotonic()
        found = Move(topic, total_bytes, growth.lasted_s(), growth.per_second())
        if meanwhile is None:
            grown = (read_bytes(leader_pid) - reads) - self.quiet_read_per_s * (ended_s - begun_s)
            found.read_bytes_per_s = grown / found.took_s
            # Leader and follower sides count the same bytes: half of the sum is what passed.
            passed = (sluice.metric("sluice_replication_throttled_bytes_total") - wire) / 2.0
            found.wire_bytes_per_s = passed / found.took_s
        found.identical = all(rig.digest(topic, node) == digest for node in nodes) if digest else True
        rig.verify_move(topic, to)
        self.moves.append(found)
        print(
            f"{topic}: {total_bytes / MB:.0f} MB in {found.took_s:.1f} s, {found.bytes_per_s / MB:.2f} MB/s, "
            f"CV {found.cv:.3f}, max {max(found.seconds, default=0) / MB:.1f} MB/s, "
            f"identical: {found.identical}",
            flush=True,
        )
        return found


def faults(bench: Bench) -> list[Move]:
    """Each in mid-move; all must finish, with the same bytes."""
    rig, total = bench.rig, 40 * MB

    def kill_proxy(_topic: str, _to: list[list[int]]) -> None:
        rig.sluices[1].close()
        time.sleep(1.0)
        rig.sluices[1].start()

    def kill_destination(_topic: str, to: list[list[int]]) -> None:
        rig.cluster.kill(to[0][0])
        time.sleep(3.0)
        rig.cluster.start(to[0][0])

    def change_leader(topic: str, _to: list[list[int]]) -> None:
        rig.cluster.kill(1)
        rig.cluster.await_until(lambda: rig.cluster.leader(topic) == 3, "led by another", 60.0)
        rig.cluster.start(1)

    def faster(topic: str, to: list[list[int]]) -> None:
        rig.change_throttle(topic, to, 2 * RATE)

    def remove(_topic: str, _to: list[list[int]]) -> None:
        rig.remove_throttle()

    return [
        bench.move("proxy-killed", [[1]], [[2]], total, kill_proxy),
        bench.move("broker-killed", [[1]], [[2]], total, kill_destination),
        bench.move("leader-changed", [[1, 3]], [[2, 3]], total, change_leader),
        bench.move("throttle-changed", [[1]], [[2]], total, faster),
        bench.move("throttle-removed", [[1]], [[2]], total, remove),
    ]


def kip_plan(bench: Bench) -> list[Move]:
    """KIP-73's test plan: 100 partitions of two copies; from one to one, one to two, two to one."""
    rig, total, count = bench.rig, 60 * MB, 100
    found = []
    for load in (False, True):
        cases = {
            "one-to-one": ([[1]] * count, [[2]] * count),
            "one-to-two": ([[1]] * count, [[2], [3]] * (count // 2)),
            "two-to-one": ([[1], [2]] * (count // 2), [[3]] * count),
        }
        for name, (come_from, to) in cases.items():
            topic = f"{name}{'-loaded' if load else ''}"
            if load:
                with bench.hot():
                    found.append(bench.move(topic, come_from, to, total))
            else:
                found.append(bench.move(topic, come_from, to, total))
    assert rig.cluster.live_ids() == rig.cluster.ids
    return found


def uneven(bench: Bench) -> dict[str, Any]:
    """Rates that differ by broker and side, set as kafka-configs sets them; and an empty broker that joins.

    Leader 1 may send 8 MB/s; of its followers 2 may take 2, 3 may take 20: so 2 and 6 are due. Then broker 3
    is replaced, and gets 5 MB/s of two leaders. Each as a share of what is due.
    """
    rig = bench.rig
    rig.create("uneven", [[1]] * 4)
    rig.fill("uneven", 80 * MB, 4)
    rig.set_throttle("uneven", leader={1: 8 * MB}, follower={2: 2 * MB, 3: 20 * MB})
    to = [[2], [3], [3], [3]]
    with Growth(rig, "uneven", [2]) as slow, Growth(rig, "uneven", [3]) as fast:
        rig.begin_move("uneven", to, None)
        rig.cluster.await_until(lambda: rig.is_moved("uneven", to), "uneven moved", 120.0)
    rig.remove_throttle()
    rig.create("kept", [[1, 3], [2, 3]] * 6)
    rig.fill("kept", 120 * MB, 12)
    rig.set_throttle("kept", leader={1: 20 * MB, 2: 20 * MB}, follower={3: RATE})
    with Growth(rig, "kept", [3]) as joined:
        rig.replace(3)
        rig.cluster.await_until(lambda: rig.is_moved("kept", [[1, 3], [2, 3]] * 6), "kept in sync", 180.0)
    rig.remove_throttle()
    found = {
        "asymmetric_slow_ratio": (slow, 2 * MB),
        "asymmetric_fast_ratio": (fast, 6 * MB),
        "bootstrap_ratio": (joined, RATE),
    }
    print({name: growth.per_second() for name, (growth, _) in found.items()}, flush=True)
    return {
        name: round(statistics.mean(growth.per_second()) / due, 3) for name, (growth, due) in found.items()
    }


def unthrottled_cost(rounds: int, scale: float) -> dict[str, Any]:
    """CPU per GiB of followers' answers that nothing throttles, Sluice's ÷ HAProxy's, by turns in one run."""
    answers = unthrottled_answers()
    rig = Rig(answers)
    place_benchmark(Placement.FREE)
    names = SLUICE_BEFORE_FOLLOWERS, HAPROXY
    part = measure_rounds(rig, names, Placement.FREE, rounds, unthrottled_cases(answers, scale))
    found: dict[str, Any] = {}
    for result in part.results:
        ratio = result.ratio(*names)
        found[f"{result.case.name}_vs_haproxy"] = round(ratio.median, 3)
        found[f"{result.case.name}_vs_haproxy_range"] = ratio.as_range()
    return found


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    """All parts that are asked for. Raises BenchError, or TimeoutError for a move that does not end."""
    chosen = arguments.only or PARTS
    details: dict[str, Any] = {}
    summary: dict[str, Any] = {}
    if set(chosen) - {"cost"}:
        with open_rig(heap="384m") as rig:
            bench = Bench(rig, int(arguments.megabytes * MB))
            rig.create("hot", [[1, 2, 3], [2, 3, 1], [3, 1, 2]] * (HOT_PARTITIONS // 3))
            if "native" in chosen or "move" in chosen:
                _compare(bench, chosen, summary)
            if "faults" in chosen:
                rig.start_sluices(paced=True)
                found = faults(bench)
                summary["faults_finished"] = sum(move.identical for move in found)
                summary["faults"] = len(found)
            if "plan" in chosen:
                rig.start_sluices(paced=True)
                kip_plan(bench)
            if "uneven" in chosen:
                rig.start_sluices(paced=True)
                summary |= uneven(bench)
            summary["isr_shrinks_all"] = rig.isr_shrinks()
            details["moves"] = [asdict(move) | {"cv": move.cv} for move in bench.moves]
    if "cost" in chosen:
        summary["session_2000_ms_per_fetch"] = round(session_cost_ms(2_000), 4)
        summary |= unthrottled_cost(COST_ROUNDS, QUICK_SCALE if arguments.quick else 1.0)
    return {"summary": summary, "details": details}


def _compare(bench: Bench, chosen: Sequence[str], summary: dict[str, Any]) -> None:
    """The same move by Kafka's own throttle and by Sluice's, each beside the same clients."""
    rig = bench.rig
    sides = [[1]] * MOVED_PARTITIONS, [[2]] * MOVED_PARTITIONS
    with bench.hot() as hot:
        bench.baseline(hot, BASELINE_S if bench.moved_bytes >= 500 * MB else 10.0)
        if "native" in chosen:
            native = bench.move("native", *sides, min(bench.moved_bytes, 300 * MB), hot=hot)
            bench.native_p99_ms = hot.p99_ms()
            summary |= {"native_cv": round(native.cv, 3), "native_rate_ratio": _ratio(native.bytes_per_s)}
            summary["native_client_p99_ratio"] = round(bench.native_p99_ms / bench.quiet_p99_ms, 2)
        if "move" in chosen:
            rig.start_sluices(paced=True)
            bench.baseline(hot, BASELINE_S if bench.moved_bytes >= 500 * MB else 10.0)
            shrinks = rig.isr_shrinks()
            move = bench.move("moved", *sides, bench.moved_bytes, hot=hot)
            bench.move_p50_ms, bench.move_p99_ms = hot.p50_ms(), hot.p99_ms()
            predicted_s = bench.moved_bytes / RATE
            summary |= {
                "rate_ratio": _ratio(move.wire_bytes_per_s),
                "log_rate_ratio": _ratio(move.bytes_per_s),
                "cv": round(move.cv, 3),
                "client_p99_ratio": round(bench.move_p99_ms / bench.quiet_p99_ms, 2),
                "client_p99_ms": round(bench.move_p99_ms, 1),
                "client_p99_quiet_ms": round(bench.quiet_p99_ms, 1),
                "client_p50_ms": round(bench.move_p50_ms, 1),
                "client_p50_quiet_ms": round(bench.quiet_p50_ms, 1),
                "read_amplification": round(move.read_bytes_per_s / move.wire_bytes_per_s, 3),
                "isr_shrinks": rig.isr_shrinks() - shrinks,
                "identical": move.identical,
                "move_time_error": round(move.took_s / predicted_s - 1.0, 3),
            }
        bench.hot_failed = hot.failed
    summary["client_failures"] = bench.hot_failed


def _ratio(bytes_per_s: float) -> float:
    return round(bytes_per_s / RATE, 3)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.replication", description=__doc__.splitlines()[0])
    parser.add_argument("--megabytes", type=float, default=1024.0, help="that are moved (1024)")
    parser.add_argument("--quick", action="store_true", help="100 MB: a trial, no result")
    parser.add_argument("--only", nargs="+", choices=PARTS, help="only these parts")
    parser.add_argument("--out", type=Path, help="folder for results instead of bench/results")
    arguments = parser.parse_args(argv)
    if arguments.quick:
        arguments.megabytes = 100.0
    try:
        found = run(arguments)
    except (BenchError, KafkaDistError, KafkaNodeError, TimeoutError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    official = not arguments.quick and not arguments.only
    folder = results_folder(arguments.out, official=official)
    write_json(folder / "replication.json", found | {"machine": machine()})
    print_last_line(found["summary"])
    return 0


if __name__ == "__main__":
    sys.exit(main())
