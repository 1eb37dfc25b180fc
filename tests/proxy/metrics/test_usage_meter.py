"""What the meter makes of records: the right number in the right place, bounded, and never lost."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.protocol._tables import API_NAMES
from sluice.proxy.metrics.entity_series import SERIES_IDLE_MS, SERIES_PER_ENTITY
from sluice.proxy.metrics.usage_meter import DROPPED_SENSOR_MS, SENSORS_PER_STEP
from sluice.quotas.entity import QuotaEntity
from sluice.quotas.kinds import KINDS
from sluice.quotas.limits.limits import QuotaLimits
from sluice.usage.records import EventKind
from sluice.usage.tallies import DURATION_AT, DURATION_SUM, SIZE_SLOTS, SIZE_SUM
from testkit.proxy.meter_bench import FETCH, METADATA, NOW_MS, PRODUCE, SHARE_FETCH, Bench, event, limits_of

pytestmark = pytest.mark.usefixtures("log_lines")


def test_requests_are_counted_by_api_and_size() -> None:
    bench = Bench(QuotaLimits())
    for size in (64, 65, 128, 2**31):
        bench.request(METADATA, request_bytes=size)
    bench.drain()
    tally = bench.meter.apis[METADATA]
    assert {slot: tally[slot] for slot in range(SIZE_SLOTS) if tally[slot]} == {6: 1, 7: 2, 31: 1}
    assert tally[SIZE_SUM] == 64 + 65 + 128 + 2**31
    assert bench.recorder.requests == []


@given(st.floats(0.001, 1e9))
def test_a_duration_falls_into_the_slot_whose_bound_is_next_above_it(upstream_ms: float) -> None:
    bench = Bench(QuotaLimits())
    bench.request(METADATA, upstream_ms=upstream_ms)
    bench.drain()
    tally = bench.meter.apis[METADATA]
    (slot,) = [slot for slot in range(DURATION_SUM - DURATION_AT - 1) if tally[DURATION_AT + slot]]
    assert upstream_ms < 2**slot / 8
    assert slot == 0 or upstream_ms >= 2 ** (slot - 1) / 8
    assert tally[DURATION_SUM] == upstream_ms


def test_a_request_without_an_answer_has_no_duration() -> None:
    bench = Bench(QuotaLimits())
    bench.request(upstream_ms=0.0, response_bytes=0)
    bench.drain()
    tally = bench.meter.apis[PRODUCE]
    assert sum(tally[:SIZE_SLOTS]) == 1
    assert sum(tally[DURATION_AT:SIZE_SUM]) == 0


def test_apis_that_kafka_does_not_have_share_one_tally() -> None:
    bench = Bench(QuotaLimits())
    for api_key in range(-500, 1000):
        bench.request(api_key)
    bench.drain()
    assert set(bench.meter.apis) == set(API_NAMES)
    assert sum(bench.meter.unknown_apis[:SIZE_SLOTS]) == 1500 - len(API_NAMES)


def test_sessions_may_hold_on_to_the_recorders_lists() -> None:
    bench = Bench(QuotaLimits())
    lists = (bench.recorder.requests, bench.recorder.throttles, bench.recorder.connections)
    bench.request()
    bench.drain()
    now = (bench.recorder.requests, bench.recorder.throttles, bench.recorder.connections)
    assert all(after is before for after, before in zip(now, lists, strict=True))


def test_bytes_of_a_limited_client_are_what_its_sensor_was_charged() -> None:
    bench = Bench(limits_of(alice=1000))
    sensor = bench.sensor("alice")
    sensor.charge(700, NOW_MS)
    bench.fold()
    sensor.charge(300, NOW_MS)
    bench.fold()
    assert bench.series()["alice", ""].amount == 1000


def test_a_refund_is_not_counted_and_the_counter_never_falls() -> None:
    bench = Bench(limits_of(alice=1000))
    sensor = bench.sensor("alice")
    sensor.charge(700, NOW_MS)
    bench.fold()
    sensor.refund(200, NOW_MS)
    bench.fold()
    assert bench.series()["alice", ""].amount == 700
    sensor.charge(250, NOW_MS)
    bench.fold()
    assert bench.series()["alice", ""].amount == 750


def test_what_was_charged_before_a_reload_dropped_the_sensor_still_counts() -> None:
    bench = Bench(limits_of(alice=1000))
    sensor = bench.sensor("alice")
    bench.fold()
    sensor.charge(700, NOW_MS)
    bench.quotas.reload(limits_of(bob=1), NOW_MS)
    bench.fold()
    # alice is no name of the configuration any more, so her last bytes are another's.
    assert bench.series()["other", ""].amount == 700
    assert bench.meter.limits == {}


def test_what_a_sensor_was_charged_that_came_and_went_between_two_folds_counts() -> None:
    bench = Bench(limits_of(bob=1))
    bench.fold()
    bench.quotas.reload(limits_of(alice=1000), NOW_MS)
    bench.sensor("alice").charge(700, NOW_MS)
    bench.quotas.reload(limits_of(bob=1), NOW_MS)
    bench.fold()
    assert sum(one.amount for one in bench.series().values()) == 700
    assert bench.quotas.take_dropped() == []


def test_what_was_on_its_way_when_a_reload_dropped_its_sensor_counts_once_and_its_past_never_again() -> None:
    """A held Produce that goes, or an answer to a Fetch; and a throttled request's record that comes late."""
    bench = Bench(limits_of(alice=1000))
    sensor = bench.sensor("alice")
    sensor.charge(700, NOW_MS)
    sensor.charge(300, NOW_MS)
    sensor.hold(300)
    bench.fold()
    bench.quotas.reload(limits_of(bob=1), NOW_MS)
    bench.fold()
    sensor.go(300, NOW_MS)
    bench.fold(NOW_MS + 10_000)
    counted = [sum(one.amount for one in bench.series().values())]
    bench.fold(NOW_MS + DROPPED_SENSOR_MS)
    bench.request(sensor=sensor, throttle_ms=5.0)
    bench.drain(NOW_MS + DROPPED_SENSOR_MS)
    bench.fold(NOW_MS + DROPPED_SENSOR_MS + 1)
    counted.append(sum(one.amount for one in bench.series().values()))
    assert counted == [1_000, 1_000]
    assert bench.series()["other", ""].throttled_requests == 1


