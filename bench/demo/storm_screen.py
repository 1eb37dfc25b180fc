"""How the storm looks: a chart of each broker's heap on a terminal, else one line per second."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, Protocol, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from bench.demo.screen import ASCII_BLOCKS, BLOCKS, COLOURS, MAX_CHART_ROWS, SIDE_BY_SIDE_COLUMNS, chart
from bench.demo.storm_figures import Seen

TITLES: Final = {"native": "broker alone", "sluice": "behind Sluice"}
SHOWN_SILENT_S: Final = 1.0


class StormScreen(Protocol):
    """Where the storm is shown."""

    def __enter__(self) -> Self: ...
    def __exit__(self, *exc_info: object) -> None: ...
    def update(self, sides: Sequence[Seen], now_s: float, most_s: float) -> None:
        """Shows both sides `now_s` seconds after the storm began; it ends after `most_s` at the latest."""
        ...


class StormLines:
    """One line per second, for logs and pipes."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._second = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc_info: object) -> None:
        pass

    def update(self, sides: Sequence[Seen], now_s: float, most_s: float) -> None:
        if math.floor(now_s) <= self._second:
            return
        if not self._second:
            head = "".join(f"  {TITLES[seen.side]:<33}" for seen in sides).rstrip()
            columns = "".join(f"  {'heap, MiB':>9}{'new ids taken':>15}{'good, ms':>9}" for _ in sides)
            for line in (f"         {head}", f"   second{columns}"):
                self._print(line)
        self._second = math.floor(now_s)
        self._print(f"{self._second:>6} s " + "".join(map(_columns, sides)))

    def _print(self, line: str) -> None:
        self._console.print(line, highlight=False, markup=False, soft_wrap=True)


def _columns(seen: Seen) -> str:
    used = f"{seen.heap_by_second[-1] if seen.heap_by_second else 0:.0f} of {seen.heap_mib}"
    good = "dead" if seen.death else "–" if seen.good_ms is None else f"{seen.good_ms:.0f}"
    return f"  {used:>9}{seen.taken:>15,}{good:>9}"


class StormLive:
    """Two charts beside each other; below each other on a narrow terminal."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(console=console, auto_refresh=False)

    def __enter__(self) -> Self:
        self._live.__enter__()
        return self

    def __exit__(self, *_exc_info: object) -> None:
        self._live.stop()

    def update(self, sides: Sequence[Seen], now_s: float, most_s: float) -> None:
        blocks = BLOCKS if self._console.encoding.startswith("utf") else ASCII_BLOCKS
        self._live.update(storm_picture(sides, now_s, most_s, self._console.size, blocks), refresh=True)


def storm_picture(
    sides: Sequence[Seen], now_s: float, most_s: float, size: tuple[int, int], blocks: str = BLOCKS
) -> RenderableType:
    """Everything that is shown live, made for a terminal of `size` (columns, lines)."""
    columns, lines = size
    beside = columns >= SIDE_BY_SIDE_COLUMNS
    rows = max(1, min(MAX_CHART_ROWS, (lines - 3) // (1 if beside else len(sides)) - 6))
    cell_columns = (columns - 3) // 2 if beside else columns - 1
    grid = Table.grid(padding=(0, 3 if beside else 0, 0, 0))
    cells = [_cell(seen, cell_columns, rows, blocks) for seen in sides]
    if beside:
        grid.add_row(*cells)
    else:
        for cell in cells:
            grid.add_row(cell)
    head = Text(
        f"{now_s:.0f} s, at most {most_s:.0f} · two brokers, a heap of {sides[0].heap_mib} MiB each",
        style="dim",
        no_wrap=True,
        overflow="ellipsis",
    )
    return Group(head, grid)


def _cell(seen: Seen, columns: int, rows: int, blocks: str) -> Text:
    colour = COLOURS[seen.side]
    cell = Text(no_wrap=True, overflow="crop")
    cell.append(f"heap in use, {TITLES[seen.side]}\n", style=f"bold {colour}")
    marks = {0: str(seen.heap_mib), rows - 1: "0"} if rows > 1 else {}
    wide = len(str(seen.heap_mib))
    for index, line in enumerate(chart(seen.heap_by_second, columns - wide - 1, rows, blocks, seen.heap_mib)):
        cell.append(f"{marks.get(index, ''):>{wide}} ", style="dim")
        cell.append(f"{line}\n", style=colour)
    used = seen.heap_by_second[-1] if seen.heap_by_second else 0.0
    facts = (
        f"{used:.0f} of {seen.heap_mib} MiB in use",
        f"new ids brought {seen.offered:,}",
        f"new ids taken {seen.taken:,}",
        good_client(seen),
    )
    cell.append("\n".join(line.ljust(columns)[:columns] for line in facts))
    if seen.death is not None:
        cell.append(f"\n{f'DEAD after {seen.death.after_s:.0f} s'[:columns]}\n", style="bold red")
        cell.append(seen.death.how[:columns])
    return cell


def good_client(seen: Seen) -> str:
    """What another user's producer notices."""
    if seen.death is not None:
        return "another user's producer: cut off"
    if seen.good_ms is None or seen.silent_s > SHOWN_SILENT_S:
        return f"another user's producer: silent {seen.silent_s:.0f} s"
    return f"another user's producer: {seen.good_ms:.0f} ms"
