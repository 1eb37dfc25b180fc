"""A real broker with its own quotas, Sluice before it with the same, and one driver process for each role.

    sluice:  client → Sluice (quota of the user) → broker
    native:  client → broker (quota of the client id); KIP-936's quota of producer ids no broker has

What is stored is read past both, by a client without a quota.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Consumer, Producer, TopicPartition

from bench.clients.cases import (
    BURST_S,
    CONSUMING,
    NATIVE,
    PRODUCE,
    READING,
    SIDES,
    SLUICE,
    STREAM,
    TRANSACT,
    Client,
    Load,
)
from bench.clients.drivers.told import Work
from bench.clients.groups import reasons, rebalances, time_of_day_ms
from bench.clients.judge import (
    Figures,
    Numbered,
    Told,
    judge_consumers,
    judge_producers,
    judge_streams,
    number_of,
    read_told,
)
from bench.clients.programs import Programs
from bench.lib.quotas_admin import set_native_quotas
from testkit.clients.kafka_records import by_partition, create_topic, stored
from testkit.kafka.node import KafkaNode
from testkit.processes.guarded_process import GuardedProcess, log_tail
from testkit.processes.ports import LOOPBACK, free_ports
from testkit.processes.process import BenchError
from testkit.proxy.sluice_process import SluiceProcess, doors_of

DOOR: Final = "SLUICE_SASL"
PASSWORD: Final = "a-password"
END_WITHIN_S: Final = 45.0
"""how long a driver may take to end beyond the time of its load"""
BYTE_RATES: Final = ("produce", "fetch")
REBALANCE_DELAY_MS: Final = 3_000
"""Kafka's default: both members of a group join before it first deals out its partitions"""


@dataclass(frozen=True, slots=True)
class Bite:
    """What the quotas made one user's requests wait, added up over all of them."""

    bytes_s: float
    ids_s: float
    ids_refused: int


@dataclass(frozen=True, slots=True)
class Rig:
    """All that runs while clients come and go."""

    node: KafkaNode
    sluice: SluiceProcess
    programs: Programs
    folder: Path
    quick: bool

    def bootstrap(self, side: str) -> str:
        """Where the clients of this side connect."""
        return self.sluice.bootstrap(DOOR) if side == SLUICE else self.node.bootstrap_sasl

    def bite(self, user: str) -> Bite:
        """What Sluice's quotas have done to a user so far."""
        metric = self.sluice.metric
        return Bite(
            bytes_s=round(
                sum(metric("sluice_throttled_seconds_total", user=user, quota=quota) for quota in BYTE_RATES),
                1,
            ),
            ids_s=round(metric("sluice_producer_ids_throttle_time_seconds_total", user=user), 1),
            ids_refused=int(metric("sluice_producer_ids_refused_total", user=user)),
        )


def source(load: Load) -> str:
    """The topic that is there to be read from."""
    return f"there-{load.records}"


def name_of(client: Client, role: str, side: str) -> str:
    """Client id, topic and group of one client in one role on one side."""
    return f"{side}-{client.name}-{role}"


@contextlib.contextmanager
def open_rig(
    clients: Sequence[Client],
    folder: Path,
    programs: Programs,
    *,
    quick: bool,
    answer_budget_s: float | None = None,
) -> Iterator[Rig]:
    """Broker, topics, quotas, Sluice (with its default answer budget if none is given); gone at the end."""
    pacing: dict[str, Any] = (
        {} if answer_budget_s is None else {"pacing": {"answer_budget_s": answer_budget_s}}
    )
    print("starting Kafka, and Sluice before it", flush=True)
    parts = [(client, role) for client in clients for role in client.roles]
    users = {client.user(role): PASSWORD for client, role in parts}
    limits = [_limit(client, role, quick=quick) for client, role in parts]
    with contextlib.ExitStack() as stack:
        node = stack.enter_context(
            KafkaNode(
                advertised={DOOR: (LOOPBACK, free_ports(1)[0])},
                native=["SASL"],
                users=users,
                heap="1g",
                quick_jit=False,
                config={
                    "group.initial.rebalance.delay.ms": str(REBALANCE_DELAY_MS),
                    "group.coordinator.rebalance.protocols": "classic,consumer,streams",
                },
            )
        )
        for client, role in parts:
            load = client.load(role, quick=quick)
            if role in READING:
                _fill(node, load)
            for side in SIDES:
                if role not in CONSUMING:
                    create_topic(node, name_of(client, role, side), load.partitions)
            set_native_quotas(node.address("PLAINTEXT")[1], [name_of(client, role, NATIVE)], load.bytes_per_s)
        sluice = stack.enter_context(
            SluiceProcess(doors_of(node, [DOOR]), limits, producer_ids={"burst_s": BURST_S}, **pacing)
        )
        yield Rig(node, sluice, programs, folder, quick)


