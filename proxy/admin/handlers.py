"""What the machine's own administrator asks through the admin socket → answers.

    {"ask": "top", "rows": 20, "why": true}                       the snapshot of `sluice top`
    {"ask": "connections", "rows": 20, "sort": "throughput", "user": "al*"}   that of `sluice connections`
    {"ask": "replication", "rows": 20}                            that of `sluice top --replication`
    {"ask": "describe"}                                           all limits of entities that Kafka has too;
                                                                  `shadow`: which of them are in shadow mode;
                                                                  `over_budget`: refuse, where it is so
    {"ask": "describe", "all": true}                              tenants, prefixes and exempt rules, too, and
                                                                  schedules with the limits that are `normal`
    {"ask": "alter", "validate_only": false, "entries": [{"entity": {"user": "alice", "client-id": null},
        "set": {"producer_byte_rate": 1048576}, "remove": ["consumer_byte_rate"]}]}

A null name is the default. Whoever may connect to the socket may do all of it (socket.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from sluice.proxy.admin.questions import BadRequest, flag_of, refuse_unknown, rows_of
from sluice.proxy.admin.status.model import MAX_SEARCH
from sluice.proxy.admin.status.service import Sources
from sluice.proxy.admin.top.order import MAX_ROWS, ConnectionSort
from sluice.proxy.admin.top.replication_snapshot import ReplicationTop
from sluice.proxy.admin.top.snapshot import Top
from sluice.proxy.admin.top.throughput import MAX_ROWS as MAX_CONNECTION_ROWS
from sluice.proxy.admin.top.throughput import LiveConnections
from sluice.proxy.connection.rates import AddressBuckets, ConnectionRates
from sluice.proxy.metrics.delayed_time import DelayedTimes
from sluice.proxy.metrics.throttle_log import ThrottleLog
from sluice.proxy.quota_store.client_quotas import Alteration, QuotaApiError
from sluice.proxy.quota_store.service import Listed, QuotaDesk
from sluice.proxy.runtime.log import LineBudget
from sluice.proxy.runtime.watched_file import ReloadStatus
from sluice.proxy.session.producer_ids.shared import ProducerIds
from sluice.proxy.session.replication.followers import Replication
from sluice.quotas.entity import DEFAULT
from sluice.quotas.files.config_error import shown
from sluice.quotas.files.quota_file import OVER_BUDGET_KEY, REFUSE, SCHEDULE_KEY
from sluice.quotas.files.schedule_entries import window_item
from sluice.quotas.limits.limits import QuotaLimits
from sluice.quotas.manager import QuotaManager
from sluice.quotas.names import printable

if TYPE_CHECKING:
    from sluice.proxy.connection.connection import Connection

MAX_ENTITIES: Final = 1_000
"""of one alter"""


class AdminDesk:
    """Answers one request at a time of each client."""

    def __init__(
        self,
        quotas: QuotaManager,
        producer_ids: ProducerIds,
        connections: Callable[[], list[Connection]],
        desk: QuotaDesk | None,
        rates: ConnectionRates | None = None,
        throttle_log: ThrottleLog | None = None,
        replication: Replication | None = None,
        delayed: DelayedTimes | None = None,
        reloads: Mapping[str, Sequence[ReloadStatus]] | None = None,
    ) -> None:
        """`desk`: None: nobody is told or changes limits through this proxy. `rates`: None: as if there were
        no limits for addresses. `throttle_log`: of which the status page tells episodes. `delayed`: of the
        last minute. `reloads`: of the files that are followed, by what they hold."""
        addresses = AddressBuckets if rates is None else rates.buckets
        self.top = Top(quotas, producer_ids, connections, addresses, delayed, reloads or {})
        self.live = LiveConnections(connections)
        log = ThrottleLog(LineBudget()) if throttle_log is None else throttle_log
        self.sources = Sources(
            quotas, producer_ids, connections, addresses, log, replication, delayed, reloads or {}
        )
        """what the status page is made from"""
        self._quotas = desk
        self.replication = ReplicationTop(replication)

    async def connections(self, rows: int, user: object, sort: Any) -> dict[str, Any]:
        """The snapshot of `sluice connections`. Raises BadRequest."""
        if not isinstance(user, str) or len(user) > MAX_SEARCH:
            raise BadRequest(f"user must be a name or a pattern of at most {MAX_SEARCH} characters")
        try:
            order = ConnectionSort.THROUGHPUT if sort == "" else ConnectionSort(sort)
        except ValueError:
            raise BadRequest(f"sort must be one of {', '.join(ConnectionSort)}") from None
        return await self.live.snapshot(rows, user=user, sort=order)

    async def answer(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Answer a request of the admin socket. Raises BadRequest."""
        match request.get("ask"):
            case "top":
                rows = rows_of(request, MAX_ROWS, MAX_ROWS)
                return await self.top.snapshot(rows, why=flag_of(request, "why"))
            case "replication":
                return await self.replication.snapshot(rows_of(request, MAX_ROWS, MAX_ROWS))
            case "connections":
                rows = rows_of(request, MAX_ROWS, MAX_CONNECTION_ROWS)
                return await self.connections(rows, request.get("user", ""), request.get("sort", ""))
            case "describe" | "alter" as asked:
                return await self._of_limits(asked, request)
        raise BadRequest('ask for "top", "connections", "replication", "describe" or "alter"')

    async def _of_limits(self, asked: str, request: Mapping[str, Any]) -> dict[str, Any]:
        if self._quotas is None:
            raise BadRequest("the limits of this proxy are not its own to tell or change")
        try:
            if asked == "alter":
                return await self._alter(self._quotas, request)
            if flag_of(request, "all"):
                whole = await self._quotas.listed(only_kafkas=False)
                return await asyncio.to_thread(_described_whole, *whole)
            _, found = await self._quotas.listed()
            return await asyncio.to_thread(_described, found)
        except QuotaApiError as error:
            raise BadRequest(f"error {error.code}: {error}") from None

    async def _alter(self, quotas: QuotaDesk, request: Mapping[str, Any]) -> dict[str, Any]:
        refuse_unknown(request, ("ask", "entries", "validate_only"))
        validate_only = flag_of(request, "validate_only")
        entries = request.get("entries")
        if not isinstance(entries, list) or len(entries) > MAX_ENTITIES:
            raise BadRequest(f"entries must be a list of at most {MAX_ENTITIES} entities")
        alterations = [_alteration(entry) for entry in entries]
        results = await quotas.alter_locally(alterations, validate_only=validate_only)
        return {
            "results": [
                {"entity": dict(result.parts), "error_code": result.code, "error": result.message}
                for result in results
            ]
        }


