"""A snapshot of `sluice top` as a table for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from sluice.proxy.admin.top.text import amount, duration, printable, who

_SHOWN_CONNECTIONS: Final = 3
_NEAR: Final = 0.8
"""of the limit: shown in yellow"""


def view(snapshot: Mapping[str, Any], *, why: bool = False) -> RenderableType:
    """Head line, table, and with `why` behind it each row's reasons."""
    parts: list[RenderableType] = [_head(snapshot), _table(snapshot["rows"])]
    if why:
        for row in snapshot["rows"]:
            parts.append(Text(f"\n{who(row['bucket'])}: {row['key']}", style="bold"))
            parts += [Text(f"  {printable(line)}") for line in row.get("why", ())]
    return Group(*parts)


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
