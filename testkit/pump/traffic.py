"""What clients send and brokers answer while the pump is held against the Python code: by seeds."""

from __future__ import annotations

import struct
from functools import lru_cache
from random import Random
from typing import Final

from sluice.protocol.apis import FLEXIBLE_WHEN_REMOVED, OFFERED
from sluice.protocol.codec.wire import uuid_text
from testkit.frames import frames

CLIENT_IDS: Final = ("app", "app2", "", None, "ä")
PRODUCER_IDS: Final = (-1, 7, 8, 2**40)
SIZES: Final = (0, 1, 40, 53, 54, 55, 60, 300, 1_000, 16_250, 16_310, 16_330, 20_000)
"""of a batch's payload: about each, a length takes a byte more"""
_OTHERS: Final = (frames.METADATA, frames.HEARTBEAT, frames.API_VERSIONS, frames.FETCH, frames.SASL_HANDSHAKE)
_MAX_WRONG_AT: Final = 160


@lru_cache(maxsize=40_000)
def produce(
    version: int, acks: int, client_id: str | None, topic: int, partition: int, payload: int, producer_id: int
) -> bytes:
    """One batch for one partition."""
    name = uuid_text(bytes([topic] * 16)) if version >= 13 else f"t{topic}"
    batch = frames.record_batch(bytes(payload), producer_id=producer_id, sequence=0, epoch=0, count=3)
    return frames.produce({name: [(partition, batch)]}, version=version, acks=acks, client_id=client_id)


def odd_produce(random: Random, version: int, client_id: str | None) -> bytes:
    """Legal, and not of the commonest shape."""
    topic = uuid_text(bytes(range(16))) if version >= 13 else "t0"
    batch = frames.record_batch(bytes(random.choice(SIZES)), producer_id=random.choice(PRODUCER_IDS))
    kind = random.randrange(6)
    if kind == 0:
        return frames.produce({topic: [(0, batch), (1, batch)]}, version=version, client_id=client_id)
    if kind == 1:
        return frames.produce({topic: [(0, batch + batch)]}, version=version, client_id=client_id)
    if kind == 2:
        return frames.produce({topic: [(0, None)]}, version=version, client_id=client_id)
    if kind == 3:
        legacy = frames.legacy_set(b"x" * random.choice(SIZES))
        return frames.produce({topic: [(0, legacy)]}, version=version, client_id=client_id)
    if kind == 4:
        topics = {topic: [(0, batch)]}
        return frames.produce(topics, version=version, client_id=client_id, transactional_id="x")
    tags = random.randrange(3) if version >= 9 else 0
    return frames.produce({topic: [(0, batch)]}, version=version, client_id=client_id, header_tags=tags)


@lru_cache(maxsize=1_000)
def other(api_key: int, version: int, client_id: str | None) -> bytes:
    """What is no Produce."""
    if api_key == frames.FETCH:
        return frames.fetch(version=version, client_id=client_id)
    return frames.request(api_key, version, client_id=client_id)


class Client:
    """One connection's client: it has habits, from which it departs now and then."""

    def __init__(self, random: Random, is_hostile: bool) -> None:
        self._random = random
        self._is_hostile = is_hostile
        self._next_id = random.choice((0, 1, 2**31 - 40))
        self._client_id = random.choice(CLIENT_IDS)
        self._version = random.choice((3, 7, 8, 9, 11, 12, 13))
        self._acks = random.choice((1, 1, -1))
        self._producer_id = random.choice(PRODUCER_IDS)
        self._odd = random.choice((0.02, 0.1, 0.4))

    def frame(self) -> bytes:
        """The next request."""
        random = self._random
        if random.random() >= self._odd:
            frame = produce(
                self._version, self._acks, self._client_id, random.choice((0, 0, 0, 1)),
                random.choice((0, 0, 1, 2)), random.choice(SIZES), self._producer_id,
            )  # fmt: skip
        else:
            frame = self._unusual()
        whole = bytearray(frame)
        struct.pack_into(">i", whole, 8, self._next_id)
        self._next_id = self._next_id + 1 if self._next_id < 2**31 - 1 else -(2**31)
        if self._is_hostile and random.random() < 0.02:
            at = random.randrange(min(len(whole), _MAX_WRONG_AT))
            whole[at if random.random() < 0.8 else -1 - at] = random.choice((0, 1, 2, 0x7F, 0x80, 0xFF))
        return bytes(whole)

    def _unusual(self) -> bytes:
        random = self._random
        kind = random.randrange(8)
        if kind == 0:
            self._client_id = random.choice(CLIENT_IDS)
        elif kind == 1:
            self._producer_id = random.choice(PRODUCER_IDS)
        elif kind == 2:
            self._version = random.randrange(3, 14)
        elif kind == 3:
            self._acks = random.choice((1, -1, 0))
        elif kind <= 5:
            return odd_produce(random, self._version, self._client_id)
        else:
            api_key = random.choice(_OTHERS)
            first, last = OFFERED[api_key]
            return other(api_key, random.randrange(first, last + 1), self._client_id)
        return produce(self._version, self._acks, self._client_id, 0, 0, 300, self._producer_id)


@lru_cache(maxsize=4_000)
def _answer(api_key: int, version: int, size: int, throttle_ms: int, is_moved: bool) -> bytes:
    if api_key == frames.PRODUCE:
        return frames.produce_answer(version=version, throttle_ms=throttle_ms, is_moved=is_moved)
    if api_key == frames.FETCH:
        return frames.fetch_answer_of(size, version=version, throttle_ms=throttle_ms)
    if api_key not in OFFERED or not OFFERED[api_key][0] <= version <= OFFERED[api_key][1]:
        return frames.sized(bytes(8))  # a damaged request asked for it
    return frames.answer(api_key, version)


def answer(random: Random, api_key: int, version: int, correlation_id: int, *, is_hostile: bool) -> bytes:
    """The broker's to such a request; of a hostile one maybe to another, or damaged."""
    if api_key in FLEXIBLE_WHEN_REMOVED:
        version = 0
    told_ms = random.choice((0, 0, 0, 50))
    size, is_moved = random.choice((200, 2_000, 30_000)), random.random() < 0.1
    whole = bytearray(_answer(api_key, version, size, told_ms, is_moved))
    struct.pack_into(">i", whole, 4, correlation_id)
    if is_hostile and random.random() < 0.005:
        whole[random.randrange(min(len(whole), 40))] = random.choice((0, 1, 0x7F, 0x80, 0xFF))
    return bytes(whole)
