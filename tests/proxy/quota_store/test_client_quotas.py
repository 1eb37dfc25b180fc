"""Describe and alter as values: what a filter matches, what alterations come to, with the broker's own words.

That they are the broker's is shown beside a real one in test_client_quotas_against_kafka.py.
"""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.protocol.apis import ErrorCode
from sluice.proxy.quota_store.client_quotas import (
    Alteration,
    Component,
    Outcome,
    QuotaApiError,
    alter,
    describe,
)
from sluice.proxy.quota_store.entities import Parts, entity_of, parts_of
from sluice.quotas.entity import DEFAULT, QuotaEntity
from sluice.quotas.limits.limits import QuotaLimits

ALICE = QuotaEntity("alice")
EXACT, DEFAULTS, ANY = 0, 1, 2
LIMITS = QuotaLimits(
    [
        (ALICE, {"producer_byte_rate": 100, "producer_ids_rate": 5}),
        (QuotaEntity("bob"), {"consumer_byte_rate": 7}),
        (QuotaEntity(DEFAULT), {"request_percentage": 12.5}),
        (QuotaEntity("alice", "app"), {"producer_byte_rate": 1}),
        (QuotaEntity("alice", DEFAULT), {"producer_byte_rate": 2}),
        (QuotaEntity(None, "app"), {"consumer_byte_rate": 3}),
        (QuotaEntity(ip="10.0.0.1"), {"connection_creation_rate": 9}),
        (QuotaEntity("carol"), {}),
    ]
)


def found(*components: tuple[str, int, str | None], strict: bool = False) -> set[Parts]:
    given_components = [Component(*one) for one in components]
    return {parts for parts, _ in describe(LIMITS, given_components, strict=strict)}


def altered(*alterations: tuple[Mapping[str, str | None], Mapping[str, float | None]]) -> Outcome:
    return alter(
        LIMITS.entries,
        [Alteration(tuple(parts.items()), tuple(ops.items())) for parts, ops in alterations],
    )


def refused_codes(outcome: Outcome) -> list[int]:
    """Where no change could be kept."""
    return [result.code for result in outcome.refused(7, dict.fromkeys(outcome.changes, "no answer"))]


def refusal(parts: Mapping[str, str | None], ops: Mapping[str, float | None]) -> tuple[int, str | None]:
    outcome = altered((parts, ops))
    assert not outcome.changes
    (result,) = outcome.results
    assert result.parts == tuple(parts.items())
    return result.code, result.message


# Describe ---------------------------------------------------------------------------------------------------


def test_no_condition_matches_everything_and_strictly_nothing() -> None:
    assert len(found()) == 7
    assert found(strict=True) == set()


def test_an_exact_name_matches_also_what_has_more_parts_unless_strict() -> None:
    alone = (("user", "alice"),)
    assert found(("user", EXACT, "alice"), strict=True) == {alone}
    assert found(("user", EXACT, "alice")) == {
        alone,
        (("user", "alice"), ("client-id", "app")),
        (("user", "alice"), ("client-id", None)),
    }


def test_the_default_is_no_name_and_a_name_is_no_default() -> None:
    assert found(("user", DEFAULTS, None)) == {(("user", None),)}
    assert found(("user", EXACT, "<default>")) == set()


def test_any_name_matches_the_default_too() -> None:
    assert found(("user", ANY, None), strict=True) == {
        (("user", "alice"),), (("user", "bob"),), (("user", None),),
    }  # fmt: skip
    assert found(("user", ANY, None), ("client-id", ANY, None)) == {
        (("user", "alice"), ("client-id", "app")),
        (("user", "alice"), ("client-id", None)),
    }


def test_all_conditions_must_hold() -> None:
    assert found(("user", EXACT, "alice"), ("client-id", DEFAULTS, None)) == {
        (("user", "alice"), ("client-id", None))
    }
    assert found(("user", EXACT, "bob"), ("client-id", ANY, None)) == set()
    assert found(("ip", ANY, None)) == {(("ip", "10.0.0.1"),)}


@pytest.mark.parametrize("written", ["10.0.0.1", "::ffff:10.0.0.1", "::ffff:a00:1"])
def test_an_address_is_found_in_the_spelling_in_which_it_was_set(written: str) -> None:
    assert found(("ip", EXACT, written)) == {(("ip", "10.0.0.1"),)}


@pytest.mark.parametrize("written", ["nowhere", "10.0.0.1%lo", ""])
def test_what_is_no_address_finds_none(written: str) -> None:
    assert found(("ip", EXACT, written)) == set()


