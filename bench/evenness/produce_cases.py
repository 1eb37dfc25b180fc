"""Cases of the evenness benchmark that produce: overload, small requests beside large ones, what is told."""

import asyncio
import time
from collections.abc import Sequence
from typing import Any, Final

from bench.evenness.case_figures import (
    CaseResult,
    highest_sliding_second,
    p99,
    peak_vs_bound,
    told_vs_waited,
)
from bench.evenness.case_rig import CaseRig, client_id
from bench.evenness.cases import SETTLE_S, Event, bound_bytes_per_s
from bench.evenness.rig import ANSWER_BUDGET_S
from bench.lib.fetcher import Fetcher
from bench.lib.light_rig import NATIVE
from bench.lib.stats import coefficient_of_variation, median, per_second
from bench.lib.wire_clients import ClientLog, ask_to_produce, connection, produce, run_for
from testkit.frames import load_frames as frames

LARGE_CONNECTIONS: Final = 9
LARGE_BYTES: Final = 50_000
LARGE_DEPTH: Final = 5
SMALL_BYTES: Final = 1  # a record's value: about 100 bytes in all
SMALL_EVERY_S: Final = 0.1
MIB: Final = 1 << 20
BURST_CONNECTIONS: Final = 80
BURST_REQUEST_BYTES: Final = 100_000
BURST_EVERY_S: Final = 5.0
TOLD_CLIENTS: Final = 20
TOLD_BATCH_BYTES: Final = 16_384
FETCH_TOLD_MOST_S: Final = 2.0  # wire-semantics 1.5: written into a Fetch answer


async def small_beside_large(rig: CaseRig, side: str, seconds: float) -> CaseResult:
    """One client id: nine connections flat out with 50 kB, and a small request ten times a second."""
    topic = await rig.topic("small_beside_large", 1)
    name = client_id(side, "small_beside_large")
    large = bytes(frames.produce_request_of(name, topic, LARGE_BYTES))
    small = bytes(frames.produce_request(name, topic, frames.record_batch(bytes(SMALL_BYTES)), acks=-1))
    logs, log = [ClientLog() for _ in range(LARGE_CONNECTIONS)], ClientLog()
    start_s = time.monotonic()
    clients = [produce(rig.port(side), large, LARGE_DEPTH, x) for x in logs]
    await run_for([*clients, _every(rig.port(side), small, SMALL_EVERY_S, log)], seconds)
    waits = [latency for at_s, latency in log.latencies_s if at_s >= start_s + SETTLE_S]
    if not waits:  # not one within the time: it waits still
        waits = [seconds - SETTLE_S]
    rates = per_second((e for x in logs for e in x.events), start_s + SETTLE_S, start_s + seconds)
    return CaseResult(
        "a small request beside nine connections of 50 kB: p99 in s",
        p99(waits),
        {
            "small_request_bytes": len(small),
            "p50_s": median(waits),
            "requests": len(waits),
            "large_bytes_per_s": sum(rates) / len(rates),
        },
    )


async def overload(rig: CaseRig, side: str, seconds: float) -> CaseResult:
    """Three loads that pass the rate: (highest second − one request) ÷ stated bound; and the broker's own."""
    loads = {
        "20 × 1 MB": await _pour(rig, side, 20, 1_000_000, 1, seconds),
        "50 × 1 MiB × 5": await _pour(rig, side, 50, MIB, LARGE_DEPTH, seconds),
        "open loop": await _open_loop(rig, side, seconds),
    }
    native = {} if side == NATIVE else {"native": await _pour(rig, NATIVE, 50, MIB, LARGE_DEPTH, seconds)}
    return CaseResult(
        "(highest second − one request) ÷ stated bound, worst of three loads",
        max(float(x["peak_vs_bound"]) for x in loads.values()),
        {
            **loads,
            **native,
            "cv": loads["50 × 1 MiB × 5"]["cv"],
            "native_cv": native["native"]["cv"] if native else None,
        },
    )


async def _pour(
    rig: CaseRig, side: str, connections: int, request_bytes: int, depth: int, seconds: float
) -> dict[str, Any]:
    """So many connections flat out; one request of each counts as outstanding."""
    topic = await rig.topic("overload", 1)
    name = client_id(side, f"overload_{connections}")
    frame = bytes(frames.produce_request_of(name, topic, request_bytes))
    logs = [ClientLog() for _ in range(connections)]
    start_s = time.monotonic()
    await run_for([produce(rig.port(side), frame, depth, log) for log in logs], seconds)
    bound = bound_bytes_per_s(connections * request_bytes, ANSWER_BUDGET_S)
    return _peak([e for log in logs for e in log.events], start_s, seconds, request_bytes, bound)


