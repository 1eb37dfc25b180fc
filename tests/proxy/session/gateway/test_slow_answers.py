"""Answers on which a gateway works long: one at a time, and behind each the connection waits by its size."""

from __future__ import annotations

from typing import Any

import pytest

from sluice.proxy.session.answer_pieces import PIECE_BYTES
from sluice.proxy.session.connection_states import State
from testkit.frames.frames import METADATA, PRODUCE, answer, decoded, produce, request
from testkit.proxy.gateway import broker_map, gateway
from testkit.proxy.playbook import Shell
from tests.proxy.session.gateway.test_address_rewrite_admin import (
    BROKER,
    DESCRIBE_CONFIGS,
    DESCRIBE_QUORUM,
    TOPIC,
    asking,
)

FIND_COORDINATOR, DESCRIBE_CLUSTER = 10, 60
FREE_MS = 50
KIB = 1_024
FOLLOWER = request(METADATA, 12, {}, correlation_id=8)


def of_topics(topics: int) -> tuple[bytes, bytes]:
    """The configs of topics, beside those of a broker which the client may not see."""
    values: list[Any] = [{"name": f"config.{number}", "value": "v" * 20} for number in range(26)]
    results: list[Any] = [{"resourceType": TOPIC, "resourceName": "t", "configs": values}] * topics
    results.append({"errorCode": 31, "resourceType": BROKER, "resourceName": "1"})
    asked = asking(*((TOPIC, "t") for _ in range(topics)), (BROKER, "1"))
    return asked, answer(DESCRIBE_CONFIGS, 4, {"results": results}, correlation_id=7)


def of_groups(groups: int) -> tuple[bytes, bytes]:
    """Where the coordinators of groups are."""
    keys = [f"group-{number}" for number in range(groups)]
    found: list[Any] = [{"key": key, "nodeId": 1, "host": "real-1.internal", "port": 9092} for key in keys]
    asked = request(FIND_COORDINATOR, 4, {"coordinatorKeys": list(keys)}, correlation_id=7)
    return asked, answer(FIND_COORDINATOR, 4, {"coordinators": found}, correlation_id=7)


def of_cluster(brokers: int) -> tuple[bytes, bytes]:
    """All brokers, as admin clients ask."""
    found: list[Any] = [
        {"brokerId": number, "host": f"real-{number}.internal", "port": 9092} for number in range(brokers)
    ]
    asked = request(DESCRIBE_CLUSTER, 0, {}, correlation_id=7)
    return asked, answer(DESCRIBE_CLUSTER, 0, {"brokers": found}, correlation_id=7)


def of_quorum() -> tuple[bytes, bytes]:
    """Of one partition, as clients ask."""
    return request(DESCRIBE_QUORUM, 2, correlation_id=7), answer(DESCRIBE_QUORUM, 2, {}, correlation_id=7)


def knowing() -> Shell:
    brokers = broker_map()
    brokers.learn(1, "real-1.internal", 9092)
    return gateway(brokers)


@pytest.mark.parametrize(("exchange", "ms_per_kib"), [(of_topics(100), 8), (of_groups(2_000), 3)])
def test_nothing_is_begun_behind_one_before_its_answer_and_a_while_by_its_size(
    exchange: tuple[bytes, bytes], ms_per_kib: int
) -> None:
    """One client had others wait for a third of a second, and sent two thousand such requests ahead."""
    asked, answered = exchange
    shell = knowing()
    shell.client_sends(asked + asked + FOLLOWER)
    assert shell.to_broker == asked
    shell.advance(60_000)
    shell.broker_sends(answered)
    assert decoded("response", asked[5], asked[7], shell.to_client).header["correlationId"] == 7
    assert shell.state is State.MUTED
    mute_ms = len(answered) / KIB * ms_per_kib
    shell.advance(mute_ms - 1)
    assert shell.to_broker == asked
    shell.advance(2)
    assert shell.to_broker == asked * 2
    shell.broker_sends(answered)
    shell.advance(mute_ms + 1)
    assert shell.to_broker == asked * 2 + FOLLOWER


def test_a_long_request_that_arrives_in_pieces_is_read_on() -> None:
    asked, answered = of_groups(2_000)
    shell = knowing()
    for start in range(0, len(asked), 1_000):
        shell.client_sends(asked[start : start + 1_000])
        assert shell.to_broker == asked[: start + 1_000]
    shell.client_sends(FOLLOWER)
    assert shell.state is State.AWAITING_BROKER
    shell.broker_sends(answered)
    shell.advance(60_000)
    assert shell.to_broker == asked + FOLLOWER


