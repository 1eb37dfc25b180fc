"""Requests 48 and 49 are read, and their answers written, in both versions."""

from __future__ import annotations

import math
from typing import Any

import pytest

from sluice.protocol.errors import MalformedFrame
from sluice.proxy.quota_store.client_quotas import Alteration, Component, Result
from sluice.proxy.quota_store.entities import Parts, key_of
from sluice.proxy.quota_store.wire import (
    AlterRequest,
    DescribeRequest,
    altered,
    describe_refused,
    described_in_steps,
    read_request,
)
from sluice.quotas.entity import QuotaEntity
from testkit.frames.frames import decoded, request

VERSIONS = (0, 1)
ALICE: Parts = (("user", "alice"), ("client-id", None))


@pytest.mark.parametrize("version", VERSIONS)
def test_a_filter_is_read(version: int) -> None:
    body: Any = {"components": [{"entityType": "user", "matchType": 1, "match": None}], "strict": True}
    read = read_request(48, version, request(48, version, body)[4:])
    assert read == DescribeRequest((Component("user", 1, None),), strict=True)


@pytest.mark.parametrize("version", VERSIONS)
def test_alterations_are_read_and_a_removal_has_no_value(version: int) -> None:
    ops = [
        {"key": "a", "value": 1.5, "remove": False},
        {"key": "b", "value": 9.0, "remove": True},
        {"key": "c", "value": "Infinity", "remove": False},
        {"key": "d", "value": "NaN", "remove": False},
    ]
    entity = [{"entityType": "user", "entityName": "alice"}, {"entityType": "client-id", "entityName": None}]
    body: Any = {"entries": [{"entity": entity, "ops": ops}], "validateOnly": True}
    read = read_request(49, version, request(49, version, body)[4:])
    assert isinstance(read, AlterRequest)
    assert read.validate_only
    ((parts, read_ops),) = read.alterations
    assert parts == ALICE
    assert read_ops[:3] == (("a", 1.5), ("b", None), ("c", math.inf))
    assert read_ops[3][1] is not None
    assert math.isnan(read_ops[3][1])
    assert Alteration(parts, read_ops) in read.alterations


def test_half_a_request_is_malformed() -> None:
    with pytest.raises(MalformedFrame):
        read_request(48, 1, request(48, 1, {"components": [], "strict": False})[4:-1])


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("count", [0, 1, 99, 100, 101, 350])
def test_a_long_answer_made_in_steps_is_one_answer(version: int, count: int) -> None:
    entries = [((("user", f"u{number}"),), {"producer_byte_rate": number + 1}) for number in range(count)]
    steps = described_in_steps(version, 7, entries)
    pauses = 0
    while True:
        try:
            next(steps)
        except StopIteration as done:
            answer: bytes = done.value
            break
        pauses += 1
    assert pauses == -(-count // 100)
    frame = decoded("response", 48, version, answer)
    body: Any = frame.body
    assert frame.header["correlationId"] == 7
    assert (body["throttleTimeMs"], body["errorCode"], body["errorMessage"]) == (0, 0, "")
    assert [entry["entity"][0]["entityName"] for entry in body["entries"]] == [f"u{n}" for n in range(count)]
    assert [entry["values"][0]["value"] for entry in body["entries"]] == [n + 1.0 for n in range(count)]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_refusal_tells_code_and_message(version: int) -> None:
    body = decoded("response", 48, version, describe_refused(version, 3, 31, "no")).body
    assert (body["errorCode"], body["errorMessage"], body["entries"]) == (31, "no", None)


@pytest.mark.parametrize("version", VERSIONS)
def test_each_entity_has_its_own_result(version: int) -> None:
    answer = altered(version, 3, [Result(ALICE, 0, None), Result((("ip", "x"),), 42, "bad")])
    body: Any = decoded("response", 49, version, answer).body
    assert [(one["errorCode"], one["errorMessage"]) for one in body["entries"]] == [(0, None), (42, "bad")]
    assert body["entries"][0]["entity"] == [
        {"entityType": "user", "entityName": "alice"},
        {"entityType": "client-id", "entityName": None},
    ]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_name_that_is_no_utf8_is_read_as_java_reads_it_and_can_be_told_and_kept(version: int) -> None:
    entity = [{"entityType": "us\udcffer", "entityName": "al\udcffice\udced\udca0\udc80"}]
    ops = [{"key": "k\udcff", "value": 1.5, "remove": False}]
    body: Any = {"entries": [{"entity": entity, "ops": ops}], "validateOnly": False}
    read = read_request(49, version, request(49, version, body)[4:])
    assert isinstance(read, AlterRequest)
    parts: Parts = (("us\ufffder", "al\ufffdice\ufffd"),)
    assert read.alterations == (Alteration(parts, (("k\ufffd", 1.5),)),)
    assert key_of(QuotaEntity(parts[0][1])) == b'{"user":"al\xef\xbf\xbdice\xef\xbf\xbd"}'

    components = [{"entityType": "us\udcffer", "matchType": 0, "match": "\udcff"}]
    filtered: Any = {"components": components, "strict": False}
    asked = read_request(48, version, request(48, version, filtered)[4:])
    assert asked == DescribeRequest((Component("us\ufffder", 0, "\ufffd"),), strict=False)
