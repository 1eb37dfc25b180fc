"""Which limit applies to a connection, and what cannot be configured."""

from __future__ import annotations

from typing import Final, TypeAlias

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sluice.quotas.entity import DEFAULT, OVERFLOW, QuotaEntity, QuotaLevel
from sluice.quotas.kinds import BYTE_KINDS, KINDS, QuotaKind
from sluice.quotas.limits.limits import QuotaError, QuotaLimits
from sluice.quotas.limits.tables import Match

Pair: TypeAlias = tuple[str | None, str | None]

# Kafka design 4.10, "The order of precedence for quota configuration is", line by line. D is its default.
# Written without any of our types, so that it can disagree.
D: Final = "(default)"
DOCUMENTED: Final = [
    ("matching user and client-id quotas", "user_client"),
    ("matching user and default client-id quotas", "user_default_client"),
    ("matching user quota", "user"),
    ("default user and matching client-id quotas", "default_user_client"),
    ("default user and default client-id quotas", "default_user_default_client"),
    ("default user quota", "default_user"),
    ("matching client-id quota", "client"),
    ("default client-id quota", "default_client"),
]


def documented_path(line: str, user: str, client_id: str) -> Pair:
    """Which (user, client id) a line of the documentation speaks of; None: that part is not in its path."""
    user_part = D if "default user" in line else user if "user" in line else None
    client_part = D if "default client-id" in line else client_id if "client-id" in line else None
    return user_part, client_part


def documented_answer(configured: dict[Pair, int], user: str, client_id: str) -> tuple[str, int, Pair] | None:
    """(rule, limit, who shares it): the first line that has a limit; a part that is not named shares."""
    for line, rule in DOCUMENTED:
        path = documented_path(line, user, client_id)
        if path in configured and "" not in path:
            shared_by = (user if path[0] is not None else None, client_id if path[1] is not None else None)
            return rule, configured[path], shared_by
    return None


def entity_of(path: Pair) -> QuotaEntity:
    return QuotaEntity(*(DEFAULT if part == D else part for part in path))


ALL_PATHS: Final = [documented_path(line, "alice", "app") for line, _ in DOCUMENTED]
CLIENTS: Final = [("alice", "app"), ("alice", "x"), ("bob", "app"), ("bob", "x"), ("alice", ""), ("", "app")]


@pytest.mark.parametrize("kind", BYTE_KINDS)
@pytest.mark.parametrize("present", range(2**8), ids=lambda bits: f"{bits:08b}")
def test_each_of_the_256_combinations_of_levels_resolves_as_documented(present: int, kind: QuotaKind) -> None:
    configured = {path: 101 + i for i, path in enumerate(ALL_PATHS) if present >> i & 1}
    key = KINDS[kind].config_key
    limits = QuotaLimits((entity_of(path), {key: limit}) for path, limit in configured.items())
    for user, client_id in CLIENTS:
        match = limits.resolve(kind, user, client_id)
        expected = documented_answer(configured, user, client_id)
        if expected is None:
            assert match is None
        else:
            rule, limit, shared_by = expected
            assert match is not None
            assert (match.level.value, match.limit) == (rule, limit)
            assert match.bucket == QuotaEntity(*shared_by)


@pytest.mark.parametrize("kind", BYTE_KINDS)
@pytest.mark.parametrize("present", range(2**8), ids=lambda bits: f"{bits:08b}")
def test_levels_with_limits_of_other_kinds_only_are_passed_over(present: int, kind: QuotaKind) -> None:
    """All eight levels are configured, the absent ones with every kind but this one."""
    others = {KINDS[other].config_key: 7 for other in BYTE_KINDS if other is not kind}
    configured = {path: 101 + i for i, path in enumerate(ALL_PATHS) if present >> i & 1}
    limits = QuotaLimits(
        (entity_of(path), {KINDS[kind].config_key: configured[path]} if path in configured else others)
        for path in ALL_PATHS
    )
    match = limits.resolve(kind, "alice", "app")
    expected = documented_answer(configured, "alice", "app")
    assert (match and (match.level.value, match.limit)) == (expected and expected[:2])


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_configured_is_unlimited(kind: QuotaKind) -> None:
    assert QuotaLimits().resolve(kind, "alice", "app") is None


