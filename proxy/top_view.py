"""A snapshot of `sluice top` as a table for people. What in names is not printable is escaped."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

_SHORT_UNITS: Final = {
    "percent of one broker thread": "%",
    "partitions created or deleted per second": "partitions/s",
    "new producer ids per hour": "ids/h",
    "new connections per second": "connections/s",
}
_SI: Final = ((1e9, "GB/s"), (1e6, "MB/s"), (1e3, "kB/s"))
_SHOWN_CONNECTIONS: Final = 3
_NEAR: Final = 0.8
"""of the limit: shown in yellow"""
_MS_PER: Final = ((3_600_000.0, "h"), (60_000.0, "min"), (1_000.0, "s"))


def view(snapshot: Mapping[str, Any], *, why: bool = False) -> RenderableType:
    """Head line, table, and with `why` behind it each row's reasons."""
    parts: list[RenderableType] = [_head(snapshot), _table(snapshot["rows"])]
    if why:
        for row in snapshot["rows"]:
            parts.append(Text(f"\n{who(row['bucket'])}: {row['key']}", style="bold"))
            parts += [Text(f"  {printable(line)}") for line in row.get("why", ())]
    return Group(*parts)


def who(bucket: Mapping[str, str]) -> str:
    """`user alice, client-id app`."""
    return ", ".join(f"{key} {printable(name)}" for key, name in bucket.items()) or "everybody"


def printable(name: str) -> str:
    """A name that does nothing to a terminal."""
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode()
        for character in name.encode(errors="replace").decode()
    )


def amount(value: float, unit: str) -> str:
    """A rate with its unit, as short as can be: `1.05 MB/s`, `50 %`."""
    if unit == "bytes per second":
        for factor, name in _SI:
            if value >= factor:
                return f"{value / factor:,.2f} {name}"
        return f"{value:,.0f} B/s"
    return f"{value:,.4g} {_SHORT_UNITS.get(unit, unit)}"


def duration(ms: float) -> str:
    """`523 ms`, `3.2 s`, `1.5 h`; nothing for none."""
    for factor, name in _MS_PER:
        if ms >= factor:
            return f"{ms / factor:,.1f} {name}"
    return f"{ms:,.0f} ms" if ms > 0.0 else ""


def _head(snapshot: Mapping[str, Any]) -> Text:
    return Text(
        f"{snapshot['throttled_buckets']:,} of {snapshot['active_buckets']:,} active buckets throttled"
        f" · {snapshot['throttled_connections']:,} of {snapshot['connections']:,} connections"
        f" · pacing {snapshot['pacing']} · {snapshot['at']}"
    )


def _table(rows: list[Mapping[str, Any]]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("who", overflow="fold", ratio=3)
    table.add_column("quota", no_wrap=True)
    table.add_column("rule", overflow="fold")
    for title in ("limit", "used", "of limit", "owes", "throttled"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("connections", overflow="fold", ratio=3)
    for row in rows:
        is_throttled = row["delay_ms"] > 0.0 and not row["shadow"]
        style = "red" if is_throttled else "yellow" if row["utilisation"] >= _NEAR else None
        cells = (
            who(row["bucket"]),
            row["quota"] + (" (shadow)" if row["shadow"] else ""),
            row["rule"],
            amount(row["limit"], row["unit"]),
            amount(row["used"], row["unit"]),
            f"{row['utilisation']:.0%}",
            duration(row["delay_ms"]),
            f"{row['throttled_connections']}/{row['connections']}",
            _connections(row),
        )
        table.add_row(*map(Text, cells), style=style)  # as a str, a name could hold markup
    return table


def _connections(row: Mapping[str, Any]) -> str:
    """The longest throttled first."""
    shown = [
        f"{printable(one['peer'])} {one['state']} {duration(one['for_ms'])}".rstrip()
        if one["throttled_by"]
        else printable(one["peer"])
        for one in row["shown"][:_SHOWN_CONNECTIONS]
    ]
    more = row["connections"] - len(shown)
    return ", ".join(shown) + (f" and {more:,} more" if more else "")
