"""What `sluice quotas explain` prints: which limit applies to a client and why, as tables or as JSON."""

from __future__ import annotations

import json
from typing import Any

from sluice.proxy.cli.at_broker import BrokerQuotas, named
from sluice.quotas.files.entries import FORWARD, REFUSE
from sluice.quotas.kinds import CLIENT_KINDS, KindSpec, QuotaKind
from sluice.quotas.limits.limits import LevelExplanation, QuotaLimits
from sluice.quotas.limits.scheduled import told
from sluice.quotas.limits.tables import Match

_PIPE_WIDTH = 180
"""columns where no terminal gives a width"""


def print_json(
    limits: QuotaLimits,
    user: str,
    client_id: str,
    address: str = "",
    *,
    now_unix_s: float,
    broker: BrokerQuotas | None = None,
) -> None:
    """One object: the client, its tenant, whether it is exempt, and for each quota what the levels say.

    `limits`: those of the instant `now_unix_s`. `broker`: its own quotas, told beside them.
    """
    rule = limits.exempt.find(user, client_id, address)
    tenant = limits.tenant_of(user)
    answer: dict[str, Any] = {
        "user": user,
        "client_id": client_id,
        "address": address,
        "tenant": tenant.name if tenant is not None else None,
        "exempt_by": rule.parts if rule is not None else None,
        "quotas": [_explained(spec, limits, user, client_id, now_unix_s) for spec in CLIENT_KINDS],
    }
    if broker is not None:
        for spec, quota in zip(CLIENT_KINDS, answer["quotas"], strict=True):
            ours = _enforced(limits, spec, user, client_id, address)
            quota["broker"] = broker.as_json(spec, client_id, ours)
    print(json.dumps(answer, indent=2, ensure_ascii=False))


def print_tables(
    limits: QuotaLimits,
    user: str,
    client_id: str,
    address: str = "",
    *,
    now_unix_s: float,
    broker: BrokerQuotas | None = None,
) -> None:
    """Whether the client is exempt, then one table a quota, the level that applies marked.

    `limits`: those of the instant `now_unix_s`. `broker`: its own quotas, told behind each table.
    """
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=_PIPE_WIDTH)
    rule = limits.exempt.find(user, client_id, address)
    if rule is not None:
        console.print(f"[bold]exempt[/bold]: no limit delays it, by the rule {escape(str(rule))}")
        console.print("Without that rule:")
        console.print()
    elif not address and any(other.network is not None for other in limits.exempt.rules):
        console.print("Some exempt rules name addresses; --address tells whether one of them applies.")
        console.print()
    tenant = limits.tenant_of(user)
    if tenant is not None:
        console.print(escape(f"Member of tenant {tenant.name!r}."))
        console.print()
    for spec in CLIENT_KINDS:
        verdict = _verdict(spec, limits, user, client_id)
        console.print(f"[bold]{spec.config_key}[/bold]: {escape(verdict)}")
        table = Table(box=None, pad_edge=False)
        for title in ("", "level", "limit"):
            table.add_column(title, no_wrap=True, justify="right" if title == "limit" else "left")
        for title in ("looked up", "why"):
            table.add_column(title)
        for level in limits.explain(spec.kind, user, client_id):
            table.add_row(
                "→" if level.chosen else "",
                level.level.value,
                "" if level.limit is None else f"{level.limit:,.15g}{' (shadow)' if level.shadow else ''}",
                escape(str(level.entity)),
                escape(f"{level.why} {_scheduled(limits, level, spec, now_unix_s)}".rstrip()),
                style="bold" if level.chosen else None,
            )
        console.print(table)
        if broker is not None:
            ours = _enforced(limits, spec, user, client_id, address)
            is_limited = broker.match(spec, client_id) is not None
            style = "bold yellow" if is_limited else None
            console.print(escape(broker.told(spec, client_id, ours)), style=style, soft_wrap=True)
        console.print()


def _verdict(spec: KindSpec, limits: QuotaLimits, user: str, client_id: str) -> str:
    match = limits.resolve(spec.kind, user, client_id)
    if match is None:
        return "unlimited"
    shadow = "; in shadow mode: measured and logged, delays nobody" if match.shadow else ""
    refuses = "; over budget: refuse" if match.refuses else ""
    return f"{match.limit:,.15g} {spec.limit_unit}, shared by {match.bucket}{refuses}{shadow}"


def _enforced(limits: QuotaLimits, spec: KindSpec, user: str, client_id: str, address: str) -> float | None:
    """The limit by which the proxy delays this client; None: by none, nor by one in shadow mode."""
    match = limits.resolve(spec.kind, user, client_id)
    if match is None or match.shadow or limits.exempt.find(user, client_id, address) is not None:
        return None
    return match.limit


def _over_budget(spec: KindSpec, match: Match | None) -> str | None:
    """What becomes of what has no turn in time; None: nothing is limited that could be refused."""
    if match is None or spec.kind is not QuotaKind.PRODUCE:
        return None
    return REFUSE if match.refuses else FORWARD


def _scheduled(limits: QuotaLimits, level: LevelExplanation, spec: KindSpec, now_unix_s: float) -> str:
    """What the calendar of the entity whose limit applies says of it."""
    return told(limits, level.entity, spec.config_key, now_unix_s) if level.chosen else ""


def _explained(
    spec: KindSpec, limits: QuotaLimits, user: str, client_id: str, now_unix_s: float
) -> dict[str, Any]:
    match = limits.resolve(spec.kind, user, client_id)
    return {
        "quota": spec.kind.value,
        "key": spec.config_key,
        "unit": spec.limit_unit,
        "limit": match.limit if match is not None else None,
        "shadow": match is not None and match.shadow,
        "over_budget": _over_budget(spec, match),
        "rule": match.level.value if match is not None else None,
        "shared_by": named(match.bucket) if match is not None else None,
        "levels": [
            {
                "rule": level.level.value,
                "kafkas": level.level.is_kafkas,
                "looked_up": named(level.entity),
                "limit": level.limit,
                "shadow": level.shadow,
                "applies": level.chosen,
                "why": level.why,
                "schedule": _scheduled(limits, level, spec, now_unix_s) or None,
            }
            for level in limits.explain(spec.kind, user, client_id)
        ],
    }
