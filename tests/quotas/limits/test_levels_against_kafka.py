"""Kafka and Sluice pick the same level and limit; where they do not, it is where the docs say so.

All 256 configurations of the eight levels, each reached in two ways (entity by entity, others deleted in
between; and from all eight by deleting what is too much), for two users with three client ids. What Kafka
picks is asked of the broker's own class, and of a real broker for those in which one or two levels are there
or missing. The table of docs/quotas.md is what comes out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Final

import pytest

from sluice.quotas.entity import QuotaEntity, QuotaLevel
from sluice.quotas.kinds import QuotaKind
from sluice.quotas.limits.limits import QuotaLimits
from sluice.quotas.limits.tables import Match
from testkit.oracles.broker_limits import BrokerLimits, broker_limits
from testkit.oracles.java_quota_levels import JavaLevels, java_levels
from testkit.repository.docs_tables import rows_below

pytestmark = pytest.mark.kafka

LEVELS: Final = [level for level in QuotaLevel if level.is_kafkas]
ALL: Final = (1 << len(LEVELS)) - 1
USERS: Final = {"alice": "a user with limits of its own", "bob": "any other"}
CLIENT_IDS: Final = {
    "app": "a client id with limits of its own",
    "x": "any other",
    "": "empty or null",
}
SAME, LESS, NONE = "the same level and limit", "a less specific level", "unlimited"
EMPTY_FALLS_TO: Final = {None, QuotaLevel.USER, QuotaLevel.DEFAULT_USER}


def limit_of(level: QuotaLevel) -> int:
    """Another for each level, so that a limit tells its level."""
    return 1_000 + 100 * LEVELS.index(level)


LIMITS: Final = [limit_of(level) for level in LEVELS]


def level_of(limit: float | None) -> QuotaLevel | None:
    return None if limit is None else LEVELS[(int(limit) - 1_000) // 100]


def levels_in(present: int) -> list[QuotaLevel]:
    return [level for index, level in enumerate(LEVELS) if present >> index & 1]


def entity_of(level: QuotaLevel, user: str = "alice", client_id: str = "app") -> QuotaEntity:
    entity = level.configured_entity(user, client_id)
    assert entity is not None
    return entity


def ours(present: int, user: str, client_id: str) -> Match | None:
    limits = QuotaLimits(
        (entity_of(level), {"producer_byte_rate": limit_of(level)}) for level in levels_in(present)
    )
    return limits.resolve(QuotaKind.PRODUCE, user, client_id)


def outcome(mine: QuotaLevel | None, theirs: QuotaLevel | None, client_id: str) -> str:
    """Which of the docs' columns; anything that the docs do not tell of is an error."""
    if mine is theirs:
        return SAME
    assert client_id == ""
    assert mine is not None
    assert mine.mints_client_ids, "only the default client id's levels are for the empty one"
    assert theirs in EMPTY_FALLS_TO
    return NONE if theirs is None else LESS


@pytest.fixture(scope="module")
def java() -> Iterator[JavaLevels]:
    with java_levels() as levels:
        yield levels


def gray_codes() -> Iterator[tuple[int, QuotaLevel]]:
    """All configurations but the empty one, each one level more or less than the one before."""
    before = 0
    for index in range(1, ALL + 1):
        present = index ^ (index >> 1)
        yield present, levels_in(present ^ before)[0]
        before = present


def walked(java: JavaLevels) -> Iterator[int]:
    """Each configuration in force, entity by entity: half of the steps delete one."""
    for level in LEVELS:
        java.put(entity_of(level), None)
    yield 0
    for present, changed in gray_codes():
        java.put(entity_of(changed), limit_of(changed) if changed in levels_in(present) else None)
        yield present


def deleted(java: JavaLevels) -> Iterator[int]:
    """Each configuration in force, as what is left when all eight were there."""
    for present in range(ALL + 1):
        for level in LEVELS:
            java.put(entity_of(level), limit_of(level))
        for level in levels_in(ALL ^ present):
            java.put(entity_of(level), None)
        yield present


def documented() -> dict[tuple[str, str], Counter[str]]:
    return {
        (user, client_id): Counter({SAME: int(same), LESS: int(less), NONE: int(none)})
        for user, client_id, same, less, none in rows_below("Kafka's levels and ours")
    }


@pytest.mark.parametrize("way", [walked, deleted])
def test_the_brokers_class_picks_the_same_level_and_limit_save_for_the_empty_client_id(
    java: JavaLevels, way: Callable[[JavaLevels], Iterator[int]]
) -> None:
    found: dict[tuple[str, str], Counter[str]] = {
        (user, client_id): Counter() for user in USERS.values() for client_id in CLIENT_IDS.values()
    }
    configurations = 0
    for present in way(java):
        configurations += 1
        for user, user_is in USERS.items():
            for client_id, client_is in CLIENT_IDS.items():
                match = ours(present, user, client_id)
                theirs = java.limit(user, client_id)
                mine = match.level if match is not None else None
                where = outcome(mine, level_of(theirs), client_id)
                found[user_is, client_is][where] += 1
                if match is not None and where == SAME and client_id:
                    assert match.limit == theirs
                    assert match.bucket == java.shared_by(user, client_id)
    assert configurations == 256
    assert found == documented()


FEW: Final = sorted(
    {0, ALL}
    | {1 << a | 1 << b for a in range(8) for b in range(a + 1)}
    | {ALL ^ (1 << a | 1 << b) for a in range(8) for b in range(a + 1)}
)


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerLimits]:
    with broker_limits() as limits:
        yield limits


@pytest.mark.long
def test_a_real_broker_picks_the_same_level_and_limit_save_for_the_empty_client_id(
    broker: BrokerLimits,
) -> None:
    """The limit is told by the delay of a first Produce, so each question has names of its own."""
    assert len(FEW) > 60
    for present in FEW:
        asked = [(user, client_id) for user in USERS for client_id in CLIENT_IDS]
        names = [f"{present}-{index}" for index in range(len(asked))]
        broker.set(
            {
                entity_of(level, f"alice-{name}", f"app-{name}"): limit_of(level)
                for level in levels_in(present)
                for name in names
            }
        )
        for (user, client_id), name in zip(asked, names, strict=True):
            match = ours(present, user, client_id)
            mine = match.level if match is not None else None
            theirs = broker.limit(f"{user}-{name}", f"{client_id}-{name}" if client_id else None, LIMITS)
            outcome(mine, level_of(theirs), client_id)
