"""The arithmetic of the evenness benchmark's cases, and the frames and sessions of its light consumers."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from bench.evenness.case_figures import (
    bytes_beyond,
    highest_sliding_second,
    longest_wait_s,
    peak_vs_bound,
    told_vs_waited,
    useful_share,
    vs_rate,
)
from bench.lib.fetch_frames import FetchAsk, fetch_frame, read_fetch_answer, useful_bytes, whole_batches
from bench.lib.fetcher import Connection, Fetched, Fetcher
from sluice.protocol.codec.wire import Struct
from testkit.frames import frames as codec_frames
from testkit.frames import load_frames as frames

BATCH = frames.record_batch(b"x" * 100, 3)
VERSION = frames.FETCH_VERSION


def answer(
    *partitions: tuple[int, bytes],
    error: int = 0,
    session_id: int = 0,
    throttle_ms: int = 0,
    watermark: int = 9,
) -> memoryview:
    """A v12 answer by the codec: (partition, records) of the topic t."""
    of_topic: list[Struct] = [
        {
            "partitionIndex": index,
            "highWatermark": watermark,
            "abortedTransactions": [{"producerId": 7, "firstOffset": 0}],
            "records": records.hex(),
        }
        for index, records in partitions
    ]
    responses: list[Struct] = [{"topic": "t", "partitions": list(of_topic)}] if of_topic else []
    body: Struct = {
        "throttleTimeMs": throttle_ms,
        "errorCode": error,
        "sessionId": session_id,
        "responses": list(responses),
    }
    return memoryview(codec_frames.answer(frames.FETCH, VERSION, body))


def request_body(frame: bytes | bytearray) -> dict[str, Any]:
    """What the codec reads in a Fetch."""
    return codec_frames.decoded("request", frames.FETCH, VERSION, frame).body


def offsets_in(body: dict[str, Any]) -> dict[int, int]:
    """Partition → offset of all that a Fetch names."""
    return {x["partition"]: x["fetchOffset"] for topic in body["topics"] for x in topic["partitions"]}


def test_a_fetch_reads_as_the_codec_reads_it() -> None:
    frame = fetch_frame("app", "t", {3: 70, 0: 5}, FetchAsk(max_wait_ms=250, max_bytes=9), (41, 2))
    body = request_body(frame)
    assert (body["sessionId"], body["sessionEpoch"], body["maxWaitMs"], body["maxBytes"]) == (41, 2, 250, 9)
    assert offsets_in(body) == {3: 70, 0: 5}
    empty = fetch_frame("app", "t", {}, FetchAsk(), (41, -1))
    assert request_body(empty)["topics"] == []


def test_a_fetch_answer_of_several_partitions_is_read() -> None:
    cut = BATCH[:-1]
    read = read_fetch_answer(answer((3, BATCH + cut), (0, BATCH), session_id=41, throttle_ms=12))
    assert (read.error, read.session_id, read.throttle_ms) == (0, 41, 12)
    assert [(x.index, x.error, x.high_watermark, len(x.records)) for x in read.partitions] == [
        (3, 0, 9, 2 * len(BATCH) - 1),
        (0, 0, 9, len(BATCH)),
    ]
    assert whole_batches(read.partitions[0].records) == (len(BATCH), 3)
    assert useful_bytes(read.partitions) == 2 * len(BATCH)
    assert read_fetch_answer(answer(error=70)).error == 70


def test_records_that_are_only_part_of_a_batch_are_of_no_use() -> None:
    assert whole_batches(memoryview(BATCH[:-1])) == (0, -1)
    assert whole_batches(memoryview(b"")) == (0, -1)


class Broker(Connection):
    """Answers as told, and notes session, epoch and partitions of what it was asked."""

    def __init__(self, answers: Sequence[memoryview]) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[int, int, dict[int, int]]] = []

    async def ask(self, frame: bytes | bytearray) -> memoryview:
        body = request_body(frame)
        self.asked.append((body["sessionId"], body["sessionEpoch"], offsets_in(body)))
        return self.answers.pop(0)


def asked_by(fetcher: Fetcher, *answers: memoryview) -> list[tuple[int, int, dict[int, int]]]:
    """What a consumer asks whose requests are answered so."""
    broker = Broker(answers)

    async def run() -> None:
        while broker.answers:
            await fetcher.fetch(broker)

    asyncio.run(run())
    return broker.asked


def test_a_session_is_kept_as_the_java_consumer_keeps_it() -> None:
    fetcher = Fetcher("app", "t", [0, 1], session=True)
    asked = asked_by(
        fetcher,
        answer((0, BATCH), (1, b""), session_id=41),
        answer(session_id=41),
        answer(error=70),
        answer(throttle_ms=900),
        answer((1, BATCH), session_id=42),
    )
    assert asked == [
        (0, 0, {0: 0, 1: 0}),  # full
        (41, 1, {0: 3}),  # only what changed
        (41, 2, {}),
        (0, 0, {1: 0, 0: 3}),  # the session is unknown: full again, and with all offsets
        (0, 0, {1: 0, 0: 3}),  # an empty full answer opens none
    ]
    assert fetcher.open_session == 42
    assert fetcher.log.misunderstood == 0


def test_an_empty_full_answer_without_throttle_would_not_be_taken_by_java() -> None:
    fetcher = Fetcher("app", "t", [0], session=True)
    asked_by(fetcher, answer())
    assert fetcher.log.misunderstood == 1


def test_a_consumer_at_the_end_of_a_log_begins_anew() -> None:
    asked = asked_by(Fetcher("app", "t", [0]), answer((0, BATCH), watermark=3), answer((0, b""), watermark=3))
    assert asked == [(0, -1, {0: 0}), (0, -1, {0: 0})]
    stays = asked_by(
        Fetcher("app", "t", [0], wraps=False), answer((0, BATCH), watermark=3), answer((0, b""), watermark=3)
    )
    assert stays[1] == (0, -1, {0: 3})


def test_bytes_beyond_are_the_most_that_ever_was_beyond() -> None:
    events = [(100.0, 15), (101.0, 15), (110.0, 5)]
    assert bytes_beyond(events, 100.0, 10.0, 1.0) == 10  # 30 at 101, where 20 were due
    assert bytes_beyond([(100.0, 10)], 100.0, 10.0, 1.0) == 0
    assert vs_rate(events, 100.0, 10.0, 10.0, 1.0) == 30 / 110


def test_the_highest_second_begins_wherever_it_is_highest() -> None:
    events = [(10.0, 1), (10.6, 4), (11.5, 5), (11.6, 100)]
    assert highest_sliding_second(events, 10.0, 11.6) == 9
    assert highest_sliding_second([], 10.0, 12.0) == 0
    assert peak_vs_bound(110, 10, 50.0) == 2.0


def fetched(at_s: float, wire_bytes: int, useful: int) -> Fetched:
    return Fetched(at_s - 1, at_s, wire_bytes, useful, (), 0, 0)


def test_the_useful_share_is_of_what_came_from_a_time_on() -> None:
    answers = [fetched(1.0, 1000, 0), fetched(3.0, 100, 80), fetched(4.0, 100, 40)]
    assert useful_share(answers, 3.0) == 0.6
    with pytest.raises(ValueError, match="nothing"):
        useful_share(answers, 5.0)


def test_the_longest_wait_counts_those_who_wait_still() -> None:
    assert longest_wait_s([101.0, 103.0], 100.0, 108.0) == 5.0
    assert longest_wait_s([], 100.0, 108.0) == 8.0


def test_told_is_held_against_what_was_waited_and_at_most_what_may_be_told() -> None:
    pairs = [(1.0, 2.0), (0.0, 0.001), (0.0, 4.0)]
    assert told_vs_waited(pairs) == [0.5, 0.0]
    assert told_vs_waited([(2.0, 8.0)], most_told_s=2.0) == [1.0]