@pytest.mark.parametrize("kind", BYTE_KINDS)
def test_an_empty_client_id_gets_the_default_client_of_its_user(kind: QuotaKind) -> None:
    """Where the broker falls through to unlimited (wire-semantics 2)."""
    limits = QuotaLimits([(QuotaEntity("alice", DEFAULT), {KINDS[kind].config_key: 5})])
    match = limits.resolve(kind, "alice", "")
    assert match is not None
    assert match == Match(QuotaLevel.USER_DEFAULT_CLIENT, 5, QuotaEntity("alice", ""))


@settings(deadline=None)
@given(user=st.text(min_size=1), client_id=st.text(min_size=1))
def test_a_name_of_any_characters_finds_its_own_limit_and_no_other(user: str, client_id: str) -> None:
    limits = QuotaLimits(
        [
            (QuotaEntity(user, client_id), {"producer_byte_rate": 1}),
            (QuotaEntity(DEFAULT, DEFAULT), {"producer_byte_rate": 2}),
        ]
    )
    found = [
        limits.resolve(QuotaKind.PRODUCE, *pair) for pair in [(user, client_id), (user, client_id + "x")]
    ]
    assert [match and match.limit for match in found] == [1, 2]


ALICE: Final = QuotaEntity("alice", None)


@pytest.mark.parametrize(
    ("entries", "message", "key"),
    [
        (
            [(ALICE, {"producer_rate": 1})],
            "Invalid configuration key producer_rate for user 'alice'; "
            "known: producer_byte_rate, consumer_byte_rate, request_percentage, "
            "controller_mutation_rate, producer_ids_rate, connection_creation_rate",
            "producer_rate",
        ),
        (
            [(ALICE, {"consumer_byte_rate": 5, "producer_byte_rate": 0})],
            "Quota producer_byte_rate must be greater than 0 (user 'alice')",
            "producer_byte_rate",
        ),
        (
            [(ALICE, {"producer_byte_rate": 1.5})],
            "producer_byte_rate cannot be a fractional value. (user 'alice')",
            "producer_byte_rate",
        ),
        ([(ALICE, {}), (ALICE, {"producer_byte_rate": 1})], "user 'alice' is configured twice", None),
        (
            [(QuotaEntity(), {"producer_byte_rate": 1})],
            "Invalid empty client quota entity: name a user, a client id, or both",
            None,
        ),
        (
            [(QuotaEntity("", None), {})],
            "An empty user cannot be configured; it gets the default user's limit",
            None,
        ),
        (
            [(QuotaEntity("alice", ""), {})],
            "An empty client-id cannot be configured; it gets the default client-id's limit",
            None,
        ),
        (
            [(QuotaEntity("alice", OVERFLOW), {})],
            "user 'alice', client-id <overflow>: <overflow> is Sluice's own and cannot be configured",
            None,
        ),
    ],
)
def test_what_cannot_be_configured_is_refused_with_entity_and_key(
    entries: list[tuple[QuotaEntity, dict[str, object]]], message: str, key: str | None
) -> None:
    with pytest.raises(QuotaError) as caught:
        QuotaLimits(entries)
    assert (str(caught.value), caught.value.entity, caught.value.key) == (message, entries[-1][0], key)


def test_the_snapshot_shows_what_was_configured_and_cannot_be_changed() -> None:
    given_limits = {"producer_byte_rate": 1e6}
    limits = QuotaLimits([(ALICE, given_limits), (QuotaEntity(None, "app"), {})])
    given_limits["producer_byte_rate"] = 7
    assert limits.entries == {ALICE: {"producer_byte_rate": 1_000_000}, QuotaEntity(None, "app"): {}}
    with pytest.raises(TypeError):
        limits.entries[ALICE]["producer_byte_rate"] = 7  # type: ignore[index]


BOTH: Final = {"producer_byte_rate": 1_000, "consumer_byte_rate": 2_000}


