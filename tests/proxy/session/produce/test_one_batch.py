"""What OneBatch says of a Produce is what the walk says, or nothing."""

from __future__ import annotations

from random import Random

import pytest

from sluice.protocol.apis import PRODUCE
from sluice.protocol.errors import MalformedFrame
from sluice.protocol.headers import request_body
from sluice.protocol.produce import ProduceUsage
from sluice.proxy.session.produce.one_batch import OneBatch
from testkit.frames import load_frames
from testkit.frames.frames import produce, record_batch

VERSION = load_frames.PRODUCE_VERSION
CLIENT_ID = "app"
START = 14 + len(CLIENT_ID)
BATCH_CODEC_AT = 22


def frame(
    value_bytes: int, count: int = 1, *, topic: str = "t", partition: int = 0, codec: int = 0
) -> bytearray:
    batch = bytearray(load_frames.record_batch(bytes(value_bytes), count))
    batch[BATCH_CODEC_AT] |= codec
    return load_frames.produce_request(CLIENT_ID, topic, bytes(batch), acks=-1, partition=partition)


def walked(buf: bytearray, version: int = VERSION) -> tuple[ProduceUsage, list[tuple[int, int]] | None]:
    """And (records, codec) of each batch; None: malformed."""
    usage = ProduceUsage()
    try:
        body = request_body(buf, START, len(buf), PRODUCE, version)
        usage.read(buf, body, len(buf), len(buf), version)
    except MalformedFrame:
        return usage, None
    at = usage.first_batch + BATCH_CODEC_AT
    return usage, [(max(batch[7], 0), buf[at] & 7) for batch in usage.batches]


def learnt(*frames: bytearray) -> OneBatch:
    known = OneBatch()
    for one in frames:
        known.walked(one, START, VERSION, walked(one)[0])
    return known


def asked(known: OneBatch, buf: bytearray, version: int = VERSION, end: int | None = None) -> object:
    return known.records_and_codec(buf, START, len(buf) if end is None else end, len(buf), version)


@pytest.mark.parametrize("value_bytes", [40, 100, 1_000, 16_000, 16_200, 16_250, 16_300, 16_400, 100_000])
@pytest.mark.parametrize("codec", [0, 4])
def test_a_produce_that_begins_like_an_earlier_one_is_read_in_place(value_bytes: int, codec: int) -> None:
    known = learnt(frame(500))
    found = asked(known, frame(value_bytes, 3 if value_bytes < 10_000 else 1, codec=codec))
    assert found == (3 if value_bytes < 10_000 else 1, codec)


def test_every_length_around_those_of_the_compact_lengths_is_read_as_the_walk_reads_it() -> None:
    known = learnt(frame(500))
    for value_bytes in (*range(1, 120), *range(16_200, 16_400)):
        one = frame(value_bytes)
        _, expected = walked(one)
        assert expected is not None
        assert asked(known, one) in {None, expected[0]}
    assert asked(known, frame(16_350)) is not None


def test_several_partitions_are_known_and_another_topic_or_version_is_walked() -> None:
    known = learnt(*(frame(500, partition=number) for number in range(3)))
    assert asked(known, frame(700, partition=2)) == (1, 0)
    assert asked(known, frame(700, partition=3)) is None
    assert asked(known, frame(700, topic="u")) is None
    assert asked(known, frame(700), version=VERSION - 1) is None


def test_what_has_not_arrived_is_not_looked_at() -> None:
    known = learnt(frame(500))
    one = frame(700)
    assert asked(known, one, end=START + 60) is None
    assert asked(known, one, end=START + 120) == (1, 0)


def test_two_batches_and_two_partitions_are_walked() -> None:
    batch = load_frames.record_batch(bytes(300))
    two = load_frames.produce_request(CLIENT_ID, "t", batch + batch, acks=-1)
    assert len(walked(two)[1] or ()) == 2
    assert asked(learnt(frame(500)), two) is None
    assert asked(learnt(two), two) is None


