"""Everything that the acts need, started and ready: brokers, Sluice, topics, records, in one folder."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Final

from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from bench.demo import overload, storm
from bench.demo.figures import KINDS, NATIVE, SLUICE
from bench.demo.interrupts import Interrupts
from bench.demo.overload import overload_client_id
from bench.demo.storm import StormStage
from bench.demo.traffic import Stage, client_id, records_of_each
from bench.evenness.cases import QUOTA_BYTES_PER_S
from bench.evenness.rig import FETCH_TOPIC, PRODUCE_TOPIC, RECORD_BYTES
from bench.lib.quotas_admin import set_native_quotas
from testkit.kafka.lock import CURRENT
from testkit.kafka.node import KafkaNode
from testkit.processes.ports import LOOPBACK, free_port, free_ports
from testkit.processes.process import BenchError
from testkit.proxy.soak_proxy import Sluice

NEEDED_BYTES: Final = 600_000_000
FILL_WITHIN_S: Final = 60.0
TOPICS: Final = (PRODUCE_TOPIC, FETCH_TOPIC, overload.TOPIC)

Step = Callable[[str], AbstractContextManager[None]]
"""tells people what goes on while a block takes its time"""


@contextlib.contextmanager
def own_folder(interrupts: Interrupts) -> Iterator[Path]:
    """Everything temporary of this process goes into one folder, so that one removal is enough."""
    before = tempfile.tempdir
    free_bytes = shutil.disk_usage(tempfile.gettempdir()).free
    if free_bytes < NEEDED_BYTES:
        raise BenchError(
            f"{tempfile.gettempdir()} has {free_bytes / 1e6:.0f} MB left, this takes up to "
            f"{NEEDED_BYTES / 1e6:.0f}; TMPDIR chooses another folder"
        )
    with interrupts.deferred():
        folder = Path(tempfile.mkdtemp(prefix="sluice-demo-"))
        tempfile.tempdir = str(folder)
    try:
        yield folder
    finally:
        interrupts.hold()
        tempfile.tempdir = before
        shutil.rmtree(folder, ignore_errors=True)


def set_up(
    folder: Path, seconds: float, stack: contextlib.ExitStack, step: Step, interrupts: Interrupts
) -> tuple[Stage, StormStage]:
    """The broker of the first two acts and Sluice, ready; those of the third act are only made, not started.

    What is started ends with `stack`.
    """
    native_relay, sluice_relay = free_ports(2)
    advertised = {"NATIVE": (LOOPBACK, native_relay), "SLUICE": (LOOPBACK, sluice_relay)}
    with step(f"starting Kafka {CURRENT.version}"):
        with interrupts.deferred():
            node = KafkaNode(advertised=advertised)
            stack.callback(node.close)
            node.begin_start()
            storm_stage = StormStage(folder, stack)
        node.await_start()
    records = records_of_each(seconds)
    with step(f"giving the consumers something to read, {records * RECORD_BYTES / 1e6:.0f} MB"):
        fill(node.bootstrap, records, interrupts)
    with step("native quotas into the broker, and Sluice in front of it"):
        native_port = node.address("NATIVE")[1]
        set_native_quotas(native_port, _limited(NATIVE), QUOTA_BYTES_PER_S)
        with interrupts.deferred():
            sluice, sluice_port = _sluice(folder, node.address("SLUICE")[1], storm_stage)
            stack.enter_context(sluice)
    relays = {NATIVE: (native_relay, native_port), SLUICE: (sluice_relay, sluice_port)}
    return Stage(node, sluice, folder, relays), storm_stage


def _limited(side: str) -> list[str]:
    """The client ids of a side that have a byte quota."""
    return [*(client_id(side, api_key) for api_key in KINDS), overload_client_id(side)]


def _sluice(folder: Path, broker_port: int, storm_stage: StormStage) -> tuple[Sluice, int]:
    """One Sluice for all acts, and its port before the broker of the first two."""
    limits = {"producer_byte_rate": QUOTA_BYTES_PER_S, "consumer_byte_rate": QUOTA_BYTES_PER_S}
    quotas: list[dict[str, Any]] = [{"client-id": name, **limits} for name in _limited(SLUICE)]
    port, admin_port = free_port(), free_port()
    listener = {"name": "demo", "bind_port": port, "upstream_host": LOOPBACK, "upstream_port": broker_port}
    listeners = [listener, storm_stage.listener()]
    return Sluice("sluice", folder, admin_port, listeners, [*quotas, storm.QUOTA], **storm.OPTIONS), port


def fill(bootstrap: str, records: int, interrupts: Interrupts) -> None:
    """One-partition topics for all kinds of clients, and `records` in the one that is read.

    Raises BenchError when the broker does not take them.
    """
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topics = [NewTopic(topic, num_partitions=1, replication_factor=1) for topic in TOPICS]
    try:
        for created in admin.create_topics(topics, request_timeout=30).values():
            created.result(timeout=FILL_WITHIN_S)
    except (KafkaException, TimeoutError) as error:
        raise BenchError(f"the broker made no topics: {error!r}") from error
    # Batches as the Java producer makes them, so that a consumer finds what it would find in real life.
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, "batch.size": 16_384})
    record = bytes(RECORD_BYTES)
    deadline_s = time.monotonic() + FILL_WITHIN_S
    sent = 0
    while (sent < records or len(producer)) and time.monotonic() < deadline_s:
        interrupts.check()
        try:
            while sent < records:
                producer.produce(FETCH_TOPIC, record)
                sent += 1
        except BufferError:  # its queue is full
            pass
        producer.poll(0.05)
    if sent < records or len(producer):
        raise BenchError(
            f"the broker took {sent - len(producer):,} of {records:,} records in {FILL_WITHIN_S:.0f} s"
        )
