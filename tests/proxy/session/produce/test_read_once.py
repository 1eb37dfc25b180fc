"""A Produce like the last ones is read once: what request_percentage charges by is what the walk says."""

from __future__ import annotations

import pytest

from sluice.proxy.session.policy import SessionPolicy
from sluice.proxy.session.session import Session
from sluice.quotas.entity import DEFAULT, QuotaEntity
from sluice.quotas.limits.limits import QuotaLimits
from testkit.frames import frames
from testkit.proxy.playbook import START_MS, shared_of

REPEATS = 4
"""twice until a template knows it"""


def session_of(**limits: float) -> Session:
    shared = shared_of(QuotaLimits([(QuotaEntity(DEFAULT, None), {"request_percentage": 1e6, **limits})]))
    return Session(shared, SessionPolicy(), "10.0.0.1")


def marks(session: Session, frame: bytes) -> list[tuple[int, int, int, int, bool]]:
    for repeat in range(REPEATS):
        sent = bytearray(frame)
        assert session.client_data(sent, 0, len(sent), START_MS + repeat) == len(sent)
    request_time = session._throttling.request_time
    assert request_time is not None
    assert len(request_time.marks) == REPEATS
    return request_time.marks


@pytest.mark.parametrize("version", [8, 9, 12, 13])
@pytest.mark.parametrize("acks", [1, -1])
@pytest.mark.parametrize("payload_bytes", [0, 1, 53, 54, 300, 16_250, 16_330])
@pytest.mark.parametrize(
    ("count", "attributes"), [(1, 0), (300, 4), (0, 2), (-1, 3), (7, 0x08 | 1), (1, 0xF8)]
)
def test_marks_are_those_of_the_walk(
    version: int, acks: int, payload_bytes: int, count: int, attributes: int
) -> None:
    batch = bytearray(frames.record_batch(bytes(payload_bytes), producer_id=7, count=count))
    batch[22] |= attributes
    topic = frames.TOPIC_ID if version >= 13 else "orders"
    frame = frames.produce({topic: [(0, bytes(batch))]}, version=version, acks=acks)
    walked = marks(session_of(), frame)
    known = session_of(producer_ids_rate=1e6)
    assert (
        marks(known, frame)
        == walked
        == [(walked[0][0], 1, max(count, 0), attributes & 7, acks != 1)] * REPEATS
    )
    assert known._throttling.known.version == version, "the template knew it"


def test_a_legacy_set_is_walked() -> None:
    frame = frames.produce({"orders": [(0, frames.legacy_set(bytes(300)))]}, version=9)
    assert marks(session_of(producer_ids_rate=1e6), frame) == marks(session_of(), frame)
