"""Another bucket is fetched from now: what is due of the former one stays there until it has come."""

from __future__ import annotations

from sluice.proxy.session.fetch.turns import Turn
from tests.proxy.session.fetch.test_turns_alone import Connection, bucket


def test_another_bucket_is_fetched_from_anew_and_what_is_due_of_the_former_stays_reserved() -> None:
    old, new = bucket("old"), bucket("new")
    connection = Connection(old)
    connection.asks(0.0, max_bytes=400)
    connection.turns.use(new, 1.0)
    assert (old.fetch_queue().reserved_bytes, old.fetch_queue().connections) == (400, 1)
    connection.sensor = new
    connection.asks(1.0, max_bytes=300)
    assert (new.fetch_queue().reserved_bytes, new.fetch_queue().connections) == (300, 1)
    connection.turns.settle(old, 400, 100, 2.0)
    assert (old.fetch_queue().reserved_bytes, new.fetch_queue().reserved_bytes) == (0, 300)
    connection.turns.part_from(new, 2.0)
    assert new.fetch_queue().connections == 1
    connection.turns.part_from(old, 2.0)
    assert old.fetch_queue().connections == 0
    connection.turns.part_from(old, 2.0)
    assert old.fetch_queue().connections == 0, "it has been left once"


def test_a_former_bucket_is_not_left_before_its_last_answer() -> None:
    old, new = bucket("old"), bucket("new")
    connection = Connection(old)
    connection.asks(0.0, max_bytes=300)
    connection.asks(0.0, max_bytes=400)
    connection.turns.use(new, 1.0)
    for reserved, connections in ((300, 1), (400, 0)):
        connection.turns.settle(old, reserved, 0, 2.0)
        connection.turns.part_from(old, 2.0)
        assert old.fetch_queue().connections == connections


def test_who_comes_back_to_a_former_bucket_has_its_place_there() -> None:
    old, new = bucket("old"), bucket("new")
    connection = Connection(old)
    connection.asks(0.0, max_bytes=300)
    place = connection.turns._place
    connection.turns.use(new, 1.0)
    assert connection.turns._place is not place
    connection.turns.use(old, 2.0)
    assert connection.turns._place is place
    connection.turns.settle(old, 300, 0, 2.0)
    assert old.fetch_queue().reserved_bytes == 0
    connection.turns.use(old, 3.0)
    assert connection.turns._place is place, "nothing has changed"
    connection.turns.use(new, 4.0)
    assert old.fetch_queue().connections == 0, "no answer is due"


def test_batches_of_a_former_bucket_are_seen_there() -> None:
    old, new = bucket("old"), bucket("new")
    connection = Connection(old)
    connection.asks(0.0, max_bytes=300)
    connection.turns.use(new, 1.0)
    connection.turns.brought(old, [7_000], 2.0)
    assert old.fetch_queue().batches.largest_bytes == 7_000
    assert new.fetch_queue().batches.largest_bytes == 100
    connection.turns.brought(bucket("other"), [9_000], 2.0)
    connection.turns.closed(3.0)
    assert (old.fetch_queue().connections, old.fetch_queue().reserved_bytes) == (0, 0.0)


def test_a_former_buckets_poll_that_was_cut_short_sleeps_on_if_one_comes_back_to_it() -> None:
    for brings, state_ms in (([], 650.0), ([100], None)):
        old = bucket("old", owed=250.0)
        first, second = Connection(old), Connection(old)
        first.asks(0.0)
        second.asks(0.0)
        assert first.turns.is_turn(250.0)
        first.asks_again(250.0)
        first.turns.use(bucket("new"), 260.0)
        first.turns.brought(old, brings, 261.0)
        first.turns.settle(old, 100, sum(brings), 261.0)
        first.turns.part_from(old, 261.0)
        first.turns.use(old, 270.0)
        first.sensor = old
        assert first.asks(270.0) is Turn.WAIT
        if state_ms is None:
            assert len(old.fetch_queue()) == 1
        else:
            assert (first.pace.wake_at_ms, len(old.fetch_queue())) == (state_ms, 0)