@pytest.mark.parametrize("exchange", [of_groups(1), of_groups(3), of_cluster(3), of_quorum()])
def test_a_few_short_ones_go_one_by_one_and_without_a_wait(exchange: tuple[bytes, bytes]) -> None:
    asked, answered = exchange
    shell = knowing()
    shell.client_sends(asked * 3 + FOLLOWER)
    for number in range(1, 4):
        assert shell.to_broker == asked * number
        shell.broker_sends(answered)
    assert shell.to_broker == asked * 3 + FOLLOWER
    assert shell.state is State.READING


@pytest.mark.parametrize(("exchange", "ms_per_kib"), [(of_groups(20), 3), (of_cluster(30), 3)])
def test_many_short_ones_wait_as_one_that_is_as_long(exchange: tuple[bytes, bytes], ms_per_kib: int) -> None:
    """Twenty names of 1 byte a request, thousands ahead, and nobody else was served for 0.3 s again and
    again."""
    asked, answered = exchange
    shell = knowing()
    begun_ms = shell.now_ms
    shell.client_sends(asked * 200)
    for _ in range(200):
        while shell.state is not State.AWAITING_BROKER:
            shell.advance(1)
        shell.broker_sends(answered)
    assert shell.to_broker == asked * 200
    assert shell.now_ms - begun_ms >= 199 * len(answered) / KIB * ms_per_kib - FREE_MS


def test_who_may_not_see_the_groups_waits_as_well() -> None:
    keys = [""] * 4_000
    asked = request(FIND_COORDINATOR, 4, {"coordinatorKeys": list(keys)}, correlation_id=7)
    found: list[Any] = [{"key": "", "nodeId": -1, "host": "", "port": -1, "errorCode": 30}] * len(keys)
    answered = answer(FIND_COORDINATOR, 4, {"coordinators": found}, correlation_id=7)
    shell = knowing()
    shell.client_sends(asked + FOLLOWER)
    shell.broker_sends(answered)
    assert shell.state is State.MUTED
    shell.advance(len(answered) / KIB * 3 - 1)
    assert shell.to_broker == asked
    shell.advance(2)
    assert shell.to_broker == asked + FOLLOWER


def of_brokers(brokers: int) -> tuple[bytes, bytes]:
    """All brokers, and no topic."""
    asked = request(METADATA, 12, {"topics": [], "allowAutoTopicCreation": False}, correlation_id=7)
    found: list[Any] = [
        {"nodeId": 1, "host": f"real-{number}.internal", "port": 9092} for number in range(brokers)
    ]
    return asked, answer(METADATA, 12, {"brokers": found, "topics": []}, correlation_id=7)


def test_of_many_answers_that_came_at_once_only_so_much_is_worked_on_in_one_look() -> None:
    asked, answered = of_brokers(30)
    session = knowing().session
    asked_all = bytearray(asked * 1_000)
    assert session.client_data(asked_all, 0, len(asked_all), 0.0) == len(asked_all)
    buf, looks, pos = bytearray(answered * 1_000), 0, 0
    while pos < len(buf):
        cut = session.broker_data(buf, pos, len(buf), 0.0)
        session.edits.clear()
        assert session.has_more_answers is (cut < len(buf))
        assert 0 < cut - pos <= PIECE_BYTES + 2 * len(answered)
        pos, looks = cut, looks + 1
    assert looks >= len(buf) // (PIECE_BYTES + 2 * len(answered))
    assert session.in_flight == 0
    assert session.pace.state is State.MUTED, "and so for a while nothing further is asked"


def test_what_is_asked_of_topics_alone_goes_on_at_once() -> None:
    asked = asking((TOPIC, "t"), (TOPIC, "u"))
    answered = answer(DESCRIBE_CONFIGS, 4, {"results": []}, correlation_id=7)
    shell = knowing()
    shell.client_sends(asked + asked + FOLLOWER)
    assert shell.to_broker == asked * 2 + FOLLOWER
    shell.broker_sends(answered)
    assert shell.state is State.READING


def test_what_the_pump_takes_whole_is_the_end_of_a_stop() -> None:
    """A look ended behind Metadata, and all that stood behind it were Produces' answers."""
    asked, answered = of_brokers(2_000)
    shell = knowing()
    shell.client_sends(asked + b"".join(produce({}, version=9, correlation_id=8) for _ in range(3)))
    behind = answer(PRODUCE, 9, {}, correlation_id=8) * 3
    buf = bytearray(answered + behind)
    session = shell.session
    cut = session.broker_data(buf, 0, len(buf), 0.0)
    session.edits.clear()
    assert (cut, session.has_more_answers) == (len(answered), True)
    assert session.broker_data(buf, cut, len(buf), 0.0) == len(buf)
    assert not session.has_more_answers
