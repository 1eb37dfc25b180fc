"""The roll-up is the sum of the records, whenever they are told of, and bounded."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sluice.proxy.connection.data_path import PURE
from sluice.proxy.pump.choice import PUMP
from sluice.usage.access_record import WINDOW_MS
from sluice.usage.collector import AccessCollector
from sluice.usage.flow import AccessFlow, Origin, TopicNames
from sluice.usage.index import OTHER_CLASS
from sluice.usage.records import Amount, ConnectionRecord, EventKind, RequestRecord, ThrottleEvent
from sluice.usage.requests import RequestRows
from sluice.usage.rollup import CONNECTION_CLASS, Rollup, Window
from testkit.access_log.access_records import (
    NOW_MS,
    OFFSET_MS,
    UNIX_MS,
    Limited,
    RowOfNames,
    brute_force,
    connection,
    flow,
    record,
    recorder_of,
    rollup,
)
from testkit.access_log.access_windows import Told
from testkit.access_log.finished import Finished
from testkit.proxy.data_paths import path_of

KEY = ("window_start_ms", "user", "client_id", "api_class", "topic")
TOPIC_ID = bytes(range(16))


def collector(of: Rollup | None = None, *, share: float = 0.0) -> AccessCollector:
    requests = RequestRows("p1", share=share, slow_ms=1000.0, max_rows=1_000_000)
    return AccessCollector(of or rollup(), requests)


def rows_of(collected: AccessCollector, end_ms: float) -> list[RowOfNames]:
    """The roll-up's, of all that was taken; the process ends then."""
    collected.close(end_ms, end_ms + OFFSET_MS)
    told = Told()
    return [row for ready in collected.ready() if isinstance(ready, Window) for row in told.rows(ready)]


def one_row(*records: RequestRecord, **options: Any) -> RowOfNames:
    collected = collector(rollup(**options))
    collected.take(recorder_of(records), NOW_MS + 9_999, UNIX_MS + 9_999)
    (row,) = rows_of(collected, NOW_MS + 9_999)
    return row


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[Finished], list[float]]:
    """Records in the order in which requests finished, and the times at which they are drained."""
    origins = [connection("alice"), connection("alice", "10.0.0.2"), connection("bob")]
    flows = [
        flow(origin, client_id, api_key, topic)
        for origin in origins
        for client_id in ("a", "")
        for api_key, topic in ((0, "t1"), (0, "t2"), (1, ""), (3, ""), (12, ""))
    ]
    keys = {"produce": 0, "fetch": 1, "metadata": 3, "group": 12}
    times = sorted(draw(st.lists(st.integers(0, 32_000), max_size=60)))
    records = []
    for after_ms in times:
        of = draw(st.sampled_from(flows))
        throttle_ms = draw(st.sampled_from((0.0, 0.0, 8.0, 250.5)))
        records.append(
            record(
                of,
                after_ms,
                api_key=keys[of.api_class],
                request_bytes=draw(st.integers(14, 2_000_000)),
                response_bytes=draw(st.integers(0, 2_000_000)),
                upstream_ms=draw(st.integers(0, 64_000)) / 64.0,
                held_ms=throttle_ms / 2,
                throttle_ms=throttle_ms,
            )
        )
    drains = sorted(draw(st.lists(st.integers(0, 40_000), max_size=12)))
    return records, [float(after_ms) for after_ms in drains]


def plain(one: Finished) -> RequestRecord:
    """As sessions write it: no subclass."""
    return tuple.__new__(tuple, one)


@pytest.mark.parametrize("path", [PURE.name, PUMP])
@settings(deadline=None)
@given(history=histories())
def test_it_is_the_sum_of_the_records_window_by_window(
    path: str, history: tuple[list[Finished], list[float]]
) -> None:
    records, drains = history
    collected = collector(rollup(counting=path_of(path).counting))
    taken = 0
    for after_ms in [*drains, 50_000.0]:
        now_ms = NOW_MS + after_ms
        until = taken
        while until < len(records) and records[until][6] <= now_ms:
            until += 1
        collected.take(recorder_of(plain(one) for one in records[taken:until]), now_ms, now_ms + OFFSET_MS)
        taken = until
    rows = rows_of(collected, NOW_MS + 50_000.0)
    expected = brute_force(records)
    assert {tuple(row[name] for name in KEY) for row in rows} == expected.keys()
    assert len(rows) == len(expected), "one row for each key and window"
    for row in rows:
        wanted = expected[tuple(row[name] for name in KEY)]
        assert {name: row[name] for name in wanted} == pytest.approx(wanted)


