"""Principals as the proxy sees them pass: whoever the broker says yes to is charged, and nobody else."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet
from confluent_kafka import KafkaError

from testkit.clients.client_security import Login, Security
from testkit.clients.kafka_clients import (
    AIOKAFKA,
    CLIENTS,
    CONFLUENT,
    KAFKA_PYTHON,
    Client,
    Options,
    confluent_producer,
)
from testkit.clients.kafka_records import Record, assert_exactly, await_stored, create_topic, numbered, stored
from testkit.frames.frames import METADATA, SASL_AUTHENTICATE, SASL_HANDSHAKE, decoded, request
from testkit.frames.load_frames import produce_request, record_batch
from testkit.frames.wire import Wire, dial
from testkit.kafka.java_tools import run_tool
from testkit.kafka.node import KafkaNode
from testkit.kafka.sasl_clients import java_client_properties, write_properties
from testkit.proxy.sluice_process import SluiceProcess

Unique = Callable[[str], str]
DOOR = "SLUICE_SASL"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
PLENTY = 1e9
RECORDS = numbered(1000)
PAYLOAD_BYTES = sum(len(record.value) for record in RECORDS)


def login_of(kafka: KafkaNode, mechanism: str, user: str = "alice") -> Security:
    return Security(Login(mechanism, user, kafka.users.get(user, "")))


def charged(sluice: SluiceProcess, user: str, quota: str = "produce") -> float:
    return sluice.metric("sluice_quota_bytes_total", quota=quota, user=user)


# Whom the broker says yes to --------------------------------------------------------------------------------


def mechanisms_and_clients() -> Iterator[ParameterSet]:
    """All of it; some, in which each of both occurs, are not marked long."""
    some = {
        ("PLAIN", AIOKAFKA),
        ("SCRAM-SHA-256", CONFLUENT),
        ("SCRAM-SHA-512", KAFKA_PYTHON),
        ("OAUTHBEARER", CONFLUENT),
    }
    for mechanism, client in product(MECHANISMS, CLIENTS):
        marks = [] if (mechanism, client) in some else [pytest.mark.long]
        yield pytest.param(client, mechanism, marks=marks, id=f"{mechanism}-{client.name}")


@pytest.mark.parametrize(("client", "mechanism"), list(mechanisms_and_clients()))
def test_who_logged_in_is_charged_for_what_he_produces_and_consumes(
    kafka: KafkaNode, sluice: SluiceProcess, unique: Unique, client: Client, mechanism: str
) -> None:
    topic = create_topic(kafka, unique("topic"))
    sluice.set_quotas(
        *({"user": user, "producer_byte_rate": PLENTY, "consumer_byte_rate": PLENTY} for user in kafka.users)
    )
    before = {quota: charged(sluice, "alice", quota) for quota in ("produce", "fetch")}
    bob_before = charged(sluice, "bob")
    options = Options(security=login_of(kafka, mechanism))
    client.produce(sluice.bootstrap(DOOR), topic, RECORDS, options)
    found = client.consume(sluice.bootstrap(DOOR), topic, unique("group"), len(RECORDS), options)
    assert_exactly(RECORDS, found)
    for quota, count in before.items():
        assert PAYLOAD_BYTES < charged(sluice, "alice", quota) - count < 2 * PAYLOAD_BYTES
    assert charged(sluice, "bob") == bob_before


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-512", "OAUTHBEARER"])
def test_who_logged_in_with_a_java_client_is_charged(
    kafka: KafkaNode, sluice: SluiceProcess, unique: Unique, tmp_path: Path, mechanism: str
) -> None:
    topic = create_topic(kafka, unique("topic"))
    sluice.set_quotas({"user": "alice", "producer_byte_rate": PLENTY})
    before = charged(sluice, "alice")
    properties = java_client_properties(mechanism, "alice", kafka.users["alice"])
    run_tool(
        kafka.dist,
        "producer-perf-test",
        *("--bootstrap-server", sluice.bootstrap(DOOR), "--topic", topic, "--num-records", "1000"),
        *("--record-size", "200", "--throughput", "-1"),
        "--command-config",
        write_properties(tmp_path / "login", properties),
    )
    assert len(await_stored(kafka, topic, 1000)) == 1000
    assert charged(sluice, "alice") - before > 200_000


# Whom it does not say yes to --------------------------------------------------------------------------------


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_wrong_password_makes_nobody_a_principal(
    kafka: KafkaNode, sluice: SluiceProcess, unique: Unique, mechanism: str
) -> None:
    topic = create_topic(kafka, unique("topic"))
    sluice.set_quotas({"user": "alice", "producer_byte_rate": PLENTY, "consumer_byte_rate": PLENTY})
    before = charged(sluice, "alice")
    told: list[KafkaError] = []
    options = Options(security=Security(Login(mechanism, "alice", "wrong")))
    producer = confluent_producer(sluice.bootstrap(DOOR), options, error_cb=told.append)
    producer.produce(topic, b"x")
    sluice.wait_until(
        lambda: producer.poll(0.1) >= 0 and any(e.code() == KafkaError._AUTHENTICATION for e in told),
        "told so",
    )
    producer.purge()
    assert stored(kafka, topic) == []
    assert charged(sluice, "alice") == before


@pytest.mark.asyncio
@pytest.mark.parametrize("handshake_version", [0, 1])
async def test_after_a_wrong_password_nothing_passes(
    kafka: KafkaNode, sluice: SluiceProcess, unique: Unique, handshake_version: int
) -> None:
    topic = create_topic(kafka, unique("topic"), 1)
    before = charged(sluice, "alice")
    with await dial(sluice.doors[DOOR].port) as client:
        await handshake(client, handshake_version)
        frame = bytes(produce_request("app", topic, record_batch(b"x")))
        await client.send(token(handshake_version, "alice", "wrong") + frame)
        rest, _ = await client.rest()
        # With v1 the broker says no in an answer, with v0 it just closes.
        assert bool(rest) is (handshake_version == 1)
    assert stored(kafka, topic) == []
    assert charged(sluice, "alice") == before


@pytest.mark.asyncio
async def test_before_the_login_nothing_passes(
    kafka: KafkaNode, sluice: SluiceProcess, unique: Unique
) -> None:
    topic = create_topic(kafka, unique("topic"), 1)
    refused = sluice.disconnects("authentication_failed")
    with await dial(sluice.doors[DOOR].port) as client:
        await client.send(bytes(produce_request("app", topic, record_batch(b"x"))))
        assert await client.end() == "closed"
    assert sluice.disconnects("authentication_failed") == refused + 1
    assert stored(kafka, topic) == []


# The wire ---------------------------------------------------------------------------------------------------


async def handshake(client: Wire, version: int) -> None:
    await client.send(request(SASL_HANDSHAKE, version, {"mechanism": "PLAIN"}))
    answer = decoded("response", SASL_HANDSHAKE, version, await client.frame())
    assert answer.body["errorCode"] == 0


def token(handshake_version: int, user: str, password: str) -> bytes:
    """After a handshake v0 the token is sent bare, after v1 in a SaslAuthenticate request."""
    plain = f"\0{user}\0{password}".encode()
    if handshake_version == 0:
        return struct.pack(">i", len(plain)) + plain
    return request(SASL_AUTHENTICATE, 2, {"authBytes": plain.hex()})


@pytest.mark.asyncio
@pytest.mark.parametrize("handshake_version", [0, 1])
async def test_both_ways_to_shake_hands_make_a_principal(
    kafka: KafkaNode, sluice: SluiceProcess, unique: Unique, handshake_version: int
) -> None:
    topic = create_topic(kafka, unique("topic"), 1)
    sluice.set_quotas({"user": "carol", "producer_byte_rate": PLENTY})
    before = charged(sluice, "carol")
    frame = bytes(produce_request("app", topic, record_batch(b"v" * 5000)))
    with await dial(sluice.doors[DOOR].port) as client:
        await handshake(client, handshake_version)
        await client.send(token(handshake_version, "carol", kafka.users["carol"]))
        await client.frame()
        await client.send(request(METADATA, 12))
        assert decoded("response", METADATA, 12, await client.frame()).body["brokers"]
        await client.send(frame)
        await client.frame()
    assert [record.value for record in stored(kafka, topic)] == [b"v" * 5000]
    assert charged(sluice, "carol") - before == len(frame)


# Buckets ----------------------------------------------------------------------------------------------------

QUOTA_BYTES_PER_S = 150_000
THROTTLED = numbered(750, size_bytes=1_000)
"""a burst of 1 s, and 4 s of quota"""


def seconds_to_produce(
    kafka: KafkaNode,
    sluice: SluiceProcess,
    topic: str,
    records: Sequence[Record],
    user: str,
    client_id: str,
    mechanism: str,
) -> float:
    options = Options(client_id=client_id, security=login_of(kafka, mechanism, user))
    begun_s = time.monotonic()
    CONFLUENT.produce(sluice.bootstrap(DOOR), topic, records, options)
    return time.monotonic() - begun_s


def test_two_users_with_the_same_client_id_have_a_bucket_each(
    kafka: KafkaNode, sluice: SluiceProcess, unique: Unique
) -> None:
    topics = [create_topic(kafka, unique("topic")) for _ in range(2)]
    client_id = unique("app")
    sluice.set_quotas({"user": "<default>", "client-id": client_id, "producer_byte_rate": QUOTA_BYTES_PER_S})
    with ThreadPoolExecutor(2) as pool:
        work = [
            pool.submit(seconds_to_produce, kafka, sluice, topic, THROTTLED, user, client_id, "SCRAM-SHA-256")
            for topic, user in zip(topics, ("alice", "bob"), strict=True)
        ]
        took_s = [done.result() for done in work]
    # 4 s for each; had they shared one, the two together would have taken 9 s.
    assert all(3.0 < seconds < 8.0 for seconds in took_s), took_s
    for topic in topics:
        assert_exactly(THROTTLED, stored(kafka, topic))


@pytest.mark.long
def test_one_user_has_one_bucket_however_he_logs_in_and_whatever_his_clients_are_called(
    kafka: KafkaNode, sluice: SluiceProcess, unique: Unique
) -> None:
    topics, records = [create_topic(kafka, unique("topic")) for _ in range(2)], THROTTLED[:500]
    sluice.set_quotas({"user": "bob", "producer_byte_rate": QUOTA_BYTES_PER_S})
    with ThreadPoolExecutor(2) as pool:
        work = [
            pool.submit(seconds_to_produce, kafka, sluice, topic, records, "bob", unique("app"), mechanism)
            for topic, mechanism in zip(topics, ("PLAIN", "OAUTHBEARER"), strict=True)
        ]
        took_s = [done.result() for done in work]
    # 5.7 s for the two together; each with a bucket of its own would have taken 2.3 s.
    assert 4.5 < max(took_s) < 9.0, took_s
