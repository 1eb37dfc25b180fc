"""Consumers of one bucket over sessions and a fake clock: who reads a backlog, who waits, who gets a record
now and then; and the broker that answers them, one after the other.

    crowd = FetchCrowd(rate=100_000)
    reader = crowd.add(backlog(mixed(1)))
    quiet = [crowd.add(nothing) for _ in range(800)]
    crowd.run(10_000)
    reader.bytes_brought
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache, lru_cache, partial
from heapq import heappop, heappush
from itertools import count
from random import Random
from struct import unpack_from
from typing import Final, TypeAlias

from sluice.protocol.apis import FETCH
from sluice.protocol.codec.wire import Struct
from testkit.frames.frames import answer, fetch, record_batch, throttle_of
from testkit.proxy.playbook import START_MS, Shell, limits_of, shared_of, shell_of

Source: TypeAlias = Callable[[float, int], list[int]]
"""(time in ms, max_bytes) → the sizes of the batches that a Fetch brings; [] if there are none yet"""

_VERSION: Final = 12
_HEAD_BYTES: Final = 61
_WAITS_AT: Final = 22
"""max_wait_ms, min_bytes and max_bytes, in the frame that `fetch` makes"""


def nothing(_now_ms: float, _max_bytes: int) -> list[int]:
    """An empty topic."""
    return []


def backlog(sizes: Iterator[int]) -> Source:
    """Batches without end, as many as fit, and one at least."""
    following = [next(sizes)]

    def read(_now_ms: float, max_bytes: int) -> list[int]:
        brought = [following[0]]
        following[0] = next(sizes)
        while sum(brought) + following[0] <= max_bytes and len(brought) < 40:
            brought.append(following[0])
            following[0] = next(sizes)
        return brought

    return read


def records_each(every_ms: float, size: int, first_ms: float, late_ms: list[float]) -> Source:
    """A record comes each `every_ms`, the first so long after the crowd; how late each is brought is added to
    `late_ms`."""
    due_ms = [START_MS + first_ms]

    def read(now_ms: float, _max_bytes: int) -> list[int]:
        brought = []
        while due_ms[0] <= now_ms:
            late_ms.append(now_ms - due_ms[0])
            brought.append(size)
            due_ms[0] += every_ms
        return brought

    return read


def mixed(seed: int) -> Iterator[int]:
    """Sizes of batches of 2 to 10 kB."""
    random = Random(seed)
    while True:
        yield random.randrange(20, 100) * 100


class Consumer:
    """One that fetches again as soon as it has its answer."""

    def __init__(
        self, crowd: FetchCrowd, source: Source, max_wait_ms: int, *, reconnects: bool, obeys: bool
    ) -> None:
        """`reconnects`: it has a connection for each Fetch. `obeys`: it waits first for as long as the answer
        tells, as Java's client does."""
        self.crowd, self.source, self.max_wait_ms, self._reconnects = crowd, source, max_wait_ms, reconnects
        self._obeys = obeys
        self.ask_again = True
        """False: one Fetch is all"""
        self.shell: Shell
        self._connect()
        self.bytes_brought = 0
        self.answers = self.replaced = 0
        self.longest_ms = 0.0
        self._asked_ms = 0.0
        self._wakes_at_ms = -1.0

    def _connect(self) -> None:
        self.shell = shell_of(self.crowd.shared)
        self.shell.session.wake_by(self._wake)

    def ask(self) -> None:
        self._asked_ms = self.crowd.now_ms
        self.shell.now_ms = self.crowd.now_ms
        self.shell.client_sends(_fetch(self.max_wait_ms))
        self._look()

    def _wake(self) -> None:
        self.crowd.at(self.crowd.now_ms, self._woken)

    def _woken(self) -> None:
        shell = self.shell
        shell.now_ms = self.crowd.now_ms
        if shell.is_delayed:
            shell.wake()
            self._look()

    def _wakes(self, at_ms: float) -> None:
        if at_ms != self._wakes_at_ms:  # it has asked for another time since
            return
        self._wakes_at_ms = -1.0
        if self.shell.is_delayed and self.shell.session.pace.wake_at_ms <= self.crowd.now_ms:
            self._woken()
        else:
            self._look()

    def _look(self) -> None:
        """What has gone to the broker, and when the session wants to be woken."""
        shell = self.shell
        if shell.to_broker:
            self.crowd.broker_gets(self, bytes(shell.to_broker))
            shell.to_broker.clear()
        if shell.is_delayed and self._wakes_at_ms != shell.session.pace.wake_at_ms:
            self._wakes_at_ms = shell.session.pace.wake_at_ms
            self.crowd.at(self._wakes_at_ms, partial(self._wakes, self._wakes_at_ms))

    def is_answered(self, sizes: list[int]) -> None:
        shell = self.shell
        shell.now_ms = self.crowd.now_ms
        shell.broker_sends(_answer(tuple(sizes)))
        self.bytes_brought += len(shell.to_client)
        told_ms = throttle_of(FETCH, _VERSION, bytes(shell.to_client)) if self._obeys else 0
        shell.to_client.clear()
        self.answers += 1
        self.longest_ms = max(self.longest_ms, self.crowd.now_ms - self._asked_ms)
        self._look()
        if self._reconnects:
            shell.session.closed(self.crowd.now_ms)
            self._connect()
        if self.ask_again:
            self.crowd.at(self.crowd.now_ms + max(told_ms, 0.1), self.ask)


