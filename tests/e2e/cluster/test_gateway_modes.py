"""A gateway in front of a cluster: what clients are told, and never told; names, restarts, brokers out of
reach.

The brokers are at 127.0.0.1, the gateway at 127.0.0.8, and clients are told 127.0.0.9, where a relay keeps
every byte: so a broker's address in what a client receives can only be one that the gateway has let pass.
"""

from __future__ import annotations

import asyncio
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.config_resource import ConfigResource as AiokafkaResource
from aiokafka.admin.config_resource import ConfigResourceType as AiokafkaType
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource as ConfluentResource
from kafka import KafkaAdminClient

from testkit.clients.client_security import Login, Security
from testkit.clients.everybody import everybody_at_work
from testkit.clients.java_client import ALL_CLIENTS, _gateway, _properties
from testkit.clients.kafka_clients import (
    AIOKAFKA,
    CONFLUENT,
    KAFKA_PYTHON,
    LEAVES_SOCKETS,
    Client,
    Options,
    confluent_producer,
)
from testkit.clients.kafka_records import assert_exactly, create_topic, numbered, stored
from testkit.clients.traffic import Flow
from testkit.frames.frames import METADATA, decoded, request
from testkit.kafka.cluster import KafkaCluster
from testkit.kafka.dist import KafkaDist
from testkit.kafka.java_tools import MAIN_CLASSES, java_command
from testkit.kafka.node import USERS
from testkit.kafka.sasl_clients import java_client_properties, write_properties
from testkit.kafka.secured_kafka import Certificates
from testkit.peers.recording_relay import RecordingRelay
from testkit.processes.ports import LOOPBACK, free_port
from testkit.proxy.sluice_process import Door, SluiceProcess, gateway_door
from testkit.proxy.tls_doors import tls_connection

pytestmark = [pytest.mark.kafka, *LEAVES_SOCKETS]
Unique = Callable[[str], str]
HERE, TOLD, REAL = "127.0.0.8", "127.0.0.9", LOOPBACK
"""where the gateway listens, what clients are told, where the brokers are"""
DOMAIN: Final = "kafka.test"
RECORDS = numbered(200, size_bytes=300)
PRODUCE, FETCH, FIND_COORDINATOR, JOIN_GROUP, DESCRIBE_CONFIGS, DESCRIBE_CLUSTER = 0, 1, 10, 11, 32, 60


@pytest.fixture(scope="module")
def cluster(kafka_dist: KafkaDist) -> Iterator[KafkaCluster]:
    with KafkaCluster(kafka_dist, size=2, native=["SASL"]) as cluster:
        yield cluster


def at(door: Door, bind_host: str = HERE) -> Door:
    """The same door, listening there."""
    return Door(door.name, door.port, door.upstream, door.protocol, {**door.options, "bind_host": bind_host})


def ports_of(door: Door) -> list[int]:
    return [door.port, *range(door.port + 1, door.port + 1 + door.options["gateway"]["max_brokers"])]


# What clients are told --------------------------------------------------------------------------------------


async def ask_with_aiokafka(bootstrap: str, broker: int) -> str:
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    try:
        return str(await admin.describe_cluster()) + str(
            await admin.describe_configs([AiokafkaResource(AiokafkaType.BROKER, str(broker))])
        )
    finally:
        await admin.close()


def ask_with_confluent(bootstrap: str, broker: int) -> str:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.list_topics(timeout=20.0)
    admin.list_consumer_groups().result(20.0)
    nodes = admin.describe_cluster().result(20.0).nodes
    (configs,) = admin.describe_configs(
        [ConfluentResource(ConfluentResource.Type.BROKER, str(broker))]
    ).values()
    return str([f"{node.host}:{node.port}" for node in nodes or []]) + str(configs.result(20.0))


def ask_with_kafka_python(bootstrap: str, broker: int) -> str:
    from kafka.admin import ConfigResource, ConfigResourceType

    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    try:
        configs = admin.describe_configs([ConfigResource(ConfigResourceType.BROKER, str(broker))])
        return str(admin.describe_cluster()) + str(configs)
    finally:
        admin.close()


