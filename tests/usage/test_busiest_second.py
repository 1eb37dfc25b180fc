"""What the rows of a bucket had in its busiest second adds up to the bytes of that second."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable

from hypothesis import given, settings
from hypothesis import strategies as st

from sluice.proxy.access_log.access_log import LimitsInForce
from sluice.proxy.access_log.busiest import Seconds, bytes_in_busiest_second
from sluice.proxy.access_log.runs import ends_of_runs, no_pause
from sluice.proxy.access_log.sums import WindowSums
from sluice.quotas.entity import DEFAULT, QuotaEntity
from sluice.quotas.exempt import ExemptRule
from sluice.quotas.limits.limits import QuotaLimits
from sluice.usage.flow import AccessFlow
from sluice.usage.records import RequestRecord
from testkit.access_log.access_records import (
    OFFSET_MS,
    Limited,
    RowOfNames,
    connection,
    flow,
    record,
    rollup,
)
from testkit.access_log.access_windows import Told

BOTH = {"producer_byte_rate": 1_000.0, "consumer_byte_rate": 1_000.0}
PRODUCE, FETCH, METADATA = 0, 1, 3


def rows_of(records: Iterable[RequestRecord], limits: QuotaLimits) -> list[RowOfNames]:
    in_force = LimitsInForce(limits)
    grows = rollup(limits_now=lambda: in_force)
    grows.add_requests(sorted(records, key=lambda one: one[6]), slow_ms=1e9)
    grows.close(OFFSET_MS)
    return Told().rows(grows.over.popleft())


def sent(of: AccessFlow, second: int, size: int, api_key: int = PRODUCE) -> RequestRecord:
    return record(of, second * 1000.0, api_key=api_key, request_bytes=size, response_bytes=0)


def test_the_client_ids_of_a_user_tell_the_busiest_second_of_the_user() -> None:
    """90, 80 and 110 bytes in three seconds; each client's own were others."""
    for entity, expected in (
        (QuotaEntity(user=DEFAULT), {"app-1": 50, "app-2": 60}),
        (QuotaEntity(client_id=DEFAULT), {"app-1": 90, "app-2": 80}),  # each has a limit by itself
    ):
        one, other = flow(connection(), "app-1"), flow(connection(), "app-2")
        records = [sent(one, 0, 90), sent(one, 2, 50), sent(other, 1, 80), sent(other, 2, 60)]
        told = rows_of(records, QuotaLimits([(entity, BOTH)]))
        assert {row["client_id"]: row["peak_bytes_1s"] for row in told} == expected


def test_a_limit_in_shadow_mode_has_a_busiest_second_too() -> None:
    alice = QuotaEntity(user="alice")
    limits = QuotaLimits([(alice, BOTH)], shadow={alice: list(BOTH)})
    records = [sent(flow(connection(), f"app-{second}"), second, 10) for second in range(5)]
    assert sum(row["peak_bytes_1s"] for row in rows_of(records, limits)) == 10


def test_produces_and_fetches_have_busiest_seconds_of_their_own() -> None:
    limits = QuotaLimits([(QuotaEntity(user="alice"), BOTH)])
    sends, reads = flow(connection()), flow(connection(), api_key=FETCH)
    told = rows_of([sent(sends, 0, 50), sent(reads, 1, 70, FETCH), sent(sends, 1, 20)], limits)
    assert {row["api_class"]: row["peak_bytes_1s"] for row in told} == {"produce": 50, "fetch": 70}


def test_of_seconds_with_as_many_bytes_the_first_is_told() -> None:
    one, other = flow(connection(), "app-1"), flow(connection(), "app-2")
    told = rows_of([sent(one, 3, 70), sent(other, 7, 70)], QuotaLimits([(QuotaEntity(user="alice"), BOTH)]))
    assert {row["client_id"]: row["peak_bytes_1s"] for row in told} == {"app-1": 70, "app-2": 0}


LIMITS = (
    QuotaLimits(),
    QuotaLimits([(QuotaEntity(user=DEFAULT), BOTH)]),
    QuotaLimits([(QuotaEntity(user="alice"), BOTH), (QuotaEntity(client_id=DEFAULT), BOTH)]),
    QuotaLimits([(QuotaEntity(client_id="app"), {"producer_byte_rate": 1.0})]),
)