def test_an_entity_without_limits_is_not_told() -> None:
    assert found(("user", EXACT, "carol")) == set()


@pytest.mark.parametrize(
    ("components", "code", "message"),
    [
        ([("", 0, "a")], ErrorCode.INVALID_REQUEST, "Invalid empty entity type."),
        (
            [("user", 0, "a"), ("user", 2, None)],
            ErrorCode.INVALID_REQUEST,
            "Entity type user cannot appear more than once in the filter.",
        ),
        ([("group", 0, "a")], ErrorCode.UNSUPPORTED_VERSION, "Unsupported entity type group"),
        ([("user", 3, None)], ErrorCode.INVALID_REQUEST, "Unknown match type 3"),
    ],
)
def test_a_filter_that_the_broker_refuses_is_refused_in_its_words(
    components: list[tuple[str, int, str | None]], code: int, message: str
) -> None:
    with pytest.raises(QuotaApiError) as caught:
        found(*components)
    assert (caught.value.code, caught.value.message) == (code, message)


NAMES = st.sampled_from(["alice", "bob", "<default>", ""]) | st.none()
PARTS = st.dictionaries(st.sampled_from(["user", "client-id", "ip", "group"]), NAMES, max_size=3)


@given(
    st.lists(st.tuples(st.sampled_from(["user", "client-id"]), st.integers(0, 2)), unique_by=lambda c: c[0])
)
def test_strict_finds_nothing_that_the_same_filter_would_not_find(conditions: list[tuple[str, int]]) -> None:
    components = [(kind, match, "alice" if match == EXACT else None) for kind, match in conditions]
    strictly = found(*components, strict=True)
    assert strictly <= found(*components)
    assert all(len(parts) == len(components) for parts in strictly)


# Entities ---------------------------------------------------------------------------------------------------


def test_an_entity_and_its_parts_are_the_same() -> None:
    for entity in LIMITS.entries:
        parts = parts_of(entity)
        assert parts is not None
        assert entity_of(parts) == entity


# Alter ------------------------------------------------------------------------------------------------------


def test_a_limit_is_set_beside_those_that_are_there() -> None:
    outcome = altered(({"user": "alice"}, {"consumer_byte_rate": 50.0}))
    assert [result.code for result in outcome.results] == [ErrorCode.NONE]
    assert outcome.changes == {
        ALICE: {"producer_byte_rate": 100, "producer_ids_rate": 5, "consumer_byte_rate": 50}
    }


def test_a_removed_limit_goes_and_one_that_is_not_there_is_no_error() -> None:
    assert altered(({"user": "alice"}, {"producer_byte_rate": None})).changes == {
        ALICE: {"producer_ids_rate": 5}
    }
    outcome = altered(({"user": "bob"}, {"request_percentage": None, "consumer_byte_rate": None}))
    assert outcome.changes == {QuotaEntity("bob"): {}}
    assert altered(({"user": "dave"}, {"no_such_key": None})).results[0].code == ErrorCode.NONE


def test_what_is_so_already_is_no_change() -> None:
    outcome = altered(({"user": "alice"}, {"producer_byte_rate": 100.0}))
    assert not outcome.changes
    assert outcome.results[0].code == ErrorCode.NONE


def tried(*keys: str) -> dict[QuotaEntity, frozenset[str]]:
    """alice's in shadow mode."""
    return {ALICE: frozenset(keys)}


def test_a_limit_in_shadow_mode_is_not_told_for_the_protocol_could_not_say_that_it_is() -> None:
    limits = QuotaLimits(
        [
            (ALICE, {"producer_byte_rate": 100, "consumer_byte_rate": 5}),
            (QuotaEntity("bob"), {"consumer_byte_rate": 7}),
        ],
        shadow={ALICE: ["producer_byte_rate"], QuotaEntity("bob"): ["consumer_byte_rate"]},
    )
    assert describe(limits, [], strict=False) == [((("user", "alice"),), {"consumer_byte_rate": 5})]


@pytest.mark.parametrize("rate", [100.0, 200.0])
def test_a_limit_that_is_set_is_in_force_though_its_number_was_tried_in_shadow_mode(rate: float) -> None:
    asked = Alteration((("user", "alice"),), (("producer_byte_rate", rate),))
    outcome = alter(LIMITS.entries, [asked], tried("producer_byte_rate"))
    assert outcome.changes == {ALICE: {"producer_byte_rate": rate, "producer_ids_rate": 5}}
    assert outcome.asked[ALICE].keys_set == {"producer_byte_rate"}


