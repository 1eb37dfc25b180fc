"""Cells of the status page's tables as HTML. Every text goes through `text` or `html.escape`. Pure.

status_page.js makes the same of the API's answers; deploy/checks/status_page.py compares the two.
"""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import Final

from sluice.proxy.admin.status.history import POINTS
from sluice.proxy.admin.status.model import (
    ConnectionInfo,
    Event,
    FollowerInfo,
    History,
    PlanChange,
    Principal,
    ProducerIdsOf,
    ReplicaInfo,
)
from sluice.proxy.admin.top.text import BYTES_PER_S, LEAST_SHARE, amount, duration, used
from sluice.quotas.names import printable

NEAR: Final = 0.8
"""of a limit: shown in another colour"""
NONE: Final = '<span class="soft">–</span>'
_JOINED: Final = 3
"""points: so near to each other they are joined, for one or two may be missed"""
_WIDTH: Final = 120
_HEIGHT: Final = 28


def text(name: str) -> str:
    """A name: nothing in it is markup, turns the line's order around, or is invisible."""
    return f"<bdi>{escape(printable(name))}</bdi>"


def words(label: str) -> str:
    """A label that may be broken at its underscores, where a column is narrow."""
    return escape(label).replace("_", "_<wbr>")


def named(name: str) -> str:
    """The same of a name that may be empty."""
    return text(name) if name else '<span class="soft">(none)</span>'


def row_of(key: str, head: str, cells: Iterable[tuple[str, str]]) -> str:
    """`key`: by which the script finds the row again; `cells`: (class, HTML)."""
    shown = "".join(f'<td class="{name}">{cell}</td>' if name else f"<td>{cell}</td>" for name, cell in cells)
    return f'<tr data-key="{escape(key)}"><th scope="row" class="name">{head}</th>{shown}</tr>'


def principal_row(row: Principal, link: str) -> str:
    """`link`: to its reasons."""
    head = f'<a href="{escape(link)}">{text(row.who)}</a>'
    shadow = ' <span class="tag plain">shadow</span>' if row.shadow else ""
    throttled = row.throttled_connections
    some = f' <span class="soft">({throttled:,} throttled)</span>' if throttled else ""
    cells = (
        ("", f"{words(row.quota)}{shadow}"),
        ("num", used(row.used, row.unit)),
        ("num", amount(row.limit, row.unit)),
        ("", use(row)),
        ("num", delayed(row)),
        ("num", throttle(row)),
        ("", words(row.rule) or NONE),
        ("num", f"{row.connections:,}{some}"),
        ("", curve(row.history) if row.history else NONE),
    )
    return row_of(row.id, head, cells)


def delayed(row: Principal) -> str:
    """For how much of the last minute."""
    if not row.delayed_share_1m:
        return NONE
    in_all = duration(row.delayed_s_1m * 1000.0)
    part = percent(row.delayed_share_1m) if row.delayed_share_1m >= LEAST_SHARE else "&lt;1 %"
    return f'{part} <span class="soft">({in_all} in all)</span>'


def use(row: Principal) -> str:
    """How much of the limit is used."""
    is_over = row.utilisation > 1.0 or (row.delay_ms > 0.0 and not row.shadow)
    level = " over" if is_over else " near" if row.utilisation >= NEAR else ""
    return bar(row.utilisation, level)


def throttle(row: Principal) -> str:
    """How long the next request would wait."""
    waiting = f' <span class="soft">{row.waiting:,} wait</span>' if row.waiting else ""
    if row.delay_ms <= 0.0:
        return NONE + waiting
    took = duration(row.delay_ms)
    if row.shadow:
        return f'<span class="tag plain">would be {took}</span>{waiting}'
    return f'<span class="tag bad">{took}</span>{waiting}'


def bar(share: float, level: str = "") -> str:
    """A bar, full at 1, and the share in figures."""
    return (
        '<div class="use">'
        '<svg class="bar" viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true">'
        '<rect class="track" width="100" height="10"></rect>'
        f'<rect class="fill{level}" width="{min(100.0, share * 100.0):.0f}" height="10"></rect></svg>'
        f"<span>{percent(share)}</span></div>"
    )


def percent(share: float) -> str:
    """A share as people read it: `83 %`."""
    return f"{share * 100.0:,.0f} %"


def curve(history: History, *, large: bool = False) -> str:
    """Utilisation over time against the limit (dashed), and when it owed (marks at the foot)."""
    points = history.utilisation
    seen = [point for point in points if point is not None]
    top = max(1.0, *seen, 1.0) * 1.05
    line, last = [], -_JOINED
    for number, point in enumerate(points):
        if point is not None:
            at = f"{number * _WIDTH / (POINTS - 1):.1f} {_HEIGHT - 2 - (_HEIGHT - 4) * point / top:.1f}"
            line.append(("L" if number - last < _JOINED else "M") + at)
            last = number
    limit_y = f"{_HEIGHT - 2 - (_HEIGHT - 4) / top:.1f}"
    held = [number for number, delay_ms in enumerate(history.delay_ms) if delay_ms]
    marks = "".join(f"M{number * _WIDTH / POINTS:.0f} {_HEIGHT}v-3h1v3z" for number in held)
    return (
        f'<svg class="curve{" large" if large else ""}" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
        f'preserveAspectRatio="none" role="img" aria-label="{told(history)}">'
        f'<path class="limit" d="M0 {limit_y}H{_WIDTH}"></path>'
        f'<path class="line" d="{"".join(line)}"></path><path class="held" d="{marks}"></path></svg>'
    )