def test_a_request_that_finishes_with_the_window_is_of_the_next() -> None:
    alice = flow(connection())
    collected = collector()
    records = [record(alice, 9_999.9), record(alice, 10_000.0)]
    collected.take(recorder_of(records), NOW_MS + 10_050, UNIX_MS + 10_050)
    rows = rows_of(collected, NOW_MS + 10_050)
    assert [(row["window_start_ms"], row["requests"]) for row in rows] == [
        (UNIX_MS, 1),
        (UNIX_MS + WINDOW_MS, 1),
    ]


def test_the_busiest_second_may_be_the_last_or_one_before() -> None:
    for times_ms in ((100, 900, 1_100), (100, 8_100, 8_900)):
        alice = flow(connection())
        records = [record(alice, ms, request_bytes=400, response_bytes=100) for ms in times_ms]
        assert one_row(*records)["peak_bytes_1s"] == 1_000


@pytest.mark.parametrize("path", [PURE.name, PUMP])
def test_of_a_produce_that_is_refused_no_byte_has_passed(path: str) -> None:
    """The request counts, its answer and its waiting do."""
    alice = flow(connection())
    refused = record(
        alice.marked("refused"), 3, request_bytes=9_000, upstream_ms=0.0, held_ms=8.0, throttle_ms=8.0
    )
    records = [record(alice, 1, request_bytes=100), refused, record(alice, 5, request_bytes=300)]
    row = one_row(*map(plain, records), counting=path_of(path).counting)
    told = ("requests", "request_bytes", "response_bytes", "throttle_ms", "held_ms", "peak_bytes_1s")
    assert [row[name] for name in told] == [3, 400, 120, 8.0, 8.0, 520]
    assert refused.request_bytes == 9_000, "what other consumers are told"


def test_a_wall_clock_that_is_set_back_costs_no_request() -> None:
    """By 3 s, just before a window ends: the next one is the next all the same."""
    alice = flow(connection())
    collected = collector()
    collected.take(recorder_of([record(alice, 100)]), NOW_MS + 200, UNIX_MS + 200)
    collected.take(recorder_of([record(alice, 9_000)]), NOW_MS + 10_001, UNIX_MS + 7_001)
    collected.take(recorder_of([record(alice, 10_500)]), NOW_MS + 11_000, UNIX_MS + 8_000)
    rows = rows_of(collected, NOW_MS + 11_000)
    assert [(row["window_start_ms"] - UNIX_MS, row["requests"]) for row in rows] == [(0, 2), (10_000, 1)]


def test_a_wall_clock_that_is_set_back_far_costs_no_request_either() -> None:
    alice = flow(connection())
    collected = collector()
    collected.take(recorder_of([record(alice, 9_900)]), NOW_MS + 9_950, UNIX_MS + 9_950)
    for after_ms in (10_001, 11_000):
        one = record(alice, after_ms - 1)
        collected.take(recorder_of([one]), NOW_MS + after_ms, UNIX_MS + after_ms - 3_600_000)
    assert sum(row["requests"] for row in rows_of(collected, NOW_MS + 11_000)) == 3


def test_what_is_told_late_counts_as_of_the_last_second_and_is_not_lost() -> None:
    alice = flow(connection())
    collected = collector()
    collected.take(recorder_of([record(alice, 10_100)]), NOW_MS + 10_200, UNIX_MS + 10_200)
    collected.take(recorder_of([record(alice, 9_990)]), NOW_MS + 10_300, UNIX_MS + 10_300)
    (row,) = rows_of(collected, NOW_MS + 10_300)
    assert (row["window_start_ms"], row["requests"]) == (UNIX_MS + WINDOW_MS, 2)


def test_connections_are_those_that_finished_a_request_in_the_window() -> None:
    """Three of alice's; one of them is held and has finished none."""
    flows = [flow(connection()) for _ in range(3)]
    records = [record(flows[0], 1), record(flows[0], 5_000), record(flows[1], 9_000)]
    recorder = recorder_of(records)
    recorder.throttles.append(event(EventKind.HOLD, flows[2]))
    collected = collector()
    collected.take(recorder, NOW_MS + 9_500, UNIX_MS + 9_500)
    (row,) = rows_of(collected, NOW_MS + 9_500)
    assert (row["requests"], row["connections"], row["holds"]) == (3, 2, 1)


def event(kind: EventKind, of: AccessFlow, quota: str = "produce") -> ThrottleEvent:
    return ThrottleEvent(kind, NOW_MS + 10, 100.0, quota, "user", "alice", "app", 0, 1000, flow=of)


