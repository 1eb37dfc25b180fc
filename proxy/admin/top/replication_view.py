"""A snapshot of replication as tables for people (`sluice top --replication`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from sluice.proxy.admin.top.text import BYTES_PER_S, amount, duration
from sluice.quotas.names import printable


def replication_view(snapshot: Mapping[str, Any]) -> RenderableType:
    """Head line, followers, and the partitions that they are behind on."""
    if snapshot["leader"] is None:
        return Text("no listener of this proxy has followers (the section `replication`)")
    return Group(_head(snapshot), _followers(snapshot), _partitions(snapshot))


def _head(snapshot: Mapping[str, Any]) -> Text:
    limit = "no limit" if snapshot["limit"] is None else f"limit {amount(snapshot['limit'], BYTES_PER_S)}"
    ratio = snapshot["move_ratio"]
    moving = "" if ratio is None else f" · {ratio:.1%} of all partitions are being moved"
    return Text(
        f"leader {snapshot['leader']} · {limit} · {amount(snapshot['rate'], BYTES_PER_S)} now{moving}"
    )


def _table(*titles: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for title in titles:
        table.add_column(title, justify="left" if title in {"follower", "topic"} else "right", no_wrap=True)
    return table


def _followers(snapshot: Mapping[str, Any]) -> Table:
    table = _table("follower", "limit", "rate", "behind on", "lag (records)", "left", "ends in")
    for row in snapshot["followers"]:
        table.add_row(
            str(row["follower"]),
            "" if row["limit"] is None else amount(row["limit"], BYTES_PER_S),
            amount(row["rate"], BYTES_PER_S),
            f"{row['waiting']:,}",
            f"{row['lag_records']:,}",
            _left(row),
            _ends(row),
            style="yellow" if row["waiting"] else None,
        )
    return table


def _partitions(snapshot: Mapping[str, Any]) -> Table:
    table = _table("topic", "partition", "follower", "offset", "high watermark", "left", "ends in")
    for row in snapshot["partitions"]:
        cells = (
            printable(row["topic"]),
            str(row["partition"]),
            str(row["follower"]),
            f"{row['offset']:,}",
            f"{row['high_watermark']:,}",
            _left(row),
            _ends(row),
        )
        table.add_row(*map(Text, cells))
    return table


def _left(row: Mapping[str, Any]) -> str:
    return "?" if row["left_bytes"] is None else f"{row['left_bytes'] / 1e6:,.1f} MB"


def _ends(row: Mapping[str, Any]) -> str:
    return "" if row["ends_in_s"] is None else duration(row["ends_in_s"] * 1000.0)
