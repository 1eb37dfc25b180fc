"""Small plots as inline SVG: colours are the page's CSS variables, so that they follow light and dark. Pure.

matplotlib would be a dependency of the job for two kinds of plots, and an SVG of its own takes 30 kB with
colours that are fixed; these take 3 kB.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, timedelta
from html import escape
from math import floor, log10
from typing import Final

from sluice.recalibration.policy.plan import PlanEntry
from sluice.recalibration.report.words import amount, percentile

_WIDTH: Final = 640
_LEFT: Final = 78
_RIGHT: Final = 148
_TOP: Final = 10
_HEIGHT: Final = 130
_STRIP_TOP: Final = 152
_STRIP: Final = 26
_ALL: Final = 198
_LABEL_GAP: Final = 13.0
_TICKS: Final = 4


def usage_plot(entry: PlanEntry, day: date, history_days: int, quantile: float) -> str:
    """An entity's demand day by day, its limit now and as proposed; below, the share of time throttled.

    `quantile`: of a day's demand, what the policy's settings have.
    """
    top = 1.08 * max([entry.current, entry.proposed, *(use.demand for use in entry.days)])
    step = (_WIDTH - _LEFT - _RIGHT) / history_days
    parts = [*_grid(entry.key, top)]
    for use in entry.days:
        if use.age_days >= history_days:
            continue
        x = _LEFT + (history_days - 1 - use.age_days) * step + 0.12 * step
        y, height = _bar(use.demand, top)
        told = f"{day - timedelta(days=use.age_days)}: {amount(entry.key, use.demand)}"
        told += "" if use.identified else " (a guess)"
        kind = "u" if use.identified else "u g"
        parts.append(_rect(kind, x, y, 0.76 * step, height, told))
        if use.throttled_share > 0.0:
            tall = max(1.0, use.throttled_share * _STRIP)
            share = f"{use.throttled_share:.1%} of the time throttled"
            parts.append(_rect("t", x, _STRIP_TOP + _STRIP - tall, 0.76 * step, tall, share))
    right = _WIDTH - _RIGHT
    parts += [
        f'<path class="a" d="M{_LEFT} {_TOP + _HEIGHT}H{right}M{_LEFT} {_STRIP_TOP + _STRIP}H{right}"/>',
        f'<text x="{_LEFT - 6}" y="{_STRIP_TOP + 17}" text-anchor="end">throttled</text>',
        f'<text x="{_LEFT}" y="{_ALL - 4}">{day - timedelta(days=history_days - 1)}</text>',
        f'<text x="{right}" y="{_ALL - 4}" text-anchor="end">{day}</text>',
        *_limits(entry, top, right),
    ]
    of_day = f"daily {percentile(quantile)} of the demand"
    label = escape(f"{of_day} and the limit, {amount(entry.key, entry.current)} now")
    plot = f'<svg viewBox="0 0 {_WIDTH} {_ALL}" role="img" aria-label="{label}">{"".join(parts)}</svg>'
    return f'<div class="wide plot" tabindex="0">{plot}</div>'


def bar_pair(key: str, now: float, proposed: float, room: float | None) -> str:
    """The sum of a key's limits now and as proposed, as bars; the room as a line."""
    top = max(now, proposed, room or 0.0) or 1.0
    scale = 300.0 / top
    parts = [
        f'<rect class="n" x="0" y="2" width="{_n(now * scale)}" height="9"/>',
        f'<rect class="u" x="0" y="14" width="{_n(proposed * scale)}" height="9"/>',
    ]
    told = f"{amount(key, now)} now, {amount(key, proposed)} proposed"
    if room is not None:
        parts.append(f'<path class="r" d="M{_n(max(1.0, room * scale - 1.0))} 0V25"/>')
        told += f", room for {amount(key, room)}"
    return (
        f'<svg viewBox="0 0 302 25" class="pair" role="img" aria-label="{escape(told)}">'
        f"{''.join(parts)}</svg>"
    )


def ticks(top: float) -> list[float]:
    """Round numbers from 0 to below `top` > 0: 1, 2 or 5 times a power of ten apart, at most five."""
    raw = top / _TICKS
    power: float = 10.0 ** floor(log10(raw))
    step = next(factor * power for factor in (1.0, 2.0, 5.0, 10.0) if factor * power >= raw)
    return [number * step for number in range(_TICKS + 1) if number * step < top]


def _grid(key: str, top: float) -> Sequence[str]:
    parts = []
    for value in ticks(top):
        y, _ = _bar(value, top)
        parts.append(f'<path class="l" d="M{_LEFT} {_n(y)}H{_WIDTH - _RIGHT}"/>')
        parts.append(
            f'<text x="{_LEFT - 6}" y="{_n(y + 4)}" text-anchor="end">{escape(amount(key, value))}</text>'
        )
    return parts


def _limits(entry: PlanEntry, top: float, right: int) -> list[str]:
    """Two lines and what they are, the names far enough from one another to be read."""
    now, proposed = _bar(entry.current, top)[0], _bar(entry.proposed, top)[0]
    if not entry.is_change:
        return [_line("n", now, right), _name("limit", amount(entry.key, entry.current), now, right)]
    apart = _LABEL_GAP - abs(now - proposed)
    shift = max(0.0, apart) / 2 * (1 if now > proposed else -1)
    return [
        _line("n", now, right),
        _line("p", proposed, right),
        _name("now", amount(entry.key, entry.current), now + shift, right),
        _name("proposed", amount(entry.key, entry.proposed), proposed - shift, right),
    ]


def _line(kind: str, y: float, right: int) -> str:
    return f'<path class="{kind}" d="M{_LEFT} {_n(y)}H{right}"/>'


def _name(what: str, value: str, y: float, right: int) -> str:
    return f'<text x="{right + 6}" y="{_n(y + 4)}">{what} {escape(value)}</text>'


def _rect(kind: str, x: float, y: float, width: float, height: float, told: str) -> str:
    return (
        f'<rect class="{kind}" x="{_n(x)}" y="{_n(y)}" width="{_n(width)}" height="{_n(height)}">'
        f"<title>{escape(told)}</title></rect>"
    )


def _bar(value: float, top: float) -> tuple[float, float]:
    """(where it begins from above, how high it is)."""
    height = _HEIGHT * value / top
    return _TOP + _HEIGHT - height, height


def _n(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")
