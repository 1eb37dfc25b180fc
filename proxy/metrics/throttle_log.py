"""Throttle events → log lines that say when an entity's throttling begins and ends, at a bounded rate.

An entity here is a quota bucket: the connections that share one sensor. Its throttling has ended when nothing
of it was delayed for QUIET_MS; it gets at most one line per LINE_INTERVAL_MS, so throttling that comes and
goes is one long episode. What a limit in shadow mode would have done makes episodes of its own, in the same
way, under names that say so. Of producer ids the lines name who brings most of those that wait: client id and
address, at the beginning, every MINTERS_INTERVAL_MS, at the end; an episode may last as long as a rogue does.
The line of the beginning also names the client whose request it was, where the bucket's own names do not say
it (`by_user`, `by_client_id`); the line of the end tells a limit that is another by then (`limit_now_…`).
Values in, lines out: knows no clock and no log.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, TypeAlias

from sluice.protocol.names import api_name
from sluice.proxy.runtime.log import LineBudget
from sluice.quotas.entity import QuotaEntity, QuotaLevel
from sluice.quotas.kinds import KINDS
from sluice.quotas.limits.client_ids import MAX_CLIENT_ID
from sluice.usage.records import EventKind, ThrottleEvent

QUIET_MS: Final = 5_000.0
LINE_INTERVAL_MS: Final = 10_000.0
MINTERS_INTERVAL_MS: Final = 60_000.0
MAX_MINTERS: Final = 16
"""of one episode, counted at once"""
MAX_ENTITIES: Final = 1_000
"""followed at once; clients can mint entities through a default: the rest shows in metrics only"""

MAX_ENDED: Final = 500
"""episodes that are over and still told to who asks; the latest"""

Fields: TypeAlias = dict[str, str | int | float]
ThrottleLine: TypeAlias = tuple[str, Fields]
"""event name, fields"""
LEVEL_BY_RULE: Final[dict[str, QuotaLevel]] = {level.value: level for level in QuotaLevel}
_UNITS: Final = {kind.value: spec.log_units for kind, spec in KINDS.items()}
_NEVER_MS: Final = float("-inf")


class _Minters:
    """Whose producer ids wait or are refused most: the frequent ones of any number, in fixed space.

    Misra and Gries, "Finding repeated elements", 1982: who brings more than one in MAX_MINTERS + 1 is found.
    """

    __slots__ = ("_counts", "_last")

    def __init__(self) -> None:
        self._counts: dict[tuple[str, str], int] = {}
        self._last = ("", "")

    def add(self, client_id: str, address: str) -> None:
        self._last = key = (client_id[:MAX_CLIENT_ID], address)
        counts = self._counts
        if key in counts or len(counts) < MAX_MINTERS:
            counts[key] = counts.get(key, 0) + 1
        else:
            self._counts = {one: count - 1 for one, count in counts.items() if count > 1}

    def top(self) -> tuple[str, str]:
        """(client id, address); where everybody has a name of his own, the last one's."""
        counts = self._counts
        return max(counts, key=counts.__getitem__) if counts else self._last


@dataclass(frozen=True, slots=True)
class ThrottleEpisode:
    """What became of one entity's throttling, so far; times are monotonic."""

    event: ThrottleEvent
    """the first"""
    entity: QuotaEntity
    until_ms: float
    """the end of its latest delay"""
    delays: int
    delayed_ms: float
    """of all its connections together"""
    refused: int
    minter: tuple[str, str]
    """of producer ids, who brings most of those that wait: (client id, address)"""

    @property
    def is_shadow(self) -> bool:
        return self.event.kind is EventKind.SHADOW


