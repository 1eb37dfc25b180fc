"""The template of a connection's last Produce: what fits it is what the walk would have found."""

from __future__ import annotations

import struct
from math import inf
from random import Random
from typing import Final

import pytest

from sluice.protocol.apis import PRODUCE, ApiKey, readable_versions
from sluice.protocol.errors import ProtocolError
from sluice.protocol.headers import REQUEST_HEAD, REQUEST_HEAD_BYTES, request_body
from sluice.protocol.produce import BatchHead
from sluice.proxy.session.policy import SessionPolicy, SharedState
from sluice.proxy.session.produce.header_prediction import KnownProduce
from sluice.proxy.session.produce.requests import ProduceSide
from sluice.proxy.session.producer_ids.admission import ProduceIds
from sluice.proxy.session.producer_ids.shared import ProducerIds
from sluice.proxy.session.producer_ids.verdict import Verdict
from sluice.proxy.session.session import Session
from sluice.quotas.limits.limits import QuotaLimits
from sluice.quotas.manager import QuotaManager
from sluice.usage.records import Recorder
from testkit.frames.frames import TOPIC_ID, produce, record_batch
from testkit.frames.produce_usage import BEFORE, Walk
from testkit.thorough import cases

VERSIONS = readable_versions(ApiKey.PRODUCE)
NOW = 5.0
PRODUCER_ID = 4_242
BATCH_BYTES = (61, 62, 63, 64, 125, 126, 127, 128, 500, 16_381, 16_382, 16_383, 16_384, 100_000)
"""on both sides of where the length of the records takes a byte more"""


def frame(
    batch_bytes: int = 300,
    *,
    version: int = 9,
    producer_id: int = PRODUCER_ID,
    topic: str = "orders",
    partition: int = 3,
    sequence: int = 0,
    transactional_id: str | None = None,
    header_tags: int = 0,
) -> bytearray:
    batch = record_batch(bytes(batch_bytes - 61), producer_id=producer_id, epoch=0, sequence=sequence)
    return bytearray(
        produce(
            {TOPIC_ID if version >= 13 else topic: [(partition, batch)]},
            version=version,
            acks=-1,
            transactional_id=transactional_id,
            header_tags=header_tags if version >= 9 else 0,
        )
    )


def walked(request: bytearray, version: int) -> list[BatchHead]:
    """What the walk without any short cut finds."""
    usage = Walk()
    (_, _, _, _, length) = REQUEST_HEAD.unpack_from(request)
    body = request_body(request, REQUEST_HEAD_BYTES + length, len(request), PRODUCE, version)
    usage.read(request, body, len(request), len(request), version)
    assert usage.heads_read
    return usage.batches


def start_of(request: bytearray) -> int:
    (_, _, _, _, length) = REQUEST_HEAD.unpack_from(request)
    return REQUEST_HEAD_BYTES + int(length)


def known(request: bytearray, version: int, batch: BatchHead | None = None) -> KnownProduce:
    """One that the request, with this batch, has passed twice."""
    template = KnownProduce()
    if batch is None:
        (batch,) = walked(request, version)
    for _ in range(2):
        template.passed(request, 0, version, -1, batch, {}, inf)
    return template


def fits(
    template: KnownProduce,
    request: bytearray,
    version: int,
    *,
    now_ms: float = NOW,
    arrived: int | None = None,
    filler: int = 0,
    behind_bytes: int = 200_000,
) -> bool:
    """In the midst of a buffer, with another's bytes around it: does it pass without a judge being asked?"""
    end = len(request) if arrived is None else arrived
    buf = bytearray(BEFORE) + request[:end] + bytes([filler]) * behind_bytes
    at = len(BEFORE)
    judge = Judge(template)
    side = produce_side(judge)
    start, frame_end = at + start_of(request), at + len(request)
    try:
        passes = side._produce(buf, at, at + end, frame_end, PRODUCE, version, 1, start, now_ms)
    except ProtocolError:  # what does not fit is read
        return False
    return passes and not judge.asked