def test_a_limit_in_shadow_mode_says_so_of_its_kind_only() -> None:
    limits = QuotaLimits([(ALICE, BOTH)], shadow={ALICE: ["consumer_byte_rate"]})
    matches = {kind: limits.resolve(kind, "alice", "app") for kind in (QuotaKind.PRODUCE, QuotaKind.FETCH)}
    assert {kind: match.shadow for kind, match in matches.items() if match} == {
        QuotaKind.PRODUCE: False,
        QuotaKind.FETCH: True,
    }
    assert limits.shadow == {ALICE: {"consumer_byte_rate"}}


def test_a_limit_in_shadow_mode_takes_its_place_in_the_precedence() -> None:
    """The default that is in force does not cover alice, as it will not when hers is put in force."""
    limits = QuotaLimits([(ALICE, BOTH), (QuotaEntity(DEFAULT), BOTH)], shadow={ALICE: list(BOTH)})
    alice, bob = (limits.resolve(QuotaKind.PRODUCE, user, "app") for user in ("alice", "bob"))
    assert alice is not None
    assert bob is not None
    assert (alice.level, alice.shadow, bob.shadow) == (QuotaLevel.USER, True, False)


def test_explain_says_which_limits_are_in_shadow_mode() -> None:
    limits = QuotaLimits([(ALICE, BOTH), (QuotaEntity(DEFAULT), BOTH)], shadow={ALICE: list(BOTH)})
    lines = limits.explain(QuotaKind.PRODUCE, "alice", "app")
    assert [(line.level, line.shadow) for line in lines if line.limit] == [
        (QuotaLevel.USER, True),
        (QuotaLevel.DEFAULT_USER, False),
    ]
    (chosen,) = (line.why for line in lines if line.chosen)
    assert chosen == (
        "Applies in shadow mode, the first level in the order with a producer_byte_rate: delays nobody."
    )


@pytest.mark.parametrize("entity", [ALICE, QuotaEntity("bob")], ids=str)
def test_what_has_no_limit_cannot_be_in_shadow_mode(entity: QuotaEntity) -> None:
    with pytest.raises(QuotaError, match=rf"{entity} has no consumer_byte_rate that could be in shadow mode"):
        QuotaLimits([(ALICE, {"producer_byte_rate": 1})], shadow={entity: ["consumer_byte_rate"]})


def limits_at_three_levels() -> QuotaLimits:
    """Of one that applies to alice, one that comes after it, and one of another kind before it."""
    return QuotaLimits(
        [
            (QuotaEntity("alice", DEFAULT), {"consumer_byte_rate": 9}),
            (QuotaEntity("alice", None), {"producer_byte_rate": 1_000}),
            (QuotaEntity(None, DEFAULT), {"producer_byte_rate": 50}),
        ]
    )


def test_explain_names_all_eight_levels_and_why() -> None:
    lines = limits_at_three_levels().explain(QuotaKind.PRODUCE, "alice", "")
    assert [(line.level.value, str(line.entity), line.limit, line.chosen, line.why) for line in lines] == [
        (
            "user_client",
            "user 'alice', client-id ''",
            None,
            False,
            "An empty name matches no exact entity, only the defaults.",
        ),
        (
            "user_default_client",
            "user 'alice', client-id <default>",
            None,
            False,
            "Is configured, but without producer_byte_rate, so it is passed over.",
        ),
        (
            "user",
            "user 'alice'",
            1_000,
            True,
            "Applies: the first level in the order that has a producer_byte_rate for this client.",
        ),
        (
            "default_user_client",
            "user <default>, client-id ''",
            None,
            False,
            "An empty name matches no exact entity, only the defaults.",
        ),
        (
            "default_user_default_client",
            "user <default>, client-id <default>",
            None,
            False,
            "Nothing is configured for user <default>, client-id <default>.",
        ),
        ("default_user", "user <default>", None, False, "Nothing is configured for user <default>."),
        (
            "client",
            "client-id ''",
            None,
            False,
            "An empty name matches no exact entity, only the defaults.",
        ),
        (
            "default_client",
            "client-id <default>",
            50,
            False,
            "Has a producer_byte_rate, but user comes first in the order.",
        ),
    ]


