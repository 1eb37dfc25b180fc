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


def asked(names: TransactionalIds, key: int, now_ms: float) -> float:
    """When it may go."""
    return names.ask(key, now_ms)[0]


def test_new_ids_go_at_once_while_there_are_tokens_and_then_one_a_minute() -> None:
    names = ids()
    assert [asked(names, key, 0.0) for key in range(5)] == pytest.approx(
        [0.0, 0.0, MINUTE_MS, 2 * MINUTE_MS, 2 * MINUTE_MS]
    ), "more than a minute is not owed"
    assert asked(names, 9, 3 * MINUTE_MS) == pytest.approx(3 * MINUTE_MS)


def test_a_known_id_goes_at_once_and_takes_no_token() -> None:
    names = ids()
    names.brought(1, asked(names, 1, 0.0), 0.0)
    assert [asked(names, 1, 0.0) for _ in range(10)] == [0.0] * 10
    assert asked(names, 2, 0.0) == 0.0
    assert (names.new, names.over) == (1, 0)
    names.brought(1, 0.0, 0.0)
    assert names.new == 1


def test_tokens_come_with_time_and_are_no_more_than_the_burst() -> None:
    names = ids()
    for key in range(2):
        asked(names, key, 0.0)
    assert asked(names, 2, 30_000.0) == pytest.approx(MINUTE_MS)
    assert asked(names, 3, 30_000.0) == pytest.approx(2 * MINUTE_MS)
    names = ids()
    for key in range(2):
        asked(names, key, HOUR_MS)
    assert asked(names, 2, HOUR_MS) == pytest.approx(HOUR_MS + MINUTE_MS)


def test_a_burst_is_one_id_at_least() -> None:
    names = ids(burst_h=1e-9)
    assert asked(names, 1, 0.0) == 0.0
    assert asked(names, 2, 0.0) == pytest.approx(MINUTE_MS)


def test_an_id_that_goes_before_its_token_is_over() -> None:
    names = ids()
    for key in range(3):
        names.brought(key, asked(names, key, 0.0), 0.0)
    assert (names.new, names.over) == (3, 1)
    names.brought(7, 1_001.0, 1_000.0)
    assert names.over == 1, "a ms is nothing"
    names.brought(8, 1_001.5, 1_000.0)
    assert names.over == 2


def test_the_token_of_a_request_that_does_not_go_comes_back() -> None:
    names = ids()
    asked(names, 1, 0.0)
    asked(names, 2, 0.0)
    names.withdraw(1.0, 0.0)
    assert asked(names, 3, 0.0) == 0.0
    assert asked(names, 4, 0.0) == pytest.approx(MINUTE_MS)
    names.withdraw(1.0, HOUR_MS)
    assert [asked(names, key, HOUR_MS) for key in (5, 6)] == [HOUR_MS] * 2
    assert asked(names, 7, HOUR_MS) > HOUR_MS, "no more than the burst"


def test_ids_that_are_asked_for_and_withdrawn_fill_no_bucket() -> None:
    """A burst of two and a minute's debt of one: of ten, four tokens are taken, and so many come back."""
    names = ids()
    taken = [names.ask(key, 0.0)[1] for key in range(10)]
    assert taken == pytest.approx([1.0] * 4 + [0.0] * 6)
    for token in taken[2:]:
        names.withdraw(token, 0.0)
    assert asked(names, 11, 0.0) == pytest.approx(MINUTE_MS), "two have gone"


def test_a_token_that_is_taken_in_part_comes_back_in_part() -> None:
    """Half a minute after the most is owed, half a token is there to be taken."""
    names = ids()
    for key in range(4):
        names.ask(key, 0.0)
    eligible_at_ms, taken = names.ask(4, 30_000.0)
    assert eligible_at_ms == pytest.approx(30_000.0 + 2 * MINUTE_MS)
    assert taken == pytest.approx(0.5)
    names.withdraw(0.5, 30_000.0)
    assert asked(names, 5, MINUTE_MS) == pytest.approx(MINUTE_MS + 2 * MINUTE_MS)


def test_a_known_id_takes_nothing_and_without_a_limit_nothing_is_taken() -> None:
    names = ids()
    names.brought(1, asked(names, 1, 0.0), 0.0)
    assert names.ask(1, 0.0) == (0.0, 0.0)
    assert ids(None).ask(1, 5.0) == (5.0, 0.0)


def test_without_a_limit_all_go_at_once_and_are_counted() -> None:
    names = ids(None)
    for key in range(1_000):
        assert asked(names, key, 5.0) == 5.0
        names.brought(key, 5.0, 5.0)
    assert (names.new, names.over) == (1_000, 0)


def test_it_may_be_forgotten_when_nothing_is_known_and_its_tokens_are_all_there() -> None:
    names = ids()
    assert names.expire(0.0)
    names.brought(1, asked(names, 1, 0.0), 0.0)
    assert not names.expire(MINUTE_MS), "its id is known"
    assert names.expire(3 * HOUR_MS)
    asked(names, 2, 3 * HOUR_MS)
    assert not names.expire(3 * HOUR_MS + 1.0), "a token is missing"
    assert names.expire(3 * HOUR_MS + MINUTE_MS)


def test_a_clock_that_seems_to_go_back_brings_no_tokens() -> None:
    names = ids()
    for key in range(2):
        asked(names, key, HOUR_MS)
    names.withdraw(1.0, 0.0)
    asked(names, 3, 0.0)
    assert asked(names, 4, HOUR_MS) == pytest.approx(HOUR_MS + MINUTE_MS)