class FetchCrowd:
    """The consumers of one bucket, and their broker."""

    def __init__(self, rate: int, *, answer_ms: float = 1.0, busy_ms: float = 0.0) -> None:
        """An answer takes `answer_ms`, and the broker is busy with nothing else for `busy_ms` of it."""
        self.shared = shared_of(limits_of(fetch_rate=rate))
        self.now_ms = START_MS
        self.consumers: list[Consumer] = []
        self._answer_ms, self._busy_ms, self._free_ms = answer_ms, busy_ms, 0.0
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = count()

    def add(
        self, source: Source, *, max_wait_ms: int = 500, first_ms: float = 0.0, reconnects: bool = False,
        obeys: bool = False,
    ) -> Consumer:  # fmt: skip
        """One more, whose first Fetch comes `first_ms` from now."""
        consumer = Consumer(self, source, max_wait_ms, reconnects=reconnects, obeys=obeys)
        self.consumers.append(consumer)
        self.at(self.now_ms + first_ms, consumer.ask)
        return consumer

    def forget(self) -> None:
        """What is counted is counted from now on."""
        for consumer in self.consumers:
            consumer.bytes_brought = consumer.answers = consumer.replaced = 0
            consumer.longest_ms = 0.0

    def at(self, at_ms: float, action: Callable[[], None]) -> None:
        heappush(self._events, (at_ms, next(self._numbers), action))

    def run(self, ms: float) -> None:
        until_ms = self.now_ms + ms
        while self._events and self._events[0][0] <= until_ms:
            at_ms, _, action = heappop(self._events)
            self.now_ms = max(self.now_ms, at_ms)
            action()
        self.now_ms = until_ms

    def broker_gets(self, consumer: Consumer, frame: bytes) -> None:
        max_wait_ms, min_bytes, max_bytes = unpack_from(">iii", frame, _WAITS_AT)
        begin_ms = max(self.now_ms, self._free_ms)
        self._free_ms = begin_ms + self._busy_ms
        first_ms = begin_ms + max(self._answer_ms, self._busy_ms)
        if min_bytes:
            self._read(consumer, first_ms, first_ms + max_wait_ms, max_bytes)
        else:  # a Fetch for nothing, in the place of one that found no turn
            consumer.replaced += 1
            self.at(first_ms, lambda: consumer.is_answered([]))

    def _read(self, consumer: Consumer, at_ms: float, until_ms: float, max_bytes: int) -> None:
        def read() -> None:
            sizes = consumer.source(self.now_ms, max_bytes)
            if sizes or self.now_ms >= until_ms:
                consumer.is_answered(sizes)
            else:
                self._read(consumer, min(self.now_ms + 50.0, until_ms), until_ms, max_bytes)

        self.at(at_ms, read)


@cache
def _fetch(max_wait_ms: int) -> bytes:
    return bytes(fetch(max_wait_ms=max_wait_ms))


@lru_cache(maxsize=1_000)
def _answer(sizes: tuple[int, ...]) -> bytes:
    records = "".join(_batch(size) for size in sizes)
    partition: Struct = {"partitionIndex": 0, "records": records or None}
    responses: Struct = {"responses": [{"topic": "t", "partitions": [partition]}]}
    return answer(FETCH, _VERSION, responses)


@cache
def _batch(size: int) -> str:
    return record_batch(bytes(size - _HEAD_BYTES)).hex()
