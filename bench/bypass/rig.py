"""The broker, its own quotas for the native side, and Sluice with the same limits for the other."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from bench.bypass.counting_relay import CountingRelay, counting_relay
from bench.bypass.wires import ask, dialled
from bench.lib.light_rig import NATIVE, LightRig
from testkit.kafka.node import KafkaNode
from testkit.processes.ports import LOOPBACK, free_port
from testkit.processes.process import BenchError, raise_fd_limit
from testkit.proxy.proxies import SLUICE
from testkit.proxy.sluice_process import Door, SluiceProcess

BYTES_PER_S: Final = 1_000_000
SMALL_BYTES_PER_S: Final = 10_000
MIDDLE_BYTES_PER_S: Final = 100_000
MUTATIONS_PER_S: Final = 2.0
MUTATIONS_BURST: Final = 22.0  # 11 windows' worth, as at the broker
REQUEST_PERCENTAGE: Final = 1.0
ANSWER_BUDGET_S: Final = 8.0
BURST_S: Final = 1.0
GROUP_DELAY_S: Final = 2.0
LEFT_BEHIND_BYTES: Final = 16 * 2**20  # wire-semantics 1.2: acks=0 bytes of clients that left, a user
USERS: Final = ("alice", "bob", "carol")  # on MIDDLE_BYTES_PER_S each, as are then users without a name
# Attacks pour gigabytes that nobody reads.
BROKER_CONFIG: Final = {"log.retention.check.interval.ms": "5000", "log.initial.task.delay.ms": "5000"}
DISCARDED: Final = {
    "retention.bytes": str(256 * 2**20),
    "segment.bytes": str(64 * 2**20),
    "file.delete.delay.ms": "1000",
}
LARGE_RECORDS: Final = {"max.message.bytes": "10000000"}
ALTER_CLIENT_QUOTAS: Final = 49
_OPEN_FILES: Final = 4096

# What attacks' client ids begin with → their limits.
LIMITS: Final[Mapping[str, Mapping[str, float]]] = {
    "flat": {"producer_byte_rate": BYTES_PER_S, "consumer_byte_rate": BYTES_PER_S},
    "middle": {"producer_byte_rate": MIDDLE_BYTES_PER_S, "consumer_byte_rate": MIDDLE_BYTES_PER_S},
    "small": {"producer_byte_rate": SMALL_BYTES_PER_S, "consumer_byte_rate": SMALL_BYTES_PER_S},
    "mutations": {"controller_mutation_rate": MUTATIONS_PER_S},
    "requests": {"request_percentage": REQUEST_PERCENTAGE},
}

NO_LEADER_YET: Final = (KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE)
NO_FILES: Final = "Too many open files"
LEADERS_WITHIN_S: Final = 60.0
"""a broker that was started anew leads its partitions by then"""


@dataclass(slots=True)
class BypassRig(LightRig):
    """With a listener for those who log in, and the way to the broker on which requests are counted."""

    relay: CountingRelay = field(kw_only=True)

    def counted_port(self, side: str) -> int:
        """Where this side's clients connect whose requests `relay` counts."""
        return self.relay.port if side == NATIVE else self.sluice.doors["SLUICE_COUNTED"].port

    def sasl_port(self, side: str) -> int:
        """Where this side's clients log in."""
        if side == NATIVE:
            return self.node.address("SASL")[1]
        return self.sluice.doors["SLUICE_SASL"].port

    async def revive(self) -> str | None:
        """Starts the broker anew, with its data, if it has ended or can open no file: which of both it is.
        None: it lives."""
        how = "died" if has_ended(self.node.pid) else None
        if NO_FILES in self.node.log_tail(200):
            how = "ran out of descriptors"
        if how is not None:
            self.node.stop(graceful=False)
            await asyncio.to_thread(self.node.start)
        return how

    def end_offset(self, topic: str, partition: int = 0) -> int:
        """Where the broker's log ends now: what was written, answered or not."""
        options = {"bootstrap.servers": self.node.bootstrap, "group.id": "reads-without-a-group"}
        consumer = Consumer({**options, "log_level": 0})
        deadline_s = time.monotonic() + LEADERS_WITHIN_S
        try:
            while True:
                try:
                    place = TopicPartition(topic, partition)
                    return int(consumer.get_watermark_offsets(place, timeout=30.0)[1])
                except KafkaException as error:
                    # A broker that has just come back takes up its partitions one after the other.
                    if error.args[0].code() not in NO_LEADER_YET or time.monotonic() > deadline_s:
                        raise
                    time.sleep(0.5)
        finally:
            consumer.close()


def has_ended(pid: int) -> bool:
    """Whether the process is gone, or waits only to be buried."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0] == "Z"
    return True


def client_id(side: str, limits: str, attack: str) -> str:
    """An attack's client id; `limits`: a key of LIMITS."""
    return f"{limits}-{attack}-{side}"


@contextlib.asynccontextmanager
async def open_bypass_rig(attacks: Mapping[str, str]) -> AsyncIterator[BypassRig]:
    """`attacks`: name → key of LIMITS. All that runs is gone when the block ends."""
    raise_fd_limit(_OPEN_FILES)
    print("starting Kafka", flush=True)
    async with contextlib.AsyncExitStack() as stack:
        node = stack.enter_context(
            KafkaNode(native=["SASL"], config=BROKER_CONFIG, heap="1g", quick_jit=False)
        )
        relay = await stack.enter_async_context(counting_relay(node.address("PLAINTEXT")[1]))
        doors = [
            Door("SLUICE", free_port(), (LOOPBACK, node.listeners["PLAINTEXT"].port)),
            Door("SLUICE_COUNTED", free_port(), (LOOPBACK, relay.port)),
            Door("SLUICE_SASL", free_port(), node.address("SASL"), "SASL_PLAINTEXT"),
        ]
        native = [
            ("client-id", client_id(NATIVE, limits, attack), LIMITS[limits])
            for attack, limits in attacks.items()
        ]
        native += [("user", user, LIMITS["middle"]) for user in USERS]
        await _limit_natively(node.listeners["PLAINTEXT"].port, native)
        quotas: list[Mapping[str, object]] = [
            {"client-id": client_id(SLUICE, limits, attack), **LIMITS[limits]}
            for attack, limits in attacks.items()
        ]
        quotas += [{"user": user, **LIMITS["middle"]} for user in USERS]
        pacing = {"answer_budget_s": ANSWER_BUDGET_S, "burst_s": BURST_S}
        sluice = SluiceProcess(doors, quotas, pacing=pacing)
        stack.enter_context(sluice)
        yield BypassRig(node, sluice, relay=relay)


async def _limit_natively(port: int, limits: Sequence[tuple[str, str, Mapping[str, float]]]) -> None:
    """The broker's own quotas; each: entity type, its name, its limits."""
    entries = [
        {
            "entity": [{"entityType": kind, "entityName": name}],
            "ops": [{"key": key, "value": value, "remove": False} for key, value in of_it.items()],
        }
        for kind, name, of_it in limits
    ]
    async with dialled(port) as wire:
        answer = await ask(wire, ALTER_CLIENT_QUOTAS, 1, {"entries": entries, "validateOnly": False})
    for entry in answer["entries"]:
        if entry["errorCode"]:
            raise BenchError(f"the broker refused a quota: {entry['errorMessage']}")
