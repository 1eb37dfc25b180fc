"""The storm benchmark's frames and figures: wrong ones make a storm that no broker takes, or false claims."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest
from aiokafka.record.default_records import DefaultRecordBatch
from hypothesis import given
from hypothesis import strategies as st

from bench.hostile.frames import api_of
from bench.lib.poller import Poller
from bench.storm import frames as storm_frames
from bench.storm.frames import StormRequests, scattered_id
from bench.storm.load import (
    CONNECTIONS,
    PATIENCE_S,
    PATIENT_S,
    PIPELINED,
    StormConnection,
    Tally,
    patience_s,
)
from bench.storm.record import (
    Good,
    LiveHeap,
    Pause,
    Record,
    StormAt,
    live_heap,
    read_good,
    read_pauses,
    read_storm,
)
from bench.storm.report import StormRun, admission_bound, good_by_second, summary_of
from bench.storm.rig import CONTROL, DIRECT, QUIET, SERIAL, THROUGH, Phase, Setting
from bench.storm.run import Death, Direct, Through
from sluice.protocol.codec.codec import decode_frame
from sluice.protocol.produce_refusal import refuse_produce
from testkit.frames import load_frames as frames

TOPIC = "storm"
NOW_MS = 1_750_000_000_000
SETTING = Setting(Path("."), 10_000, 10, SERIAL)
numbers = st.integers(min_value=1, max_value=2**62)


def requests(*, with_ids: bool = True, ids: int = 1) -> StormRequests:
    return StormRequests("client", TOPIC, ids, NOW_MS, with_ids=with_ids)


def batches_of(frame: bytes) -> list[bytes]:
    """Of a Produce v12 frame for one topic, in the order of its partitions."""
    pos = frame.index(TOPIC.encode()) + len(TOPIC)
    count, pos = frames.read_uvarint(frame, pos)
    found = []
    for _ in range(count - 1):
        length, pos = frames.read_uvarint(frame, pos + 4)
        found.append(frame[pos : pos + length - 1])
        pos += length  # one more than the batch has, as its tags
    return found


@given(numbers, st.integers(min_value=1, max_value=12))
def test_every_batch_of_the_storm_is_valid_and_has_its_own_id(number: int, ids: int) -> None:
    storm = requests(ids=ids)
    block = storm.block(number, 2)
    batches = [x for at in (0, storm.frame_bytes) for x in batches_of(block[at : at + storm.frame_bytes])]
    assert len(batches) == 2 * ids
    assert {len(batch) for batch in batches} == {storm_frames.BATCH_BYTES}
    for index, batch in enumerate(map(DefaultRecordBatch, batches)):
        assert batch.validate_crc()
        assert batch.producer_id == scattered_id(number + index)
        assert (batch.producer_epoch, batch.base_sequence) == (0, 0)
        assert [record.value for record in batch] == [storm_frames.VALUE]


@given(numbers, numbers)
def test_no_two_numbers_have_the_same_id(first: int, second: int) -> None:
    assert (scattered_id(first) == scattered_id(second)) == (first == second)
    assert 0 <= scattered_id(first) < 2**63


def test_without_ids_the_storm_is_the_same_bytes_with_id_minus_one() -> None:
    with_ids, without = requests().block(7, 1), requests(with_ids=False).block(7, 1)
    assert len(with_ids) == len(without)
    (batch,) = map(DefaultRecordBatch, batches_of(without))
    assert batch.validate_crc()
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (-1, -1, -1)
    different = [at for at, (x, y) in enumerate(zip(with_ids, without, strict=True)) if x != y]
    assert len(different) <= 4 + 8 + 2 + 4  # checksum, id, epoch, base sequence


def test_a_block_is_its_frames_one_behind_the_other() -> None:
    storm = requests(ids=4)
    block = storm.block(10, 3)
    size = storm.frame_bytes
    assert len(block) == 3 * size
    assert [block[at : at + size] for at in range(0, 3 * size, size)] == [
        storm.block(number, 1) for number in (10, 14, 18)
    ]


def refuse(frame: bytes, message: str) -> bytes:
    """Sluice's answer to a request of the storm."""
    body = 4 + 8 + 2 + len("client") + 1
    return refuse_produce(
        bytearray(frame), body, len(frame), 12, 1, error_code=19, message=message, throttle_ms=1_000
    )


def decoded(frame: bytes) -> tuple[Any, Any]:
    """Header and body."""
    told = decode_frame("request", *api_of(frame), frame[4:])
    return told.header, told.body


def test_a_request_of_the_storm_waits_for_all_copies_of_its_partitions() -> None:
    frame = requests(ids=2).block(5, 1)
    assert storm_frames.first_frame_end(frame) == len(frame)
    assert storm_frames.first_frame_end(frame[:-1]) == 0
    header, body = decoded(frame)
    (topic,) = body["topicData"]
    partitions = [partition["index"] for partition in topic["partitionData"]]
    assert (header["correlationId"], header["clientId"]) == (5, "client")
    assert (body["acks"], topic["name"], partitions) == (-1, TOPIC, [0, 1])


