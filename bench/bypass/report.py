"""Results of the bypass benchmark → a table for people, JSON, a plot, and the summary for programs."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Final

from rich.table import Table

from bench.bypass.outcome import Attack, Outcome, Transactions, summary_of
from bench.lib.plots import figure, save
from bench.lib.results import machine, print_last_line, wide_console, write_json

COLOURS: Final = {"sluice": "C0", "native": "C1"}


def report(
    attacks: Sequence[Attack], transactions: Mapping[str, Transactions], seconds: float, folder: Path
) -> None:
    """Prints the table, writes bypass.json and bypass.png, and prints the summary as the last line."""
    console = wide_console()
    if attacks:
        console.print(_table(attacks))
    if transactions:
        console.print(_transactions_table(transactions))
    summary = summary_of(attacks, transactions)
    write_json(
        folder / "bypass.json",
        {
            "summary": summary,
            "machine": machine(),
            "seconds": seconds,
            "attacks": [asdict(attack) | _ratios(attack) for attack in attacks],
            "transactions": {side: asdict(result) for side, result in transactions.items()},
        },
    )
    if attacks:
        _plot(attacks, folder / "bypass.png")
    console.print(f"written: {folder / 'bypass.json'}")
    print_last_line(summary)


def _table(attacks: Sequence[Attack]) -> Table:
    table = Table(title="Ways round a limit: what passed, at Sluice and at the broker's own quota")
    for column in ("attack", "limit", "stated bound"):
        table.add_column(column)
    for column in ("passed", "÷ limit", "÷ stated bound", "the broker's own ÷ limit"):
        table.add_column(column, justify="right")
    for attack in attacks:
        ours, theirs = attack.sluice, attack.native
        either = ours or theirs
        table.add_row(
            attack.shown,
            either.limit if either else "",
            attack.bound,
            _amount(ours) if ours else "",
            f"{ours.vs_limit:.2f}" if ours else "",
            f"{ours.vs_bound:.2f}" if ours else "",
            f"{theirs.vs_limit:.2f}" if theirs else attack.native_ended,
        )
    return table


def _transactions_table(transactions: Mapping[str, Transactions]) -> Table:
    table = Table(title="Transactions that make producer state, a broker of 256 MiB")
    for column in ("side", "the broker", "how"):
        table.add_column(column)
    for column in ("ids offered", "ids taken", "pairs", "stated bound of ids"):
        table.add_column(column, justify="right")
    for side, result in transactions.items():
        died = "lives" if result.survived else f"died after {result.died_after_s:.0f} s"
        bound = "" if result.ids_bound is None else f"{result.ids_bound:g}"
        counts = (f"{x:,}" for x in (result.ids_offered, result.ids_taken, result.pairs))
        table.add_row(side, died, result.how, *counts, bound)
    return table


def _amount(outcome: Outcome) -> str:
    if outcome.unit == "bytes":
        return f"{outcome.passed / 1e6:,.2f} MB"
    return f"{outcome.passed:,.0f} {outcome.unit}"


def _ratios(attack: Attack) -> dict[str, object]:
    sides = {"sluice": attack.sluice, "native": attack.native}
    return {
        f"{side}_{name}": getattr(outcome, name)
        for side, outcome in sides.items()
        if outcome is not None
        for name in ("vs_limit", "vs_bound")
    }


def _plot(attacks: Sequence[Attack], path: Path) -> None:
    plot, axis = figure(1, 1)
    plot.set_size_inches(11, 1.5 + 0.45 * len(attacks))
    for position, attack in enumerate(attacks):
        for offset, side in ((-0.2, "sluice"), (0.2, "native")):
            outcome: Outcome | None = getattr(attack, side)
            if outcome is not None and outcome.passed > 0:
                axis.barh(position + offset, outcome.vs_limit, height=0.38, color=COLOURS[side])
        if attack.sluice is not None:
            stated = attack.sluice.bound / attack.sluice.allowed
            axis.plot([stated, stated], [position - 0.45, position + 0.05], color="black", linewidth=2)
    for side, colour in COLOURS.items():
        axis.barh(0, 0, color=colour, label=side)
    axis.plot([], [], color="black", linewidth=2, label="stated bound of Sluice")
    axis.set_yticks(range(len(attacks)), [attack.name for attack in attacks])
    axis.invert_yaxis()
    axis.set_xscale("log")
    axis.axvline(1.0, color="grey", linewidth=1, linestyle="--")
    axis.set_xlabel("what passed ÷ limit")
    axis.legend()
    save(plot, path)