def ask_with_java(bootstrap: str, broker: int) -> str:
    jvm = _gateway().jvm
    kafka = jvm.org.apache.kafka
    admin = kafka.clients.admin.Admin.create(_properties(bootstrap, Options()))
    try:
        kind = getattr(kafka.common.config, "ConfigResource$Type").BROKER
        resource = kafka.common.config.ConfigResource(kind, str(broker))
        asked = [
            admin.describeCluster().nodes(),
            admin.describeConfigs(jvm.java.util.List.of(resource)).all(),
            admin.describeMetadataQuorum().quorumInfo(),
            admin.describeFeatures().featureMetadata(),
            admin.listGroups().all(),
        ]
        return "".join(str(future.get().toString()) for future in asked)
    finally:
        admin.close()


ADMINS: dict[str, Callable[[str, int], str]] = {
    "aiokafka": lambda bootstrap, broker: asyncio.run(ask_with_aiokafka(bootstrap, broker)),
    "confluent": ask_with_confluent,
    "kafka-python": ask_with_kafka_python,
    "java": ask_with_java,
}


@pytest.fixture(scope="module")
def recorded(cluster: KafkaCluster) -> Iterator[tuple[SluiceProcess, RecordingRelay, Door]]:
    door = at(gateway_door(cluster, advertised_host=TOLD))
    with SluiceProcess([door], mode="gateway") as sluice, RecordingRelay(TOLD, HERE, ports_of(door)) as relay:
        yield sluice, relay, door


@pytest.mark.parametrize(
    "client",
    [pytest.param(client, marks=() if client is CONFLUENT else pytest.mark.long) for client in ALL_CLIENTS],
    ids=lambda client: client.name,
)
def test_no_frame_that_a_client_receives_tells_where_a_broker_is(
    cluster: KafkaCluster,
    recorded: tuple[SluiceProcess, RecordingRelay, Door],
    unique: Unique,
    client: Client,
) -> None:
    _, relay, door = recorded
    before, bootstrap = len(relay.conversations), f"{TOLD}:{door.port}"
    topic = create_topic(cluster, unique("topic"))
    options = Options(transactional_id=unique("transaction"), batch_bytes=4_000)
    client.produce(bootstrap, topic, RECORDS, options)
    found = client.consume(bootstrap, topic, unique("group"), len(RECORDS), Options())
    for broker in cluster.ids:
        shown = ADMINS[client.name](bootstrap, broker)
        assert TOLD in shown
        assert REAL not in shown
    assert_exactly(RECORDS, stored(cluster, topic))
    assert_exactly(RECORDS, found)
    conversations = relay.conversations[before:]
    for conversation in conversations:
        assert REAL.encode() not in conversation.to_client, conversation.port
    answers = [answer for conversation in conversations for answer in conversation.answers()]
    for api_key, version, answer in answers:
        for port in ports_in(answer.body):
            assert port in {-1, *ports_of(door)}, (api_key, version)
    wanted = {METADATA, PRODUCE, FETCH, FIND_COORDINATOR, JOIN_GROUP, DESCRIBE_CONFIGS}
    assert wanted <= {api_key for api_key, _, _ in answers}, "the session was about something"
    assert {conversation.port for conversation in conversations} == {*ports_of(door)}, "each was dialled"


def ports_in(value: Any) -> Iterator[int]:
    """Every `port` of a decoded answer."""
    if isinstance(value, dict):
        for key, child in value.items():
            if key == "port":
                yield child
            else:
                yield from ports_in(child)
    elif isinstance(value, list):
        for child in value:
            yield from ports_in(child)


def test_a_brokers_own_answers_do_tell_where_it_is(cluster: KafkaCluster) -> None:
    """And so the search above means something."""
    node = cluster.nodes[0]
    answer = ask(node.address("PLAINTEXT"), request(METADATA, 12))
    assert REAL.encode() in answer
    assert {*ports_in(decoded("response", METADATA, 12, answer).body)} == {
        node.address("PLAINTEXT")[1] for node in cluster.nodes
    }
    assert REAL in ask_with_confluent(cluster.bootstrap, node.node_id)


def ask(address: tuple[str, int], frame: bytes) -> bytes:
    with socket.create_connection(address, timeout=20.0) as connection:
        connection.sendall(frame)
        answer = b""
        while len(answer) < 4 or len(answer) < 4 + int.from_bytes(answer[:4], "big"):
            more = connection.recv(65_536)
            assert more, "closed"
            answer += more
        return answer