def test_what_is_held_is_not_counted_before_it_goes() -> None:
    bench = Bench(limits_of(alice=1000))
    sensor = bench.sensor("alice")
    for size in (700, 400, 50):
        sensor.charge(size, NOW_MS)
    sensor.hold(400)
    sensor.hold(50)
    bench.fold()
    assert bench.series()["alice", ""].amount == 700
    sensor.drop(400, NOW_MS)
    bench.fold()
    assert bench.series()["alice", ""].amount == 700
    sensor.go(50, NOW_MS)
    bench.fold()
    assert bench.series()["alice", ""].amount == 750


@pytest.mark.parametrize(
    ("api_key", "quota", "counted"),
    [(PRODUCE, "produce", 100), (FETCH, "fetch", 50), (SHARE_FETCH, "fetch", 50), (METADATA, "produce", 0)],
)
def test_unlimited_traffic_is_counted_too(api_key: int, quota: str, counted: int) -> None:
    bench = Bench(limits_of(alice=1000))
    bench.request(api_key)
    bench.request(api_key)
    bench.request(api_key, user="mallory")
    bench.drain()
    series = bench.series(quota)
    assert sum(one.amount for one in series.values()) == 3 * counted
    if counted:
        assert series["alice", "other"].amount == 2 * counted
        assert series["other", "other"].amount == counted


def test_a_throttled_request_is_counted_with_its_delay() -> None:
    bench = Bench(limits_of(alice=1000))
    sensor = bench.sensor("alice")
    for throttle_ms in (0.0, 12.5, 500.0):
        bench.request(sensor=sensor, throttle_ms=throttle_ms)
    bench.drain()
    one = bench.series()["alice", ""]
    assert (one.throttled_requests, one.throttled_ms) == (2, 512.5)
    tally = bench.meter.throttle_times["produce"]
    assert {slot: n for slot, n in enumerate(tally[DURATION_AT:SIZE_SUM]) if n} == {7: 1, 12: 1}
    assert tally[DURATION_SUM] == 512.5


def test_names_that_clients_invent_are_counted_as_other() -> None:
    bench = Bench(limits_of(alice=1000, default=500))
    for index in range(50):
        sensor = bench.sensor(f"user-{index}", f"app-{index}")
        sensor.charge(10, NOW_MS)
        bench.request(user=f"user-{index}", client_id=f"app-{index}", sensor=sensor, throttle_ms=1.0)
    bench.drain()
    bench.fold()
    assert set(bench.series()) == {("other", "")}
    assert bench.series()["other", ""].amount == 500
    assert bench.meter.limits == {("produce", "other", "", "default_user"): 500.0}