def _limit(client: Client, role: str, *, quick: bool) -> dict[str, object]:
    load = client.load(role, quick=quick)
    return {
        "user": client.user(role),
        "producer_byte_rate": load.bytes_per_s,
        "consumer_byte_rate": load.bytes_per_s,
        "producer_ids_rate": load.ids_per_hour,
    }


def run_part(rig: Rig, client: Client, role: str, side: str) -> Figures:
    """One client in one role on one side, and what the broker then has. Raises NoProgramError."""
    load = client.load(role, quick=rig.quick)
    name = name_of(client, role, side)
    reads = role in READING
    work = Work(
        client=client.name,
        role=role,
        bootstrap=rig.bootstrap(side),
        user=client.user(role),
        password=PASSWORD,
        client_id=name,
        topic=source(load) if reads else name,
        partitions=load.partitions,
        workers=load.workers,
        records=load.records,
        record_bytes=load.record_bytes,
        per_transaction=load.per_transaction,
        group=f"{name}-group",
        output=name if role == STREAM else "",
        within_s=load.within_s,
    )
    start_s = time.monotonic()
    told = _drive(rig, client, work, name)
    seconds = time.monotonic() - start_s
    figures = _judge(rig, work, told)
    figures.seconds = round(seconds, 1)
    if reads:
        closing = None if told.closing_ms is None else _local_time_of_day_ms(told.closing_ms)
        lines = rig.node.log.read_text(encoding="utf-8", errors="replace").splitlines()
        figures.rebalances = rebalances(lines, work.group, work.workers, closing)
        if figures.rebalances:
            for reason in reasons(lines, work.group, closing):
                figures.notes[f"rebalance: {reason[:160]}"] = 1
    return figures


def _local_time_of_day_ms(epoch_ms: int) -> int:
    """As the broker's log has it."""
    local = time.localtime(epoch_ms / 1000)
    return time_of_day_ms(time.strftime("%H:%M:%S", local)) + epoch_ms % 1000


def _drive(rig: Rig, client: Client, work: Work, name: str) -> Told:
    job, output = rig.folder / f"{name}.json", rig.folder / f"{name}.out"
    job.write_text(json.dumps(asdict(work)), encoding="utf-8")
    output.unlink(missing_ok=True)  # of an earlier run that was kept
    with (
        GuardedProcess([*rig.programs.command(client), str(job)], output=output) as process,
        contextlib.suppress(TimeoutError),
    ):
        process.wait(work.within_s + END_WITHIN_S)
    with output.open(encoding="utf-8", errors="replace") as lines:
        told = read_told(lines)
    if not told.ended:
        told.notes[f"did not end by itself: {' '.join(log_tail(output, 2).split())[-120:]}"] += 1
    return told


def _judge(rig: Rig, work: Work, told: Told) -> Figures:
    if work.role in (PRODUCE, TRANSACT):
        sent = [(worker, seq) for worker in range(work.workers) for seq in range(work.records)]
        return judge_producers(told, _numbers(rig.node, work.topic), sent)
    committed = _committed(rig.node, work)
    there = _numbers(rig.node, work.topic)
    if work.role in CONSUMING:
        offsets = {partition: range(len(numbers)) for partition, numbers in there.items()}
        return judge_consumers(told, offsets, committed)
    return judge_streams(told, there, _numbers(rig.node, work.output), committed)


def _numbers(node: KafkaNode, topic: str) -> dict[int, list[Numbered]]:
    values = by_partition(stored(node, topic))
    return {partition: [number_of(value) for value in found] for partition, found in values.items()}


def _committed(node: KafkaNode, work: Work) -> dict[int, int]:
    consumer = Consumer({"bootstrap.servers": node.bootstrap, "group.id": work.group, "log_level": 0})
    try:
        asked = [TopicPartition(work.topic, partition) for partition in range(work.partitions)]
        return {each.partition: max(each.offset, 0) for each in consumer.committed(asked, 30.0)}
    finally:
        consumer.close()


def _fill(node: KafkaNode, load: Load) -> None:
    """Numbered records. Worker and key are their partition, so that Streams keeps them together."""
    topic = source(load)
    producer = Producer(
        {"bootstrap.servers": node.bootstrap, "batch.size": 16_384, "linger.ms": 100, "log_level": 0}
    )
    if topic in producer.list_topics(timeout=30.0).topics:
        return
    create_topic(node, topic, load.partitions)
    for seq in range(load.records):
        partition = seq % load.partitions
        value = f"{partition}:{seq}:".encode().ljust(load.record_bytes, b"x")
        producer.produce(topic, value, key=str(partition), partition=partition)
    if producer.flush(60.0):
        raise BenchError(f"{topic} could not be filled")
