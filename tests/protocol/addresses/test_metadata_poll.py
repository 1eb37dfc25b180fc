"""The proxy asks for the brokers alone, in a version that every supported Kafka knows."""

from __future__ import annotations

from random import Random

import pytest

from sluice.protocol.addresses.metadata_poll import brokers_of, metadata_request
from sluice.protocol.codec.wire import Value
from sluice.protocol.errors import MalformedFrame
from testkit.frames.frames import METADATA, answer, decoded, random_answer


def test_the_request_asks_for_no_topics_and_creates_none() -> None:
    request = decoded("request", METADATA, 12, metadata_request(7, "sluice"))
    assert request.header["correlationId"] == 7
    assert request.header["clientId"] == "sluice"
    assert request.body["topics"] == [], "null would ask for all topics"
    assert request.body["allowAutoTopicCreation"] is False


def test_the_answer_gives_every_broker() -> None:
    nodes: list[Value] = [
        {"nodeId": i, "host": f"b{i}.internal", "port": 9092 + i, "rack": None} for i in (4, 2)
    ]
    found = brokers_of(answer(METADATA, 12, {"brokers": nodes}, correlation_id=7), 7)
    assert [(a.node_id, a.host, a.port) for a in found] == [
        (4, "b4.internal", 9096),
        (2, "b2.internal", 9094),
    ]


def test_any_metadata_answer_is_understood() -> None:
    for seed in range(50):
        frame = random_answer(METADATA, 12, Random(seed), correlation_id=7)
        brokers = decoded("response", METADATA, 12, frame).body["brokers"]
        assert isinstance(brokers, list)
        expected = [b["nodeId"] for b in brokers if isinstance(b, dict) and b["host"]]
        assert [a.node_id for a in brokers_of(frame, 7)] == expected


def test_what_is_not_the_answer_is_refused() -> None:
    frame = answer(METADATA, 12, {"brokers": [{"nodeId": 1, "host": "b", "port": 1}]}, correlation_id=7)
    with pytest.raises(MalformedFrame):
        brokers_of(frame, 8)
    for cut in range(len(frame)):
        with pytest.raises(MalformedFrame):
            brokers_of(frame[:cut], 7)
    with pytest.raises(MalformedFrame):
        brokers_of(frame + b"\0", 7)
