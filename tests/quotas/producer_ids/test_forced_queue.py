"""Those that may be forced in: when the bucket opens to them, whose turn it is, how long dead are kept."""

from __future__ import annotations

from math import inf

from sluice.quotas.producer_ids.forced_queue import ForcedQueue
from sluice.quotas.producer_ids.ticket import Ticket, TicketState
from testkit.quotas.producer_id_door import Door

DOOR = Door(60.0)


def ticket(
    forced_at_ms: float, *ids: int, is_member: bool = False, client: tuple[str, str] = ("a", "app")
) -> Ticket:
    made = Ticket(DOOR.principal(), ids or (1,), (), (), client=client)
    made.forced_at_ms, made.is_member = forced_at_ms, is_member
    return made


def queue_of(*tickets: Ticket) -> ForcedQueue:
    queue = ForcedQueue()
    for each in tickets:
        queue.push(each)
    return queue


def end(queue: ForcedQueue, gone: Ticket) -> None:
    """It waits no more."""
    gone.state = TicketState.DONE
    queue.bury(gone)


def test_the_bucket_opens_to_each_when_its_time_has_come() -> None:
    later, first = ticket(200.0), ticket(100.0)
    queue = queue_of(later, first)
    assert (queue.next_ms, queue.heads(99.0)) == (100.0, [])
    assert queue.heads(100.0) == [first]
    assert first.is_due
    assert (queue.next_ms, later.is_due) == (200.0, False)
    first.state = TicketState.FORCED
    queue.granted(first)
    assert (queue.heads(199.0), queue.next_ms) == ([], 200.0)
    assert queue.heads(200.0) == [later]
    assert queue.next_ms == inf


def test_of_equal_times_who_came_first_goes_first() -> None:
    tickets = [ticket(100.0, number, client=("a", str(number))) for number in range(5)]
    queue = queue_of(*tickets)
    went = []
    for _ in tickets:
        (head,) = queue.heads(100.0)
        head.state = TicketState.FORCED
        queue.granted(head)
        went.append(head)
    assert went == tickets


def test_members_go_first_and_of_these_one_new_id_before_several() -> None:
    several, one = ticket(1.0, 1, 2), ticket(1.0, 1)
    members_several, members_one = ticket(1.0, 1, 2, is_member=True), ticket(1.0, 1, is_member=True)
    queue = queue_of(several, one, members_several, members_one)
    assert queue.heads(1.0) == [members_one, members_several, one, several]
    assert len(queue) == 4
    queue.granted(members_several)
    members_several.state = TicketState.FORCED
    assert queue.heads(1.0) == [members_one, one, several]


def test_who_has_left_is_passed_over_before_and_behind_its_time() -> None:
    gone, due, left = ticket(1.0), ticket(1.0, client=("b", "app")), ticket(2.0)
    queue = queue_of(gone, due, left)
    end(queue, gone)
    assert queue.heads(1.0) == [due]
    assert not gone.is_due
    end(queue, due)
    assert queue.heads(1.0) == []
    end(queue, left)
    assert queue.next_ms == inf


def test_whose_time_has_not_come_is_not_kept_for_good_when_it_has_left() -> None:
    """64 of them, and half of those that are kept."""
    queue = queue_of(*(ticket(1e9) for _ in range(10)))
    lengths = []
    for number in range(500):
        gone = ticket(1e6 + number)
        queue.push(gone)
        end(queue, gone)
        lengths.append(len(queue))
    assert max(lengths) == 10 + 64
    assert queue.next_ms == 1e9
    many = queue_of(*(ticket(1e9) for _ in range(200)))
    for _ in range(200):
        gone = ticket(1e6)
        many.push(gone)
        end(many, gone)
    assert len(many) == 400
    gone = ticket(1e6)
    many.push(gone)
    end(many, gone)
    assert len(many) == 200, "more than half of them have left"


def test_who_is_passed_over_is_not_counted_among_the_dead_any_more() -> None:
    queue = queue_of(*(ticket(1e9) for _ in range(10)))
    for number in range(500):
        gone = ticket(float(number))
        queue.push(gone)
        end(queue, gone)
        if number % 2:
            queue.heads(float(number))
        else:
            assert queue.next_ms == 1e9
        assert len(queue) == 10


def test_whose_time_has_come_is_not_kept_for_good_either() -> None:
    queue = queue_of(*(ticket(1.0, client=("old", "app")) for _ in range(10)))
    queue.heads(1.0)
    for number in range(500):
        gone = ticket(2.0, client=(f"a{number}", "app"))
        queue.push(gone)
        queue.heads(2.0)
        end(queue, gone)
    assert len(queue) <= 2 * 10 + 64 + 1
