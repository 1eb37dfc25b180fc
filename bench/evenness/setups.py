"""The client setups of the evenness benchmark: who connects how often and asks for what.

Every one runs for some seconds against one side and returns its figures.
"""

import asyncio
import re
import time
from collections.abc import Coroutine, Sequence
from typing import Any, Final

from bench.evenness.cases import (
    QUOTA_BYTES_PER_S,
    SETTLE_S,
    BoundResult,
    Evenness,
    bound_bytes_per_s,
    evenness,
    latency_percentiles,
)
from bench.evenness.rig import (
    ANSWER_BUDGET_S,
    FETCH_TOPIC,
    NATIVE_BURST_S,
    PRODUCE_TOPIC,
    RECORD_BYTES,
    EvenRig,
    Side,
    show_progress,
)
from bench.lib.relay import Direction
from bench.lib.stats import per_second
from bench.lib.wire_clients import ClientLog, fetch, produce, produce_reconnecting, run_for
from testkit.frames import load_frames as frames
from testkit.kafka.java_tools import start_tool
from testkit.processes.guarded_process import GuardedProcess, log_tail
from testkit.processes.ports import LOOPBACK
from testkit.processes.process import BenchError

DEPTH: Final = 5  # max.in.flight.requests.per.connection of the Java producer
BATCH_RECORDS: Final = 16  # of 1 kB: what the Java producer's batch.size of 16,384 holds
LARGE_BYTES: Final = 1 << 20
LARGE_CONNECTIONS: Final = 50
RECONNECTING_CLIENTS: Final = 5
FIRST_DATA_BYTES: Final = (
    16_384  # starts the clock of a Java client, so that the start of its JVM does not count
)
START_WITHIN_S: Final = 40.0
END_WITHIN_S: Final = 60.0

_PERCENTILES = re.compile(r"(\d+) ms 50th, (\d+) ms 95th, (\d+) ms 99th")


async def java_produce(rig: EvenRig, side: Side, seconds: float) -> Evenness:
    """Flat-out ProducerPerformance; latencies are the tool's own, over all its records."""
    # Records must be left when the measured time ends, also where the first of it passes at once.
    records = int(QUOTA_BYTES_PER_S * (seconds + NATIVE_BURST_S + 1) / RECORD_BYTES)
    log = rig.folder / f"{side.name}-produce.log"
    rig.meter.clear()
    tool = start_tool(
        rig.node.dist,
        "producer-perf-test",
        *("--bootstrap-server", f"{LOOPBACK}:{side.relay_port}", "--topic", PRODUCE_TOPIC),
        *("--num-records", str(records), "--record-size", str(RECORD_BYTES), "--throughput", "-1"),
        *("--command-property", f"client.id={side.client_id('produce')}", "acks=all"),
        *("linger.ms=0", "batch.size=16384", "buffer.memory=1048576"),
        output=log,
    )
    with tool:
        start_s = await _measured(rig, tool, Direction.UP, f"produce {side.name}", seconds)
        deadline_s = time.monotonic() + END_WITHIN_S
        while tool.exit_code() is None and time.monotonic() < deadline_s:  # noqa: ASYNC110 - a process
            await asyncio.sleep(0.2)
    found = _PERCENTILES.findall(log.read_text(encoding="utf-8"))
    if not found:
        raise BenchError(f"ProducerPerformance printed no percentiles:\n{log_tail(log)}")
    latency_s = {name: int(ms) / 1000 for name, ms in zip(("p50", "p95", "p99"), found[-1], strict=True)}
    return evenness([rig.meter.events[Direction.UP]], latency_s, start_s, seconds)


async def java_consume(rig: EvenRig, side: Side, seconds: float) -> Evenness:
    """Flat-out ConsumerPerformance; counts all that it is answered, the little beside Fetch included."""
    rig.meter.clear()
    tool = start_tool(
        rig.node.dist,
        "consumer-perf-test",
        *("--bootstrap-server", f"{LOOPBACK}:{side.relay_port}", "--topic", FETCH_TOPIC),
        *("--num-records", "1000000000", "--timeout", "120000"),
        *("--command-property", f"client.id={side.client_id('consume')}"),
        output=rig.folder / f"{side.name}-consume.log",
    )
    with tool:
        start_s = await _measured(rig, tool, Direction.DOWN, f"consume {side.name}", seconds)
    return evenness([rig.meter.events[Direction.DOWN]], {}, start_s, seconds)


