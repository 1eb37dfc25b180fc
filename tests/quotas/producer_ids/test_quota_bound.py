"""In no span are more ids admitted than the stated bound, also when all reconnect for each request."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sluice.quotas.producer_ids.buckets import MS_PER_HOUR
from sluice.quotas.producer_ids.ticket import Ticket, TicketState
from testkit.quotas.producer_id_door import SETTINGS, Door
from testkit.thorough import cases


@settings(max_examples=cases(150))
@given(
    ids_per_hour=st.sampled_from([0.5, 3.0, 50.0, 2_000.0]),
    steps=st.lists(
        st.tuples(
            st.floats(0, 900_000),
            st.sampled_from(["new", "resumed", "mixed", "repeat", "withdraw", "commit", "expire", "member"]),
            st.integers(1, 40),
        ),
        max_size=80,
    ),
)
def test_in_any_span_no_more_ids_are_admitted_than_the_stated_bound(
    ids_per_hour: float, steps: list[tuple[float, str, int]]
) -> None:
    door = Door(ids_per_hour)
    quota = door.quota
    now_ms = 0.0
    number = 0
    open_tickets: list[Ticket] = []
    admissions: list[tuple[float, int]] = []
    for elapsed_ms, action, count in steps:
        now_ms += elapsed_ms
        if action in {"new", "resumed", "mixed"}:
            ids = tuple(range(number, number + count))
            number += count
            half = {"new": count, "resumed": 0, "mixed": count // 2}[action]
            ticket = Ticket(door.principal(now_ms=now_ms), ids[:half], ids[half:], ids)
            quota.ask(ticket, now_ms)
            open_tickets.append(ticket)
        elif action == "repeat" and open_tickets:
            same = open_tickets[count % len(open_tickets)]
            ticket = Ticket(door.principal(now_ms=now_ms), same.new_ids, same.resumed_ids, same.pairs)
            quota.ask(ticket, now_ms)
            open_tickets.append(ticket)
        elif action == "withdraw" and open_tickets:
            quota.withdraw(open_tickets.pop(count % len(open_tickets)), now_ms)
        elif action == "expire":
            quota.expire(now_ms)
        elif action == "member":  # whoever says so, and however often
            quota.members.saw("alice", ("", ""), count, now_ms)
        else:
            quota.serve(now_ms)
            before = door.principal(now_ms=now_ms).admitted
            for ticket in [ticket for ticket in open_tickets if ticket.granted]:
                quota.commit(ticket, now_ms)
                open_tickets.remove(ticket)
            admissions.append((now_ms, door.principal(now_ms=now_ms).admitted - before))
        principal = door.principal(now_ms=now_ms)
        assert quota.ceiling.reserved == principal.reserved_pairs
        assert principal.waiting_tickets == sum(t.state is TicketState.WAITING for t in open_tickets)
    bound = SETTINGS.buckets.bound
    for first, (from_ms, _) in enumerate(admissions):
        total = 0
        for until_ms, count in admissions[first:]:
            total += count
            assert total <= bound(ids_per_hour, (until_ms - from_ms) / MS_PER_HOUR) + 1e-6


@pytest.mark.parametrize(
    ("connections", "ids_a_request"),
    [
        (1_000, 1),
        pytest.param(5_000, 1, marks=pytest.mark.slow),
        pytest.param(5_000, 100, marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("resumed", [False, pytest.param(True, marks=pytest.mark.long)])
def test_connections_that_reconnect_for_each_request_stay_in_bound_for_ten_minutes(
    connections: int, ids_a_request: int, resumed: bool
) -> None:
    """Each asks, holds for 8 s, is refused, and comes back at once with other ids, or with the same."""
    door = Door(1_000)
    quota = door.quota
    number = 0
    waiting: list[Ticket] = []
    neighbour_ids = 0
    for second in range(0, 600, 8):
        now_ms = second * 1_000.0
        before, waiting = waiting, []
        for index in range(connections):
            old = before[index] if before else None
            if old is not None and old.state is TicketState.WAITING:
                quota.withdraw(old, now_ms)
            if old is not None and index % 2:
                ids = old.pairs
            else:
                ids = tuple(range(number, number + ids_a_request))
                number += ids_a_request
            new_ids, resumed_ids = ((), ids) if resumed else (ids, ())
            ticket = Ticket(door.principal(), new_ids, resumed_ids, ids)
            if quota.ask(ticket, now_ms):
                quota.commit(ticket, now_ms)
            waiting.append(ticket)
        for ticket in quota.serve(now_ms + 7_000.0):
            quota.commit(ticket, now_ms + 7_000.0)
        if second % 60 < 8:  # ten in ten minutes is within its rate: it must not notice
            neighbour = quota.principal("neighbour", 60, now_ms)
            ticket = Ticket(neighbour, (neighbour_ids,), (), (neighbour_ids,))
            assert quota.ask(ticket, now_ms)
            quota.commit(ticket, now_ms)
            neighbour_ids += 1
    admitted = door.principal().admitted
    assert admitted <= SETTINGS.buckets.bound(1_000, 600 / 3_600)
    assert admitted >= 1_000 * (25 if resumed else 1)  # and the rate is given out, not withheld
    assert len(quota._queues[door.principal()]) <= 2 * connections + 3 * 64
    assert len(quota._forced[door.principal()]) <= 2 * connections + 5 * 64
    assert len(quota._dues) <= 100
