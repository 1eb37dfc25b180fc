"""Results of the fault benchmark → a table for people, JSON, a plot, and the summary for programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from rich.table import Table

from bench.faults.rig import Found
from bench.faults.told import Told
from bench.lib.results import machine, print_last_line, wide_console, write_json
from bench.soak.verdict import longest_silence

MIB: Final = 2**20


@dataclass(frozen=True, slots=True)
class FaultRow:
    """What became of one fault. Times are monotonic, in seconds."""

    name: str
    begun_s: float
    over_s: float
    recovered_s: float | None
    """from its end until all was well; None: not in time"""
    alive: bool
    told: Told
    found: Mapping[str, Found]
    turned_away: int
    """clients that came anew meanwhile and were not served"""
    newcomers: int
    access_log_rows_lost: int | None
    rss_growth_bytes: int

    def total(self, figure: str) -> int:
        """The sum of one figure of all clients' verdicts."""
        return sum(int(getattr(found.verdict, figure)) for found in self.found.values())

    @property
    def lost(self) -> int:
        """Acknowledged, and not stored or not to be read through the proxy."""
        return self.total("lost") + sum(x.unread for x in self.found.values())

    @property
    def doubled(self) -> int:
        """Stored, or read, more often than once."""
        return self.total("doubled") + sum(x.read_twice for x in self.found.values())

    @property
    def survived(self) -> bool:
        """All was well afterwards, and everything is there once and in order."""
        harm = self.lost + self.doubled + self.total("out_of_order")
        return self.alive and self.recovered_s is not None and not harm

    @property
    def silence_s(self) -> float:
        """The longest that a client that was there already got no record acknowledged."""
        longest = 0.0
        for found in self.found.values():
            times_s = [at_s for _, at_s in found.answers.acknowledged if at_s >= self.begun_s - 1.0]
            longest = max(longest, longest_silence(times_s)[1])
        return longest


def summary_of(rows: Sequence[FaultRow]) -> dict[str, object]:
    """What `make bench-faults` promises, for programs."""
    return {
        "faults": len(rows),
        "survived": sum(row.survived for row in rows),
        "lost_records": sum(row.lost for row in rows),
        "untold": sum(not row.told.by for row in rows),
    }


def progress(row: FaultRow) -> str:
    """One line while it runs."""
    lost = f"lost {row.lost}, doubled {row.doubled}, out of order {row.total('out_of_order')}"
    back = "NOT WELL AGAIN" if row.recovered_s is None else f"well {row.recovered_s:.1f} s after its end"
    end = "" if row.alive else "; THE PROXY ENDED"
    return f"{row.name}: {lost}; {_told(row)}; silence {row.silence_s:.1f} s; {back}{end}"


def _told(row: FaultRow) -> str:
    if not row.told.by:
        return "UNTOLD"
    return ", ".join(f"{what} ({at_s:.1f} s)" for what, at_s in row.told.by.items())


def report(rows: Sequence[FaultRow], folder: Path) -> None:
    """Prints the table, writes faults.json and .png, and prints the summary as the last line."""
    console = wide_console()
    console.print(_table(rows))
    summary = summary_of(rows)
    write_json(
        folder / "faults.json",
        {"summary": summary, "machine": machine(), "rows": [_shown(row) for row in rows]},
    )
    _plot(rows, folder / "faults.png")
    console.print(f"written: {folder / 'faults'}.json, faults.png")
    print_last_line(summary)


def _shown(row: FaultRow) -> dict[str, object]:
    return {
        "fault": row.name,
        "survived": row.survived,
        "proxy_lived": row.alive,
        "held_s": round(row.over_s - row.begun_s, 1),
        "recovered_s": None if row.recovered_s is None else round(row.recovered_s, 2),
        "longest_silence_s": round(row.silence_s, 2),
        "lost": row.lost,
        "doubled": row.doubled,
        "out_of_order": row.total("out_of_order"),
        "acknowledged": row.total("acknowledged"),
        "failed": row.total("failed"),
        "newcomers": row.newcomers,
        "newcomers_turned_away": row.turned_away,
        "access_log_rows_lost": row.access_log_rows_lost,
        "rss_growth_mib": round(row.rss_growth_bytes / MIB, 1),
        "told_after_s": row.told.by,
        "logged_besides": row.told.besides,
        "clients": {
            name: asdict(found.verdict)
            | {"unread": found.unread, "read_twice": found.read_twice, "skipped": found.skipped}
            | {"errors": found.answers.errors}
            for name, found in row.found.items()
        },
    }


def _table(rows: Sequence[FaultRow]) -> Table:
    table = Table(
        title="Faults under real clients",
        caption="silence: longest without an acknowledgement; recovered: from the fault's end until old and "
        "new clients are served and the proxy says so",
    )
    table.add_column("fault")
    for column in ("lost", "doubled", "out of order", "log rows lost", "turned away"):
        table.add_column(column, justify="right")
    table.add_column("told, after seconds")
    for column in ("silence s", "recovered s", "MiB more"):
        table.add_column(column, justify="right")
    for row in rows:
        table.add_row(
            row.name,
            *(str(x) for x in (row.lost, row.doubled, row.total("out_of_order"))),
            "?" if row.access_log_rows_lost is None else str(row.access_log_rows_lost),
            f"{row.turned_away} of {row.newcomers}",
            _told(row),
            f"{row.silence_s:.1f}",
            "never" if row.recovered_s is None else f"{row.recovered_s:.1f}",
            f"{row.rss_growth_bytes / MIB:+.1f}",
            style=None if row.survived and row.told.by else "bold red",
        )
    return table


def _plot(rows: Sequence[FaultRow], path: Path) -> None:
    from bench.lib.plots import figure, save

    plot, axes = figure(1, 1)
    plot.set_size_inches(11, 0.27 * len(rows) + 1.5)
    names = [row.name for row in rows]
    places = list(range(len(rows)))
    axes.barh(
        [x - 0.2 for x in places], [row.silence_s for row in rows], 0.38, label="longest silence of a client"
    )
    axes.barh(
        [x + 0.2 for x in places],
        [float("nan") if row.recovered_s is None else row.recovered_s for row in rows],
        0.38,
        label="well again, after the fault's end",
    )
    told = [(min(row.told.by.values()), at) for row, at in zip(rows, places, strict=True) if row.told.by]
    if told:
        axes.scatter(*zip(*told, strict=True), s=14, color="black", label="told", zorder=3)
    axes.set_yticks(places, names, fontsize="small")
    axes.invert_yaxis()
    axes.set_xscale("symlog", linthresh=1.0)
    axes.set_xlabel("s")
    axes.legend(fontsize="small")
    save(plot, path)
