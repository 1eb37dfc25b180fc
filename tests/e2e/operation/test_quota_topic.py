"""Quotas in a topic, managed through three proxies with the tools that people have; what they survive."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from kafka import KafkaProducer
from kafka.admin import KafkaAdminClient
from kafka.protocol.admin import AlterClientQuotasRequest, DescribeClientQuotasRequest

from testkit.clients.java_client import java_admin, java_class
from testkit.clients.kafka_clients import Options
from testkit.clients.quota_api import QuotaApi
from testkit.kafka.java_tools import run_tool
from testkit.kafka.node import KafkaNode
from testkit.processes.ports import LOOPBACK, free_port_range
from testkit.proxy.sluice_process import SLUICE, Door, SluiceProcess

pytestmark = pytest.mark.kafka
TOPIC = "__sluice_quotas"
ALICE = (("user", "alice"),)


def proxy(
    node: KafkaNode, folder: Path, name: str, admins: tuple[str, ...] = ("ANONYMOUS",)
) -> SluiceProcess:
    """In mode gateway, so that several may stand before one broker."""
    port = free_port_range(2)
    gateway = {
        "bootstrap_upstreams": [node.bootstrap],
        "advertised_host": LOOPBACK,
        "first_broker_port": port + 1,
        "first_broker_id": 1,
        "max_brokers": 1,
    }
    topic = {"bootstrap": [node.bootstrap], "copy_file": str(folder / f"{name}.json"), "request_timeout_s": 5}
    return SluiceProcess(
        [Door("GATEWAY", port, None, "PLAINTEXT", {"gateway": gateway})],
        mode="gateway",
        quota_options={"source": "topic", "topic": topic, "admins": list(admins)},
    )


def bootstrap(sluice: SluiceProcess) -> str:
    return sluice.bootstrap("GATEWAY")


@pytest.fixture(scope="module")
def node() -> Iterator[KafkaNode]:
    """Its own, for it is stopped and started here."""
    with KafkaNode() as node:
        yield node


@pytest.fixture(scope="module")
def proxies(node: KafkaNode, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[SluiceProcess]]:
    folder = tmp_path_factory.mktemp("copies")
    with (
        proxy(node, folder, "a") as one,
        proxy(node, folder, "b") as two,
        proxy(node, folder, "c") as three,
    ):
        yield [one, two, three]


@pytest.fixture
def sluice(proxies: list[SluiceProcess]) -> SluiceProcess:
    return proxies[0]


@pytest.fixture(autouse=True)
def no_quotas(proxies: list[SluiceProcess]) -> Iterator[None]:
    """None is left by a test, and the next begins when all proxies know that."""
    yield
    for sluice in proxies:
        sluice.wait_until(partial(_is_following, sluice), "following the topic", 40.0)
    with QuotaApi(bootstrap(proxies[0])) as api:
        for whom, limits in api.limits().items():
            assert api.alter(dict(whom), dict.fromkeys(limits)) == (0, None)
    await_on(proxies, {})


def _is_following(sluice: SluiceProcess) -> bool:
    return sluice.metric("sluice_quota_topic_followed") == 1.0


def limits_at(sluice: SluiceProcess) -> dict[Any, dict[str, float]]:
    with QuotaApi(bootstrap(sluice)) as api:
        return api.limits()


def await_on(proxies: list[SluiceProcess], wanted: dict[Any, dict[str, float]]) -> None:
    for sluice in proxies:
        sluice.wait_until(partial(_answers, sluice, wanted), f"the limits {wanted}")


# Tools ------------------------------------------------------------------------------------------------------


def configs(node: KafkaNode, sluice: SluiceProcess, *arguments: str) -> str:
    """Kafka's own kafka-configs.sh."""
    return run_tool(node.dist, "configs", "--bootstrap-server", bootstrap(sluice), *arguments).stdout


