"""A snapshot of `sluice top` as a table for people: a row a line, fewer columns where there is less room."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from rich import box
from rich.cells import cell_len, set_cell_size
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from sluice.proxy.admin.top.text import amount, brief, duration, share, used, who
from sluice.quotas.names import printable

_SHOWN_CONNECTIONS: Final = 3
_LIMIT_FROM: Final = 66
"""characters of width from which the column is there: below, who it is must stay readable"""
_SHARE_FROM: Final = 50
_THROTTLED_FROM: Final = 78
_USED_FROM: Final = 100
_OWES_FROM: Final = 112
_RULE_FROM: Final = 130
_CONNECTIONS_FROM: Final = 170
_BETWEEN: Final = 3
"""characters between two columns"""
_EDGES: Final = 2
WHO_KEEPS: Final = 20
"""characters of who it is, which is what the table is for, before anything else is cut below its least"""
QUOTA_KEEPS: Final = 8
"""`conne…on` and `contr…on` can be told apart"""
LEAST: Final = 5
"""characters of any name"""
_COMMAND: Final = "sluice quotas explain "
"""in the last line of a row's reasons"""
_NEAR: Final = 0.8
"""of the limit: shown in yellow"""


def view(
    snapshot: Mapping[str, Any], *, why: bool = False, width: int = 211, searched: str = ""
) -> RenderableType:
    """Head line, table, and with `why` behind it each row's reasons. `width`: in characters. `searched`: what
    the rows were chosen by, to be named where there are none."""
    if searched and not snapshot["rows"]:
        return Group(_head(snapshot, width), Text(f"\nno bucket matches {printable(searched)}"))
    parts: list[RenderableType] = [
        *(Text(f"not in force: {printable(why)}", style="yellow") for why in snapshot["not_in_force"]),
        _head(snapshot, width),
        table_of(_COLUMNS, snapshot["rows"], width, _style),
    ]
    if why:
        for row in snapshot["rows"]:
            parts.append(Text(f"\n{who(row['bucket'])}: {row['key']}", style="bold"))
            parts += [_reason(printable(line)) for line in row.get("why", ())]
    return Group(*parts)


def _reason(line: str) -> Text:
    """A command is never broken: what is copied has to run. Who prints it lets it go beyond the width."""
    if _COMMAND not in line:
        return Text(f"  {line}")
    return Text(f"  {line}", no_wrap=True, overflow="ignore")


def _head(snapshot: Mapping[str, Any], width: int) -> Text:
    counts = (
        f"{snapshot['delayed_buckets_1m']:,} of {snapshot['active_buckets']:,} buckets delayed in the last "
        f"minute · now {snapshot['throttled_buckets']:,} · "
        f"{snapshot['throttled_connections']:,} of {snapshot['connections']:,} connections"
    )
    if width < _RULE_FROM:
        return Text(counts, no_wrap=True, overflow="ellipsis")
    return Text(f"{counts} · pacing {snapshot['pacing']} · {snapshot['at']}")


def table_of(
    all_columns: Sequence[Column],
    rows: Sequence[Mapping[str, Any]],
    width: int,
    style_of: Callable[[Mapping[str, Any]], str | None],
) -> Table:
    """A row a line; of the columns those that `width` characters have room for."""
    columns = [column for column in all_columns if width >= column.from_width]
    cells = [[column.cell(row) for column in columns] for row in rows]
    if _is_crowded(columns, cells, width):
        cells = [[(column.brief or column.cell)(row) for column in columns] for row in rows]
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    widths = _widths(columns, cells, width)
    for column, column_width in zip(columns, widths, strict=True):
        table.add_column(
            column.title, justify="right" if column.is_figure else "left", no_wrap=True, overflow="ellipsis",
            width=column_width,
        )  # fmt: skip
    for row, texts in zip(rows, cells, strict=True):
        fitting = (cut(text, room) for text, room in zip(texts, widths, strict=True))
        table.add_row(*map(Text, fitting), style=style_of(row))  # as a str, a name could hold markup
    return table


