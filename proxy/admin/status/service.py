"""What the status page and its API are told, gathered in the proxy's own loop without holding it up.

Each list is walked in steps of about a millisecond, one list at a time, and all of it costs the loop at most
a tenth of its time: who asks in between gets the last one again (`age_ms` tells), or waits for his turn. The
curves cost another fiftieth at most, whether somebody looks at them or not.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from time import monotonic, thread_time, time
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeVar

from sluice.proxy.admin.status.events import Episodes, event_of
from sluice.proxy.admin.status.history import Histories, NewIds
from sluice.proxy.admin.status.model import (
    MAX_LISTED,
    Connections,
    ConnectionsQuery,
    Events,
    FollowerInfo,
    Plan,
    PrincipalDetail,
    Principals,
    PrincipalsQuery,
    ProducerIdsList,
    Query,
    ReplicaInfo,
    ReplicationInfo,
    Summary,
)
from sluice.proxy.admin.status.plan import MAX_BYTES, NO_PLAN, Found, PlanError, PlanReader, find_plan
from sluice.proxy.admin.status.rows import (
    ConnectionList,
    ProducerIdList,
    detail_of,
    id_of,
    page_of,
    principal_of,
    survey_of,
    survey_of_one,
)
from sluice.proxy.admin.top.rows import Survey
from sluice.proxy.admin.top.search import Connected
from sluice.proxy.config.admin import StatusOptions
from sluice.proxy.connection.rates import AddressBuckets
from sluice.proxy.metrics.delayed_time import DelayedTimes
from sluice.proxy.metrics.throttle_log import ThrottleLog
from sluice.proxy.replication.rows import ReplicationSurvey
from sluice.proxy.runtime.file_work import FileWork
from sluice.proxy.runtime.tasks import to_beat_s
from sluice.proxy.runtime.watched_file import ReloadStatus, not_in_force
from sluice.proxy.session.producer_ids.shared import ProducerIds
from sluice.proxy.session.replication.followers import Replication
from sluice.quotas.files.load import read_bytes
from sluice.quotas.manager import QuotaManager
from sluice.quotas.names import clean

_SHARE: Final = 0.1
"""of the loop's time that lists may take"""
_CURVES_SHARE: Final = 0.02
_MIN_AGE_S: Final = 1.0
_MAX_AGE_S: Final = 10.0
"""a list is told again while there is no time for another, but not when it is older"""
_KEPT: Final = 8
"""lists, each an answer to another question"""
_MAX_WAITING: Final = 16
_ROWS_PER_STEP: Final = 10
_PLAN_LOOK_S: Final = 5.0
_ALL: Final = PrincipalsQuery()
_DISTRIBUTION: Final = "kafka-sluice"

_T = TypeVar("_T")


class Busy(Exception):
    """Too many questions wait already."""


class Sources(NamedTuple):
    """What the page of one process is made from: what `sluice top` looks at, and the log of throttling."""

    quotas: QuotaManager
    producer_ids: ProducerIds
    connections: Callable[[], Sequence[Connected]]
    addresses: Callable[[], AddressBuckets]
    throttle_log: ThrottleLog
    replication: Replication | None = None
    """None: no listener of this proxy has followers"""
    delayed: DelayedTimes | None = None
    """of the last minute"""
    reloads: Mapping[str, Sequence[ReloadStatus]] = MappingProxyType({})
    """of the files that are followed"""


class _Made(NamedTuple):
    """A list, when it was made, and for how long the loop was at work."""

    found: Any
    made_s: float
    work_s: float