def test_the_logins_are_those_of_plain() -> None:
    handshake, authenticate = storm_frames.login_requests("client", "alice", "secret")
    assert decoded(handshake)[1]["mechanism"] == "PLAIN"
    assert decoded(authenticate)[1]["authBytes"]
    assert authenticate.endswith(b"\0\0\0\x0d\0alice\0secret")  # the length of it, in 4 bytes


def test_answers_are_counted_by_error_and_what_is_not_whole_is_left() -> None:
    fine = bytes(frames.produce_response(TOPIC))
    request = requests(ids=1).block(1, 1)
    refused = refuse(request, "why")
    data = fine + refused + fine[:-1]
    assert storm_frames.produce_errors(data, TOPIC, 1) == ([0, 19], len(fine) + len(refused))
    assert storm_frames.produce_errors(b"", TOPIC, 1) == ([], 0)


def test_each_partition_of_an_answer_counts() -> None:
    refused = refuse(requests(ids=3).block(1, 1), "a message")
    assert storm_frames.produce_errors(refused, TOPIC, 3) == ([19, 19, 19], len(refused))
    unlike = bytearray(refuse(requests(ids=3).block(1, 1), ""))  # without a text it is as long as a fine one
    third_at = len(unlike) - 6 - 33 + 4
    struct.pack_into(">h", unlike, third_at, 0)
    assert storm_frames.produce_errors(unlike, TOPIC, 3) == ([19, 19, 0], len(unlike))


def test_unheard_connections_can_carry_the_whole_storm() -> None:
    capacity = sum(
        PIPELINED / patience_s(index) for index in range(CONNECTIONS) if patience_s(index) < PATIENT_S
    )
    assert capacity >= 12_000
    assert sum(patience_s(index) == PATIENT_S for index in range(CONNECTIONS)) == CONNECTIONS // 4
    assert len({patience_s(index) for index in range(CONNECTIONS)}) == CONNECTIONS * 3 // 4 + 1
    assert min(patience_s(index) for index in range(CONNECTIONS)) >= PATIENCE_S / 2


def test_a_connection_that_is_not_logged_in_takes_no_requests() -> None:
    poller = Poller()
    try:
        connection = StormConnection(poller, 1, (b"", b""), requests(), TOPIC, PATIENCE_S, Tally())
        assert connection.room() == 0
    finally:
        poller.close()


def test_the_storms_lines_are_read_as_they_were_written(tmp_path: Path) -> None:
    tally = Tally()
    tally.offered, tally.missed, tally.connected = 30, 2, 5
    tally.answers.update([0, 0, 19])
    output = tmp_path / "storm"
    output.write_text(tally.line(12.5) + "\n" + tally.line(13.0)[:20])
    (read,) = read_storm(output)
    assert (read.at_s, read.offered, read.missed, read.connected) == (12.5, 30, 2, 5)
    assert (read.accepted, read.refused) == (2, 1)


def storm_at(at_s: float, accepted: int, offered: int = 0) -> StormAt:
    return StormAt(at_s, offered, 0, {0: accepted}, 64, 0, 0, 0, 0.1)


def a_death(**found: bool) -> Death:
    fine = {"exited": False, "silent": False, "answers_afterwards": True, "heap_full": False}
    return Death(**fine | found, out_of_memory_lines=0, seconds=40.0, ids=380_000)


def test_a_broker_is_dead_by_two_signs_of_three_or_when_its_process_has_ended() -> None:
    assert not a_death().died
    assert not a_death(silent=True).died
    assert not a_death(heap_full=True).died
    assert a_death(silent=True, heap_full=True).died
    assert a_death(silent=True, answers_afterwards=False).died
    assert a_death(heap_full=True, answers_afterwards=False).died
    assert not a_death(answers_afterwards=False).died
    assert a_death(exited=True, answers_afterwards=False).died


def test_a_record_that_failed_has_no_latency(tmp_path: Path) -> None:
    output = tmp_path / "good"
    output.write_text("1 10.0 0.002\n2 10.5 -1.000000\n3 11.0 0.004\nend 4 3\n5 1")
    good = read_good(output)
    assert (good.sent, good.acknowledged) == (4, 3)
    assert good.latencies_s(10.0, 11.0) == [0.002]
    assert good.latencies_s(10.0, 11.5) == [0.002, 0.004]


