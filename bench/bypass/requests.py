"""Attacks that move no records: topics made, and the broker's time taken, on new connections."""

import asyncio
from itertools import count
from typing import Any, Final

from bench.bypass.outcome import Outcome, at_rate
from bench.bypass.rig import (
    BURST_S,
    MUTATIONS_BURST,
    MUTATIONS_PER_S,
    REQUEST_PERCENTAGE,
    BypassRig,
    client_id,
)
from bench.bypass.wires import ask, attack_for, dialled
from testkit.frames.frames import request
from testkit.processes.process import BenchError
from testkit.proxy.proxies import SLUICE

CREATE_TOPICS: Final = 19
METADATA: Final = 3
CLIENTS: Final = 8
LEAVES_AFTER_S: Final = 0.004


async def topics(rig: BypassRig, side: str, seconds: float) -> Outcome:
    """8 clients on 2 partitions/s that create a topic with CreateTopics v4, each on a new connection."""
    name = client_id(side, "mutations", "create_topics")
    made, numbers = 0, count()

    async def create() -> None:
        nonlocal made
        while True:
            topic = {
                "name": f"{name}-{next(numbers)}",
                "numPartitions": 1,
                "replicationFactor": 1,
                "assignments": [],
                "configs": [],
            }
            body: dict[str, Any] = {"topics": [topic], "timeoutMs": 20_000, "validateOnly": False}
            async with dialled(rig.port(side)) as wire:
                answer = await ask(wire, CREATE_TOPICS, 4, body, name)
            (error,) = (x["errorCode"] for x in answer["topics"])
            if error:
                raise BenchError(f"the broker made no topic: error {error}")
            made += 1

    await attack_for([create() for _ in range(CLIENTS)], seconds)
    allowed = MUTATIONS_BURST + MUTATIONS_PER_S * seconds
    return Outcome(
        limit=f"{MUTATIONS_PER_S:g} partitions/s",
        allowed=allowed,
        bound=allowed + 1,  # the last may go on credit
        passed=made,
        unit="partitions",
    )


async def request_time(rig: BypassRig, side: str, seconds: float) -> Outcome:
    """8 clients on request_percentage 1, each Metadata of all topics on a new connection.

    A delay ends after one second, whatever is owed: so each client gets one through a second (KIP-124). What
    a request costs is Sluice's own figure, on both sides.
    """
    name = client_id(side, "requests", "request_time")
    passed = 0

    async def ask_on() -> None:
        nonlocal passed
        while True:
            async with dialled(rig.port(side)) as wire:
                await ask(wire, METADATA, 12, {"topics": None}, name)
            passed += 1

    await attack_for([ask_on() for _ in range(CLIENTS)], seconds)
    return await _of_request_time(rig, "request_time", passed, seconds)


async def request_time_leaving(rig: BypassRig, side: str, seconds: float) -> Outcome:
    """The same 8 clients, each gone 4 ms after it has asked. What passed is what came to the broker."""
    name = client_id(side, "requests", "request_time_leaving")
    frame = request(METADATA, 12, {"topics": None}, client_id=name)
    before = rig.relay.requests[METADATA]

    async def ask_and_leave() -> None:
        while True:
            async with dialled(rig.counted_port(side)) as wire:
                await wire.send(frame)
                await asyncio.sleep(LEAVES_AFTER_S)

    await attack_for([ask_and_leave() for _ in range(CLIENTS)], seconds)
    return await _of_request_time(rig, "request_time_leaving", rig.relay.requests[METADATA] - before, seconds)


async def _of_request_time(rig: BypassRig, attack: str, passed: int, seconds: float) -> Outcome:
    cost_s = await _cost_s(rig, attack)
    percent = REQUEST_PERCENTAGE / 100
    allowed = at_rate(percent, seconds, BURST_S) / cost_s
    return Outcome(
        limit=f"{REQUEST_PERCENTAGE:g} %",
        allowed=allowed,
        bound=max(allowed, CLIENTS * seconds) + CLIENTS,
        passed=passed,
        unit="requests",
        detail={"cost_ms": cost_s * 1000},
    )


async def _cost_s(rig: BypassRig, attack: str) -> float:
    """What Sluice takes one of these requests to cost the broker, by a client that has nothing else."""
    name = client_id(SLUICE, "requests", attack)

    def told() -> float:
        return rig.sluice.metric("sluice_request_time_seconds_total", client_id=name)

    await asyncio.sleep(2.0)  # for those on their way
    before = told()
    async with dialled(rig.port(SLUICE)) as wire:
        await ask(wire, METADATA, 12, {"topics": None}, name)
    await asyncio.sleep(0.2)
    cost_s = told() - before
    if cost_s <= 0:
        raise BenchError("Sluice does not tell what a Metadata costs")
    return cost_s
