"""What the connections of one event loop share: whether any is there."""

from __future__ import annotations

import asyncio

from sluice.proxy.connection.worker import Worker
from sluice.proxy.runtime.gauges import Gauges
from sluice.usage.records import Recorder


def test_it_is_occupied_from_the_first_client_to_the_last() -> None:
    async def seen_of(changes: str) -> list[tuple[int, int, bool]]:
        gauges, seen = Gauges(), []
        worker = Worker(asyncio.get_running_loop(), Recorder(), gauges)
        for change in changes:
            (worker.opened if change == "+" else worker.closed)()
            seen.append((gauges.connections, gauges.connections_opened, worker.occupied.is_set()))
        worker.close()
        return seen

    assert asyncio.run(seen_of("++-+--")) == [
        (1, 1, True), (2, 2, True), (1, 2, True), (2, 3, True), (1, 3, True), (0, 3, False),
    ]  # fmt: skip
