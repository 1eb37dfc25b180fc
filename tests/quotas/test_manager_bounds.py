"""What a manager remembers and mints, at its bounds: names, look-ups, addresses, limits on producer ids."""

from __future__ import annotations

import pytest

from sluice.quotas.entity import DEFAULT, QuotaEntity, QuotaLevel
from sluice.quotas.exempt import ExemptRule
from sluice.quotas.kinds import QuotaKind
from sluice.quotas.limits.limits import QuotaLimits
from sluice.quotas.manager import QuotaManager
from sluice.quotas.sensors.kafka import KafkaSensor
from sluice.quotas.sensors.smooth import SmoothSensor
from tests.quotas.test_manager_reload import remembered

ANY_USER = QuotaEntity(DEFAULT, None)
ANY_CLIENT = QuotaEntity(DEFAULT, DEFAULT)
PRODUCE = QuotaKind.PRODUCE


def manager_of(rate: float = 1_000, **options: object) -> QuotaManager:
    limits = QuotaLimits([(ANY_USER, {"producer_byte_rate": rate})])
    return QuotaManager(limits, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(("user", "client_id", "is_kept"), [
    ("u" * 64, "c" * 64, True), ("u" * 65, "c", False), ("u", "c" * 65, False),
])  # fmt: skip
def test_a_look_up_by_a_long_name_is_not_remembered(user: str, client_id: str, *, is_kept: bool) -> None:
    """Clients choose their ids, and what is remembered keeps them alive."""
    manager = manager_of()
    assert manager.sensor(PRODUCE, user, client_id, 0.0) is manager.sensor(PRODUCE, user, client_id, 1.0)
    assert remembered(manager) == is_kept


def test_so_many_look_ups_are_remembered_and_then_all_are_forgotten() -> None:
    manager = manager_of()
    for number in range(16_384):
        manager.sensor(PRODUCE, "alice", str(number), 0.0)
    assert remembered(manager) == 16_384
    manager.sensor(PRODUCE, "alice", "one more", 0.0)
    assert remembered(manager) == 1


def test_a_bucket_that_is_looked_up_again_is_not_idle() -> None:
    manager = manager_of()
    sensor = manager.sensor(PRODUCE, "alice", "app", 0.0)
    assert sensor is not None
    manager.sensor(PRODUCE, "alice", "app", 77.0)
    assert sensor.last_ms == 77.0


@pytest.mark.parametrize(("rate_per_s", "burst_s", "tokens"), [(100.0, 2.0, 200.0), (0.1, 2.0, 1.0)])
def test_of_one_address_one_connection_passes_at_once_however_short_the_burst(
    rate_per_s: float, burst_s: float, tokens: float
) -> None:
    manager = manager_of(burst_s=burst_s)
    sensor = manager.address_sensor("10.0.0.1", rate_per_s, 0.0)
    assert isinstance(sensor, SmoothSensor)
    assert sensor.tokens(0.0) == pytest.approx(tokens)
    assert (sensor.entity.ip, sensor.level, len(manager)) == ("10.0.0.1", QuotaLevel.USER, 0)


def test_an_addresss_bucket_is_paced_as_all_others_are() -> None:
    sensor = manager_of(pacing="kafka", window_num=3).address_sensor("10.0.0.1", 10.0, 0.0)
    assert isinstance(sensor, KafkaSensor)
    assert sensor.tokens(0.0) == 20.0


def test_a_limit_on_producer_ids_is_enforced_save_in_shadow_mode_and_where_a_rule_exempts() -> None:
    entries = [
        (QuotaEntity("alice"), {"producer_ids_rate": 60.0}),
        (QuotaEntity("bob"), {"producer_ids_rate": 5.0}),
    ]
    rules = [ExemptRule(user="alice", client_id="tool")]
    limits = QuotaLimits(entries, shadow={QuotaEntity("bob"): {"producer_ids_rate"}}, exempt=rules)
    manager = QuotaManager(limits)
    assert manager.id_limit("alice", "app", "") == (60.0, True, "user")
    assert manager.id_limit("alice", "tool", "") == (60.0, False, "user")
    assert manager.id_limit("bob", "app", "") == (5.0, False, "user")
    assert manager.id_limit("carol", "app", "") is None


def test_a_limit_that_refuses_no_more_lets_go_by_then_what_it_would_have_refused() -> None:
    entries = [(QuotaEntity("alice"), {"producer_byte_rate": 1_000.0})]
    manager = QuotaManager(QuotaLimits(entries, refusing=[QuotaEntity("alice")]))
    sensor = manager.sensor(PRODUCE, "alice", "app", 0.0)
    assert sensor is not None
    sensor.charge(30_000, 0.0)
    queue = sensor.hold_queue()
    assert queue is not None
    ticket = queue.enter(100, 29_000.0, float("inf"), 0.0)
    ticket.refuse_ms = 8_000.0
    manager.reload(QuotaLimits(entries, refusing=[QuotaEntity("alice")]), 1.0)
    assert (sensor.refuses, ticket.refuse_ms) == (True, 8_000.0)
    manager.reload(QuotaLimits(entries), 1.0)
    assert manager.sensor(PRODUCE, "alice", "app", 1.0) is sensor
    assert (sensor.refuses, len(manager)) == (False, 1)
    assert (ticket.deadline_ms, ticket.refuse_ms) == (8_000.0, float("inf"))


def test_of_a_user_whose_minted_buckets_are_gone_nothing_is_remembered() -> None:
    limits = QuotaLimits([(ANY_CLIENT, {"producer_byte_rate": 1_000})])
    manager = QuotaManager(limits)
    for number in range(5):
        manager.sensor(PRODUCE, f"u{number}", "app", 0.0)
    assert len(manager._minted_by) == 5
    assert manager.expire(3_600_000.0) == 5
    assert len(manager._minted_by) == 0
    assert manager.expire(3_600_000.0) == 0
    assert manager.generation == 1


def test_a_reload_pauses_after_each_five_hundred_buckets_of_a_kind() -> None:
    for count, pauses in ((499, 0), (500, 1), (999, 1), (1_000, 2)):
        manager = manager_of()
        for number in range(count):
            manager.sensor(PRODUCE, f"u{number}", "", 0.0)
        limits = QuotaLimits([(ANY_USER, {"producer_byte_rate": 500})])
        assert len(list(manager.reload_in_steps(limits, 0.0))) == pauses, count


def test_a_reload_that_is_told_a_time_before_a_buckets_last_use_changes_it_as_of_that() -> None:
    manager = manager_of()
    sensor = manager.sensor(PRODUCE, "alice", "", 0.0)
    assert isinstance(sensor, SmoothSensor)
    sensor.charge(3_000, 500.0)
    manager.reload(QuotaLimits([(ANY_USER, {"producer_byte_rate": 500})]), 0.0)
    assert sensor.tat_ms == 500.0 + 2 * 2_000.0
