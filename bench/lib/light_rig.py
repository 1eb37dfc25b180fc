"""A real broker and one Sluice before it, for light clients: topics filled, consumers run."""

import asyncio
import struct
import time
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from bench.lib.fetcher import Fetcher
from testkit.clients.kafka_records import create_topic
from testkit.frames import load_frames as frames
from testkit.kafka.node import KafkaNode
from testkit.processes.ports import LOOPBACK
from testkit.processes.process import BenchError
from testkit.proxy.sluice_process import SluiceProcess

NATIVE: Final = "native"  # the broker's own quota; clients go past Sluice
LAST_ANSWER_WITHIN_S: Final = 16.0  # of a held Fetch, once its consumer is to stop
KEPT: Final[Mapping[str, str]] = {
    "retention.ms": "-1"
}  # the records' timestamps are old; a broker would delete them
_FILL_DEPTH: Final = 20


@dataclass(slots=True)
class LightRig:
    """The broker, Sluice, and what is to be remembered of fetch sessions."""

    node: KafkaNode
    sluice: SluiceProcess
    abandoned: int = 0  # sessions that a client left of itself without closing them
    misunderstood: int = 0  # answers that a Java consumer would not accept
    _topics: set[str] = field(default_factory=set)

    @property
    def broker_port(self) -> int:
        """The broker's own port, past Sluice."""
        return self.node.address("PLAINTEXT")[1]

    def port(self, side: str) -> int:
        """Where this side's clients connect."""
        return self.broker_port if side == NATIVE else self.sluice.doors["SLUICE"].port

    async def topic(self, name: str, partitions: int, config: Mapping[str, str] = KEPT) -> str:
        """A topic of that name, created at the broker the first time."""
        if name not in self._topics:
            await asyncio.to_thread(create_topic, self.node, name, partitions, config=config)
            self._topics.add(name)
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


async def _take_answer(reader: asyncio.StreamReader) -> None:
    size: int = struct.unpack(">i", await reader.readexactly(4))[0]
    answer = await reader.readexactly(size)
    error, _ = frames.produce_answer(memoryview(struct.pack(">i", size) + answer))
    if error:
        raise BenchError(f"the broker refused records with error {error}")
