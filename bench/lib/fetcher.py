"""A light consumer of real Fetch requests, with fetch sessions kept as the Java consumer keeps them.

Source for sessions: KIP-227 and Kafka's FetchSessionHandler. It decodes no records: it looks at the batches'
headers for the next offset, and notes what came, when, and what it was told.
"""

import asyncio
import contextlib
import struct
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from bench.lib.fetch_frames import (
    FINAL_EPOCH,
    FULL_EPOCH,
    NO_SESSION,
    SESSION_ID_NOT_FOUND,
    FetchAnswer,
    FetchAsk,
    fetch_frame,
    read_fetch_answer,
    whole_batches,
)
from testkit.frames import load_frames as frames
from testkit.processes.ports import LOOPBACK
from testkit.processes.process import BenchError

_READ_BYTES: Final = 256 * 1024


@dataclass(frozen=True, slots=True)
class Fetched:
    """One answer to a Fetch."""

    asked_s: float
    at_s: float
    wire_bytes: int
    useful_bytes: int  # of whole batches
    partitions: tuple[int, ...]  # that brought a whole batch
    throttle_ms: int
    error: int


@dataclass(slots=True)
class FetchLog:
    """What one consumer noted; times are monotonic, in seconds."""

    answers: list[Fetched] = field(default_factory=list)
    arrived: list[tuple[float, int]] = field(default_factory=list)  # bytes as they came, of whatever answer
    misunderstood: int = 0  # answers that a Java consumer would not accept


