"""When a held request goes, and what its connection is told: in numbers, at 1 byte a ms."""

from __future__ import annotations

from functools import partial
from math import inf
from random import Random

import pytest

from sluice.quotas.sensors.hold_queue import HoldQueue
from sluice.quotas.sensors.hold_ticket import HoldTicket
from sluice.quotas.sensors.place import Place

DUE_MS = 8_000.0


class Queue(HoldQueue):
    """Requests that come one behind another, each owed what came before it."""

    def __init__(self, owed_ms: float = 0.0, max_debt_ms: float = inf) -> None:
        super().__init__(1.0, max_debt_ms)
        self.tat_ms = owed_ms
        self._tickets: list[HoldTicket] = []
        self._woken: list[int] = []

    def take_woken(self) -> list[HoldTicket]:
        """Whose connections have been woken, in this order."""
        woken, self._woken = self._woken, []
        return [self._tickets[number] for number in woken]

    def comes(
        self,
        request_bytes: float,
        now_ms: float = 0.0,
        *,
        due_ms: float = DUE_MS,
        place: Place | None = None,
    ) -> HoldTicket:
        """Its connection is told at once when to ask."""
        eligible_at_ms = max(self.tat_ms, now_ms)
        self.tat_ms = eligible_at_ms + request_bytes
        wake = partial(self._woken_number, len(self._tickets))
        ticket = self.enter(request_bytes, eligible_at_ms, due_ms, now_ms, wake, place)
        self._tickets.append(ticket)
        self.ask(ticket, now_ms)
        self._woken = []
        return ticket

    def _woken_number(self, number: int) -> None:
        self._woken.append(number)


def test_the_first_is_told_its_turn_and_the_others_when_all_before_them_will_be_paid() -> None:
    queue = Queue(500.0)
    first, second, third = queue.comes(1_000.0), queue.comes(300.0, due_ms=1_700.0), queue.comes(9_000.0)
    assert [each.told_ms for each in (first, second, third)] == [500.0, 500.0, 1_800.0]
    assert (len(queue), queue.held_bytes) == (3, 10_300.0)


def test_who_is_not_the_next_when_it_asks_comes_again_at_its_deadline() -> None:
    """Its turn by what was owed when it came has passed: small ones have overtaken it."""
    queue = Queue(500.0)
    large = queue.comes(5_000.0)
    for number in range(30):
        queue.comes(100.0, float(number), due_ms=20_000.0)
    assert queue.ask(large, 498.0) == 500.0
    assert queue.ask(large, 499.0) == DUE_MS, "what is a ms away has passed"
    assert queue.ask(large, 1_000.0) == DUE_MS
    assert len(queue) == 31 - 6


def test_a_request_with_a_nearer_deadline_than_its_turn_is_told_that() -> None:
    queue = Queue(2_000.0)
    queue.comes(100.0, due_ms=2_500.0)
    last = queue.comes(5_000.0, due_ms=1_900.0)
    assert last.guess_ms == 1_900.0
    assert queue.ask(last, 1_899.0) == pytest.approx(1_900.0)
    assert queue.ask(last, 1_900.0) == 1_900.0
    assert (last.is_in, len(queue)) == (False, 1)


def test_where_not_all_can_be_paid_in_time_it_is_told_the_time_at_their_pace() -> None:
    """Eight of 2,000 B until 8,000 ms: 2 B a ms, though 1,500 B are owed before."""
    queue = Queue(1_500.0)
    tickets = [queue.comes(2_000.0) for _ in range(8)]
    assert [each.guess_ms for each in tickets] == [1_500.0, 3_500.0, 5_500.0, 7_500.0, *[DUE_MS] * 4]
    assert queue.comes(100.0, due_ms=20_000.0).guess_ms == 16_100.0 / 2.0
    assert queue.ask(tickets[0], 0.0) == 1_000.0
    assert queue.ask(tickets[0], 1_000.0) == 1_000.0
    assert (tickets[0].eligible_at_ms, tickets[0].clears_at_ms) == (1_500.0, 3_500.0)