def test_holds_mutes_refusals_and_shadows_are_counted_and_drops_are_not() -> None:
    alice = flow(connection())
    recorder = recorder_of([])
    kinds = [EventKind.HOLD, EventKind.MUTE, EventKind.MUTE, EventKind.SHADOW, EventKind.DROP]
    recorder.throttles.extend(event(kind, alice) for kind in kinds)
    recorder.throttles.append(event(EventKind.REFUSAL, alice, "producer_ids"))
    recorder.throttles.append(event(EventKind.REFUSAL, alice, "controller_mutation"))
    collected = collector()
    collected.take(recorder, NOW_MS + 20, UNIX_MS + 20)
    (row,) = rows_of(collected, NOW_MS + 20)
    counted = ("holds", "mutes", "shadows", "refusals", "producer_ids_refused", "requests", "connections")
    assert [row[name] for name in counted] == [1, 2, 1, 2, 1, 0, 0]


def test_which_limit_brought_a_wait_about_is_told() -> None:
    """Two mutes of 100 ms for request time, one for bytes; a hold for producer ids, one for bytes. Times are
    rounded to 1/1024 ms."""
    alice = flow(connection())
    recorder = recorder_of([record(alice, 5)])
    mute, hold = EventKind.MUTE, EventKind.HOLD
    recorder.throttles += [event(mute, alice), event(mute, alice, "request"), event(hold, alice)]
    recorder.throttles += [event(mute, alice, "request")._replace(delay_ms=100.0004)]
    recorder.throttles += [event(hold, alice, "producer_ids"), event(EventKind.SHADOW, alice, "request")]
    collected = collector()
    collected.take(recorder, NOW_MS + 20, UNIX_MS + 20)
    (row,) = rows_of(collected, NOW_MS + 20)
    counted = ("mutes", "request_mutes", "request_throttle_ms", "holds", "producer_id_holds", "shadows")
    assert [row[name] for name in counted] == [3, 2, 200.0, 2, 1, 1]


def test_mutations_and_producer_ids_are_added_up() -> None:
    alice = flow(connection())
    recorder = recorder_of([])
    amounts = [("mutations", 12), ("mutations", -2), ("producer_ids_new", 3), ("producer_ids_forced", 1)]
    recorder.amounts.extend(Amount(alice, column, amount, NOW_MS + 5) for column, amount in amounts)
    collected = collector()
    collected.take(recorder, NOW_MS + 20, UNIX_MS + 20)
    (row,) = rows_of(collected, NOW_MS + 20)
    assert [row[name] for name in ("mutations", "producer_ids_new", "producer_ids_forced")] == [10.0, 3, 1]


def ended(cause: str, peer: str = "10.0.0.9:5000") -> ConnectionRecord:
    return ConnectionRecord(cause, "", peer, "alice", "app", NOW_MS, NOW_MS + 30, 4, 100, 100)


def test_connections_are_counted_by_address_with_their_refusals_and_failures() -> None:
    recorder = recorder_of([])
    recorder.arrivals.extend([("10.0.0.9", NOW_MS), ("10.0.0.9", NOW_MS + 1), ("::1", NOW_MS + 2)])
    recorder.connections.extend(
        ended(cause)
        for cause in ("client_closed", "connection_creation_rate", "malformed_frame", "tls_failed")
    )
    recorder.connections.append(ended("client_reset", "::1:6000"))
    collected = collector()
    collected.take(recorder, NOW_MS + 100, UNIX_MS + 100)
    rows = rows_of(collected, NOW_MS + 100)
    assert {row["api_class"] for row in rows} == {CONNECTION_CLASS}
    counted = ("address", "connections_opened", "refusals", "failures", "user", "client_id", "connections")
    assert [tuple(row[name] for name in counted) for row in rows] == [
        ("10.0.0.9", 2, 1, 2, "", "", 0),
        ("::1", 1, 0, 1, "", "", 0),
    ]


def test_a_request_costs_what_the_model_says_but_no_longer_than_it_took() -> None:
    """Two of 1024 B, answers of 2048 B: 2 · (0.5 + 1) + 2 · 1 = 5 ms; answered in 0.25 ms: 2 · (0.25 + 1)."""
    for upstream_ms, cost_ms in ((8.0, 5.0), (0.25, 2.5)):
        for api_key in (0, 12):  # added up from sums, and one by one
            of = flow(connection(), api_key=api_key)
            requests = [
                record(
                    of, ms, api_key=api_key, request_bytes=1024, response_bytes=2048, upstream_ms=upstream_ms
                )
                for ms in (10, 20)
            ]
            assert one_row(*requests)["request_cost_ms"] == cost_ms


