"""What is announced and never sent lets nobody pass more than the stated bound."""

from __future__ import annotations

from collections import Counter, deque
from statistics import mean

import pytest

from sluice.quotas.sensors.hold_queue import HoldQueue
from sluice.quotas.sensors.place import Place
from testkit.thorough import few
from tests.quotas.sensors.test_hold_queue import BUDGET_MS, RATE, World, times

SECONDS = 60
FROM_S = 15


def beside_leavers(
    senders: int,
    request_bytes: int,
    announced_bytes: int,
    leavers: int,
    every_ms: int,
    here_bytes: float = 300.0,
) -> tuple[World, int]:
    """`senders` send their next request as soon as the last has gone. Beside them `leavers` announce a
    request, one after the other, and the one that has waited longest leaves, one each `every_ms`. Returns
    what the senders passed from second 15 on, too: what was announced first counted until it left."""
    world = World()
    places = [Place() for _ in range(senders)]
    whose = {world.arrives(request_bytes, place=places[sender]): sender for sender in range(senders)}
    announced: deque[int] = deque()
    seen = passed = 0
    for now_ms in range(SECONDS * 1_000):
        if now_ms % every_ms == 0:
            if len(announced) >= leavers:
                world.leaves(announced.popleft())
            announced.append(world.arrives(announced_bytes, here_bytes=here_bytes))
        world.until(now_ms)
        while seen < len(world.went):
            at_ms, number = world.went[seen]
            seen += 1
            if number in whose:
                passed += request_bytes if at_ms >= FROM_S * 1_000 else 0
                sender = whose[number]
                whose[world.arrives(request_bytes, place=places[sender])] = sender
    return world, passed


def worst_second(world: World) -> int:
    """Bytes that passed in it, from second 3 on."""
    seconds = Counter[int]()
    for at_ms, number in world.went:
        seconds[int(at_ms // 1_000)] += world.sizes[number]
    return max(seconds[second] for second in range(3, SECONDS))


@pytest.mark.parametrize(
    ("senders", "request_bytes"), [(20, 100_000), (20, 380_000), (50, 10_000), (20, 1_000_000)]
)
@pytest.mark.parametrize(
    ("announced_bytes", "leavers", "every_ms"),
    few(
        [
            (200_000_000, 1, 1_000), (200_000_000, 1, 100), (20_000_000, 1, 7_900), (20_000_000, 5, 200),
            (20_000_000, 5, 1_500), (1_000_000, 100, 5), (1_000_000, 100, 70), (20_000, 500, 10),
        ],
        2,
    ),
)  # fmt: skip
def test_who_announces_and_leaves_lets_others_pass_a_tenth_at_most(
    senders: int, request_bytes: int, announced_bytes: int, leavers: int, every_ms: int
) -> None:
    world, passed = beside_leavers(senders, request_bytes, announced_bytes, leavers, every_ms)
    bound = max(RATE, senders * request_bytes / BUDGET_MS)
    assert passed / (SECONDS - FROM_S) / 1_000 <= 1.1 * bound
    for at_ms, number in world.went:
        assert at_ms <= world.deadlines[number] + 1.1, "and nobody waits longer than its budget for it"
    outstanding = senders * request_bytes + leavers * announced_bytes
    one_request = max(request_bytes, announced_bytes)
    assert worst_second(world) - one_request <= 1.1 * max(RATE, outstanding / BUDGET_MS) * 1_000


@pytest.mark.parametrize(
    ("senders", "request_bytes", "leavers", "every_ms"), [(40, 540_000, 40, 25), (20, 1_000_000, 10, 200)]
)
def test_who_announces_as_much_as_others_and_leaves_does_not_make_them_go_in_lumps(
    senders: int, request_bytes: int, leavers: int, every_ms: int
) -> None:
    """All that is held would wait for those who left, until its deadline, and go in one second then."""
    world, passed = beside_leavers(senders, request_bytes, request_bytes, leavers, every_ms)
    bound = (senders + leavers) * request_bytes / BUDGET_MS
    assert worst_second(world) - request_bytes <= 1.1 * bound * 1_000
    assert passed / (SECONDS - FROM_S) / 1_000 <= 1.1 * max(RATE, senders * request_bytes / BUDGET_MS)


def test_who_stays_goes_as_evenly_as_before_when_one_of_fifty_gives_up() -> None:
    """50 × 1 MB at once at 1 MB/s: 6.25 MB in each second. One leaves after 2 s."""
    world = World()
    numbers = [world.arrives(1_000_000) for _ in range(50)]
    world.until(2_000)
    world.leaves(numbers[-1])
    world.until(9_000)
    seconds = Counter(int(at_ms // 1_000) for at_ms in times(world) if at_ms)
    assert max(seconds.values()) <= 8
    assert mean(times(world)) <= 4_600


@pytest.mark.parametrize(
    ("sent_bytes", "leavers", "every_ms"), [(200_000, 1, 1_000), (10_000, 100, 70), (50_000, 20, 50)]
)
def test_who_had_sent_all_that_it_announced_leaves_those_who_stay_as_even_as_they_were(
    sent_bytes: int, leavers: int, every_ms: int
) -> None:
    """100 connections of 100 kB, 1.25 MB/s at 1 MB/s; what leavers sent was outstanding, as any other's."""
    world, _ = beside_leavers(100, 100_000, sent_bytes, leavers, every_ms, here_bytes=sent_bytes)
    seconds = Counter(int(at_ms // 1_000) for at_ms, number in world.went if world.sizes[number] == 100_000)
    outstanding = 100 * 100_000 + leavers * sent_bytes
    assert all(8 <= seconds[second] <= 1.15 * outstanding / 8 / 100_000 + 1 for second in range(10, SECONDS))


def test_a_pause_for_those_who_left_ends_with_the_cap_on_debt() -> None:
    """However much was announced in vain: 60 s after the last one all is as if nothing had been."""
    world = World(HoldQueue(1 / RATE, 60_000.0))
    for _ in range(50):
        world.arrives(1_000_000)
    for _ in range(200):
        number = world.arrives(200_000_000)
        world.until(world.now_ms + 30)
        world.leaves(number)
    world.until(world.now_ms + 60_000)
    world.went.clear()
    world.tat_ms = world.now_ms
    begun_ms = world.now_ms
    for _ in range(50):
        world.arrives(1_000_000)
    world.until(begun_ms + 9_000)
    seconds = Counter(int((at_ms - begun_ms) // 1_000) for at_ms in times(world))
    assert max(seconds.values()) <= 8
