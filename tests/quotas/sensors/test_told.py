"""What a connection is told that its next request will wait, at 1 byte a ms, and who is counted in it."""

from __future__ import annotations

from math import inf

import pytest

from sluice.quotas.sensors.place import Place
from tests.quotas.sensors.test_hold_queue_times import Queue


@pytest.mark.parametrize("owed_ms", [0.0, 400.0])
def test_who_is_told_to_wait_is_told_of_those_who_were_told_so_and_go_before_it(owed_ms: float) -> None:
    queue = Queue()
    first, second, third = Place(), Place(), Place()
    assert queue.tell(first, 300.0, owed_ms, 8_000.0, 0.0) == owed_ms
    assert queue.tell(second, 300.0, 400.0, 8_000.0, 0.0) == 400.0 + (300.0 if owed_ms else 0.0)
    assert queue.tell(second, 300.0, 400.0, 8_000.0, 0.0) == 400.0 + (300.0 if owed_ms else 0.0), "not itself"
    assert queue.tell(third, 299.0, 400.0, 8_000.0, 0.0) == 400.0, "its turn is before theirs"
    assert queue.tell(third, 300.0, 400.0, 500.0, 0.0) == 500.0, "at most"


def test_of_those_that_wait_those_with_lower_tags_are_told() -> None:
    """In the order in which they came 700 + 9,000 bytes are before it."""
    queue = Queue(400.0)
    queue.comes(300.0, place=Place())
    queue.comes(9_000.0, place=Place())
    owed_ms = queue.tat_ms
    assert owed_ms == 9_700.0
    assert queue.tell(Place(), 200.0, owed_ms, inf, 0.0) == 400.0
    assert queue.tell(Place(), 400.0, owed_ms, inf, 0.0) == 400.0 + 300.0 + 200.0, "and one who was told so"


def test_many_that_wait_are_told_by_their_tags() -> None:
    queue = Queue()
    for _ in range(201):
        queue.comes(1_000.0, place=Place(), due_ms=inf)
    assert len(queue) == 200, "the first went"
    assert queue.tell(Place(), 10.0, queue.tat_ms, inf, 0.0) == 1_000.0
    assert queue.tell(Place(), 5_000.0, queue.tat_ms, inf, 0.0) == 201_000.0 + 10.0


def test_who_was_told_to_wait_keeps_its_place_a_quarter_longer_and_50_ms() -> None:
    queue = Queue()
    queue.virtual_time = 77.0
    place = Place()
    queue.tell(place, 300.0, 400.0, 8_000.0, 1_000.0)
    assert (place.kept_tag, place.kept_until_ms) == (77.0, 1_550.0)
    place.tag = 90.0
    queue.came(place)
    queue.tell(place, 300.0, 400.0, 8_000.0, 1_000.0)
    assert place.kept_tag == 90.0
    assert queue.tell(Place(), 400.0, 400.0, 8_000.0, 1_549.9) == 700.0
    assert queue.tell(Place(), 400.0, 400.0, 8_000.0, 1_550.0) == 800.0, "nobody waits for it any more"
    queue.came(place)
    queue.virtual_time = 1_000.0
    for now_ms, begin_tag in ((1_550.0, 90.0), (1_550.1, 1_000.0)):
        assert queue._begin_tag(place, now_ms) == begin_tag


def test_who_has_come_is_not_waited_for() -> None:
    queue = Queue(500.0)
    places = [Place(), Place()]
    for place in places:
        queue.tell(place, 300.0, 400.0, 8_000.0, 0.0)
    queue.comes(300.0, 10.0, place=places[0])
    assert queue.tell(Place(), 300.0, 400.0, 8_000.0, 10.0) == 700.0
    queue.came(places[1])
    assert queue.tell(Place(), 300.0, 400.0, 8_000.0, 10.0) == 700.0, "the one that was told just now"
