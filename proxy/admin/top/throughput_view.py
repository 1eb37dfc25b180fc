"""A snapshot of live connections as a table for people: `sluice connections`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from rich.console import Group, RenderableType
from rich.text import Text

from sluice.proxy.admin.top.text import BYTES_PER_S, amount, duration
from sluice.proxy.admin.top.view import LEAST, WHO_KEEPS, Column, quota_column, table_of
from sluice.quotas.names import printable

_PEER_FROM: Final = 72
"""characters of width from which the column is there: below, who it is must stay readable"""
_IN_FLIGHT_FROM: Final = 90
_REQUESTS_FROM: Final = 104
_STATE_FROM: Final = 122
_SOFTWARE_FROM: Final = 212
"""more than a pipe has, where names are to stay whole"""


def connections_view(snapshot: Mapping[str, Any], *, width: int = 211, searched: str = "") -> RenderableType:
    """Head line and table. `searched`: what the rows were chosen by, to be named where there are none."""
    if searched and not snapshot["rows"]:
        return Group(_head(snapshot, searched), Text(f"\nno connection matches {printable(searched)}"))
    return Group(
        _head(snapshot, searched),
        table_of(_COLUMNS, snapshot["rows"], width, lambda row: "red" if row["throttled_by"] else None),
    )


def _head(snapshot: Mapping[str, Any], searched: str) -> Text:
    shown = f"{len(snapshot['rows']):,} of {snapshot['matching']:,} connections"
    rates = f"in {amount(snapshot['bytes_in_per_s'], BYTES_PER_S)} · out " + amount(
        snapshot["bytes_out_per_s"], BYTES_PER_S
    )
    of_all = f" · {snapshot['connections']:,} in all" if searched else ""
    return Text(f"{shown} · {rates}{of_all}", no_wrap=True, overflow="ellipsis")


def _who(row: Mapping[str, Any]) -> str:
    return f"{printable(row['user'])}/{printable(row['client_id'])}"


def _delay(row: Mapping[str, Any]) -> str:
    return duration(row["for_ms"]) if row["throttled_by"] else ""


_COLUMNS: Final = (
    Column("user/client-id", _who, is_figure=False, keeps=WHO_KEEPS),
    Column("peer", lambda row: printable(row["peer"]), _PEER_FROM, is_figure=False, keeps=LEAST),
    Column("in", lambda row: amount(row["bytes_in_per_s"], BYTES_PER_S)),
    Column("out", lambda row: amount(row["bytes_out_per_s"], BYTES_PER_S)),
    Column("requests/s", lambda row: f"{row['requests_per_s']:,.0f}", _REQUESTS_FROM),
    Column("in flight", lambda row: f"{row['in_flight']:,}", _IN_FLIGHT_FROM),
    Column("waits for", _delay),
    quota_column(lambda row: str(row["throttled_by"]), _STATE_FROM),
    Column("client", lambda row: printable(row["software"]), _SOFTWARE_FROM, is_figure=False, keeps=LEAST),
    Column("state", lambda row: row["state"].replace("_", " "), _STATE_FROM, is_figure=False),
)
