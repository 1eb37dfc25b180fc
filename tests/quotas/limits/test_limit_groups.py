"""Tenants and client-id prefixes: which limit applies, what cannot be configured, what explain says."""

from __future__ import annotations

from typing import Final, TypeAlias

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sluice.quotas.entity import DEFAULT, Prefix, QuotaEntity, QuotaLevel, Tenant
from sluice.quotas.kinds import QuotaKind
from sluice.quotas.limits.limits import QuotaError, QuotaLimits
from sluice.quotas.limits.tables import LevelExplanation, Match
from testkit.thorough import cases

PRODUCE: Final = QuotaKind.PRODUCE
TEAM: Final = Tenant("team")
TENANTS: Final = {"team": ["alice", "bob"], "others": ["carol"]}
RATE: Final = {"producer_byte_rate": 5}
Path: TypeAlias = tuple[str | None, str | None]

# The precedence once more, without our types, so that it can disagree: a path is (user part, client part);
# t:… is a tenant, p:… a prefix, * the default, None not looked at.
USERS: Final[dict[str, list[str | None]]] = {
    "alice": ["alice", "t:team", "*", None],
    "bob": ["bob", "t:team", "*", None],
    "dave": ["dave", "*", None],
}
CLIENTS: Final[dict[str, list[str | None]]] = {
    "app-1": ["app-1", "p:app-", "p:a", "*", None],
    "app": ["app", "p:a", "*", None],
    "x": ["x", "*", None],
    "": ["*", None],
}
ALL_PATHS: Final[list[Path]] = [
    (user, client)
    for user in ("alice", "t:team", "*", None)
    for client in ("app-1", "p:app-", "p:a", "*", None)
    if (user, client) != (None, None)
]


def entity_of(path: Path) -> QuotaEntity:
    user, client = path
    return QuotaEntity(
        DEFAULT if user == "*" else Tenant(user[2:]) if user and user.startswith("t:") else user,
        DEFAULT if client == "*" else Prefix(client[2:]) if client and client.startswith("p:") else client,
    )


def first_configured(configured: dict[Path, int], user: str, client_id: str) -> tuple[int, Path] | None:
    """(limit, who shares it): rows of users, in each the client parts; a default stands for the real name."""
    for user_part in USERS[user]:
        for client_part in CLIENTS[client_id]:
            if (user_part, client_part) in configured:
                shared_by = (
                    user if user_part == "*" else user_part,
                    client_id if client_part == "*" else client_part,
                )
                return configured[user_part, client_part], shared_by
    return None


@settings(deadline=None, max_examples=cases(400))
@given(st.sets(st.sampled_from(ALL_PATHS)))
def test_the_first_configured_of_each_row_applies_and_its_group_shares_it(present: set[Path]) -> None:
    configured = {path: 101 + i for i, path in enumerate(ALL_PATHS) if path in present}
    limits = QuotaLimits(
        ((entity_of(path), {"producer_byte_rate": limit}) for path, limit in configured.items()),
        tenants=TENANTS,
    )
    for user in USERS:
        for client_id in CLIENTS:
            match = limits.resolve(PRODUCE, user, client_id)
            expected = first_configured(configured, user, client_id)
            assert (match and (match.limit, match.bucket)) == (
                expected and (expected[0], entity_of(expected[1]))
            )
            chosen = [line.level for line in limits.explain(PRODUCE, user, client_id) if line.chosen]
            assert chosen == ([match.level] if match else [])


def limits_of(*entities: QuotaEntity) -> QuotaLimits:
    return QuotaLimits([(entity, RATE) for entity in entities], tenants=TENANTS)


@pytest.mark.parametrize(
    ("client_id", "prefix"),
    [("app-1", "app-"), ("app-", "app-"), ("app", "ap"), ("ap", "ap"), ("a", "a"), ("b", None), ("", None)],
)
def test_of_several_prefixes_the_longest_that_fits_applies(client_id: str, prefix: str | None) -> None:
    limits = limits_of(*(QuotaEntity("alice", Prefix(text)) for text in ("a", "app-", "ap")))
    match = limits.resolve(PRODUCE, "alice", client_id)
    assert (match and match.bucket) == (prefix and QuotaEntity("alice", Prefix(prefix)))


def test_a_longer_prefix_of_a_less_specific_user_does_not_win() -> None:
    match = limits_of(QuotaEntity("alice", Prefix("a")), QuotaEntity(DEFAULT, Prefix("app-"))).resolve(
        PRODUCE, "alice", "app-1"
    )
    assert match is not None
    assert match.level is QuotaLevel.USER_CLIENT_PREFIX


def test_a_group_with_limits_of_other_kinds_only_is_passed_over() -> None:
    limits = QuotaLimits(
        [
            (QuotaEntity("alice", Prefix("app-")), {"consumer_byte_rate": 1}),
            (QuotaEntity("alice", Prefix("a")), {"producer_byte_rate": 2}),
            (QuotaEntity(TEAM), {"consumer_byte_rate": 3}),
            (QuotaEntity(DEFAULT), {"producer_byte_rate": 4}),
        ],
        tenants=TENANTS,
    )
    found = [limits.resolve(PRODUCE, user, "app-1") for user in ("alice", "bob")]
    assert [match and match.limit for match in found] == [2, 4]


