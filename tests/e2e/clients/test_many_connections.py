"""5,000 connections drained in time, 100 reloads under load: nothing dropped, nothing in doubt.

The clients are raw: they send each record once, and none of them tries again. So whatever is stored and was
not acknowledged, or the other way round, is the proxy's doing.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest
import uvloop

from testkit.clients.kafka_records import Record, create_topic, difference, stored
from testkit.frames import load_frames as frames
from testkit.frames.wire import dial
from testkit.kafka.dist import KafkaDist
from testkit.kafka.node import KafkaNode
from testkit.processes.ports import LOOPBACK, free_port
from testkit.processes.process import raise_fd_limit
from testkit.proxy.sluice_process import SluiceProcess, doors_of

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

Unique = Callable[[str], str]
MANY: Final = 5_000
HELD: Final = 500
"""of them: of a client id whose limit is far below what they send"""
PER_DIAL: Final = 100
DEADLINE_S: Final = 25.0
RELOADS: Final = 100
CONFIGURATIONS: Final = 10
PARTITIONS: Final = 6
ANSWER_WITHIN_S: Final = 120.0
TIGHT: Final = {"client-id": "held", "producer_byte_rate": 2_000}


@pytest.fixture
def kafka(kafka_dist: KafkaDist) -> Iterator[KafkaNode]:
    """A broker of the test's own: 5,000 connections are not to be in others' way."""
    with KafkaNode(kafka_dist, advertised={"SLUICE": (LOOPBACK, free_port())}, heap="512m") as node:
        yield node


class Crowd:
    """Clients that send a record when the last one is answered, until their connection ends."""

    def __init__(self, port: int, topic: str) -> None:
        self._port = port
        self._topic = topic
        self.acknowledged: list[Record] = []
        self.unanswered: set[Record] = set()
        self.ends: Counter[str] = Counter()
        self.connected = 0
        self.stopping = False

    async def client(self, number: int, client_id: str) -> None:
        """One of them, until its connection ends, or between two records once it is told to stop."""
        with await dial(self._port, within_s=ANSWER_WITHIN_S) as wire:
            self.connected += 1
            turn = 0
            while not self.stopping:
                record = Record(number % PARTITIONS, f"{number}:{turn}".encode())
                # Of today, or the broker removes it for its age.
                batch = frames.record_batch(record.value, timestamp_ms=int(time.time() * 1000.0))
                self.unanswered.add(record)
                try:
                    await wire.send(
                        frames.produce_request(client_id, self._topic, batch, partition=record.partition)
                    )
                    answer = await wire.frame()
                except (EOFError, ConnectionResetError, BrokenPipeError) as error:
                    self.ends[type(error).__name__] += 1
                    return
                assert frames.produce_answer(memoryview(answer))[0] == 0
                self.unanswered.remove(record)
                self.acknowledged.append(record)
                turn += 1
            self.ends["told to stop"] += 1

    def judge(self, kafka: KafkaNode) -> None:
        """What is stored is what was acknowledged: nothing lost, doubled, or stored without a word."""
        found = stored(kafka, self._topic)
        assert Counter(found) == Counter(self.acknowledged), difference(self.acknowledged, found)


def client_id_of(number: int, of: int, held: int) -> str:
    return "held" if number % (of // held) == 0 else "free"


def test_5000_connections_are_drained_within_the_deadline_and_nothing_is_in_doubt(
    kafka: KafkaNode, unique: Unique
) -> None:
    assert raise_fd_limit(2 * MANY + 500) >= 2 * MANY + 500, "the proxy needs two files for each connection"
    topic = create_topic(kafka, unique("topic"), PARTITIONS)
    drain = {"deadline_s": DEADLINE_S}
    # Where the machine is busy all may have connected before the first has asked; and one address has a
    # quarter of the places for those.
    limits = {
        "max_connections": 4 * MANY,
        "max_connections_per_ip": 4 * MANY,
        "max_unauthenticated_connections": 4 * MANY,
    }
    with SluiceProcess(doors_of(kafka, ["SLUICE"]), [TIGHT], drain=drain, limits=limits) as proxy:
        crowd = Crowd(int(proxy.bootstrap().rpartition(":")[2]), topic)

        def answered() -> int:
            return len({record.value.partition(b":")[0] for record in crowd.acknowledged})

        async def run() -> float:
            async with asyncio.TaskGroup() as tasks:
                for number in range(MANY):
                    tasks.create_task(crowd.client(number, client_id_of(number, MANY, HELD)))
                    if number % PER_DIAL == 0:
                        await asyncio.sleep(0.05)
                while crowd.connected < MANY or answered() < MANY - HELD:
                    await asyncio.sleep(0.5)
                    assert not crowd.ends, "nobody is cut off while all connect"
                begun_s = time.monotonic()
                assert await asyncio.to_thread(proxy.stop) == 0
                return time.monotonic() - begun_s

        took_s = uvloop.run(run())
        (drained,) = proxy.log_lines("drained")
        proxy.start()
    print(f"{MANY} connections drained in {took_s:.1f} s: {drained}, {crowd.ends}")
    assert drained["cut_off"] == 0
    assert drained["took_s"] < DEADLINE_S
    assert sum(crowd.ends.values()) == MANY
    assert len(crowd.unanswered) >= HELD // 2, "requests were held, and were not forwarded"
    crowd.judge(kafka)


def test_100_reloads_under_load_drop_no_connection_and_no_record(kafka: KafkaNode, unique: Unique) -> None:
    count = 60
    topic = create_topic(kafka, unique("topic"), PARTITIONS)
    with SluiceProcess(doors_of(kafka, ["SLUICE"]), [TIGHT]) as proxy:
        crowd = Crowd(int(proxy.bootstrap().rpartition(":")[2]), topic)
        config = proxy.folder / "sluice.yaml"

        def reload() -> None:
            for number in range(RELOADS):
                rate = 2_000 + 500 * (number % 4)
                proxy.set_quotas(
                    {"client-id": "held", "producer_byte_rate": rate},
                    {"client-id": "free", "producer_byte_rate": 20_000 if number % 2 else 10_000_000},
                )
                if number % (RELOADS // CONFIGURATIONS) == 0:
                    options: dict[str, Any] = json.loads(config.read_text())
                    options["limits"] = {"max_connections": 1_000 + number}
                    config.write_text(json.dumps(options))
                    proxy.wait_until(lambda n=number: applied(proxy) == n // CONFIGURATIONS + 1, "applied")  # type: ignore[misc]

        async def run() -> None:
            async with asyncio.TaskGroup() as tasks:
                for number in range(count):
                    tasks.create_task(crowd.client(number, client_id_of(number, count, count // 10)))
                await asyncio.to_thread(reload)
                crowd.stopping = True

        uvloop.run(run())
        assert proxy.metric("sluice_config_reloads_total", file="quotas", outcome="success") >= RELOADS
        print(f"{len(crowd.acknowledged)} records through {RELOADS} reloads, {crowd.ends}")
    assert crowd.ends == {"told to stop": count}
    assert not crowd.unanswered
    crowd.judge(kafka)


def applied(proxy: SluiceProcess) -> float:
    return proxy.metric("sluice_config_reloads_total", file="configuration", outcome="success")