@pytest.mark.parametrize("kind", BYTE_KINDS)
def test_explain_chooses_what_resolve_chooses_or_nothing(kind: QuotaKind) -> None:
    key = KINDS[kind].config_key
    for present in range(2**8):
        limits = QuotaLimits((entity_of(p), {key: 5}) for i, p in enumerate(ALL_PATHS) if present >> i & 1)
        for user, client_id in CLIENTS:
            match = limits.resolve(kind, user, client_id)
            chosen = [line.level for line in limits.explain(kind, user, client_id) if line.chosen]
            assert chosen == ([match.level] if match else [])


@pytest.mark.parametrize(
    "entity", [QuotaEntity("alice", "app"), QuotaEntity(DEFAULT, DEFAULT), QuotaEntity(None, "app")]
)
def test_a_rate_of_producer_ids_is_for_users_and_the_error_names_the_key(entity: QuotaEntity) -> None:
    with pytest.raises(QuotaError, match="producer_ids_rate is for users") as caught:
        QuotaLimits([(entity, {"producer_ids_rate": 5})])
    assert caught.value.key == "producer_ids_rate"


def test_a_rate_of_producer_ids_is_found_for_a_user_and_for_the_default_user() -> None:
    limits = QuotaLimits(
        [
            (QuotaEntity("alice", None), {"producer_ids_rate": 5}),
            (QuotaEntity(DEFAULT, None), {"producer_ids_rate": 7}),
        ]
    )
    found = {user: limits.resolve(QuotaKind.PRODUCER_IDS, user, "app") for user in ("alice", "bob")}
    assert {user: match and match.limit for user, match in found.items()} == {"alice": 5, "bob": 7}


def test_an_address_has_a_limit_of_its_own_or_the_default_one() -> None:
    limits = QuotaLimits(
        [
            (QuotaEntity(ip="10.0.0.1"), {"connection_creation_rate": 5}),
            (QuotaEntity(ip=DEFAULT), {"connection_creation_rate": 2}),
            (QuotaEntity(ip="2001:DB8::0:1"), {"connection_creation_rate": 7}),
        ]
    )
    assert limits.ip_limit("10.0.0.1") == (5, "ip", False)
    assert limits.ip_limit("10.0.0.2") == (2, "default_ip", False)
    assert limits.ip_limit("2001:db8::1") == (7, "ip", False)
    assert QuotaLimits().ip_limit("10.0.0.1") is None


@pytest.mark.parametrize(
    ("entity", "key", "reason"),
    [
        (QuotaEntity(ip="10.0.0.1"), "producer_byte_rate", "is not for addresses"),
        (QuotaEntity("alice"), "connection_creation_rate", "is for addresses"),
        (QuotaEntity(ip="10.0.0.300"), "connection_creation_rate", "no IP address"),
        (QuotaEntity("alice", ip="10.0.0.1"), "connection_creation_rate", "stands alone"),
    ],
)
def test_an_address_has_no_other_limit_and_no_company(entity: QuotaEntity, key: str, reason: str) -> None:
    with pytest.raises(QuotaError, match=reason):
        QuotaLimits([(entity, {key: 1})])


@pytest.mark.parametrize(
    ("in_shadow", "refusing", "expected"), [(0, 0, 3), (350, 0, 6), (0, 350, 6), (350, 350, 9)]
)
def test_many_entries_are_read_with_a_pause_after_each_hundred(
    in_shadow: int, refusing: int, expected: int
) -> None:
    entries = [(QuotaEntity(f"user-{number}"), {"producer_byte_rate": 1_000}) for number in range(350)]
    steps = QuotaLimits.in_steps(
        entries,
        shadow={entity: ["producer_byte_rate"] for entity, _ in entries[:in_shadow]},
        refusing=[entity for entity, _ in entries[:refusing]],
    )
    pauses = 0
    try:
        while True:
            next(steps)
            pauses += 1
    except StopIteration as done:
        limits = done.value
    assert pauses == expected
    assert (len(limits.entries), len(limits.shadow), len(limits.refusing)) == (350, in_shadow, refusing)