class Connection:
    """A client's connection: one request at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, log: FetchLog) -> None:
        self._reader = reader
        self._writer = writer
        self._log = log
        self._correlation_id = 0

    async def ask(self, frame: bytes | bytearray) -> memoryview:
        """Send a request and read its answer, noting bytes as they arrive. Raises BenchError at a close."""
        self._correlation_id += 1
        at = frames.CORRELATION_AT
        number = struct.pack(">i", self._correlation_id)
        self._writer.write(b"".join((frame[:at], number, frame[at + 4 :])))
        answer = await self._read(await self._read(bytearray(), 4), -1)
        if answer[4:8] != number:
            raise BenchError(f"answer {self._correlation_id} expected, came {answer[4:8].hex()}")
        return memoryview(answer)

    async def _read(self, data: bytearray, upto: int) -> bytearray:
        """Reads until there are so many bytes; −1: until the frame that begins in `data` is whole."""
        wanted = 4 + int.from_bytes(data[:4]) if upto < 0 else upto
        while len(data) < wanted:
            try:
                more = await self._reader.read(min(wanted - len(data), _READ_BYTES))
            except ConnectionError as error:
                raise BenchError("the connection was reset") from error
            if not more:
                raise BenchError("the connection closed before its answer came")
            self._log.arrived.append((time.monotonic(), len(more)))
            data += more
        return data


@contextlib.asynccontextmanager
async def connected(port: int, log: FetchLog) -> AsyncIterator[Connection]:
    """A connection to a loopback port; aborted when the block ends."""
    reader, writer = await asyncio.open_connection(LOOPBACK, port, limit=_READ_BYTES)
    try:
        yield Connection(reader, writer, log)
    finally:
        writer.transport.abort()


class Fetcher:
    """One consumer of some partitions of a topic.

    `session`: keeps a fetch session as Java does; `waits_as_told`: honours throttle_time_ms (KIP-219);
    `wraps`: begins anew at the log's end.
    """

    def __init__(
        self,
        client_id: str,
        topic: str,
        partitions: Sequence[int],
        *,
        session: bool = False,
        waits_as_told: bool = False,
        wraps: bool = True,
        ask: FetchAsk | None = None,
    ) -> None:
        self.log = FetchLog()
        self.session = (NO_SESSION, FULL_EPOCH if session else FINAL_EPOCH)
        self.open_session = NO_SESSION  # that the broker keeps for us, as far as we were told
        self.asked_for_session = False  # by a request that has no answer yet
        self.client_id = client_id
        self._topic = topic
        self._offsets = dict.fromkeys(partitions, 0)
        self._changed = set(partitions)
        self._with_session = session
        self._waits_as_told = waits_as_told
        self._wraps = wraps
        self._ask = ask or FetchAsk()

    async def run(self, port: int, stop: asyncio.Event) -> None:
        """Fetches on one connection until `stop`; then the answer that is due is still read."""
        async with connected(port, self.log) as connection:
            while not stop.is_set():
                told_ms = await self.fetch(connection)
                if self._waits_as_told and told_ms:
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(told_ms / 1000):
                            await stop.wait()

    async def run_reconnecting(self, port: int, stop: asyncio.Event) -> None:
        """A new connection for each Fetch, until `stop`."""
        while not stop.is_set():
            async with connected(port, self.log) as connection:
                await self.fetch(connection)

    async def fetch(self, connection: Connection) -> int:
        """One Fetch; returns its answer's throttle_time_ms."""
        full = self.session[1] <= FULL_EPOCH
        named = self._offsets if full else {x: self._offsets[x] for x in self._changed}
        asked_s = time.monotonic()
        self.asked_for_session = self._with_session and full
        frame = fetch_frame(self.client_id, self._topic, named, self._ask, self.session)
        answer = await connection.ask(frame)
        self.asked_for_session = False
        read = read_fetch_answer(answer)
        self._changed.clear()
        useful, brought = self._take(read)
        self.log.answers.append(
            Fetched(asked_s, time.monotonic(), len(answer), useful, brought, read.throttle_ms, read.error)
        )
        if self._with_session:
            self._next_session(read, full=full)
        if full and not read.error and not read.partitions and not read.throttle_ms:
            self.log.misunderstood += 1  # Java takes an empty full answer only with a throttle (KIP-219)
        return read.throttle_ms

    def _take(self, read: FetchAnswer) -> tuple[int, tuple[int, ...]]:
        useful, brought = 0, []
        for partition in read.partitions:
            if partition.error:
                raise BenchError(
                    f"partition {partition.index} at {self._offsets[partition.index]}: "
                    f"error {partition.error}, high watermark {partition.high_watermark}"
                )
            size, next_offset = whole_batches(partition.records)
            if size:
                useful += size
                brought.append(partition.index)
                self._move(partition.index, next_offset)
            if self._wraps and 0 < partition.high_watermark == self._offsets[partition.index]:
                self._move(partition.index, 0)
        for index in brought:  # to the end of the list, as Java does, for those without a session
            self._offsets[index] = self._offsets.pop(index)
        return useful, tuple(brought)

    def _move(self, index: int, offset: int) -> None:
        self._offsets[index] = offset
        self._changed.add(index)

    def _next_session(self, read: FetchAnswer, *, full: bool) -> None:
        """What FetchSessionHandler.handleResponse does."""
        if read.error == SESSION_ID_NOT_FOUND:
            # The broker's own answer would mean that it has none; Sluice's must see to it that it has none.
            self.session, self.open_session = (NO_SESSION, FULL_EPOCH), NO_SESSION
        elif read.error:
            self.session = (self.session[0], FULL_EPOCH)
        elif read.session_id == NO_SESSION:
            self.session, self.open_session = (NO_SESSION, FULL_EPOCH), NO_SESSION
        else:
            epoch = 1 if full else self.session[1] + 1
            self.session, self.open_session = (read.session_id, epoch), read.session_id

    async def close_session(self, broker_port: int) -> None:
        """Ends the session that the broker keeps, at the broker itself, as a consumer that closes does."""
        if self.open_session != NO_SESSION:
            async with connected(broker_port, FetchLog()) as connection:
                ends = fetch_frame(self.client_id, self._topic, {}, self._ask, (self.open_session, -1))
                await connection.ask(ends)
            self.open_session = NO_SESSION
