"""Which users under `<default>` are labels of their own."""

from __future__ import annotations

from sluice.proxy.metrics.entity_series import SERIES_PER_ENTITY
from sluice.proxy.metrics.table import METRICS
from sluice.proxy.metrics.user_names import HALF_LIFE_MS, UserNames
from sluice.proxy.session.producer_ids.byte_refusal import ByteReason


def names_of(names: UserNames, *users: str) -> list[str]:
    return [user for user in users if user in names]


def test_while_there_is_room_everybody_has_a_name_and_then_nobody_more() -> None:
    names = UserNames(2)
    assert [names.name(user) for user in ("ann", "bob", "ann", "eve")] == [True, True, True, False]
    assert len(names) == 2


def test_the_most_delayed_takes_the_name_of_the_least_delayed() -> None:
    names = UserNames(2)
    for user in ("ann", "bob"):
        names.name(user)
    names.delayed("ann", 5_000)
    names.delayed("eve", 3_000)
    assert names.step(0) == {"bob"}
    assert names_of(names, "ann", "bob", "eve") == ["ann", "eve"]
    assert not names.name("bob")


def test_two_who_are_delayed_alike_do_not_take_turns() -> None:
    """5.0 s and 9.9 s: less than twice as long. 10.1 s: more."""
    names = UserNames(1)
    names.name("ann")
    names.delayed("ann", 5_000)
    names.delayed("eve", 9_900)
    assert names.step(0) == set()
    names.delayed("eve", 200)
    assert names.step(0) == {"ann"}
    names.delayed("ann", 5_100)  # as long as the other now
    assert names.step(0) == set()


def test_a_short_delay_takes_no_name_from_who_was_never_delayed() -> None:
    names = UserNames(1)
    names.name("ann")
    names.delayed("eve", 1_000)
    assert names.step(0) == set()
    names.delayed("eve", 1)
    assert names.step(0) == {"ann"}


def test_an_old_delay_counts_less() -> None:
    """80 s of delay are 10 s after three half-lives."""
    names = UserNames(1)
    names.name("ann")
    names.delayed("ann", 80_000)
    names.step(0)
    names.delayed("eve", 21_000)
    assert names.step(0) == set()
    assert names.step(3 * HALF_LIFE_MS) == set()  # both are older by as much
    names.delayed("eve", 18_000)
    assert names.step(3 * HALF_LIFE_MS) == {"ann"}


def test_only_so_many_are_added_up_and_who_has_a_name_is_always() -> None:
    names = UserNames(1)
    names.name("ann")
    for number in range(5_000):
        names.delayed(f"user-{number}", 2_000)
    assert len(names._waiting) == 1_000
    names.delayed("ann", 3_000)
    assert names.step(0) == set()


def test_no_names_at_all() -> None:
    names = UserNames(0)
    assert not names.name("ann")
    names.delayed("ann", 1e9)
    assert names.step(0) == set()
    assert len(names) == 0


def test_a_name_that_is_free_is_given_to_the_next() -> None:
    names = UserNames(1)
    names.name("ann")
    assert not names.name("bob")
    names.forget({"ann"})
    assert names.name("bob")


def test_the_share_of_an_entity_in_max_series_is_what_it_exports() -> None:
    labels = [row.labels for row in METRICS.values() if {"quota", "client_id"} <= set(row.labels)]
    assert sum(len(ByteReason) if "reason" in one else 1 for one in labels) == SERIES_PER_ENTITY
