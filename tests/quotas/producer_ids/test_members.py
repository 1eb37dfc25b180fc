"""Ids of clients whose group or transaction waits for them: forced in sooner, from a part of the bucket."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from sluice.quotas.producer_ids.buckets import MS_PER_HOUR
from sluice.quotas.producer_ids.members import Members
from sluice.quotas.producer_ids.ticket import TicketState
from testkit.quotas.producer_id_door import SETTINGS, Door

MEMBER = ("10.0.0.1", "etl")
OTHER = ("10.0.0.1", "x")
RATE = 100
"""so the forced bucket holds 10, and gets one in six minutes"""


def drained(ids_per_hour: float = RATE) -> Door:
    door = Door(ids_per_hour)
    door.drain()
    return door


@pytest.mark.parametrize(
    ("named_ms", "wait_ms"),
    [
        ([20_000], 20_000 / 3),
        ([60_000, 12_000, 45_000], 4_000),  # the smallest
        ([300_000], 30_000),  # no later than any other id
        ([1], 2_000),  # no broker takes a session timeout below 6 s
        ([0], 15_000),  # it named none: 45 s
        ([0, 9_000, -1], 3_000),
        ([9_000, 0], 3_000),  # what it named before
    ],
)
def test_an_id_of_a_member_is_forced_in_after_a_third_of_its_timeout(
    named_ms: list[int], wait_ms: float
) -> None:
    door = drained()
    for timeout_ms in named_ms:
        door.quota.members.saw("alice", MEMBER, timeout_ms, 0.0)
    ticket = door.ask(1, client=MEMBER)
    assert door.quota.due_ms == pytest.approx(wait_ms)
    assert door.quota.serve(wait_ms - 1.0) == []
    assert door.quota.serve(wait_ms) == [ticket]
    assert ticket.state is TicketState.FORCED


@pytest.mark.parametrize(
    ("user", "client"),
    [("bob", MEMBER), ("alice", OTHER), ("alice", ("10.0.0.2", "etl"))],
)
def test_another_user_client_id_or_address_makes_nobody_a_member(user: str, client: tuple[str, str]) -> None:
    door = drained()
    door.quota.members.saw(user, client, 6_000, 0.0)
    ticket = door.ask(1, client=MEMBER)
    assert door.quota.serve(29_999.0) == []
    assert door.quota.serve(30_000.0) == [ticket]


def test_a_member_whose_time_has_come_does_not_wait_behind_others_whose_turn_it_is() -> None:
    """Younger ids of another address would have the next turn at the rate, which has no tokens."""
    door = drained()
    door.quota.members.saw("alice", MEMBER, 6_000, 0.0)
    young = door.ask(1, client=("10.0.0.9", "x"), now_ms=0.0)
    old = door.ask(2, client=MEMBER, now_ms=1.0)
    assert door.quota.serve(2_001.0) == [old]
    assert young.waits


def test_an_old_id_is_forced_in_though_a_young_one_has_the_next_turn() -> None:
    door = drained()
    first, second = door.ask(1, client=OTHER), door.ask(2, client=OTHER)
    door.quota.withdraw(first, 10.0)
    young = door.ask(3, now_ms=20_000.0, client=("10.0.0.9", "y"))
    door.quota.withdraw(second, 20_001.0)
    again = door.ask(2, now_ms=20_002.0, client=OTHER)  # behind `young`, whose address has its turn
    assert door.quota.serve(30_000.0) == [again]
    assert young.waits


def test_others_leave_half_of_the_forced_bucket_to_members() -> None:
    door = drained()
    others = [door.ask(number, client=OTHER) for number in range(20)]
    assert door.quota.serve(30_000.0) == others[:5]
    door.quota.members.saw("alice", MEMBER, 6_000, 30_000.0)
    members = [door.ask(100 + number, client=MEMBER, now_ms=30_000.0) for number in range(20)]
    assert door.quota.serve(32_000.0) == members[:5]
    assert not door.quota.serve(35_000.0)


def test_members_wait_their_turns_and_none_takes_all_of_their_part() -> None:
    door = drained()
    quiet, loud = ("10.0.0.1", "a"), ("10.0.0.2", "b")
    for client in (quiet, loud):
        door.quota.members.saw("alice", client, 6_000, 0.0)
    poured = [door.ask(number, client=loud) for number in range(20)]
    asked = [door.ask(100 + number, client=quiet, now_ms=1.0) for number in range(3)]
    served = door.quota.serve(2_001.0)
    assert len(served) == 10
    assert set(asked) <= set(served)
    assert served[:2] == [poured[0], asked[0]]


@pytest.mark.parametrize("ids_per_hour", [0.5, 3.0, 15.0, 50.0, 2_000.0])
def test_who_says_that_he_is_a_member_wins_no_more_than_the_forced_bucket(ids_per_hour: float) -> None:
    """All of them do, each second, with the smallest timeout there is, for two hours."""
    door, span_h = Door(ids_per_hour), 2.0
    waiting = []
    for number in range(int(span_h * 3_600)):
        now_ms = number * 1_000.0
        for name in ("a", "b"):
            door.quota.members.saw("alice", ("10.0.0.1", name), 1, now_ms)
            waiting.append(door.ask(number * 10 + ord(name) % 10, client=("10.0.0.1", name), now_ms=now_ms))
        for ticket in waiting:
            if ticket.granted:
                door.quota.commit(ticket, now_ms)
            elif ticket.waits and ticket.since_ms < now_ms - 8_000.0:
                door.quota.withdraw(ticket, now_ms)
        waiting = [ticket for ticket in waiting if ticket.waits or ticket.granted]
        for ticket in door.quota.serve(now_ms):
            door.quota.commit(ticket, now_ms)
    principal, shape = door.principal(), SETTINGS.buckets
    capacity, refill = shape.forced(ids_per_hour)
    assert 0 < principal.forced_admitted <= capacity + refill * span_h
    capacity, refill = shape.main(ids_per_hour)
    assert principal.admitted - principal.forced_admitted <= capacity + refill * span_h


@pytest.mark.parametrize(("ids_per_hour", "kept"), [(0.5, 0.0), (10, 0.0), (15, 0.5), (20, 1.0), (100, 5.0)])
def test_a_bucket_that_holds_one_id_keeps_none_of_it_from_others(ids_per_hour: float, kept: float) -> None:
    door = drained(ids_per_hour)
    assert door.principal().forced_floor(is_member=False) == pytest.approx(kept)
    ticket = door.ask(1, client=OTHER)
    assert door.quota.serve(30_000.0) == [ticket]


def test_a_member_that_was_forced_in_keeps_its_turn_at_the_rate() -> None:
    door = drained(3_600)
    door.quota.members.saw("alice", MEMBER, 6_000, 0.0)
    forced, next_one = door.ask(1, client=MEMBER), door.ask(2, client=MEMBER, now_ms=10.0)
    door.quota.settings = replace(SETTINGS, forced_after_ms=math.inf)
    other = door.ask(3, client=("10.0.0.9", "x"), now_ms=20.0)
    assert door.quota._queues[door.principal()].is_head(forced)
    assert door.quota.serve(1_000.0) == [forced]  # by the rate: a token has come
    assert door.quota.serve(2_000.0)[0] is other
    assert door.quota.serve(2_010.0) == [next_one]


def test_those_who_come_and_go_leave_nothing_behind() -> None:
    door = drained()
    door.quota.members.saw("alice", MEMBER, 6_000, 0.0)
    stays = door.ask(0, client=OTHER)
    for number in range(1, 5_000):
        door.quota.withdraw(door.ask(number, client=(MEMBER, OTHER)[number % 2], now_ms=number), number)
    assert len(door.quota._forced[door.principal()]) <= 2 + 5 * 65
    assert stays.waits


def test_a_user_with_many_client_ids_makes_the_quota_forget_his_own_only() -> None:
    """Room for 3 of each user: of alice's 5 the two that were seen longest ago are no members; bob's is."""
    members = Members(max_members=100, max_members_per_user=3)
    members.saw("bob", MEMBER, 9_000, 0.0)
    for number in (0, 1, 0, 2, 3):
        members.saw("alice", ("10.0.0.1", f"app-{number}"), 9_000, 0.0)
    waits = [members.wait_ms("alice", ("10.0.0.1", f"app-{number}"), 0.0) for number in range(4)]
    assert waits == [3_000, None, 3_000, 3_000]
    assert members.wait_ms("bob", MEMBER, 0.0) == 3_000
    assert len(members) == 4


def test_all_users_together_have_room_for_so_many_and_the_largest_gives_way() -> None:
    members = Members(max_members=4, max_members_per_user=3)
    members.saw("bob", MEMBER, 9_000, 0.0)
    for number in range(3):
        members.saw("alice", ("10.0.0.1", f"app-{number}"), 9_000, 0.0)
    members.saw("carol", MEMBER, 9_000, 0.0)
    assert members.wait_ms("alice", ("10.0.0.1", "app-0"), 0.0) is None
    assert members.wait_ms("alice", ("10.0.0.1", "app-1"), 0.0) == 3_000
    assert members.wait_ms("bob", MEMBER, 0.0) == members.wait_ms("carol", MEMBER, 0.0) == 3_000
    assert len(members) == 4


def test_a_client_id_too_long_to_be_kept_makes_no_member() -> None:
    members = Members()
    members.saw("alice", ("10.0.0.1", "x" * 32_000), 6_000, 0.0)
    assert len(members) == 0


def test_who_was_not_seen_for_ten_minutes_is_no_member() -> None:
    members = Members()
    members.saw("alice", MEMBER, 6_000, 0.0)
    members.saw("alice", OTHER, 6_000, 0.0)
    members.saw("alice", OTHER, 0, 300_000.0)
    members.expire(600_001.0)
    assert members.wait_ms("alice", MEMBER, 600_001.0) is None
    assert members.wait_ms("alice", OTHER, 600_001.0) == 2_000
    assert len(members) == 1
    members.expire(MS_PER_HOUR)
    assert len(members) == 0


def test_a_client_of_512_characters_with_its_address_is_remembered_and_a_longer_one_is_not() -> None:
    members = Members()
    for count, is_known in ((512, True), (513, False)):
        client = ("10.0.0.1", "c" * (count - 8))
        members.saw("alice", client, 9_000.0, 0.0)
        assert (members.wait_ms("alice", client, 0.0) is not None) == is_known
    assert len(members) == 1
