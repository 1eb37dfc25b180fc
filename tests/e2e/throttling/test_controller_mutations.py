"""Topics created, grown and deleted above controller_mutation_rate: a real broker's own quota, and Sluice's.

The same frames at the broker, which has the quota in one run, and at the proxy, which has it in the other:
the same topics are taken and refused. Then Kafka's Admin and librdkafka's, as people use them.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import TypeAlias, cast

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from kafka import KafkaAdminClient
from kafka.admin import NewTopic as PythonTopic
from kafka.errors import ThrottlingQuotaExceededError

from sluice.protocol.codec.wire import Struct, Value
from testkit.clients.java_client import java_admin, java_new_topic
from testkit.clients.kafka_clients import Options
from testkit.frames.frames import decoded, request
from testkit.frames.mutation_frames import CREATE_PARTITIONS, CREATE_TOPICS, DELETE_TOPICS, REFUSED, errors_in
from testkit.kafka.node import KafkaNode
from testkit.processes.ports import LOOPBACK, free_port
from testkit.processes.waiting import wait_until
from testkit.proxy.sluice_process import Door, SluiceProcess

Results: TypeAlias = list[tuple[str | None, int]]
Step: TypeAlias = tuple[str, Results]
Unique = Callable[[str], str]
KEY = "controller_mutation_rate"
ALTER_CLIENT_QUOTAS = 49


def ask(address: tuple[str, int], api_key: int, version: int, body: Struct, client_id: str) -> bytes:
    """One request on a connection of its own, for a refused one is muted for long. Returns the answer."""
    with closing(socket.create_connection(address, timeout=30)) as connection:
        connection.sendall(request(api_key, version, body, client_id=client_id))
        with connection.makefile("rb") as stream:
            size = stream.read(4)
            return size + stream.read(int.from_bytes(size, "big"))


class Place:
    """A broker, by a door; and topics that are this place's alone."""

    def __init__(self, address: tuple[str, int], client_id: str, prefix: str) -> None:
        self._address = address
        self._client_id = client_id
        self._prefix = prefix

    def ask(self, api_key: int, version: int, body: Struct) -> tuple[Results, float]:
        frame = ask(self._address, api_key, version, body, self._client_id)
        throttle_ms = cast(int, decoded("response", api_key, version, frame).body["throttleTimeMs"])
        told = errors_in(api_key, version, frame)
        names = [
            (None if name is None else name.removeprefix(self._prefix), error) for name, error in told.items()
        ]
        return sorted(names, key=str), throttle_ms

    def create(
        self, topics: dict[str, int], *, version: int = 7, validate_only: bool = False
    ) -> tuple[Results, float]:
        values: list[Value] = [
            {"name": self._prefix + name, "numPartitions": count, "replicationFactor": 1}
            for name, count in topics.items()
        ]
        return self.ask(
            CREATE_TOPICS, version, {"topics": values, "timeoutMs": 20_000, "validateOnly": validate_only}
        )

    def delete(self, *topics: str, version: int = 6) -> tuple[Results, float]:
        names: list[Value] = [self._prefix + name for name in topics]
        body: Struct = {"timeoutMs": 20_000}
        body |= {"topics": [{"name": name} for name in names]} if version >= 6 else {"topicNames": names}
        return self.ask(DELETE_TOPICS, version, body)

    def grow(
        self,
        topics: dict[str, int],
        *,
        version: int = 3,
        by_hand: int | None = None,
        validate_only: bool = False,
    ) -> tuple[Results, float]:
        """`by_hand`: so many of the new partitions are assigned to the broker."""
        brokers: list[Value] = [{"brokerIds": [1]}] * (by_hand or 0)
        values: list[Value] = [
            {"name": self._prefix + name, "count": count, "assignments": None if by_hand is None else brokers}
            for name, count in topics.items()
        ]
        return self.ask(
            CREATE_PARTITIONS,
            version,
            {"topics": values, "timeoutMs": 20_000, "validateOnly": validate_only},
        )


def native_of(kafka: KafkaNode) -> tuple[str, int]:
    host, port = kafka.bootstrap.split(":")
    return host, int(port)


def set_broker_quota(kafka: KafkaNode, client_id: str, rate: float) -> None:
    """At the broker itself; returns when its controller goes by it, some time after it has answered."""
    _set_broker_quota(kafka, client_id, rate)
    looks = f"looks-at-{client_id}"
    _set_broker_quota(kafka, looks, 1e-3)  # told after it, and so in force after it
    look = Place(native_of(kafka), looks, looks + "-")
    wait_until(lambda: look.create({"x": 60}, validate_only=True)[0] == [("x", REFUSED)], within_s=30.0)