def test_each_is_paid_before_the_next_goes() -> None:
    queue = Queue(500.0)
    first, second = queue.comes(1_000.0), queue.comes(1_000.0)
    assert queue.ask(first, 499.9) == 500.0
    assert queue.ask(first, 500.0) == 500.0
    assert (first.eligible_at_ms, first.clears_at_ms) == (500.0, 1_500.0)
    assert queue.ask(second, 1_499.0) == 1_500.0
    assert queue.ask(second, 1_600.0) == 1_600.0
    assert (second.eligible_at_ms, second.clears_at_ms) == (1_500.0, 2_500.0)
    assert queue.ask(second, 1_700.0) == 1_700.0, "who is out may go"


def test_what_is_owed_behind_a_request_is_capped() -> None:
    queue = Queue(0.0, max_debt_ms=300.0)
    queue.tat_ms = 100.0
    first = queue.comes(1_000.0)
    second = queue.comes(1_000.0)
    assert queue.ask(first, 100.0) == 100.0
    assert first.clears_at_ms == 400.0
    assert queue.ask(second, 100.0) == 400.0


def test_who_goes_behind_its_time_pays_from_then_on() -> None:
    """Nothing is saved up while nobody goes."""
    queue = Queue(500.0)
    first, second = queue.comes(100.0), queue.comes(100.0)
    queue.go_now(first, 550.0)
    assert first.clears_at_ms == 600.0, "it went by the plan"
    queue.go_now(second, 560.0)
    assert (second.is_in, second.eligible_at_ms, second.clears_at_ms) == (False, 600.0, 700.0)
    assert (len(queue), queue.held_bytes) == (0, 0.0)


def test_a_connection_is_woken_when_its_time_has_become_earlier_by_more_than_a_ms() -> None:
    for gain, is_woken in ((1.0, False), (1.5, True)):
        queue = Queue(500.0)
        first, second = queue.comes(1_000.0 + gain), queue.comes(2_000.0)
        assert queue.ask(second, 0.0) == 1_500.0 + gain
        third = queue.enter(1_000.0, queue.tat_ms, DUE_MS, 0.0)
        third.guess_ms = 0.0
        queue.go_now(first, 0.0)
        queue.take_woken()
        second.told_ms = 1_500.0 + gain + gain
        queue.leave(third, 10.0)
        assert (queue.take_woken() == [second]) is is_woken, gain


def later(queue: Queue) -> HoldTicket:
    """The second of two; it was overtaken when it asked, and told to come at its deadline."""
    second = queue.comes(1_000.0)
    second.told_ms = DUE_MS
    return second


def test_whoever_goes_the_next_is_told_its_time() -> None:
    queue = Queue(500.0)
    first, second = queue.comes(100.0), later(queue)
    queue.go_now(first, 100.0)
    assert (queue.take_woken(), second.told_ms) == ([second], 600.0)
    assert first.wake is None
    queue = Queue(500.0)
    first, second = queue.comes(100.0), later(queue)
    assert queue.ask(first, 500.0) == 500.0
    assert (queue.take_woken(), second.told_ms) == ([second], 600.0)
    queue = Queue(500.0)
    urgent, second = queue.comes(2_000.0, due_ms=300.0), later(queue)
    assert queue.ask(urgent, 300.0) == 300.0
    assert urgent.wake is None
    assert queue.take_woken() == [second]
    queue = Queue(500.0)
    first, second = queue.comes(100.0), queue.comes(1_000.0)
    first.told_ms = DUE_MS
    queue.ask(second, 100.0)
    assert (queue.take_woken(), first.told_ms) == ([first], 500.0)


def test_each_gets_as_many_bytes_as_any_other_that_waits() -> None:
    """The virtual time is what each has been given; the next begins there, or where the last one ended."""
    queue = Queue(500.0)
    places = [Place(), Place(), Place()]
    first = queue.comes(100.0, place=places[0])
    second = queue.comes(1_000.0, place=places[1])
    places[0].kept_until_ms = 9_999.0
    queue.go_now(first, 500.0)
    assert (queue.virtual_time, places[0].tag, places[0].kept_until_ms) == (50.0, 100.0, -inf)
    assert queue.comes(10.0, 500.0, place=places[0]).begin_tag == 100.0
    last = queue.comes(5_000.0, 500.0, place=places[2])
    assert last.begin_tag == 50.0
    queue.go_now(last, 500.0)
    assert (queue.virtual_time, places[2].tag) == (50.0, 5_050.0), "it went before its turn, by its deadline"
    queue.leave(second, 500.0)
    queue.changed(9_000.0)
    assert queue.virtual_time == 100.0, "where the last one began"


