"""One row of `sluice top`: what it holds, and why it says so (the level that applies, the numbers). Pure."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from sluice.proxy.metrics.delayed_time import NOT_DELAYED, Delayed
from sluice.quotas.kinds import KINDS, QuotaKind, Scope
from sluice.quotas.limits.limits import QuotaLimits
from sluice.quotas.limits.scheduled import told_now
from sluice.quotas.names import clean
from sluice.quotas.numbers import number

MAX_CONNECTIONS: Final = 20
"""shown of one row; the longest throttled first"""


@dataclass(slots=True)
class ConnectionRow:
    """One connection of a bucket."""

    peer: str
    user: str
    client_id: str
    state: str
    """reading, muted, holding (a Produce waits for its turn), awaiting_broker, ending"""
    throttled_by: str
    """the kind whose delay it sits out; "": none"""
    for_ms: float
    """how much longer"""
    in_flight: int
    requests: int

    def to_json(self) -> dict[str, Any]:
        """As in the snapshot."""
        return {
            "peer": self.peer,
            "user": clean(self.user),
            "client_id": clean(self.client_id),
            "state": self.state,
            "throttled_by": self.throttled_by,
            "for_ms": round(self.for_ms, 1),
            "in_flight": self.in_flight,
            "requests": self.requests,
        }


@dataclass(slots=True)
class Row:
    """One bucket of one kind."""

    kind: QuotaKind
    bucket: dict[str, str]
    """by the keys of the quota file"""
    rule: str
    limit: float
    """in the kind's limit_unit"""
    shadow: bool
    tokens: float
    delay_ms: float
    utilisation: float
    used: float
    """in the kind's limit_unit: the mean of the last 10 to 20 s"""
    charged: float
    """units since the bucket began, less what was given back"""
    forgiven: float = 0.0
    """units of debt beyond pacing.max_debt_s"""
    delayed: Delayed = NOT_DELAYED
    """of the last minute"""
    waiting: int = 0
    """requests that wait for the turn of their producer ids"""
    connections: int = 0
    throttled_connections: int = 0
    shown: list[ConnectionRow] = field(default_factory=list)

    def add(self, connection: ConnectionRow) -> None:
        """One of its connections."""
        self.connections += 1
        if connection.throttled_by:
            self.throttled_connections += 1
        shown = self.shown
        shown.append(connection)
        if len(shown) > 2 * MAX_CONNECTIONS:
            self.trim()

    def trim(self) -> None:
        """Keep those that are shown."""
        self.shown.sort(key=lambda row: (-row.for_ms, row.peer))
        del self.shown[MAX_CONNECTIONS:]

    def to_json(self, limits: QuotaLimits | None = None, members: Sequence[str] = ()) -> dict[str, Any]:
        """As in the snapshot; with `limits`, which are in force, also why. `members`: of its tenant."""
        spec = KINDS[self.kind]
        found: dict[str, Any] = {
            "quota": self.kind.value,
            "key": spec.config_key,
            "unit": spec.limit_unit,
            "bucket": {key: clean(name) for key, name in self.bucket.items()},
            "rule": self.rule,
            "limit": self.limit,
            "shadow": self.shadow,
            "used": round(self.used, 3),
            "utilisation": round(self.utilisation, 4),
            "tokens": round(self.tokens, 3),
            "delay_ms": round(self.delay_ms, 1),
            "delayed_share_1m": round(self.delayed.share, 4),
            "delayed_s_1m": round(self.delayed.seconds, 3),
            "charged": round(self.charged, 3),
            "forgiven": round(self.forgiven, 3),
            "waiting": self.waiting,
            "connections": self.connections,
            "throttled_connections": self.throttled_connections,
            "shown": [connection.to_json() for connection in self.shown],
        }
        if members:
            found["members"] = list(members)
        if limits is not None:
            found["why"] = why(self, limits)
        return found


