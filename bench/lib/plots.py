"""The little that all plots share: no display, one look, a size that a README can show."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any


def figure(rows: int, columns: int, width_ratios: Sequence[float] | None = None) -> tuple[Any, Any]:
    """A figure without a window, and its axes."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    return pyplot.subplots(
        rows,
        columns,
        figsize=(6 * columns, 4 * rows),
        layout="constrained",
        gridspec_kw={"width_ratios": width_ratios} if width_ratios else None,
    )


def save(plot: Any, path: Path) -> None:
    """Writes the file and frees the figure."""
    from matplotlib import pyplot

    plot.savefig(path, dpi=110)
    pyplot.close(plot)
