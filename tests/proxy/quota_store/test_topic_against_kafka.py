"""The quota topic at a real broker: logins, what cannot be used, what others write into it, deletion."""

from __future__ import annotations

import asyncio
import json
import os
import threading
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from aiokafka.conn import AIOKafkaConnection
from aiokafka.protocol.metadata import MetadataRequest_v5
from confluent_kafka import OFFSET_END, KafkaError, KafkaException, Producer
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from kafka import KafkaProducer
from structlog.testing import capture_logs

from sluice.protocol.apis import METADATA
from sluice.proxy.config.quotas import QuotaTopicOptions
from sluice.proxy.kafka_client.clients import topic_id
from sluice.proxy.quota_store import topic_answers, topic_connection
from sluice.proxy.quota_store.audit import QuotaAudit
from sluice.proxy.quota_store.client_quotas import NO_SHADOW, Alteration, Outcome, QuotaApiError, alter
from sluice.proxy.quota_store.topic import QuotaTopic
from sluice.proxy.quota_store.topic_connection import IdDesk
from sluice.proxy.quota_store.topic_records import Stored
from sluice.proxy.session.own_topic.own_topic import OwnTopic
from sluice.quotas.entity import QuotaEntity
from testkit.clients.kafka_records import create_topic
from testkit.kafka.node import KafkaNode
from testkit.processes.waiting import wait_until
from testkit.proxy.local_proxy import until

pytestmark = [pytest.mark.asyncio, pytest.mark.kafka]
ALICE = QuotaEntity("alice")
_names = count(1)


def options_of(kafka: KafkaNode, **more: Any) -> QuotaTopicOptions:
    name = f"quotas-{os.getpid()}-{next(_names)}"
    # Far more than a busy broker needs: a request that is given up is told as a topic that is lost.
    options: dict[str, Any] = {"bootstrap": (kafka.bootstrap,), "name": name, "request_timeout_s": 30.0}
    return QuotaTopicOptions(**{**options, **more})


@asynccontextmanager
async def following(
    options: QuotaTopicOptions, known: Mapping[QuotaEntity, Stored] | None = None, known_id: bytes = b""
) -> AsyncIterator[QuotaTopic]:
    topic = QuotaTopic(options, QuotaAudit(), lambda: None, lambda _: None, known, known_id)
    task = asyncio.ensure_future(topic.run())
    try:
        yield topic
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        await asyncio.sleep(0.2)  # its clients are closed beside


async def set_rate(topic: QuotaTopic, user: str, rate: float | None) -> int:
    asked = Alteration((("user", user),), (("producer_byte_rate", rate),))
    (result,) = await topic.alter([asked], validate_only=False, by="tester")
    return result.code


def write(kafka: KafkaNode, options: QuotaTopicOptions, user: str, limits: Mapping[str, Any] | None) -> None:
    """As another tool would."""
    producer = KafkaProducer(bootstrap_servers=kafka.bootstrap)
    key = json.dumps({"user": user}, separators=(",", ":")).encode()
    producer.send(options.name, key=key, value=None if limits is None else json.dumps(limits).encode()).get(
        30
    )
    producer.close()


async def test_two_that_follow_one_topic_know_the_same(kafka: KafkaNode) -> None:
    options = options_of(kafka)
    async with following(options) as one, following(options) as two:
        assert await set_rate(one, "alice", 5.0) == 0
        assert one.entries == {ALICE: Stored({"producer_byte_rate": 5})}
        await until(lambda: two.entries == one.entries)
        assert await set_rate(two, "alice", None) == 0
        await until(lambda: not one.entries)
        assert one.topic_id == two.topic_id
        assert len(one.topic_id) == 16


async def test_a_limit_in_shadow_mode_is_in_force_once_it_is_set(kafka: KafkaNode) -> None:
    """As who sets it by kafka-configs expects, to whom nothing was told of it; what he does not set stays."""
    options = options_of(kafka)
    both = {"producer_byte_rate": 5, "consumer_byte_rate": 7}
    async with following(options) as one, following(options) as two:
        assert await set_rate(one, "bob", 1.0) == 0  # so that the topic is there
        shadow = sorted(both)
        await asyncio.to_thread(write, kafka, options, "alice", {**both, "shadow": shadow})
        await until(lambda: one.entries.get(ALICE) == Stored(both, frozenset(shadow)))
        assert await set_rate(one, "alice", 5.0) == 0
        assert one.entries[ALICE] == Stored(both, frozenset({"consumer_byte_rate"}))
        await until(lambda: two.entries == one.entries)


