"""Why a row of `sluice top` says what it says: the level that applies, the numbers behind it. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from sluice.quotas.kinds import KINDS, QuotaKind, Scope
from sluice.quotas.limits.limits import QuotaLimits
from sluice.quotas.limits.scheduled import told_now

if TYPE_CHECKING:
    from sluice.proxy.admin.top.rows import Row


def why(row: Row, limits: QuotaLimits) -> list[str]:
    """Each decision behind a row, in sentences: the level that applies, the arithmetic, each connection."""
    spec = KINDS[row.kind]
    is_address = spec.scope is Scope.IPS
    lines = (
        [f"{row.rule}: {row.limit:,.15g} {spec.limit_unit}."] if is_address else list(_levels(row, limits))
    )
    unit = spec.amount_unit
    lines.append(
        f"charged {row.charged:,.15g} {unit} since the bucket began; lately {row.used:,.6g} of "
        f"{row.limit:,.15g} {spec.limit_unit} = {row.utilisation:.1%}"
    )
    if row.kind is QuotaKind.PRODUCER_IDS:
        lines.append(f"tokens {row.tokens:,.3f}: {row.waiting} requests wait for the turn of their ids")
    elif is_address and row.delay_ms > 0.0:
        lines.append(
            f"tokens {row.tokens:,.6g} of the 1 that a connection takes: the next one is let in within "
            f"{row.delay_ms:,.1f} ms; until then who connects is left unserved, and closed"
        )
    elif row.delay_ms > 0.0:
        rate = spec.rate_per_s(row.limit)
        verdict = "would be paid, but shadow mode delays nobody" if row.shadow else "is paid"
        lines.append(
            f"tokens {row.tokens:,.6g} {unit}: {-row.tokens:,.6g} ÷ {rate:,.6g} per second = "
            f"{row.delay_ms:,.1f} ms until the debt {verdict}"
        )
    else:
        lines.append(f"tokens {row.tokens:,.6g} {unit}: so much may pass at once")
    for connection in row.shown:
        if connection.throttled_by:
            what = "its request waits" if connection.state == "holding" else "nothing is read from it for"
            tail = f"{connection.for_ms:,.1f} ms more"
            tail += " for its turn" if connection.state == "holding" else ""
            lines.append(f"{connection.peer} ({connection.user}/{connection.client_id}): {what} {tail}")
    return lines


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
