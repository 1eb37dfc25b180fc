"""What `sluice quotas explain` prints: which limits apply to a client and why, as tables or as JSON."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sluice.proxy.cli.at_broker import BrokerQuotas, named
from sluice.proxy.cli.output import json_text
from sluice.proxy.cli.quotas.sources import Source
from sluice.proxy.cli.top import console_of
from sluice.quotas.entity import DEFAULT, QuotaEntity
from sluice.quotas.files.entries import DEFAULT_NAME, FORWARD, REFUSE
from sluice.quotas.kinds import CLIENT_KINDS, KINDS, KindSpec, QuotaKind
from sluice.quotas.limits.limits import QuotaLimits, nothing_configured
from sluice.quotas.limits.scheduled import told
from sluice.quotas.limits.tables import LevelExplanation, Match
from sluice.quotas.names import printable

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

_UNBOUNDED = 100_000
"""columns that no table needs"""
_OF_ADDRESSES = KINDS[QuotaKind.CONNECTION_CREATION]


@dataclass(frozen=True, slots=True)
class Client:
    """Who is asked about."""

    user: str
    client_id: str
    address: str = ""
    """as limits name it; empty: not known"""


@dataclass(frozen=True, slots=True)
class _Row:
    """What one level says, of clients or of addresses."""

    rule: str
    entity: QuotaEntity
    limit: float | None
    chosen: bool
    shadow: bool
    why: str
    is_kafkas: bool = True

    @classmethod
    def of(cls, level: LevelExplanation) -> _Row:
        rule, is_kafkas = level.level.value, level.level.is_kafkas
        return cls(rule, level.entity, level.limit, level.chosen, level.shadow, level.why, is_kafkas)


class Explanation:
    """All that is told of one client."""

    def __init__(
        self,
        client: Client,
        source: Source,
        limits: QuotaLimits,
        now_unix_s: float,
        broker: BrokerQuotas | None = None,
    ) -> None:
        """`limits`: those of `source` at the instant `now_unix_s`. `broker`: its own, told beside them."""
        self._client = client
        self._source = source
        self._limits = limits
        self._now_unix_s = now_unix_s
        self._broker = broker

    # As JSON ----------------------------------------------------------------------------------------------

    def print_json(self) -> None:
        """One object: the client, its tenant, whether it is exempt, and what the levels say of each quota."""
        client, limits = self._client, self._limits
        rule = limits.exempt.find(client.user, client.client_id, client.address)
        tenant = limits.tenant_of(client.user)
        answer: dict[str, Any] = {
            "source": self._source.name,
            "user": client.user,
            "client_id": client.client_id,
            "address": client.address,
            "tenant": tenant.name if tenant is not None else None,
            "exempt_by": rule.parts if rule is not None else None,
            "quotas": [self._quota(spec) for spec in CLIENT_KINDS],
        }
        if self._broker is not None:
            for spec, quota in zip(CLIENT_KINDS, answer["quotas"], strict=True):
                quota["broker"] = self._broker.as_json(spec, client.client_id, self._enforced(spec))
        if client.address:
            answer["quotas"].append(self._quota_of_address())
        print(json_text(answer, indent=2))

    def _quota(self, spec: KindSpec) -> dict[str, Any]:
        match = self._match(spec)
        return {
            **_quota_json(spec, match.limit if match is not None else None),
            "shadow": match is not None and match.shadow,
            "over_budget": _over_budget(spec, match),
            "rule": match.level.value if match is not None else None,
            "shared_by": named(match.bucket) if match is not None else None,
            "line": self._source.line_of(self._configured(spec), spec.config_key),
            "levels": [self._level_json(row, spec) for row in self._rows(spec)],
        }

    def _quota_of_address(self) -> dict[str, Any]:
        spec = _OF_ADDRESSES
        found = self._limits.ip_limit(self._client.address)
        entity = self._limits.configured_for_address(self._client.address)
        return {
            **_quota_json(spec, None if found is None else found[0]),
            "shadow": found is not None and found[2],
            "over_budget": None,
            "rule": None if found is None else found[1],
            "shared_by": None if found is None else {"ip": self._client.address},
            "line": self._source.line_of(entity, spec.config_key),
            "levels": [self._level_json(row, spec) for row in self._rows_of_address()],
        }

    def _level_json(self, row: _Row, spec: KindSpec) -> dict[str, Any]:
        return {
            "rule": row.rule,
            "kafkas": row.is_kafkas,
            "looked_up": named(row.entity),
            "limit": row.limit,
            "shadow": row.shadow,
            "applies": row.chosen,
            "why": row.why,
            "schedule": self._scheduled(row, spec) or None,
        }

    # For people -------------------------------------------------------------------------------------------

    def print_tables(self) -> None:
        """Where the limits are from, whether the client is exempt, then a table of each quota of which it has
        a limit, the level that applies marked; all other quotas on one line."""
        console = console_of()
        self._print_head(console)
        unlimited = []
        for spec in CLIENT_KINDS:
            at_broker = self._broker is not None and self._broker.match(spec, self._client.client_id)
            if self._match(spec) is None and not at_broker:
                unlimited.append(spec.config_key)
            else:
                self._print_quota(console, spec)
        if self._client.address and self._limits.configured_for_address(self._client.address) is not None:
            self._print_quota_of_address(console)
        elif self._client.address:
            unlimited.append(_OF_ADDRESSES.config_key)
        elif any(entity.ip is not None for entity in self._limits.entries):
            console.print(
                f"{_OF_ADDRESSES.config_key}: is of addresses; --address tells which limit applies."
            )
            console.print()
        if unlimited:
            too = "" if self._broker is None else f", at the broker {self._broker.name}, too"
            console.print(f"[bold]unlimited{_escaped(too)}[/bold]: {', '.join(unlimited)}", soft_wrap=True)

    def _print_head(self, console: Console) -> None:
        client, limits = self._client, self._limits
        console.print(_escaped(self._source.told), soft_wrap=True)
        console.print()
        for hint in hints(client, limits):
            console.print(_escaped(hint), style="yellow", soft_wrap=True)
            console.print()
        rule = limits.exempt.find(client.user, client.client_id, client.address)
        if rule is not None:
            console.print(f"[bold]exempt[/bold]: no limit delays it, by the rule {_escaped(str(rule))}")
            console.print("Without that rule:")
            console.print()
        elif not client.address and any(other.network is not None for other in limits.exempt.rules):
            console.print("Some exempt rules name addresses; --address tells whether one of them applies.")
            console.print()
        tenant = limits.tenant_of(client.user)
        if tenant is not None:
            console.print(_escaped(f"Member of tenant {tenant.name!r}."))
            console.print()

    def _print_quota(self, console: Console, spec: KindSpec) -> None:
        match = self._match(spec)
        verdict = "unlimited"
        if match is not None:
            refuses = "; over budget: refuse" if match.refuses else ""
            verdict = f"{match.limit:,.15g} {spec.limit_unit}, shared by {match.bucket}{refuses}"
            verdict += _in_shadow(is_so=match.shadow)
        self._print_verdict(console, spec, verdict, self._configured(spec))
        if match is not None:
            self._print_rows(console, spec, self._rows(spec))
        if self._broker is not None:
            is_limited = self._broker.match(spec, self._client.client_id) is not None
            told = self._broker.told(spec, self._client.client_id, self._enforced(spec))
            console.print(_escaped(told), style="bold yellow" if is_limited else None, soft_wrap=True)
        console.print()

    def _print_quota_of_address(self, console: Console) -> None:
        spec, address = _OF_ADDRESSES, self._client.address
        found = self._limits.ip_limit(address)
        assert found is not None
        limit, _, shadow = found
        rule = self._limits.exempt.find("", "", address)  # who connects has no name yet
        exempt = "" if rule is None else f"; exempt by the rule {rule}"
        verdict = f"{limit:,.15g} {spec.limit_unit} from ip {address!r}{exempt}{_in_shadow(is_so=shadow)}"
        self._print_verdict(console, spec, verdict, self._limits.configured_for_address(address))
        self._print_rows(console, spec, self._rows_of_address())
        console.print()

    def _print_verdict(
        self, console: Console, spec: KindSpec, verdict: str, entity: QuotaEntity | None
    ) -> None:
        line = self._source.line_of(entity, spec.config_key)
        place = "" if line is None else f" ({self._source.name}:{line})"
        console.print(f"[bold]{spec.config_key}[/bold]: {_escaped(verdict + place)}", soft_wrap=True)

    def _print_rows(self, console: Console, spec: KindSpec, rows: list[_Row]) -> None:
        """A table where each level has room for a line of its own, else a list: a cell in which words are
        broken, or cut, cannot be read."""
        from rich.measure import Measurement
        from rich.padding import Padding

        table = self._table(spec, rows)
        unbounded = console.options.update(max_width=_UNBOUNDED)
        if Measurement.get(console, unbounded, table).maximum <= console.width:
            with console.capture() as captured:
                console.print(table)
            lines = captured.get().splitlines()
            console.file.write("".join(f"{line.rstrip()}\n" for line in lines))
            return
        for row in rows:
            mark, limit = "→" if row.chosen else " ", "" if row.limit is None else f": {_limit_of(row)}"
            why = f"{row.why} {self._scheduled(row, spec)}".rstrip()
            style = "bold" if row.chosen else None
            console.print(_escaped(f"{mark} {row.entity} ({row.rule}){limit}"), style=style, soft_wrap=True)
            if why != nothing_configured(row.entity):
                console.print(Padding(_escaped(why), (0, 0, 0, 4), expand=False), style=style)

    def _table(self, spec: KindSpec, rows: list[_Row]) -> Table:
        from rich.table import Table

        table = Table(box=None, pad_edge=False)
        for title in ("", "rule", "limit", "looked up", "why"):
            table.add_column(title, no_wrap=True, justify="right" if title == "limit" else "left")
        for row in rows:
            table.add_row(
                "→" if row.chosen else "",
                row.rule,
                "" if row.limit is None else _limit_of(row),
                _escaped(str(row.entity)),
                _escaped(f"{row.why} {self._scheduled(row, spec)}".rstrip()),
                style="bold" if row.chosen else None,
            )
        return table

    # What holds -------------------------------------------------------------------------------------------

    def _match(self, spec: KindSpec) -> Match | None:
        return self._limits.resolve(spec.kind, self._client.user, self._client.client_id)

    def _configured(self, spec: KindSpec) -> QuotaEntity | None:
        return self._limits.configured_for(spec.kind, self._client.user, self._client.client_id)

    def _rows(self, spec: KindSpec) -> list[_Row]:
        return [
            _Row.of(level)
            for level in self._limits.explain(spec.kind, self._client.user, self._client.client_id)
        ]

    def _rows_of_address(self) -> list[_Row]:
        key, address = _OF_ADDRESSES.config_key, self._client.address
        chosen = self._limits.configured_for_address(address)
        rows = []
        for rule, entity in (("ip", QuotaEntity(ip=address)), ("default_ip", QuotaEntity(ip=DEFAULT))):
            limit = self._limits.entries.get(entity, {}).get(key)
            shadow = key in self._limits.shadow.get(entity, ())
            if entity == chosen:
                why = f"Applies: the first level in the order that has a {key} for this address."
            elif limit is not None:
                why = f"Has a {key}, but ip comes first in the order."
            else:
                why = nothing_configured(entity)
            rows.append(_Row(rule, entity, limit, entity == chosen, shadow, why))
        return rows

    def _enforced(self, spec: KindSpec) -> float | None:
        """The limit by which the proxy delays this client; None: by none, nor by one in shadow mode."""
        client, match = self._client, self._match(spec)
        if match is None or match.shadow:
            return None
        is_exempt = self._limits.exempt.find(client.user, client.client_id, client.address) is not None
        return None if is_exempt else match.limit

    def _scheduled(self, row: _Row, spec: KindSpec) -> str:
        """What the calendar of the entity whose limit applies says of it."""
        return told(self._limits, row.entity, spec.config_key, self._now_unix_s) if row.chosen else ""


def hints(client: Client, limits: QuotaLimits) -> Iterator[str]:
    """What to ask for in the place of a name that no client has: that of a label, or of the default."""
    tenant = client.user.removeprefix("tenant:")
    if tenant != client.user and tenant in limits.tenants:
        member = next(iter(limits.tenants[tenant]), "MEMBER")
        yield f"{client.user} is what metrics call a tenant; ask for a member: --user {shlex.quote(member)}"
    prefix = client.client_id.removesuffix("*")
    if prefix != client.client_id:
        id_of_it = shlex.quote(f"{prefix}1")
        yield f"{client.client_id} is what metrics call a prefix; ask for a client id: --client-id {id_of_it}"
    if DEFAULT_NAME in {client.user, client.client_id}:
        yield f"{DEFAULT_NAME} is no client's name; ask for one that has no entry of its own."


def _quota_json(spec: KindSpec, limit: float | None) -> dict[str, Any]:
    return {"quota": spec.kind.value, "key": spec.config_key, "unit": spec.limit_unit, "limit": limit}


def _limit_of(row: _Row) -> str:
    return f"{row.limit:,.15g}{' (shadow)' if row.shadow else ''}"


def _in_shadow(*, is_so: bool) -> str:
    return "; in shadow mode: measured and logged, delays nobody" if is_so else ""


def _over_budget(spec: KindSpec, match: Match | None) -> str | None:
    """What becomes of what has no turn in time; None: nothing is limited that could be refused."""
    if match is None or spec.kind is not QuotaKind.PRODUCE:
        return None
    return REFUSE if match.refuses else FORWARD


def _escaped(text: str) -> str:
    from rich.markup import escape

    return escape(printable(text))
