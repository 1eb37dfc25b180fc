"""What the pictures of the three acts have in common: lines or a live picture, charts beside or below others.

Colours are never the only difference (NO_COLOR).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

BLOCKS: Final = " ▁▂▃▄▅▆▇█▲"
ASCII_BLOCKS: Final = " .._--=##^"  # a terminal that has no blocks
MAX_CHART_ROWS: Final = 6
SIDE_BY_SIDE_COLUMNS: Final = 72


class Lines:
    """One line at a time: for logs, pipes and terminals that cannot move the cursor."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc_info: object) -> None:
        pass

    def _print(self, *lines: str) -> None:
        for line in lines:
            self._console.print(line, highlight=False, markup=False, soft_wrap=True)


class Picture:
    """One picture in the place of the last: for a terminal."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(console=console, auto_refresh=False)

    def __enter__(self) -> Self:
        self._live.__enter__()
        return self

    def __exit__(self, *_exc_info: object) -> None:
        self._live.stop()

    @property
    def _blocks(self) -> str:
        return BLOCKS if self._console.encoding.startswith("utf") else ASCII_BLOCKS

    def _show(self, picture: RenderableType) -> None:
        self._live.update(picture, refresh=True)


@dataclass(frozen=True, slots=True)
class Layout:
    """Where the cells of a picture stand: pairs beside each other, on a narrow terminal below."""

    is_beside: bool
    columns: int
    """of a cell"""
    rows: int
    """of its chart"""

    def picture(self, head: str, pairs: Iterable[Sequence[Text]]) -> RenderableType:
        """All cells below one line."""
        grid = Table.grid(padding=(0, 3 if self.is_beside else 0, 0, 0))
        for pair in pairs:
            for row in [pair] if self.is_beside else [[cell] for cell in pair]:
                grid.add_row(*row)
        return Group(Text(head, style="dim", no_wrap=True, overflow="ellipsis"), grid)


def layout(size: tuple[int, int], pairs: int, other_lines: int) -> Layout:
    """For a terminal of `size` (columns, lines): `pairs` of cells, each with so many lines beside its chart's
    rows."""
    columns, lines = size
    is_beside = columns >= SIDE_BY_SIDE_COLUMNS
    cells_above = pairs if is_beside else 2 * pairs
    rows = max(1, min(MAX_CHART_ROWS, (lines - 3) // cells_above - other_lines))
    return Layout(is_beside, (columns - 3) // 2 if is_beside else columns - 1, rows)


def cell(
    title: str, colour: str, chart: Sequence[str], marks: Mapping[int, str], wide: int, facts: str
) -> Text:
    """A title, a chart with marks of so many columns before its lines, and facts below."""
    made = Text(no_wrap=True, overflow="crop")
    made.append(f"{title}\n", style=f"bold {colour}")
    for index, line in enumerate(chart):
        made.append(f"{marks.get(index, ''):>{wide}} ", style="dim")
        made.append(f"{line}\n", style=colour)
    made.append(facts)
    return made


def cut(facts: Iterable[str], columns: int) -> str:
    """The lines, each exactly so wide."""
    return "\n".join(line.ljust(columns)[:columns] for line in facts)
