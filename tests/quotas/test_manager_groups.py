"""Sensors of tenants and prefixes: who shares one, what clients can mint, what a reload keeps."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sluice.quotas.entity import DEFAULT, OVERFLOW, Prefix, QuotaEntity, Tenant
from sluice.quotas.kinds import QuotaKind
from sluice.quotas.limits.limits import QuotaLimits
from sluice.quotas.manager import QuotaManager
from sluice.quotas.sensors.sensor import Sensor
from testkit.thorough import cases

PRODUCE = QuotaKind.PRODUCE
TEAM = Tenant("team")
APP = Prefix("app-")
TENANTS = {"team": ["alice", "bob"]}


def limits_of(
    *entities: QuotaEntity, tenants: dict[str, list[str]] = TENANTS, rate: int = 1_000
) -> QuotaLimits:
    return QuotaLimits([(entity, {"producer_byte_rate": rate}) for entity in entities], tenants=tenants)


def running(manager: QuotaManager, user: str, client_id: str) -> Sensor:
    sensor = manager.sensor(PRODUCE, user, client_id, 0)
    assert sensor is not None
    return sensor


def test_members_of_a_tenant_pay_into_one_bucket() -> None:
    """1,000 B/s, burst 1 s: alice's 3,000 B are 2 s of debt, which bob waits for."""
    manager = QuotaManager(limits_of(QuotaEntity(TEAM)))
    assert running(manager, "alice", "x").charge(3_000, 0) == 2_000
    assert running(manager, "bob", "y").charge(1_000, 0) == 3_000
    assert len(manager) == 1


def test_client_ids_of_one_prefix_pay_into_one_bucket_and_cannot_be_minted() -> None:
    manager = QuotaManager(limits_of(QuotaEntity("alice", APP), QuotaEntity("alice", DEFAULT)))
    assert len({running(manager, "alice", f"app-{i}") for i in range(100)}) == 1
    assert running(manager, "alice", "other") is not running(manager, "alice", "app-1")


def test_each_user_has_a_bucket_of_its_own_for_a_prefix_of_the_default_user() -> None:
    manager = QuotaManager(limits_of(QuotaEntity(DEFAULT, APP)))
    assert running(manager, "carol", "app-1").entity == QuotaEntity("carol", APP)
    assert running(manager, "dave", "app-1").entity == QuotaEntity("dave", APP)


def test_beyond_the_cap_on_all_users_share_a_bucket_for_each_prefix() -> None:
    manager = QuotaManager(limits_of(QuotaEntity(DEFAULT, APP)), max_sensors=1)
    running(manager, "carol", "app-1")
    assert running(manager, "dave", "app-1").entity == QuotaEntity(OVERFLOW, APP)
    manager.reload(limits_of(QuotaEntity(DEFAULT, APP), rate=7), 0)
    assert running(manager, "dave", "app-2").entity == QuotaEntity(OVERFLOW, APP)
    assert running(manager, "dave", "app-2").rate_per_s == 7


def test_a_member_that_mints_client_ids_meets_its_own_cap_and_delays_no_other_member() -> None:
    manager = QuotaManager(limits_of(QuotaEntity(TEAM, DEFAULT)), max_client_ids_per_user=2)
    alices = [running(manager, "alice", f"c{i}").entity for i in range(4)]
    assert alices == [QuotaEntity(TEAM, "c0"), QuotaEntity(TEAM, "c1"), *[QuotaEntity("alice", OVERFLOW)] * 2]
    assert running(manager, "bob", "d0").entity == QuotaEntity(TEAM, "d0")
    assert running(manager, "bob", "c0") is running(manager, "alice", "c0")
    manager.reload(limits_of(QuotaEntity(TEAM, DEFAULT), rate=7), 0)
    assert {str(sensor.entity): sensor.rate_per_s for sensor in manager.sensors()} == {
        "tenant 'team', client-id 'c0'": 7,
        "tenant 'team', client-id 'c1'": 7,
        "tenant 'team', client-id 'd0'": 7,
        "user 'alice', client-id <overflow>": 7,
    }


def test_a_reload_keeps_a_tenants_debt_when_its_members_change() -> None:
    manager = QuotaManager(limits_of(QuotaEntity(TEAM)))
    sensor = running(manager, "alice", "x")
    sensor.charge(3_000, 0)
    manager.reload(limits_of(QuotaEntity(TEAM), tenants={"team": ["carol"]}), 0)
    assert running(manager, "carol", "x") is sensor
    assert sensor.tokens(0) == -2_000
    assert manager.sensor(PRODUCE, "alice", "x", 0) is None