def test_who_is_out_does_not_stay_in_the_order_for_good_and_the_order_stays() -> None:
    queue = Queue(500.0)
    queue.comes(1.0, due_ms=inf)
    lengths = []
    for number in range(500):
        queue.leave(queue.comes(1_000.0 - number, due_ms=inf), 0.0)
        lengths.append(len(queue._by_tag))
    assert max(lengths) == 64 + 2 + 1, "64 and twice as many as wait, and the one that came"
    random = Random(1)
    kept = []
    for _ in range(600):
        ticket = queue.comes(float(random.randrange(1, 100_000)), due_ms=inf)
        if random.random() < 0.8:
            queue.leave(ticket, 0.0)
        else:
            kept.append(ticket)
    went = []
    now_ms = 0.0
    while len(queue) > 0:
        now_ms += 100_000.0
        queue.changed(now_ms)
        went = [each for each in kept if not each.is_in]
    assert len(went) == len(kept)
    assert sorted(kept, key=lambda each: each.clears_at_ms) == sorted(kept)


def test_an_empty_queue_keeps_nothing() -> None:
    queue = Queue(500.0)
    tickets = [queue.comes(size) for size in (0.1, 0.2, 0.3)]
    for ticket in tickets:
        queue.leave(ticket, 0.0)
    assert (len(queue), queue.held_bytes, queue._by_tag) == (0, 0.0, [])


def test_who_was_told_to_wait_half_a_ms_is_expected_too() -> None:
    queue = Queue()
    place = Place()
    assert queue.tell(place, 300.0, 0.5, 8_000.0, 0.0) == 0.5
    assert place.kept_until_ms == 50.625


def test_who_went_by_the_plan_before_the_time_it_was_told_is_woken_and_who_was_told_then_is_not() -> None:
    queue = Queue(500.0)
    first, second = queue.comes(1_000.0), queue.comes(1_000.0)
    assert (first.told_ms, second.told_ms) == (500.0, 1_500.0)
    queue.take_woken()
    queue.changed(1_500.0)
    assert queue.take_woken() == []
    assert not first.is_in
    assert not second.is_in
    queue = Queue(500.0)
    first = queue.comes(1_000.0)
    first.told_ms = 700.0
    queue.changed(600.0)
    assert queue.take_woken() == [first]


def test_who_leaves_before_it_went_gives_its_time_to_those_behind() -> None:
    queue = Queue(500.0)
    first, second = queue.comes(1_000.0), queue.comes(1_000.0)
    queue.leave(first, 100.0)
    assert queue.take_woken() == [second]
    assert second.told_ms == 500.0
    assert (len(queue), queue.held_bytes) == (1, 1_000.0)


def test_who_was_to_go_and_leaves_gives_back_what_it_would_have_paid() -> None:
    queue = Queue(500.0)
    first, second = queue.comes(1_000.0), queue.comes(1_000.0)
    queue.changed(500.0)
    assert not first.is_in
    queue.leave(first, 600.0)
    assert queue.take_woken() == [second]
    assert queue.ask(second, 600.0) == 600.0


def test_a_deadline_that_becomes_earlier_brings_its_request_forward() -> None:
    queue = Queue(5_000.0)
    first, second = queue.comes(1_000.0), queue.comes(1_000.0)
    queue.hasten(second, 3_000.0, 100.0)
    assert second.guess_ms == 3_000.0
    assert queue.take_woken() == [second]
    queue.hasten(second, 2_500.0, 100.0)
    queue.changed(2_499.0)
    assert (first.is_in, second.is_in) == (True, True)
    queue.changed(2_500.0)
    assert (first.is_in, second.is_in) == (True, False)
    queue.hasten(second, 1.0, 2_600.0)
    assert second.deadline_ms == 2_500.0, "who is out has none"
    endless = queue.comes(100.0, 2_600.0, due_ms=inf)
    queue.hasten(endless, 3_000.0, 2_600.0)
    assert endless.deadline_ms == inf, "it is refused, not hastened"


