"""What the lanes of the demo hold now → what people see: charts on a terminal, else one line per second.

Knows nothing of how the figures come about.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, Protocol, Self

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from bench.demo.figures import (
    KINDS,
    NATIVE,
    SIDES,
    SLUICE,
    STANDSTILL_BYTES_PER_S,
    LaneFigures,
    stands_still,
)
from bench.demo.panes import BLOCKS, SIDE_BY_SIDE_COLUMNS, Lines, Picture, cell, cut, layout
from bench.demo.wire import Lane
from bench.evenness.cases import QUOTA_BYTES_PER_S, SETTLE_S
from testkit.frames.load_frames import PRODUCE

SHOWN: Final = {NATIVE: "broker's own quota", SLUICE: "through Sluice"}
SHORT: Final = {NATIVE: "broker", SLUICE: "Sluice"}
COLOURS: Final = {NATIVE: "yellow", SLUICE: "cyan"}
TOP_BYTES_PER_S: Final = 2 * QUOTA_BYTES_PER_S  # the chart's upper end; what is above gets a mark
HEADER_EVERY_LINES: Final = 20


class Screen(Protocol):
    """Where the demo shows how it goes on."""

    def __enter__(self) -> Self: ...
    def __exit__(self, *exc_info: object) -> None: ...
    def update(self, lanes: Sequence[Lane], now_s: float, total_s: float) -> None:
        """Shows the state at `now_s` seconds since the clock's zero; `total_s` is when it will end."""
        ...


def chart(
    values: Sequence[float], columns: int, rows: int, blocks: str = BLOCKS, top: float = TOP_BYTES_PER_S
) -> list[str]:
    """A column for each of the last seconds, lines from the top; the topmost row's upper end is `top`.

    `blocks` has nine characters from nothing to full, and the mark for what is above the top.
    """
    levels = [value / top * rows * 8 for value in values[-columns:]]
    lines = []
    for row in reversed(range(rows)):
        cells = [blocks[max(0, min(8, round(level - row * 8)))] for level in levels]
        if row == rows - 1:
            cells = [
                blocks[9] if level > rows * 8 else cell for cell, level in zip(cells, levels, strict=True)
            ]
        lines.append("".join(cells).ljust(columns))
    return lines