async def test_many_entities_are_altered_at_once(kafka: KafkaNode) -> None:
    asked = [Alteration((("user", f"u{number}"),), (("producer_byte_rate", 5.0),)) for number in range(250)]
    wrong = Alteration((("user", "wrong"),), (("producer_byte_rate", -5.0),))
    options = options_of(kafka)
    async with following(options) as one, following(options) as two:
        results = await one.alter([*asked, wrong], validate_only=False, by="tester")
        assert [result.code for result in results] == [0] * 250 + [42]
        assert len(one.entries) == 250
        await until(lambda: two.entries == one.entries)


async def test_what_another_writes_while_an_alteration_is_thought_about_is_kept(
    kafka: KafkaNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many alterations are worked out in a thread; meanwhile one of their entities gets another limit."""
    go_on = threading.Event()

    def slowly(
        entries: Mapping[QuotaEntity, Mapping[str, float]],
        asked: Sequence[Alteration],
        shadow: Mapping[QuotaEntity, frozenset[str]] = NO_SHADOW,
        *,
        anew: bool = False,
    ) -> Outcome:
        outcome = alter(entries, asked, shadow, anew=anew)
        if len(asked) > 100:
            assert go_on.wait(20)
        return outcome

    monkeypatch.setattr(topic_answers, "alter", slowly)
    users = ["alice", *(f"u{number}" for number in range(100))]
    asked = [Alteration((("user", user),), (("producer_byte_rate", 5.0),)) for user in users]
    options = options_of(kafka)
    async with following(options) as one, following(options) as two:
        await set_rate(two, "alice", 1.0)
        await until(lambda: ALICE in one.entries)
        altering = asyncio.ensure_future(one.alter(asked, validate_only=False, by="tester"))
        await asyncio.sleep(0.1)
        other = Alteration((("user", "alice"),), (("consumer_byte_rate", 7.0),))
        assert [each.code for each in await two.alter([other], validate_only=False, by="tester")] == [0]
        await until(lambda: one.entries == two.entries)
        go_on.set()
        assert {result.code for result in await altering} == {0}
        both = Stored({"producer_byte_rate": 5, "consumer_byte_rate": 7})
        assert one.entries[ALICE] == both
        await until(lambda: two.entries == one.entries)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
async def test_it_logs_in(kafka: KafkaNode, tmp_path: Path, mechanism: str) -> None:
    file = tmp_path / "credentials.yaml"
    file.write_text("service: {username: alice, password: alice-secret}")
    options = options_of(
        kafka,
        bootstrap=(kafka.bootstrap_sasl,),
        security_protocol="SASL_PLAINTEXT",
        sasl={"mechanism": mechanism, "credentials_file": file},
    )
    async with following(options) as topic:
        assert await set_rate(topic, "bob", 7.0) == 0


async def test_what_another_tool_writes_holds(kafka: KafkaNode) -> None:
    options = options_of(kafka)
    async with following(options) as topic:
        await until(lambda: topic.is_followed)
        await asyncio.to_thread(write, kafka, options, "alice", {"producer_byte_rate": 5})
        await until(lambda: ALICE in topic.entries)
        assert await set_rate(topic, "alice", 6.0) == 0
        await asyncio.to_thread(write, kafka, options, "alice", None)
        await until(lambda: ALICE not in topic.entries)


async def test_of_whom_only_a_bad_record_is_there_keeps_what_the_copy_knows(kafka: KafkaNode) -> None:
    options = options_of(kafka)
    async with following(options) as topic:
        await until(lambda: topic.is_followed)
    await asyncio.to_thread(write, kafka, options, "alice", {"producer_byte_rate": -5})
    known = {ALICE: Stored({"producer_byte_rate": 5}), QuotaEntity("gone"): Stored({"producer_byte_rate": 1})}
    async with following(options, known) as topic:
        await until(lambda: topic.is_followed)
        assert topic.entries == {ALICE: Stored({"producer_byte_rate": 5})}
        assert topic.bad_records == 1


@pytest.mark.parametrize(
    ("partitions", "config", "reason"),
    [
        (3, {"cleanup.policy": "compact"}, "3 partitions; it must have one"),
        (1, {}, "cleanup.policy=delete; it must be compact"),
        (1, {"cleanup.policy": "compact,delete"}, "it must be compact"),
    ],
)
async def test_a_topic_that_would_lose_quotas_is_not_used(
    kafka: KafkaNode, partitions: int, config: dict[str, str], reason: str
) -> None:
    options = options_of(kafka, request_timeout_s=1.0)
    await asyncio.to_thread(create_topic, kafka, options.name, partitions, config=config)
    await asyncio.to_thread(write, kafka, options, "alice", {"producer_byte_rate": 5})
    with capture_logs() as lines:
        async with following(options) as topic:
            lost = "quota_topic_lost"
            await until(lambda: any(line["event"] == lost and reason in line["reason"] for line in lines))
            assert not topic.is_followed
            with pytest.raises(QuotaApiError, match="cannot be reached"):
                await set_rate(topic, "alice", 5.0)


async def test_an_empty_topic_is_made_compacted(kafka: KafkaNode) -> None:
    options = options_of(kafka)
    await asyncio.to_thread(create_topic, kafka, options.name, 1)
    async with following(options) as topic:
        assert await set_rate(topic, "alice", 5.0) == 0
    async with following(options) as topic:
        await until(lambda: topic.is_followed)
        assert ALICE in topic.entries


async def test_a_topic_that_is_deleted_is_made_anew(kafka: KafkaNode) -> None:
    options = options_of(kafka)
    async with following(options) as topic:
        assert await set_rate(topic, "alice", 5.0) == 0
        first = topic.topic_id
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
        await asyncio.to_thread(admin.delete_topics([options.name])[options.name].result, 30)
        await until(lambda: topic.topic_id != first and topic.is_followed, 60)
        assert not topic.entries
        assert await set_rate(topic, "bob", 6.0) == 0


async def test_no_client_of_ours_has_a_broker_make_a_topic_by_asking_for_it(
    kafka: KafkaNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With its own number of partitions: one that was deleted then came back as one that is refused."""
    asked: list[Any] = []
    send = AIOKafkaConnection.send

    def sent(connection: Any, request: Any, *more: Any, **others: Any) -> Any:
        if request.API_KEY == METADATA:
            asked.append(request)
        return send(connection, request, *more, **others)

    monkeypatch.setattr(AIOKafkaConnection, "send", sent)
    async with following(options_of(kafka)) as topic:
        assert await set_rate(topic, "alice", 5.0) == 0
    of_libraries = [each.build(MetadataRequest_v5) for each in asked if hasattr(each, "build")]
    assert of_libraries
    assert not any(each.allow_auto_topic_creation for each in of_libraries)


async def test_a_topic_that_may_lose_quotas_from_now_on_is_not_followed_any_more(
    kafka: KafkaNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic_connection, "_LOOK_S", 0.1)
    options = options_of(kafka, request_timeout_s=3.0)
    with capture_logs() as lines:
        async with following(options) as topic:
            await until(lambda: topic.is_followed)
            assert await set_rate(topic, "alice", 5.0) == 0
            await asyncio.to_thread(set_config, kafka, options.name, "cleanup.policy", "delete")
            await until(lambda: not topic.is_followed)
            with pytest.raises(QuotaApiError, match="must be compact"):
                await set_rate(topic, "alice", 6.0)
            assert topic.entries == {ALICE: Stored({"producer_byte_rate": 5})}
            await asyncio.to_thread(set_config, kafka, options.name, "cleanup.policy", "compact")
            await until(lambda: topic.is_followed)
    assert any("must be compact" in line.get("reason", "") for line in lines)


async def test_of_a_topic_that_has_been_emptied_what_is_in_force_stays_and_can_be_written_again(
    kafka: KafkaNode,
) -> None:
    options = options_of(kafka)
    async with following(options) as topic:
        assert await set_rate(topic, "alice", 5.0) == 0
        known, known_id = dict(topic.entries), topic.topic_id
    await asyncio.to_thread(set_config, kafka, options.name, "cleanup.policy", "delete")
    await asyncio.to_thread(empty, kafka, options.name)
    await asyncio.to_thread(set_config, kafka, options.name, "cleanup.policy", "compact")
    with capture_logs() as lines:
        async with following(options, known, known_id) as topic:
            await until(lambda: topic.is_followed)
            assert topic.entries == known
            assert await set_rate(topic, "alice", 5.0) == 0
            async with following(options) as other:
                await until(lambda: other.is_followed)
                assert other.entries == known
    assert [line["kept"] for line in lines if line["event"] == "quota_topic_emptied"] == [1]


async def test_of_another_topic_that_is_empty_nothing_is_kept(kafka: KafkaNode) -> None:
    options = options_of(kafka)
    known = {ALICE: Stored({"producer_byte_rate": 5})}
    async with following(options, known, b"another topic ID") as topic:
        await until(lambda: topic.is_followed)
        assert not topic.entries


@pytest.mark.parametrize("codec", ["snappy", "lz4", "zstd", "gzip"])
async def test_what_another_tool_compressed_is_read_and_the_broker_compresses_nothing_itself(
    kafka: KafkaNode, codec: str
) -> None:
    options = options_of(kafka)
    async with following(options) as topic:
        assert await set_rate(topic, "alice", 5.0) == 0
        producer = Producer({"bootstrap.servers": kafka.bootstrap, "compression.type": codec})
        value = b'{"producer_byte_rate":5' + b" " * 800 + b"}"
        producer.produce(options.name, value, b'{"user":"bob"}')
        await asyncio.to_thread(producer.flush, 30)
        await until(lambda: QuotaEntity("bob") in topic.entries)
    (told,) = (await asyncio.to_thread(configs_of, kafka, options.name)).values()
    compression = told["compression.type"]
    assert (compression.value, compression.is_default) == ("producer", False)


async def test_the_brokers_name_the_ids_that_clients_have_used(kafka: KafkaNode) -> None:
    options, other = options_of(kafka), options_of(kafka).name
    await asyncio.to_thread(create_topic, kafka, other, 1)
    own = OwnTopic(options.name, frozenset())
    async with following(options) as topic:
        await until(lambda: topic.is_followed)
        assert topic.client is not None
        found = await topic_id(topic.client, other)
        assert found
        ids = (found, topic.topic_id, b"nobody's id, yet")
        assert {own.error_of(each) for each in ids} == {100}
        desk = asyncio.ensure_future(IdDesk(own, lambda: topic.client).run())
        try:
            assert {own.error_of(each) for each in ids} == {100}
            await until(lambda: not own.wanted and own.own_ids == (topic.topic_id,))
        finally:
            desk.cancel()
        assert [own.error_of(each) for each in ids] == [0, 29, 100]


def set_config(kafka: KafkaNode, topic: str, name: str, value: str) -> None:
    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    (done,) = admin.incremental_alter_configs([resource]).values()
    done.result(30)


def empty(kafka: KafkaNode, topic: str) -> None:
    """Of a topic that may forget, which the broker knows a moment after its controller has said so."""
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})

    def is_emptied() -> bool:
        (emptied,) = admin.delete_records([KafkaPartition(topic, 0, OFFSET_END)]).values()
        try:
            emptied.result(30)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.POLICY_VIOLATION:
                raise
            return False
        return True

    wait_until(is_emptied, within_s=30.0)


def configs_of(kafka: KafkaNode, topic: str) -> Any:
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    return {each: told.result(30) for each, told in admin.describe_configs([resource]).items()}


async def test_while_no_broker_is_there_what_is_known_stays() -> None:
    options = QuotaTopicOptions(bootstrap=("127.0.0.1:1",), request_timeout_s=1.0)
    known = {ALICE: Stored({"producer_byte_rate": 5})}
    with capture_logs() as lines:
        async with following(options, known) as topic:
            await until(lambda: sum(line["event"] == "quota_topic_lost" for line in lines) >= 2)
            assert topic.entries == known
            assert topic.is_known
            assert not topic.is_followed
    pauses = [line["again_in_s"] for line in lines if line["event"] == "quota_topic_lost"]
    assert pauses[1] == 2 * pauses[0]
