"""Three members of a group far over their fetch quota: once they have shared out the partitions, it stays so.

They share one bucket, and one batch is worth two seconds of it, so that each is muted most of the time, with
the shortest session that a broker allows. Groups of all kinds run at the same time.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

import pytest

from testkit.clients.kafka_clients import Options, confluent_producer
from testkit.clients.kafka_records import by_partition, create_topic, numbered
from testkit.clients.observed_groups import KINDS, SESSION_TIMEOUT_MS, Observed, Task
from testkit.kafka.node import KafkaNode
from testkit.proxy.sluice_process import SluiceProcess

MEMBERS = 3
PARTITIONS = 6
QUOTA_BYTES_PER_S = 150_000
RECORD_BYTES = 10_000
BATCH_BYTES = 2 * QUOTA_BYTES_PER_S
RUN_S = 2.5 * SESSION_TIMEOUT_MS / 1000
SHARED_OUT_WITHIN_S = 90.0
SETTLED_S = 5.0
JAVA = ("java-classic", "java-kip848")  # three JVMs each


@dataclass(slots=True)
class Group:
    """What became of a group."""

    members: list[Observed] = field(default_factory=lambda: [Observed() for _ in range(MEMBERS)])
    before: list[tuple[list[int], int]] = field(default_factory=list)
    after: list[tuple[list[int], int]] = field(default_factory=list)
    throttled_s: float = 0.0

    @property
    def shares(self) -> list[tuple[list[int], int]]:
        """Of each member: how many partitions it was given, each time, and how often some were taken."""
        return [(list(member.assignments), member.revocations) for member in self.members]

    @property
    def is_fed(self) -> bool:
        """Every member has had records."""
        return all(member.arrivals for member in self.members)


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(tuple(kind for kind in KINDS if kind not in JAVA), marks=pytest.mark.long),
        pytest.param(JAVA, marks=pytest.mark.slow),
    ],
    ids=["python", "java"],
)
def groups(
    request: pytest.FixtureRequest,
    kafka: KafkaNode,
    sluice: SluiceProcess,
    tmp_path_factory: pytest.TempPathFactory,
) -> dict[str, Group]:
    kinds: tuple[str, ...] = request.param
    found = {kind: Group() for kind in kinds}
    topic = create_topic(kafka, f"groups-of-three-{kinds[0]}", PARTITIONS)
    _produce_in_large_batches(kafka, topic)
    sluice.set_quotas(
        *({"client-id": f"three-{kind}", "consumer_byte_rate": QUOTA_BYTES_PER_S} for kind in kinds)
    )
    stop = threading.Event()
    with ThreadPoolExecutor(len(kinds) * MEMBERS) as pool:
        work = []
        try:
            for kind in kinds:
                for member in found[kind].members:
                    folder = tmp_path_factory.mktemp("member")
                    task = Task(
                        sluice.bootstrap(),
                        topic,
                        f"of-three-{kind}",
                        f"three-{kind}",
                        stop,
                        kafka.dist,
                        folder,
                    )
                    work.append(pool.submit(KINDS[kind], task, member))
            _await_shared_out(found, work)
            time.sleep(RUN_S)
            for kind, group in found.items():
                group.after = group.shares
                labels = {"quota": "fetch", "client_id": f"three-{kind}"}
                group.throttled_s = sluice.metric("sluice_throttled_seconds_total", **labels)
        finally:
            stop.set()
        for done in work:
            done.result(60.0)
    return found


def _await_shared_out(groups: Mapping[str, Group], work: Sequence[Future[None]]) -> None:
    """Wait until every member is fed and for SETTLED_S nobody was given or lost a partition."""
    deadline_s = time.monotonic() + SHARED_OUT_WITHIN_S
    since_s = time.monotonic()
    while not all(group.is_fed for group in groups.values()) or time.monotonic() < since_s + SETTLED_S:
        for done in work:
            assert not done.done() or done.result() is None
        for group in groups.values():
            if group.shares != group.before:
                group.before, since_s = group.shares, time.monotonic()
        assert time.monotonic() < deadline_s, {kind: group.shares for kind, group in groups.items()}
        time.sleep(0.1)


def _produce_in_large_batches(kafka: KafkaNode, topic: str) -> None:
    producer = confluent_producer(kafka.bootstrap, Options(batch_bytes=BATCH_BYTES), linger_ms=1000)
    for record in numbered(2400, size_bytes=RECORD_BYTES, partitions=PARTITIONS):
        producer.produce(topic, record.value, partition=record.partition)
    assert producer.flush(60.0) == 0


def test_no_member_loses_or_is_given_a_partition_while_all_are_throttled(groups: dict[str, Group]) -> None:
    for kind, group in groups.items():
        assert group.throttled_s > RUN_S / 2, kind
        assert group.after == group.before, kind


def test_what_the_members_got_is_in_order_and_without_a_gap(groups: dict[str, Group]) -> None:
    sent = by_partition(numbered(2400, size_bytes=RECORD_BYTES, partitions=PARTITIONS))
    for kind, group in groups.items():
        for member in group.members:
            for partition, values in by_partition(member.records).items():
                first = sent[partition].index(values[0])
                assert values == sent[partition][first : first + len(values)], (
                    f"{kind}, partition {partition}"
                )
