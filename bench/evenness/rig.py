"""A real broker with its native quota, and Sluice before the same broker, ready for clients of both sides.

    native:  client → [relay] → broker, with a quota for these client ids
    sluice:  client → [relay] → Sluice → broker, without a quota for these client ids

Java clients go through the counting relay on both sides; light clients connect straight and count themselves.
"""

import asyncio
import contextlib
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from bench.evenness.cases import QUOTA_BYTES_PER_S, Event
from bench.lib.light_rig import NATIVE
from bench.lib.quotas_admin import set_native_quotas
from bench.lib.relay import Direction, Relay
from testkit.kafka.java_tools import run_tool
from testkit.kafka.node import KafkaNode
from testkit.processes.ports import LOOPBACK, free_ports
from testkit.proxy.proxies import SLUICE, sluice

PRODUCE_TOPIC: Final = "bench-produce"
FETCH_TOPIC: Final = "bench-fetch"
RECORD_BYTES: Final = 1000
ANSWER_BUDGET_S: Final = 8.0  # pacing.answer_budget_s, given to Sluice so that the stated bound is known here
NATIVE_BURST_S: Final = (
    11  # quota.window.num × quota.window.size.seconds: the broker lets as much pass at once
)
PROGRESS_S: Final = 5.0


@dataclass(slots=True)
class Meter:
    """What the relays have passed on since `clear`."""

    events: dict[Direction, list[Event]] = field(default_factory=lambda: {d: [] for d in Direction})

    def clear(self) -> None:
        self.events = {direction: [] for direction in Direction}

    def total(self, direction: Direction) -> int:
        return sum(size for _, size in self.events[direction])

    def __call__(self, _connection: int, direction: Direction, at_s: float, data: memoryview) -> None:
        self.events[direction].append((at_s, len(data)))


@dataclass(frozen=True, slots=True)
class Side:
    """Where the clients of one side connect."""

    name: str
    relay_port: int  # Java clients
    port: int  # light clients

    def client_id(self, setup: str) -> str:
        """Its own for every setup: no debt is carried over, and the native quota hits nobody else."""
        return f"{self.name}-{setup}"


@dataclass(frozen=True, slots=True)
class EvenRig:
    """All that runs while clients come and go."""

    node: KafkaNode
    sides: Sequence[Side]
    meter: Meter
    folder: Path  # for the output of tools


@contextlib.asynccontextmanager
async def open_rig(
    side_names: Sequence[str], setups: Sequence[str], seconds: float
) -> AsyncIterator[EvenRig]:
    """Broker, topics, native quotas, records to fetch, Sluice and relays; all gone when the block ends."""
    native_relay, sluice_relay = free_ports(2)
    advertised = {"NATIVE": (LOOPBACK, native_relay), "SLUICE": (LOOPBACK, sluice_relay)}
    print("starting Kafka", flush=True)
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="sluice-bench-")))
        node = stack.enter_context(KafkaNode(advertised=advertised, heap="1g", quick_jit=False))
        _fill(node, seconds)
        native = Side(NATIVE, native_relay, node.address("NATIVE")[1])
        set_native_quotas(native.port, [native.client_id(setup) for setup in setups], QUOTA_BYTES_PER_S)
        sides = [native] if NATIVE in side_names else []
        if SLUICE in side_names:
            limits = {"producer_byte_rate": QUOTA_BYTES_PER_S, "consumer_byte_rate": QUOTA_BYTES_PER_S}
            _, ports = stack.enter_context(
                sluice(
                    [node.address("SLUICE")[1]],
                    [{"client-id": "<default>", **limits}],
                    pacing={"answer_budget_s": ANSWER_BUDGET_S},
                )
            )
            sides.append(Side(SLUICE, sluice_relay, ports[0]))
        meter = Meter()
        for side in sides:
            stack.callback(Relay(side.relay_port, side.port, meter).close)
        yield EvenRig(node, sides, meter, folder)


async def show_progress(label: str, total_bytes: Callable[[], int]) -> None:
    """Prints the mean rate so far every few seconds, until cancelled."""
    start_s = time.monotonic()
    while True:
        await asyncio.sleep(PROGRESS_S)
        passed_s = time.monotonic() - start_s
        print(f"  {label:<24} {passed_s:4.0f} s  {total_bytes() / passed_s / 1e6:6.3f} MB/s", flush=True)


def _fill(node: KafkaNode, seconds: float) -> None:
    """One-partition topics; as many records to fetch as the native broker lets through, and some more."""
    for topic in (PRODUCE_TOPIC, FETCH_TOPIC):
        where = ("--bootstrap-server", node.bootstrap, "--topic", topic)
        run_tool(node.dist, "topics", "--create", "--partitions", "1", *where)
    records = int(QUOTA_BYTES_PER_S * (seconds + 2 * NATIVE_BURST_S) / RECORD_BYTES)
    print(f"filling {FETCH_TOPIC} with {records:,} records", flush=True)
    run_tool(
        node.dist,
        "producer-perf-test",
        *("--bootstrap-server", node.bootstrap, "--topic", FETCH_TOPIC),
        *("--num-records", str(records), "--record-size", str(RECORD_BYTES), "--throughput", "-1"),
        *("--command-property", "client.id=fill", "acks=1"),
        timeout_s=180,
    )