def _described(found: Iterable[Listed]) -> dict[str, Any]:
    return {
        "entries": [
            {
                "entity": {key: None if name is DEFAULT else str(name) for key, name in entity.parts.items()},
                "limits": dict(limits),
                "shadow": sorted(shadow),
                **({OVER_BUDGET_KEY: REFUSE} if refuses else {}),
            }
            for entity, limits, shadow, refuses in found
        ]
    }


def _described_whole(limits: QuotaLimits, found: Sequence[Listed]) -> dict[str, Any]:
    answer = _described(found)
    for (entity, *_), entry in zip(found, answer["entries"], strict=True):
        if entity in limits.schedules:
            entry[SCHEDULE_KEY] = [window_item(window) for window in limits.schedules[entity]]
            entry["normal"] = {key: its.normal for key, its in limits.scheduled.get(entity, {}).items()}
    answer["sections"] = {
        "tenants": [{"name": name, "members": list(members)} for name, members in limits.tenants.items()],
        "exempt": [rule.parts for rule in limits.exempt.rules],
    }
    return answer


def _alteration(entry: Any) -> Alteration:
    if not isinstance(entry, dict) or not entry.keys() <= {"entity", "set", "remove"}:
        raise BadRequest("an entry has entity, set and remove")
    entity, limits, gone = entry.get("entity"), entry.get("set", {}), entry.get("remove", [])
    if not isinstance(entity, dict) or not all(
        name is None or isinstance(name, str) for name in entity.values()
    ):
        raise BadRequest("entity must be an object of names, null for the default")
    if not isinstance(limits, dict):
        raise BadRequest("set must be an object of numbers")
    if not isinstance(gone, list) or not all(isinstance(key, str) for key in gone):
        raise BadRequest("remove must be a list of keys")
    ops = [*((key, _limit(key, limit)) for key, limit in limits.items()), *((key, None) for key in gone)]
    return Alteration(tuple(entity.items()), ops)


def _limit(key: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise BadRequest(f"set must be an object of numbers; {printable(key)} is {shown(value)}")
    try:
        return float(value)
    except OverflowError:
        raise BadRequest(f"set: {printable(key)} is too large a number: {shown(value)}") from None
