"""One real broker and one Sluice before it, for the cases that run alone: topics filled, sessions counted.

    native:  client → broker, with a quota for these client ids
    sluice:  client → Sluice → broker, with the same quota

Light clients only; a client id of its own for each case, so that no debt is carried over.
"""

import asyncio
import contextlib
import struct
import time
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from bench.evenness.cases import QUOTA_BYTES_PER_S
from bench.evenness.rig import ANSWER_BUDGET_S, NATIVE
from bench.lib.fetcher import Fetcher
from bench.lib.quotas_admin import set_native_quotas
from testkit.clients.kafka_records import create_topic
from testkit.frames import load_frames as frames
from testkit.kafka.java_tools import run_tool
from testkit.kafka.jmx import jmx_options, jmx_url
from testkit.kafka.node import KafkaNode
from testkit.processes.ports import LOOPBACK, free_port
from testkit.processes.process import BenchError, raise_fd_limit
from testkit.proxy.proxies import SLUICE
from testkit.proxy.sluice_process import Door, SluiceProcess

SMALL_BYTES_PER_S: Final = 10_000
MIDDLE_BYTES_PER_S: Final = 100_000
RATES: Final[Mapping[str, int]] = {
    "": QUOTA_BYTES_PER_S,
    "-small": SMALL_BYTES_PER_S,
    "-middle": MIDDLE_BYTES_PER_S,
}
"""what a case's client ids end with → their byte rates, of producers and of consumers"""
BURST_S: Final = 1.0  # pacing.burst_s
LAST_ANSWER_WITHIN_S: Final = 2 * ANSWER_BUDGET_S  # a held Fetch, once its consumer is to stop
SESSIONS: Final = "kafka.server:type=FetchSessionCache,name=NumIncrementalFetchSessions"
KEPT: Final = {"retention.ms": "-1"}  # the records' timestamps are old; a broker would delete them
_FILL_DEPTH: Final = 20
_OPEN_FILES: Final = 4096


@dataclass(slots=True)
class CaseRig:
    """The broker, Sluice, and what is to be remembered of fetch sessions."""

    node: KafkaNode
    sluice: SluiceProcess
    jmx_url: str
    abandoned: int = 0  # sessions that a client left of itself without closing them
    misunderstood: int = 0  # answers that a Java consumer would not accept
    _topics: dict[str, int] = field(default_factory=dict)

    @property
    def broker_port(self) -> int:
        """Past Sluice."""
        return self.node.address("PLAINTEXT")[1]

    def port(self, side: str) -> int:
        """Where this side's clients connect."""
        return self.broker_port if side == NATIVE else self.sluice.doors["SLUICE"].port

    async def topic(self, name: str, partitions: int) -> str:
        """A topic of that name, created at the broker the first time."""
        if name not in self._topics:
            await asyncio.to_thread(create_topic, self.node, name, partitions, config=KEPT)
            self._topics[name] = partitions
        return name

    async def fill(self, topic: str, partitions: Sequence[int], batches: Sequence[bytes]) -> None:
        """Every batch to every partition, past Sluice, with many requests in flight."""
        reader, writer = await asyncio.open_connection(LOOPBACK, self.broker_port)
        in_flight = 0
        for batch in batches:
            for partition in partitions:
                writer.write(frames.produce_request("fill", topic, batch, partition=partition))
                in_flight += 1
                if in_flight == _FILL_DEPTH:
                    await _take_answer(reader)
                    in_flight -= 1
                    await writer.drain()
        for _ in range(in_flight):
            await _take_answer(reader)
        writer.close()

    def sessions(self) -> int:
        """Fetch sessions in the broker's cache, by JMX."""
        where = ("--jmx-url", self.jmx_url, "--object-name", SESSIONS)
        shown = run_tool(self.node.dist, "jmx", *where, "--one-time", "--report-format", "tsv").stdout
        for line in shown.splitlines():
            key, _, value = line.partition("\t")
            if key == f"{SESSIONS}:Value":
                return int(value)
        raise BenchError(f"the broker does not tell its fetch sessions: {shown!r}")

    async def consume(
        self,
        side: str,
        fetchers: Sequence[Fetcher],
        seconds: float,
        *,
        reconnecting: bool = False,
        beside: Sequence[Coroutine[Any, Any, Any]] = (),
    ) -> float:
        """Runs consumers for that long, and takes account of their sessions; returns when they began."""
        start_s = time.monotonic()
        stop, port = asyncio.Event(), self.port(side)
        ways = [x.run_reconnecting if reconnecting else x.run for x in fetchers]
        tasks = [asyncio.ensure_future(way(port, stop)) for way in ways]
        others = [asyncio.ensure_future(x) for x in beside]
        done, _ = await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_EXCEPTION)
        stop.set()
        await asyncio.gather(*others)
        _, late = await asyncio.wait(tasks, timeout=LAST_ANSWER_WITHIN_S)
        for task in late:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for fetcher in fetchers:
            self.abandoned += fetcher.asked_for_session
            self.misunderstood += fetcher.log.misunderstood
            await fetcher.close_session(self.broker_port)
        for task in done:
            task.result()  # raises what a consumer raised
        return start_s


@contextlib.asynccontextmanager
async def open_case_rig(names: Sequence[str]) -> AsyncIterator[CaseRig]:
    """Broker, its own quotas for the native clients of these cases, Sluice; all gone when the block ends."""
    raise_fd_limit(_OPEN_FILES)
    jmx_port = free_port()
    print("starting Kafka", flush=True)
    with contextlib.ExitStack() as stack:
        options = jmx_options(jmx_port)
        node = stack.enter_context(KafkaNode(heap="1g", quick_jit=False, java_options=options))
        for ending, bytes_per_s in RATES.items():
            ids = [client_id(NATIVE, name, ending) for name in names]
            set_native_quotas(node.address("PLAINTEXT")[1], ids, bytes_per_s)
        quotas: list[Mapping[str, object]] = [
            {"client-id": client_id(SLUICE, name, ending), **_limits(bytes_per_s)}
            for name in names
            for ending, bytes_per_s in RATES.items()
        ]
        door = Door("SLUICE", free_port(), node.address("PLAINTEXT"))
        pacing = {"answer_budget_s": ANSWER_BUDGET_S, "burst_s": BURST_S}
        sluice = SluiceProcess([door], quotas, pacing=pacing)
        stack.enter_context(sluice)
        yield CaseRig(node, sluice, jmx_url(jmx_port))


def client_id(side: str, case: str, ending: str = "") -> str:
    """A case's client id on a side; its ending says its rate (RATES)."""
    return f"{side}-{case}{ending}"


def _limits(bytes_per_s: int) -> dict[str, object]:
    return {"producer_byte_rate": bytes_per_s, "consumer_byte_rate": bytes_per_s}


async def _take_answer(reader: asyncio.StreamReader) -> None:
    size: int = struct.unpack(">i", await reader.readexactly(4))[0]
    answer = await reader.readexactly(size)
    error, _ = frames.produce_answer(memoryview(struct.pack(">i", size) + answer))
    if error:
        raise BenchError(f"the broker refused records with error {error}")