def test_whatever_is_damaged_the_walk_says_the_same_or_that_it_is_none() -> None:
    random = Random(25)
    known, same = learnt(frame(500)), 0
    whole = [frame(value_bytes) for value_bytes in (100, 600, 17_000)]
    for _ in range(20_000):
        one = bytearray(random.choice(whole))
        for _ in range(random.randrange(3)):
            one[random.randrange(START, START + 110)] = random.randrange(256)
        found = asked(known, one)
        if found is not None:
            _, expected = walked(one)
            assert expected == [found]
            same += 1
    assert same > 5_000


@pytest.mark.parametrize("value_bytes", [300, 20_000])
def test_a_produce_that_is_cut_anywhere_is_read_no_further_than_it_has_arrived(value_bytes: int) -> None:
    """A buffer of its own ends where the arrived bytes do: to look behind them ended the connection."""
    known = learnt(frame(500))
    whole = frame(value_bytes)
    for end in range(START, 250):
        found = known.records_and_codec(whole[:end], START, end, len(whole), VERSION)
        assert found in {None, (1, 0)}
        assert found == known.records_and_codec(whole, START, end, len(whole), VERSION)
    assert found == (1, 0)


def of_compact_length(length: int) -> bytearray:
    """Its one batch is told to take `length`, one more than its bytes."""
    return bytearray(produce({"t": [(0, record_batch(bytes(length - 1 - 61)))]}, version=9, acks=-1))


@pytest.mark.parametrize(
    ("length", "is_read"),
    [
        (127, False),
        (128, True),
        (16_383, True),
        (16_384, True),
        (16_385, True),
        (2**21 - 1, True),
        (2**21, False),
    ],
)
def test_a_batch_is_read_in_place_if_its_compact_length_has_two_or_three_bytes(
    length: int, *, is_read: bool
) -> None:
    known, first = OneBatch(), of_compact_length(500)
    known.walked(first, START, 9, walked(first, 9)[0])
    assert (asked(known, of_compact_length(length), 9) is not None) is is_read


@pytest.mark.parametrize(("value_bytes", "length_bytes"), [(300, 2), (20_000, 3)])
def test_it_is_read_from_the_byte_on_that_ends_its_head(value_bytes: int, length_bytes: int) -> None:
    known, one = learnt(frame(500)), frame(value_bytes)
    usage, _ = walked(one)
    end = usage.first_batch + 61
    assert usage.first_batch == usage.batches[0][1] + 5 + length_bytes
    assert asked(known, one, end=end) == (1, 0)
    assert asked(known, one, end=end - 1) is None


def test_a_number_of_records_below_none_is_none() -> None:
    one = frame(300)
    at = walked(one)[0].first_batch + 57
    one[at : at + 4] = b"\xff" * 4
    assert asked(learnt(frame(500)), one) == (0, 0)


def test_a_head_of_512_bytes_is_learnt_and_a_longer_one_is_not() -> None:
    """A topic's name has 249 at most, a transactional id any number."""
    for id_bytes, is_learnt in ((495, True), (496, False)):
        batch = load_frames.record_batch(bytes(300))
        one = bytearray(produce({"t": [(0, batch)]}, version=9, transactional_id="x" * id_bytes))
        known = OneBatch()
        known.walked(one, START, 9, walked(one, 9)[0])
        usage, _ = walked(one, 9)
        assert usage.batches[0][1] + 5 - START == 512 + id_bytes - 495
        assert (asked(known, one, 9) is not None) is is_learnt


def test_a_produce_of_another_version_or_of_a_head_of_another_length_is_learnt_anew() -> None:
    first, longer = frame(500), frame(500, topic="longer")
    known = learnt(first, longer)
    assert asked(known, first) is None
    assert asked(known, longer) == (1, 0)
    known.walked(longer, START, VERSION - 1, walked(longer)[0])
    assert asked(known, longer) is None
    assert asked(known, longer, VERSION - 1) == (1, 0)


def test_before_the_flexible_versions_nothing_is_learnt() -> None:
    known, one = OneBatch(), frame(500)
    known.walked(one, START, 8, walked(one)[0])
    assert asked(known, one, 8) is None
    known.walked(one, START, 9, walked(one)[0])
    assert asked(known, one, 9) is not None
