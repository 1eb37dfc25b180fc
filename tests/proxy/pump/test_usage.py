"""What the pump counts of records is what Python counts of them; whatever it does not know is Python's."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sluice.proxy.metrics.usage_meter import UsageMeter
from sluice.proxy.pump.choice import PUMP
from sluice.quotas.kinds import QuotaKind
from sluice.quotas.manager import QuotaManager
from sluice.usage.index import AccessIndex
from sluice.usage.records import Flow, Recorder, RequestRecord
from sluice.usage.tallies import Counting
from testkit.access_log.access_records import connection, flow
from testkit.proxy.data_paths import path_of
from testkit.proxy.meter_bench import NOW_MS, limits_of

UNKNOWN_API = 31_000
SLOW_MS = 1000.0
FLOWS = [Flow("app"), Flow("")]
MANAGER = QuotaManager(limits_of(alice=1000, bob=1000))
LIMITED = MANAGER.sensor(QuotaKind.PRODUCE, "alice", "app", NOW_MS)
EXEMPT = MANAGER.sensor(QuotaKind.PRODUCE, "bob", "app", NOW_MS)
assert EXEMPT is not None
EXEMPT.exempt = True


@pytest.fixture(name="counting", scope="module")
def built() -> Counting:
    """Skips where there is no pump."""
    found = path_of(PUMP).counting
    assert found is not None
    return found


def record(**given: Any) -> RequestRecord:
    """A Produce within alice's quota, but for what is given."""
    parts = {
        "flow": FLOWS[0], "request_bytes": 100, "response_bytes": 50, "upstream_ms": 2.0, "throttle_ms": 0.0,
        "held_ms": 0.0, "finished_ms": NOW_MS, "api_key": 0, "api_version": 9, "user": "alice",
        "sensor": LIMITED,
    } | given  # fmt: skip
    return tuple(parts.values())  # type: ignore[return-value]


SIXTY_FOURTHS_MS = st.integers(0, 2**26).map(lambda parts: parts / 64.0)
"""whose sums are exact in whatever order"""
RECORDS = st.builds(
    record,
    flow=st.sampled_from(FLOWS),
    request_bytes=st.one_of(st.integers(14, 300), st.integers(14, 2**31 + 3)),
    response_bytes=st.sampled_from((0, 50, 2**20)),
    upstream_ms=st.one_of(st.sampled_from((0.0, 0.125, 1e9)), SIXTY_FOURTHS_MS),
    throttle_ms=st.sampled_from((0.0, 0.0, 0.0, 12.5)),
    api_key=st.sampled_from((0, 0, 0, 1, 3, UNKNOWN_API)),
    user=st.sampled_from(("alice", "bob")),
    sensor=st.sampled_from((LIMITED, LIMITED, LIMITED, EXEMPT, None)),
)


def counted(drains: list[list[RequestRecord]], counting: Counting | None) -> dict[str, Any]:
    recorder = Recorder()
    meter = UsageMeter(recorder, MANAGER, counting=counting)
    for records in drains:
        recorder.requests.extend(records)
        meter.drain(NOW_MS)
    series = {(one.quota, one.user, one.client_id): (one.amount, one.throttled_ms) for one in meter.entities}
    return {
        "apis": meter.apis,
        "unknown": meter.unknown_apis,
        "throttle_times": meter.throttle_times,
        "exempt": meter.exempt,
        "series": series,
    }


@settings(deadline=None)
@given(drains=st.lists(st.lists(RECORDS, max_size=30), max_size=4))
def test_a_meter_over_the_pump_counts_what_one_in_python_does(
    counting: Counting, drains: list[list[RequestRecord]]
) -> None:
    assert counted(drains, counting) == counted(drains, None)


def test_of_requests_within_a_quota_nothing_is_left_to_python(counting: Counting) -> None:
    tallies = {0: [0.0] * 99, 3: [0.0] * 99}
    records = [record(api_key=key, upstream_ms=ms) for key in (0, 3, 0) for ms in (0.0, 0.3, 5.0)]
    assert counting.tally(records, tallies) == []
    assert [sum(tally[:33]) for tally in tallies.values()] == [6, 3]


@pytest.mark.parametrize(
    "other",
    [
        record(sensor=None), record(sensor=EXEMPT), record(throttle_ms=1.0), record(api_key=UNKNOWN_API),
        record(request_bytes=0), record(request_bytes=2**40), record(upstream_ms=float("nan")),
        record(upstream_ms=-1.0), record(upstream_ms=2.0**60), record(upstream_ms=3), record()[:10], object(),
    ],
)  # fmt: skip
def test_what_is_not_known_is_given_back_uncounted(counting: Counting, other: Any) -> None:
    tallies = {0: [0.0] * 99}
    assert counting.tally([record(), other, record()], tallies) == [other]
    assert sum(tallies[0][:33]) == 2


def numbered() -> list[Flow]:
    index = AccessIndex(1000)
    found: list[Flow] = []
    for client_id in ("a", "b"):
        one = flow(connection(), client_id)
        index.number(one, 0, 9)
        found.append(one)
    return found


def test_columns_are_what_struct_packs(counting: Counting) -> None:
    first, second = numbered()
    records = [
        record(flow=first), record(flow=second, request_bytes=2**32 - 1, response_bytes=0, upstream_ms=0.1),
        record(flow=first, response_bytes=2**31, upstream_ms=SLOW_MS - 1e-9, sensor=None),
    ]  # fmt: skip
    packed = counting.pack(records, SLOW_MS)
    assert packed is not None
    numbers = [one[0].number for one in records]
    assert packed[0] == struct.pack("3I", *numbers)
    assert packed[1] == struct.pack("3I", *(one[1] for one in records))
    assert packed[2] == struct.pack("3I", *(one[2] for one in records))
    assert packed[3] == struct.pack("3d", *(one[3] for one in records))


@pytest.mark.parametrize(
    "other",
    [
        {"throttle_ms": 0.5}, {"upstream_ms": SLOW_MS}, {"upstream_ms": float("nan")},
        {"request_bytes": 2**32}, {"response_bytes": -1}, {"flow": FLOWS[0]}, {"flow": object()},
    ],
)  # fmt: skip
def test_one_that_is_to_be_looked_at_makes_all_of_them_pythons(
    counting: Counting, other: dict[str, Any]
) -> None:
    (known, _) = numbered()
    assert counting.pack([record(flow=known)], SLOW_MS) is not None
    assert counting.pack([record(flow=known), record(**{"flow": known, **other})], SLOW_MS) is None


def test_none_is_no_column(counting: Counting) -> None:
    assert counting.pack([], SLOW_MS) == (b"", b"", b"", b"")
