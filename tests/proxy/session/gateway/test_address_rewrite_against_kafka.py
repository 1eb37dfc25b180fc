"""A real broker's answers through the session of a gateway: nowhere in them is where the broker listens."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any

import pytest

from sluice.protocol._tables import API_NAMES
from sluice.protocol.addresses.metadata_poll import brokers_of, metadata_request
from testkit.frames.frames import METADATA, decoded, request
from testkit.frames.message_values import message_of, versions_of
from testkit.kafka.node import KafkaNode
from testkit.proxy.gateway import broker_map, gateway

FIND_COORDINATOR, DESCRIBE_CONFIGS, DESCRIBE_QUORUM, DESCRIBE_CLUSTER = 10, 32, 55, 60
BROKER = 4


class Broker:
    """A plain connection to the broker, one question at a time."""

    def __init__(self, bootstrap: str) -> None:
        host, _, port = bootstrap.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), timeout=20)

    def answer(self, frame: bytes) -> bytes:
        self.socket.sendall(frame)
        size = self._read(4)
        return size + self._read(int.from_bytes(size, "big"))

    def _read(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            more = self.socket.recv(count - len(data))
            assert more, "the broker closed the connection"
            data += more
        return data


@pytest.fixture
def broker(kafka: KafkaNode) -> Iterator[Broker]:
    connected = Broker(kafka.bootstrap)
    with connected.socket:
        yield connected


def node_id_of(broker: Broker) -> int:
    (node,) = brokers_of(broker.answer(metadata_request(7, "sluice")), 7)
    return node.node_id


def questions(node_id: int) -> list[tuple[int, int, Any]]:
    """(API, version, body): whatever could say where a broker listens."""
    resource = {"resourceType": BROKER, "resourceName": str(node_id), "configurationKeys": None}
    told = {"includeSynonyms": True}  # the documentation is Kafka's own, and has 127.0.0.1 as an example
    bodies: dict[int, Any] = {
        METADATA: {"topics": []},
        FIND_COORDINATOR: {"key": "group", "keyType": 0, "coordinatorKeys": ["group"]},
        DESCRIBE_CLUSTER: {"endpointType": 1},
        DESCRIBE_CONFIGS: {"resources": [resource], **told},
        DESCRIBE_QUORUM: {
            "topics": [{"topicName": "__cluster_metadata", "partitions": [{"partitionIndex": 0}]}]
        },
    }
    asked: list[tuple[int, int, Any]] = []
    for api_key, body in bodies.items():
        message = message_of("request", api_key)
        for version in versions_of(message):
            known = {field.name for field in message.fields if version in field.versions}
            asked.append((api_key, version, {name: body[name] for name in body.keys() & known}))
    return asked


def test_no_answer_says_where_the_broker_listens(kafka: KafkaNode, broker: Broker) -> None:
    node_id = node_id_of(broker)
    brokers = broker_map()
    assert node_id in brokers.node_ids()
    leaked: list[str] = []
    showed = 0
    for api_key, version, body in questions(node_id):
        shell = gateway(brokers)
        shell.client_sends(request(api_key, version, body, correlation_id=7))
        real = broker.answer(bytes(shell.to_broker))
        shell.broker_sends(real)
        shown = bytes(shell.to_client)
        decoded("response", api_key, version, shown)  # it is a frame
        showed += b"127.0.0.1" in real
        if b"127.0.0.1" in shown:
            leaked.append(f"{API_NAMES[api_key]} v{version}")
    assert leaked == []
    assert showed > 20, "the broker does say it"
    host, _, port = kafka.bootstrap.rpartition(":")
    assert brokers.upstream(node_id) == (host, int(port))


def test_what_is_shown_of_the_configs_is_all_but_the_addresses(broker: Broker) -> None:
    node_id = node_id_of(broker)
    ((api_key, version, body),) = [q for q in questions(node_id) if q[:2] == (DESCRIBE_CONFIGS, 4)]
    shell = gateway()
    asked = request(api_key, version, body, correlation_id=7)
    real = broker.answer(asked)
    shell.client_sends(asked)
    shell.broker_sends(real)

    def values(frame: bytes) -> dict[str, Any]:
        answer: Any = decoded("response", api_key, version, frame).body
        return {config["name"]: config["value"] for config in answer["results"][0]["configs"]}

    before, after = values(real), values(bytes(shell.to_client))
    assert before.keys() == after.keys()
    changed = {name for name, value in before.items() if after[name] != value}
    assert {"advertised.listeners", "listeners"} <= changed
    assert changed <= {
        "advertised.listeners", "listeners", "controller.quorum.voters", "controller.quorum.bootstrap.servers"
    }  # fmt: skip
    assert f"gw:{9100 + node_id}" in after["advertised.listeners"]