class Judge(ProduceIds):
    """Of the templates given; lets everything pass, and knows if it was asked."""

    def __init__(self, known: KnownProduce) -> None:
        super().__init__(ProducerIds(), None)
        self.known = known
        self.asked = False

    def judge(self, *request: object) -> Verdict:
        self.asked = True
        return Verdict.PASS


SHARED: Final = SharedState(QuotaManager(QuotaLimits([])), Recorder())


def produce_side(judge: Judge) -> ProduceSide:
    session = Session(SHARED, SessionPolicy(), "10.0.0.1")
    session._throttling.ids, session._throttling.known = judge, judge.known
    return session._requests


@pytest.mark.parametrize("version", VERSIONS)
def test_a_request_with_other_records_fits_whatever_their_size(version: int) -> None:
    template = known(frame(version=version), version)
    for size in (*BATCH_BYTES, 2**21 - 3, 2**21 - 2):
        assert fits(template, frame(size, version=version, sequence=size), version), size


@pytest.mark.parametrize("version", [9, 12, 13])
def test_records_beyond_two_mebibytes_are_walked(version: int) -> None:
    assert not fits(known(frame(version=version), version), frame(2**21 - 1, version=version), version)


@pytest.mark.parametrize("version", VERSIONS)
def test_transactional_producers_and_tags_of_the_header_have_templates_too(version: int) -> None:
    request = frame(version=version, transactional_id="tx", header_tags=2)
    template = known(request, version)
    assert fits(template, frame(700, version=version, transactional_id="tx", header_tags=2), version)
    assert not fits(template, frame(700, version=version, transactional_id="ty", header_tags=2), version)
    assert not fits(template, frame(700, version=version), version)


def test_a_very_long_transactional_id_makes_no_template() -> None:
    for count, fits_then in ((400, True), (600, False)):
        request = frame(transactional_id="t" * count)
        assert fits(known(request, 9), request, 9) == fits_then


@pytest.mark.parametrize("version", VERSIONS)
def test_another_id_topic_partition_or_version_does_not_fit(version: int) -> None:
    template = known(frame(version=version), version)
    assert not fits(template, frame(version=version, producer_id=PRODUCER_ID + 1), version)
    assert not fits(template, frame(version=version, producer_id=-1), version)
    assert not fits(template, frame(version=version, partition=4), version)
    if version < 13:
        assert not fits(template, frame(version=version, topic="orderz"), version)
    for other in VERSIONS:
        assert fits(template, frame(version=version), other) == (other == version)


@pytest.mark.parametrize("batch_bytes", [5_000, 20_000])
def test_a_request_fits_once_the_head_of_its_batch_has_arrived_and_what_lies_behind_is_not_read(
    batch_bytes: int,
) -> None:
    request = frame(batch_bytes)
    template = known(frame(), 9)
    seen = [fits(template, request, 9, arrived=count) for count in range(50, 150)]
    first = seen.index(True)
    assert all(seen[first:])
    assert 50 + first < len(request) - batch_bytes + 61 + 3
    for count in range(40, 50 + first):
        assert not fits(template, request, 9, arrived=count, filler=request[count])


@pytest.mark.parametrize("version", VERSIONS)
def test_a_request_without_records_at_the_end_of_the_buffer_does_not_fit(version: int) -> None:
    topic = TOPIC_ID if version >= 13 else "orders"
    request = bytearray(produce({topic: [(3, None)]}, version=version, acks=-1))
    assert not fits(known(frame(version=version), version), request, version, behind_bytes=0)


NO_GATES: Final[dict[object, object]] = {}


def passed(template: KnownProduce, request: bytearray, until_ms: float = inf) -> None:
    template.passed(request, 0, 9, -1, walked(request, 9)[0], NO_GATES, until_ms)


def test_what_passed_once_is_no_template_yet_nor_is_what_comes_by_turns() -> None:
    template = KnownProduce()
    for producer_id in (1, 2) * 3:
        request = frame(producer_id=producer_id)
        passed(template, request)
        assert not fits(template, request, 9)
    passed(template, request)
    assert fits(template, request, 9)


