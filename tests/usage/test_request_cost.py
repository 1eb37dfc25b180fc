"""The model of what a request costs a broker."""

from __future__ import annotations

import pytest

from sluice.usage.request_cost import Coefficients, CostRow, RequestCosts, request_cost_ms

PRODUCE = 0
FETCH = 1
NONE, GZIP = 0, 1
EXAMPLE = Coefficients(0.1, 0.000002, 0.000001, 0.02, 0.0001)
"""of the module's worked example"""


def costs(*rows: CostRow, other: float = 9.0) -> RequestCosts:
    return RequestCosts([*rows, CostRow(Coefficients(other))])


def test_a_request_costs_its_parts_together() -> None:
    assert request_cost_ms(EXAMPLE, 10_000, 60, 5.0, 1, 100) == pytest.approx(0.15006)


def test_what_comes_before_the_answer_costs_no_more_than_the_time_to_the_answer() -> None:
    assert request_cost_ms(EXAMPLE, 10_000, 60, 0.08, 1, 100) == pytest.approx(0.08006)


def test_the_answers_bytes_are_not_capped_because_they_are_sent_after_its_first_byte() -> None:
    assert request_cost_ms(Coefficients(response_byte_ms=0.001), 100, 1_000_000, 0.5) == 1000.0


def test_the_first_row_that_fits_says_what_a_request_costs() -> None:
    table = costs(
        CostRow(Coefficients(1.0), PRODUCE, codec=GZIP, acks_all=True),
        CostRow(Coefficients(2.0), PRODUCE, codec=GZIP),
        CostRow(Coefficients(3.0), PRODUCE),
        CostRow(Coefficients(4.0), FETCH, versions=(4, 12)),
    )
    assert table.of(PRODUCE, 9, GZIP, acks_all=True).request_ms == 1.0
    assert table.of(PRODUCE, 9, GZIP).request_ms == 2.0
    assert table.of(PRODUCE, 9, NONE, acks_all=True).request_ms == 3.0
    assert [table.of(FETCH, version).request_ms for version in (3, 4, 12, 13)] == [9.0, 4.0, 4.0, 9.0]
    assert table.of(77, 0).request_ms == 9.0


def test_tls_adds_to_every_row() -> None:
    table = costs(CostRow(Coefficients(1.0, 0.5), FETCH)).plus(Coefficients(0.25, 0.25, 0.25))
    assert table.of(FETCH, 4) == Coefficients(1.25, 0.75, 0.25)
    assert table.of(PRODUCE, 9) == Coefficients(9.25, 0.25, 0.25)


def test_a_table_without_a_row_for_all_other_requests_is_refused() -> None:
    with pytest.raises(ValueError, match="every other request"):
        RequestCosts([CostRow(Coefficients(1.0), PRODUCE)])
    with pytest.raises(ValueError, match="every other request"):
        RequestCosts([])


def test_a_negative_cost_is_refused() -> None:
    with pytest.raises(ValueError, match="negative"):
        RequestCosts([CostRow(Coefficients(-0.1))])


def test_what_clients_can_make_it_remember_is_bounded() -> None:
    table = costs()
    for version in range(10_000):
        table.of(1_000, version)
    assert len(table._remembered) <= 4_096


def test_what_is_remembered_of_requests_is_bounded_and_what_they_cost_stays() -> None:
    """Clients choose keys and versions of requests."""
    table = costs(CostRow(Coefficients(4.0), FETCH, versions=(4, 12)))
    for version in range(10_000):
        table.of(FETCH, version)
        assert len(table._remembered) == version % 4_096 + 1
    assert [table.of(FETCH, version).request_ms for version in (3, 4, 12, 13)] == [9.0, 4.0, 4.0, 9.0]
