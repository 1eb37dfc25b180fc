"""Days of entities → a plan: units, proxies, roundings, room."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sluice.quotas.entity_key import LimitOrigin
from sluice.quotas.kinds import KINDS, QuotaKind
from sluice.recalibration.policy.demand import DayState
from sluice.recalibration.policy.plan import POOLED, EntityDay, Known, PlanEntry, fitted_plan, planned
from sluice.recalibration.policy.policy import Reason
from sluice.recalibration.policy.settings import JobSettings, PolicySettings
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


ROOM = {"producer_byte_rate": 50_000}
ORIGINS = (LimitOrigin.ANYBODY, LimitOrigin.OWN)


def minted(number: int, rate: float, limit: float, windows: int = 1, ages: int = 1) -> list[PlanEntry]:
    """Client ids that somebody made up, each of which sends in so many windows of a date."""
    days = full_days(rate, days=ages, windows=windows)
    made_up = planned(QuotaKind.PRODUCE, ALICE, limit, days, SETTINGS, Known(origin=LimitOrigin.ANYBODY))
    return [replace(made_up, entity=f"m{each:05}") for each in range(number)]


def honest(number: int = 30) -> list[PlanEntry]:
    """Steady at 700 of a limit of 1,000, every other one by a default for any client id."""
    entry = planned(QuotaKind.PRODUCE, ALICE, 1_000, full_days(700), SETTINGS)
    assert (entry.proposed, entry.is_change) == (1_000, False)
    return [replace(entry, entity=str(each), origin=ORIGINS[each % 2]) for each in range(number)]


def test_a_default_for_any_client_id_takes_of_the_room_what_is_asked_for() -> None:
    """A thousand ids with a request each: nobody is cut for them."""
    entries = [*honest(), *minted(1_000, 1.0, 1_000)]
    assert fitted_plan(entries, ROOM) == entries
    assert entries[-1].room_taken == pytest.approx(entries[-1].wanted * 10 / 28_800)
    assert honest()[0].room_taken == honest()[0].wanted


@pytest.mark.parametrize("ages", [1, 8])
def test_a_client_id_every_ten_seconds_takes_nothing_from_others_however_much_each_asks_for(
    ages: int,
) -> None:
    """One connection at 1,000 B/s under a new id in each window: a day of them, and each again on a week."""
    entries = [*honest(), *minted(8_640 // ages, 1_000.0, 1_000, ages=ages)]
    after = fitted_plan(entries, ROOM)
    assert [each.proposed for each in after[:30]] == [1_000] * 30
    assert not any(each.is_change for each in after), "nor has any of them a limit of its own"
    assert sum(each.room_taken for each in after[30:]) < 24 * 1_150


def test_ids_that_ask_for_much_for_a_week_come_behind_those_with_names_and_stay_as_they_are() -> None:
    entries = [*honest(), *minted(100, 700.0, 1_000, windows=8_640, ages=10)]
    after = fitted_plan(entries, ROOM)
    named = [each for each in after if each.origin is LimitOrigin.OWN]
    assert [each.proposed >= int(each.wanted) for each in named] == [True] * 15
    ids = [each for each in after if each.origin is LimitOrigin.ANYBODY]
    assert not any(each.is_change for each in ids), "a lower limit would bind nobody: there are other names"
    assert len({round(each.room_taken) for each in ids}) == 1, "alike, and they count alike"
    assert sum(each.room_taken for each in after) <= 50_000


def test_what_an_id_asks_for_that_has_shown_little_is_for_a_person() -> None:
    held = DayState({}, {bucket_of(1_000): 9}, {bucket_of(3_000): 9})
    known = Known(origin=LimitOrigin.ANYBODY)
    throttled = planned(QuotaKind.PRODUCE, ALICE, 1_000, [EntityDay("p1", 0, held)], SETTINGS, known)
    for room in ({}, ROOM):  # where there is no room to be shared, too: names are made up there as well
        (left,) = fitted_plan([throttled], room)
        assert (left.proposed, left.reason, left.needs_review) == (1_000, Reason.BY_DEFAULT, True)
        assert left.up_to >= 2_000


GRANTED = [Known(grant=5_000.0, origin=origin) for origin in LimitOrigin]


@pytest.mark.parametrize("known", GRANTED)
def test_who_is_granted_more_counts_whole_as_soon_as_he_rises_and_his_plan_tells_whose_limit_it_was(
    known: Known,
) -> None:
    held = [EntityDay("p1", 0, DayState({}, {bucket_of(1_000): 8_640}, {bucket_of(9_000): 8_640}))]
    entry = planned(QuotaKind.PRODUCE, ALICE, 1_000, [*full_days(500)[1:], *held], SETTINGS, known)
    told = entry.as_json()
    assert (told["proposed"], told["room_taken"], told["asked"]) == (2_000, 2_000, None)
    assert told["is_own"] is (known.origin is LimitOrigin.OWN)
    (alone,) = fitted_plan([entry], ROOM)
    assert alone == entry


@pytest.mark.parametrize("known", GRANTED)
@pytest.mark.parametrize("floods", [0, 40])
def test_a_grant_lowers_no_limit_that_names_made_up_by_anybody_have(known: Known, floods: int) -> None:
    """A lower one of its own would bind nobody, with a grant as without: neither by what it asks for, nor for
    want of room."""
    calm = planned(QuotaKind.PRODUCE, ALICE, 1_000, full_days(100), SETTINGS, known)
    held = [EntityDay("p1", age, DayState({}, {bucket_of(1_000): 8_640}, {})) for age in range(10)]
    busy = planned(QuotaKind.PRODUCE, ALICE, 1_000, held, SETTINGS, known)
    assert busy.proposed == 2_000
    other = planned(QuotaKind.PRODUCE, ALICE, 1_000, held, SETTINGS, GRANTED[0])
    entries = [calm, busy, *(replace(other, entity=f"f{number}") for number in range(floods))]
    after = fitted_plan(entries, {"producer_byte_rate": 20_000})
    is_cut = [each.proposed < 1_000 for each in after[:2]]
    assert is_cut == [known.origin is LimitOrigin.OWN, known.origin is not LimitOrigin.ANYBODY and floods > 0]


def test_a_wish_that_is_rounded_up_is_a_wish_all_the_same() -> None:
    """Who floods 20 asks for 38.9, which is rounded up to a limit: that is no claim to be kept."""
    big = planned(QuotaKind.PRODUCE, ALICE, 80_000_000, full_days(60_000_000), SETTINGS)
    flood = planned(QuotaKind.PRODUCE, ALICE, 20_000_000, full_days(33_000_000, days=2), SETTINGS)
    flood = replace(flood, entity="m", throttled_share=0.3)
    assert flood.proposed > flood.wanted > flood.current
    after = fitted_plan([big, flood], {"producer_byte_rate": 100_000_000})
    assert after[0].proposed == pytest.approx(big.wanted, abs=2)
    assert after[1].proposed == pytest.approx(100_000_000 - big.wanted, abs=2)


def test_nobody_is_cut_for_the_room_while_rows_of_the_last_week_are_missing() -> None:
    entry = planned(QuotaKind.PRODUCE, ALICE, 1_000, full_days(100)[:1], SETTINGS)
    rising = replace(entry, entity="r", current=1_000, proposed=1_400.0)
    entries = [replace(entry, entity=name) for name in "ab"] + [rising]
    whole = fitted_plan(entries, {"producer_byte_rate": 2_000})
    assert sum(each.proposed for each in whole) <= 2_000
    holes = fitted_plan(entries, {"producer_byte_rate": 2_000}, is_week_whole=False)
    assert [each.proposed for each in holes] == [1_000, 1_000, 1_000], "and nobody rises"
    some = fitted_plan(entries, {"producer_byte_rate": 3_200}, is_week_whole=False)
    assert [each.proposed for each in some] == [1_000, 1_000, 1_200]


def test_a_floor_is_kept_whatever_there_is_room_for() -> None:
    entry = planned(QuotaKind.PRODUCE, ALICE, 80, full_days(75), SETTINGS)
    entries = [replace(entry, entity=name) for name in "ab"]
    after = fitted_plan(entries, {"producer_byte_rate": 100}, {"producer_byte_rate": 60.0})
    assert [each.proposed for each in after] == [60, 60]


@pytest.mark.parametrize(
    ("kind", "floor", "becomes"),
    [
        (QuotaKind.PRODUCER_IDS, 114, 114),
        (QuotaKind.PRODUCER_IDS, 7_500, 7_500),
        (QuotaKind.PRODUCER_IDS, 15_000, 15_000),
        (QuotaKind.REQUEST, 12.55, 12.6),
        (QuotaKind.REQUEST, 12.54, 12.5),
        (QuotaKind.PRODUCE, 10_485.76, 10_486),
    ],
)
def test_a_floor_is_the_floor_where_there_is_little_room_however_it_is_rounded(
    kind: QuotaKind, floor: float, becomes: float
) -> None:
    """As CAPACITY it was a rise beyond the policy's step, and every plan refused, for ever."""
    span_s, key = KINDS[kind].limit_span_s, KINDS[kind].config_key
    policy = JobSettings(floors={key: floor}).policy_of(kind)
    small, big = (
        planned(kind, name, limit, full_days(limit * 0.8 / span_s), policy)
        for name, limit in (("small", floor / 8), ("big", floor * 8))
    )
    after = fitted_plan([small, big], {key: floor * 4}, {key: floor})
    assert (after[0].proposed, after[0].reason) == (becomes, Reason.FLOOR)
    assert after[1].reason is Reason.CAPACITY
    assert sum(each.proposed for each in after) <= floor * 4


