"""Days of entities → a plan: units, proxies, roundings, room."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sluice.quotas.kinds import QuotaKind
from sluice.recalibration.policy.demand import DayState
from sluice.recalibration.policy.plan import POOLED, EntityDay, PlanEntry, fitted_plan, planned
from sluice.recalibration.policy.policy import Reason
from sluice.recalibration.policy.settings import PolicySettings
from sluice.recalibration.state.buckets import bucket_of

SETTINGS = PolicySettings()
ALICE = '{"user": "alice"}'


def full_days(rate: float, proxy: str = "p1", days: int = 10, windows: int = 8_640) -> list[EntityDay]:
    return [EntityDay(proxy, age, DayState({bucket_of(rate): windows})) for age in range(days)]


def test_the_proxy_at_which_it_asked_for_most_counts_and_all_together_are_told() -> None:
    days = [*full_days(1_000, "p1"), *full_days(3_000, "p2"), *full_days(4_000, POOLED)]
    entry = planned(QuotaKind.PRODUCE, ALICE, 3_000, days, SETTINGS)
    assert entry.proposed == pytest.approx(3_450, rel=0.03)
    assert (entry.proxies, entry.reason, entry.key) == (2, Reason.DEMAND, "producer_byte_rate")
    assert entry.pooled_demand == pytest.approx(4_000, rel=0.03)
    assert entry.proposed == int(entry.proposed), "Kafka takes whole bytes"


def test_a_limit_by_the_hour_is_planned_by_the_hour() -> None:
    """20 ids an hour, all day: a limit of 23 an hour."""
    days = full_days(20 / 3600, windows=24)
    entry = planned(QuotaKind.PRODUCER_IDS, ALICE, 20, days, SETTINGS)
    assert entry.proposed == pytest.approx(23, rel=0.03)
    assert entry.key == "producer_ids_rate"


def test_what_does_not_change_keeps_its_digits() -> None:
    entry = planned(QuotaKind.REQUEST, ALICE, 12.3456, full_days(107), SETTINGS)
    assert (entry.proposed, entry.is_change, entry.reason) == (12.3456, False, Reason.UNCHANGED)


def test_an_entity_without_traffic_stays() -> None:
    entry = planned(QuotaKind.PRODUCE, ALICE, 500, [], SETTINGS)
    assert (entry.proposed, entry.reason, entry.throttled_share) == (500, Reason.TOO_LITTLE, 0.0)


def test_the_largest_of_a_key_are_cut_to_the_room_and_other_keys_are_not() -> None:
    entry = planned(QuotaKind.PRODUCE, ALICE, 1_000, full_days(1_000), SETTINGS)
    entries = [replace(entry, entity=name, proposed=limit) for name, limit in (("a", 100.0), ("b", 800.0))]
    other = planned(QuotaKind.FETCH, ALICE, 9_000, full_days(9_000), SETTINGS)
    after: list[PlanEntry] = fitted_plan([*entries, other], {"producer_byte_rate": 400})
    assert [(each.proposed, each.reason) for each in after] == [
        (100, entry.reason),
        (300, Reason.CAPACITY),
        (other.proposed, other.reason),
    ]


def test_a_default_for_any_client_id_takes_of_the_room_what_is_asked_for() -> None:
    """A thousand ids with a request each: nobody is cut for them; and none of them counts for nothing once it
    has a limit of its own."""
    entry = planned(QuotaKind.PRODUCE, ALICE, 1_000, full_days(700), SETTINGS)
    assert (entry.proposed, entry.is_change) == (1_000, False)
    honest = [replace(entry, entity=str(number), is_of_any_client_id=number % 2 == 0) for number in range(30)]
    made_up = replace(
        planned(QuotaKind.PRODUCE, ALICE, 1_000, full_days(1)[:1], SETTINGS), is_of_any_client_id=True
    )
    assert (made_up.proposed, made_up.is_change) == (1_000, False)
    minted = [replace(made_up, entity=f"m{number}") for number in range(1_000)]
    entries = [*honest, *minted]
    assert fitted_plan(entries, {"producer_byte_rate": 50_000}) == entries
    assert made_up.as_json()["room_taken"] == made_up.wanted < 5
    cut = replace(made_up, proposed=700.0)
    assert cut.as_json()["room_taken"] == 700
    after = fitted_plan(
        [*honest, *(replace(each, proposed=700.0) for each in minted)], {"producer_byte_rate": 50_000}
    )
    assert sum(each.room_taken for each in after) <= 50_000
    assert all(each.proposed >= int(each.wanted) for each in after[:30]), "he keeps what he uses"


def test_who_uses_nearly_all_of_his_limit_keeps_it_unless_he_is_held_back() -> None:
    busy = planned(QuotaKind.PRODUCE, ALICE, 1_000, full_days(900), SETTINGS)
    calm = planned(QuotaKind.PRODUCE, ALICE, 1_000, full_days(100)[:1], SETTINGS)
    assert (busy.proposed, busy.throttled_share) == (1_000, 0.0)
    assert busy.wanted > busy.proposed
    room = {"producer_byte_rate": 1_500}
    assert [each.proposed for each in fitted_plan([busy, calm], room)] == [1_000, 499]
    held = replace(busy, throttled_share=0.5)
    assert [each.proposed for each in fitted_plan([held, calm], room)] == [750, 750]


def test_the_quantile_is_the_settings() -> None:
    """Nine tenths of the windows at 1,000, the others at 3,000."""
    days = [
        EntityDay("p1", age, DayState({bucket_of(1_000): 7_776, bucket_of(3_000): 864})) for age in range(5)
    ]
    median = planned(QuotaKind.PRODUCE, ALICE, 1_200, days, replace(SETTINGS, quantile=0.5))
    assert median.wanted == pytest.approx(1_150, rel=0.03)
    assert planned(QuotaKind.PRODUCE, ALICE, 1_200, days, SETTINGS).wanted == pytest.approx(3_450, rel=0.03)
