"""Arrays of a thousand elements that are as small as the layout lets them be are no lie, at any level."""

from __future__ import annotations

from typing import Any

import pytest

from sluice.protocol.addresses.node_endpoints import EndpointEraser
from sluice.protocol.apis import FETCH, PRODUCE, SHARE_FETCH
from sluice.protocol.errors import MalformedFrame
from sluice.protocol.headers import RESPONSE_HEAD_BYTES
from testkit.frames.frames import TOPIC_ID, answer

MANY = 1_000
NODE: Any = {"nodeId": 3, "host": "b", "port": 19_093, "rack": None}


def bodies() -> list[tuple[int, int, Any]]:
    """Each with one array that is long, of the smallest elements; all others have one, which is as small."""
    found: list[tuple[int, int, Any]] = []
    for topics, partitions, inner in ((MANY, 0, 0), (1, MANY, 0), (1, 1, MANY)):
        for version in (10, 12, 13):
            errors = [{"batchIndex": 0, "batchIndexErrorMessage": None}] * inner
            written: Any = [{"index": 0, "recordErrors": errors, "errorMessage": None}] * partitions
            name = {"topicId": TOPIC_ID} if version == 13 else {"name": ""}
            found.append(
                (PRODUCE, version, {"responses": [{**name, "partitionResponses": written}] * topics})
            )
        aborted = [{"producerId": 1, "firstOffset": 2}] * inner
        read: Any = [{"partitionIndex": 0, "abortedTransactions": aborted, "records": None}] * partitions
        found.append((FETCH, 17, {"responses": [{"topicId": TOPIC_ID, "partitions": read}] * topics}))
        acquired = [{"firstOffset": 0, "lastOffset": 0, "deliveryCount": 1}] * inner
        shared: Any = [{"partitionIndex": 0, "acquiredRecords": acquired, "records": ""}] * partitions
        found.append((SHARE_FETCH, 1, {"responses": [{"topicId": TOPIC_ID, "partitions": shared}] * topics}))
    return found


@pytest.mark.parametrize(("api_key", "version", "body"), bodies(), ids=range(15))
@pytest.mark.parametrize("nodes", [0, 1, MANY])
def test_they_are_passed_over(api_key: int, version: int, body: Any, nodes: int) -> None:
    frame = bytearray(answer(api_key, version, {**body, "nodeEndpoints": [NODE] * nodes}))
    eraser = EndpointEraser(api_key, version, len(frame) - RESPONSE_HEAD_BYTES)
    assert eraser.pass_on(frame, RESPONSE_HEAD_BYTES, len(frame)) == len(frame)
    assert eraser.left_bytes == 0


def test_elements_that_would_not_fit_even_so_are_refused_at_their_count() -> None:
    """A node takes 11 bytes: 500 announced in 5,499 are a lie."""
    frame = bytearray(answer(SHARE_FETCH, 1, {"nodeEndpoints": []}))
    assert frame.endswith(b"\x01\x00")
    told = frame[:-2] + b"\xf5\x03"
    for left_bytes, fits in ((5_500, True), (5_499, False)):
        longer = told + bytes(left_bytes)
        eraser = EndpointEraser(SHARE_FETCH, 1, len(longer) - RESPONSE_HEAD_BYTES)
        if fits:
            eraser.pass_on(longer, RESPONSE_HEAD_BYTES, len(longer))
        else:
            with pytest.raises(MalformedFrame):
                eraser.pass_on(longer, RESPONSE_HEAD_BYTES, len(longer))
