"""Users whose name is not known are never unlimited where any user has a limit."""

from __future__ import annotations

import pytest

from sluice.quotas.entity import DEFAULT, UNNAMED_USERS, QuotaEntity, QuotaLevel, Tenant
from sluice.quotas.kinds import QuotaKind
from sluice.quotas.limits.limits import QuotaLimits
from sluice.quotas.manager import QuotaManager

PRODUCE = QuotaKind.PRODUCE
KEY = "producer_byte_rate"
ALICE, BOB = QuotaEntity("alice"), QuotaEntity("bob")
APP = QuotaEntity("carol", "app")


def limit_of(limits: QuotaLimits, user: str, client_id: str = "any") -> float | None:
    match = limits.resolve(PRODUCE, user, client_id)
    return None if match is None else match.limit


@pytest.mark.parametrize("user", sorted(UNNAMED_USERS))
def test_they_have_the_lowest_limit_of_any_user(user: str) -> None:
    limits = QuotaLimits([(ALICE, {KEY: 100_000}), (BOB, {KEY: 5_000}), (APP, {KEY: 7_000})])
    assert limit_of(limits, user) == 5_000
    assert limit_of(limits, "dave") is None


@pytest.mark.parametrize("user", sorted(UNNAMED_USERS))
def test_a_tenants_limit_counts_too(user: str) -> None:
    limits = QuotaLimits([(QuotaEntity(Tenant("team")), {KEY: 300})], tenants={"team": ["x"]})
    assert limit_of(limits, user) == 300


@pytest.mark.parametrize("entity", [QuotaEntity("<unknown>"), QuotaEntity(DEFAULT)])
def test_what_is_configured_for_them_or_for_everybody_comes_first(entity: QuotaEntity) -> None:
    limits = QuotaLimits([(ALICE, {KEY: 5}), (entity, {KEY: 900})])
    assert limit_of(limits, "<unknown>") == 900


def test_without_any_users_limit_they_are_as_unlimited_as_all() -> None:
    limits = QuotaLimits([(QuotaEntity(None, "app"), {KEY: 5}), (ALICE, {"consumer_byte_rate": 5})])
    assert limit_of(limits, "<unknown>") is None
    assert limit_of(limits, "<unknown>", "app") == 5
    assert limits.kinds_of_unnamed() == (QuotaKind.FETCH,)


def test_a_limit_in_force_goes_before_a_lower_one_in_shadow_mode() -> None:
    entries = [(ALICE, {KEY: 100}), (BOB, {KEY: 5})]
    match = QuotaLimits(entries, shadow={BOB: [KEY]}).resolve(PRODUCE, "<unknown>", "")
    assert match is not None
    assert (match.limit, match.shadow) == (100, False)
    both = QuotaLimits(entries, shadow={BOB: [KEY], ALICE: [KEY]}).resolve(PRODUCE, "<unknown>", "")
    assert both is not None
    assert (both.limit, both.shadow) == (5, True)


def test_all_of_them_share_one_bucket_whatever_their_client_ids() -> None:
    manager = QuotaManager(QuotaLimits([(ALICE, {KEY: 5_000})]))
    found = {id(manager.sensor(PRODUCE, "<unknown>", f"c-{number}", 0.0)) for number in range(5)}
    assert len(found) == 1
    assert manager.sensor(PRODUCE, "<delegation-token>", "c", 0.0) is not manager.sensor(
        PRODUCE, "<unknown>", "c", 0.0
    )


def test_producer_ids_and_request_time_too() -> None:
    limits = QuotaLimits([(ALICE, {"producer_ids_rate": 10, "request_percentage": 5})])
    assert set(limits.kinds_of_unnamed()) == {QuotaKind.PRODUCER_IDS, QuotaKind.REQUEST}
    assert QuotaManager(limits).id_limit("<unknown>", "", "") is not None


def test_it_is_explained() -> None:
    lines = QuotaLimits([(ALICE, {KEY: 5_000})]).explain(PRODUCE, "<unknown>", "c")
    (line,) = [line for line in lines if line.chosen]
    assert (line.level, line.limit) == (QuotaLevel.USER, 5_000)
    assert "it is not known who this is" in line.why