def test_a_producer_of_several_partitions_has_a_template_for_each_that_it_wrote_to() -> None:
    template = KnownProduce()
    for partition in (0, 1, 2, 3):
        passed(template, frame(partition=partition))
    assert [fits(template, frame(700, partition=p), 9) for p in range(5)] == [False, True, True, True, False]
    assert not fits(template, frame(partition=1, producer_id=1), 9)


def test_templates_are_bounded_and_begin_anew_when_a_layer_has_turned() -> None:
    template = KnownProduce()
    for until_ms in (100.0, 200.0):
        for partition in range(200):
            passed(template, frame(partition=partition), until_ms)
            assert not fits(template, frame(partition=150), 9, now_ms=NOW)
        assert sum(fits(template, frame(partition=p), 9, now_ms=until_ms - 1.0) for p in range(200)) == 64


def test_gates_the_turn_of_a_layer_and_another_user_end_it() -> None:
    gates: dict[object, object] = {}
    request = frame()
    template = KnownProduce()
    for _ in range(2):
        template.passed(request, 0, 9, -1, walked(request, 9)[0], gates, 100.0)
    assert fits(template, request, 9, now_ms=99.0)
    assert not fits(template, request, 9, now_ms=100.0)
    gates["any"] = "gate"
    assert not fits(template, request, 9, now_ms=99.0)
    gates.clear()
    assert fits(template, request, 9, now_ms=99.0)
    template.forget()
    assert not fits(template, request, 9, now_ms=99.0)


@pytest.mark.parametrize("version", [3, 8, 9, 12, 13])
def test_a_partition_beside_it_that_has_no_records_makes_no_template(version: int) -> None:
    topic = TOPIC_ID if version >= 13 else "orders"
    batch = record_batch(bytes(99), producer_id=PRODUCER_ID, epoch=0, sequence=0)
    for partitions in ([(3, batch), (4, None)], [(4, None), (3, batch)]):
        request = bytearray(produce({topic: partitions}, version=version, acks=-1))
        template = known(request, version)
        assert not fits(template, request, version)


@pytest.mark.thorough
@pytest.mark.parametrize("version", VERSIONS)
def test_whatever_is_done_to_a_request_what_fits_is_what_the_walk_finds(version: int) -> None:
    """Else an id could be smuggled past the quota, as a second batch or behind a length of another form."""
    random = Random(version)
    fitting = 0
    passed_before = frame(version=version)
    (batch_before,) = walked(passed_before, version)
    originals = [frame(size, version=version) for size in (80, 127, 128, 300, 16_383, 16_384)]
    for _ in range(cases(4_000)):
        original = random.choice(originals)
        template = known(passed_before, version, batch_before)
        request = mutated(original, random)
        if not fits(template, request, version, behind_bytes=20_000):
            continue
        fitting += 1
        try:
            found = walked(request, version)
        except ProtocolError:
            continue  # only what stands behind the records can be wrong; no broker takes it
        (batch,) = found
        assert request[batch[0] : batch[1]] == original[slice(*walked(original, version)[0][:2])]
        assert batch[2] == 3
        assert batch[4] in {PRODUCER_ID, -1}  # none: a message set of an old kind
    assert fitting > cases(100)


@pytest.mark.parametrize(
    ("version", "batch_bytes", "length_bytes"),
    [(8, 300, 4), (9, 80, 1), (9, 300, 2), (9, 20_000, 3), (13, 20_000, 3)],
)
def test_a_single_bit_of_the_lengths_or_of_the_id_that_differs_is_enough_not_to_fit(
    version: int, batch_bytes: int, length_bytes: int
) -> None:
    request = frame(batch_bytes, version=version)
    template = known(frame(version=version), version)
    assert fits(template, request, version, behind_bytes=0)
    batch = walked(request, version)[0][1] + (12 if version < 9 else 5 + length_bytes)
    assert request[batch + 16] == 2, "its magic"
    lengths = (*range(batch - length_bytes, batch), *range(batch + 8, batch + 12))
    for at in (*lengths, *range(batch + 43, batch + 51)):
        for bit in range(8):
            other = request.copy()
            other[at] ^= 1 << bit
            assert not fits(template, other, version, behind_bytes=0), (at - batch, bit)


