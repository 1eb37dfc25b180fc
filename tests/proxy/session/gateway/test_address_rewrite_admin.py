"""What administrators ask through a gateway: configs and the quorum, without an address of a broker."""

from __future__ import annotations

from typing import Any

import pytest

from sluice.protocol._tables import API_NAMES
from sluice.protocol.addresses.addresses import VERSIONS_WITH_ADDRESSES
from sluice.protocol.apis import ApiKey, readable_versions
from sluice.protocol.codec._schemas import REQUESTS
from sluice.protocol.codec.spec_model import Field
from sluice.protocol.codec.wire import Struct, Value
from sluice.protocol.errors import ProtocolError
from sluice.proxy.session.causes import DisconnectCause
from sluice.proxy.session.connection_states import State
from testkit.frames.frames import answer, decoded, request
from testkit.frames.message_values import message_of, versions_of
from testkit.proxy.gateway import REAL, arrives, broker_map, gateway
from testkit.proxy.playbook import Shell, session_of

DESCRIBE_CONFIGS, DESCRIBE_QUORUM = 32, 55
TOPIC, BROKER, BROKER_LOGGER = 2, 4, 8


def asking(*resources: tuple[int, str], version: int = 4) -> bytes:
    every: list[Value] = [{"resourceType": kind, "resourceName": name} for kind, name in resources]
    return request(DESCRIBE_CONFIGS, version, {"resources": every}, correlation_id=7)


def configs(kind: int, name: str, values: Struct, *, version: int = 4) -> bytes:
    entries: list[Value] = [
        {"name": key, "value": value, "synonyms": [{"name": key, "value": value}]}
        for key, value in values.items()
    ]
    result: Struct = {"resourceType": kind, "resourceName": name, "configs": entries}
    return answer(DESCRIBE_CONFIGS, version, {"results": [result]}, correlation_id=7)


OF_A_BROKER: Struct = {
    "advertised.listeners": "CLIENTS://real-1.internal:9092,BETWEEN://between.internal:9094",
    "listeners": "CLIENTS://0.0.0.0:9092,CONTROLLER://real-1.internal:9093",
    "controller.quorum.voters": "1@real-1.internal:9093,2@other.internal:9093",
    "super.users": "User:CN=real-1.internal",
    "log.dirs": "/var/kafka",
    "log.retention.ms": None,
}
AS_SHOWN: Struct = {
    "advertised.listeners": "CLIENTS://gw:9101,BETWEEN://gw:9101",
    "listeners": "CLIENTS://gw:9101,CONTROLLER://gw:9101",
    "controller.quorum.voters": "1@gw:9092,2@gw:9092",
    "super.users": "User:CN=gw",
    "log.dirs": "/var/kafka",
    "log.retention.ms": None,
}


def knowing() -> Shell:
    """A gateway that has heard of broker 1."""
    brokers = broker_map()
    brokers.learn(1, "real-1.internal", 9092)
    return gateway(brokers)


@pytest.mark.parametrize("version", readable_versions(ApiKey.DESCRIBE_CONFIGS))
def test_a_brokers_configs_show_the_gateways_addresses_however_they_arrive(version: int) -> None:
    frame = configs(BROKER, "1", OF_A_BROKER, version=version)
    expected = configs(BROKER, "1", AS_SHOWN, version=version)
    for cuts in ([], [1], [len(frame) // 2], range(0, len(frame), 13)):
        shell = knowing()
        shell.client_sends(asking((BROKER, "1"), version=version))
        assert arrives(shell, frame, cuts) == expected
        assert REAL not in shell.to_client
        assert shell.records[-1].response_bytes == len(frame)


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("0000000009", "gw:9109"),
        ("00000000009", "gw:9092"),
        ("9", "gw:9109"),
        ("10", "gw:9092"),
        ("", "gw:9092"),
        ("x", "gw:9092"),
        ("٣", "gw:9092"),
    ],
)
def test_listeners_are_those_of_the_broker_that_is_asked_for(name: str, told: str) -> None:
    shell = knowing()
    shell.client_sends(asking((BROKER, name)))
    shell.broker_sends(configs(BROKER, name, {"listeners": "X://h.internal:1"}))
    assert bytes(shell.to_client) == configs(BROKER, name, {"listeners": f"X://{told}"})


def test_the_request_is_waited_for_until_it_says_whether_a_broker_is_asked_for() -> None:
    frame = asking(*((TOPIC, f"topic-{i}") for i in range(50)), (BROKER, "1"))
    shell = knowing()
    for at in range(len(frame) - 1):
        shell.client_sends(frame[at : at + 1])
        assert shell.to_broker == b""
    shell.client_sends(frame[-1:])
    assert shell.to_broker == frame
    shell.broker_sends(configs(BROKER, "1", OF_A_BROKER))
    assert bytes(shell.to_client) == configs(BROKER, "1", AS_SHOWN)


def test_the_configs_of_topics_are_cut_through_whatever_they_weigh() -> None:
    values: Struct = {f"config.{i}": "v" * 1000 for i in range(500)}
    frame = configs(TOPIC, "t", values)
    assert len(frame) > 512 * 1024
    shell = gateway()
    shell.client_sends(asking((TOPIC, "t"), (BROKER_LOGGER, "1")))
    shell.broker_sends(frame[:5000])
    assert shell.to_client == frame[:5000]
    shell.broker_sends(frame[5000:])
    assert shell.to_client == frame


