"""The table of kinds, and which numbers it takes for a limit."""

from __future__ import annotations

import math

import pytest

from sluice.quotas.kinds import KIND_BY_KEY, KINDS, QuotaKind

BYTE_RATES = [QuotaKind.PRODUCE, QuotaKind.FETCH]


def test_every_kind_has_one_row_and_one_key() -> None:
    assert list(KINDS) == list(QuotaKind)
    assert all(spec.kind is kind for kind, spec in KINDS.items())
    assert {spec.config_key: kind for kind, spec in KINDS.items()} == KIND_BY_KEY


def test_the_keys_and_types_are_kafkas() -> None:
    assert {spec.config_key: spec.kafka_type for spec in KINDS.values()} == {
        "producer_byte_rate": "Produce",
        "consumer_byte_rate": "Fetch",
        "request_percentage": "Request",
        "controller_mutation_rate": "ControllerMutation",
        "producer_ids_rate": "ProducerIds",
        "connection_creation_rate": "ConnectionCreation",
    }


def test_a_kind_is_itself_in_a_dict_and_after_a_look_up_by_value() -> None:
    assert {QuotaKind("fetch"): 1}[QuotaKind.FETCH] == 1


@pytest.mark.parametrize("kind", KINDS)
def test_a_limit_is_spread_over_its_span(kind: QuotaKind) -> None:
    """1,000,000 per span of s seconds is 1,000,000 ÷ s per second."""
    assert KINDS[kind].rate_per_s(1_000_000) * KINDS[kind].limit_span_s == pytest.approx(1_000_000)


@pytest.mark.parametrize("kind", BYTE_RATES)
def test_a_byte_rate_is_of_bytes_per_second(kind: QuotaKind) -> None:
    assert KINDS[kind].rate_per_s(1_000) == 1_000


@pytest.mark.parametrize("kind", BYTE_RATES)
@pytest.mark.parametrize(("value", "limit"), [(1, 1), (1e6, 1_000_000), (2**63 - 1, 2**63 - 1)])
def test_a_byte_rate_takes_whole_numbers(kind: QuotaKind, value: float, limit: int) -> None:
    validated = KINDS[kind].validated("k", value)
    assert validated == limit
    assert type(validated) is int


@pytest.mark.parametrize("kind", BYTE_RATES)
@pytest.mark.parametrize(
    ("value", "message"),
    [
        (0, "Quota k must be greater than 0"),
        (-1, "Quota k must be greater than 0"),
        (-math.inf, "Quota k must be greater than 0"),
        (1.5, "k cannot be a fractional value."),
        (0.5, "k cannot be a fractional value."),
        (2**63, "Proposed value for k is too large for a LONG."),
        (math.inf, "Proposed value for k is too large for a LONG."),
        (math.nan, "Quota k must be a whole number, not nan"),
        (True, "Quota k must be a whole number, not true"),
        ("1000", "Quota k must be a whole number, not '1000'"),
        (None, "Quota k must be a whole number, not null"),
    ],
)
def test_a_byte_rate_refuses_all_else_in_kafkas_words(kind: QuotaKind, value: object, message: str) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011  the whole text is compared
        KINDS[kind].validated("k", value)
    assert str(caught.value) == message


@pytest.mark.parametrize("limit", [0.5, 1, 50, 1e6])
def test_a_rate_of_producer_ids_may_be_a_fraction(limit: float) -> None:
    assert KINDS[QuotaKind.PRODUCER_IDS].validated("k", limit) == limit


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (0, "Quota k must be greater than 0"),
        (-1.5, "Quota k must be greater than 0"),
        (math.inf, "Quota k must be a number, not inf"),
        (math.nan, "Quota k must be a number, not nan"),
        (True, "Quota k must be a number, not true"),
        ("50", "Quota k must be a number, not '50'"),
    ],
)
def test_a_rate_of_producer_ids_refuses_what_is_no_positive_number(value: object, message: str) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011  the whole text is compared
        KINDS[QuotaKind.PRODUCER_IDS].validated("k", value)
    assert str(caught.value) == message
