"""Groups far over their fetch quota: nobody is put out of its group, and records never stop coming.

One batch is worth two seconds of the quota, so that every answer is followed by a mute about as long as a
mute may be, with the shortest session that a broker allows. All consumers run at the same time.
"""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from testkit.clients.kafka_clients import Options, confluent_producer
from testkit.clients.kafka_records import Record, by_partition, create_topic, numbered
from testkit.clients.observed_groups import KINDS, SESSION_TIMEOUT_MS, Observed, Task
from testkit.kafka.node import KafkaNode
from testkit.proxy.sluice_process import SluiceProcess

QUOTA_BYTES_PER_S = 150_000
RECORD_BYTES = 10_000
BATCH_BYTES = 2 * QUOTA_BYTES_PER_S
RUN_S = 2.5 * SESSION_TIMEOUT_MS / 1000
JOIN_WITHIN_S = 60.0
LONGEST_GAP_S = 6.0
each_kind = pytest.mark.parametrize("kind", KINDS)


class Runs:
    """All consumers, when they were stopped, and what is in the topic."""

    def __init__(self) -> None:
        self.seen = {kind: Observed() for kind in KINDS}
        self.sent: list[Record] = []
        self.stopped_s = 0.0
        self.throttled: dict[str, float] = {}


@pytest.fixture(scope="module")
def runs(kafka: KafkaNode, sluice: SluiceProcess, tmp_path_factory: pytest.TempPathFactory) -> Runs:
    runs = Runs()
    topic = create_topic(kafka, "throttled-groups")
    runs.sent = numbered(1200, size_bytes=RECORD_BYTES)
    _produce_in_large_batches(kafka, topic, runs.sent)
    sluice.set_quotas(
        *({"client-id": f"app-{kind}", "consumer_byte_rate": QUOTA_BYTES_PER_S} for kind in KINDS)
    )
    stop = threading.Event()
    folder = tmp_path_factory.mktemp("groups")
    with ThreadPoolExecutor(len(KINDS)) as pool:
        try:
            work = []
            for kind, run in KINDS.items():
                bootstrap = sluice.bootstrap()
                task = Task(bootstrap, topic, f"group-{kind}", f"app-{kind}", stop, kafka.dist, folder)
                work.append(pool.submit(run, task, runs.seen[kind]))
            deadline_s = time.monotonic() + JOIN_WITHIN_S
            while not all(seen.arrivals for seen in runs.seen.values()):
                for done in work:
                    assert not done.done() or done.result() is None
                assert time.monotonic() < deadline_s, runs.seen
                time.sleep(0.1)
            time.sleep(RUN_S)
            runs.stopped_s = time.monotonic()
            runs.throttled = {
                labels["client_id"].removeprefix("app-"): seconds
                for labels, seconds in sluice.samples("sluice_throttled_seconds_total")
                if labels["quota"] == "fetch"
            }
        finally:
            stop.set()
        for done in work:
            done.result(60.0)
    return runs


def _produce_in_large_batches(kafka: KafkaNode, topic: str, records: list[Record]) -> None:
    options = Options(batch_bytes=BATCH_BYTES)
    producer = confluent_producer(kafka.bootstrap, options, linger_ms=1000)
    for record in records:
        producer.produce(topic, record.value, partition=record.partition)
    assert producer.flush(60.0) == 0


@each_kind
def test_a_throttled_group_member_gets_its_partitions_once_and_keeps_them(runs: Runs, kind: str) -> None:
    seen = runs.seen[kind]
    assert seen.assignments == [3]
    assert seen.revocations == 0


@each_kind
def test_records_never_stop_coming_to_a_throttled_group(runs: Runs, kind: str) -> None:
    assert runs.seen[kind].longest_gap_s(runs.stopped_s) < LONGEST_GAP_S


@each_kind
def test_a_throttled_group_gets_records_in_order_and_none_twice(runs: Runs, kind: str) -> None:
    stored = by_partition(runs.sent)
    for partition, values in by_partition(runs.seen[kind].records).items():
        assert values == stored[partition][: len(values)]


@each_kind
def test_a_group_keeps_to_its_fetch_quota(runs: Runs, kind: str) -> None:
    rate = runs.seen[kind].bytes_per_s(settle_s=3.0)
    assert 0.6 * QUOTA_BYTES_PER_S < rate < 1.3 * QUOTA_BYTES_PER_S
    assert runs.throttled[kind] > RUN_S / 2