class StatusDesk:
    """Answers the questions of the page and its API, in one process. `run` keeps the curves."""

    def __init__(
        self, options: StatusOptions, sources: Sources, not_ready: Callable[[], list[str]] = list
    ) -> None:
        """`not_ready`: why no client should be sent here."""
        self._options = options
        self._sources = sources
        self._not_ready = not_ready
        self._histories = Histories(options.interval_s)
        self._new_ids = NewIds(_now_ms())
        self._lock = asyncio.Lock()
        self._waiting = 0
        self._kept: OrderedDict[Hashable, _Made] = OrderedDict()
        self._next_s = 0.0
        self._begun_s = monotonic()
        self._version = version(_DISTRIBUTION)
        self._plan: tuple[Found | None, Plan] = (None, NO_PLAN)
        self._plan_looked_s = float("-inf")
        self._plan_lock = asyncio.Lock()
        self._plan_work: FileWork[Found | None] = FileWork()
        self._text_work: FileWork[bytes] = FileWork()

    async def run(self) -> None:
        """Take a point of each curve, every interval, until cancelled."""
        while True:
            try:
                made = await self._survey(_ALL)
            except Busy:
                await asyncio.sleep(self._options.interval_s)
                continue
            now_ms = _now_ms()
            survey: Survey = made.found
            points = ((id_of(row.kind, row.bucket), row.utilisation, row.delay_ms) for row in survey.rows)
            self._histories.note(points, now_ms)
            for _ in self._new_ids.note_in_steps(list(self._sources.producer_ids.quota.principals()), now_ms):
                await asyncio.sleep(0)
            # A timer that ends a little early would have the place just taken be the next one.
            to_next_s = to_beat_s(self._options.interval_s)
            await asyncio.sleep(max(to_next_s, made.work_s / _CURVES_SHARE))

    # Answers ----------------------------------------------------------------------------------------------

    async def summary(self) -> Summary:
        """The proxy as a whole."""
        made = await self._survey(_ALL)
        survey: Survey = made.found
        reasons = self._not_ready()
        return Summary(
            version=self._version,
            uptime_s=round(monotonic() - self._begun_s, 1),
            ready=not reasons,
            not_ready=reasons,
            not_in_force=[clean(why) for why in not_in_force(self._sources.reloads)],
            pacing=self._sources.quotas.pacing,
            buckets=survey.sensors,
            active_buckets=survey.active,
            throttled_buckets=survey.throttled,
            delayed_buckets_1m=survey.delayed,
            connections=survey.connections,
            throttled_connections=survey.throttled_connections,
            interval_s=self._options.interval_s,
            at=_text_of(time()),
            **_ages(made),
        )

    async def principals(self, query: PrincipalsQuery) -> Principals:
        """A page of buckets. Raises Busy."""
        made = await self._survey(query)
        survey: Survey = made.found
        rows = []
        for number, row in enumerate(page_of(survey.rows, query), start=1):
            history = self._histories.of(id_of(row.kind, row.bucket)) if query.history else None
            rows.append(principal_of(row, history))
            if number % _ROWS_PER_STEP == 0:
                await asyncio.sleep(0)
        return Principals(rows=rows, **_listing(made, query, survey.matching, len(survey.rows)))

    async def principal(self, key: str) -> PrincipalDetail | None:
        """None: no bucket in use has this id. Raises Busy."""
        sources = self._sources
        made = await self._made(
            ("one", key), lambda: self._walk(survey_of_one(key, sources.quotas.max_debt_ms))
        )
        survey: Survey = made.found
        for row in survey.rows:
            return detail_of(row, sources.quotas.limits, self._histories.of(key))
        return None

    async def connections(self, query: ConnectionsQuery) -> Connections:
        """A page of connections. Raises Busy."""

        def make() -> tuple[ConnectionList, Iterator[None]]:
            found = ConnectionList(query.search, throttled=query.throttled)
            return found, found.steps(self._sources.connections(), _now_ms)

        made = await self._made(("connections", query.search, query.throttled), make)
        found: ConnectionList = made.found
        return Connections(
            rows=_page(found.rows, query), **_listing(made, query, found.matching, len(found.rows))
        )

    async def producer_ids(self, query: Query) -> ProducerIdsList:
        """A page of principals whose producer ids are judged. Raises Busy."""
        sources = self._sources

        def make() -> tuple[ProducerIdList, Iterator[None]]:
            found = ProducerIdList(query.search)
            principals = list(sources.producer_ids.quota.principals())
            return found, found.steps(principals, sources.quotas.limits, self._new_ids, _now_ms)

        made = await self._made(("producer ids", query.search), make)
        found: ProducerIdList = made.found
        return ProducerIdsList(
            rows=_page(found.rows, query), **_listing(made, query, found.matching, len(found.rows))
        )

    async def events(self, query: Query) -> Events:
        """A page of episodes of throttling. Raises Busy."""

        def make() -> tuple[Episodes, Iterator[None]]:
            found = Episodes(query.search, self._sources.quotas.limits.tenants)
            return found, found.steps(self._sources.throttle_log.episodes())

        made = await self._made(("events", query.search), make)
        found: Episodes = made.found
        now_ms, now_unix_s = _now_ms(), time()

        def wall_of(at_ms: float) -> str:
            return _text_of(now_unix_s - (now_ms - at_ms) / 1000.0)

        rows = [event_of(episode, made.made_s * 1000.0, wall_of) for episode in _page(found.rows, query)]
        return Events(rows=rows, **_listing(made, query, found.matching, len(found.rows)))

    async def replication(self, query: Query) -> ReplicationInfo:
        """Followers, and a page of what they are behind on. Raises Busy."""
        replication = self._sources.replication

        def make() -> tuple[ReplicationSurvey, Iterator[None]]:
            found = ReplicationSurvey(query.search, MAX_LISTED)
            return found, iter(()) if replication is None else found.steps(replication, _now_ms())

        made = await self._made(("replication", query.search), make)
        found: ReplicationSurvey = made.found
        rows = [
            ReplicaInfo(**{**row, "topic": clean(row["topic"])}) for row in _page(found.partitions, query)
        ]
        return ReplicationInfo(
            leader=found.leader_id,
            throttle=found.limit,
            rate=found.rate,
            move_ratio=found.move_ratio,
            followers=[FollowerInfo(**row) for row in found.followers],
            rows=rows,
            **_listing(made, query, found.matching, len(found.partitions)),
        )

    async def plan(self) -> Plan:
        """The last one; its file is looked at every few seconds at most."""
        where = self._options.plan
        if where is None:
            return NO_PLAN
        async with self._plan_lock:
            if monotonic() - self._plan_looked_s >= _PLAN_LOOK_S:
                self._plan = await self._read_plan(where, *self._plan)
                self._plan_looked_s = monotonic()
            return self._plan[1]

    # Within -----------------------------------------------------------------------------------------------

    async def _read_plan(self, where: Path, before: Found | None, plan: Plan) -> tuple[Found | None, Plan]:
        found = None
        try:
            found = await self._plan_work.run(lambda: find_plan(where))
            if found is None:
                return None, NO_PLAN
            if found == before:
                return before, plan
            path = found.path
            text = (await self._text_work.run(lambda: read_bytes(path, MAX_BYTES))).decode("utf-8")
            reader = PlanReader(found.name)
            await _run(reader.steps(text))
        except (OSError, UnicodeDecodeError, PlanError) as error:
            name = "" if found is None else clean(found.name)
            return found, Plan(state="unusable", problem=clean(str(error)), name=name)
        return found, reader.plan

    async def _survey(self, query: PrincipalsQuery) -> _Made:
        key = ("principals", query.search, query.quota, query.throttled)
        return await self._made(key, lambda: self._walk(survey_of(query, self._sources.quotas.max_debt_ms)))

    def _walk(self, survey: Survey) -> tuple[Survey, Iterator[None]]:
        sources = self._sources
        steps = survey.steps(
            list(sources.quotas.sensors()),
            sources.producer_ids,
            sources.quotas.limits,
            sources.connections,
            _now_ms,
            sources.addresses(),
            sources.delayed,
        )
        return survey, steps

    async def _made(self, key: Hashable, make: Callable[[], tuple[Any, Iterator[None]]]) -> _Made:
        """The list of this key, made now if it is old and there is time. Raises Busy."""
        made = self._usable(key)
        if made is not None:
            return made
        if self._waiting >= _MAX_WAITING:
            raise Busy
        self._waiting += 1
        try:
            async with self._lock:
                made = self._usable(key)
                if made is not None:
                    return made
                await asyncio.sleep(max(0.0, self._next_s - monotonic()))
                found, steps = make()
                work_s = await _run(steps)
        finally:
            self._waiting -= 1
        now_s = monotonic()
        self._next_s = now_s + work_s / _SHARE
        made = self._kept[key] = _Made(found, now_s, work_s)
        self._kept.move_to_end(key)
        while len(self._kept) > _KEPT:
            self._kept.popitem(last=False)
        return made

    def _usable(self, key: Hashable) -> _Made | None:
        """The last one, if it is young enough."""
        made = self._kept.get(key)
        if made is None:
            return None
        now_s = monotonic()
        max_age_s = _MAX_AGE_S if now_s < self._next_s else _MIN_AGE_S
        return made if now_s - made.made_s < max_age_s else None


async def _run(steps: Iterator[None]) -> float:
    """Returns the seconds of work: of the processor, for a busy machine makes no list longer."""
    work_s = 0.0
    over = object()
    while True:
        begun_s = thread_time()
        step = next(steps, over)
        work_s += thread_time() - begun_s
        if step is over:
            return work_s
        await asyncio.sleep(0)


def _page(rows: list[_T], query: Query) -> list[_T]:
    return rows[query.offset : query.offset + query.limit]


def _listing(made: _Made, query: Query, matching: int, listed: int) -> dict[str, Any]:
    return {
        "at": _text_of(time()),
        "offset": query.offset,
        "limit": query.limit,
        "matching": matching,
        "listed": listed,
        **_ages(made),
    }


def _ages(made: _Made) -> dict[str, float]:
    return {
        "age_ms": round((monotonic() - made.made_s) * 1000.0, 1),
        "work_ms": round(made.work_s * 1000.0, 2),
    }


def _now_ms() -> float:
    return monotonic() * 1000.0


def _text_of(unix_s: float) -> str:
    return datetime.fromtimestamp(unix_s, UTC).isoformat(timespec="milliseconds")