def test_pauses_of_the_collector_are_told_in_our_own_time(tmp_path: Path) -> None:
    log = tmp_path / "gc.log"
    log.write_text(
        "[1000500ms] Using G1\n"
        "[1001000ms] GC(0) Pause Young (Normal) (G1 Evacuation Pause) 100M->50M(256M) 5.125ms\n"
        "[1001500ms] GC(1) Concurrent Mark Cycle 12.3ms\n"
        "[1002000ms] GC(1) Pause Remark 90M->80M(256M) 2.000ms\n"
        "[1002500ms] GC(2) Pause Full (G1 Compaction Pause) 255M->254M(256M) 300.5ms\n"
        "[1003000ms] GC(3) Pause You"
    )
    assert read_pauses(log, 900.0) == [
        Pause(101.0, 100, 50, 256, 5.125),
        Pause(102.0, 90, 80, 256, 2.0),
        Pause(102.5, 255, 254, 256, 300.5),
    ]


HISTOGRAM = """\
 num     #instances         #bytes  class name (module)
-------------------------------------------------------
   1:        123456       40000000  [B (java.base@17.0.15)
   9:          1010          48480  org.apache.kafka.storage.internals.log.ProducerStateEntry
  10:             3            144  org.apache.kafka.storage.internals.log.ProducerStateEntryX
Total        900000       52428800
"""


def test_a_class_histogram_tells_what_lives_and_how_many_producers() -> None:
    assert live_heap(HISTOGRAM) == LiveHeap(52_428_800, 1010)
    assert live_heap(HISTOGRAM).mib == 50.0
    with pytest.raises(ValueError, match="not a class histogram"):
        live_heap("Unknown diagnostic command")


def test_the_bound_of_72_seconds_at_a_thousand_an_hour_is_1122() -> None:
    assert admission_bound(72, 1_000) == pytest.approx(1_122)


def test_the_good_clients_seconds_are_counted_from_the_start_of_the_phase() -> None:
    good = Good([Record(10.1, 0.002), Record(10.9, 0.004), Record(11.0, None), Record(12.5, 0.1)], 4, 3)
    assert good_by_second(good, 10.0, 13.0) == [
        {"second": 0, "answered": 2, "p50_ms": 3.0, "max_ms": 4.0},
        {"second": 2, "answered": 1, "p50_ms": 100.0, "max_ms": 100.0},
    ]


def a_phase(kind: str, start_s: float, end_s: float, storm: list[StormAt]) -> Phase:
    return Phase(
        kind,
        start_s,
        end_s,
        storm=storm,
        live_before=LiveHeap(60 * 2**20, 1),
        live_after=LiveHeap(61 * 2**20, 1_011),
        answers_at_end=True,
        sluice_metrics={"sluice_producer_ids_new_total": 1_010.0},
    )


def records(start_s: float, latency_s: float, count: int = 200) -> list[Record]:
    return [Record(start_s + number / 100, latency_s) for number in range(count)]


def test_the_summary_holds_the_storm_against_both_controls_and_counts_what_is_lost() -> None:
    phases = [
        a_phase(QUIET, 0, 2, []),
        a_phase(CONTROL, 10, 12, [storm_at(12, 20_000, 20_000)]),
        a_phase(THROUGH, 20, 22, [storm_at(22, 1_010, 20_000)]),
        a_phase(CONTROL, 30, 32, [storm_at(32, 18_000, 20_000)]),
    ]
    good = Good([*records(0, 0.002), *records(10, 0.004), *records(20, 0.005), *records(30, 0.004)], 801, 801)
    through = Through(phases, good, 801, [Pause(21.0, 100, 70, 256, 1.0)], [])
    direct = Direct(
        a_phase(DIRECT, 100, 150, [storm_at(140, 380_000, 500_000)]),
        Good(records(100, 0.05), 4_000, 3_000),
        [],
        a_death(exited=True),
    )
    summary = summary_of(StormRun(SETTING, 240.0, through, direct))
    assert summary["p99_ratio"] == 1.25
    assert summary["through_heap_growth_mib"] == 1.0
    assert summary["through_broker_entries_growth"] == 1_010
    assert summary["through_ids_admitted"] == 1_010
    assert summary["through_bound"] == 1_100  # 1.1 · 1,000 · (1 + 2 ÷ 3600)
    assert summary["through_ids_offered_per_s"] == 10_000
    assert (summary["good_sent"], summary["good_acked"], summary["good_stored"]) == (801, 801, 801)
    assert (summary["good_sent_in_storm"], summary["good_acked_in_storm"]) == (200, 200)
    assert summary["direct_good_lost"] == 1_000
    assert summary["direct_ids_per_s"] == 9_500


def test_a_storm_through_sluice_alone_has_no_figures_of_the_other() -> None:
    phases = [a_phase(THROUGH, 20, 22, [storm_at(22, 1_010, 20_000)])]
    through = Through(phases, Good(records(20, 0.005), 200, 200), 200, [], [])
    summary = summary_of(StormRun(SETTING, 100.0, through, None))
    assert not [name for name in summary if name.startswith("direct_")]
    assert summary["p99_ratio"] is None
