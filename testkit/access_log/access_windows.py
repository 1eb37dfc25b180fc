"""Windows of the roll-up as the encoder's thread tells them, row by row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sluice.proxy.access_log.columns import FilePart
from sluice.proxy.access_log.sums import WindowSums
from sluice.usage.access_record import ROLLUP
from sluice.usage.rollup import Window
from testkit.access_log.access_records import NOW_MS, connection, flow, record, rollup
from testkit.access_log.access_rows import BEGIN_MS


class Told:
    """What one process told; windows in their order."""

    def __init__(self) -> None:
        self._sums = WindowSums()

    def rows(self, window: Window) -> list[dict[str, Any]]:
        """In the order of the file that it would be alone in."""
        part = FilePart(ROLLUP)
        assert window.count_rows() <= window.most_rows
        sums = self._sums.sum_up(window)
        part.add_sums(window, sums)
        found: list[dict[str, Any]] = part.finish().to_pylist()
        assert len(found) <= window.count_rows() + (sums.folded > 0)
        self._sums.forget(window.dropped.places)
        window.index.told(window.dropped, sums.folded)
        return found


def windows_of(*client_ids: Sequence[str]) -> list[Window]:
    """A process' windows one after another, from the last of an hour on; a request of each of these in it."""
    grows = rollup(unix_ms=BEGIN_MS)
    for number, of_window in enumerate(client_ids):
        flows = [flow(connection(), client_id) for client_id in of_window]
        grows.add_requests([record(of, number * 10_000.0) for of in flows], slow_ms=1e9)
        grows.close(BEGIN_MS - NOW_MS)
    return list(grows.over)
