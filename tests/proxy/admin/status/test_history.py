"""Curves and counts over time, and that they take no more room than they may."""

from __future__ import annotations

from sluice.proxy.admin.status.history import (
    COUNT_INTERVAL_MS,
    MAX_COUNTED,
    MAX_ENTITIES,
    POINTS,
    Histories,
    NewIds,
)
from sluice.quotas.producer_ids.principal import PairCeiling, PrincipalIds, ProducerIdSettings

S = 1000.0


def test_points_stand_where_their_time_is_and_gaps_are_told_as_gaps() -> None:
    histories = Histories(interval_s=5.0)
    for tick, used in ((10, 0.25), (11, 0.5), (14, 1.5)):
        histories.note([("a", used, 100.0 * tick)], tick * 5.0 * S)
    found = histories.of("a")
    assert found is not None
    assert len(found.utilisation) == len(found.delay_ms) == POINTS
    assert found.utilisation[-5:] == [0.25, 0.5, None, None, 1.5]
    assert found.delay_ms[-5:] == [1000.0, 1100.0, None, None, 1400.0]
    assert set(found.utilisation[:-5]) == {None}


def test_what_is_older_than_the_curve_is_gone() -> None:
    histories = Histories(interval_s=1.0)
    for tick in range(POINTS + 5):
        histories.note([("a", float(tick), 0.0)], tick * S)
    found = histories.of("a")
    assert found is not None
    assert found.utilisation == [float(tick) for tick in range(5, POINTS + 5)]
    histories.note([("a", 1.0, 0.0)], 10 * POINTS * S)
    found = histories.of("a")
    assert found is not None
    assert found.utilisation == [None] * (POINTS - 1) + [1.0]


def test_a_bucket_that_is_not_among_the_first_any_more_has_no_new_points() -> None:
    histories = Histories(interval_s=1.0)
    histories.note([("a", 0.5, 0.0), ("b", 0.5, 0.0)], 1 * S)
    histories.note([("b", 0.5, 0.0)], 3 * S)
    found = histories.of("a")
    assert found is not None
    assert found.utilisation[-3:] == [0.5, None, None]


def test_a_second_look_within_a_tick_takes_the_firsts_place() -> None:
    histories = Histories(interval_s=5.0)
    histories.note([("a", 0.1, 0.0)], 5.0 * S)
    histories.note([("a", 0.2, 0.0)], 9.9 * S)
    found = histories.of("a")
    assert found is not None
    assert found.utilisation[-2:] == [None, 0.2]


def test_there_are_at_most_so_many_curves_and_the_longest_unseen_makes_room() -> None:
    histories = Histories(interval_s=1.0)
    histories.note(((f"old{number}", 0.5, 0.0) for number in range(MAX_ENTITIES)), 1 * S)
    histories.note([("old0", 0.6, 0.0)], 2 * S)
    histories.note(((f"new{number}", 0.5, 0.0) for number in range(3)), 3 * S)
    assert len(histories) == MAX_ENTITIES
    assert histories.of("old0") is not None
    assert [histories.of(f"old{number}") for number in (1, 2, 3)] == [None, None, None]
    assert histories.of("old4") is not None
    histories.note(((f"many{number}", 0.5, 0.0) for number in range(10 * MAX_ENTITIES)), 4 * S)
    assert len(histories) == MAX_ENTITIES


def principal(user: str = "alice") -> PrincipalIds:
    settings = ProducerIdSettings()
    return PrincipalIds(user, 10.0, settings, PairCeiling(settings), 0.0, enforced=True)


def note(new_ids: NewIds, principals: list[PrincipalIds], now_ms: float) -> None:
    for _ in new_ids.note_in_steps(principals, now_ms):
        pass


def test_new_ids_are_counted_since_the_begin_and_then_over_the_last_hour() -> None:
    new_ids, alice = NewIds(begun_ms=0.0), principal()
    alice.admitted = 3
    note(new_ids, [alice], 60 * S)
    assert new_ids.of(alice, 60 * S) == (3, 60.0)
    for minute in range(2, 200):
        alice.admitted += 2
        note(new_ids, [alice], minute * COUNT_INTERVAL_MS)
    ids, span_s = new_ids.of(alice, 199 * COUNT_INTERVAL_MS)
    assert (ids, span_s) == (120, 3600.0)


def test_one_who_comes_later_has_counted_since_the_last_look() -> None:
    new_ids, alice, bob = NewIds(begun_ms=0.0), principal(), principal("bob")
    note(new_ids, [alice], 60 * S)
    bob.admitted = 5
    note(new_ids, [alice, bob], 120 * S)
    assert new_ids.of(bob, 120 * S) == (5, 60.0)
    carol = principal("carol")
    carol.admitted = 1
    assert new_ids.of(carol, 130 * S) == (1, 10.0), "since the last look, in which she was not there"


def test_looks_within_a_minute_cost_nothing_and_add_nothing() -> None:
    new_ids, alice = NewIds(begun_ms=0.0), principal()
    note(new_ids, [alice], 60 * S)
    alice.admitted = 9
    note(new_ids, [alice, principal("bob")], 61 * S)
    assert new_ids.of(alice, 61 * S) == (9, 61.0)


def test_beyond_the_bound_principals_are_not_followed_and_say_so() -> None:
    new_ids, many = NewIds(begun_ms=0.0), [principal(str(number)) for number in range(MAX_COUNTED + 1)]
    note(new_ids, many, 60 * S)
    assert new_ids.of(many[-1], 60 * S) == (None, 0.0)
    many[-1].admitted = 7
    note(new_ids, many[1:], 120 * S)
    many[-1].admitted = 8
    assert new_ids.of(many[-1], 130 * S) == (1, 10.0), "what it did before it was followed is unknown"
