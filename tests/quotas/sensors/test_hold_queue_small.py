"""A small client beside large ones, in a bucket that cannot pay all in time: it does not wait for a round of
theirs."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from sluice.quotas.sensors.hold_queue import HoldQueue
from sluice.quotas.sensors.hold_ticket import HoldTicket
from sluice.quotas.sensors.place import Place

BUDGET_MS = 8_000.0
SMALL_BYTES = 1_000
SECONDS = 60
STEP_MS = 5.0


@dataclass
class Client:
    """Sends the next request `pause_ms` after the last one went."""

    request_bytes: int
    next_ms: float = 0.0
    pause_ms: float = 0.0
    since_ms: float = 0.0
    place: Place = field(default_factory=Place)
    ticket: HoldTicket | None = None
    waits_ms: list[float] = field(default_factory=list)


def overloaded(count: int, large_bytes: int, rate: int) -> tuple[Client, list[int]]:
    """The small client that came after 5 s, and the bytes that passed in each second."""
    queue = HoldQueue(1000.0 / rate, 60_000.0)
    small = Client(SMALL_BYTES, next_ms=5_000.0, pause_ms=100.0)
    clients = [*(Client(large_bytes) for _ in range(count)), small]
    tat_ms, now_ms, passed = -1_000.0, 0.0, [0] * SECONDS

    def went(client: Client) -> None:
        passed[int(now_ms / 1_000)] += client.request_bytes
        client.waits_ms.append(now_ms - client.since_ms)
        client.next_ms = now_ms + client.pause_ms

    while now_ms < SECONDS * 1_000:
        for client in clients:
            if client.ticket is None and client.next_ms <= now_ms:
                eligible_at_ms = max(tat_ms, now_ms - 1_000.0)
                tat_ms = min(eligible_at_ms + client.request_bytes * 1000.0 / rate, now_ms + 60_000.0)
                client.since_ms = now_ms
                if eligible_at_ms <= now_ms:
                    went(client)
                else:
                    client.ticket = queue.enter(
                        client.request_bytes, eligible_at_ms, now_ms + BUDGET_MS, now_ms, None, client.place
                    )
        for client in clients:
            if client.ticket is not None and queue.ask(client.ticket, now_ms) <= now_ms:
                client.ticket = None
                went(client)
        now_ms += STEP_MS
    return small, passed


@pytest.mark.parametrize(
    ("count", "large_bytes", "rate", "longest_ms"),
    [
        (9, 50_000, 1_000_000, 100),
        (20, 100_000, 200_000, 2_500),
        (20, 200_000, 200_000, 1_500),
        (20, 1_000_000, 1_000_000, 500),
    ],
)
def test_a_small_request_does_not_wait_for_a_round_of_large_ones(
    count: int, large_bytes: int, rate: int, longest_ms: float
) -> None:
    """Twenty of 200 kB on 200 kB/s pass 500 kB/s, and their round takes 8 s; the small client waited for up
    to half of that. What passes stays within a twentieth of the pace."""
    small, passed = overloaded(count, large_bytes, rate)
    assert max(small.waits_ms) <= longest_ms
    assert sorted(small.waits_ms)[len(small.waits_ms) // 2] <= 50.0
    pace = max(rate, count * large_bytes / (BUDGET_MS / 1_000.0))
    assert sum(passed[10:-2]) / len(passed[10:-2]) <= pace * 1.05