def cut(text: str, width: int) -> str:
    """As it is, or without its middle: names that begin alike differ at their ends."""
    if cell_len(text) <= width:
        return text
    tail = text[-(width // 3) :]
    while cell_len(tail) > width // 3:
        tail = tail[1:]
    return f"{set_cell_size(text, width - 1 - cell_len(tail))}…{tail}"


def _style(row: Mapping[str, Any]) -> str | None:
    is_throttled = row["delay_ms"] > 0.0 and not row["shadow"]
    return "red" if is_throttled else "yellow" if row["utilisation"] >= _NEAR else None


def _needed(columns: Sequence[Column], cells: Sequence[Sequence[str]]) -> list[int]:
    """Characters of each column, were there room for all."""
    return [
        max(cell_len(text) for text in (column.title, *texts))
        for column, *texts in zip(columns, *cells, strict=True)
    ]


def _room(columns: Sequence[Column], width: int) -> int:
    return width - _EDGES - _BETWEEN * (len(columns) - 1)


def _is_crowded(columns: Sequence[Column], cells: Sequence[Sequence[str]], width: int) -> bool:
    """A name would have to be shorter than it keeps, if all else stood there whole."""
    needed = _needed(columns, cells)
    kept = (
        min(need, column.keeps) if column.keeps and not column.is_first_cut else need
        for column, need in zip(columns, needed, strict=True)
    )
    return sum(kept) > _room(columns, width)


def _widths(columns: Sequence[Column], cells: Sequence[Sequence[str]], width: int) -> list[int]:
    """Figures have what they need; names share what is left, and no more than they need. What is cut first
    is, so far as the others do not have what they keep."""
    needed = _needed(columns, cells)
    keeps = [min(column.keeps, need) for column, need in zip(columns, needed, strict=True)]
    left = _room(columns, width) - sum(need for need, kept in zip(needed, keeps, strict=True) if not kept)
    giving = sorted(
        (index for index, kept in enumerate(keeps) if kept),
        key=lambda index: (not columns[index].is_first_cut, needed[index]),
    )
    for number, index in enumerate(giving):
        later = giving[number + 1 :]
        is_first_cut = columns[index].is_first_cut
        share = left if is_first_cut else left // (len(later) + 1)
        room = min(max(share, keeps[index]), left - sum(keeps[other] for other in later))
        least = keeps[index] if is_first_cut else min(LEAST, needed[index])
        needed[index] = max(min(needed[index], room), least)
        left -= needed[index]
    return needed


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


class Column(NamedTuple):
    """One column of the table."""

    title: str
    cell: Callable[[Mapping[str, Any]], str]
    from_width: int = 0
    is_figure: bool = True
    keeps: int = 0
    """characters, while there is room for so many; 0: it is never cut"""
    is_first_cut: bool = False
    brief: Callable[[Mapping[str, Any]], str] | None = None
    """the same in fewer characters, where there is too little room"""


def quota_column(cell: Callable[[Mapping[str, Any]], str], from_width: int = 0) -> Column:
    """Which quota it is; cut before who it is."""
    return Column("quota", cell, from_width, is_figure=False, keeps=QUOTA_KEEPS, is_first_cut=True)


_COLUMNS: Final = (
    Column("who", lambda row: who(row["bucket"]), is_figure=False, keeps=WHO_KEEPS),
    quota_column(lambda row: row["quota"] + (" (shadow)" if row["shadow"] else "")),
    Column("rule", lambda row: str(row["rule"]), _RULE_FROM, is_figure=False),
    Column(
        "limit", lambda row: amount(row["limit"], row["unit"]), _LIMIT_FROM,
        brief=lambda row: brief(amount(row["limit"], row["unit"])),
    ),
    Column(
        "used", lambda row: used(row["used"], row["unit"]), _USED_FROM,
        brief=lambda row: brief(used(row["used"], row["unit"])),
    ),
    Column("of limit", lambda row: f"{row['utilisation']:,.0%}", _SHARE_FROM),
    Column("delayed", lambda row: share(row["delayed_share_1m"])),
    Column("owes", lambda row: duration(row["delay_ms"]), _OWES_FROM),
    Column(
        "throttled", lambda row: f"{row['throttled_connections']:,}/{row['connections']:,}", _THROTTLED_FROM
    ),
    Column("connections", _connections, _CONNECTIONS_FROM, is_figure=False, keeps=LEAST),
)  # fmt: skip