def test_the_stock_tool_sets_tells_and_removes_quotas_of_users_clients_and_addresses(
    node: KafkaNode, proxies: list[SluiceProcess]
) -> None:
    one = proxies[0]
    add = ("--alter", "--add-config", "producer_byte_rate=1024,consumer_byte_rate=2048")
    configs(node, one, *add, "--entity-type", "users", "--entity-name", "alice")
    configs(node, one, *add, "--entity-type", "users", "--entity-default")
    pair = ("--entity-type", "users", "--entity-name", "alice", "--entity-type", "clients")
    configs(node, one, *add, *pair, "--entity-name", "app")
    address = ("--entity-type", "ips", "--entity-name", "10.0.0.1")
    configs(node, one, "--alter", "--add-config", "connection_creation_rate=7", *address)
    rates = {"producer_byte_rate": 1024.0, "consumer_byte_rate": 2048.0}
    wanted = {
        ALICE: rates,
        (("user", None),): rates,
        (("user", "alice"), ("client-id", "app")): rates,
        (("ip", "10.0.0.1"),): {"connection_creation_rate": 7.0},
    }
    await_on(proxies, wanted)
    told = configs(node, proxies[1], "--describe", "--entity-type", "users")
    assert "user-principal 'alice'" in told
    assert "producer_byte_rate=1024.0" in told
    remove = ("--alter", "--delete-config", "consumer_byte_rate")
    configs(node, proxies[2], *remove, "--entity-type", "users", "--entity-name", "alice")
    await_on(proxies, {**wanted, ALICE: {"producer_byte_rate": 1024.0}})


def test_javas_admin_manages_quotas_also_of_producer_ids(sluice: SluiceProcess) -> None:
    alteration = java_class("org.apache.kafka.common.quota.ClientQuotaAlteration")
    entity_class = java_class("org.apache.kafka.common.quota.ClientQuotaEntity")
    java_list, java_map = java_class("java.util.List"), java_class("java.util.Map")
    with closing(java_admin(bootstrap(sluice), Options())) as admin:
        entity = entity_class(java_map.of("user", "alice"))
        op = alteration.Op("producer_ids_rate", 50.0)
        options = java_class("org.apache.kafka.clients.admin.AlterClientQuotasOptions")
        change = java_list.of(alteration(entity, java_list.of(op)))
        admin.alterClientQuotas(change, options().validateOnly(True)).all().get()
        assert limits_at(sluice) == {}
        admin.alterClientQuotas(change).all().get()
        everything = java_class("org.apache.kafka.common.quota.ClientQuotaFilter").all()
        told = admin.describeClientQuotas(everything).entities().get()
        assert dict(told[entity]) == {"producer_ids_rate": 50.0}
        wrong = java_list.of(alteration(entity, java_list.of(alteration.Op("producer_byte_rate", -1.0))))
        with pytest.raises(Exception, match="Quota producer_byte_rate must be greater than 0"):
            admin.alterClientQuotas(wrong).all().get()


def test_kafka_pythons_admin_manages_quotas(sluice: SluiceProcess) -> None:
    admin = KafkaAdminClient(bootstrap_servers=bootstrap(sluice))
    try:
        alter, describe = AlterClientQuotasRequest, DescribeClientQuotasRequest
        entry = alter.EntryData(
            entity=[alter.EntryData.EntityData(entity_type="user", entity_name="alice")],
            ops=[alter.EntryData.OpData(key="producer_byte_rate", value=4096.0, remove=False)],
        )
        answer = admin._manager.run(admin._manager.send, alter(entries=[entry], validate_only=False))
        assert [one.error_code for one in answer.entries] == [0]
        told = admin._manager.run(admin._manager.send, describe(components=[], strict=False))
        assert [(one.entity[0].entity_name, one.values[0].value) for one in told.entries] == [
            ("alice", 4096.0)
        ]
    finally:
        admin.close()


# What must hold ---------------------------------------------------------------------------------------------


def test_a_change_at_one_proxy_is_in_force_at_all(proxies: list[SluiceProcess]) -> None:
    with QuotaApi(bootstrap(proxies[0])) as api:
        for rate in (1000.0, 2000.0, 3000.0):
            assert api.alter({"user": "alice"}, {"producer_byte_rate": rate}) == (0, None)
            assert api.limits() == {ALICE: {"producer_byte_rate": rate}}
            await_on(proxies, {ALICE: {"producer_byte_rate": rate}})
    for one in proxies:
        (line,) = one.log_lines("quota_changed", entity="user 'alice'", new={"producer_byte_rate": 2000})
        assert (line["by"], line["old"]) == ("ANONYMOUS", {"producer_byte_rate": 1000})


