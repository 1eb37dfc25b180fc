"""Which clients there are, what each can do, and the loads: large enough that the quotas bite.

A load's quota belongs to one user in one role on one side. Bytes: what the producers have outstanding is more
than the rate times the answer budget, so the overload is real. Ids: fewer fit into the bucket (BURST_S of the
rate) than there are producers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

PRODUCE: Final = "produce"
CONSUME: Final = "consume"
CONSUME_848: Final = "consume-848"
"""in a group of KIP-848's protocol"""
TRANSACT: Final = "transact"
STREAM: Final = "stream"
CONSUMING: Final = (CONSUME, CONSUME_848)
READING: Final = (*CONSUMING, STREAM)
"""what is there already, in a group"""

NATIVE: Final = "native"
SLUICE: Final = "sluice"
SIDES: Final = (SLUICE, NATIVE)

PYTHON: Final = "python"
GO: Final = "go"
NODE: Final = "node"

BURST_S: Final = 18.0
"""producer_ids.burst_s: six ids at 1,200 an hour, three at 600, one at 200"""
QUICK_SHARE: Final = 4
"""`--quick`: a fourth of the records"""


@dataclass(frozen=True, slots=True)
class Load:
    """How many producers or members of a group bring or read what, and their quota."""

    workers: int
    records: int
    """of each producer; in a group: of all"""
    bytes_per_s: int
    """to the broker and from it, a limit each"""
    ids_per_hour: int = 1_200
    record_bytes: int = 1_000
    per_transaction: int = 10
    partitions: int = 4
    within_s: float = 180.0

    def shortened(self) -> Load:
        """The same load, shortened for a trial."""
        return replace(self, records=max(self.records // QUICK_SHARE, self.per_transaction), within_s=90.0)


LOADS: Final[Mapping[str, Load]] = {
    PRODUCE: Load(12, 150, 60_000),
    CONSUME: Load(2, 3_000, 100_000),
    CONSUME_848: Load(2, 3_000, 100_000),
    TRANSACT: Load(6, 60, 10_000, ids_per_hour=600),
    STREAM: Load(2, 1_500, 50_000, ids_per_hour=200),
}
KNOWN_BAD: Final = Load(20, 220, 10_000, within_s=240.0)
"""in batches of 16 kB; without idempotence 192 to 272 of 4,400 records were doubled (answer budget 10 s)"""
JAVA_PLAIN: Final = Load(12, 20, 1_500, within_s=240.0)
"""in batches of one record, five in flight: these take 40 s at the rate, and Java waits for 30"""
KAFKA_GO: Final = Load(12, 600, 600_000, record_bytes=10_000, partitions=1)
"""of kafka-go, whose writer waits for 10 s: 103 to 125 of 7,200 records doubled (answer budget of 10 s)"""


@dataclass(frozen=True, slots=True)
class Client:
    """One library, or one way of using it."""

    name: str
    language: str
    module: str
    """of bench.clients.drivers; those in Go and for Node know it by its name"""
    roles: tuple[str, ...] = (PRODUCE, CONSUME, TRANSACT)
    produce: Load = LOADS[PRODUCE]

    def load(self, role: str, *, quick: bool) -> Load:
        """What it does in this role."""
        load = self.produce if role == PRODUCE else LOADS[role]
        return load.shortened() if quick else load

    def user(self, role: str) -> str:
        """Whose quota it is."""
        return f"{self.name}-{role}"


CLIENTS: Final = (
    Client("java", PYTHON, "java", roles=(PRODUCE, CONSUME, CONSUME_848, TRANSACT)),
    Client("java-plain", PYTHON, "java", roles=(PRODUCE,), produce=JAVA_PLAIN),
    Client(
        "librdkafka",
        PYTHON,
        "confluent",
        roles=(PRODUCE, CONSUME, CONSUME_848, TRANSACT),
        produce=KNOWN_BAD,
    ),
    Client("librdkafka-plain", PYTHON, "confluent", roles=(PRODUCE, CONSUME), produce=KNOWN_BAD),
    Client("aiokafka", PYTHON, "aiokafka_clients"),
    Client("kafka-python", PYTHON, "kafka_python"),
    Client("franz-go", GO, "", roles=(PRODUCE, CONSUME, TRANSACT, STREAM)),
    Client("sarama", GO, ""),
    Client("kafka-go", GO, "", roles=(PRODUCE, CONSUME), produce=KAFKA_GO),
    Client("kafkajs", NODE, ""),
    Client("platformatic", NODE, ""),
    Client("streams", PYTHON, "streams", roles=(STREAM,)),
    Client("streams-kip1071", PYTHON, "streams", roles=(STREAM,)),
)
NAMES: Final = tuple(client.name for client in CLIENTS)
