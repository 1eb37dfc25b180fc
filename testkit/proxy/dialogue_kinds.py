"""What clients ask for in tests of the session: requests, answers, and where others may write in them."""

from __future__ import annotations

from dataclasses import dataclass

from sluice.protocol.codec.wire import Struct
from sluice.protocol.names import api_name
from testkit.frames.frames import (
    API_VERSIONS,
    FETCH,
    HEARTBEAT,
    JOIN_GROUP,
    METADATA,
    PRODUCE,
    answer,
    fetch,
    fetch_answer_of,
    produce_answer,
    produce_of,
    request,
)

MAX_BYTES = 0x02020202
"""of every Fetch, as its client writes it"""


@dataclass(frozen=True, repr=False)
class Kind:
    """A request, its answer (None: it has none), and where in them others may write 4 bytes."""

    api_key: int
    version: int
    request: bytes
    answer: bytes | None
    max_bytes_at: int | None = None
    throttle_at: int | None = None

    def __repr__(self) -> str:
        return f"<{api_name(self.api_key)} v{self.version}, {len(self.request)} B>"


def kind_of_produce(size: int, acks: int, version: int) -> Kind:
    """A Produce of one batch."""
    frame = produce_of(size, acks=acks, version=version)
    if not acks:
        return Kind(PRODUCE, version, frame, None)
    received = produce_answer(version=version)
    told = produce_answer(version=version, throttle_ms=0x01010101)
    return Kind(PRODUCE, version, frame, received, throttle_at=differs_at(received, told))


def kind_of_fetch(answer_bytes: int, version: int) -> Kind:
    """A Fetch whose answer has so many bytes."""
    frame = fetch(version=version, max_bytes=MAX_BYTES)
    place = differs_at(frame, fetch(version=version, max_bytes=0x01010101))
    received = fetch_answer_of(answer_bytes, version=version)
    told = fetch_answer_of(answer_bytes, version=version, throttle_ms=0x01010101)
    return Kind(FETCH, version, frame, received, place, differs_at(received, told))


def differs_at(one: bytes, other: bytes) -> int:
    """The first byte that is another."""
    return next(i for i, (a, b) in enumerate(zip(one, other, strict=True)) if a != b)


def kind_of(api_key: int, version: int, body: Struct | None = None) -> Kind:
    """Any other request."""
    received = answer(api_key, version)
    told = answer(api_key, version, {"throttleTimeMs": 0x01010101})
    at = differs_at(received, told)
    return Kind(api_key, version, request(api_key, version, body), received, throttle_at=at)


KINDS = [
    *(kind_of_produce(size, acks, 9) for size in (130, 700, 3_000) for acks in (0, 1)),
    kind_of_produce(25_000, 1, 3),
    *(kind_of_fetch(size, version) for size in (150, 2_500) for version in (4, 12, 15)),
    kind_of(METADATA, 12),
    kind_of(HEARTBEAT, 4),
    kind_of(JOIN_GROUP, 9, {"sessionTimeoutMs": 9_000}),
    kind_of(API_VERSIONS, 3),
]
