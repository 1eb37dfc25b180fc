"""Transactional ids of one principal: when a new one may go, which are known, what is counted. 60 an hour."""

from __future__ import annotations

import pytest

from sluice.quotas.producer_ids.transactional_ids import TransactionalIds

MINUTE_MS = 60_000.0
HOUR_MS = 60 * MINUTE_MS


def ids(per_hour: float | None = 60.0, burst_h: float = 1 / 30) -> TransactionalIds:
    """A burst of two."""
    return TransactionalIds(
        per_hour, burst_h=burst_h, window_num=2, sample_ms=HOUR_MS, max_ids=100, now_ms=0.0
    )


def test_new_ids_go_at_once_while_there_are_tokens_and_then_one_a_minute() -> None:
    names = ids()
    assert [names.ask(key, 0.0) for key in range(5)] == pytest.approx(
        [0.0, 0.0, MINUTE_MS, 2 * MINUTE_MS, 2 * MINUTE_MS]
    ), "more than a minute is not owed"
    assert names.ask(9, 3 * MINUTE_MS) == pytest.approx(3 * MINUTE_MS)


def test_a_known_id_goes_at_once_and_takes_no_token() -> None:
    names = ids()
    names.brought(1, names.ask(1, 0.0), 0.0)
    assert [names.ask(1, 0.0) for _ in range(10)] == [0.0] * 10
    assert names.ask(2, 0.0) == 0.0
    assert (names.new, names.over) == (1, 0)
    names.brought(1, 0.0, 0.0)
    assert names.new == 1


def test_tokens_come_with_time_and_are_no_more_than_the_burst() -> None:
    names = ids()
    for key in range(2):
        names.ask(key, 0.0)
    assert names.ask(2, 30_000.0) == pytest.approx(MINUTE_MS)
    assert names.ask(3, 30_000.0) == pytest.approx(2 * MINUTE_MS)
    names = ids()
    for key in range(2):
        names.ask(key, HOUR_MS)
    assert names.ask(2, HOUR_MS) == pytest.approx(HOUR_MS + MINUTE_MS)


def test_a_burst_is_one_id_at_least() -> None:
    names = ids(burst_h=1e-9)
    assert names.ask(1, 0.0) == 0.0
    assert names.ask(2, 0.0) == pytest.approx(MINUTE_MS)


def test_an_id_that_goes_before_its_token_is_over() -> None:
    names = ids()
    for key in range(3):
        names.brought(key, names.ask(key, 0.0), 0.0)
    assert (names.new, names.over) == (3, 1)
    names.brought(7, 1_001.0, 1_000.0)
    assert names.over == 1, "a ms is nothing"
    names.brought(8, 1_001.5, 1_000.0)
    assert names.over == 2


def test_the_token_of_a_request_that_does_not_go_comes_back() -> None:
    names = ids()
    names.ask(1, 0.0)
    names.ask(2, 0.0)
    names.withdraw(0.0)
    assert names.ask(3, 0.0) == 0.0
    assert names.ask(4, 0.0) == pytest.approx(MINUTE_MS)
    names.withdraw(HOUR_MS)
    assert [names.ask(key, HOUR_MS) for key in (5, 6)] == [HOUR_MS] * 2
    assert names.ask(7, HOUR_MS) > HOUR_MS, "no more than the burst"


def test_without_a_limit_all_go_at_once_and_are_counted() -> None:
    names = ids(None)
    for key in range(1_000):
        assert names.ask(key, 5.0) == 5.0
        names.brought(key, 5.0, 5.0)
    assert (names.new, names.over) == (1_000, 0)


def test_it_may_be_forgotten_when_nothing_is_known_and_its_tokens_are_all_there() -> None:
    names = ids()
    assert names.expire(0.0)
    names.brought(1, names.ask(1, 0.0), 0.0)
    assert not names.expire(MINUTE_MS), "its id is known"
    assert names.expire(3 * HOUR_MS)
    names.ask(2, 3 * HOUR_MS)
    assert not names.expire(3 * HOUR_MS + 1.0), "a token is missing"
    assert names.expire(3 * HOUR_MS + MINUTE_MS)


def test_a_clock_that_seems_to_go_back_brings_no_tokens() -> None:
    names = ids()
    for key in range(2):
        names.ask(key, HOUR_MS)
    names.withdraw(0.0)
    names.ask(3, 0.0)
    assert names.ask(4, HOUR_MS) == pytest.approx(HOUR_MS + MINUTE_MS)
