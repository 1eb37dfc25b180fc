"""New producer ids that come by transactions, above their rate: each transaction that waits commits, once.

librdkafka, aiokafka, kafka-python and franz-go add partitions with AddPartitionsToTxn, Java does so under
transaction version 1; under version 2 (KIP-890) its Produce adds them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, Final

import pytest

from testkit.clients.franz_client import build_franz, franz_produce, why_no_franz
from testkit.clients.java_client import JAVA, java_admin, java_class
from testkit.clients.kafka_clients import (
    AIOKAFKA,
    CONFLUENT,
    KAFKA_PYTHON,
    LEAVES_SOCKETS,
    Options,
    Produce,
)
from testkit.clients.kafka_records import assert_exactly, await_stored, create_topic, numbered
from testkit.kafka.dist import KafkaDist
from testkit.kafka.node import KafkaNode
from testkit.processes.ports import LOOPBACK, free_ports
from testkit.proxy.sluice_process import SluiceProcess, doors_of

pytestmark = [pytest.mark.kafka, *LEAVES_SOCKETS]

RECORDS: Final = 60
NO_CREDIT: Final = {"burst_s": 1.0}
HOLDING: Final[dict[str, Any]] = {"rate": 5_400, "pacing": {}, "producer_ids": NO_CREDIT}
"""three new ids in two seconds, and each may wait for eight"""
REFUSING: Final[dict[str, Any]] = {
    "rate": 1_800,
    "pacing": {"answer_budget_s": 0.5},
    "producer_ids": NO_CREDIT,
}
"""one in two seconds, and half a second of waiting, so that most ids are refused before their turn"""
SETTINGS = pytest.mark.parametrize(
    "setting", [HOLDING, pytest.param(REFUSING, marks=pytest.mark.long)], ids=["held", "refused"]
)
NO_FRANZ: Final = why_no_franz()


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    """aiokafka and kafka-python log each refusal."""
    caplog.set_level(logging.CRITICAL, logger="aiokafka")
    caplog.set_level(logging.CRITICAL, logger="kafka")


@pytest.fixture(scope="module")
def kafka_with_transactions_1(kafka_dist: KafkaDist) -> Iterator[KafkaNode]:
    """A broker as before KIP-890's part 2: every client adds the partitions itself."""
    (port,) = free_ports(1)
    with KafkaNode(kafka_dist, advertised={"SLUICE": (LOOPBACK, port)}) as node:
        set_transaction_version(node, 1)
        yield node


def set_transaction_version(node: KafkaNode, version: int) -> None:
    admin_package = "org.apache.kafka.clients.admin"
    update = java_class(f"{admin_package}.FeatureUpdate")(
        version, java_class(f"{admin_package}.FeatureUpdate$UpgradeType").SAFE_DOWNGRADE
    )
    options = java_class(f"{admin_package}.UpdateFeaturesOptions")()
    admin = java_admin(node.bootstrap, Options())
    try:
        updates = java_class("java.util.Map").of("transaction.version", update)
        admin.updateFeatures(updates, options).all().get()
    finally:
        admin.close()


def commit_exactly(
    kafka: KafkaNode,
    setting: dict[str, Any],
    producers: Sequence[tuple[str, Produce]],
    unique: Callable[[str], str],
) -> None:
    """All of them at once, each in transactions of its own; then what was committed is read back."""
    limit = {"user": "<default>", "producer_ids_rate": setting["rate"]}
    options = {"pacing": setting["pacing"], "producer_ids": setting["producer_ids"]}
    topics = [create_topic(kafka, unique(f"tx-{name}")) for name, _ in producers]
    sent = [numbered(RECORDS) for _ in producers]
    numbers = count()
    with SluiceProcess(doors_of(kafka, ["SLUICE"]), [limit], **options) as process:
        with ThreadPoolExecutor(len(producers)) as pool:
            running = [
                pool.submit(
                    produce,
                    process.bootstrap(),
                    topic,
                    records,
                    Options(
                        client_id=name,
                        transactional_id=unique(f"{name}-{next(numbers)}"),
                        records_per_transaction=RECORDS // 3,
                    ),
                )
                for (name, produce), topic, records in zip(producers, topics, sent, strict=True)
            ]
            for done in running:
                done.result()
        for (name, _), topic, records in zip(producers, topics, sent, strict=True):
            assert_exactly(records, await_stored(kafka, topic, RECORDS), name)
        assert process.metric("sluice_producer_ids_new_total") == len(producers)
        assert process.metric("sluice_producer_ids_throttle_time_seconds_total") > 0
        refused = process.metric("sluice_producer_ids_refused_total")
        assert refused == 0 if setting is HOLDING else refused > 0


@SETTINGS
def test_transactions_above_the_rate_commit_each_record_once(
    kafka: KafkaNode, setting: dict[str, Any], unique: Callable[[str], str]
) -> None:
    clients = [AIOKAFKA, CONFLUENT, KAFKA_PYTHON, JAVA] * 2
    commit_exactly(kafka, setting, [(client.name, client.produce) for client in clients], unique)


@SETTINGS
@pytest.mark.long
def test_before_transaction_version_2_java_above_the_rate_commits_each_record_once(
    kafka_with_transactions_1: KafkaNode, setting: dict[str, Any], unique: Callable[[str], str]
) -> None:
    producers = [("java", JAVA.produce)] * 5
    commit_exactly(kafka_with_transactions_1, setting, producers, unique)


@pytest.mark.slow  # it is compiled first
@pytest.mark.skipif(NO_FRANZ != "", reason=NO_FRANZ)
@SETTINGS
@pytest.mark.parametrize("broker", ["kafka", "kafka_with_transactions_1"])
def test_franz_go_above_the_rate_commits_each_record_once(
    broker: str,
    setting: dict[str, Any],
    unique: Callable[[str], str],
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    produce = partial(franz_produce, build_franz(tmp_path))
    commit_exactly(request.getfixturevalue(broker), setting, [("franz-go", produce)] * 5, unique)
