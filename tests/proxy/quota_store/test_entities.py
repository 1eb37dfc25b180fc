"""Names of entities that Kafka's readers cannot take, or a record's key cannot: refused, and never told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from sluice.protocol.apis import ErrorCode
from sluice.proxy.quota_store.client_quotas import Alteration, Component, Result, alter
from sluice.proxy.quota_store.entities import MAX_NAME_BYTES, Parts, entity_of, parts_of
from sluice.proxy.quota_store.service import FileStore, QuotaDesk
from sluice.proxy.quota_store.wire import altered, describe_refused, described_in_steps
from sluice.quotas.entity import OVERFLOW, QuotaEntity
from sluice.quotas.limits.limits import QuotaLimits
from sluice.quotas.steps import at_once
from testkit.frames.frames import decoded

LIMIT = (("producer_byte_rate", 5.0),)
LONG = "é" * (MAX_NAME_BYTES // 2 + 1)


def test_what_kafka_has_no_entity_for_has_no_parts() -> None:
    assert parts_of(QuotaEntity(OVERFLOW)) is None
    assert parts_of(QuotaEntity()) is None


@pytest.mark.parametrize("parts", [(("user", LONG),), (("user", None), ("client-id", LONG))])
def test_no_limit_is_set_for_a_name_that_kafka_cannot_read(parts: Parts) -> None:
    outcome = alter({}, [Alteration(parts, LIMIT)])
    (result,) = outcome.results
    assert (result.code, outcome.changes) == (ErrorCode.INVALID_REQUEST, {})
    entity_type = parts[-1][0]
    assert result.message == f"A {entity_type} of 32768 bytes is not supported: Kafka reads names of 32767"


def test_the_longest_name_that_kafka_reads_has_a_limit() -> None:
    for name in ("x" * MAX_NAME_BYTES, LONG[1:] + "x"):
        assert alter({}, [Alteration((("user", name),), LIMIT)]).changes


def test_no_limit_is_set_for_names_whose_record_nobody_would_take() -> None:
    outcome = alter({}, [Alteration((("user", "\1" * 12_000),), LIMIT)])
    assert not outcome.changes
    message = "The names take 72011 bytes as the key of a record; 70000 are supported"
    assert outcome.results[0][1:] == (ErrorCode.INVALID_REQUEST, message)


def test_what_an_earlier_version_has_set_for_such_a_name_can_be_removed() -> None:
    entity = QuotaEntity(LONG)
    asked = Alteration((("user", LONG),), (("producer_byte_rate", None),))
    assert alter({entity: {"producer_byte_rate": 5}}, [asked]).changes == {entity: {}}


@pytest.mark.asyncio
@pytest.mark.parametrize("version", [0, 1])
async def test_a_limit_that_lies_there_for_such_a_name_leaves_the_others_to_be_told(version: int) -> None:
    entries = [(entity_of((("user", name),)), {"producer_byte_rate": 1}) for name in ("alice", LONG, "bob")]
    limits = QuotaLimits(entries)
    desk = QuotaDesk(lambda: limits, FileStore(Path(__file__)))
    with capture_logs() as lines:
        for _ in range(3):
            found = await desk.describe(None, [Component("user", 2, None)], strict=False)
    answer = at_once(described_in_steps(version, 7, found))
    body: Any = decoded("response", 48, version, answer).body
    told = [entry["entity"][0]["entityName"] for entry in body["entries"]]
    assert told == ["alice", "bob"]
    (line,) = lines
    assert (line["event"], line["count"], line["longest"]) == ("quota_name_too_long", 1, MAX_NAME_BYTES)
    assert len(str(line)) < 500


@pytest.mark.parametrize("version", [0, 1])
def test_a_name_that_is_refused_as_too_long_is_told_back_as_far_as_kafka_reads_it(version: int) -> None:
    results = [Result(((LONG, LONG),), 42, LONG), Result((("user", None),), 0, None)]
    body: Any = decoded("response", 49, version, altered(version, 3, results)).body
    first, second = body["entries"]
    assert first["errorMessage"] == LONG[1:]
    assert first["entity"] == [{"entityType": LONG[1:], "entityName": LONG[1:]}]
    assert (second["errorMessage"], second["entity"][0]["entityName"]) == (None, None)
    refused: Any = decoded("response", 48, version, describe_refused(version, 3, 35, LONG)).body
    assert refused["errorMessage"] == LONG[1:]