def test_what_is_not_asked_about_stays_in_shadow_mode() -> None:
    asked = Alteration((("user", "alice"),), (("producer_ids_rate", 5.0), ("consumer_byte_rate", None)))
    assert alter(LIMITS.entries, [asked], tried("producer_byte_rate")).changes == {}
    assert asked.keys_set == {"producer_ids_rate"}


def test_a_limit_in_shadow_mode_that_is_removed_is_gone() -> None:
    asked = Alteration((("user", "alice"),), (("producer_byte_rate", None),))
    outcome = alter(LIMITS.entries, [asked], tried("producer_byte_rate"))
    assert outcome.changes == {ALICE: {"producer_ids_rate": 5}}


def test_a_null_name_is_the_default_and_a_user_may_be_called_so() -> None:
    outcome = altered(
        ({"user": None}, {"producer_byte_rate": 1.0}), ({"user": "<default>"}, {"producer_byte_rate": 2.0})
    )
    assert outcome.changes == {
        QuotaEntity(DEFAULT): {"request_percentage": 12.5, "producer_byte_rate": 1},
        QuotaEntity("<default>"): {"producer_byte_rate": 2},
    }


def test_who_is_refused_keeps_no_other_from_being_altered() -> None:
    outcome = altered(
        ({"user": "bob"}, {"producer_byte_rate": -1.0}), ({"user": "dave"}, {"producer_byte_rate": 5.0})
    )
    assert [result.code for result in outcome.results] == [ErrorCode.INVALID_REQUEST, ErrorCode.NONE]
    assert outcome.changes == {QuotaEntity("dave"): {"producer_byte_rate": 5}}


def test_of_two_for_one_entity_the_first_is_done_and_the_second_told() -> None:
    outcome = altered(
        ({"user": "bob", "client-id": "x"}, {"producer_byte_rate": 5.0}),
        ({"client-id": "x", "user": "bob"}, {"producer_byte_rate": 6.0}),
    )
    (result,) = outcome.results
    assert result.code == ErrorCode.INVALID_REQUEST
    assert "Ignoring duplicate entity ClientQuotaEntity(entries={" in (result.message or "")
    assert outcome.changes == {QuotaEntity("bob", "x"): {"producer_byte_rate": 5}}


@pytest.mark.parametrize("rates", [(5.0, 9.0), (5.0, None), (None, 5.0)])
def test_of_two_spellings_of_one_address_the_first_is_done_and_the_second_told(
    rates: tuple[float | None, float | None],
) -> None:
    there = {QuotaEntity(ip="::1"): {"connection_creation_rate": 7}}
    asked = [
        Alteration((("ip", spelt),), (("connection_creation_rate", rate),))
        for spelt, rate in zip(("::1", "0:0:0:0:0:0:0:1"), rates, strict=True)
    ]
    outcome = alter(there, asked)
    first, second = outcome.results
    assert (first.code, second.parts, second.code) == (
        ErrorCode.NONE, (("ip", "0:0:0:0:0:0:0:1"),), ErrorCode.INVALID_REQUEST,
    )  # fmt: skip
    assert second.message == "Ignoring duplicate entity ClientQuotaEntity(entries={ip=0:0:0:0:0:0:0:1})"
    rate = rates[0]
    assert outcome.changes == {
        QuotaEntity(ip="::1"): {} if rate is None else {"connection_creation_rate": rate}
    }
    assert refused_codes(outcome) == [7, ErrorCode.INVALID_REQUEST]


def test_a_key_given_twice_alters_nothing() -> None:
    parts: Parts = (("user", "bob"),)
    outcome = alter({}, [Alteration(parts, (("producer_byte_rate", 1.0), ("producer_byte_rate", None)))])
    assert not outcome.changes
    assert outcome.results[0].message == "Ignoring duplicate entity ClientQuotaEntity(entries={user=bob})"