async def light_produce(side: Side, connections: int, seconds: float) -> Evenness:
    """Light producers of one client id, each with 5 Produce requests of 16 records of 1 kB in flight."""
    setup = f"produce_{connections}"
    batch = frames.record_batch(bytes(RECORD_BYTES), BATCH_RECORDS)
    frame = bytes(frames.produce_request(side.client_id(setup), PRODUCE_TOPIC, batch, acks=-1))
    logs = [ClientLog() for _ in range(connections)]
    return await _light(setup, side, [produce(side.port, frame, DEPTH, log) for log in logs], logs, seconds)


async def light_fetch(side: Side, connections: int, seconds: float) -> Evenness:
    """Light consumers of one client id, each with one Fetch at a time for the same records."""
    setup = f"fetch_{connections}"
    logs = [ClientLog() for _ in range(connections)]
    clients = [fetch(side.port, side.client_id(setup), FETCH_TOPIC, log) for log in logs]
    return await _light(setup, side, clients, logs, seconds)


async def large_requests(side: Side, seconds: float) -> BoundResult:
    """50 connections, each with 5 Produce requests of 1 MiB in flight: bound by the answer budget."""
    frame = bytes(frames.produce_request_of(side.client_id("large"), PRODUCE_TOPIC, LARGE_BYTES))
    logs = [ClientLog() for _ in range(LARGE_CONNECTIONS)]
    clients = [produce(side.port, frame, DEPTH, log) for log in logs]
    bound = bound_bytes_per_s(LARGE_CONNECTIONS * len(frame), ANSWER_BUDGET_S)
    return await _bound(
        f"{LARGE_CONNECTIONS} connections × 1 MiB × {DEPTH}", side, clients, logs, bound, seconds
    )


async def reconnecting(side: Side, seconds: float) -> BoundResult:
    """Clients that open a connection for every Produce request of 16 kB: reconnecting clears no debt."""
    batch = frames.record_batch(bytes(RECORD_BYTES), BATCH_RECORDS)
    frame = bytes(frames.produce_request(side.client_id("reconnecting"), PRODUCE_TOPIC, batch, acks=-1))
    logs = [ClientLog() for _ in range(RECONNECTING_CLIENTS)]
    clients = [produce_reconnecting(side.port, frame, log) for log in logs]
    bound = bound_bytes_per_s(RECONNECTING_CLIENTS * len(frame), ANSWER_BUDGET_S)
    return await _bound(f"{RECONNECTING_CLIENTS} clients that reconnect", side, clients, logs, bound, seconds)


async def _light(
    setup: str,
    side: Side,
    clients: Sequence[Coroutine[Any, Any, None]],
    logs: Sequence[ClientLog],
    seconds: float,
) -> Evenness:
    start_s = await _run_light(f"{setup} {side.name}", clients, logs, seconds)
    latencies = [latency for log in logs for latency in log.latencies_s]
    percentiles = latency_percentiles(latencies, start_s, seconds)
    return evenness([log.events for log in logs], percentiles, start_s, seconds)


async def _bound(
    shown: str,
    side: Side,
    clients: Sequence[Coroutine[Any, Any, None]],
    logs: Sequence[ClientLog],
    bound: float,
    seconds: float,
) -> BoundResult:
    start_s = await _run_light(f"{shown} {side.name}", clients, logs, seconds)
    events = (event for log in logs for event in log.events)
    return BoundResult(shown, per_second(events, start_s + SETTLE_S, start_s + seconds), bound)


async def _run_light(
    label: str, clients: Sequence[Coroutine[Any, Any, None]], logs: Sequence[ClientLog], seconds: float
) -> float:
    """Runs the clients; returns when they began."""
    start_s = time.monotonic()
    progress = show_progress(label, lambda: sum(size for log in logs for _, size in log.events))
    await run_for([*clients, progress], seconds)
    return start_s


async def _measured(
    rig: EvenRig, tool: GuardedProcess, direction: Direction, label: str, seconds: float
) -> float:
    """Waits for a Java client's first data and then for the measured time; returns when the data began."""
    deadline_s = time.monotonic() + START_WITHIN_S
    while rig.meter.total(direction) < FIRST_DATA_BYTES:
        if tool.exit_code() is not None or time.monotonic() > deadline_s:
            raise BenchError(f"{label}: no data came from the Java client")
        await asyncio.sleep(0.01)
    start_s = time.monotonic()
    await run_for([show_progress(label, lambda: rig.meter.total(direction))], seconds)
    if tool.exit_code() is not None:
        raise BenchError(f"{label}: the Java client ended before the measured time did")
    return start_s