def test_members_of_a_tenant_share_its_bucket_and_others_do_not() -> None:
    limits = limits_of(QuotaEntity(TEAM), QuotaEntity(DEFAULT))
    buckets = [limits.resolve(PRODUCE, user, "app") for user in ("alice", "bob", "carol", "dave")]
    assert [match and str(match.bucket) for match in buckets] == [
        "tenant 'team'",
        "tenant 'team'",
        "user 'carol'",
        "user 'dave'",
    ]


def test_a_limit_of_a_group_can_be_in_shadow_mode() -> None:
    entity = QuotaEntity(TEAM, Prefix("app-"))
    limits = QuotaLimits([(entity, RATE)], shadow={entity: list(RATE)}, tenants=TENANTS)
    match = limits.resolve(PRODUCE, "bob", "app-1")
    assert match == Match(QuotaLevel.TENANT_CLIENT_PREFIX, 5, entity, shadow=True)


def test_the_snapshot_knows_the_tenants_and_cannot_be_changed() -> None:
    members = ["alice"]
    limits = QuotaLimits(tenants={"team": members})
    members.append("mallory")
    assert limits.tenants == {"team": ("alice",)}
    assert (limits.tenant_of("alice"), limits.tenant_of("mallory")) == (TEAM, None)


@pytest.mark.parametrize(
    ("entity", "values", "message", "key"),
    [
        (QuotaEntity(Tenant("tema")), RATE, "tenant 'tema': there is no such tenant", None),
        (
            QuotaEntity("alice", Prefix("")),
            RATE,
            "An empty client-id-prefix is every client id: write <default>",
            None,
        ),
        (
            QuotaEntity(TEAM),
            {"producer_ids_rate": 5},
            "producer_ids_rate is for users, whose ids are known apart; give it to the tenant's members "
            "or to <default> (tenant 'team')",
            "producer_ids_rate",
        ),
        (
            QuotaEntity("alice", Prefix("a")),
            {"producer_ids_rate": 5},
            "producer_ids_rate is for users; leave client-id-prefix out (user 'alice', client-id-prefix 'a')",
            "producer_ids_rate",
        ),
        (
            QuotaEntity(TEAM),
            {"connection_creation_rate": 5},
            "connection_creation_rate is for addresses; write ip (tenant 'team')",
            "connection_creation_rate",
        ),
    ],
)
def test_what_a_group_cannot_have_is_refused(
    entity: QuotaEntity, values: dict[str, int], message: str, key: str | None
) -> None:
    with pytest.raises(QuotaError) as caught:
        QuotaLimits([(entity, values)], tenants=TENANTS)
    assert (str(caught.value), caught.value.entity, caught.value.key) == (message, entity, key)


@pytest.mark.parametrize(
    ("tenants", "message"),
    [
        ({"team": ["alice"], "others": ["alice"]}, "User 'alice' is a member of 'team' already"),
        ({"": ["alice"]}, "An empty name of a tenant"),
        ({"team": [""]}, "An empty member of a tenant"),
    ],
)
def test_a_user_belongs_to_one_tenant_at_most_and_nobody_is_nameless(
    tenants: dict[str, list[str]], message: str
) -> None:
    with pytest.raises(QuotaError, match=message):
        QuotaLimits(tenants=tenants)


def explained(limits: QuotaLimits, user: str, client_id: str) -> dict[QuotaLevel, LevelExplanation]:
    return {line.level: line for line in limits.explain(PRODUCE, user, client_id)}


def test_explain_has_kafkas_eight_for_who_is_in_no_group() -> None:
    limits = limits_of(QuotaEntity(TEAM), QuotaEntity("alice", Prefix("app-")))
    assert all(level.is_kafkas for level in explained(limits, "dave", "app-1"))
    assert len(explained(limits, "dave", "app-1")) == 8


def test_explain_has_the_levels_of_the_groups_that_the_client_is_of() -> None:
    limits = limits_of(
        QuotaEntity(TEAM), QuotaEntity("alice", Prefix("app-")), QuotaEntity(None, Prefix("a"))
    )
    lines = explained(limits, "alice", "app-1")
    assert {level.value: line.why for level, line in lines.items() if not level.is_kafkas} == {
        "user_client_prefix": "Applies: the first level in the order that has a producer_byte_rate "
        "for this client.",
        "tenant_client": "Nothing is configured for tenant 'team', client-id 'app-1'.",
        "tenant_default_client": "Nothing is configured for tenant 'team', client-id <default>.",
        "tenant": "Has a producer_byte_rate, but user_client_prefix comes first in the order.",
        "client_prefix": "Has a producer_byte_rate, but user_client_prefix comes first in the order.",
    }


def test_explain_shows_of_several_prefixes_the_longest_with_a_limit_of_this_kind_else_the_longest() -> None:
    limits = QuotaLimits(
        [
            (QuotaEntity("alice", Prefix("app-")), {"consumer_byte_rate": 1}),
            (QuotaEntity("alice", Prefix("ap")), {"producer_byte_rate": 2}),
            (QuotaEntity(None, Prefix("app")), {"consumer_byte_rate": 3}),
            (QuotaEntity(None, Prefix("a")), {"consumer_byte_rate": 4}),
        ]
    )
    lines = explained(limits, "alice", "app-1")
    assert lines[QuotaLevel.USER_CLIENT_PREFIX].entity == QuotaEntity("alice", Prefix("ap"))
    assert lines[QuotaLevel.CLIENT_PREFIX].entity == QuotaEntity(None, Prefix("app"))
    assert "without producer_byte_rate" in lines[QuotaLevel.CLIENT_PREFIX].why
