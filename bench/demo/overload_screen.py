"""How the overload looks: a chart for each side on a terminal, else one line per second."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol, Self

from rich.console import Console, RenderableType
from rich.text import Text

from bench.demo.figures import stands_still
from bench.demo.overload_figures import Poured
from bench.demo.panes import BLOCKS, Lines, Picture, cell, cut, layout
from bench.demo.screen import COLOURS, SHORT, SHOWN, TOP_BYTES_PER_S, chart, rate_marks
from bench.evenness.cases import QUOTA_BYTES_PER_S


class OverloadScreen(Protocol):
    """Where the overload is shown."""

    def __enter__(self) -> Self: ...
    def __exit__(self, *exc_info: object) -> None: ...
    def update(self, sides: Sequence[Poured], now_s: float, seconds: float) -> None:
        """Shows both sides at the monotonic time `now_s`; all ends `seconds` after their start."""
        ...


class OverloadLines(Lines):
    """One line per second, for logs and pipes."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._lines = 0

    def update(self, sides: Sequence[Poured], now_s: float, seconds: float) -> None:
        rates = [poured.bytes_per_s(now_s) for poured in sides]
        if not self._lines and rates[0]:
            self._print("   second" + "".join(f"  {SHORT[poured.side] + ', MB/s':>14}" for poured in sides))
        for second in range(self._lines, len(rates[0])):
            values = "".join(f"  {rate[second] / 1e6:>14.2f}" for rate in rates)
            self._print(f"{second + 1:>3} of {math.ceil(seconds):<2}{values}")
            self._lines += 1


class OverloadLive(Picture):
    """Two charts beside each other; below each other on a narrow terminal."""

    def update(self, sides: Sequence[Poured], now_s: float, seconds: float) -> None:
        self._show(overload_picture(sides, now_s, seconds, self._console.size, self._blocks))


def overload_picture(
    sides: Sequence[Poured], now_s: float, seconds: float, size: tuple[int, int], blocks: str = BLOCKS
) -> RenderableType:
    """Everything that is shown live, made for a terminal of `size` (columns, lines)."""
    panes = layout(size, 1, 5)
    connections = len(sides[0].logs)
    head = (
        f"{now_s - sides[0].start_s:.0f} of {seconds:.0f} s · {connections} connections a side, together "
        f"{QUOTA_BYTES_PER_S / 1e6:g} MB/s · {blocks[9]} above {TOP_BYTES_PER_S / 1e6:g} MB/s"
    )
    return panes.picture(head, [[_cell(each, now_s, panes.columns, panes.rows, blocks) for each in sides]])


def _cell(poured: Poured, now_s: float, columns: int, rows: int, blocks: str) -> Text:
    rates = poured.bytes_per_s(now_s)
    facts = (
        f"now {rates[-1] / 1e6 if rates else 0:.2f}, highest {max(rates, default=0) / 1e6:.2f} MB/s",
        f"at a standstill {sum(map(stands_still, rates))} of {len(rates)} s",
        f"connections without any answer: {poured.starved()}",
    )
    title, lines = f"overload, {SHOWN[poured.side]}", chart(rates, columns - 2, rows, blocks)
    return cell(title, COLOURS[poured.side], lines, rate_marks(rows), 1, cut(facts, columns))
