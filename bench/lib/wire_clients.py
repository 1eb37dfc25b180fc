"""Many light clients in one event loop: real Produce and Fetch requests, as fast as they are let.

They never look at throttle_time_ms (librdkafka and aiokafka do not either): what holds them back is the muted
channel alone. One broker leads every partition, so they need no metadata. Each client keeps its own record.
"""

import asyncio
import contextlib
import struct
import time
from collections import deque
from collections.abc import AsyncIterator, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from testkit.frames import load_frames as frames
from testkit.processes.ports import LOOPBACK
from testkit.processes.process import BenchError

FETCH_MAX_BYTES: Final = 1 << 20  # the Java consumer's max.partition.fetch.bytes
STREAM_LIMIT_BYTES: Final = 1 << 20  # read-ahead of each connection; an answer may be larger

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@dataclass(slots=True)
class ClientLog:
    """What went through on one connection (or one reconnecting client): times are monotonic, in seconds."""

    events: list[tuple[float, int]] = field(default_factory=list)  # (time of the answer, bytes on the wire)
    latencies_s: list[tuple[float, float]] = field(default_factory=list)  # (time of the answer, latency)

    def went_through(self, sent_s: float, size_bytes: int) -> None:
        now_s = time.monotonic()
        self.events.append((now_s, size_bytes))
        self.latencies_s.append((now_s, now_s - sent_s))


async def produce(port: int, frame: bytes, depth: int, log: ClientLog) -> None:
    """Keeps `depth` Produce requests in flight until cancelled. Raises BenchError on any error answer."""
    async with connection(port) as (reader, writer):
        sent_s: deque[float] = deque()
        correlation_id = answered = 0
        while True:
            while len(sent_s) < depth:
                correlation_id += 1
                writer.write(_numbered(frame, correlation_id))
                sent_s.append(time.monotonic())
            answer = await _read_answer(reader, answered := answered + 1)
            error, _ = frames.produce_answer(answer)
            if error:
                raise BenchError(f"the broker refused records with error {error}")
            log.went_through(sent_s.popleft(), len(frame))


async def fetch(port: int, client_id: str, topic: str, log: ClientLog) -> None:
    """Fetches one partition over and over from its beginning until cancelled; empty answers do not count.

    An answer's latency runs from the request that follows the last records to the records: time without news.
    Raises BenchError on any error answer.
    """
    async with connection(port) as (reader, writer):
        offset = correlation_id = 0
        asked_s = time.monotonic()
        while True:
            correlation_id += 1
            request = frames.fetch_request(client_id, topic, offset=offset, max_bytes=FETCH_MAX_BYTES)
            writer.write(_numbered(request, correlation_id))
            answer = await _read_answer(reader, correlation_id)
            found = frames.fetch_answer(answer)
            if found.error:
                raise BenchError(f"the broker refused a Fetch with error {found.error}")
            last_offsets = list(frames.last_offsets(found.records))
            if last_offsets:
                offset = last_offsets[-1] + 1
                log.went_through(asked_s, len(answer))
                asked_s = time.monotonic()
            elif offset == found.high_watermark:
                offset = 0


async def ask_to_produce(streams: Streams, frame: bytes, correlation_id: int, log: ClientLog) -> int:
    """One Produce request and its answer; returns the answer's throttle_time_ms.

    Raises BenchError on any error answer.
    """
    reader, writer = streams
    sent_s = time.monotonic()
    writer.write(_numbered(frame, correlation_id))
    error, throttle_ms = frames.produce_answer(await _read_answer(reader, correlation_id))
    if error:
        raise BenchError(f"the broker refused records with error {error}")
    log.went_through(sent_s, len(frame))
    return throttle_ms


async def produce_reconnecting(port: int, frame: bytes, log: ClientLog) -> None:
    """Opens a connection for every Produce request and closes it with the answer, until cancelled."""
    while True:
        async with connection(port) as streams:
            await ask_to_produce(streams, frame, 1, log)


async def run_for(clients: Sequence[Coroutine[Any, Any, Any]], seconds: float) -> None:
    """Runs all clients at once for that long, then cancels them. Raises what the first failing one raised."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await asyncio.gather(*clients)


@contextlib.asynccontextmanager
async def connection(port: int) -> AsyncIterator[Streams]:
    """A connection to a loopback port; aborted when the block ends."""
    reader, writer = await asyncio.open_connection(LOOPBACK, port, limit=STREAM_LIMIT_BYTES)
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


def _numbered(frame: bytes | bytearray, correlation_id: int) -> bytes:
    at = frames.CORRELATION_AT
    return b"".join((frame[:at], struct.pack(">i", correlation_id), frame[at + 4 :]))


async def _read_answer(reader: asyncio.StreamReader, correlation_id: int) -> memoryview:
    try:
        head = await reader.readexactly(4)
        answer = head + await reader.readexactly(int.from_bytes(head))
    except (asyncio.IncompleteReadError, ConnectionError) as error:
        raise BenchError(f"the connection closed before answer {correlation_id}") from error
    if answer[4:8] != struct.pack(">i", correlation_id):
        raise BenchError(f"answer {correlation_id} expected, came {int.from_bytes(answer[4:8])}")
    return memoryview(answer)