class _Episode:
    """One entity that is, or was until lately, throttled."""

    __slots__ = (
        "active",
        "begin_logged",
        "begun_ms",
        "delay_ms",
        "entity",
        "event",
        "events",
        "line_ms",
        "minters",
        "refused",
        "until_ms",
    )

    def __init__(self, event: ThrottleEvent, entity: QuotaEntity) -> None:
        self.entity = entity
        self.line_ms = _NEVER_MS
        self.begin(event)

    @property
    def is_shadow(self) -> bool:
        return self.event.kind is EventKind.SHADOW

    def begin(self, event: ThrottleEvent) -> None:
        self.active = True
        self.begin_logged = False
        self.event = event
        self.begun_ms = event.begun_ms
        self.until_ms = event.begun_ms
        self.events = 0
        self.delay_ms = 0.0
        self.refused = 0
        self.minters = _Minters() if event.address else None

    def told(self) -> ThrottleEpisode:
        """As it is now; names are cut, for many of these are kept."""
        event = self.event
        if len(event.client_id) > MAX_CLIENT_ID:
            event = event._replace(client_id=event.client_id[:MAX_CLIENT_ID])
        minter = ("", "") if self.minters is None else self.minters.top()
        return ThrottleEpisode(
            event, _cut(self.entity), self.until_ms, self.events, self.delay_ms, self.refused, minter
        )

    def add(self, event: ThrottleEvent) -> None:
        if event.reason:
            self.refused += 1
        elif not event.continues:
            self.events += 1
        if self.minters is not None:
            self.minters.add(event.client_id, event.address)
        self.delay_ms += event.delay_ms
        self.until_ms = max(self.until_ms, event.begun_ms + event.delay_ms)


def _cut(entity: QuotaEntity) -> QuotaEntity:
    client_id = entity.client_id
    if isinstance(client_id, str) and len(client_id) > MAX_CLIENT_ID:
        return entity._replace(client_id=client_id[:MAX_CLIENT_ID])
    return entity


def bucket_of(event: ThrottleEvent) -> QuotaEntity:
    """Whose connections share the limit that the event is of."""
    if event.bucket is not None:
        return event.bucket
    level = LEVEL_BY_RULE[event.rule]
    return QuotaEntity(event.user if level.has_user else None, event.client_id if level.has_client else None)


def whom(quota: str, rule: str, entity: QuotaEntity) -> Fields:
    """The fields that say which limit of whom."""
    fields: Fields = {"quota": quota, "rule": rule}
    if entity.user is not None:
        fields["user"] = str(entity.user)
    if entity.client_id is not None:
        fields["client_id"] = str(entity.client_id)
    return fields


def limit_field(quota: str, limit: float, name: str = "limit") -> Fields:
    """The limit, with its unit in the key; nothing if it is not told."""
    return {f"{name}_{_UNITS[quota][0]}": round(limit, 3)} if limit else {}


def begun_by(event: ThrottleEvent, entity: QuotaEntity) -> Fields:
    """The user and client id of the event's request, as far as they are not the bucket's own names."""
    fields: Fields = {}
    if entity.user != event.user:
        fields["by_user"] = event.user
    if entity.client_id != event.client_id:
        fields["by_client_id"] = event.client_id[:MAX_CLIENT_ID]
    return fields


def charged_field(event: ThrottleEvent) -> Fields:
    """What the request was charged, likewise."""
    unit = _UNITS[event.quota][1]
    charged = event.charged or (event.charged_bytes if unit == "bytes" else 0)
    return {f"charged_{unit}": round(charged, 3)} if charged else {}


