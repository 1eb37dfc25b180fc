"""The four Java clients of the demo, all at once: two on the broker's native quota, two through Sluice.

Each connects through a counting relay: client → relay → broker, or client → relay → Sluice → broker.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

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
from testkit.proxy.soak_proxy import Sluice

TICK_S: Final = 0.2
START_WITHIN_S: Final = 40.0
END_WITHIN_S: Final = 30.0  # beyond the time that the quota asks for


@dataclass(frozen=True, slots=True)
class Stage:
    """What the clients need: all of it runs."""

    node: KafkaNode
    sluice: Sluice
    folder: Path  # for their output
    ports: Mapping[str, tuple[int, int]]  # side → port of its relay, port that the relay dials


def client_id(side: str, api_key: int) -> str:
    """Quotas go by it: the broker's native ones name `native-…`, those in Sluice's file `sluice-…`."""
    return f"{side}-{KINDS[api_key]}"


def records_of_each(seconds: float) -> int:
    """So many that every client is still busy when the measured time ends, burst or not."""
    return int(QUOTA_BYTES_PER_S * (seconds + NATIVE_BURST_S + 1) / RECORD_BYTES)


class Traffic:
    """The four clients from their start to their end, and what went through for each of them.

    They have more to do than the measured time takes, so that all are busy until its end: `follow` returns
    when it is over, and `reports` waits for the clients to end. Within an event loop that goes on meanwhile.
    Both raise BenchError with the end of its output when a client fails, Interrupted when the user wants it.
    """

    def __init__(self, stage: Stage, seconds: float, interrupts: Interrupts) -> None:
        self._stage = stage
        self._seconds = seconds
        self._interrupts = interrupts
        self._zero_s = time.monotonic()
        self.lanes = [
            Lane(side, api_key, client_id(side, api_key), self._zero_s) for side in SIDES for api_key in KINDS
        ]
        self._clients: list[GuardedProcess] = []
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            for side, (port, upstream_port) in self._stage.ports.items():
                meter = WireMeter([lane for lane in self.lanes if lane.side == side])
                stack.callback(Relay(port, upstream_port, meter).close)
            for lane in self.lanes:
                self._clients.append(stack.enter_context(_start(self._stage, lane, self._seconds)))
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_exc_info: object) -> None:
        self._stack.close()

    async def follow(self, screen: Screen, meanwhile: Callable[[float], None]) -> None:
        """Until the measured time of every client is over. `meanwhile` is told the seconds since the first of
        them moved something."""
        with screen:
            while True:
                now_s = time.monotonic()
                running = self._look(now_s)
                starts_s = [lane.started_s for lane in self.lanes if lane.started_s is not None]
                end_s = max(starts_s, default=now_s) + self._seconds
                screen.update(self.lanes, now_s - self._zero_s, end_s - self._zero_s)
                if starts_s:
                    meanwhile(now_s - min(starts_s))
                if not running or (len(starts_s) == len(self.lanes) and now_s > end_s):
                    return
                await asyncio.sleep(TICK_S)

    async def reports(self) -> list[ClientReport]:
        """What the clients printed, once all have ended."""
        took_s = records_of_each(self._seconds) * RECORD_BYTES / QUOTA_BYTES_PER_S
        end_by_s = max(lane.started_s or 0.0 for lane in self.lanes) + took_s + END_WITHIN_S
        while self._look(time.monotonic()):
            if time.monotonic() > end_by_s:
                late = next(
                    lane
                    for lane, client in zip(self.lanes, self._clients, strict=True)
                    if client.exit_code() is None
                )
                raise _failed(
                    self._stage, late, f"was not done {END_WITHIN_S:.0f} s after its quota allows it to be"
                )
            await asyncio.sleep(TICK_S)
        return [_report(self._stage, lane) for lane in self.lanes]

    def _look(self, now_s: float) -> int:
        """How many clients run. Raises BenchError when one, or a server, has failed."""
        self._interrupts.check()
        _require_servers(self._stage)
        running = 0
        for lane, client in zip(self.lanes, self._clients, strict=True):
            code = client.exit_code()
            running += code is None
            lane.has_ended = code == 0
            if code or (code == 0 and lane.started_s is None):
                raise _failed(self._stage, lane, f"ended with exit code {code}")
            if lane.started_s is None and now_s > self._zero_s + START_WITHIN_S:
                raise _failed(self._stage, lane, f"moved nothing within {START_WITHIN_S:.0f} s")
        return running


def _require_servers(stage: Stage) -> None:
    """Clients would go on trying for minutes."""
    if not Path(f"/proc/{stage.node.pid}").exists():
        raise BenchError(f"Kafka ended before its clients; its log ends:\n{stage.node.log_tail()}")
    stage.sluice.check_alive()


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