def rate_marks(rows: int) -> dict[int, str]:
    """What stands before which line of a chart of rates: its upper end and the quota, in MB/s."""
    return {0: f"{TOP_BYTES_PER_S / 1e6:g}", rows // 2: f"{QUOTA_BYTES_PER_S / 1e6:g}"} if rows > 1 else {}


def first_second(lanes: Sequence[Lane]) -> int | None:
    """The second in which the first of them began; None while nobody has."""
    return min((lane.seconds.start for lane in lanes if lane.seconds), default=None)


def complete_seconds(lane: Lane, now_s: float) -> list[int]:
    """Bytes of each whole second that is over, from the lane's first data on; to its last if it has ended."""
    end = lane.seconds.stop - 1 if lane.has_ended else math.floor(now_s)
    return [lane.bytes_in_second.get(second, 0) for second in range(lane.seconds.start + 1, end)]


# --- one line per second ----------------------------------------------------------------------------------


class LineScreen(Lines):
    """For logs, pipes and terminals that cannot move the cursor."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._lines = 0

    def update(self, lanes: Sequence[Lane], now_s: float, total_s: float) -> None:
        first = first_second(lanes)
        if first is None:
            return
        for second in range(first + self._lines, math.floor(now_s)):
            if self._lines % HEADER_EVERY_LINES == 0:
                self._print(*header_lines())
            self._print(second_line(lanes, second, first, total_s))
            self._lines += 1


def header_lines() -> tuple[str, str]:
    """The two lines above those of `second_line`."""
    kinds = "".join(f" {kind + ' MB/s':>16} {'told to wait, s':>16}" for kind in KINDS.values())
    sides = "".join(f"{SHORT[side]:>8}" for side in SIDES)
    return f"         {kinds}", f"   second{f' {sides}' * 2 * len(KINDS)}"


def second_line(lanes: Sequence[Lane], second: int, first: int, total_s: float) -> str:
    """All rates and the longest throttle_time_ms of one second; `first` is the second to count from."""
    line = f"{second - first + 1:>3} of {math.ceil(total_s) - first:<3}"
    for api_key in KINDS:
        pair = [lane for side in SIDES for lane in lanes if (lane.side, lane.api_key) == (side, api_key)]
        is_over = [lane.has_ended and second >= lane.seconds.stop for lane in pair]
        rates = [f"{lane.bytes_in_second.get(second, 0) / 1e6:.2f}" for lane in pair]
        told = [f"{lane.told_ms_in_second.get(second, 0) / 1e3:.2f}" for lane in pair]
        for values, over in ((rates, "done"), (told, "")):
            shown = (over if ended else value for value, ended in zip(values, is_over, strict=True))
            line += " " + "".join(f"{value:>8}" for value in shown)
    return line.rstrip()


# --- live -------------------------------------------------------------------------------------------------


class LiveScreen(Picture):
    """For a terminal: two charts beside two charts; below each other if it is narrow."""

    def update(self, lanes: Sequence[Lane], now_s: float, total_s: float) -> None:
        self._show(picture(lanes, now_s, total_s, self._console.size, self._blocks))


def picture(
    lanes: Sequence[Lane], now_s: float, total_s: float, size: tuple[int, int], blocks: str = BLOCKS
) -> RenderableType:
    """Everything that is shown live, made for a terminal of `size` (columns, lines)."""
    first = first_second(lanes)
    if first is None:
        return Text("the four Java clients are starting …", style="dim", no_wrap=True, overflow="ellipsis")
    panes = layout(size, len(KINDS), 4)
    head = (
        f"{min(now_s, total_s) - first:.0f} of {total_s - first:.0f} s · four clients, a quota of "
        f"{QUOTA_BYTES_PER_S / 1e6:g} MB/s for each · {blocks[9]} above {TOP_BYTES_PER_S / 1e6:g} MB/s"
    )
    pairs = [
        [lane for side in SIDES for lane in lanes if (lane.side, lane.api_key) == (side, api_key)]
        for api_key in KINDS
    ]
    cells = [[_cell(lane, now_s, panes.columns, panes.rows, blocks) for lane in pair] for pair in pairs]
    return panes.picture(head, cells)


def _cell(lane: Lane, now_s: float, columns: int, rows: int, blocks: str) -> Text:
    rates = complete_seconds(lane, now_s) if lane.seconds else []
    still = sum(map(stands_still, rates))
    last = rates[-1] if rates else 0
    mean = sum(rates) / len(rates) if rates else 0.0
    told_ms = lane.told_ms_in_second.get(math.floor(now_s) - 1, 0)
    now = "done" if lane.has_ended else f"now {last / 1e6:.2f}"
    facts = (
        f"{now}, mean {mean / 1e6:.2f} MB/s",
        f"told to wait {told_ms / 1e3:.2f} s, at most {lane.longest_told_ms / 1e3:.2f} s",
        f"at a standstill {still} of {len(rates)} s",
    )
    title = f"{KINDS[lane.api_key]}, {SHOWN[lane.side]}"
    lines = chart(rates, columns - 2, rows, blocks)
    return cell(title, COLOURS[lane.side], lines, rate_marks(rows), 1, cut(facts, columns))


# --- at the end -------------------------------------------------------------------------------------------


def closing_tables(lanes: Sequence[LaneFigures], columns: int) -> list[Table]:
    """One table with both kinds of client, or on a narrow terminal one for each."""
    groups = [list(KINDS)] if columns >= SIDE_BY_SIDE_COLUMNS else [[api_key] for api_key in KINDS]
    return [
        _closing_table(
            [
                lane
                for api_key in group
                for side in SIDES
                for lane in lanes
                if (lane.side, lane.api_key) == (side, api_key)
            ]
        )
        for group in groups
    ]


def _closing_table(lanes: Sequence[LaneFigures]) -> Table:
    table = Table(title_justify="left", caption_justify="left")
    table.add_column("")
    for lane in lanes:
        heading = f"{KINDS[lane.api_key]}\n{SHORT[lane.side]}"
        table.add_column(Text(heading, style=COLOURS[lane.side]), justify="right", no_wrap=True)
    seconds = len(lanes[0].even.bytes_per_s)

    def row(label: str, *values: str) -> None:
        table.add_row(label, *values)

    row("long-run rate, MB/s", *(f"{x.long_run_bytes_per_s / 1e6:.3f}" for x in lanes))
    row("  ÷ quota", *(f"{x.long_run_bytes_per_s / QUOTA_BYTES_PER_S:.1%}" for x in lanes))
    row("variation from second to second", *(f"{x.even.cv:.1%}" for x in lanes))
    row(f"seconds at a standstill, of {seconds}", *(f"{x.standstill_s}" for x in lanes))
    row("  most in a row", *(f"{x.longest_standstill_s}" for x in lanes))
    row("longest gap between bytes, s", *(f"{x.even.longest_gap_s:.2f}" for x in lanes))
    table.add_section()
    if any(lane.api_key == PRODUCE for lane in lanes):
        for name in ("p50", "p95", "p99", "max"):
            row(f"latency {name}, s", *(_seconds(x.report.latency_ms.get(name)) for x in lanes))
        table.add_section()
    row("told to wait, mean, ms", *(f"{x.report.throttle_avg_ms:.0f}" for x in lanes))
    row("  longest, ms", *(f"{x.report.throttle_max_ms:.0f}" for x in lanes))
    return table


def notes() -> str:
    """What the figures of the table mean, for below it."""
    return (
        f"On the wire from second {SETTLE_S} on: both let a burst pass first. Long-run rate: over whole "
        "waves, where there are waves. Variation: standard deviation ÷ mean of the rates per second. "
        f"Standstill: a second with less than {STANDSTILL_BYTES_PER_S // 1000} kB. Latency (of all records) "
        "and throttle time (of the last 30 to 60 s): as the Java clients measured them."
    )


def _seconds(value_ms: float | None) -> str:
    return "–" if value_ms is None else f"{value_ms / 1000:.2f}"
