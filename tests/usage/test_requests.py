"""Which requests get a row of their own, and that a sample's weights add up to what there was."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from sluice.quotas.entity import QuotaEntity
from sluice.quotas.kinds import QuotaKind
from sluice.quotas.limits.limits import QuotaLimits
from sluice.quotas.manager import QuotaManager
from sluice.usage.access_record import REQUEST_COLUMNS, WINDOW_MS, Value
from sluice.usage.collector import ROWS_AT_ONCE, AccessCollector
from sluice.usage.flow import AccessFlow, Origin, TopicNames
from sluice.usage.records import Unanswered
from sluice.usage.requests import RequestRows
from sluice.usage.rollup import Window
from testkit.access_log.access_records import (
    NOW_MS,
    OFFSET_MS,
    UNIX_MS,
    connection,
    flow,
    record,
    recorder_of,
    rollup,
)
from testkit.access_log.finished import Finished

Named = dict[str, object]


def rows_of(
    records: list[Finished],
    *,
    share: float = 0.0,
    max_rows: int = 1_000_000,
    batch: int = 500,
    seed: int = 7,
    unanswered: tuple[Unanswered, ...] = (),
) -> tuple[list[Named], RequestRows]:
    requests = RequestRows("p1", share=share, slow_ms=1000.0, max_rows=max_rows, random=Random(seed))
    collected = AccessCollector(rollup(), requests)
    for begin in range(0, max(len(records), 1), batch):
        recorder = recorder_of(records[begin : begin + batch])
        if not begin:
            recorder.unanswered.extend(unanswered)
        collected.take(recorder, NOW_MS + 5_000, UNIX_MS + 5_000)
    collected.close(NOW_MS + 5_000, UNIX_MS + 5_000)
    names = [column.name for column in REQUEST_COLUMNS]
    return [dict(zip(names, row, strict=True)) for rows in told_by(collected) for row in rows], requests


def told_by(collected: AccessCollector) -> list[list[tuple[Value, ...]]]:
    """Rows of single requests, as they are told together."""
    ready = [columns for columns in collected.ready() if not isinstance(columns, Window)]
    return [list(zip(*columns, strict=True)) for columns in ready]


def ordinary(count: int, of: AccessFlow | None = None) -> list[Finished]:
    of = of or flow(connection())
    return [record(of, index % 5_000, request_bytes=100 + index % 900) for index in range(count)]


def test_a_row_says_what_the_record_says() -> None:
    quotas = QuotaManager(QuotaLimits([(QuotaEntity("alice"), {"producer_byte_rate": 1000})]))
    of = flow(connection(address="10.0.0.7"), "app", topic="orders")
    sensor = quotas.sensor(QuotaKind.PRODUCE, "alice", "app", NOW_MS)
    one = record(of, 250, request_bytes=300, upstream_ms=3.0, held_ms=10.0, throttle_ms=40.0)
    one = one._replace(sensor=sensor)
    [row], _ = rows_of([one])
    assert row == {
        "finished_ms": UNIX_MS + 250, "proxy": "p1", "broker": "broker:9092", "user": "alice",
        "client_id": "app", "address": "10.0.0.7", "api_key": 0, "api_version": 9, "topic": "orders",
        "request_bytes": 300, "response_bytes": 40, "upstream_ms": 3.0, "held_ms": 10.0,
        "throttle_ms": 40.0, "rule": "user", "why": "throttled", "weight": 1.0,
    }  # fmt: skip


def test_times_are_rounded() -> None:
    """0.3 · 64 = 19.2 → 19 / 64;  1.0004 · 1,024 = 1,024.4 → 1.0;  2.0005 · 1,024 = 2,048.5 → 2,049"""
    one = record(flow(connection()), 1, upstream_ms=0.3, held_ms=1.0004, throttle_ms=2.0005)
    [row], _ = rows_of([one])
    found = [row[name] for name in ("upstream_ms", "held_ms", "throttle_ms")]
    assert found == [19 / 64, 1.0, 2_049 / 1024]


def test_what_is_throttled_slow_or_marked_gets_one_row_and_the_rest_none() -> None:
    alice = flow(connection())
    records = [
        record(alice, 1),
        record(alice, 2, throttle_ms=5.0, upstream_ms=2_000.0),
        record(alice, 3, upstream_ms=1_000.0),
        record(alice.marked("refused"), 4, upstream_ms=0.0),
        record(alice.marked("producer_id"), 5, throttle_ms=9.0),
        record(alice, 6, upstream_ms=999.0),
    ]
    rows, _ = rows_of(records)
    assert [(row["why"], row["finished_ms"]) for row in rows] == [
        ("throttled", UNIX_MS + 2),
        ("slow", UNIX_MS + 3),
        ("refused", UNIX_MS + 4),
        ("producer_id", UNIX_MS + 5),
    ]


@pytest.mark.parametrize("beside", [0, 1, 499])
def test_one_slow_request_is_found_among_many(beside: int) -> None:
    alice = flow(connection())
    ordinary = [record(alice, index, upstream_ms=0.001) for index in range(beside)]
    for upstream_ms, expected in ((1_000.0, ["slow"]), (999.999, [])):
        rows, _ = rows_of([*ordinary, record(alice, 600, upstream_ms=upstream_ms)])
        assert [row["why"] for row in rows] == expected


def test_names_are_as_in_the_roll_up() -> None:
    """A client id is cut, and a topic known by its id has the name that came after the request."""
    names = TopicNames()
    origin = Origin("alice", "10.0.0.1", "1", names=names)
    of = AccessFlow(origin, "x" * 300, "produce", "an-id", b"0123456789abcdef")
    collected = AccessCollector(rollup(), RequestRows("p1", share=1.0, slow_ms=1000.0, max_rows=10))
    collected.take(recorder_of([record(of, 1)]), NOW_MS + 20, UNIX_MS + 20)
    names.learn(b"0123456789abcdef", "orders")
    collected.close(NOW_MS + 20, UNIX_MS + 20)
    [[row]] = told_by(collected)
    named = dict(zip((column.name for column in REQUEST_COLUMNS), row, strict=True))
    assert (named["client_id"], named["topic"]) == ("x" * 256, "orders")


def test_a_request_whose_answer_never_came_is_a_failed_one() -> None:
    of = flow(connection(), topic="orders")
    one = Unanswered(of, 0, 9, 700, NOW_MS + 100, 0.0, NOW_MS + 350)
    [row], _ = rows_of([], unanswered=(one,))
    what = ("why", "finished_ms", "upstream_ms", "request_bytes", "response_bytes", "topic")
    assert [row[name] for name in what] == ["failed", NOW_MS + 350 + OFFSET_MS, 250.0, 700, 0, "orders"]
    assert (row["held_ms"], row["throttle_ms"]) == (0.0, 0.0)


@pytest.mark.parametrize("share", [0.5, 0.01])
def test_the_weights_of_a_sample_add_up_to_the_number_and_the_bytes_of_what_it_stands_for(
    share: float,
) -> None:
    """100,000 requests: the number's standard error is √((1 − share) ÷ (share · n)), 3.1 % at a share of 1 %;
    five of them are allowed. (Bytes vary too, hence the half more.)"""
    records = ordinary(100_000)
    rows, _ = rows_of(records, share=share)
    error = 5.0 * ((1 - share) / (share * len(records))) ** 0.5
    assert {row["why"] for row in rows} == {"sample"}
    assert sum(float(str(row["weight"])) for row in rows) == pytest.approx(len(records), rel=error)
    weighed = sum(float(str(row["weight"])) * int(str(row["request_bytes"])) for row in rows)
    assert weighed == pytest.approx(sum(one.request_bytes for one in records), rel=1.5 * error)


def test_the_sample_does_not_depend_on_how_often_the_recorder_is_drained() -> None:
    records = ordinary(20_000)
    sizes = (1, 37, 500, 20_000)
    taken = [[row["finished_ms"] for row in rows_of(records, share=0.05, batch=size)[0]] for size in sizes]
    assert all(one == taken[0] for one in taken)


def test_requests_with_a_reason_are_not_in_the_sample_and_all_else_is_with_a_share_of_1() -> None:
    alice = flow(connection())
    records = [record(alice, index, throttle_ms=float(index % 2)) for index in range(100)]
    rows, _ = rows_of(records, share=1.0)
    assert sorted(int(str(row["finished_ms"])) - int(UNIX_MS) for row in rows) == list(range(100))
    assert {(row["why"], row["weight"]) for row in rows} == {("throttled", 1.0), ("sample", 1.0)}


def test_rows_beyond_the_cap_of_a_window_are_dropped_and_counted() -> None:
    alice = flow(connection())
    requests = RequestRows("p1", share=0.0, slow_ms=1000.0, max_rows=10)
    collected = AccessCollector(rollup(), requests)
    slow = [record(alice, index, upstream_ms=5_000.0) for index in range(15)]
    collected.take(recorder_of(slow), NOW_MS + 20, UNIX_MS + 20)
    later = [record(alice, 10_000 + index, upstream_ms=5_000.0) for index in range(3)]
    collected.take(recorder_of(later), NOW_MS + 10_020, UNIX_MS + 10_020)
    [rows] = told_by(collected)
    written = Counter(int(str(row[0])) // WINDOW_MS - int(UNIX_MS) // WINDOW_MS for row in rows)
    assert (written, requests.rows_dropped) == ({0: 10, 1: 3}, 5)


def test_rows_are_told_when_there_are_enough_of_them_or_their_window_is_over() -> None:
    alice = flow(connection())
    collected = AccessCollector(rollup(), RequestRows("p1", share=0.0, slow_ms=1000.0, max_rows=10_000))

    def told_after(first: int, count: int) -> list[int]:
        slow = [record(alice, first + index, upstream_ms=5_000.0) for index in range(count)]
        collected.take(recorder_of(slow), NOW_MS + first + count, UNIX_MS + first + count)
        return [len(rows) for rows in told_by(collected)]

    assert told_after(0, ROWS_AT_ONCE - 1) == []
    assert told_after(1_000, 1) == [ROWS_AT_ONCE]
    assert told_after(2_000, 1) == []
    assert told_after(10_000, 2) == [3]  # the first window's, and with it what is there of the next
    assert told_after(11_000, 1) == []
    collected.close(NOW_MS + 12_000, UNIX_MS + 12_000)
    assert [len(rows) for rows in told_by(collected)] == [1]