def test_utilisation_of_many_buckets_behind_one_label_is_the_highest() -> None:
    bench = Bench(limits_of(default=1000))
    for user, amount in (("a", 1000), ("b", 30_000), ("c", 10)):
        bench.sensor(user).charge(amount, NOW_MS)
    bench.fold(NOW_MS + 10_000)
    assert bench.meter.utilisation == {("produce", "other", ""): pytest.approx(3.0)}


def test_the_cap_on_series_sends_the_rest_to_other_and_counts_it() -> None:
    users = {f"user{index}": 1000 for index in range(20)}
    bench = Bench(limits_of(**users), max_series=(10 + len(KINDS)) * SERIES_PER_ENTITY)
    for user in users:
        bench.sensor(user).charge(5, NOW_MS)
    bench.fold()
    bench.fold()
    assert len(bench.meter.entities) == 10  # the cap less (other, other) of each kind
    assert bench.series()["other", "other"].amount == 50
    assert bench.meter.entities.overflows == 10
    # Many limits stand behind (other, other): none of them is exported as its limit.
    assert len(bench.meter.limits) == 10


def test_users_under_the_default_have_names_up_to_the_cap_and_the_most_delayed_keep_them() -> None:
    bench = Bench(limits_of(default=1000), max_users=2)
    for user, amount in (("ann", 10), ("bob", 20), ("eve", 30)):
        bench.sensor(user).charge(amount, NOW_MS)
    bench.fold()
    assert {user: one.amount for (user, _), one in bench.series().items()} == {
        "ann": 10,
        "bob": 20,
        "other": 30,
    }
    assert set(bench.meter.utilisation) == {("produce", user, "") for user in ("ann", "bob", "other")}

    bench.request(sensor=bench.sensor("bob"), throttle_ms=2_000.0)
    bench.request(sensor=bench.sensor("eve"), throttle_ms=3_000.0)
    bench.drain()
    bench.fold()
    bench.sensor("ann").charge(5, NOW_MS)
    bench.sensor("eve").charge(7, NOW_MS)
    bench.fold()
    assert {user: one.amount for (user, _), one in bench.series().items()} == {
        "eve": 7,
        "bob": 20,
        "other": 35,
    }


def test_who_has_no_limit_takes_no_name_from_who_has_one() -> None:
    bench = Bench(limits_of(alice=1000), max_users=1)
    bench.request(user="ann", request_bytes=10)
    bench.drain()
    assert bench.series()["other", "other"].amount == 10
    assert not len(bench.meter.entities.names)


def test_a_name_is_free_again_an_hour_after_its_last_use() -> None:
    bench = Bench(limits_of(default=1000), max_users=1)
    bench.sensor("ann").charge(10, NOW_MS)
    bench.fold()
    bench.quotas.expire(NOW_MS + SERIES_IDLE_MS)
    bench.sensor("bob").charge(10, NOW_MS + SERIES_IDLE_MS)
    bench.fold(NOW_MS + SERIES_IDLE_MS)
    bench.sensor("bob").charge(7, NOW_MS + SERIES_IDLE_MS)
    bench.fold(NOW_MS + SERIES_IDLE_MS)
    assert {user: one.amount for (user, _), one in bench.series().items()} == {"bob": 7, "other": 10}


def test_a_series_that_is_idle_for_an_hour_is_dropped_and_begins_anew_when_used() -> None:
    bench = Bench(limits_of(alice=1000, bob=1000))
    for user in ("alice", "bob"):
        bench.sensor(user).charge(5, NOW_MS)
    bench.fold()
    bench.sensor("bob").charge(5, NOW_MS)
    bench.fold(NOW_MS + SERIES_IDLE_MS - 1)
    bench.fold(NOW_MS + SERIES_IDLE_MS)
    assert {labels: one.amount for labels, one in bench.series().items()} == {("bob", ""): 10}
    bench.sensor("alice").charge(7, NOW_MS + SERIES_IDLE_MS)
    bench.fold(NOW_MS + SERIES_IDLE_MS)
    assert bench.series()["alice", ""].amount == 7


def test_a_name_that_a_reload_brings_becomes_a_label() -> None:
    bench = Bench(limits_of(default=1000))
    bench.sensor("carol").charge(5, NOW_MS)
    bench.fold()
    assert set(bench.series()) == {("other", "")}
    bench.quotas.reload(limits_of(default=1000, carol=2000), NOW_MS)
    bench.sensor("carol").charge(6, NOW_MS)
    bench.fold()
    assert bench.series()["carol", ""].amount == 6
    assert bench.meter.limits == {("produce", "carol", "", "user"): 2000.0}