def test_what_is_shorter_than_a_batchs_head_does_not_fit() -> None:
    """60 bytes, all lengths of which agree."""
    request = frame(61)
    template = known(frame(), 9)
    assert fits(template, request, 9)
    batch = request.index(record_batch(producer_id=PRODUCER_ID, epoch=0, sequence=0))
    assert request[batch - 1] == 62
    del request[batch + 60]
    request[batch - 1], request[batch + 11] = 61, 60 - 12
    struct.pack_into(">i", request, 0, len(request) - 4)
    assert not fits(template, request, 9)


def mutated(original: bytearray, random: Random) -> bytearray:
    """Up to three things changed: a byte, a number, a part doubled, missing or put in; its size is right."""
    request = bytearray(original)
    for _ in range(random.randint(0, 3)):
        at = random.randrange(min(len(request), 150))
        if random.random() < 0.3:
            at = len(request) - 1 - at % 4
        kind = random.randrange(5)
        if kind == 0:
            request[at] = random.choice((0, 1, 2, 3, 127, 128, 129, 255, random.randrange(256)))
        elif kind == 1:
            del request[at : at + random.randint(1, 3)]
        elif kind == 2:
            request[at:at] = random.randbytes(random.randint(1, 3))
        elif kind == 3:
            request[at:at] = record_batch(b"more", producer_id=9, epoch=0, sequence=0)
        else:
            request[at : at + 4] = struct.pack(">i", random.choice((-1, 0, 61, len(request) - 12)))
    request[: REQUEST_HEAD_BYTES + 3] = original[: REQUEST_HEAD_BYTES + 3]  # the session has read these
    struct.pack_into(">i", request, 0, len(request) - 4)
    return request


# With the gate behind it --------------------------------------------------------------------------------


def test_a_known_id_needs_no_judgement_from_its_third_request_on_until_a_batch_is_refused() -> None:
    shared = ProducerIds()
    ids = ProduceIds(shared, None)
    ids.use("alice", (1.0, True, "user"))

    def judge(request: bytearray) -> Verdict | None:
        start = start_of(request)
        body = request_body(request, start, len(request), PRODUCE, 9)
        end = len(request)
        return ids.judge(request, 0, body, end, end, 9, -1, NOW, NOW + 1e4)

    request = frame()
    assert judge(request) is Verdict.ADMIT
    ids.gate.forwarded(NOW)
    for _ in range(2):
        assert not fits(ids.known, request, 9)
        assert judge(request) is Verdict.PASS
    assert fits(ids.known, request, 9)
    assert ids.known.acks == -1
    other = ProduceIds(shared, None)
    other.use("alice", (1.0, True, "user"))
    late = frame(producer_id=7)
    (batch,) = walked(late, 9)
    assert other.gate.judge(late, [batch], -1, NOW, NOW + 1e4) is Verdict.HOLD
    assert other.gate.wake(NOW + 1e4) is Verdict.REFUSE
    assert not fits(ids.known, request, 9)


def test_requests_without_a_producer_id_fit_though_there_are_gates() -> None:
    shared = ProducerIds()
    shared.tables.table("alice", NOW).refused({(1, b"orders", 3): (0, 0)}, NOW)
    ids = ProduceIds(shared, None)
    ids.use("alice", (1.0, True, "user"))
    request = frame(producer_id=-1)
    start, end = start_of(request), len(request)
    for _ in range(2):
        assert not fits(ids.known, request, 9)
        body = request_body(request, start, end, PRODUCE, 9)
        assert ids.judge(request, 0, body, end, end, 9, -1, NOW, NOW + 1e4) is Verdict.PASS
    assert fits(ids.known, request, 9)
    assert not fits(ids.known, frame(), 9)
    ids.use("bob", (1.0, True, "user"))
    assert not fits(ids.known, request, 9)
