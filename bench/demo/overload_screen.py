"""How the overload looks: a chart for each side on a terminal, else one line per second."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from bench.demo.figures import stands_still
from bench.demo.overload_figures import Poured
from bench.demo.screen import (
    ASCII_BLOCKS,
    BLOCKS,
    COLOURS,
    MAX_CHART_ROWS,
    SHORT,
    SHOWN,
    SIDE_BY_SIDE_COLUMNS,
    TOP_BYTES_PER_S,
    chart,
    rate_marks,
)
from bench.evenness.cases import QUOTA_BYTES_PER_S


class OverloadScreen(Protocol):
    """Where the overload is shown."""

    def __enter__(self) -> Self: ...
    def __exit__(self, *exc_info: object) -> None: ...
    def update(self, sides: Sequence[Poured], now_s: float, seconds: float) -> None:
        """Shows both sides at the monotonic time `now_s`; all ends `seconds` after their start."""
        ...


class OverloadLines:
    """One line per second, for logs and pipes."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._lines = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc_info: object) -> None:
        pass

    def update(self, sides: Sequence[Poured], now_s: float, seconds: float) -> None:
        rates = [poured.bytes_per_s(now_s) for poured in sides]
        if not self._lines and rates[0]:
            self._print("   second" + "".join(f"  {SHORT[poured.side] + ', MB/s':>14}" for poured in sides))
        for second in range(self._lines, len(rates[0])):
            values = "".join(f"  {rate[second] / 1e6:>14.2f}" for rate in rates)
            self._print(f"{second + 1:>3} of {math.ceil(seconds):<2}{values}")
            self._lines += 1

    def _print(self, line: str) -> None:
        self._console.print(line, highlight=False, markup=False, soft_wrap=True)


class OverloadLive:
    """Two charts beside each other; below each other on a narrow terminal."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(console=console, auto_refresh=False)

    def __enter__(self) -> Self:
        self._live.__enter__()
        return self

    def __exit__(self, *_exc_info: object) -> None:
        self._live.stop()

    def update(self, sides: Sequence[Poured], now_s: float, seconds: float) -> None:
        blocks = BLOCKS if self._console.encoding.startswith("utf") else ASCII_BLOCKS
        self._live.update(overload_picture(sides, now_s, seconds, self._console.size, blocks), refresh=True)


def overload_picture(
    sides: Sequence[Poured], now_s: float, seconds: float, size: tuple[int, int], blocks: str = BLOCKS
) -> RenderableType:
    """Everything that is shown live, made for a terminal of `size` (columns, lines)."""
    columns, lines = size
    beside = columns >= SIDE_BY_SIDE_COLUMNS
    rows = max(1, min(MAX_CHART_ROWS, (lines - 3) // (1 if beside else len(sides)) - 5))
    cell_columns = (columns - 3) // 2 if beside else columns - 1
    grid = Table.grid(padding=(0, 3 if beside else 0, 0, 0))
    cells = [_cell(poured, now_s, cell_columns, rows, blocks) for poured in sides]
    if beside:
        grid.add_row(*cells)
    else:
        for cell in cells:
            grid.add_row(cell)
    connections = len(sides[0].logs)
    head = Text(
        f"{now_s - sides[0].start_s:.0f} of {seconds:.0f} s · {connections} connections a side, together "
        f"{QUOTA_BYTES_PER_S / 1e6:g} MB/s · {blocks[9]} above {TOP_BYTES_PER_S / 1e6:g} MB/s",
        style="dim",
        no_wrap=True,
        overflow="ellipsis",
    )
    return Group(head, grid)


def _cell(poured: Poured, now_s: float, columns: int, rows: int, blocks: str) -> Text:
    rates = poured.bytes_per_s(now_s)
    colour = COLOURS[poured.side]
    cell = Text(no_wrap=True, overflow="crop")
    cell.append(f"overload, {SHOWN[poured.side]}\n", style=f"bold {colour}")
    marks = rate_marks(rows)
    for index, line in enumerate(chart(rates, columns - 2, rows, blocks)):
        cell.append(f"{marks.get(index, ' ')} ", style="dim")
        cell.append(f"{line}\n", style=colour)
    facts = (
        f"now {rates[-1] / 1e6 if rates else 0:.2f}, highest {max(rates, default=0) / 1e6:.2f} MB/s",
        f"at a standstill {sum(map(stands_still, rates))} of {len(rates)} s",
        f"connections without any answer: {poured.starved()}",
    )
    cell.append("\n".join(line.ljust(columns)[:columns] for line in facts))
    return cell