def test_a_brokers_configs_too_large_to_keep_end_the_connection() -> None:
    values: Struct = {f"config.{i}": "v" * 1000 for i in range(300)}
    frame = configs(BROKER, "1", values)
    shell = gateway()
    shell.client_sends(asking((BROKER, "1")))
    with pytest.raises(ProtocolError) as raised:
        shell.broker_sends(frame[:5000])
    assert DisconnectCause(raised.value.cause) is DisconnectCause.FRAME_TOO_LARGE
    assert shell.to_client == b""


def test_more_resources_than_can_be_kept_are_not_asked_for() -> None:
    frame = asking(*((TOPIC, "t" * 200) for _ in range(3000)))
    shell = gateway()
    shell.client_sends(frame)
    assert shell.to_broker == b""
    assert (shell.state, shell.cause) == (State.ENDING, DisconnectCause.FRAME_TOO_LARGE)


def test_a_damaged_answer_with_configs_ends_the_connection() -> None:
    frame = bytearray(configs(BROKER, "1", OF_A_BROKER))
    frame[20] ^= 0xFF
    shell = gateway()
    shell.client_sends(asking((BROKER, "1")))
    with pytest.raises(ProtocolError) as raised:
        shell.broker_sends(bytes(frame))
    assert DisconnectCause(raised.value.cause) is DisconnectCause.BROKER_MALFORMED
    assert shell.to_client == b""


def test_in_mode_broker_configs_pass_as_they_are_and_are_not_waited_for() -> None:
    shell = Shell(session_of())
    asked = asking((BROKER, "1"))
    shell.client_sends(asked[:30])
    assert shell.to_broker == asked[:30]
    shell.client_sends(asked[30:])
    frame = configs(BROKER, "1", OF_A_BROKER)
    shell.broker_sends(frame[:50])
    shell.broker_sends(frame[50:])
    assert shell.to_client == frame


def quorum(version: int) -> bytes:
    listener: Struct = {"name": "CONTROLLER", "host": "real-1.internal", "port": 9093}
    body: Struct = {"nodes": [{"nodeId": 1, "listeners": [listener]}, {"nodeId": 2}]} if version == 2 else {}
    return answer(DESCRIBE_QUORUM, version, body, correlation_id=7)


@pytest.mark.parametrize("version", range(3))
def test_the_quorum_is_shown_without_the_addresses_of_its_nodes(version: int) -> None:
    shell = gateway()
    shell.client_sends(request(DESCRIBE_QUORUM, version, correlation_id=7))
    shell.broker_sends(quorum(version))
    assert REAL not in shell.to_client
    if version == 2:
        body: Any = decoded("response", DESCRIBE_QUORUM, 2, shell.to_client).body
        assert body["nodes"] == [{"nodeId": 1, "listeners": []}, {"nodeId": 2, "listeners": []}]
    else:
        assert shell.to_client == quorum(version)


# --- all of Kafka's answers


def hosts(fields: tuple[Field, ...], version: int, path: str = "") -> set[str]:
    """The fields that name a host, by path."""
    found: set[str] = set()
    for field in fields:
        if version in field.versions:
            if "host" in field.name.lower():
                found.add(path + field.name)
            found |= hosts(field.fields, version, f"{path}{field.name}.")
    return found


LEFT = {
    "DescribeGroups groups.members.clientHost": "a client, as the broker sees it",
    "ConsumerGroupDescribe groups.members.clientHost": "likewise",
    "ShareGroupDescribe groups.members.clientHost": "likewise",
    "StreamsGroupDescribe groups.members.clientHost": "likewise",
    "StreamsGroupDescribe groups.members.userEndpoint.host": "where an application answers queries",
    "StreamsGroupHeartbeat partitionsByUserEndpoint.userEndpoint.host": "likewise",
    "DescribeAcls resources.acls.host": "what an administrator wrote",
    "DeleteAcls filterResults.matchingAcls.host": "likewise",
}


def test_every_host_in_any_of_kafkas_answers_is_rewritten_left_out_not_asked_for_or_no_brokers() -> None:
    seen: dict[str, set[int]] = {}
    for api_key in REQUESTS:
        message = message_of("response", api_key)
        for version in versions_of(message):
            for path in hosts(message.fields, version):
                seen.setdefault(f"{API_NAMES[api_key]} {path}", set()).add(version)
    for place, versions in seen.items():
        name = place.split()[0]
        (api_key,) = (key for key, each in API_NAMES.items() if each == name)
        if place in LEFT:
            continue
        if api_key in VERSIONS_WITH_ADDRESSES:
            first, last = VERSIONS_WITH_ADDRESSES[api_key]
            assert min(versions) >= first, place
            assert max(versions) <= last, place
            continue
        for version in versions:
            shell = gateway()
            shell.client_sends(request(api_key, version, correlation_id=7))
            assert shell.cause is DisconnectCause.UNKNOWN_API or api_key == DESCRIBE_QUORUM, place
    assert LEFT.keys() <= seen.keys()


def test_an_answer_that_shows_no_address_goes_on_as_the_broker_wrote_it() -> None:
    """To the byte: nothing of it is encoded anew."""
    shell = knowing()
    for kind, name in ((TOPIC, "orders"), (BROKER, "1")):
        shell.client_sends(asking((kind, name)))
        frame = configs(kind, name, {"log.dirs": "/var/kafka", "log.retention.ms": None})
        shell.to_client.clear()
        assert arrives(shell, frame, []) == frame