class ThrottleLog:
    """Follows episodes of throttling; `due` gives the lines to write now."""

    def __init__(
        self, budget: LineBudget, limit_now: Callable[[ThrottleEvent], float | None] | None = None
    ) -> None:
        """`limit_now`: the limit in force for an event's client, in its kind's unit; None: there is none."""
        self._budget = budget
        self._limit_now = limit_now
        self._episodes: dict[tuple[str, QuotaEntity, bool], _Episode] = {}
        self._ended: deque[ThrottleEpisode] = deque(maxlen=MAX_ENDED)

    def note(self, event: ThrottleEvent) -> None:
        """Take in one event."""
        entity = bucket_of(event)
        key = (event.quota, entity, event.kind is EventKind.SHADOW)
        episode = self._episodes.get(key)
        if episode is None:
            if len(self._episodes) >= MAX_ENTITIES:
                return
            episode = self._episodes[key] = _Episode(event, entity)
        elif not episode.active:
            episode.begin(event)
        episode.add(event)

    def episodes(self) -> Iterator[ThrottleEpisode]:
        """Those that go on, and the latest that are over: what the lines tell, and told or not. May be walked
        in steps."""
        active = [episode for episode in self._episodes.values() if episode.active]
        ended = list(self._ended)
        yield from (episode.told() for episode in active)
        yield from ended

    def due(self, now_ms: float) -> Iterator[ThrottleLine]:
        """The lines to write now; to be called a few times a second."""
        forgotten = []
        for key, episode in self._episodes.items():
            may_write = now_ms - episode.line_ms >= LINE_INTERVAL_MS
            if not episode.active:
                if may_write:
                    forgotten.append(key)
                continue
            ended = now_ms - episode.until_ms >= QUIET_MS
            if ended and not episode.begin_logged:
                # Over before its line could be written: the end alone would tell nothing.
                episode.active = False
                self._ended.append(episode.told())
                self._budget.suppress()
            elif may_write and (ended or not episode.begin_logged) and self._budget.has_room(now_ms):
                self._budget.take(now_ms)
                episode.line_ms = now_ms
                yield self._end(episode) if ended else self._begin(episode)
            elif (
                episode.minters is not None
                and now_ms - episode.line_ms >= MINTERS_INTERVAL_MS
                and self._budget.has_room(now_ms)
            ):
                self._budget.take(now_ms)
                episode.line_ms = now_ms
                yield "throttling_goes_on", {**self._whom(episode), **self._figures(episode)}
        for key in forgotten:
            del self._episodes[key]

    def _begin(self, episode: _Episode) -> ThrottleLine:
        """Says why: the limit, and what its first request was charged."""
        episode.begin_logged = True
        name = "would_be_throttled" if episode.is_shadow else "throttling_began"
        event = episode.event
        by = begun_by(event, episode.entity) if episode.minters is None else {}
        fields = {**self._whom(episode), **by, "api": api_name(event.api_key), **charged_field(event)}
        if event.reason:
            fields["reason"] = event.reason
        else:
            fields["delay_ms"] = round(event.delay_ms, 1)
        return name, fields

    def _end(self, episode: _Episode) -> ThrottleLine:
        episode.active = False
        self._ended.append(episode.told())
        fields = {**self._whom(episode), **self._present_limit(episode.event), **self._figures(episode)}
        return "would_be_throttled_ended" if episode.is_shadow else "throttling_ended", fields

    def _present_limit(self, event: ThrottleEvent) -> Fields:
        """What the limit is by now, if it is another than at the episode's begin."""
        if self._limit_now is None or not event.limit:
            return {}
        now = self._limit_now(event)
        if now is None:
            return {"limit_now": "none"}
        return limit_field(event.quota, now, "limit_now") if now != event.limit else {}

    def _figures(self, episode: _Episode) -> Fields:
        fields: Fields = {
            "lasted_s": round((episode.until_ms - episode.begun_ms) / 1000.0, 1),
            "delays": episode.events,
            "delayed_s": round(episode.delay_ms / 1000.0, 1),
        }
        if episode.minters is not None:
            fields["refused"] = episode.refused
        return fields

    def _whom(self, episode: _Episode) -> Fields:
        event = episode.event
        fields = {**whom(event.quota, event.rule, episode.entity), **limit_field(event.quota, event.limit)}
        if episode.minters is not None:
            fields["client_id"], fields["address"] = episode.minters.top()
        suppressed = self._budget.suppressed()
        if suppressed:
            fields["lines_suppressed"] = suppressed
        return fields
