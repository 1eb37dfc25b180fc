"""Episodes of throttling, as the log tells of them → rows of the status page, with their why. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from sluice.protocol.names import api_name
from sluice.proxy.admin.status.model import MAX_LISTED, Event
from sluice.proxy.admin.top.search import own_names
from sluice.proxy.admin.top.text import amount, duration, who
from sluice.proxy.metrics.throttle_log import QUIET_MS, ThrottleEpisode
from sluice.quotas.kinds import KINDS, KindSpec
from sluice.quotas.names import clean, printable
from sluice.usage.records import EventKind, ThrottleEvent

EPISODES_PER_STEP: Final = 200
_NO_TENANTS: Final[Mapping[str, Sequence[str]]] = MappingProxyType({})
_SPECS: Final[dict[str, KindSpec]] = {kind.value: spec for kind, spec in KINDS.items()}


class Episodes:
    """One look at all of them, made by running `steps` to its end."""

    def __init__(self, search: str = "", tenants: Mapping[str, Sequence[str]] = _NO_TENANTS) -> None:
        """`search`: part of a name. `tenants`: the members of each, by whose names its buckets are found."""
        self.rows: list[ThrottleEpisode] = []
        """the latest to begin first; at most MAX_LISTED"""
        self.matching = 0
        self._search = search.casefold()
        self._tenants = tenants

    def steps(self, episodes: Iterable[ThrottleEpisode]) -> Iterator[None]:
        """Find those that fit, in steps. `episodes`: ThrottleLog.episodes."""
        for number, episode in enumerate(episodes, start=1):
            if self._fits(episode):
                self.rows.append(episode)
            if number % EPISODES_PER_STEP == 0:
                yield
        self.matching = len(self.rows)
        self.rows.sort(key=lambda episode: episode.event.begun_ms, reverse=True)
        del self.rows[MAX_LISTED:]

    def _fits(self, episode: ThrottleEpisode) -> bool:
        """Part of a name of its bucket, its members, its client or its address."""
        event, parts = episode.event, episode.entity.parts
        members = self._tenants.get(str(parts.get("tenant", "")), ())
        names = (*own_names(parts), *members, event.user, event.client_id, *episode.minter)
        return not self._search or any(self._search in name.casefold() for name in names)


def event_of(episode: ThrottleEpisode, now_ms: float, wall_of: Callable[[float], str]) -> Event:
    """`wall_of`: monotonic ms → the time of day, as text."""
    event = episode.event
    bucket = {part: clean(str(name)) for part, name in episode.entity.parts.items()}
    client_id, address = episode.minter if any(episode.minter) else (event.client_id, event.address)
    return Event(
        quota=event.quota,
        rule=event.rule,
        who=who(bucket),
        bucket=bucket,
        shadow=episode.is_shadow,
        active=now_ms - episode.until_ms < QUIET_MS,
        began=wall_of(event.begun_ms),
        lasted_s=round((min(episode.until_ms, now_ms) - event.begun_ms) / 1000.0, 1),
        delays=episode.delays,
        delayed_s=round(episode.delayed_ms / 1000.0, 1),
        refused=episode.refused,
        client_id=clean(client_id),
        address=address,
        why=_why(event),
    )


def _why(event: ThrottleEvent) -> str:
    """`Produce of 4,096 bytes by alice/app was beyond 1.05 MB/s (rule user): nothing more was read …`."""
    spec = _SPECS[event.quota]
    by = f"{printable(event.user)}/{printable(event.client_id)}"
    charged = event.charged or event.charged_bytes
    unit = "new producer id" if charged == 1 and "ids" in spec.amount_unit else spec.amount_unit
    what = (
        f"{api_name(event.api_key)} of {charged:,.15g} {unit} by {by}" if charged else api_name(event.api_key)
    )
    beyond = f"was beyond {amount(event.limit, spec.limit_unit)} (rule {event.rule})"
    took = duration(event.delay_ms) or "0 ms"
    if event.reason:
        return f"{what} {beyond} and was refused: {event.reason}."
    if event.kind is EventKind.SHADOW:
        return f"{what} {beyond}; in shadow mode nothing was done, else it had cost {took}."
    if event.kind is EventKind.HOLD:
        return f"{what} {beyond}: it waited up to {took} for its turn."
    if event.kind is EventKind.REFUSAL:
        return f"{what} {beyond} and was refused; nothing more was read for {took}."
    return f"{what} {beyond}: it went on, and nothing more was read for {took}."
