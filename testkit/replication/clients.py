"""What watches a partition move: how fast logs grow at brokers, and how long a producer waits meanwhile."""

import contextlib
import itertools
import threading
import time
from collections.abc import Sequence
from math import inf
from typing import Any, Final

from confluent_kafka import Producer

from testkit.replication.rig import VALUE_BYTES, ReplicationRig

SAMPLE_S: Final = 0.1


class Growth:
    """How a topic's logs grow at brokers, sampled in a thread."""

    def __init__(self, rig: ReplicationRig, topic: str, node_ids: Sequence[int]) -> None:
        self._rig = rig
        self._topic = topic
        self._nodes = node_ids
        self.samples: list[tuple[float, int]] = []
        """monotonic seconds, bytes there"""
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> "Growth":
        self._thread.start()
        return self

    def __exit__(self, *_exc_info: object) -> None:
        self._ends.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ends.wait(SAMPLE_S):
            with contextlib.suppress(OSError):  # a segment has just gone
                there = sum(self._rig.log_bytes(self._topic, node) for node in self._nodes)
                self.samples.append((time.monotonic(), there))

    def lasted_s(self) -> float:
        """From the first growth to the last; at least a sample."""
        grown = [after[0] for before, after in itertools.pairwise(self.samples) if after[1] > before[1]]
        return max(grown[-1] - grown[0], SAMPLE_S) if grown else SAMPLE_S

    def per_second(self) -> list[int]:
        """Bytes in each whole second from the first growth to the last, without the first and the last two:
        there a part of a second is counted."""
        grown = [
            number
            for number in range(1, len(self.samples))
            if self.samples[number][1] > self.samples[number - 1][1]
        ]
        if len(grown) < 2:
            return []
        begun_s, ended_s = self.samples[grown[0] - 1][0], self.samples[grown[-1]][0]
        marks = [self._at(begun_s + second) for second in range(int(ended_s - begun_s) + 1)]
        return [later - earlier for earlier, later in itertools.pairwise(marks)][1:-1]

    def _at(self, moment_s: float) -> int:
        """Interpolated: a sample is 0.1 s wide."""
        before = self.samples[0]
        for after in self.samples:
            if after[0] >= moment_s:
                span_s = after[0] - before[0]
                share = (moment_s - before[0]) / span_s if span_s > 0 else 0.0
                return round(before[1] + share * (after[1] - before[1]))
            before = after
        return before[1]


def highest_bytes_per_s(per_second: Sequence[int], over_s: int = 3) -> float:
    """The mean of the `over_s` seconds in a row with the highest; 0 where there are not so many."""
    sums = (sum(per_second[at : at + over_s]) for at in range(len(per_second) - over_s + 1))
    return max(sums, default=0) / over_s


class HotClient:
    """A producer with acks=all at a steady rate, which times every record."""

    def __init__(self, rig: ReplicationRig, topic: str, partitions: int, bytes_per_s: int) -> None:
        self._rig = rig
        self._topic = topic
        self._partitions = partitions
        self._pause_s = VALUE_BYTES / bytes_per_s
        self.latencies_ms: list[float] = []
        self.failed = 0
        self._timed_s = (0.0, inf)
        """records begun from the first until the second, monotonic"""
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> "HotClient":
        self._thread.start()
        return self

    def __exit__(self, *_exc_info: object) -> None:
        self._ends.set()
        self._thread.join()

    def clear(self) -> None:
        """Forget what was timed up to now; time the records from now on."""
        self.latencies_ms = []
        self._timed_s = (time.monotonic(), inf)

    def pause(self) -> None:
        """Records from now on are not timed, until `clear`; they are produced all the same."""
        self._timed_s = (self._timed_s[0], time.monotonic())

    def delivered(self, begun_s: float) -> None:
        """A record is acknowledged."""
        first_s, end_s = self._timed_s
        if first_s <= begun_s < end_s:
            self.latencies_ms.append((time.monotonic() - begun_s) * 1000.0)

    def p99_ms(self) -> float:
        ordered = sorted(self.latencies_ms)
        return ordered[int(len(ordered) * 0.99)] if ordered else 0.0

    def p50_ms(self) -> float:
        ordered = sorted(self.latencies_ms)
        return ordered[len(ordered) // 2] if ordered else 0.0

    def _run(self) -> None:
        producer = Producer(
            {
                "bootstrap.servers": self._rig.cluster.bootstrap,
                "acks": "all",
                "linger.ms": 5,
                "log_level": 0,
            }
        )
        value = b"h" * VALUE_BYTES
        due_s = time.monotonic()
        number = 0
        while not self._ends.is_set():
            now_s = time.monotonic()
            while due_s <= now_s:
                due_s += self._pause_s
                number += 1
                with contextlib.suppress(BufferError):
                    producer.produce(
                        self._topic,
                        value=value,
                        partition=number % self._partitions,
                        on_delivery=_timed(self, time.monotonic()),
                    )
            producer.poll(min(0.005, max(0.0, due_s - time.monotonic())))
        producer.flush(30.0)


def _timed(client: HotClient, begun_s: float) -> Any:
    def delivered(error: object, _message: object) -> None:
        if error is None:
            client.delivered(begun_s)
        else:
            client.failed += 1

    return delivered
