"""The status page as it is served: one HTML file with its style and script in it, and what there is just now.

So it says the same without script, offline and when it is saved. Style and script are allowed by their hashes
alone: whatever got into the page otherwise would not run. Pure.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from html import escape
from pathlib import Path
from typing import Final
from urllib.parse import urlencode

from sluice.proxy.admin.status.cells import (
    clock,
    connection_row,
    drawn,
    event_row,
    follower_row,
    plan_row,
    principal_row,
    producer_ids_row,
    replica_row,
    text,
)
from sluice.proxy.admin.status.model import (
    Connections,
    Direction,
    Events,
    Listing,
    Order,
    PageQuery,
    Plan,
    PrincipalDetail,
    Principals,
    ProducerIdsList,
    ReplicationInfo,
    Summary,
)
from sluice.proxy.admin.top.text import BYTES_PER_S, SHORT_UNITS, amount
from sluice.quotas.kinds import KINDS

_FOLDER: Final = Path(__file__).parent
_STYLE: Final = (_FOLDER / "status_page.css").read_text(encoding="utf-8")
_PROGRAM: Final = "".join(
    (_FOLDER / name).read_text(encoding="utf-8") for name in ("status_cells.js", "status_page.js")
)
_SCRIPT: Final = _PROGRAM.replace("{UNITS}", json.dumps(SHORT_UNITS))
_PIECES: Final = re.split(r"\{\{(\w+)\}\}", (_FOLDER / "status_page.html").read_text(encoding="utf-8"))
_DEFAULTS: Final = PageQuery().model_dump(mode="json")


def _hash(content: str) -> str:
    return f"'sha256-{b64encode(sha256(content.encode()).digest()).decode()}'"


CONTENT_SECURITY_POLICY: Final = "; ".join((
    "default-src 'none'",
    f"script-src {_hash(_SCRIPT)}",
    f"style-src {_hash(_STYLE)}",
    "img-src data:",
    "connect-src 'self'",
    "form-action 'self'",
    "base-uri 'none'",
    "frame-ancestors 'none'",
))  # fmt: skip

Column = tuple[str, str, Order | None]
"""(title, class, sorted by)"""
_PRINCIPALS: Final[Sequence[Column]] = (
    ("Who", "", Order.WHO),
    ("Quota", "", Order.QUOTA),
    ("Used", "num", Order.USED),
    ("Limit", "num", Order.LIMIT),
    ("Of limit", "share", Order.UTILISATION),
    ("Delayed, last minute", "num", Order.DELAYED),
    ("Owes", "num", Order.THROTTLE),
    ("Rule", "", Order.RULE),
    ("Connections", "num", Order.CONNECTIONS),
    ("Last minutes", "", None),
)
_EVENTS: Final = (
    ("Who", "", None), ("Began (UTC)", "num", None), ("State", "", None), ("Quota, rule", "", None),
    ("Lasted", "num", None), ("Delays", "num", None), ("Refused", "num", None), ("Why it began", "", None),
)  # fmt: skip
_CONNECTIONS: Final = (
    ("Peer", "", None), ("User", "", None), ("Client id", "", None), ("State", "", None),
    ("Waits for", "num", None), ("In flight", "num", None), ("Requests", "num", None),
)  # fmt: skip
_IDS: Final = (
    ("User", "", None), ("Rule", "", None), ("Limit", "num", None), ("Known ids", "num", None),
    ("New ids", "num", None), ("Tokens", "num", None), ("Waiting", "num", None), ("Pairs", "num", None),
    ("Forced", "num", None),
)  # fmt: skip
_FOLLOWERS: Final = (
    ("Follower", "", None), ("Limit", "num", None), ("Rate", "num", None), ("Behind on", "num", None),
    ("Lag in records", "num", None), ("Left", "num", None), ("Ends in", "num", None),
)  # fmt: skip
_REPLICAS: Final = (
    ("Topic", "", None), ("Partition", "num", None), ("Follower", "num", None),
    ("Lag in records", "num", None), ("Done", "share", None), ("Left", "num", None),
    ("Written meanwhile", "num", None), ("Ends in", "num", None),
)  # fmt: skip
_PLAN: Final = (
    ("Who", "", None), ("Limit", "", None), ("Now", "num", None), ("Proposed", "num", None),
    ("Change", "num", None), ("Reason", "", None), ("Review", "", None),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class PageData:
    """All that the page shows."""

    query: PageQuery
    summary: Summary
    principals: Principals
    detail: PrincipalDetail | None
    events: Events
    connections: Connections
    producer_ids: ProducerIdsList
    replication: ReplicationInfo
    plan: Plan


# Flat on purpose: one case for each mark in status_page.html, in the page's order.
def render(data: PageData) -> Iterator[str]:
    """The page in pieces, of which each takes well below a millisecond to make."""
    query, summary = data.query, data.summary
    for number, piece in enumerate(_PIECES):
        if number % 2 == 0:
            yield piece
            continue
        match piece:
            case "style":
                yield _STYLE
            case "script":
                yield _SCRIPT
            case "state":
                yield state(summary)
            case "at":
                yield clock(summary.at)
            case "tiles":
                yield tiles(data)
            case "search":
                yield escape(query.search)
            case "quotas":
                yield _quotas(query)
            case "throttled":
                yield " checked" if query.throttled else ""
            case "principals":
                yield from _principals(data)
            case "why_shown":
                yield f' data-bucket="{data.detail.id}"' if data.detail else " hidden"
            case "why":
                yield why(data.detail, address(query, bucket="")) if data.detail else ""
            case "throttling":
                rows = map(event_row, data.events.rows)
                note = (
                    "Episodes of a bucket: one begins with a delay, and is over when there was none for 5 s."
                )
                yield from _table("events", _EVENTS, rows, caption(data.events, "episodes"), note)
            case "connections":
                yield from _connections(data)
            case "producer_ids":
                rows = map(producer_ids_row, data.producer_ids.rows)
                note = "Of principals whose producer ids are limited or counted. Known ids pass freely."
                yield from _table("ids", _IDS, rows, caption(data.producer_ids, "principals"), note)
            case "replication":
                yield from _replication(data.replication)
            case "plan":
                yield from _plan(data.plan)
            case "version":
                yield escape(summary.version)


def state(summary: Summary) -> str:
    """Ready or not, and why not."""
    shown = '<span class="tag good">ready</span>'
    if not summary.ready:
        shown = f'<span class="tag warn">not ready</span> {text("; ".join(summary.not_ready))}'
    if summary.not_in_force:
        shown += f' <span class="tag warn">not in force</span> {text("; ".join(summary.not_in_force))}'
    return shown


def tiles(data: PageData) -> str:
    """The figures at the head."""
    summary = data.summary
    shown = (
        (
            "Delayed",
            f"{summary.delayed_buckets_1m:,}",
            f"of {summary.active_buckets:,} active buckets, in the last minute; "
            f"{summary.throttled_buckets:,} now",
        ),
        ("Buckets", f"{summary.buckets:,}", "limits in use, one a bucket"),
        ("Connections", f"{summary.connections:,}", f"{summary.throttled_connections:,} throttled"),
        ("Pacing", escape(summary.pacing), "how delays are made"),
    )
    return "".join(
        f"<div><dt>{name}</dt><dd>{value}<small>{more}</small></dd></div>" for name, value, more in shown
    )


def address(query: PageQuery, **other: object) -> str:
    """The page's address with another question: what is not the default alone is said."""
    asked = {**query.model_dump(mode="json"), **other}
    said = {
        key: str(value).lower() if isinstance(value, bool) else value
        for key, value in asked.items()
        if key not in {"history", "limit"} and value != _DEFAULTS[key] and value is not None
    }
    return f"status?{urlencode(said)}" if said else "status"