def test_what_a_limit_that_ends_would_have_refused_goes_by_then() -> None:
    queue = Queue(5_000.0)
    refused, other = queue.comes(1_000.0, due_ms=inf), queue.comes(1_000.0, due_ms=inf)
    refused.refuse_ms = 2_000.0
    queue.end_refusal(100.0)
    assert (refused.deadline_ms, refused.refuse_ms, refused.guess_ms) == (2_000.0, inf, 2_000.0)
    assert (other.deadline_ms, other.guess_ms) == (inf, 6_000.0)
    assert queue.take_woken() == [refused]
    assert queue.ask(refused, 2_000.0) == 2_000.0


def test_another_limit_leaves_what_is_owed_the_same_in_bytes() -> None:
    """1,000 B are owed at 100 ms; at twice the rate they take half the time."""
    queue = Queue(1_100.0)
    first, second = queue.comes(1_000.0), queue.comes(1_000.0)
    queue.take_woken()
    queue.update(0.5, 100.0)
    assert queue.take_woken() == [first]
    assert first.told_ms == 600.0
    assert queue.ask(first, 600.0) == 600.0
    assert first.clears_at_ms == 1_100.0
    queue.update(1.0, 1_100.0)
    assert queue.ask(second, 1_100.0) == 1_100.0


def test_a_bucket_that_owes_nothing_owes_nothing_at_another_limit() -> None:
    queue = Queue(100.0)
    queue.comes(50.0)
    queue.changed(400.0)
    queue.update(2.0, 500.0)
    ticket = queue.comes(1_000.0, 600.0)
    assert queue.ask(ticket, 600.0) == 600.0


def test_what_was_charged_and_never_held_comes_first() -> None:
    """A request that went on at once, in debt, while others waited."""
    queue = Queue(500.0)
    queue.comes(1_000.0)
    queue.tat_ms += 300.0
    assert queue.ask(queue.comes(100.0), 0.0) == 800.0


def test_a_new_wait_begins_with_what_is_owed_then() -> None:
    queue = Queue(500.0)
    queue.comes(1_000.0)
    queue.changed(500.0)
    queue.tat_ms = 700.0
    ticket = queue.comes(10.0, 600.0)
    assert queue.ask(ticket, 600.0) == 700.0


def test_a_refused_request_keeps_its_place_a_quarter_longer_and_3_s() -> None:
    queue = Queue(1_000.0)
    place = Place()
    ticket = queue.comes(100.0, due_ms=inf, place=place)
    assert queue.refuse(ticket, 8_000.0, 200.0) == 800.0
    assert (place.kept_tag, place.kept_until_ms) == (0.0, 200.0 + 1_000.0 + 3_000.0)
    assert ticket.wake is None
    assert queue.refuse(queue.comes(100.0, 200.0, due_ms=inf), 8_000.0, 5_000.0) == 0.0, "nothing is owed"


def test_a_refusal_gives_its_time_to_those_behind() -> None:
    queue = Queue(500.0)
    first, second = queue.comes(1_000.0, due_ms=inf), queue.comes(2_000.0, due_ms=inf)
    queue.refuse(first, 8_000.0, 100.0)
    assert queue.take_woken() == [second]
    assert second.told_ms == 500.0
    queue.refuse(first, 8_000.0, 100.0)
    assert len(queue) == 1, "it is out once"


def test_what_a_lower_limit_makes_of_a_debt_is_capped_though_nobody_goes_by_a_deadline() -> None:
    """3 MB owed at 1 MB/s, then 10 kB/s: under `over_budget: refuse` the first went after 250 s, not 60."""
    queue = Queue(3_000.0, max_debt_ms=60_000.0)
    ticket = queue.comes(10.0, due_ms=inf)
    queue.update(100.0, 500.0)
    assert queue.ask(ticket, 500.0) == 60_500.0
