"""The quota topic at a real broker: answers that are lost, records that are refused, what others write."""

from __future__ import annotations

import asyncio
import itertools
import os
import struct
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.client import AIOKafkaClient
from aiokafka.errors import KafkaConnectionError, NodeNotReadyError
from aiokafka.protocol.produce import ProduceRequest
from aiokafka.record.default_records import _DefaultRecordBatchBuilderPy
from aiokafka.record.util import calc_crc32c
from confluent_kafka import Producer
from structlog.testing import capture_logs

from sluice.proxy.quota_store import topic_connection, topic_reader
from sluice.proxy.quota_store.client_quotas import Alteration
from sluice.proxy.quota_store.entities import key_of
from sluice.proxy.quota_store.topic import QuotaTopic
from sluice.proxy.quota_store.topic_records import Stored
from sluice.quotas.entity import QuotaEntity
from testkit.clients.kafka_records import create_topic
from testkit.kafka.node import KafkaNode
from testkit.proxy.local_proxy import until
from tests.proxy.quota_store.test_topic_against_kafka import ALICE, following, options_of, set_rate

pytestmark = [pytest.mark.asyncio, pytest.mark.kafka]
Send = Callable[..., Awaitable[Any]]
_names = itertools.count(1)


def produces(monkeypatch: pytest.MonkeyPatch, instead: Callable[[Send], Awaitable[Any]]) -> None:
    """What becomes of each Produce. `instead`: is given how to send it."""
    real = AIOKafkaClient.send

    async def send(client: Any, node: Any, request: Any, **more: Any) -> Any:
        async def on() -> Any:
            return await real(client, node, request, **more)

        return await (instead(on) if isinstance(request, ProduceRequest) else on())

    monkeypatch.setattr(AIOKafkaClient, "send", send)