def test_a_limit_set_through_one_proxy_throttles_at_another(
    node: KafkaNode, proxies: list[SluiceProcess]
) -> None:
    with QuotaApi(bootstrap(proxies[0])) as api:
        assert api.alter({"client-id": "slow"}, {"producer_byte_rate": 50_000.0}) == (0, None)
    await_on(proxies, {(("client-id", "slow"),): {"producer_byte_rate": 50_000.0}})
    producer = Producer({"bootstrap.servers": bootstrap(proxies[1]), "client.id": "slow"})
    for _ in range(200):
        producer.produce("throttled", b"x" * 1000)
    assert producer.flush(60) == 0
    assert proxies[1].metric("sluice_throttled_seconds_total", quota="produce", client_id="slow") > 1.0


def test_different_keys_of_one_entity_altered_at_once_are_both_kept(proxies: list[SluiceProcess]) -> None:
    keys = ("producer_byte_rate", "consumer_byte_rate", "request_percentage")
    apis = [QuotaApi(bootstrap(one)) for one in proxies]
    for turn in range(1, 11):
        for api, key in zip(apis, keys, strict=True):
            api.send_alter({"user": "alice"}, {key: float(turn)})
        assert [api.result() for api in apis] == [(0, None)] * 3
        await_on(proxies, {ALICE: dict.fromkeys(keys, float(turn))})
    for api in apis:
        api.close()


def test_the_topic_is_compacted_and_has_one_partition(node: KafkaNode, sluice: SluiceProcess) -> None:
    told = run_tool(node.dist, "topics", "--bootstrap-server", node.bootstrap, "--describe", "--topic", TOPIC)
    assert "PartitionCount: 1\t" in told.stdout
    assert "cleanup.policy=compact" in told.stdout


# What it survives -------------------------------------------------------------------------------------------


def test_a_corrupt_record_is_skipped_counted_and_named(node: KafkaNode, proxies: list[SluiceProcess]) -> None:
    one = proxies[0]
    wanted = {ALICE: {"producer_byte_rate": 1000.0}}
    with QuotaApi(bootstrap(one)) as api:
        assert api.alter({"user": "alice"}, {"producer_byte_rate": 1000.0}) == (0, None)
    write = KafkaProducer(bootstrap_servers=node.bootstrap)
    for key, value in ((b'{"user":"alice"}', b'{"producer_byte_rate":-1}'), (b"garbage", b"\xff")):
        write.send(TOPIC, key=key, value=value).get(30)
    write.close()
    for each in proxies:
        each.wait_until(partial(_has_skipped, each, 2), "two lines")
        assert "user 'alice'" in {line["about"] for line in each.log_lines("quota_record_skipped")}
    await_on(proxies, wanted)
    one.stop()
    one.start()
    await_on(proxies, wanted)
    with QuotaApi(bootstrap(one)) as api:
        assert api.alter({"user": "alice"}, {"producer_byte_rate": 1500.0}) == (0, None)
    await_on(proxies, {ALICE: {"producer_byte_rate": 1500.0}})


def _has_skipped(sluice: SluiceProcess, records: int) -> bool:
    return len(sluice.log_lines("quota_record_skipped")) >= records


def test_a_proxy_starts_from_its_copy_while_the_topic_cannot_be_read(
    node: KafkaNode, proxies: list[SluiceProcess]
) -> None:
    one = proxies[0]
    with QuotaApi(bootstrap(one)) as api:
        assert api.alter({"user": "alice"}, {"producer_byte_rate": 1000.0}) == (0, None)
    one.stop()
    node.stop()
    try:
        one.start()  # returns when it is ready
        assert one.log_lines("quota_copy_read", entities=1)
        one.wait_until(lambda: bool(one.log_lines("quota_topic_lost")), "said to be lost")
    finally:
        node.start()
    one.wait_until(lambda: _can_alter(one), "writing again", 40.0)
    await_on(proxies, {ALICE: {"producer_byte_rate": 2000.0}})


def _can_alter(sluice: SluiceProcess) -> bool:
    try:
        with QuotaApi(bootstrap(sluice)) as api:
            return api.alter({"user": "alice"}, {"producer_byte_rate": 2000.0}) == (0, None)
    except (OSError, EOFError):
        return False


def test_quotas_survive_a_restart_of_the_broker(node: KafkaNode, proxies: list[SluiceProcess]) -> None:
    wanted = {ALICE: {"consumer_byte_rate": 77.0}}
    with QuotaApi(bootstrap(proxies[2])) as api:
        assert api.alter({"user": "alice"}, {"consumer_byte_rate": 77.0}) == (0, None)
    node.stop()
    node.start()
    for one in proxies:
        one.wait_until(partial(_answers, one, wanted), "the same limits")
    one = proxies[1]
    one.wait_until(lambda: _can_alter(one), "writing again", 40.0)