async def _open_loop(rig: CaseRig, side: str, seconds: float) -> dict[str, Any]:
    """Every 5 s 80 new connections bring one request each, whether the others were answered or not."""
    topic = await rig.topic("overload", 1)
    name = client_id(side, "overload_burst")
    frame = bytes(frames.produce_request_of(name, topic, BURST_REQUEST_BYTES))
    log, outstanding, most = ClientLog(), 0, 0

    async def one() -> None:
        nonlocal outstanding, most
        async with connection(rig.port(side)) as streams:
            outstanding += len(frame)
            most = max(most, outstanding)
            await ask_to_produce(streams, frame, 1, log)
            outstanding -= len(frame)

    async def bursts() -> None:
        async with asyncio.TaskGroup() as group:
            while True:
                for _ in range(BURST_CONNECTIONS):
                    group.create_task(one())
                await asyncio.sleep(BURST_EVERY_S)

    start_s = time.monotonic()
    await run_for([bursts()], seconds)
    bound = bound_bytes_per_s(most, ANSWER_BUDGET_S)
    return _peak(log.events, start_s, seconds, len(frame), bound)


def _peak(
    events: Sequence[Event], start_s: float, seconds: float, request_bytes: int, bound: float
) -> dict[str, Any]:
    rates = per_second(events, start_s + SETTLE_S, start_s + seconds)
    sliding = highest_sliding_second(events, start_s + SETTLE_S, start_s + seconds)
    return {
        "peak_vs_bound": peak_vs_bound(max(rates), request_bytes, bound),
        "sliding_peak_vs_bound": peak_vs_bound(sliding, request_bytes, bound),
        "cv": coefficient_of_variation(rates) if any(rates) else None,
        "bound_bytes_per_s": bound,
        "bytes_per_s": rates,
    }


async def told(rig: CaseRig, side: str, seconds: float) -> CaseResult:
    """20 producers on 100 kB/s that wait as they are told: told ÷ what the next request really waited."""
    topic = await rig.topic("told", 1)
    name = client_id(side, "told", "-middle")
    frame = bytes(frames.produce_request_of(name, topic, TOLD_BATCH_BYTES))
    pairs: list[tuple[float, float]] = []
    clients = [_honours(rig.port(side), frame, pairs) for _ in range(TOLD_CLIENTS)]
    await run_for(clients, seconds)
    settled = pairs[TOLD_CLIENTS:]  # the first of each comes into a bucket that is full
    ratios = told_vs_waited(settled)
    fetched = await _fetch_told(rig, side, seconds / 2)
    return CaseResult(
        "throttle_time_ms of a Produce ÷ what the next really waited, median",
        median(ratios) if ratios else 0.0,
        {
            "pairs": len(ratios),
            "told_median_s": median([x for x, _ in settled]) if settled else None,
            "waited_median_s": median([x for _, x in settled]) if settled else None,
            **fetched,
        },
    )


async def _fetch_told(rig: CaseRig, side: str, seconds: float) -> dict[str, object]:
    """The same of Fetch: what may be told is bounded, so longer waits count as the bound."""
    consumers = TOLD_CLIENTS // 2
    topic = await rig.topic(f"fetch_told-{side}", consumers)
    await rig.fill(topic, range(consumers), [frames.record_batch(bytes(16_000))] * 20)
    name = client_id(side, "fetch_told", "-middle")
    fetchers = [Fetcher(name, topic, [x], session=x % 2 == 0, waits_as_told=True) for x in range(consumers)]
    await rig.consume(side, fetchers, seconds)
    pairs = [
        (before.throttle_ms / 1000, after.at_s - before.at_s)
        for fetcher in fetchers
        for before, after in zip(fetcher.log.answers[1:], fetcher.log.answers[2:], strict=False)
    ]
    ratios = told_vs_waited(pairs, FETCH_TOLD_MOST_S)
    return {
        "fetch_told_vs_waited": median(ratios) if ratios else 0.0,
        "fetch_pairs": len(ratios),
        "fetch_told_most_s": max((x for x, _ in pairs), default=0.0),
        "fetch_waited_median_s": median([x for _, x in pairs]) if pairs else None,
    }


async def _every(port: int, frame: bytes, every_s: float, log: ClientLog) -> None:
    """One request at a time, and so many seconds between their sendings if the answers let it."""
    async with connection(port) as streams:
        correlation_id = 0
        while True:
            due_s = time.monotonic() + every_s
            correlation_id += 1
            await ask_to_produce(streams, frame, correlation_id, log)
            await asyncio.sleep(due_s - time.monotonic())


async def _honours(port: int, frame: bytes, pairs: list[tuple[float, float]]) -> None:
    """One request at a time; waits as it is told, as Java does from Produce v6 on (KIP-219)."""
    log, correlation_id, told_s, answered_s = ClientLog(), 0, None, 0.0
    async with connection(port) as streams:
        while True:
            correlation_id += 1
            throttle_ms = await ask_to_produce(streams, frame, correlation_id, log)
            now_s = time.monotonic()
            if told_s is not None:
                pairs.append((told_s, now_s - answered_s))
            told_s, answered_s = throttle_ms / 1000, now_s
            await asyncio.sleep(told_s)