async def test_a_record_whose_answer_was_lost_does_not_bring_back_what_was_removed_meanwhile(
    kafka: KafkaNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_removed, is_lost = asyncio.Event(), False

    async def instead(on: Send) -> Any:
        nonlocal is_lost
        if is_lost:
            return await on()
        is_lost = True
        await on()
        await is_removed.wait()
        raise KafkaConnectionError("gone, and with it the answer")

    options = options_of(kafka)
    async with following(options) as one, following(options) as two:
        await until(lambda: one.is_followed and two.is_followed)
        produces(monkeypatch, instead)
        setting = asyncio.ensure_future(set_rate(one, "alice", 5.0))
        await until(lambda: ALICE in two.entries)
        assert await set_rate(two, "alice", None) == 0
        is_removed.set()
        assert await setting == 0
        assert await set_rate(two, "bob", 1.0) == 0
        await until(lambda: QuotaEntity("bob") in one.entries)
        assert set(one.entries) == set(two.entries) == {QuotaEntity("bob")}
        async with following(options) as three:
            await until(lambda: three.is_followed)
            assert three.entries == one.entries


async def test_after_a_record_that_the_broker_refused_others_are_written(kafka: KafkaNode) -> None:
    options = options_of(kafka)
    config = {"cleanup.policy": "compact", "max.message.bytes": "400"}
    await asyncio.to_thread(create_topic, kafka, options.name, 1, config=config)
    async with following(options) as topic:
        for rate in (1.0, 2.0):
            assert await set_rate(topic, "x" * 500, 5.0) == 7
            assert await set_rate(topic, "alice", rate) == 0
        assert topic.entries == {ALICE: Stored({"producer_byte_rate": 2})}


async def test_what_was_not_delivered_in_time_is_never_delivered(
    kafka: KafkaNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_cut = True

    async def instead(on: Send) -> Any:
        if is_cut:
            raise NodeNotReadyError("no way there")
        return await on()

    options = options_of(kafka, request_timeout_s=1.0)
    async with following(options) as topic:
        await until(lambda: topic.is_followed)
        produces(monkeypatch, instead)
        assert await set_rate(topic, "alice", 5.0) == 7
        is_cut = False
        # Behind each other, from one producer: alice's would come first.
        await until_set(topic, "bob")
        await until_set(topic, "carl")
        assert set(topic.entries) == {QuotaEntity("bob"), QuotaEntity("carl")}


async def until_set(topic: QuotaTopic, user: str) -> None:
    while await set_rate(topic, user, 1.0):
        pass


# Looks that fail --------------------------------------------------------------------------------------------


async def test_a_broker_that_does_not_answer_a_look_keeps_no_change_from_being_followed(
    kafka: KafkaNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Any of the cluster's is asked: a frozen one, not the topic's leader, held it up for 9 s."""
    looking = asyncio.Event()

    async def hangs(*_whom: Any) -> None:
        looking.set()
        await asyncio.Event().wait()

    options = options_of(kafka)
    monkeypatch.setattr(topic_connection, "_LOOK_S", 0.05)
    monkeypatch.setattr(topic_connection, "check_same", hangs)
    async with following(options) as one, following(options) as two:
        await looking.wait()
        assert await set_rate(two, "alice", 5.0) == 0
        await until(lambda: ALICE in one.entries)
        assert await set_rate(one, "bob", 1.0) == 0, "nor what it writes itself"


async def test_the_topic_is_lost_when_looks_on_end_fail_and_not_by_one(
    kafka: KafkaNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, looks = topic_connection.check_same, 0

    async def fails(*whom: Any) -> None:
        nonlocal looks
        looks += 1
        if looks % 3 or looks > 9:
            raise NodeNotReadyError("frozen")
        await real(*whom)

    monkeypatch.setattr(topic_connection, "_LOOK_S", 0.05)
    monkeypatch.setattr(topic_connection, "_LOOK_AGAIN_S", 0.05)
    monkeypatch.setattr(topic_connection, "check_same", fails)
    with capture_logs() as lines:
        async with following(options_of(kafka)):
            await until(lambda: any(line["event"] == "quota_topic_lost" for line in lines))
            assert looks == 12


# What others write ------------------------------------------------------------------------------------------


async def write_batch(kafka: KafkaNode, topic: str, names: list[bytes]) -> None:
    """One batch, a record of u0, u1 … each, with a header of four bytes' name."""
    builder = _DefaultRecordBatchBuilderPy(2, 0, 0, -1, -1, 0, 1_000_000)
    for number in range(len(names)):
        key, value = key_of(QuotaEntity(f"u{number}")), b'{"producer_byte_rate":5}'
        assert builder.append(number, None, key, value, [(f"{number:04}", b"")])
    text = bytes(builder.build())
    for number, name in enumerate(names):
        text = text.replace(b"\x08%04d" % number, b"\x08" + name)
    text = text[:17] + struct.pack(">I", calc_crc32c(text[21:])) + text[21:]
    client = AIOKafkaClient(bootstrap_servers=kafka.bootstrap)
    await client.bootstrap()
    try:
        await client.set_topics([topic])
        leader = client.cluster.leader_for_partition(TopicPartition(topic, 0))
        request = ProduceRequest(
            required_acks=-1, timeout=10_000, topics=[(topic, [(0, text)])], transactional_id=None
        )
        answer = await client.send(leader, request)
        assert answer.topics[0][1][0][1] == 0
    finally:
        await client.close()


async def test_a_header_name_that_is_no_utf8_costs_its_own_record_alone(kafka: KafkaNode) -> None:
    options = options_of(kafka)
    names = [b"\xff\xfe\xfd\xfc" if number in {60, 61, 299} else b"fine" for number in range(300)]
    wanted = {QuotaEntity(f"u{number}") for number in range(300)} - {
        QuotaEntity(f"u{number}") for number in (60, 61, 299)
    }
    with capture_logs() as lines:
        async with following(options) as one:
            assert await set_rate(one, "before", 1.0) == 0
            await write_batch(kafka, options.name, names)
            assert await set_rate(one, "behind", 1.0) == 0
            assert set(one.entries) == wanted | {QuotaEntity("before"), QuotaEntity("behind")}
            assert one.bad_records == 3
            async with following(options) as two:
                await until(lambda: two.is_followed)
                assert two.entries == one.entries
                assert two.bad_records == 3
                assert await set_rate(two, "u60", 7.0) == 0
                await until(lambda: one.entries == two.entries)
    skipped = [line for line in lines if line["event"] == "quota_record_skipped"]
    assert [(line["partition"], line["offset"], line["about"]) for line in skipped[:3]] == [
        (0, 61, "user 'u60'"),
        (0, 62, "user 'u61'"),
        (0, 300, "user 'u299'"),
    ]
    assert not [line for line in lines if line["event"] == "quota_topic_lost"]


def transaction(kafka: KafkaNode, topic: str, user: str) -> Producer:
    """One that has written, and is open."""
    name = f"quotas-{os.getpid()}-{next(_names)}"
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": name})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, b'{"producer_byte_rate":66}', key_of(QuotaEntity(user)))
    producer.flush(30)
    return producer


async def test_what_a_transaction_wrote_holds_when_it_is_committed_and_never_if_it_was_aborted(
    kafka: KafkaNode,
) -> None:
    options = options_of(kafka)
    async with following(options) as one:
        assert await set_rate(one, "alice", 1.0) == 0
        for user, end in (("aborted", "abort_transaction"), ("committed", "commit_transaction")):
            producer = await asyncio.to_thread(transaction, kafka, options.name, user)
            await asyncio.to_thread(getattr(producer, end), 30)
        await until(lambda: QuotaEntity("committed") in one.entries)
        assert set(one.entries) == {ALICE, QuotaEntity("committed")}
        async with following(options) as two:
            await until(lambda: two.is_followed)
            assert two.entries == one.entries


async def test_a_transaction_that_stays_open_is_told_and_keeps_nobody_waiting_for_ever(
    kafka: KafkaNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic_reader, "_HELD_S", 0.0)
    options = options_of(kafka, request_timeout_s=2.0)
    asked = Alteration((("user", "bob"),), (("producer_byte_rate", 2.0),))
    with capture_logs() as lines:
        async with following(options) as one:
            await until(lambda: one.is_followed)
            await until_set(one, "alice")
            producer = await asyncio.to_thread(transaction, kafka, options.name, "open")
            async with following(options) as two:
                await until(lambda: two.is_followed)
                assert set(two.entries) == {ALICE}
                await until(lambda: any(line["event"] == "quota_topic_held" for line in lines))
                (result,) = await one.alter([asked], validate_only=False, by="tester")
                assert result.code == 7
                assert "another tool's transaction is open since offset 1" in str(result.message)
                await asyncio.to_thread(producer.abort_transaction, 30)
                await until(lambda: set(one.entries) == set(two.entries) == {ALICE, QuotaEntity("bob")})