def told(sluice: SluiceProcess, port: int, host: str = LOOPBACK) -> dict[int, tuple[str, int]]:
    """The brokers of a Metadata answer: id → address."""
    body: Any = decoded("response", METADATA, 12, ask((host, port), request(METADATA, 12))).body
    return {broker["nodeId"]: (broker["host"], broker["port"]) for broker in body["brokers"]}


# Which broker -----------------------------------------------------------------------------------------------


def test_the_next_bootstrap_upstream_is_asked_when_the_first_is_dead(
    cluster: KafkaCluster, unique: Unique
) -> None:
    dead = f"{LOOPBACK}:{free_port()}"
    door = gateway_door(cluster, bootstrap_upstreams=[dead, cluster.nodes[1].bootstrap_of("PLAINTEXT")])
    with SluiceProcess([door], mode="gateway") as sluice:
        topic = create_topic(cluster, unique("topic"))
        CONFLUENT.produce(door.bootstrap, topic, RECORDS, Options())
        assert_exactly(RECORDS, stored(cluster, topic))
        assert set(told(sluice, door.port)) == cluster.ids
        assert sluice.log_lines("upstream_unreachable", upstream=dead)
        assert sluice.disconnects("upstream_unreachable") == 0


def test_a_broker_without_a_port_of_its_own_is_told_in_the_log_with_the_remedy(cluster: KafkaCluster) -> None:
    first, second = sorted(cluster.ids)
    door = gateway_door(cluster, max_brokers=1, metadata_refresh_s=0.2)
    with SluiceProcess([door], mode="gateway") as sluice:
        sluice.wait_until(lambda: bool(sluice.log_lines("brokers_out_of_range")), "said")
        assert told(sluice, door.port) == {
            first: (LOOPBACK, door.port + 1),
            second: (LOOPBACK, door.port),
        }
        (line,) = sluice.log_lines("brokers_out_of_range")
        assert line["node_ids"] == [second]
        assert line["configured"] == f"{first} to {first}"
        assert "max_brokers" in line["remedy"]


def test_a_port_stays_the_same_and_leads_to_its_broker_before_anything_was_learnt(
    cluster: KafkaCluster,
) -> None:
    """After a restart a client comes with the addresses that it was told before."""
    door = gateway_door(cluster)
    with SluiceProcess([door], mode="gateway") as sluice:
        before = told(sluice, door.port)
        assert sluice.stop() == 0
        sluice.start()
        for node_id, (_, port) in before.items():
            assert told(sluice, port) == before, node_id


def test_a_producer_goes_on_exactly_once_when_the_gateway_is_restarted(
    cluster: KafkaCluster, unique: Unique
) -> None:
    door, topic = gateway_door(cluster), create_topic(cluster, unique("topic"))
    with SluiceProcess([door], mode="gateway") as sluice:
        flow = Flow(confluent_producer(door.bootstrap, Options(batch_bytes=4_000)), topic)
        try:
            sluice.wait_until(lambda: len(flow.sent) > 500, "traffic")
            assert sluice.stop() == 0
            sluice.start()
            sent = len(flow.sent)
            sluice.wait_until(lambda: len(flow.sent) > sent + 500, "traffic goes on")
        finally:
            flow.stop()
    assert_exactly(flow.sent, stored(cluster, topic))


@pytest.mark.slow
@pytest.mark.parametrize("client", ALL_CLIENTS, ids=lambda client: client.name)
def test_clients_and_their_groups_go_on_when_the_gateway_is_restarted(
    cluster: KafkaCluster, unique: Unique, client: Client
) -> None:
    door = gateway_door(cluster)
    with (
        SluiceProcess([door], mode="gateway") as sluice,
        everybody_at_work(cluster, sluice, unique, throttled=False, who=[(client, "idempotent")]),
    ):
        for _ in range(2):
            assert sluice.stop() == 0
            sluice.start()


# One port, by name ------------------------------------------------------------------------------------------