def test_forgiven_debt_is_counted() -> None:
    bench = Bench(limits_of(alice=1000))
    bench.sensor("alice").charge(100_000, NOW_MS)
    bench.fold()
    # 1 s of burst and 60 s of debt at 1000 B/s: 61,000 bytes stay owed or paid.
    assert bench.meter.forgiven["produce"] == pytest.approx(39_000)
    assert bench.meter.forgiven["fetch"] == 0


def test_debt_of_what_was_never_forwarded_is_not_forgiven() -> None:
    """Who announces 3 MB and leaves, again and again, has nothing forgiven."""
    bench = Bench(limits_of(alice=1000))
    sensor = bench.sensor("alice")
    for _ in range(30):
        sensor.charge(3_000_000, NOW_MS)
        sensor.hold(3_000_000)
        bench.fold()
        sensor.drop(3_000_000, NOW_MS)
    bench.fold()
    assert bench.meter.forgiven["produce"] == 0
    assert sensor.forgiven > 80_000_000


def test_bytes_over_quota_are_counted_for_the_bucket_of_the_rule() -> None:
    bench = Bench(limits_of(alice=1000, default=1000))
    for user, over_bytes in (("alice", 10), ("alice", 20), ("bob", 4)):
        sensor = bench.sensor(user)
        sensor.charge(5_000, NOW_MS)
        sensor.count_over(over_bytes, NOW_MS)
        bench.fold()
    assert {at: one.over_quota_bytes for at, one in bench.series().items()} == {
        ("alice", ""): 30,
        ("other", ""): 4,
    }


def test_what_the_proxy_answers_itself_is_no_unlimited_traffic() -> None:
    """A Produce that is refused for its producer ids, say: nothing went to the broker, and so no time there.
    One with acks = 0 has none either, and no answer."""
    bench = Bench(limits_of(alice=1000))
    bench.request(PRODUCE, upstream_ms=0.0)
    bench.request(PRODUCE, upstream_ms=0.0, response_bytes=0)
    bench.request(FETCH, upstream_ms=0.0)
    bench.drain()
    assert [one.amount for one in bench.meter.entities] == [100]


def test_many_sensors_are_folded_in_many_small_steps() -> None:
    bench = Bench(limits_of(default=1000))
    for index in range(3 * SENSORS_PER_STEP):
        bench.sensor(f"user-{index}").charge(1, NOW_MS)

    async def turns() -> int:
        folding = asyncio.ensure_future(bench.meter.fold(NOW_MS))
        count = 0
        while not folding.done():
            count += 1
            if count == 2:  # between two steps sensors come and go
                bench.sensor("late").charge(1, NOW_MS)
                bench.quotas.expire(NOW_MS)
            await asyncio.sleep(0)
        return count

    assert asyncio.run(turns()) > 3
    bench.fold()
    assert bench.series()["other", ""].amount == 3 * SENSORS_PER_STEP + 1


def test_sensors_that_are_gone_are_forgotten() -> None:
    bench = Bench(limits_of(default=1000))
    for index in range(20):
        sensor = bench.sensor(f"user-{index}")
        bench.request(sensor=sensor, throttle_ms=1.0)
    bench.drain()
    bench.quotas.reload(limits_of(bob=1), NOW_MS)
    bench.fold()
    assert not bench.meter._metered  # bounded memory has no public face


def test_delays_by_request_time_are_counted_by_their_events() -> None:
    bench = Bench(QuotaLimits([(QuotaEntity("alice"), {"request_percentage": 1.0})]))
    delayed = event("alice")._replace(quota="request", charged_bytes=0)
    bench.recorder.throttles += [delayed, delayed._replace(delay_ms=300.0), event("alice")]
    bench.recorder.throttles.append(delayed._replace(kind=EventKind.SHADOW))
    bench.drain()
    bench.recorder.throttles.append(delayed._replace(quota="controller_mutation"))  # its record tells
    bench.drain()
    series = bench.series("request")["alice", ""]
    assert (series.throttled_requests, series.throttled_ms) == (2, 400.0)
    assert sum(bench.meter.throttle_times["request"][DURATION_AT:SIZE_SUM]) == 2
    assert not any(bench.meter.throttle_times["produce"])
    mutations = bench.series("controller_mutation")["alice", ""]
    assert (mutations.throttled_requests, mutations.throttled_ms, mutations.used_ms) == (0, 0.0, NOW_MS)
