"""The four Java clients of the demo, all at once: two on the broker's native quota, two through Sluice.

Each connects through a counting relay: client → relay → broker, or client → relay → Sluice → broker.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.demo.figures import KINDS, SIDES, ClientReport, parse_report
from bench.demo.interrupts import Interrupts
from bench.demo.screen import Screen
from bench.demo.wire import Lane, WireMeter
from bench.evenness.cases import QUOTA_BYTES_PER_S
from bench.evenness.rig import FETCH_TOPIC, NATIVE_BURST_S, PRODUCE_TOPIC, RECORD_BYTES
from bench.lib.relay import Relay
from testkit.frames.load_frames import PRODUCE
from testkit.kafka.java_tools import start_tool
from testkit.kafka.node import KafkaNode
from testkit.processes.guarded_process import GuardedProcess, log_tail
from testkit.processes.ports import LOOPBACK
from testkit.processes.process import BenchError

TICK_S: Final = 0.2
START_WITHIN_S: Final = 40.0
END_WITHIN_S: Final = 30.0  # beyond the time that the quota asks for


@dataclass(frozen=True, slots=True)
class Stage:
    """What the clients need: all of it runs."""

    node: KafkaNode
    sluice_pid: int
    folder: Path  # for their output
    ports: Mapping[str, tuple[int, int]]  # side → port of its relay, port that the relay dials


def client_id(side: str, api_key: int) -> str:
    """Quotas go by it: the broker's native ones name `native-…`, those in Sluice's file `sluice-…`."""
    return f"{side}-{KINDS[api_key]}"


def records_of_each(seconds: float) -> int:
    """So many that every client is still busy when the measured time ends, burst or not."""
    return int(QUOTA_BYTES_PER_S * (seconds + NATIVE_BURST_S + 1) / RECORD_BYTES)


async def run_traffic(
    stage: Stage, seconds: float, screen: Screen, interrupts: Interrupts
) -> tuple[list[Lane], list[ClientReport]]:
    """Runs all four clients to their end; their lanes and what they printed, in the same order.

    Raises BenchError with the end of its output when a client fails, Interrupted when the user wants it.
    """
    zero_s = time.monotonic()
    lanes = [Lane(side, api_key, client_id(side, api_key), zero_s) for side in SIDES for api_key in KINDS]
    with contextlib.ExitStack() as stack:
        for side, (port, upstream_port) in stage.ports.items():
            meter = WireMeter([lane for lane in lanes if lane.side == side])
            stack.callback(Relay(port, upstream_port, meter).close)
        clients = [stack.enter_context(_start(stage, lane, seconds)) for lane in lanes]
        with screen:
            await _follow(stage, lanes, clients, seconds, screen, interrupts)
        return lanes, [_report(stage, lane) for lane in lanes]


async def _follow(
    stage: Stage,
    lanes: Sequence[Lane],
    clients: Sequence[GuardedProcess],
    seconds: float,
    screen: Screen,
    interrupts: Interrupts,
) -> None:
    zero_s = lanes[0].clock_zero_s
    start_by_s = time.monotonic() + START_WITHIN_S
    while True:
        interrupts.check()
        _require_servers(stage)
        now_s = time.monotonic()
        running = 0
        for lane, client in zip(lanes, clients, strict=True):
            code = client.exit_code()
            running += code is None
            lane.has_ended = code == 0
            if code or (code == 0 and lane.started_s is None):
                raise _failed(stage, lane, f"ended with exit code {code}")
            if lane.started_s is None and now_s > start_by_s:
                raise _failed(stage, lane, f"moved nothing within {START_WITHIN_S:.0f} s")
        starts_s = [lane.started_s for lane in lanes if lane.started_s is not None]
        end_s = (max(starts_s) if starts_s else now_s) + records_of_each(
            seconds
        ) * RECORD_BYTES / QUOTA_BYTES_PER_S
        screen.update(lanes, now_s - zero_s, end_s - zero_s)
        if not running:
            return
        if now_s > end_s + END_WITHIN_S:
            late = next(
                lane for lane, client in zip(lanes, clients, strict=True) if client.exit_code() is None
            )
            raise _failed(stage, late, f"was not done {END_WITHIN_S:.0f} s after its quota allows it to be")
        await asyncio.sleep(TICK_S)


def _require_servers(stage: Stage) -> None:
    """Clients would go on trying for minutes."""
    if not Path(f"/proc/{stage.node.pid}").exists():
        raise BenchError(f"Kafka ended before its clients; its log ends:\n{stage.node.log_tail()}")
    if not Path(f"/proc/{stage.sluice_pid}").exists():
        raise BenchError("Sluice ended before its clients; the end of its log stands above")


def _start(stage: Stage, lane: Lane, seconds: float) -> GuardedProcess:
    records = records_of_each(seconds)
    bootstrap = ("--bootstrap-server", f"{LOOPBACK}:{stage.ports[lane.side][0]}")
    common = (
        "--num-records",
        str(records),
        "--print-metrics",
        "--command-property",
        f"client.id={lane.client_id}",
    )
    if lane.api_key == PRODUCE:
        return start_tool(
            stage.node.dist,
            "producer-perf-test",
            *(*bootstrap, "--topic", PRODUCE_TOPIC, "--record-size", str(RECORD_BYTES), "--throughput", "-1"),
            *(*common, "acks=all", "linger.ms=0", "batch.size=16384", "buffer.memory=1048576"),
            output=_log(stage, lane),
        )
    return start_tool(
        stage.node.dist,
        "consumer-perf-test",
        *(*bootstrap, "--topic", FETCH_TOPIC, "--timeout", "60000"),  # ends it if no record comes for so long
        *common,
        output=_log(stage, lane),
    )


def _log(stage: Stage, lane: Lane) -> Path:
    return stage.folder / f"{lane.client_id}.log"


def _report(stage: Stage, lane: Lane) -> ClientReport:
    output = _log(stage, lane).read_text(encoding="utf-8", errors="replace")
    try:
        return parse_report(output, lane.api_key)
    except ValueError as error:
        raise _failed(stage, lane, f"printed {error}") from error


def _failed(stage: Stage, lane: Lane, what: str) -> BenchError:
    return BenchError(
        f"the client {lane.client_id} {what}; its output ends:\n{log_tail(_log(stage, lane), 20)}"
    )