@pytest.mark.parametrize(
    ("parts", "ops", "message"),
    [
        ({}, {"producer_byte_rate": 1.0}, "Invalid empty client quota entity"),
        ({"group": "g"}, {}, "Unhandled client quota entity type: group"),
        ({"user": ""}, {"producer_byte_rate": 1.0}, "Empty user not supported"),
        ({"ip": "nowhere"}, {}, "nowhere is not a valid IP or resolvable host."),
        ({"ip": "fe80::1%lo"}, {}, "fe80::1%lo is not a valid IP or resolvable host."),
        (
            {"user": "a", "ip": "10.0.0.1"},
            {},
            "Invalid quota entity combination, IP entity shouldnot be combined with User or ClientId",
        ),
        ({"user": "a"}, {"bytes": 1.0}, "Invalid configuration key bytes"),
        (
            {"user": "a"},
            {"connection_creation_rate": 1.0},
            "Invalid configuration key connection_creation_rate",
        ),
        ({"ip": "10.0.0.1"}, {"producer_byte_rate": 1.0}, "Invalid configuration key producer_byte_rate"),
        (
            {"client-id": "a"},
            {"producer_ids_rate": 1.0},
            "Invalid configuration key producer_ids_rate: "
            "producer_ids_rate is for users; leave client-id out",
        ),
        ({"user": "a"}, {"producer_byte_rate": 0.0}, "Quota producer_byte_rate must be greater than 0"),
        ({"user": "a"}, {"request_percentage": -0.1}, "Quota request_percentage must be greater than 0"),
        ({"user": "a"}, {"producer_byte_rate": 1.5}, "producer_byte_rate cannot be a fractional value."),
        (
            {"user": "a"},
            {"consumer_byte_rate": 1e19},
            "Proposed value for consumer_byte_rate is too large for a LONG.",
        ),
        (
            {"ip": None},
            {"connection_creation_rate": 2.0**31},
            "Proposed value for connection_creation_rate is too large for an INT.",
        ),
    ],
)
def test_what_cannot_be_is_refused_in_the_brokers_words(
    parts: dict[str, str | None], ops: dict[str, float | None], message: str
) -> None:
    assert refusal(parts, ops) == (ErrorCode.INVALID_REQUEST, message)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("key", ["producer_byte_rate", "request_percentage"])
def test_a_limit_is_a_number(key: str, value: float) -> None:
    code, _ = refusal({"user": "a"}, {key: value})
    assert code == ErrorCode.INVALID_REQUEST


def test_a_whole_number_may_have_lost_its_last_digits_on_the_way() -> None:
    outcome = altered(({"user": "z"}, {"producer_byte_rate": 1000.0000005, "consumer_byte_rate": 2.0**63}))
    assert outcome.changes == {
        QuotaEntity("z"): {"producer_byte_rate": 1000, "consumer_byte_rate": 2**63 - 1}
    }


@pytest.mark.parametrize(("written", "usual"), [("0:0::1", "::1"), ("::ffff:127.0.0.1", "127.0.0.1")])
def test_an_address_is_one_however_it_is_written(written: str, usual: str) -> None:
    outcome = altered(({"ip": written}, {"connection_creation_rate": 3.0}))
    assert outcome.changes == {QuotaEntity(ip=usual): {"connection_creation_rate": 3}}


VALUES = st.none() | st.floats() | st.integers(-3, 1000).map(float)
OPS = st.dictionaries(st.sampled_from(["producer_byte_rate", "request_percentage", "nonsense"]), VALUES)


@given(st.lists(st.tuples(PARTS, OPS), max_size=6))
def test_whatever_is_asked_every_entity_is_answered_and_what_comes_out_can_be_configured(
    asked: list[tuple[dict[str, str | None], dict[str, float | None]]],
) -> None:
    outcome = altered(*asked)
    assert {frozenset(parts.items()) for parts, _ in asked} == {
        frozenset(result.parts) for result in outcome.results
    }
    assert len(outcome.results) == len({frozenset(result.parts) for result in outcome.results})
    assert all((result.code == ErrorCode.NONE) is (result.message is None) for result in outcome.results)
    after = {**LIMITS.entries, **outcome.changes}
    configured = QuotaLimits(after.items())
    assert all(outcome.changes[entity] == configured.entries[entity] for entity in outcome.changes)
    assert alter(configured.entries, ()).changes == {}


def test_changes_that_could_not_be_kept_are_no_success_and_the_rest_is_what_it_was() -> None:
    outcome = altered(
        ({"ip": "0:0::1"}, {"connection_creation_rate": 3.0}),
        ({"client-id": "app", "user": "alice"}, {"producer_byte_rate": 77.0}),
        ({"user": "alice"}, {"producer_byte_rate": 100.0}),
        ({"user": "bob"}, {"nonsense": 1.0}),
    )
    assert refused_codes(outcome) == [7, 7, ErrorCode.NONE, ErrorCode.INVALID_REQUEST]