def why(row: Row, limits: QuotaLimits) -> list[str]:
    """Each decision behind a row, in sentences: the level that applies, the arithmetic, each connection."""
    spec = KINDS[row.kind]
    is_address = spec.scope is Scope.IPS
    lines = (
        [f"{row.rule}: {row.limit:,.15g} {spec.limit_unit}."] if is_address else list(_levels(row, limits))
    )
    unit = spec.amount_unit
    lately = (
        f"{number(row.used)} ids of the burst are gone, {row.utilisation:,.1%} of it"
        if row.kind is QuotaKind.PRODUCER_IDS
        else f"lately {number(row.used)} of {row.limit:,.15g} {spec.limit_unit} = {row.utilisation:,.1%}"
    )
    lines.append(f"charged {number(row.charged, 15)} {unit} since the bucket began; {lately}")
    if row.kind is QuotaKind.PRODUCER_IDS:
        lines.append(f"tokens {row.tokens:,.3f}: {row.waiting} requests wait for the turn of their ids")
    elif is_address and row.delay_ms > 0.0:
        lines.append(
            f"tokens {number(row.tokens)} of the 1 that a connection takes: the next one is let in within "
            f"{row.delay_ms:,.1f} ms; until then who connects is left unserved, and closed"
        )
    elif row.delay_ms > 0.0:
        rate = spec.rate_per_s(row.limit)
        verdict = "would be paid, but shadow mode delays nobody" if row.shadow else "is paid"
        lines.append(
            f"tokens {number(row.tokens)} {unit}: {number(-row.tokens)} ÷ {number(rate)} per second = "
            f"{row.delay_ms:,.1f} ms until the debt {verdict}"
        )
    else:
        in_shadow = "; in shadow mode all passes, and nothing is owed" if row.shadow else ""
        lines.append(f"tokens {number(row.tokens)} {unit}: so much may pass at once{in_shadow}")
    for connection in row.shown:
        if connection.throttled_by:
            what = "its request waits" if connection.state == "holding" else "nothing is read from it for"
            tail = f"{connection.for_ms:,.1f} ms more"
            tail += " for its turn" if connection.state == "holding" else ""
            who = f"{clean(connection.user)}/{clean(connection.client_id)}"
            lines.append(f"{connection.peer} ({who}): {what} {tail}")
    lines.extend(_to_ask_further(row, limits))
    return lines


def _to_ask_further(row: Row, limits: QuotaLimits) -> Iterator[str]:
    """The command that tells every level, also those without a limit; of one who charges this bucket."""
    user, client_id = _somebody(row, limits)
    if not user:  # nobody is connected whose name could be given
        return
    asked = ["--user", user]
    if client_id:
        asked += ["--client-id", client_id]
    if "ip" in row.bucket and row.shown:
        asked += ["--address", row.shown[0].peer.rpartition(":")[0]]
    yield f"every level and its entry: sluice quotas explain {shlex.join(asked)} --config FILE"


def _levels(row: Row, limits: QuotaLimits) -> Iterator[str]:
    """The one that applies, and those with a limit that it comes before."""
    spec = KINDS[row.kind]
    user, client_id = _somebody(row, limits)
    for level in limits.explain(row.kind, user, client_id):
        if level.chosen or level.limit is not None:
            number = "" if level.limit is None else f" {level.limit:,.15g} {spec.limit_unit}."
            scheduled = told_now(limits, level.entity, spec.config_key)
            yield f"{level.level.value} ({level.entity}):{number} {level.why} {scheduled}".rstrip()


def _somebody(row: Row, limits: QuotaLimits) -> tuple[str, str]:
    """A user and client id that charge this bucket: the levels are looked up for a connection."""
    if row.shown:
        return row.shown[0].user, row.shown[0].client_id
    bucket = row.bucket
    members = limits.tenants.get(bucket.get("tenant", ""), ("",))
    return bucket.get("user", members[0]), bucket.get("client-id", bucket.get("client-id-prefix", ""))