def caption(listing: Listing, what: str) -> str:
    """Which of how many are shown."""
    count = len(getattr(listing, "rows", ()))
    if not listing.matching:
        return f"No {what}"
    shown = f"{listing.offset + 1:,} to {listing.offset + count:,}" if count else "None"
    rest = "" if listing.listed == listing.matching else f"; the first {listing.listed:,} can be seen"
    return f"{shown} of {listing.matching:,} {what}{rest}"


def why(detail: PrincipalDetail, close: str) -> str:
    """A bucket's reasons. `close`: the address of the page without them."""
    head = f'<h2 id="why-title" tabindex="-1">Why: {text(detail.who)}, {escape(detail.key)}</h2>'
    large = f'<div class="drawn">{drawn(detail.history)}</div>' if detail.history else ""
    reasons = "".join(f"<li>{text(line)}</li>" for line in detail.why)
    rows = map(connection_row, detail.shown)
    table = "".join(_table("shown", _CONNECTIONS, rows, "Its connections, at most 20"))
    link = f'<p class="pages"><a id="close" href="{escape(close)}">Close</a></p>'
    return f'{head}{large}<ul class="reasons">{reasons}</ul>{table}{link}'


def _quotas(query: PageQuery) -> str:
    options = [("", "all")] + [
        (kind.value, f"{kind.value} ({spec.config_key})") for kind, spec in KINDS.items()
    ]
    chosen = "" if query.quota is None else query.quota.value
    return "".join(
        f'<option value="{value}"{" selected" if value == chosen else ""}>{name}</option>'
        for value, name in options
    )


def _principals(data: PageData) -> Iterator[str]:
    query, found = data.query, data.principals
    note = (
        "Quota buckets that were used in the last minute, as in <code>sluice top</code>. What is used is a "
        "mean over 10 to 20 s; the dashed line of a curve is the limit, marks at its foot are debts."
    )
    rows = (principal_row(row, address(query, bucket=row.id) + "#why") for row in found.rows)
    yield from _table("buckets", _PRINCIPALS, rows, caption(found, "buckets"), note, query)
    yield _pages("buckets-pages", "Pages of principals", query, found, "offset")


