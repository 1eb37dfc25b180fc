"""What came of all three acts → three numbers, in words and as JSON: nothing but what was measured. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from rich.table import Table
from rich.text import Text

from bench.demo.figures import NATIVE, SIDES, SLUICE, LaneFigures
from bench.demo.overload_figures import OverloadFigures
from bench.demo.screen import COLOURS
from bench.demo.storm_figures import StormFigures

READ_ON: Final = (
    ("put it in front of a broker", "docs/quick-start.md"),
    ("who is throttled, why, how much", "docs/who-is-throttled.md"),
    ("new producer ids, and their limit", "docs/producer-ids.md"),
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """All three acts; each has both sides, the native one first."""

    lanes: Sequence[LaneFigures]
    overload: Sequence[OverloadFigures]
    storm: Sequence[StormFigures]

    def longest_standstill_s(self, side: str) -> int:
        """The first act's number: the longest time without data of either client, in whole seconds."""
        return max(lane.longest_standstill_s for lane in self.lanes if lane.side == side)

    def highest_vs_quota(self, side: str) -> float:
        """The second act's number: what the highest second let pass ÷ the quota of a second."""
        return next(x.highest_vs_quota for x in self.overload if x.side == side)

    def stormed(self, side: str) -> StormFigures:
        """The third act's number is in it: when the broker died, and with how many ids."""
        return next(x for x in self.storm if x.side == side)


def three_numbers(outcome: Outcome) -> Table:
    """One line for each act, both sides."""
    table = Table(title="Three numbers, all measured in this run", title_justify="left", title_style="bold")
    table.add_column("")
    table.add_column(Text("broker alone", style=COLOURS[NATIVE]), justify="right")
    table.add_column(Text("with Sluice", style=COLOURS[SLUICE]), justify="right")
    table.add_row(
        "1  one quota: longest standstill", *(f"{outcome.longest_standstill_s(side)} s" for side in SIDES)
    )
    table.add_row(
        "2  overload: highest second ÷ quota", *(f"{outcome.highest_vs_quota(side):.1f}" for side in SIDES)
    )
    table.add_row("3  storm of new producer ids", *(ended(outcome.stormed(side)) for side in SIDES))
    return table


def ended(figures: StormFigures) -> str:
    """How a broker came through the storm, and with how many of the ids."""
    ids = f"{figures.death.ids if figures.death else figures.taken:,} ids"
    if figures.death is not None:
        return f"dead after {figures.death.after_s:.0f} s,\n{ids}"
    return f"alive, {ids}" if figures.answers_afterwards else f"answers nobody,\n{ids}"


def storm_sentences(outcome: Outcome) -> list[str]:
    """What the third act showed, side by side."""
    told = [_stormed(outcome.stormed(NATIVE), "alone"), _stormed(outcome.stormed(SLUICE), "behind Sluice")]
    if outcome.stormed(NATIVE).death is not None:
        told.append("A larger heap lasts longer, in proportion: some 270 bytes an id (docs/producer-ids.md).")
    return told


def _stormed(figures: StormFigures, name: str) -> str:
    brought = f"The broker {name} (heap {figures.heap_mib} MiB) was brought {figures.offered:,} new ids"
    used = f"{figures.heap_used_mib:.0f} MiB in use"
    death = figures.death
    if death is not None:
        how = f"it took {death.ids:,} of them and died after {death.after_s:.1f} s: {death.how}"
    elif not figures.answers_afterwards:
        how = f"it took {figures.taken:,} of them and answers nobody; {used}"
    elif figures.side == NATIVE:
        how = f"it took {figures.taken:,} of them and, this time, survived; {used}"
    else:
        how = f"Sluice let in {figures.taken:,} of them, and it lives; {used}"
    good = "" if figures.good_p99_ms is None else f"; another user's p99 was {figures.good_p99_ms:.0f} ms"
    return f"{brought}; {how}{good}."


def summary(outcome: Outcome, set_up_s: float, took_s: float) -> dict[str, object]:
    """For programs: the last line where standard output is no terminal."""
    found: dict[str, object] = {}
    for side in SIDES:
        stormed = outcome.stormed(side)
        found |= {
            f"{side}_longest_standstill_s": outcome.longest_standstill_s(side),
            f"{side}_overload_highest_second_vs_quota": round(outcome.highest_vs_quota(side), 3),
            f"{side}_storm_lives": stormed.lives,
            f"{side}_storm_died_after_s": None if stormed.death is None else round(stormed.death.after_s, 1),
            f"{side}_storm_died_of": None if stormed.death is None else stormed.death.how,
            f"{side}_storm_ids_offered": stormed.offered,
            f"{side}_storm_ids_taken": stormed.taken if stormed.death is None else stormed.death.ids,
            f"{side}_storm_good_p99_ms": stormed.good_p99_ms and round(stormed.good_p99_ms, 1),
        }
    heap_mib = outcome.stormed(SLUICE).heap_mib
    return {**found, "storm_heap_mib": heap_mib, "set_up_s": round(set_up_s, 1), "took_s": round(took_s, 1)}
