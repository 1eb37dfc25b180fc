"""Buckets, connections and producer ids → rows of the status page: searched, sorted, bounded. Pure.

The buckets are those of `sluice top` (admin/top/rows.py), found in the same way. Everything is walked in
steps; of what fits a question at most MAX_LISTED rows are kept, the most telling first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from hashlib import blake2b
from heapq import heappush, heapreplace
from typing import Any, Final, Generic, TypeVar

from sluice.proxy.admin.status.history import NewIds
from sluice.proxy.admin.status.model import (
    MAX_LISTED,
    ConnectionInfo,
    Direction,
    History,
    Order,
    Principal,
    PrincipalDetail,
    PrincipalsQuery,
    ProducerIdsOf,
)
from sluice.proxy.admin.top.row import ConnectionRow, Row, why
from sluice.proxy.admin.top.rows import Survey, state_of, throttle_of
from sluice.proxy.admin.top.search import Bucket, Connected, Search
from sluice.proxy.admin.top.text import who
from sluice.quotas.kinds import KINDS, QuotaKind
from sluice.quotas.limits.limits import QuotaLimits
from sluice.quotas.names import clean
from sluice.quotas.producer_ids.buckets import MS_PER_HOUR
from sluice.quotas.producer_ids.principal import PrincipalIds
from sluice.quotas.sensors.sensor import Sensor

ROWS_PER_STEP: Final = 200
"""below 1 ms of work, between which connections are served"""
_MADE_PER_STEP: Final = 50
"""the same of those that are kept"""
_T = TypeVar("_T")


def id_of(quota: QuotaKind, bucket: Mapping[str, str]) -> str:
    """Stands for a bucket in addresses and pages: 16 hexadecimal digits."""
    parts = [quota.value]
    for key, name in bucket.items():
        parts += key, str(len(name)), name
    return blake2b("\0".join(parts).encode(errors="surrogatepass"), digest_size=8).hexdigest()


# Principals -------------------------------------------------------------------------------------------------


def survey_of(query: PrincipalsQuery, max_debt_ms: float) -> Survey:
    """A survey of the buckets that a question is about."""
    search, quota, throttled = query.search.casefold(), query.quota, query.throttled
    if not (search or quota or throttled):
        return Survey(MAX_LISTED, max_debt_ms)

    def wanted(bucket: Bucket, owed_ms: float) -> bool:
        if throttled and not owed_ms > 0.0:
            return False
        return quota is None or _kind_of(bucket) is quota

    found = Search(lambda name: search in name.casefold()) if search else None
    return Survey(MAX_LISTED, max_debt_ms, wanted, found)


def survey_of_one(key: str, max_debt_ms: float) -> Survey:
    """A survey of the one bucket with this id."""

    def wanted(bucket: Bucket, _: float) -> bool:
        if isinstance(bucket, Sensor):
            return id_of(bucket.kind, row_bucket(bucket)) == key
        return id_of(QuotaKind.PRODUCER_IDS, {"user": bucket.user}) == key

    return Survey(1, max_debt_ms, wanted)


def row_bucket(sensor: Sensor) -> dict[str, str]:
    """The names of a sensor's row, as admin/top/rows.py tells them."""
    if sensor.kind is QuotaKind.CONNECTION_CREATION:
        return {"ip": str(sensor.entity.ip) or "all others"}
    return {part: str(name) for part, name in sensor.entity.parts.items()}


_ORDERS: Final[dict[Order, Callable[[Row], Any]]] = {
    Order.THROTTLE: lambda row: (0.0 if row.shadow else row.delay_ms, row.utilisation),
    Order.DELAYED: lambda row: row.delayed,
    Order.UTILISATION: lambda row: row.utilisation,
    Order.USED: lambda row: row.used,
    Order.LIMIT: lambda row: row.limit,
    Order.CONNECTIONS: lambda row: row.connections,
    Order.WHO: lambda row: ", ".join(map(" ".join, row.bucket.items())).casefold(),
    Order.QUOTA: lambda row: row.kind.value,
    Order.RULE: lambda row: row.rule,
}


def page_of(rows: list[Row], query: PrincipalsQuery) -> list[Row]:
    """Sorted, and cut to what is asked for; equal ones stay in the survey's order."""
    if (query.sort, query.order) != (Order.THROTTLE, Direction.DESC):
        rows = sorted(rows, key=_ORDERS[query.sort], reverse=query.order is Direction.DESC)
    return rows[query.offset : query.offset + query.limit]


def principal_of(row: Row, history: History | None = None) -> Principal:
    """`history`: its curve, if it is asked for and there is one."""
    return Principal(**_figures(row), history=history)


def detail_of(row: Row, limits: QuotaLimits, history: History | None) -> PrincipalDetail:
    """With its reasons, by the limits in force."""
    return PrincipalDetail(
        **_figures(row),
        history=history,
        charged=round(row.charged, 3),
        forgiven=round(row.forgiven, 3),
        why=[line.encode(errors="replace").decode() for line in why(row, limits)],
        shown=[_shown(connection) for connection in row.shown],
    )


def _figures(row: Row) -> dict[str, Any]:
    spec = KINDS[row.kind]
    bucket = {part: clean(name) for part, name in row.bucket.items()}
    return {
        "id": id_of(row.kind, row.bucket),
        "who": who(bucket),
        "bucket": bucket,
        "quota": row.kind.value,
        "key": spec.config_key,
        "unit": spec.limit_unit,
        "rule": row.rule,
        "limit": row.limit,
        "shadow": row.shadow,
        "used": round(row.used, 3),
        "utilisation": round(row.utilisation, 4),
        "tokens": round(row.tokens, 3),
        "delay_ms": round(row.delay_ms, 1),
        "delayed_share_1m": round(row.delayed.share, 4),
        "delayed_s_1m": round(row.delayed.seconds, 3),
        "waiting": row.waiting,
        "connections": row.connections,
        "throttled_connections": row.throttled_connections,
    }