def _connections(data: PageData) -> Iterator[str]:
    found = data.connections
    note = "The longest throttled first, then those with most requests that the broker has not answered."
    yield from _table(
        "clients", _CONNECTIONS, map(connection_row, found.rows), caption(found, "connections"), note
    )
    yield _pages("clients-pages", "Pages of connections", data.query, found, "connections_offset")


def _pages(name: str, label: str, query: PageQuery, found: Listing, key: str) -> str:
    ways = (
        ("Previous", max(0, found.offset - found.limit), found.offset > 0),
        ("Next", found.offset + found.limit, found.offset + found.limit < found.listed),
    )
    links = [
        f'<a href="{escape(address(query, **{key: offset}))}" data-offset="{offset}">{way}</a>'
        for way, offset, is_there in ways
        if is_there
    ]
    return f'<nav class="pages" id="{name}" aria-label="{label}">{"".join(links)}</nav>'


def _replication(found: ReplicationInfo) -> Iterator[str]:
    if found.leader is None:
        yield '<p class="note">No listener of this proxy has followers: the section replication of the '
        yield "configuration names none.</p>"
        return
    limit = "no limit" if found.throttle is None else f"limit {amount(found.throttle, BYTES_PER_S)}"
    ratio = found.move_ratio
    moved = "" if ratio is None else f" · {ratio * 100.0:,.1f} % of all partitions are being moved"
    told = f"Leader {found.leader} · {limit} · {amount(found.rate, BYTES_PER_S)} now{moved}"
    yield from _table("followers", _FOLLOWERS, map(follower_row, found.followers), told)
    note = (
        "Throttled partitions that a follower is behind on, those with most left first. The end is told by "
        "the limit, less what producers write meanwhile."
    )
    rows = map(replica_row, found.rows)
    yield from _table("replicas", _REPLICAS, rows, caption(found, "partitions"), note)


def _plan(plan: Plan) -> Iterator[str]:
    if plan.state == "none":
        yield '<p class="note">None: admin.status.plan names no folder, or no plan is there yet.</p>'
        return
    if plan.state == "unusable":
        yield f'<p class="note">It cannot be shown: {text(plan.name)} {text(plan.problem)}</p>'
        return
    facts = (
        ("Date", text(plan.date)), ("Run", text(plan.name)), ("Limits", f"{plan.entities:,}"),
        ("Changes", f"{plan.changes:,}"), ("To be reviewed", f"{plan.reviews:,}"),
        ("Log files", f"{plan.log_files:,}"), ("Damaged", f"{plan.damaged_files:,}"),
    )  # fmt: skip
    shown_facts = "".join(f"<div><dt>{name}</dt><dd>{value}</dd></div>" for name, value in facts)
    yield f'<dl class="facts">{shown_facts}</dl>'
    shown = f"{len(plan.rows):,} changes and reviews: what is to be reviewed first, then the largest changes"
    yield from _table("changes", _PLAN, map(plan_row, plan.rows), shown)


def _table(
    name: str,
    columns: Sequence[Column],
    rows: Iterator[str],
    told: str,
    note: str = "",
    query: PageQuery | None = None,
) -> Iterator[str]:
    """`query`: of a table that can be sorted."""
    if note:
        yield f'<p class="note">{note}</p>'
    yield (
        f'<div class="scroll" role="region" aria-labelledby="{name}-caption" tabindex="0"><table id="{name}">'
        f'<caption id="{name}-caption">{told}</caption><thead><tr>'
    )
    yield "".join(_head(column, query) for column in columns)
    yield "</tr></thead><tbody>"
    some = False
    for row in rows:
        some = True
        yield row
    if not some:
        yield f'<tr data-key=""><td class="empty" colspan="{len(columns)}">Nothing to show.</td></tr>'
    yield "</tbody></table></div>"


def _head(column: Column, query: PageQuery | None) -> str:
    title, name, order = column
    shape = f' class="{name}"' if name else ""
    if query is None or order is None:
        return f'<th scope="col"{shape}>{title}</th>'
    is_sorted, is_down = query.sort is order, query.order is Direction.DESC
    first = Direction.DESC if name else Direction.ASC  # figures from the highest, words from A
    other = first if not is_sorted else Direction.ASC if is_down else Direction.DESC
    link = address(query, sort=order.value, order=other.value, offset=0)
    sort = f' aria-sort="{"descending" if is_down else "ascending"}"' if is_sorted else ""
    data = f'data-sort="{order.value}" data-first="{first.value}"'
    return f'<th scope="col"{shape}{sort} {data}><a href="{escape(link)}">{title}</a></th>'