def _set_broker_quota(kafka: KafkaNode, client_id: str, rate: float) -> None:
    op: Struct = {"key": KEY, "value": rate, "remove": False}
    entry: Struct = {"entity": [{"entityType": "client-id", "entityName": client_id}], "ops": [op]}
    frame = ask(native_of(kafka), ALTER_CLIENT_QUOTAS, 1, {"entries": [entry]}, "operator")
    (told,) = cast("list[Struct]", decoded("response", ALTER_CLIENT_QUOTAS, 1, frame).body["entries"])
    assert told["errorCode"] == 0


def story(place: Place) -> tuple[list[Step], list[float]]:
    """1 partition a second: 11 at first. What is taken and refused, and in which second all is paid."""
    told: list[Step] = []
    paid_s: list[float] = []
    begun_s = time.monotonic()

    def note(step: str, outcome: tuple[Results, float]) -> None:
        errors, throttle_ms = outcome
        told.append((step, errors))
        paid_s.append(time.monotonic() - begun_s + throttle_ms / 1000.0 if throttle_ms else 0.0)

    note("more than there is, topic by topic", place.create({"a": 9, "b": 3, "c": 1, "d": 1}))
    time.sleep(1.5)
    note("nothing is owed: whatever its size", place.create({"e": 60}))
    note("a debt refuses creation", place.create({"f": 1}))
    note("an existing topic has an error of its own", place.create({"a": 1, "f": 1}))
    note("a debt refuses deletion", place.delete("a", "b"))
    note("a debt refuses deletion by older clients, as of v5", place.delete("a", version=5))
    note("an unknown topic has an error of its own", place.delete("none"))
    note("a debt refuses growth", place.grow({"a": 10}))
    note("growth to what is there has an error of its own", place.grow({"a": 9, "b": 4}))
    note("so has an assignment that does not fit", place.grow({"a": 12}, by_hand=2))
    note("one that fits is refused by the debt", place.grow({"a": 11}, by_hand=2))
    note("names and numbers that cannot be have theirs", place.create({"b%": 1, "h": 0, "h" * 240: 1}))
    note("older clients are served", place.create({"g": 1}, version=5))
    note("older clients are served", place.grow({"g": 3}, version=2))
    note("older clients are served", place.delete("g", version=4))
    return told, paid_s


@pytest.mark.long
def test_the_same_topics_are_taken_and_refused_as_by_the_brokers_own_quota(
    kafka: KafkaNode, sluice: SluiceProcess, unique: Unique
) -> None:
    native, proxied = unique("native"), unique("proxied")
    sluice.set_quotas({"client-id": proxied, KEY: 1})
    set_broker_quota(kafka, native, 1)
    host, port = sluice.bootstrap().split(":")
    here, here_s = story(Place((host, int(port)), proxied, proxied + "-"))
    there, there_s = story(Place(native_of(kafka), native, native + "-"))
    assert here == there
    assert ("a debt refuses creation", [("f", REFUSED)]) in here
    # Older clients' requests wait here, 8 s each, and are served at once there: the debt is the same.
    assert here_s == pytest.approx(there_s, abs=10)
    assert max(here_s[3:]) > 30


def whether_it_could(place: Place) -> list[Step]:
    """1 partition a second: 11 at first. Requests that only ask whether they could be done."""
    told: list[Step] = [("a size", place.create({"y": 2})[0])]
    time.sleep(1.0)  # so that all brokers know of it
    told.append(("61 partitions could be created", place.create({"x": 61}, validate_only=True)[0]))
    told.append(("nor may one be asked about then", place.create({"x": 1}, validate_only=True)[0]))
    told.append(("or created", place.create({"x": 1})[0]))
    told.append(("or grown", place.grow({"y": 3}, validate_only=True)[0]))
    return told


def test_validate_only_is_charged_and_refused_as_by_the_brokers_own_quota(
    kafka: KafkaNode, sluice: SluiceProcess, unique: Unique
) -> None:
    """61 where 9 are left pass, for nothing was owed; then the broker's controller refuses, too."""
    native, proxied = unique("native"), unique("proxied")
    sluice.set_quotas({"client-id": proxied, KEY: 1})
    set_broker_quota(kafka, native, 1)
    host, port = sluice.bootstrap().split(":")
    there = whether_it_could(Place(native_of(kafka), native, native + "-"))
    assert whether_it_could(Place((host, int(port)), proxied, proxied + "-")) == there
    assert [errors for _, errors in there] == [
        [("y", 0)],
        [("x", 0)],
        [("x", REFUSED)],
        [("x", REFUSED)],
        [("y", REFUSED)],
    ]


