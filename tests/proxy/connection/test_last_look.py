"""The last look of one connection, without sockets: its turns, the bytes lent to it, how long it waits."""

from __future__ import annotations

from sluice.proxy.connection.last_look import (
    LOOK_MS,
    LOOK_WAIT_MS,
    LOOKS_AT_ONCE,
    MOST_LOOKS_AT_ONCE,
    LastLook,
    LookTurns,
)

LITTLE_BYTES = 4_000


def test_turns_come_in_order_and_past_who_wants_none_any_more() -> None:
    turns = LookTurns(LITTLE_BYTES)
    turns.lent_bytes = LITTLE_BYTES
    came: list[int] = []

    def wants(number: int) -> bool:
        came.append(number)
        return number != 2

    assert all(turns.begin(lambda: False) for _ in range(LOOKS_AT_ONCE))
    for number in (1, 2, 3):
        assert not turns.begin(lambda number=number: wants(number))  # type: ignore[misc]
    turns.end()
    assert came == [1]
    turns.end()
    assert came == [1, 2, 3]
    for _ in range(LOOKS_AT_ONCE):
        turns.end()
    assert turns.at_once == 0
    assert all(turns.begin(lambda: False) for _ in range(LOOKS_AT_ONCE))
    assert not turns.begin(lambda: False)


def test_more_look_at_once_as_long_as_that_brings_little() -> None:
    """64 dead ones of 2.5 MB at once came to no end within 16 MiB: 30 times the limit passed."""
    turns = LookTurns(LITTLE_BYTES)
    for _ in range(LOOKS_AT_ONCE):
        assert turns.begin(lambda: True)
    for _ in range(1_000):
        assert not turns.begin(lambda: True)
    at_once = []
    for _ in range(100):
        turns.end()
        at_once.append(turns.at_once)
    assert at_once[:3] == [LOOKS_AT_ONCE + 1, LOOKS_AT_ONCE + 2, LOOKS_AT_ONCE + 3]
    assert max(at_once) == MOST_LOOKS_AT_ONCE
    turns.lent_bytes = LITTLE_BYTES
    for _ in range(MOST_LOOKS_AT_ONCE):
        turns.end()
    assert turns.at_once == LOOKS_AT_ONCE


def test_a_turn_is_waited_for_once_and_not_begun_anew() -> None:
    """Each room that came and went began the wait anew: an honest client waited for 27 s."""
    look = LastLook()
    for now_ms in (1_000.0, 1_000.0 + LOOK_WAIT_MS - 1.0):
        assert look.waits_on(now_ms, for_lent=False)
    for now_ms in (1_000.0 + LOOK_WAIT_MS, 5_000.0):
        assert not look.waits_on(now_ms, for_lent=False)
    look.end()  # its request has gone; the next one's
    assert look.waits_on(5_000.0, for_lent=False)


def test_what_is_lent_to_clients_that_are_there_is_waited_for_as_long_as_a_look_takes() -> None:
    look = LastLook()
    assert look.waits_on(1_000.0, for_lent=True)
    assert look.waits_on(1_000.0 + LOOK_MS - 1.0, for_lent=True)
    assert not look.waits_on(1_000.0 + LOOK_MS, for_lent=True)


def test_a_turn_that_comes_to_who_does_not_wait_any_more_is_not_taken() -> None:
    """Nor one that comes twice, for it had asked twice; what it has stays."""
    turns, look = LookTurns(LITTLE_BYTES), LastLook()
    for _ in range(LOOKS_AT_ONCE):
        assert turns.begin(lambda: False)
    assert not look.ask(turns, lambda: look.take(wanted=True))
    look.waits = False  # its request went without
    assert not look.ask(turns, lambda: look.take(wanted=True))
    turns.end()
    assert look.is_by_turn
    assert turns.at_once == LOOKS_AT_ONCE
    turns.end()
    assert turns.at_once == LOOKS_AT_ONCE - 1
    look.end()
    assert (look.is_by_turn, turns.at_once) == (False, LOOKS_AT_ONCE - 2)


def test_what_was_lent_is_given_back_as_it_goes_on_and_when_the_end_is_found() -> None:
    turns, look = LookTurns(LITTLE_BYTES), LastLook()
    assert look.ask(turns, lambda: False)
    look.lend(500)
    look.keeps(700)
    assert turns.lent_bytes == 500
    look.keeps(200)
    assert turns.lent_bytes == 200
    look.end()
    assert turns.lent_bytes == 200
    look.end_for_good()
    look.end_for_good()
    assert turns.lent_bytes == 0
    assert turns.at_once == 0
