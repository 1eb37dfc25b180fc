"""A connection with nearer deadlines than others gets no more for it than it has outstanding."""

from __future__ import annotations

from collections import Counter
from random import Random
from statistics import mean, median

import pytest

from sluice.quotas.sensors.place import Place
from tests.quotas.sensors.test_hold_queue import World

RATE = 1_000.0  # bytes per ms


def beside_bursts(
    patient: int, request_bytes: int, hasty_bytes: int, hasty_budget_ms: float, every_ms: int, rounds: int
) -> tuple[World, list[int], list[float]]:
    """`patient` connections send one request each `every_ms` (at any time within a ms of it), budget 8 s;
    one more, of a shorter budget, sends its next as soon as the last has gone. Bytes that each got, its own
    last; waits of the patient ones."""
    random = Random(patient)
    world = World()
    places = [Place() for _ in range(patient + 1)]
    got, waits = [0] * (patient + 1), []
    whose: dict[int, tuple[int, float]] = {}

    def send(sender: int) -> None:
        size, budget_ms = (hasty_bytes, hasty_budget_ms) if sender == patient else (request_bytes, 8_000.0)
        whose[world.arrives(size, budget_ms, places[sender])] = sender, world.now_ms

    seen = 0
    for now_ms in range(every_ms * rounds):
        if now_ms % every_ms == 0:
            for sender in random.sample(range(patient), patient):
                send(sender)
        if now_ms == 300:
            send(patient)
        world.until(now_ms)
        while seen < len(world.went):
            at_ms, number = world.went[seen]
            seen += 1
            sender, begun_ms = whose[number]
            got[sender] += world.sizes[number]
            if sender == patient:
                send(sender)
            else:
                waits.append(at_ms - begun_ms)
    return world, got, waits


@pytest.mark.parametrize("patient", [30, 100])
@pytest.mark.parametrize("hasty_bytes", [5_000, 100_000, 1_000_000])
@pytest.mark.parametrize("hasty_budget_ms", [2_000.0, 4_000.0, 8_000.0])
def test_in_overload_a_shorter_budget_brings_what_is_outstanding_and_no_more(
    patient: int, hasty_bytes: int, hasty_budget_ms: float
) -> None:
    """1 MB/s, and in bursts each 9 s thirty to a hundred times as much as that."""
    world, got, waits = beside_bursts(patient, 1_000_000, hasty_bytes, hasty_budget_ms, 9_000, 4)
    at_deadlines = 36_000 / hasty_budget_ms * hasty_bytes
    alone = 4 * 1_000 * RATE  # a burst has gone after 8 s
    assert got[-1] <= at_deadlines + alone + max(2 * hasty_bytes, 500_000)
    assert median(waits) <= 4_400, "half of them wait half of their budget"
    assert mean(waits) <= 4_200
    assert max(waits) <= 8_002
    large = [at_ms for at_ms, number in world.went if world.sizes[number] > 500_000]
    in_half_a_second = Counter(int(at_ms // 500) for at_ms in large)
    assert max(in_half_a_second.values()) <= 1.5 * patient / 16 + 4, "evenly"


@pytest.mark.parametrize("patient", [7, 70])
def test_below_the_rate_too(patient: int) -> None:
    """What the patient ones send each 9 s, the quota pays in 7: the rest of it is for who always sends."""
    _, got, waits = beside_bursts(patient, 7_000_000 // patient, 100_000, 4_000.0, 9_000, 4)
    assert got[-1] <= 36_000 * RATE - 4 * 7_000_000 + 2_000_000
    assert mean(waits) <= 4_500