def test_who_uses_nearly_all_of_his_limit_keeps_it_throttled_or_not() -> None:
    busy = planned(QuotaKind.PRODUCE, ALICE, 1_000, full_days(900), SETTINGS)
    calm = planned(QuotaKind.PRODUCE, ALICE, 1_000, full_days(100)[:1], SETTINGS)
    assert (busy.proposed, busy.throttled_share) == (1_000, 0.0)
    assert busy.wanted > busy.proposed
    room = {"producer_byte_rate": 1_500}
    for each in (busy, replace(busy, throttled_share=0.5)):
        assert [after.proposed for after in fitted_plan([each, calm], room)] == [1_000, 499]


def test_the_quantile_is_the_settings() -> None:
    """Nine tenths of the windows at 1,000, the others at 3,000."""
    days = [
        EntityDay("p1", age, DayState({bucket_of(1_000): 7_776, bucket_of(3_000): 864})) for age in range(5)
    ]
    median = planned(QuotaKind.PRODUCE, ALICE, 1_200, days, replace(SETTINGS, quantile=0.5))
    assert median.wanted == pytest.approx(1_150, rel=0.03)
    assert planned(QuotaKind.PRODUCE, ALICE, 1_200, days, SETTINGS).wanted == pytest.approx(3_450, rel=0.03)
