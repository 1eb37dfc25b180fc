"""Answers on which a gateway works long: one at a time, and behind each the connection waits by its size."""

from __future__ import annotations

from typing import Any

import pytest

from sluice.proxy.session.connection_states import State
from testkit.frames.frames import METADATA, answer, decoded, request
from testkit.proxy.gateway import broker_map, gateway
from testkit.proxy.playbook import Shell
from tests.proxy.session.gateway.test_address_rewrite_admin import (
    BROKER,
    DESCRIBE_CONFIGS,
    DESCRIBE_QUORUM,
    TOPIC,
    asking,
)

FIND_COORDINATOR = 10
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


def of_quorum() -> tuple[bytes, bytes]:
    """Of one partition, as clients ask."""
    return request(DESCRIBE_QUORUM, 2, correlation_id=7), answer(DESCRIBE_QUORUM, 2, {}, correlation_id=7)


def knowing() -> Shell:
    brokers = broker_map()
    brokers.learn(1, "real-1.internal", 9092)
    return gateway(brokers)


@pytest.mark.parametrize(
    ("exchange", "ms_per_kib"), [(of_topics(100), 8), (of_groups(2_000), 3), (of_quorum(), 8)]
)
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


@pytest.mark.parametrize("exchange", [of_groups(3), (of_topics(3)[0][:0], b"")])
def test_what_is_short_and_what_is_asked_of_topics_alone_goes_on_at_once(
    exchange: tuple[bytes, bytes],
) -> None:
    asked, answered = exchange
    asked = asked or asking((TOPIC, "t"), (TOPIC, "u"))
    answered = answered or answer(DESCRIBE_CONFIGS, 4, {"results": []}, correlation_id=7)
    shell = knowing()
    shell.client_sends(asked + asked + FOLLOWER)
    assert shell.to_broker == asked * 2 + FOLLOWER
    shell.broker_sends(answered)
    assert shell.state is State.READING
