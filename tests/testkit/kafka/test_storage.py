"""A node without data → a broker with ids of its own, and the users of the first of its kind."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from aiokafka import AIOKafkaClient

from testkit.kafka.node import USERS, KafkaNode
from testkit.kafka.storage import random_id


@pytest.mark.kafka
def test_the_second_of_a_kind_needs_no_format_and_is_another_node_with_the_same_users() -> None:
    def ids(node: KafkaNode) -> dict[str, str]:
        lines = (node.folder / "data" / "meta.properties").read_text().splitlines()
        return dict(line.split("=", 1) for line in lines if not line.startswith("#"))

    def formatted(log: Path) -> bool:
        return "Formatting" in log.read_text()

    kind = {"log.retention.bytes": "123456789"}  # no other test's
    with KafkaNode(native=["SASL"], config=kind) as first, KafkaNode(native=["SASL"], config=kind) as second:
        assert (formatted(first.log), formatted(second.log)) == (True, False)
        assert ids(first).keys() == ids(second).keys()
        for name in ("cluster.id", "directory.id"):
            assert ids(first)[name] != ids(second)[name]
        assert ids(second)["cluster.id"] == second.cluster_id
        for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN"):
            asyncio.run(logs_in(second, mechanism))


async def logs_in(node: KafkaNode, mechanism: str) -> None:
    user, password = next(iter(USERS.items()))
    client = AIOKafkaClient(
        bootstrap_servers=node.bootstrap_sasl,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism=mechanism,
        sasl_plain_username=user,
        sasl_plain_password=password,
    )
    try:
        await client.bootstrap()
    finally:
        await client.close()


def test_a_cluster_id_is_what_storage_tool_takes() -> None:
    ids = {random_id() for _ in range(200)}
    assert len(ids) == 200
    assert {len(text) for text in ids} == {22}
    assert not any(text.startswith("-") for text in ids)