@pytest.mark.long
def test_older_clients_with_a_connection_for_each_request_pass_the_rate_and_no_more(
    sluice: SluiceProcess, unique: Unique
) -> None:
    """CreateTopics v4, 1 partition each, by 8 clients for 10 s: 2 a second, 22 at first, and one on credit.

    (With a mute of the connection alone, which is gone then, more than 20 a second passed.)
    """
    client_id, clients, run_s = unique("client"), 8, 10.0
    sluice.set_quotas({"client-id": client_id, KEY: 2})
    host, port = sluice.bootstrap().split(":")
    begun_s = time.monotonic()

    def create_on_and_on(number: int) -> int:
        place = Place((host, int(port)), client_id, f"{client_id}-{number}-")
        for made in range(1_000):
            if time.monotonic() - begun_s > run_s:
                return made
            assert place.create({str(made): 1}, version=4)[0] == [(str(made), 0)]
        return 1_000

    with ThreadPoolExecutor(clients) as pool:
        made = list(pool.map(create_on_and_on, range(clients)))
    took_s = time.monotonic() - begun_s
    assert 22 + 2 * run_s - clients <= sum(made) <= 22 + 2 * took_s + 1
    assert max(made) - min(made) <= 6, "they take turns"


def test_the_bucket_and_the_brokers_default_are_options(kafka: KafkaNode, unique: Unique) -> None:
    """2 at first; 7 assumed of a topic whose number is the brokers' leave 5 owed (v4 does not tell it)."""
    name = unique("client")
    options = {"window_num": 2, "default_partitions": 7}
    quota = {"client-id": name, KEY: 1}
    door = Door("SLUICE", free_port(), kafka.address("SLUICE"))
    with SluiceProcess([door], quotas=[quota], controller_mutations=options) as sluice:
        errors, throttle_ms = Place((LOOPBACK, door.port), name, name + "-").create({"a": -1}, version=4)
        assert errors == [("a", 0)]
        assert 3_000 < throttle_ms <= 5_000
        assert sluice.metric("sluice_controller_mutations_total", client_id=name) == 7


def test_javas_admin_tries_again_by_itself_and_has_its_topic_in_the_end(
    kafka: KafkaNode, sluice: SluiceProcess, unique: Unique
) -> None:
    """11 at first; 14 owe 3: the second topic comes three seconds later."""
    client_id, first, second = unique("client"), unique("first"), unique("second")
    sluice.set_quotas({"client-id": client_id, KEY: 1})
    before = sluice.metric("sluice_throttled_requests_total", quota="controller_mutation")
    with closing(java_admin(sluice.bootstrap(), Options(client_id=client_id))) as admin:
        begun_s = time.monotonic()
        admin.createTopics(java_new_topic(first, 14)).all().get()
        admin.createTopics(java_new_topic(second, 1)).all().get()
        assert time.monotonic() - begun_s >= 2.5
    native = AdminClient({"bootstrap.servers": kafka.bootstrap})
    # A broker tells of a topic a moment after its controller has made it.
    sluice.wait_until(lambda: {first, second} <= set(native.list_topics(timeout=10).topics), "both there")
    assert sluice.metric("sluice_throttled_requests_total", quota="controller_mutation") > before


def test_librdkafkas_admin_speaks_older_versions_and_waits_after_it_was_served(
    sluice: SluiceProcess, unique: Unique
) -> None:
    """CreateTopics v4 does not know error 89."""
    client_id, first, second = unique("client"), unique("first"), unique("second")
    sluice.set_quotas({"client-id": client_id, KEY: 1})
    admin = AdminClient({"bootstrap.servers": sluice.bootstrap(), "client.id": client_id})
    begun_s = time.monotonic()
    admin.create_topics([NewTopic(first, 14, 1)])[first].result(20)
    assert time.monotonic() - begun_s < 2.5
    admin.create_topics([NewTopic(second, 1, 1)])[second].result(20)
    assert time.monotonic() - begun_s >= 2.5


@pytest.mark.long
def test_kafka_pythons_admin_is_told_and_succeeds_later(sluice: SluiceProcess, unique: Unique) -> None:
    """11 at first; 14 owe 3."""
    client_id, first, second = unique("client"), unique("first"), unique("second")
    sluice.set_quotas({"client-id": client_id, KEY: 1})
    with closing(KafkaAdminClient(bootstrap_servers=sluice.bootstrap(), client_id=client_id)) as admin:
        admin.create_topics([PythonTopic(first, 14, 1)])
        with pytest.raises(ThrottlingQuotaExceededError):
            admin.create_topics([PythonTopic(second, 1, 1)])
        time.sleep(3.5)
        admin.create_topics([PythonTopic(second, 1, 1)])
        time.sleep(1.5)
        admin.delete_topics([first])
        with pytest.raises(ThrottlingQuotaExceededError):
            admin.delete_topics([second])
