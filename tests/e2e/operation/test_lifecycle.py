"""The proxy is stopped, killed, started again and given a ConfigMap while clients are at work."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from testkit.clients.kafka_clients import CLIENTS, CONFLUENT, KAFKA_PYTHON, LEAVES_SOCKETS, Client, Options
from testkit.clients.kafka_records import assert_exactly, create_topic, difference, numbered, stored
from testkit.clients.traffic import about, flowing
from testkit.kafka.java_tools import run_tool
from testkit.kafka.node import KafkaNode
from testkit.proxy.sluice_process import SluiceProcess, doors_of

Unique = Callable[[str], str]
QUOTA_BYTES_PER_S = 600_000
"""of one bucket for all clients of a test: most of their requests are held at any time"""
SLOW, QUICK = 100_000, 400_000


pytestmark = [*LEAVES_SOCKETS]


@pytest.fixture
def proxy(kafka: KafkaNode) -> Iterator[SluiceProcess]:
    """A proxy of the test's own, that it may stop."""
    with SluiceProcess(doors_of(kafka)) as process:
        yield process


def stop(proxy: SluiceProcess, how: str) -> None:
    """End it under load and start it again; SIGTERM must find it obedient."""
    if how == "SIGKILL":
        proxy.kill()
    else:
        assert proxy.stop() == 0
    time.sleep(0.3)
    proxy.start()


# Producers --------------------------------------------------------------------------------------------------

RECORDS = numbered(2000, size_bytes=500)


@pytest.mark.parametrize("how", ["SIGTERM", pytest.param("SIGKILL", marks=pytest.mark.long)])
def test_idempotent_producers_lose_and_double_nothing_when_the_proxy_is_restarted_under_load(
    kafka: KafkaNode, proxy: SluiceProcess, unique: Unique, how: str
) -> None:
    proxy.set_quotas({"client-id": "<default>", "producer_byte_rate": QUOTA_BYTES_PER_S})
    topics = {client: create_topic(kafka, unique(f"topic-{client.name}")) for client in CLIENTS}
    java_topic = create_topic(kafka, unique("topic-java"))
    with ThreadPoolExecutor(4) as pool:
        work = [
            pool.submit(client.produce, proxy.bootstrap(), topic, RECORDS, Options())
            for client, topic in topics.items()
        ]
        java = pool.submit(
            run_tool,
            kafka.dist,
            "console-producer",
            *("--bootstrap-server", proxy.bootstrap(), "--topic", java_topic),
            *("--message-send-max-retries", "1000"),
            input_text="".join(f"{record.value.decode()}\n" for record in RECORDS),
        )
        for _ in range(2):
            time.sleep(1.5)
            stop(proxy, how)
        for done in work:
            done.result(120.0)
        java.result(120.0)
    for topic in topics.values():
        assert_exactly(RECORDS, stored(kafka, topic))
    # Java's records went to partitions of its own choice.
    java_values = Counter(record.value for record in stored(kafka, java_topic))
    assert java_values == Counter(record.value for record in RECORDS)


@pytest.mark.parametrize(
    "client",
    [CONFLUENT, pytest.param(KAFKA_PYTHON, marks=pytest.mark.long)],
    ids=lambda client: client.name,
)
def test_a_drain_doubles_nothing_of_a_producer_without_idempotence(
    kafka: KafkaNode, proxy: SluiceProcess, unique: Unique, client: Client
) -> None:
    """What was forwarded is answered, what was held is not forwarded; so a retry is never a second copy."""
    proxy.set_quotas({"client-id": "<default>", "producer_byte_rate": QUOTA_BYTES_PER_S})
    topics = [create_topic(kafka, unique("topic")) for _ in range(3)]
    options = Options(acks=1, idempotent=False)
    with ThreadPoolExecutor(len(topics)) as pool:
        work = [pool.submit(client.produce, proxy.bootstrap(), topic, RECORDS, options) for topic in topics]
        time.sleep(1.5)
        stop(proxy, "SIGTERM")
        for done in work:
            done.result(120.0)
    for topic in topics:
        found = stored(kafka, topic)
        # Their order may change with a retry: without idempotence nobody promises it.
        assert Counter(found) == Counter(RECORDS), difference(RECORDS, found)


# Consumers --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "client",
    [
        CONFLUENT,
        *(pytest.param(other, marks=pytest.mark.long) for other in CLIENTS if other is not CONFLUENT),
    ],
    ids=lambda client: client.name,
)
def test_a_consumer_goes_on_where_it_was_when_the_proxy_is_restarted(
    kafka: KafkaNode, proxy: SluiceProcess, unique: Unique, client: Client
) -> None:
    topic, client_id = create_topic(kafka, unique("topic")), unique("app")
    CONFLUENT.produce(kafka.bootstrap, topic, RECORDS, Options(batch_bytes=10_000))
    proxy.set_quotas({"client-id": client_id, "consumer_byte_rate": 250_000})
    with ThreadPoolExecutor(1) as pool:
        options = Options(client_id=client_id)
        work = pool.submit(client.consume, proxy.bootstrap(), topic, unique("group"), len(RECORDS), options)
        time.sleep(1.5)
        assert not work.done()
        stop(proxy, "SIGTERM")
        assert_exactly(RECORDS, work.result(120.0))


# Quotas from a ConfigMap ------------------------------------------------------------------------------------


@pytest.fixture
def config_map(tmp_path: Path) -> Callable[[str], None]:
    """A folder as Kubernetes mounts a ConfigMap; a call exchanges its content as the kubelet does.

    quotas.yaml → ..data/quotas.yaml, ..data → ..1: a new folder, then the link to it renamed over the old.
    """
    versions = iter(range(1, 100))

    def exchange(text: str) -> None:
        folder = tmp_path / f"..{next(versions)}"
        folder.mkdir()
        (folder / "quotas.yaml").write_text(text)
        link = tmp_path / "..data_tmp"
        link.symlink_to(folder.name)
        os.replace(link, tmp_path / "..data")
        if not (tmp_path / "quotas.yaml").is_symlink():
            (tmp_path / "quotas.yaml").symlink_to("..data/quotas.yaml")

    return exchange


def test_the_exchange_of_a_config_map_under_traffic_brings_the_new_limit(
    kafka: KafkaNode, tmp_path: Path, config_map: Callable[[str], None], unique: Unique
) -> None:
    client_id = unique("app")

    def text_of(quota: int) -> str:
        return f"quotas:\n  - client-id: {client_id}\n    producer_byte_rate: {quota}\n"

    config_map(text_of(SLOW))
    with (
        SluiceProcess(doors_of(kafka), quota_file=tmp_path / "quotas.yaml") as proxy,
        flowing(kafka, proxy, unique("topic"), client_id) as flow,
    ):
        assert flow.comes_to(about(SLOW))
        config_map(text_of(QUICK))
        proxy.await_quotas(text_of(QUICK))
        assert flow.comes_to(about(QUICK))
