"""Figures of the clients benchmark → tables for people, JSON, a plot, and the summary for programs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from rich.table import Table

from bench.clients.cases import CLIENTS, NATIVE, SLUICE
from bench.clients.judge import FAULTS, Figures
from bench.clients.programs import versions
from bench.clients.rig import Bite
from bench.lib.plots import figure, save
from bench.lib.results import machine, print_last_line, wide_console, write_json

COLOURS: Final = {NATIVE: "C1", SLUICE: "C0"}
Results = Mapping[str, Mapping[str, Mapping[str, Figures]]]
"""client → side → role → figures"""


@dataclass(frozen=True, slots=True)
class ClientsRun:
    """All that one run found."""

    results: Results
    missing: Mapping[str, str]
    """client → why it could not run"""
    bites: Mapping[str, Mapping[str, Bite]]
    """client → role → what Sluice made its requests wait"""
    seconds: float
    quick: bool


def line_of(client: str, role: str, side: str, figures: Figures) -> str:
    """One line of progress."""
    faults = ", ".join(f"{name} {count}" for name, count in figures.faults().items() if count)
    first = next(iter(figures.notes), "")
    return (
        f"{client:<17} {role:<9} {side:<7} {figures.records:,} records in {figures.seconds:.0f} s: "
        f"{faults or 'exact'}{f'  ({first})' if first else ''}"
    )


def report(run: ClientsRun, folder: Path) -> None:
    """Prints the tables, writes clients.json and clients.png, and prints the summary as the last line."""
    console = wide_console()
    console.print(_table(run))
    for client, reason in run.missing.items():
        console.print(f"{client} could not run: {reason}", style="bold")
    for client, role in without_a_bite(run):
        console.print(f"{client}, {role}: no quota made it wait, so this part shows nothing", style="bold")
    summary = summary_of(run.results)
    write_json(
        folder / "clients.json",
        {
            "summary": summary,
            "machine": machine(),
            "seconds": round(run.seconds),
            "quick": run.quick,
            "versions": versions(),
            "could_not_run": dict(run.missing),
            "loads": {
                client.name: {role: asdict(client.load(role, quick=run.quick)) for role in client.roles}
                for client in CLIENTS
                if client.name in run.results
            },
            "sluice_waits": {
                client: {role: asdict(bite) for role, bite in roles.items()}
                for client, roles in run.bites.items()
            },
            "clients": {
                client: {
                    side: {role: asdict(figures) for role, figures in roles.items()}
                    for side, roles in sides.items()
                }
                for client, sides in run.results.items()
            },
        },
    )
    _plot(run.results, folder / "clients.png")
    console.print(f"written: {folder / 'clients.json'}, clients.png, after {run.seconds / 60:.0f} minutes")
    print_last_line(summary)


def without_a_bite(run: ClientsRun) -> list[tuple[str, str]]:
    """Client and role that went through Sluice and never had to wait for bytes."""
    return [
        (client, role)
        for client, sides in run.results.items()
        for role in sides.get(SLUICE, {})
        if not run.bites[client][role].bytes_s
    ]


def summary_of(results: Results) -> dict[str, object]:
    """What `make bench-clients` promises: sums over all clients and roles, of Sluice unless `native_`."""
    through = [sides[SLUICE] for sides in results.values() if SLUICE in sides]
    summary: dict[str, object] = {"clients": len(through)}
    for fault in FAULTS:
        summary[fault] = sum(getattr(each, fault) for roles in through for each in roles.values())
    native = [sides[NATIVE] for sides in results.values() if NATIVE in sides]
    summary["native_doubled"] = sum(each.doubled for roles in native for each in roles.values())
    return summary


def _table(run: ClientsRun) -> Table:
    table = Table(
        title="Every client under quotas that bite, through Sluice and on the broker's own",
        caption="waits: for bytes and for producer ids in Sluice, added up over all requests",
    )
    for column in ("client", "role", "side"):
        table.add_column(column)
    for column in ("records", *(fault.replace("_", " ") for fault in FAULTS), "took", "waits: bytes", "ids"):
        table.add_column(column, justify="right")
    for client, sides in run.results.items():
        shown = client
        for role in next(iter(sides.values())):
            for side, roles in sides.items():
                figures = roles[role]
                bite = run.bites[client][role]
                waits = (f"{bite.bytes_s:.0f} s", f"{bite.ids_s:.0f} s") if side == SLUICE else ("", "")
                table.add_row(
                    shown,
                    role,
                    side,
                    f"{figures.records:,}",
                    *(f"{count:,}" if count else "·" for count in figures.faults().values()),
                    f"{figures.seconds:.0f} s",
                    *waits,
                )
                shown = ""
        table.add_section()
    return table


def _plot(results: Results, path: Path) -> None:
    plot, axes = figure(1, 3)
    for axis, fault in zip(axes, ("doubled", "gave_up", "commit_failures"), strict=True):
        names = list(results)
        for index, side in enumerate((SLUICE, NATIVE)):
            sums = [
                sum(getattr(each, fault) for each in results[name].get(side, {}).values()) for name in names
            ]
            places = [place + 0.4 * index for place in range(len(names))]
            axis.barh(places, sums, height=0.4, color=COLOURS[side], label=side)
        axis.set_yticks([place + 0.2 for place in range(len(names))], names)
        axis.invert_yaxis()
        axis.set_title(fault.replace("_", " "))
        axis.legend()
    axes[0].set_xlabel("records")
    axes[1].set_xlabel("records")
    save(plot, path)
