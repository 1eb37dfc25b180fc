"""Live connections by what passes through them: two looks at their counters, a second apart → rows.

The counters are those that every connection has anyway, so nobody pays for this until somebody asks. Each
look is walked in steps of about a millisecond, between which connections are served. Who asks while one is
made waits for it, and gets the same. Nothing is kept for longer than KEPT_S.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from time import monotonic
from typing import Any, Final, NamedTuple

from sluice.proxy.admin.top.order import ConnectionSort
from sluice.proxy.admin.top.rows import state_of, throttle_of
from sluice.proxy.admin.top.search import Connected, fits_pattern
from sluice.proxy.admin.top.walk import LOOP_SHARE, walked
from sluice.proxy.session.session import Session
from sluice.quotas.names import clean

MAX_ROWS: Final = 1_000
SPAN_S: Final = 1.0
"""between the two looks"""
KEPT_S: Final = 5.0
_PER_STEP: Final = 200


class Live(NamedTuple):
    """One connection, and what it did between the two looks."""

    peer: str
    user: str
    client_id: str
    software: str
    """name and version that the client gave itself; "": none"""
    state: str
    throttled_by: str
    """the kind whose delay it sits out; "": none"""
    for_ms: float
    """how much longer"""
    in_flight: int
    requests: int
    """so far, as the next two"""
    bytes_in: int
    """from the client on to the broker"""
    bytes_out: int
    requests_per_s: float
    bytes_in_per_s: float
    bytes_out_per_s: float

    def to_json(self) -> dict[str, Any]:
        """As in the snapshot."""
        rounded = ("for_ms", "requests_per_s", "bytes_in_per_s", "bytes_out_per_s")
        names = {"user": clean(self.user), "client_id": clean(self.client_id)}
        return {**self._asdict(), **names, **{name: round(getattr(self, name), 1) for name in rounded}}


_KEYS: Final[dict[ConnectionSort, Callable[[Live], float]]] = {
    ConnectionSort.THROUGHPUT: lambda row: row.bytes_in_per_s + row.bytes_out_per_s,
    ConnectionSort.IN: lambda row: row.bytes_in_per_s,
    ConnectionSort.OUT: lambda row: row.bytes_out_per_s,
    ConnectionSort.REQUESTS: lambda row: row.requests_per_s,
    ConnectionSort.IN_FLIGHT: lambda row: row.in_flight,
    ConnectionSort.DELAY: lambda row: row.for_ms,
}
_Counters = tuple[int, int, int]
"""requests, bytes from the client, bytes to it"""


class TwoLooks:
    """The pure part; `first` and `second` are to be run to their ends."""

    def __init__(self) -> None:
        self.rows: list[Live] = []
        self._before: dict[Session, _Counters] = {}

    def first(self, connections: Sequence[Connected]) -> Iterator[None]:
        """Note the counters. `connections`: a list, for they come and go between the steps."""
        for number, connection in enumerate(connections, start=1):
            self._before[connection.session] = _counters(connection.session)
            if number % _PER_STEP == 0:
                yield

    def second(
        self, connections: Sequence[Connected], span_s: float, clock_ms: Callable[[], float]
    ) -> Iterator[None]:
        """Make the rows. One that came in between has done all that it did since then."""
        now_ms = clock_ms()
        for number, connection in enumerate(connections, start=1):
            session = connection.session
            requests, bytes_in, bytes_out = _counters(session)
            before = self._before.get(session, (0, 0, 0))
            throttled_by, for_ms = throttle_of(session, now_ms)
            self.rows.append(
                Live(
                    connection.peer,
                    session.user,
                    session.client_id,
                    session.identity.software,
                    state_of(session, throttled_by),
                    throttled_by,
                    for_ms,
                    session.in_flight,
                    requests,
                    bytes_in,
                    bytes_out,
                    (requests - before[0]) / span_s,
                    (bytes_in - before[1]) / span_s,
                    (bytes_out - before[2]) / span_s,
                )
            )
            if number % _PER_STEP == 0:
                yield
                now_ms = clock_ms()
        self._before.clear()


def chosen(rows: Sequence[Live], user: str, sort: ConnectionSort) -> list[Live]:
    """Those of a user, client id or address (a name, or a pattern with * and ?; empty: all), sorted."""
    fits = fits_pattern(user)
    found = [row for row in rows if not user or any(map(fits, (row.user, row.client_id, _host(row.peer))))]
    key = _KEYS[sort]
    found.sort(key=lambda row: (-key(row), row.peer))
    return found


class LiveConnections:
    """Snapshots of one process."""

    def __init__(self, connections: Callable[[], Sequence[Connected]], span_s: float = SPAN_S) -> None:
        """`connections`: a list of the live ones, made anew."""
        self._connections = connections
        self._span_s = span_s
        self._lock = asyncio.Lock()
        self._last: list[Live] | None = None
        self._made_s = 0.0
        self._work_s = 0.0

    async def snapshot(
        self, rows: int = MAX_ROWS, *, user: str = "", sort: ConnectionSort = ConnectionSort.THROUGHPUT
    ) -> dict[str, Any]:
        """At most `rows` connections (and never more than MAX_ROWS) of those that `user` finds."""
        async with self._lock:
            live = self._last
            if live is None or monotonic() - self._made_s > max(self._span_s, self._work_s / LOOP_SHARE):
                live = await self._looked()
        # To sort 10,000 takes 10 ms, which the loop does not wait for: rows never change.
        found = await asyncio.to_thread(_told, live, user, sort, rows)
        return {
            "at": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "age_ms": round((monotonic() - self._made_s) * 1000.0, 1),
            "work_ms": round(self._work_s * 1000.0, 2),
            "over_s": self._span_s,
            **found,
        }

    async def _looked(self) -> list[Live]:
        looks = TwoLooks()
        began_s = monotonic()
        self._work_s = await walked(looks.first(self._connections()))
        await asyncio.sleep(max(0.0, self._span_s - (monotonic() - began_s)))
        span_s = monotonic() - began_s
        self._work_s += await walked(looks.second(self._connections(), span_s, lambda: monotonic() * 1000.0))
        self._last, self._made_s = looks.rows, monotonic()
        asyncio.get_running_loop().call_later(KEPT_S, self._forget, looks.rows)
        return looks.rows

    def _forget(self, rows: list[Live]) -> None:
        if self._last is rows:
            self._last = None


def _told(live: Sequence[Live], user: str, sort: ConnectionSort, rows: int) -> dict[str, Any]:
    found = chosen(live, user, sort)
    return {
        "connections": len(live),
        "throttled_connections": sum(bool(row.throttled_by) for row in live),
        "matching": len(found),
        "bytes_in_per_s": round(sum(row.bytes_in_per_s for row in found), 1),
        "bytes_out_per_s": round(sum(row.bytes_out_per_s for row in found), 1),
        "rows": [row.to_json() for row in found[: max(0, min(rows, MAX_ROWS))]],
    }


def _counters(session: Session) -> _Counters:
    return session.requests, session.bytes_from_client, session.bytes_to_client


def _host(peer: str) -> str:
    return peer.rpartition(":")[0]