def _answers(sluice: SluiceProcess, wanted: dict[Any, dict[str, float]]) -> bool:
    try:
        return limits_at(sluice) == wanted
    except (OSError, EOFError):
        return False


# Who may ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def strict(
    node: KafkaNode, proxies: list[SluiceProcess], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SluiceProcess]:
    """A proxy without admins."""
    with proxy(node, tmp_path_factory.mktemp("strict"), "d", ()) as sluice:
        yield sluice


def test_who_is_no_admin_is_refused(strict: SluiceProcess) -> None:
    with closing(java_admin(bootstrap(strict), Options())) as admin:
        everything = java_class("org.apache.kafka.common.quota.ClientQuotaFilter").all()
        with pytest.raises(Exception, match="ClusterAuthorizationException"):
            admin.describeClientQuotas(everything).entities().get()
    with QuotaApi(bootstrap(strict)) as api:
        code, message = api.alter({"user": "alice"}, {"producer_byte_rate": 1.0})
        assert code == 31
        assert "quotas.admins" in str(message)
    assert strict.log_lines("quota_change_refused", user="ANONYMOUS")
    before = len(strict.log_lines("quota_describe_refused", user="ANONYMOUS"))
    assert before
    alter = ("--alter", "--add-config", "producer_byte_rate=1", "--user", "alice")
    place = ("--bootstrap-server", bootstrap(strict))
    done = subprocess.run(
        [SLUICE, "configs", *place, *alter], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, "error 31 CLUSTER_AUTHORIZATION_FAILED" in done.stderr) == (1, True)
    assert len(strict.lines_behind(before, "quota_describe_refused", {"user": "ANONYMOUS"})) == 1


def test_with_a_quota_file_limits_are_told_and_changes_refused_with_its_name(node: KafkaNode) -> None:
    port = free_port_range(2)
    gateway = {
        "bootstrap_upstreams": [node.bootstrap], "advertised_host": LOOPBACK, "first_broker_port": port + 1,
        "first_broker_id": 1, "max_brokers": 1,
    }  # fmt: skip
    door = Door("GATEWAY", port, None, "PLAINTEXT", {"gateway": gateway})
    quotas = [
        {"user": "alice", "producer_byte_rate": 5},
        {"client-id-prefix": "etl-", "producer_byte_rate": 7},
        {"user": "bob", "producer_byte_rate": 8, "shadow": True},
    ]
    with SluiceProcess([door], quotas, mode="gateway", quota_options={"admins": ["ANONYMOUS"]}) as sluice:
        assert limits_at(sluice) == {ALICE: {"producer_byte_rate": 5.0}}
        with QuotaApi(bootstrap(sluice)) as api:
            code, message = api.alter({"user": "alice"}, {"producer_byte_rate": 9.0})
        assert code == 44
        assert str(sluice.quota_file) in str(message)
        sluice.set_quotas({"user": "alice", "producer_byte_rate": 6})
        changed = {"entity": "user 'alice'", "by": str(sluice.quota_file), "source": "file"}
        sluice.wait_until(lambda: bool(sluice.log_lines("quota_changed", **changed)), "told in the log")


def test_clients_neither_write_nor_read_the_topic(node: KafkaNode, strict: SluiceProcess) -> None:
    failed: list[Any] = []
    producer = Producer({"bootstrap.servers": bootstrap(strict), "message.timeout.ms": 10_000})
    producer.produce(TOPIC, b"{}", key=b'{"user":"mallory"}', callback=lambda error, _: failed.append(error))
    producer.flush(30)
    assert [error.code() for error in failed] == [KafkaError.TOPIC_AUTHORIZATION_FAILED]
    consumer = Consumer(
        {"bootstrap.servers": bootstrap(strict), "group.id": "spy", "auto.offset.reset": "error"}
    )
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    deadline_s = time.monotonic() + 30
    while True:
        message = consumer.poll(1.0)
        if message is not None:
            error = message.error()
            assert error is not None
            assert error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
            break
        assert time.monotonic() < deadline_s
    consumer.close()
    tool = run_tool(
        node.dist,
        "topics",
        "--bootstrap-server",
        bootstrap(strict),
        "--delete",
        "--topic",
        TOPIC,
        check=False,
    )
    assert tool.returncode != 0
    assert "the proxy's own" in tool.stdout + tool.stderr
