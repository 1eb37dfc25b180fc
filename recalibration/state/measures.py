"""What of the access log each kind of quota counts: SQL over the columns of the roll-up, one row a kind."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from sluice.quotas.kinds import KINDS, QuotaKind
from sluice.usage.access_record import WINDOW_MS

CONNECTION_CLASS: Final = "connection"
_OTHERS: Final = "COALESCE(producer_id_holds, 0) + producer_ids_refused + COALESCE(request_mutes, 0)"
"""of a row's holds, refusals and mutes, those for producer ids and request time; a proxy that did not tell
leaves null"""
_FOR_IDS: Final = (
    "producer_ids_new + producer_ids_forced + producer_ids_refused + COALESCE(producer_id_holds, 0) > 0"
)
"""of such a row's time some may be for producer ids: as much as its requests were held"""
_FAR_ABOVE_S: Final = 2 * WINDOW_MS // 1000
"""a row with as many seconds' bytes is of a window far above its limit: what waited there is taken to have
waited for bytes, or a producer id beside them would hide that"""
_WAITED: Final = (
    "throttle_ms > held_ms OR throttle_ms > 0"
    f" AND (NOT {_FOR_IDS} OR request_bytes > {_FAR_ABOVE_S} * producer_byte_rate)"
)
"""The time of a wait is told with the bytes, when the request is finished; its hold or mute when it begins.
That may be in the window before: by holds and mutes alone such bytes, of which a client can send as many at
once as it likes, were free."""
_TOLD: Final = f"holds + mutes + refusals - ({_OTHERS}) > 0"
_OF_RATE: Final = f"{_TOLD} OR COALESCE({_WAITED}, FALSE)"
"""something waited, or was refused, for the byte rate of the row's class; in rows of admin for mutations"""
_OF_FETCH_RATE: Final = f"{_TOLD} OR COALESCE(throttle_ms > held_ms, FALSE)"
"""the same of Fetches: one that waits for what others of its bucket may bring, and not for the quota, has
that in `held_ms` and `throttle_ms` alike, and in no event. Of a hold in the window before nothing has to be
known: what a held Fetch brings is bounded"""


@dataclass(frozen=True, slots=True)
class Measure:
    """How one kind of quota is measured. Texts are expressions over one row of the roll-up."""

    kind: QuotaKind
    amount: str
    """in the kind's units"""
    api_class: str | None
    """of the rows that it looks at; None: all that clients' requests left"""
    throttled: str
    """whether its quota held, muted or refused anything there"""
    busiest: str = "0D"
    """units in the busiest second, where the log has it"""
    throttle_ms: str = "throttle_ms"
    """for how long its quota held or muted connections"""

    @property
    def window_ms(self) -> int:
        """Rates are taken over this: 10 s, or as long as the quota's own span if that is longer: how many ids
        came in 10 s says nothing about how many may come in an hour."""
        return max(WINDOW_MS, int(KINDS[self.kind].limit_span_s * 1000))


_ROWS: Final = (
    Measure(
        QuotaKind.PRODUCE,
        "CAST(request_bytes AS DOUBLE)",
        "produce",
        _OF_RATE,
        "CAST(peak_bytes_1s AS DOUBLE)",
    ),
    Measure(
        QuotaKind.FETCH,
        "CAST(response_bytes AS DOUBLE)",
        "fetch",
        _OF_FETCH_RATE,
        "CAST(peak_bytes_1s AS DOUBLE)",
    ),
    Measure(
        QuotaKind.REQUEST,
        "request_cost_ms",
        None,
        # Of an older log: Produce and Fetch are muted for their bytes too, and a row does not say for which.
        "COALESCE(request_mutes, IF(api_class IN ('produce', 'fetch'), 0, mutes)) > 0",
        throttle_ms="COALESCE(request_throttle_ms, throttle_ms)",
    ),
    Measure(
        QuotaKind.CONTROLLER_MUTATION,
        "mutations",
        "admin",
        _OF_RATE,
    ),
    Measure(
        QuotaKind.PRODUCER_IDS,
        "CAST(producer_ids_new AS DOUBLE)",
        "produce",
        "producer_ids_refused + producer_ids_forced > 0",
    ),
    Measure(
        QuotaKind.CONNECTION_CREATION,
        "CAST(connections_opened AS DOUBLE)",
        CONNECTION_CLASS,
        "refusals > 0",
    ),
)
MEASURES: Final[Mapping[QuotaKind, Measure]] = MappingProxyType({row.kind: row for row in _ROWS})