@pytest.fixture
def resolver(monkeypatch: pytest.MonkeyPatch) -> None:
    """In this process the domain's names lead to the gateway; no other name does."""
    real = socket.getaddrinfo

    def resolve(host: Any, *arguments: Any, **options: Any) -> Any:
        if isinstance(host, str) and host.endswith(f".{DOMAIN}"):
            host = HERE
        return real(host, *arguments, **options)

    monkeypatch.setattr(socket, "getaddrinfo", resolve)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("sni"))


@pytest.fixture(scope="module")
def named(cluster: KafkaCluster, certificates: Certificates) -> Iterator[SluiceProcess]:
    """Users log in through TLS; the brokers are without it."""
    server = certificates.server("gateway", f"*.{DOMAIN}", HERE)
    section = {
        "bootstrap_upstreams": [node.bootstrap_of("SASL") for node in cluster.nodes],
        "sni_domain": DOMAIN,
        "first_broker_id": min(cluster.ids),
        "max_brokers": 10,
    }
    options = {
        "bind_host": HERE,
        "tls": {"certificate_file": str(server.certificate), "key_file": str(server.key)},
        "gateway": section,
    }
    with SluiceProcess([Door("NAMED", free_port(), None, "SASL_SSL", options)], mode="gateway") as sluice:
        yield sluice


def login(certificates: Certificates) -> Security:
    return certificates.security(Login("SCRAM-SHA-256", "alice", USERS["alice"]))


@pytest.mark.usefixtures("resolver")
@pytest.mark.parametrize("client", [AIOKAFKA, KAFKA_PYTHON], ids=lambda client: client.name)
def test_one_port_leads_to_every_broker_by_its_name(
    cluster: KafkaCluster, certificates: Certificates, named: SluiceProcess, unique: Unique, client: Client
) -> None:
    topic, port = create_topic(cluster, unique("topic")), named.doors["NAMED"].port
    bootstrap, security = f"bootstrap.{DOMAIN}:{port}", login(certificates)
    transactional = Options(transactional_id=unique("transaction"), security=security)
    client.produce(bootstrap, topic, RECORDS, transactional)
    found = client.consume(bootstrap, topic, unique("group"), len(RECORDS), Options(security=security))
    assert_exactly(RECORDS, stored(cluster, topic))
    assert_exactly(RECORDS, found)


@pytest.mark.slow
def test_javas_clients_find_every_broker_by_its_name(
    cluster: KafkaCluster, certificates: Certificates, named: SluiceProcess, unique: Unique, tmp_path: Path
) -> None:
    port = named.doors["NAMED"].port
    names = ["bootstrap", *(f"broker-{node_id}" for node_id in cluster.ids)]
    hosts = tmp_path / "hosts"
    hosts.write_text("".join(f"{HERE} {name}.{DOMAIN}\n" for name in names))
    properties = java_client_properties("SCRAM-SHA-256", "alice", USERS["alice"]) | {
        "security.protocol": "SASL_SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(certificates.ca_file),
    }
    config = str(write_properties(tmp_path / "client", properties))
    topic = create_topic(cluster, unique("topic"))

    def run(tool: str, *arguments: str) -> str:
        command = java_command(
            cluster.dist,
            MAIN_CLASSES[tool],
            ["--bootstrap-server", f"bootstrap.{DOMAIN}:{port}", "--topic", topic, *arguments],
            options=[f"-Djdk.net.hosts.file={hosts}"],
        )
        return subprocess.run(command, capture_output=True, text=True, timeout=90, check=True).stdout

    run(
        "producer-perf-test",
        *("--num-records", "500", "--record-size", "100", "--throughput", "-1", "--command-config", config),
    )
    printed = run(
        "console-consumer",
        *("--from-beginning", "--max-messages", "500", "--command-config", config),
    )
    assert len(printed.splitlines()) == len(stored(cluster, topic)) == 500


def test_a_name_that_is_no_brokers_leads_to_any_of_them(
    certificates: Certificates, named: SluiceProcess
) -> None:
    """A client may come by an address at first, which is no name at all to TLS."""
    with tls_connection(named.doors["NAMED"].port, certificates.ca_file, host=HERE) as tls:
        tls.sendall(request(18, 3, {"clientSoftwareName": "test", "clientSoftwareVersion": "1"}))
        assert tls.recv(4)