def test_times_are_rounded_when_they_have_been_added_up() -> None:
    """(0.3 + 0.3) · 64 = 38.4 → 38 / 64;  1.0004 · 1,024 = 1,024.4 → 1.0;  2.0005 · 1,024 = 2,048.5 →
    2,049 / 1,024;  the cost is bounded by 0.6 ms, with answers' 80 / 2,048 it is 0.6390625 → 654 / 1,024"""
    of = flow(connection())
    row = one_row(
        record(of, 1, upstream_ms=0.3, held_ms=1.0004, throttle_ms=2.0005), record(of, 2, upstream_ms=0.3)
    )
    found = [row[name] for name in ("upstream_ms", "held_ms", "throttle_ms", "request_cost_ms")]
    assert found == [38 / 64, 1.0, 2_049 / 1024, 654 / 1024]


def test_the_limits_are_those_of_the_end_of_the_window() -> None:
    in_force = [Limited((1.0, None, None, None, None))]
    collected = collector(rollup(limits_now=lambda: in_force[-1]))
    collected.take(recorder_of([record(flow(connection()), 1)]), NOW_MS + 2, UNIX_MS + 2)
    in_force.append(Limited((2.0, None, None, None, 7.0)))
    (row,) = rows_of(collected, NOW_MS + 9_000)
    assert (row["producer_byte_rate"], row["consumer_byte_rate"], row["producer_ids_rate"]) == (
        2.0,
        None,
        7.0,
    )


def test_what_is_beyond_the_cap_falls_into_one_row_and_nothing_is_lost() -> None:
    """Two users of 30 clients each, room for 40 rows: 16 of each, for the last ten are kept for users
    who have fewer; and one for all others."""
    flows = [flow(connection(user), f"{user}-{n}") for n in range(30) for user in ("alice", "bob")]
    collected = collector(rollup(max_keys=40))
    records = [record(of, index) for index, of in enumerate(flows * 2)]
    collected.take(recorder_of(records), NOW_MS + 500, UNIX_MS + 500)
    rows = rows_of(collected, NOW_MS + 500)
    (other,) = [row for row in rows if row["api_class"] == OTHER_CLASS]
    assert (len(rows), other["requests"], other["user"], other["connections"]) == (33, 56, "", 28)
    assert sum(row["requests"] for row in rows) == 120
    assert collected.rollup.keys_folded == 28


def test_a_user_who_mints_client_ids_leaves_room_for_the_others() -> None:
    flows = [flow(connection("mallory"), f"minted-{n}") for n in range(100)] + [flow(connection("bob"))]
    collected = collector(rollup(max_keys=40))
    collected.take(recorder_of([record(of, 1) for of in flows]), NOW_MS + 500, UNIX_MS + 500)
    rows = rows_of(collected, NOW_MS + 500)
    users = [row["user"] for row in rows]
    assert (users.count("mallory"), users.count("bob")) == (20, 1)


def test_a_client_id_is_kept_to_its_first_256_characters() -> None:
    row = one_row(record(flow(connection(), "x" * 30_000), 1))
    assert row["client_id"] == "x" * 256


def test_a_topic_known_by_its_id_gets_its_name_when_that_is_told() -> None:
    names = TopicNames()
    of = AccessFlow(Origin("alice", names=names), "app", "produce", "AAECAwQFBgcICQoLDA0ODw", TOPIC_ID)
    collected = collector()
    collected.take(recorder_of([record(of, 1)]), NOW_MS + 2, UNIX_MS + 2)
    names.learn(TOPIC_ID, "orders")
    collected.take(recorder_of([record(of, 3), record(of, 10_001)]), NOW_MS + 10_002, UNIX_MS + 10_002)
    rows = rows_of(collected, NOW_MS + 10_002)
    assert [(row["topic"], row["requests"]) for row in rows] == [
        ("AAECAwQFBgcICQoLDA0ODw", 1),
        ("orders", 1),
        ("orders", 1),
    ]


def test_a_request_with_a_row_of_its_own_counts_for_its_connection_once() -> None:
    alice = flow(connection())
    row = one_row(record(alice, 1), record(alice.marked("producer_id"), 2), record(alice, 3))
    assert (row["requests"], row["connections"]) == (3, 1)


def test_an_idle_proxy_writes_nothing() -> None:
    collected = collector()
    for minutes in range(1, 4):
        collected.take(recorder_of([]), NOW_MS + minutes * 60_000, UNIX_MS + minutes * 60_000)
    assert rows_of(collected, NOW_MS + 200_000) == []
