"""How the storm looks: a chart of each broker's heap on a terminal, else one line per second."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, Protocol, Self

from rich.console import Console, RenderableType
from rich.text import Text

from bench.demo.panes import BLOCKS, Lines, Picture, cell, cut, layout
from bench.demo.screen import COLOURS, chart
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


class StormLines(Lines):
    """One line per second, for logs and pipes."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._second = 0

    def update(self, sides: Sequence[Seen], now_s: float, most_s: float) -> None:
        if math.floor(now_s) <= self._second:
            return
        if not self._second:
            head = "".join(f"  {TITLES[seen.side]:<33}" for seen in sides).rstrip()
            columns = "".join(f"  {'heap, MiB':>9}{'new ids taken':>15}{'good, ms':>9}" for _ in sides)
            self._print(f"         {head}", f"   second{columns}")
        self._second = math.floor(now_s)
        self._print(f"{self._second:>6} s " + "".join(map(_columns, sides)))


def _columns(seen: Seen) -> str:
    used = f"{seen.heap_by_second[-1] if seen.heap_by_second else 0:.0f} of {seen.heap_mib}"
    good = "dead" if seen.death else "–" if seen.good_ms is None else f"{seen.good_ms:.0f}"
    return f"  {used:>9}{seen.taken:>15,}{good:>9}"


class StormLive(Picture):
    """Two charts beside each other; below each other on a narrow terminal."""

    def update(self, sides: Sequence[Seen], now_s: float, most_s: float) -> None:
        self._show(storm_picture(sides, now_s, most_s, self._console.size, self._blocks))


def storm_picture(
    sides: Sequence[Seen], now_s: float, most_s: float, size: tuple[int, int], blocks: str = BLOCKS
) -> RenderableType:
    """Everything that is shown live, made for a terminal of `size` (columns, lines)."""
    panes = layout(size, 1, 6)
    head = f"{now_s:.0f} s, at most {most_s:.0f} · two brokers, a heap of {sides[0].heap_mib} MiB each"
    return panes.picture(head, [[_cell(seen, panes.columns, panes.rows, blocks) for seen in sides]])


def _cell(seen: Seen, columns: int, rows: int, blocks: str) -> Text:
    marks = {0: str(seen.heap_mib), rows - 1: "0"} if rows > 1 else {}
    wide = len(str(seen.heap_mib))
    lines = chart(seen.heap_by_second, columns - wide - 1, rows, blocks, seen.heap_mib)
    used = seen.heap_by_second[-1] if seen.heap_by_second else 0.0
    facts = (
        f"{used:.0f} of {seen.heap_mib} MiB in use",
        f"new ids brought {seen.offered:,}",
        f"new ids taken {seen.taken:,}",
        good_client(seen),
    )
    title = f"heap in use, {TITLES[seen.side]}"
    made = cell(title, COLOURS[seen.side], lines, marks, wide, cut(facts, columns))
    if seen.death is not None:
        made.append(f"\n{f'DEAD after {seen.death.after_s:.0f} s'[:columns]}\n", style="bold red")
        made.append(seen.death.how[:columns])
    return made


def good_client(seen: Seen) -> str:
    """What another user's producer notices."""
    if seen.death is not None:
        return "another user's producer: cut off"
    if seen.good_ms is None or seen.silent_s > SHOWN_SILENT_S:
        return f"another user's producer: silent {seen.silent_s:.0f} s"
    return f"another user's producer: {seen.good_ms:.0f} ms"