@pytest.mark.parametrize(
    "limits",
    [
        limits_of(QuotaEntity("alice")),
        limits_of(QuotaEntity(TEAM), tenants={"team": []}),
        limits_of(QuotaEntity(TEAM), QuotaEntity("alice"), QuotaEntity("bob")),
        limits_of(QuotaEntity(TEAM), QuotaEntity("alice", DEFAULT), QuotaEntity("bob")),
        limits_of(QuotaEntity(TEAM, DEFAULT)),
    ],
    ids=["no limit", "no members", "members with limits of their own", "likewise", "another level"],
)
def test_a_reload_drops_a_tenants_bucket_that_no_member_reaches(limits: QuotaLimits) -> None:
    manager = QuotaManager(limits_of(QuotaEntity(TEAM)))
    running(manager, "alice", "x")
    manager.reload(limits, 0)
    assert len(manager) == 0


def test_a_reload_keeps_a_tenants_bucket_that_one_member_still_reaches_with_some_client_ids() -> None:
    manager = QuotaManager(limits_of(QuotaEntity(TEAM)))
    sensor = running(manager, "alice", "x")
    limits = limits_of(QuotaEntity(TEAM), QuotaEntity("alice"), QuotaEntity("bob", "x"))
    manager.reload(limits, 0)
    assert list(manager.sensors()) == [sensor]
    assert running(manager, "bob", "y") is sensor


def test_a_reload_keeps_a_prefixes_debt_also_where_some_client_ids_have_limits_of_their_own() -> None:
    manager = QuotaManager(limits_of(QuotaEntity("alice", APP)))
    sensor = running(manager, "alice", "app-1")
    manager.reload(
        limits_of(
            *(QuotaEntity("alice", name) for name in ("app-", "app-1", "", APP, Prefix("app-1")) if name)
        ),
        0,
    )
    assert list(manager.sensors()) == [sensor]
    assert running(manager, "alice", "app-2") is sensor


def test_a_reload_drops_the_bucket_of_a_client_id_that_a_prefix_covers_now() -> None:
    manager = QuotaManager(limits_of(QuotaEntity("alice", DEFAULT)))
    running(manager, "alice", "app-1")
    other = running(manager, "alice", "other")
    manager.reload(limits_of(QuotaEntity("alice", DEFAULT), QuotaEntity("alice", APP)), 0)
    assert list(manager.sensors()) == [other]


# Any limits → any others, sessions asking in between. Of every part some names are configured and some not.

USERS = ("alice", "bob", "dave")
CLIENT_IDS = ("app-1", "app-2", "x", "")
ENTITIES = [
    QuotaEntity(user, client_id)
    for user in ("alice", TEAM, DEFAULT, None)
    for client_id in ("app-1", APP, DEFAULT, None)
    if (user, client_id) != (None, None)
]
LIMITS = st.dictionaries(st.sampled_from(ENTITIES), st.integers(1, 3), max_size=6)
NAMES = st.lists(st.tuples(st.sampled_from(USERS), st.sampled_from(CLIENT_IDS)), max_size=8)


def quotas_of(rates: dict[QuotaEntity, int]) -> QuotaLimits:
    return QuotaLimits(
        [(entity, {"producer_byte_rate": rate}) for entity, rate in rates.items()], tenants=TENANTS
    )


def ask(manager: QuotaManager, names: Iterable[tuple[str, str]], now_ms: float) -> None:
    """Whoever asks gets the limits in force, in a bucket that no other sensor stands for."""
    for user, client_id in names:
        match = manager.limits.resolve(PRODUCE, user, client_id)
        for _ in range(2):  # the second time it is remembered
            sensor = manager.sensor(PRODUCE, user, client_id, now_ms)
            assert (sensor and (sensor.entity, sensor.level, sensor.rate_per_s)) == (
                match and (match.bucket, match.level, match.limit)
            )


@settings(deadline=None, max_examples=cases(150))
@given(before=LIMITS, after=LIMITS, first=NAMES, between=NAMES)
def test_after_a_reload_the_manager_is_as_a_new_one_that_met_the_same_clients(
    before: dict[QuotaEntity, int],
    after: dict[QuotaEntity, int],
    first: list[tuple[str, str]],
    between: list[tuple[str, str]],
) -> None:
    everybody = [(user, client_id) for user in USERS for client_id in CLIENT_IDS]
    manager, fresh = QuotaManager(quotas_of(before)), QuotaManager(quotas_of(after))
    ask(manager, first, 0.0)
    steps = manager.reload_in_steps(quotas_of(after), 1.0)
    next(steps, None)
    ask(manager, between, 2.0)
    for _ in steps:
        pass
    ask(manager, everybody, 3.0)
    ask(fresh, everybody, 3.0)
    assert {sensor.entity for sensor in manager.sensors()} == {sensor.entity for sensor in fresh.sensors()}
    assert repr(manager).split(": ", 1)[1] == repr(fresh).split(": ", 1)[1], "counts of what was minted too"