def _kind_of(bucket: Bucket) -> QuotaKind:
    return bucket.kind if isinstance(bucket, Sensor) else QuotaKind.PRODUCER_IDS


# Connections and producer ids -------------------------------------------------------------------------------


class _First(Generic[_T]):
    """The first MAX_LISTED of any number, by key, highest first."""

    def __init__(self) -> None:
        self.count = 0
        self._heap: list[tuple[tuple[float, ...], int, _T]] = []

    def add(self, key: tuple[float, ...], what: _T) -> None:
        self.count += 1
        entry = (key, -self.count, what)
        if len(self._heap) < MAX_LISTED:
            heappush(self._heap, entry)
        elif entry > self._heap[0]:
            heapreplace(self._heap, entry)

    def sorted(self) -> list[_T]:
        return [what for _, _, what in sorted(self._heap, key=lambda entry: entry[:2], reverse=True)]


class ConnectionList:
    """One look at all connections, made by running `steps` to its end."""

    def __init__(self, search: str = "", *, throttled: bool = False) -> None:
        """`search`: part of a user's, client's or peer's name; `throttled`: only those that wait."""
        self.rows: list[ConnectionInfo] = []
        self.matching = 0
        self._search = search.casefold()
        self._throttled = throttled

    def steps(self, connections: Iterable[Connected], clock_ms: Callable[[], float]) -> Iterator[None]:
        """`connections`: a list, for they come and go between the steps."""
        first: _First[tuple[Connected, str, float]] = _First()
        now_ms, search = clock_ms(), self._search
        for number, connection in enumerate(connections, start=1):
            session = connection.session
            by, for_ms = throttle_of(session, now_ms)
            if (by or not self._throttled) and (
                not search
                or any(
                    search in name.casefold() for name in (session.user, session.client_id, connection.peer)
                )
            ):
                first.add((for_ms, session.in_flight, session.requests), (connection, by, for_ms))
            if number % ROWS_PER_STEP == 0:
                yield
                now_ms = clock_ms()
        self.matching = first.count
        kept = first.sorted()
        yield
        for number, (connection, by, for_ms) in enumerate(kept, start=1):
            self.rows.append(_info(connection, by, for_ms))
            if number % _MADE_PER_STEP == 0:
                yield


class ProducerIdList:
    """The same of the principals whose producer ids are judged."""

    def __init__(self, search: str = "") -> None:
        self.rows: list[ProducerIdsOf] = []
        self.matching = 0
        self._search = search.casefold()

    def steps(
        self,
        principals: Iterable[PrincipalIds],
        limits: QuotaLimits,
        new_ids: NewIds,
        clock_ms: Callable[[], float],
    ) -> Iterator[None]:
        """Look at all principals, in steps. `principals`: a list, for they come and go between the steps."""
        first: _First[tuple[PrincipalIds, int | None, float]] = _First()
        now_ms = clock_ms()
        for number, principal in enumerate(principals, start=1):
            is_limited = limits.resolve(QuotaKind.PRODUCER_IDS, principal.user, "") is not None
            if is_limited and (not self._search or self._search in principal.user.casefold()):
                new, span_s = new_ids.of(principal, now_ms)
                key = (principal.waiting_tickets, new or 0, len(principal.store))
                first.add(key, (principal, new, span_s))
            if number % ROWS_PER_STEP == 0:
                yield
                now_ms = clock_ms()
        self.matching = first.count
        for number, (principal, new, span_s) in enumerate(first.sorted(), start=1):
            self.rows.append(_ids(principal, limits, new, span_s, now_ms))
            if number % _MADE_PER_STEP == 0:
                yield


def _ids(
    principal: PrincipalIds, limits: QuotaLimits, new: int | None, span_s: float, now_ms: float
) -> ProducerIdsOf:
    match = limits.resolve(QuotaKind.PRODUCER_IDS, principal.user, "")
    tokens, waiting = principal.main.tokens(now_ms), principal.waiting_tickets
    missing = max(0.0, waiting - tokens) if waiting else 0.0
    return ProducerIdsOf(
        user=clean(principal.user),
        rule="" if match is None else match.level.value,
        limit=principal.ids_per_hour,
        shadow=not principal.enforced,
        known=len(principal.store),
        new=new,
        new_span_s=round(span_s, 1),
        tokens=round(tokens - waiting, 3),
        waiting=waiting,
        delay_ms=round(missing / principal.ids_per_hour * MS_PER_HOUR, 1),
        pairs=len(principal.pairs),
        forced=principal.forced_admitted,
    )


def _info(connection: Connected, throttled_by: str, for_ms: float) -> ConnectionInfo:
    session = connection.session
    return ConnectionInfo(
        peer=connection.peer,
        user=clean(session.user),
        client_id=clean(session.client_id),
        state=state_of(session, throttled_by),
        throttled_by=throttled_by,
        for_ms=round(for_ms, 1),
        in_flight=session.in_flight,
        requests=session.requests,
    )


def _shown(row: ConnectionRow) -> ConnectionInfo:
    return ConnectionInfo(
        peer=row.peer,
        user=clean(row.user),
        client_id=clean(row.client_id),
        state=row.state,
        throttled_by=row.throttled_by,
        for_ms=round(row.for_ms, 1),
        in_flight=row.in_flight,
        requests=row.requests,
    )