def drawn(history: History) -> str:
    """A large curve, with what it tells in words below."""
    return f'{curve(history, large=True)}<p class="note">{told(history)}</p>'


def told(history: History) -> str:
    """A curve in words."""
    seen = [point for point in history.utilisation if point is not None]
    held = sum(bool(delay_ms) for delay_ms in history.delay_ms)
    span = f"Last {POINTS * history.interval_s / 60.0:.0f} minutes"
    if not seen:
        return f"{span}: nothing seen"
    return f"{span}: at most {percent(max(seen))} of the limit, in debt at {held} of {len(seen)} points"


def event_row(row: Event) -> str:
    """A row of the table of throttling: one episode."""
    state = '<span class="tag bad">goes on</span>' if row.active else '<span class="tag good">over</span>'
    if row.shadow:
        state = f'<span class="tag plain">shadow, {"goes on" if row.active else "over"}</span>'
    delays = f'{row.delays:,} <span class="soft">({duration(row.delayed_s * 1000.0) or "0 ms"})</span>'
    cells = (
        ("num", f'<time datetime="{escape(row.began)}">{clock(row.began)}</time>'),
        ("", state),
        ("", f'{words(row.quota)} <span class="soft">{words(row.rule)}</span>'),
        ("num", duration(row.lasted_s * 1000.0) or "0 ms"),
        ("num", delays),
        ("num", f"{row.refused:,}" if row.refused else NONE),
        ("text", text(row.why)),
    )
    return row_of(f"{row.began} {row.quota} {row.who}", text(row.who), cells)


def clock(at: str) -> str:
    """The time of an ISO 8601 one: `23:04:05`."""
    return escape(at[11:19])


def connection_row(row: ConnectionInfo) -> str:
    """A row of the table of connections."""
    waits = f'<span class="tag bad">{escape(row.throttled_by)} {duration(row.for_ms)}</span>'
    cells = (
        ("name", named(row.user)),
        ("name", named(row.client_id)),
        ("", escape(row.state.replace("_", " "))),
        ("num", waits if row.throttled_by else NONE),
        ("num", f"{row.in_flight:,}"),
        ("num", f"{row.requests:,}"),
    )
    return row_of(row.peer, text(row.peer), cells)


def producer_ids_row(row: ProducerIdsOf) -> str:
    """A principal's producer ids."""
    if row.new is None:
        new = NONE
    else:
        new = f'{row.new:,} <span class="soft">in {duration(row.new_span_s * 1000.0) or "0 ms"}</span>'
    shadow = ' <span class="tag plain">shadow</span>' if row.shadow else ""
    waits = f'<span class="tag bad">{row.waiting:,} for {duration(row.delay_ms) or "0 ms"}</span>'
    cells = (
        ("", f"{words(row.rule) or NONE}{shadow}"),
        ("num", f"{amount(row.limit, 'new producer ids per hour')}"),
        ("num", f"{row.known:,}"),
        ("num", new),
        ("num", f"{row.tokens:,.1f}"),
        ("num", waits if row.waiting else NONE),
        ("num", f"{row.pairs:,}"),
        ("num", f"{row.forced:,}"),
    )
    return row_of(f"{row.user} {row.shadow}", named(row.user), cells)


def plan_row(row: PlanChange) -> str:
    """A limit that would change."""
    change = f"{(row.proposed / row.current - 1.0) * 100.0:+,.0f} %" if row.current > 0.0 else "–"
    review = '<span class="tag warn">review</span>' if row.needs_review else NONE
    cells = (
        ("", escape(row.key)),
        ("num", amount(row.current, row.unit)),
        ("num", amount(row.proposed, row.unit)),
        ("num", change.replace("-", "−")),
        ("", escape(row.reason.replace("_", " "))),
        ("", review),
    )
    return row_of(f"{row.key} {row.who}", text(row.who), cells)


def follower_row(row: FollowerInfo) -> str:
    """A row of the table of followers."""
    cells = (
        ("num", NONE if row.limit is None else amount(row.limit, BYTES_PER_S)),
        ("num", amount(row.rate, BYTES_PER_S)),
        ("num", f"{row.waiting:,}"),
        ("num", f"{row.lag_records:,}"),
        ("num", megabytes(row.left_bytes)),
        ("num", ends(row.ends_in_s, is_behind=row.waiting > 0)),
    )
    return row_of(str(row.follower), f"broker {row.follower}", cells)


def replica_row(row: ReplicaInfo) -> str:
    """A partition that a follower is behind on."""
    left = row.left_bytes
    done = NONE if left is None else bar(row.passed_bytes / max(1, row.passed_bytes + left))
    cells = (
        ("num", f"{row.partition:,}"),
        ("num", f"{row.follower:,}"),
        ("num", f"{row.lag_records:,}"),
        ("", done),
        ("num", megabytes(left)),
        ("num", amount(row.inflow, BYTES_PER_S)),
        ("num", ends(row.ends_in_s, is_behind=True)),
    )
    return row_of(f"{row.topic} {row.partition} {row.follower}", text(row.topic), cells)


def megabytes(left_bytes: int | None) -> str:
    """Bytes that are left, as people read them: `12.3 MB`."""
    return '<span class="soft">?</span>' if left_bytes is None else f"{left_bytes / 1e6:,.1f} MB"


def ends(in_s: float | None, *, is_behind: bool) -> str:
    """When it will have caught up."""
    if not is_behind:
        return NONE
    return '<span class="soft">?</span>' if in_s is None else duration(in_s * 1000.0) or "0 ms"
