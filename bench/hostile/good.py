"""The good clients of the hostile benchmark: Produce and Fetch at a steady pace, each answer timed.

    python -m bench.hostile.good PORT TOPIC PRODUCERS FETCHERS PERIOD_MS OUTPUT

A process of its own, so that the load generator's work does not count as latency. It sends by the clock, not
by the answers: who waits for one before the next measures too little when things are slow. Each line of
OUTPUT: kind, monotonic time of sending in s, latency in s. Ends with SIGTERM; any error ends it with code 1.
"""

from __future__ import annotations

import asyncio
import signal
import struct
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TextIO

import uvloop

from testkit.frames import load_frames as frames
from testkit.processes.ports import LOOPBACK
from testkit.processes.process import BenchError

PRODUCE: Final = "produce"
FETCH: Final = "fetch"
LAG: Final = "lag"  # of this process itself: how much later than due it sent
RECORD_BYTES: Final = 1000
FETCH_BYTES: Final = 16 * 1024
FLUSH_S: Final = 0.5
DRAIN_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class Kind:
    """What a connection asks for, over and over."""

    name: str
    frame: bytes
    check: Callable[[memoryview], int]  # error code of an answer


def _fetch_error(answer: memoryview) -> int:
    return frames.fetch_answer(answer).error


def kinds(topic: str) -> tuple[Kind, Kind]:
    """A Produce of 1 kB with acks=1; a Fetch of 16 kB from the beginning, which never waits for records."""
    batch = frames.record_batch(bytes(RECORD_BYTES))
    produce = frames.produce_request("good", topic, batch)
    fetch = frames.fetch_request("good", topic, max_bytes=FETCH_BYTES, max_wait_ms=0)
    return (
        Kind(PRODUCE, bytes(produce), lambda answer: frames.produce_answer(answer)[0]),
        Kind(FETCH, bytes(fetch), _fetch_error),
    )


async def one_client(
    port: int, kind: Kind, first_s: float, period_s: float, stop: asyncio.Event, out: TextIO
) -> int:
    """Runs until `stop`; returns how many requests were answered. Raises BenchError on any error."""
    reader, writer = await asyncio.open_connection(LOOPBACK, port)
    sent_s: deque[float] = deque()
    asked = answered = 0

    async def read_answers() -> None:
        nonlocal answered
        while True:
            try:
                head = await reader.readexactly(8)
                rest = await reader.readexactly(int.from_bytes(head[:4]) - 4)
            except (asyncio.IncompleteReadError, ConnectionError) as error:
                raise BenchError(f"a good client's connection ended after {answered} answers") from error
            answered += 1
            now_s = time.monotonic()
            if int.from_bytes(head[4:]) != answered:
                raise BenchError(f"answer {answered} expected, came {int.from_bytes(head[4:])}")
            if code := kind.check(memoryview(head + rest)):
                raise BenchError(f"{kind.name}: the broker answered error {code}")
            began_s = sent_s.popleft()
            out.write(f"{kind.name} {began_s:.6f} {now_s - began_s:.6f}\n")

    answers = asyncio.get_running_loop().create_task(read_answers())
    due_s = first_s
    try:
        while not stop.is_set() and not answers.done():
            await asyncio.sleep(due_s - time.monotonic())
            asked += 1
            now_s = time.monotonic()
            sent_s.append(now_s)
            writer.write(_numbered(kind.frame, asked))
            out.write(f"{LAG} {now_s:.6f} {now_s - due_s:.6f}\n")
            due_s += period_s
        deadline_s = time.monotonic() + DRAIN_S
        while answered < asked and not answers.done() and time.monotonic() < deadline_s:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        if answers.done():
            await answers
        if answered < asked:
            raise BenchError(f"{kind.name}: {asked - answered} requests got no answer")
    finally:
        answers.cancel()
        writer.transport.abort()
    return answered


def _numbered(frame: bytes, correlation_id: int) -> bytes:
    at = frames.CORRELATION_AT
    return frame[:at] + struct.pack(">i", correlation_id) + frame[at + 4 :]


async def run(port: int, topic: str, producers: int, fetchers: int, period_s: float, out: TextIO) -> None:
    """All clients, evenly spread over the period. The last line of `out` counts the records produced."""
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    produce, fetch = kinds(topic)
    plan = [produce] * producers + [fetch] * fetchers
    begin_s = time.monotonic() + 0.5
    flusher = asyncio.get_running_loop().create_task(_flush(out))
    try:
        answered = await asyncio.gather(
            *(
                one_client(port, kind, begin_s + period_s * index / len(plan), period_s, stop, out)
                for index, kind in enumerate(plan)
            )
        )
    finally:
        flusher.cancel()
    out.write(f"records {sum(answered[:producers])} 0\n")


async def _flush(out: TextIO) -> None:
    while True:
        await asyncio.sleep(FLUSH_S)
        out.flush()


@dataclass(frozen=True, slots=True)
class Samples:
    """What one run of the good clients wrote: (time of sending, latency) by kind."""

    by_kind: dict[str, list[tuple[float, float]]]
    records: int | None  # None: it has not ended

    def latencies_s(self, kind: str, start_s: float, end_s: float) -> list[float]:
        """Latencies of what was sent in [start, end)."""
        return [latency_s for at_s, latency_s in self.by_kind.get(kind, []) if start_s <= at_s < end_s]


def read_samples(output: Path, last_bytes: int | None = None) -> Samples:
    """Counterpart of `run`, also while it writes: whole lines only; of the last bytes alone if asked."""
    data = output.read_bytes()[-last_bytes if last_bytes else None :]
    first_line = data.find(b"\n") + 1 if last_bytes else 0
    by_kind: dict[str, list[tuple[float, float]]] = {}
    records: int | None = None
    for line in data[first_line : data.rfind(b"\n") + 1].decode("ascii").splitlines():
        kind, first, second = line.split()
        if kind == "records":
            records = int(first)
        else:
            by_kind.setdefault(kind, []).append((float(first), float(second)))
    return Samples(by_kind, records)


def main(argv: Sequence[str]) -> None:
    port, topic, producers, fetchers, period_ms, output = argv
    with Path(output).open("w", encoding="ascii") as out:
        try:
            uvloop.run(run(int(port), topic, int(producers), int(fetchers), float(period_ms) / 1000, out))
        except BenchError as error:
            sys.exit(str(error))


if __name__ == "__main__":
    main(sys.argv[1:])
