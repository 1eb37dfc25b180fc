"""The storm of new producer ids: at a broker with a small heap, and at another of the same through Sluice.

    native:  storm and good client → broker
    sluice:  storm and good client → Sluice → broker

The storm is one user's: records, each under a producer id that no broker has seen (KIP-936). The good client
is another user's, 100 records a second.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from confluent_kafka import KafkaException

from bench.demo.figures import NATIVE, SIDES, SLUICE
from bench.demo.interrupts import Interrupts
from bench.demo.storm_figures import Seen, StormFigures, last_words, seen, storm_figures
from bench.demo.storm_screen import StormScreen
from bench.storm.record import Pause
from bench.storm.rig import (
    COLLECTORS,
    DOOR,
    G1,
    PAST,
    GoodProcess,
    Setting,
    StormProcess,
    answers,
    is_gone,
    listener_before,
    make_topics,
    pauses_of,
)
from testkit.kafka.node import KafkaNode
from testkit.processes.ports import LOOPBACK, free_port
from testkit.processes.process import BenchError

HEAP_MIB: Final = 64
"""comfortable without the storm: the same requests without ids (150,000 batches in 15 s) leave 38 to 46 MiB
in use and the good client at 1 ms; 64 is also the least that `producer_ids.broker_heap_bytes` takes"""
RATE: Final = 10_000.0
"""new ids a second, on each side"""
PARTITIONS: Final = 50
IDS_PER_HOUR: Final = 1_000
SHOWN_AFTER_DEATH_S: Final = 4.0
PROBE_WITHIN_S: Final = 3.0
TICK_S: Final = 0.25
QUOTA: Final = {"user": "<default>", "producer_ids_rate": IDS_PER_HOUR}
OPTIONS: Final[Mapping[str, Any]] = {"producer_ids": {"broker_heap_bytes": HEAP_MIB * 2**20}}


class SmallBroker:
    """A Kafka with a small heap, and the log of its collector. Kafka's own collector and its options."""

    def __init__(self, side: str, folder: Path) -> None:
        self.side = side
        self._gc_log = folder / f"{side}.gc.log"
        self.node = KafkaNode(
            advertised={DOOR: (LOOPBACK, free_port())},
            native=[PAST],
            config={"auto.create.topics.enable": "false"},
            heap=f"{HEAP_MIB}m",
            java_options=[
                f"-Xms{HEAP_MIB}m",
                *COLLECTORS[G1],
                # Kafka's own scripts leave it out; without it the process stays, and answers nobody.
                "-XX:+ExitOnOutOfMemoryError",
                f"-Xlog:gc:file={self._gc_log}:timemillis",
            ],
        )

    @property
    def port(self) -> int:
        """Where the clients of this side log in: at the broker, or at the Sluice before it."""
        return self.node.address(PAST)[1] if self.side == NATIVE else self.node.advertised(DOOR)[1]

    def complete_start(self) -> None:
        """Wait until it takes requests, and make both topics. Raises KafkaNodeError, or BenchError."""
        self.node.await_start()
        try:
            make_topics(self.node, PARTITIONS)
        except (KafkaException, TimeoutError) as error:
            raise BenchError(f"the broker with {HEAP_MIB} MiB made no topics: {error!r}") from error

    def pauses(self) -> list[Pause]:
        """Pauses of its collector so far."""
        return pauses_of(self._gc_log)

    def last_words(self) -> str | None:
        """Why its process ended; None while it is there."""
        if not is_gone(self.node):
            return None
        return last_words(self.node.log.read_text(encoding="utf-8", errors="replace"))


class StormStage:
    """Both brokers. They can start while something else is shown."""

    def __init__(self, folder: Path, stack: contextlib.ExitStack) -> None:
        self._setting = Setting(folder, RATE, PARTITIONS, G1)
        self._brokers = {}
        for side in SIDES:
            broker = self._brokers[side] = SmallBroker(side, folder)
            stack.callback(broker.node.close)
        self._begun: list[str] = []

    def listener(self) -> dict[str, Any]:
        """Sluice's, before the one of the two that it protects."""
        return listener_before(self._brokers[SLUICE].node, "storm")

    def begin_next(self) -> None:
        """Start the JVM of a broker that is not started yet, and return at once."""
        for side, broker in self._brokers.items():
            if side not in self._begun:
                self._begun.append(side)
                broker.node.begin_start()
                return

    def begin_all(self) -> None:
        """Start those that are not started yet."""
        for _ in self._brokers:
            self.begin_next()

    def complete_start(self) -> None:
        """Wait until both brokers take requests."""
        for broker in self._brokers.values():
            broker.complete_start()

    @contextlib.contextmanager
    def clients(self) -> Iterator[dict[str, GoodProcess]]:
        """A good client at work on each side."""
        with contextlib.ExitStack() as stack:
            good = {}
            for side, broker in self._brokers.items():
                client = GoodProcess(f"{LOOPBACK}:{broker.port}", side, self._setting.folder)
                good[side] = stack.enter_context(client)
            yield good

    def run(
        self,
        good: Mapping[str, GoodProcess],
        most_s: float,
        screen: StormScreen,
        interrupts: Interrupts,
    ) -> list[StormFigures]:
        """Storms on both sides, until the native broker has died and a little longer, or for `most_s`."""
        with contextlib.ExitStack() as stack:
            storms = {}
            for number, (side, broker) in enumerate(self._brokers.items(), 1):
                load = StormProcess(broker.port, self._setting, number, with_ids=True)
                storms[side] = stack.enter_context(load)
            start_s = time.monotonic()
            last: dict[str, Seen] = {}
            ends_s = dict.fromkeys(SIDES, start_s + most_s)
            with screen:
                while (now_s := time.monotonic()) < max(ends_s.values()):
                    interrupts.check()
                    for side, broker in self._brokers.items():
                        if side in last and last[side].death is not None:
                            continue
                        last[side] = seen(
                            side, HEAP_MIB, storms[side].so_far(), good[side].so_far(), broker.pauses(),
                            (start_s, now_s), broker.last_words(),
                        )  # fmt: skip
                        if last[side].death is not None:
                            storms[side].end()
                            ends_s[side] = now_s
                            if side == NATIVE:
                                ends_s[SLUICE] = min(ends_s[SLUICE], now_s + SHOWN_AFTER_DEATH_S)
                    screen.update([last[side] for side in SIDES], now_s - start_s, most_s)
                    time.sleep(TICK_S)
        return [
            storm_figures(
                last[side], good[side].so_far(), start_s, ends_s[side],
                answers_afterwards=last[side].death is None and answers(broker.node, PROBE_WITHIN_S),
            )
            for side, broker in self._brokers.items()
        ]  # fmt: skip