@given(st.data(), st.sampled_from(LIMITS))
@settings(deadline=None)
def test_each_row_tells_its_bytes_of_the_first_busiest_second_of_its_bucket(
    data: st.DataObject, limits: QuotaLimits
) -> None:
    flows = [
        (flow(connection(user), client_id, api_key, topic), api_key)
        for user in ("alice", "alice", "bob")
        for client_id in ("app", "web")
        for api_key, topic in ((PRODUCE, "t1"), (PRODUCE, "t2"), (FETCH, "t1"), (METADATA, ""))
    ]
    of_request = st.tuples(st.sampled_from(flows), st.integers(0, 9), st.integers(1, 4))
    asked = data.draw(st.lists(of_request, min_size=1, max_size=60))
    in_force = LimitsInForce(limits)
    by_row: defaultdict[tuple[str, str, str, str], Counter[int]] = defaultdict(Counter)
    by_bucket: defaultdict[object, Counter[int]] = defaultdict(Counter)
    bucket_of = {}
    for (of, _), second, size in asked:
        row = (of.origin.user, of.client_id, of.api_class, of.topic)
        bucket = in_force.bucket_of(*row[:3])
        bucket_of[row] = row if bucket is None else (of.api_class, bucket)
        by_row[row][second] += size
        by_bucket[bucket_of[row]][second] += size
    told = {
        (row["user"], row["client_id"], row["api_class"], row["topic"]): row["peak_bytes_1s"]
        for row in rows_of([sent(of, second, size, key) for (of, key), second, size in asked], limits)
    }
    for key, bytes_in in by_row.items():
        of_bucket = by_bucket[bucket_of[key]]
        busiest = min(sorted(of_bucket), key=lambda second: -of_bucket[second])
        assert told[key] == bytes_in[busiest]


def test_what_was_folded_counts_for_no_bucket() -> None:
    """Room for four of alice's eight rows: the others' bytes stand in no row of hers."""
    in_force = LimitsInForce(QuotaLimits([(QuotaEntity(user="alice"), BOTH)]))
    grows = rollup(limits_now=lambda: in_force, max_keys=8)
    flows = [flow(connection(), f"app-{number}") for number in range(8)]
    records: list[RequestRecord] = [sent(of, second, 10) for second, of in enumerate(flows)]
    grows.add_requests([*records, sent(flows[7], 7, 500)], slow_ms=1e9)
    grows.close(OFFSET_MS)
    told = Told().rows(grows.over.popleft())
    hers = [row["peak_bytes_1s"] for row in told if row["user"]]
    (others,) = [row["peak_bytes_1s"] for row in told if not row["user"]]
    assert (sorted(hers), others) == ([0, 0, 0, 10], 510)


def test_a_place_that_becomes_anothers_has_the_others_bucket() -> None:
    """And buckets of clients that are gone are forgotten, however many come."""
    in_force = Limited(bucket_of=lambda user, client_id, api_class: client_id)
    grows, sums = rollup(limits_now=lambda: in_force), WindowSums()
    for number in range(60):
        flows = [flow(connection(), f"app-{number}-{each}") for each in range(50)]
        records: list[RequestRecord] = [
            record(of, number * 10_000.0 + each * 100.0) for each, of in enumerate(flows)
        ]
        grows.add_requests(records, slow_ms=1e9)
        del flows, records
        grows.close(OFFSET_MS)
        window = grows.over.popleft()
        assert set(sums.sum_up(window).columns["peak_bytes_1s"].to_pylist()) == {140}
        sums.forget(window.dropped.places)
        window.index.told(window.dropped, 0)
    assert len(sums._buckets) < 2_000


def test_seconds_are_compared_up_to_17_gigabytes_and_no_bucket_is_taken_for_another() -> None:
    import pyarrow as pa

    at = pa.array([0 << 4 | 3, 1 << 4 | 1, 1 << 4 | 2, 2 << 4 | 5], pa.int32())
    flow_of = pa.array([0, 1, 1, 2], pa.int32())
    bytes_ = pa.array([2**36, 5, 7, 2**35], pa.int64())
    seconds = Seconds(flow_of, at, bytes_, ends_of_runs(flow_of))
    flows, buckets = pa.array([0, 1, 2], pa.int32()), pa.array([1, 2, 1], pa.int32())
    found = bytes_in_busiest_second(seconds, flows, buckets, 3, no_pause)
    assert found.to_pylist() == [2**36, 7, 0]


def test_what_a_rule_exempts_has_no_part_in_the_busiest_second_of_others() -> None:
    """The night leaves it out; others of its user told their bytes of its second, and came out too low."""
    copies, app = flow(connection(), "mm2"), flow(connection(), "app")
    rule = ExemptRule("alice", client_id="mm2")
    limits = QuotaLimits([(QuotaEntity("alice"), BOTH)], exempt=[rule])
    told = rows_of([sent(copies, 3, 100), sent(app, 5, 80)], limits)
    assert {row["client_id"]: row["peak_bytes_1s"] for row in told} == {"mm2": 100, "app": 80}
