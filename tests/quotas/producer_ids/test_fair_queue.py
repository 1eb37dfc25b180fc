"""Addresses, and client ids at one, take turns; of one client, and of one turn, the oldest goes first."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

import pytest

from sluice.quotas.producer_ids.fair_queue import FairQueue
from sluice.quotas.producer_ids.principal import ProducerIdSettings
from sluice.quotas.producer_ids.ticket import Ticket
from testkit.quotas.producer_id_door import Door


@dataclass(eq=False)
class Asked:
    client: tuple[str, str]
    since_ms: float
    waits: bool = True
    number: int = 0


def serve_next(queue: FairQueue[Asked]) -> Asked | None:
    ticket = queue.head()
    if ticket is not None:
        ticket.waits = False
        queue.granted(ticket)
    return ticket


def served(queue: FairQueue[Asked]) -> list[Asked]:
    """All of them, in their order."""
    return list(iter(lambda: serve_next(queue), None))


def queue_of(tickets: list[Asked]) -> FairQueue[Asked]:
    queue: FairQueue[Asked] = FairQueue()
    for ticket in tickets:
        queue.push(ticket)
    return queue


def test_of_one_client_the_oldest_goes_first() -> None:
    tickets = [Asked(("a", "app"), since_ms) for since_ms in (3.0, 1.0, 2.0)]
    assert [ticket.since_ms for ticket in served(queue_of(tickets))] == [1.0, 2.0, 3.0]


def test_one_with_many_waiting_requests_has_every_second_turn_beside_one_other() -> None:
    tickets = [Asked(("bad", "app"), float(number)) for number in range(100)]
    tickets += [Asked(("good", "app"), 1_000.0 + number) for number in range(5)]
    order = served(queue_of(tickets))
    assert [ticket.client[0] for ticket in order[:10]] == ["bad", "good"] * 5
    assert len(order) == 105


def test_who_invents_client_ids_has_the_turns_of_its_address_alone() -> None:
    tickets = [Asked(("bad", f"app-{number}"), float(number)) for number in range(100)]
    tickets += [Asked(("good", "app"), 1_000.0 + number) for number in range(5)]
    order = served(queue_of(tickets))
    assert [ticket.client[0] for ticket in order[:10]] == ["bad", "good"] * 5


def test_behind_one_address_client_ids_take_turns() -> None:
    tickets = [Asked(("sidecar", "bad"), float(number)) for number in range(100)]
    tickets += [Asked(("sidecar", "good"), 1_000.0 + number) for number in range(5)]
    order = served(queue_of(tickets))
    assert [ticket.client[1] for ticket in order[:10]] == ["bad", "good"] * 5


def test_who_was_refused_and_comes_again_is_not_overtaken_by_younger_ones() -> None:
    """Its ticket is a new one each time; its age is not."""
    queue: FairQueue[Asked] = FairQueue()
    for now_ms in range(200):
        patient = Asked(("patient", "app"), 0.0)
        others = [Asked((f"other-{number}", "app"), now_ms + 1.0) for number in range(5)]
        for ticket in (*others, patient):
            queue.push(ticket)
        assert queue.head() is patient
        for ticket in (*others, patient):
            ticket.waits = False
            queue.bury()
        assert queue.head() is None
    assert len(queue) <= 200


@pytest.mark.parametrize("seed", range(20))
def test_whoever_comes_and_leaves_all_are_served_and_nobody_twice_as_often_as_another(seed: int) -> None:
    random = Random(seed)
    queue: FairQueue[Asked] = FairQueue()
    waiting: set[int] = set()
    tickets: list[Asked] = []
    turns: dict[str, int] = dict.fromkeys("abc", 0)
    for step in range(3_000):
        # Each address has always something that waits.
        for name in "abc":
            if sum(tickets[number].client[0] == name for number in waiting) < 3:
                waiting.add(len(tickets))
                tickets.append(
                    Asked((name, random.choice("xyz")), step + random.random(), number=len(tickets))
                )
                queue.push(tickets[-1])
        if random.random() < 0.3:
            gone = random.choice(sorted(waiting))
            waiting.remove(gone)
            tickets[gone].waits = False
            queue.bury()
            continue
        ticket = serve_next(queue)
        assert ticket is not None
        waiting.remove(ticket.number)
        turns[ticket.client[0]] += 1
    assert max(turns.values()) - min(turns.values()) <= 0.05 * sum(turns.values())
    assert len(queue) <= 2 * len(waiting) + 200


def test_who_begins_to_wait_has_the_turn_that_is_being_served_and_no_earlier_one() -> None:
    queue = queue_of([Asked(("old", "app"), float(number)) for number in range(10)])
    for _ in range(4):
        assert serve_next(queue) is not None
    for number in range(5):
        queue.push(Asked(("new", "app"), 100.0 + number))
    order = [ticket.client[0] for ticket in served(queue)]
    assert order == ["new", "old", "new", "old", "new", "old", "new", "old", "new", "old", "old"]


def test_a_client_id_that_begins_to_wait_has_the_turn_of_its_address_that_is_being_served() -> None:
    queue = queue_of([Asked(("a", "old"), float(number)) for number in range(10)])
    for _ in range(4):
        assert serve_next(queue) is not None
    for number in range(5):
        queue.push(Asked(("a", "new"), 100.0 + number))
    order = [ticket.client[1] for ticket in served(queue)]
    assert order == ["new", "old", "new", "old", "new", "old", "new", "old", "new", "old", "old"]


def test_of_one_turn_the_older_goes_first_even_if_it_comes_later() -> None:
    queue = queue_of([Asked(("a", "app"), 5.0), Asked(("b", "app"), 4.0), Asked(("c", "app"), 3.0)])
    queue.push(Asked(("a", "app"), 1.0))
    queue.push(Asked(("b", "other"), 2.0))
    assert [(t.client[0], t.since_ms) for t in served(queue)[:3]] == [("a", 1.0), ("b", 2.0), ("c", 3.0)]


def test_of_equal_age_who_came_first_goes_first() -> None:
    tickets = [Asked((name, "app"), 1.0) for name in "dcab"] + [Asked(("e", name), 1.0) for name in "zyx"]
    assert served(queue_of(tickets)) == [*tickets[:5], tickets[5], tickets[6]]


def test_what_nobody_waits_for_is_not_kept() -> None:
    queue = queue_of([Asked((name, name), 1.0) for name in "abc"])
    served(queue)
    assert (queue._addresses, queue._turns) == ({}, [])


def test_those_that_wait_no_more_are_dropped_when_they_are_more_than_64_and_half_of_all() -> None:
    tickets = [Asked((str(number % 7), str(number % 3)), float(number)) for number in range(400)]
    queue = queue_of(tickets)
    for ticket in tickets[:200]:
        ticket.waits = False
        queue.bury()
    assert len(queue) == 400
    tickets[200].waits = False
    queue.bury()
    assert len(queue) == 199
    for ticket in tickets[201:300]:
        ticket.waits = False
        queue.bury()
    assert len(queue) == 199
    tickets[300].waits = False
    queue.bury()
    assert len(queue) == 99
    for ticket in tickets[301:365]:
        ticket.waits = False
        queue.bury()
    assert len(queue) == 99, "64 are few"
    tickets[365].waits = False
    queue.bury()
    assert len(queue) == 34
    assert len(served(queue)) == 34


def test_who_is_left_keeps_its_turn_when_the_others_are_dropped() -> None:
    def half_served() -> tuple[FairQueue[Asked], list[Asked]]:
        tickets = [Asked((name, "x"), float(number)) for number in range(20) for name in "ab"]
        tickets += [Asked(("c", name), 50.0 + number) for number in range(20) for name in "xy"]
        queue = queue_of(tickets)
        for _ in range(11):
            ticket = queue.head()
            assert ticket is not None
            ticket.waits = False
            queue.granted(ticket)
        return queue, tickets

    plain, _ = half_served()
    cleaned, tickets = half_served()
    for number in range(200):
        gone = Asked((f"gone-{number}", "app"), 1_000.0)
        cleaned.push(gone)
        gone.waits = False
        cleaned.bury()
    assert "gone-0" not in cleaned._addresses
    assert [(t.client, t.since_ms) for t in served(cleaned)] == [
        (t.client, t.since_ms) for t in served(plain)
    ]
    assert len(tickets) == 80


def test_one_bad_client_of_a_team_does_not_take_all_of_its_ids() -> None:
    """100 requests of it wait; another client's comes a minute later and has the next token but one."""
    door = Door(60.0, ProducerIdSettings(forced_after_ms=1e9))
    door.drain()
    for number in range(100):
        ticket = Ticket(door.principal(), (number,), (), (number,), client=("10.0.0.1", "bad"))
        assert not door.quota.ask(ticket, 0.0)
    good = Ticket(door.principal(), (1_000,), (), (1_000,), client=("10.0.0.2", "good"))
    assert not door.quota.ask(good, 30_000.0)
    for minute in (1, 2):
        for ticket in door.quota.serve(minute * 60_000.0 + 1.0):
            door.quota.commit(ticket, minute * 60_000.0 + 1.0)
    assert not good.waits


def test_of_a_client_with_many_requests_its_turn_stands_once_in_the_order() -> None:
    queue = queue_of([Asked(("a", "app"), float(number)) for number in range(100)])
    assert (len(queue._turns), len(queue._addresses["a"].turns)) == (1, 1)
    queue.push(Asked(("a", "app"), -1.0))
    assert (len(queue._turns), len(queue._addresses["a"].turns)) == (2, 2), "an older one has come"
