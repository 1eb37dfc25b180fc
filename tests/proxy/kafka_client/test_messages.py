"""What the proxy itself asks a broker: kafka-python writes what our codec reads, and reads answers."""

from __future__ import annotations

from contextlib import suppress
from random import Random
from typing import Any

import pytest
from kafka.protocol.admin import (
    AlterClientQuotasRequest,
    CreateTopicsRequest,
    DescribeClientQuotasRequest,
    DescribeConfigsRequest,
    IncrementalAlterConfigsRequest,
)
from kafka.protocol.api_message import ApiMessage
from kafka.protocol.metadata import MetadataRequest

from sluice.protocol._tables import VERSIONS
from sluice.protocol.codec.codec import decode_frame
from sluice.protocol.errors import MalformedFrame
from sluice.proxy.kafka_client.messages import decoded, encoded
from testkit.frames.frames import answer

REQUESTS: list[ApiMessage] = [
    MetadataRequest,
    CreateTopicsRequest,
    DescribeConfigsRequest,
    IncrementalAlterConfigsRequest,
    DescribeClientQuotasRequest,
    AlterClientQuotasRequest,
]


def versions() -> list[Any]:
    return [
        pytest.param(kind, version, id=f"{kind.__name__}-{version}")
        for kind in REQUESTS
        for version in range(
            VERSIONS[int(kind.API_KEY)][0], min(kind.max_version, VERSIONS[int(kind.API_KEY)][1]) + 1
        )
    ]


@pytest.mark.parametrize(("kind", "version"), versions())
def test_a_request_is_read_by_our_own_codec_in_every_version(kind: Any, version: int) -> None:
    request = kind()
    if kind is MetadataRequest:
        request.topics = [kind.MetadataRequestTopic(name="orders")]
    frame = encoded(request, version, 7, "sluice")
    read: Any = decode_frame("request", int(kind.API_KEY), version, frame)
    assert read.header["correlationId"] == 7
    assert read.header["clientId"] == "sluice"
    assert read.header["requestApiVersion"] == version
    if kind is MetadataRequest:
        (topic,) = read.body["topics"]
        assert topic["name"] == "orders"


@pytest.mark.parametrize(("kind", "version"), versions())
def test_an_answer_of_every_version_is_read_and_one_that_is_none_is_malformed(
    kind: Any, version: int
) -> None:
    request = kind()
    encoded(request, version, 1, "sluice")
    frame = answer(int(kind.API_KEY), version, correlation_id=1)[4:]
    assert decoded(request, frame).throttle_time_ms == 0
    for length in range(len(frame)):
        with pytest.raises(MalformedFrame):
            decoded(request, frame[:length])


@pytest.mark.parametrize(("kind", "version"), versions())
def test_garbage_is_malformed_or_an_answer_and_nothing_else(kind: Any, version: int) -> None:
    request = kind()
    encoded(request, version, 1, "sluice")
    frame = answer(int(kind.API_KEY), version, correlation_id=1)[4:]
    random = Random(version)
    for _ in range(200):
        damaged = bytearray(frame + random.randbytes(random.randrange(40)))
        for _ in range(random.randrange(1, 6)):
            damaged[random.randrange(len(damaged))] = random.randrange(256)
        with suppress(MalformedFrame):
            decoded(request, bytes(damaged))
