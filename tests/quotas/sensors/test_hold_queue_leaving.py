"""What is announced and never sent lets nobody pass more than the stated bound."""

from __future__ import annotations

from collections import Counter, deque
from statistics import mean

import pytest

from sluice.quotas.sensors.place import Place
from tests.quotas.sensors.test_hold_queue import BUDGET_MS, RATE, World, times

SECONDS = 60


def beside_leavers(
    senders: int, request_bytes: int, announced_bytes: int, leavers: int, every_ms: int
) -> tuple[World, int]:
    """`senders` send their next request as soon as the last has gone. Beside them `leavers` announce a
    request, one after the other, and the one that has waited longest leaves, one each `every_ms`. Returns
    what the senders passed from second 10 on, too."""
    world = World()
    places = [Place() for _ in range(senders)]
    whose = {world.arrives(request_bytes, place=places[sender]): sender for sender in range(senders)}
    announced: deque[int] = deque()
    seen = passed = 0
    for now_ms in range(SECONDS * 1_000):
        if now_ms % every_ms == 0:
            if len(announced) >= leavers:
                world.leaves(announced.popleft())
            announced.append(world.arrives(announced_bytes))
        world.until(now_ms)
        while seen < len(world.went):
            at_ms, number = world.went[seen]
            seen += 1
            if number in whose:
                passed += request_bytes if at_ms >= 10_000 else 0
                sender = whose[number]
                whose[world.arrives(request_bytes, place=places[sender])] = sender
    return world, passed


@pytest.mark.parametrize(
    ("senders", "request_bytes"), [(20, 100_000), (20, 380_000), (50, 10_000), (20, 1_000_000)]
)
@pytest.mark.parametrize(
    ("announced_bytes", "leavers", "every_ms"),
    [
        (200_000_000, 1, 1_000), (200_000_000, 1, 100), (20_000_000, 1, 7_900), (20_000_000, 5, 200),
        (20_000_000, 5, 1_500), (1_000_000, 100, 5), (1_000_000, 100, 70), (20_000, 500, 10),
    ],
)  # fmt: skip
def test_who_announces_and_leaves_lets_others_pass_a_tenth_at_most(
    senders: int, request_bytes: int, announced_bytes: int, leavers: int, every_ms: int
) -> None:
    world, passed = beside_leavers(senders, request_bytes, announced_bytes, leavers, every_ms)
    bound = max(RATE, senders * request_bytes / BUDGET_MS)
    assert passed / (SECONDS - 10) / 1_000 <= 1.1 * bound
    for at_ms, number in world.went:
        assert at_ms <= world.deadlines[number] + 1.1, "and nobody waits longer than its budget for it"


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
