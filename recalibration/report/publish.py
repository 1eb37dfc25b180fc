"""A plan's files → OUT/plans/DATE-RUN/, whole or not at all; OUT/LATEST names the newest run, replaced last.

On a file system the folder is filled under a name with a dot, of its own, and renamed; whoever publishes at
the same time takes the next number. An object store has no folders and no renames: there LATEST alone tells
that a run is whole, and it is written when all files are there; two that publish at once may take one number.
"""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, Final

from pyarrow import fs

from sluice.recalibration.log.reader import LogFolder
from sluice.recalibration.report.files import write_outputs

if TYPE_CHECKING:
    from sluice.recalibration.job import Plan

LATEST: Final = "LATEST"
_PLANS: Final = "plans"
_UNFINISHED_S: Final = 86_400.0
"""no night fills a folder for that long"""


def write_plan(plan: Plan, out: str) -> str:
    """Its folder. What is half-written is never seen. `out`: a path, or a URI that pyarrow knows."""
    if "://" in out:
        return _uploaded(plan, LogFolder.of(out))
    plans = Path(out, _PLANS)
    plans.mkdir(parents=True, exist_ok=True)
    _forget_unfinished(plans)
    own = f"{plan.day.isoformat()}-{token_hex(8)}.new"
    beside = plans / f".{own}"
    beside.mkdir()
    try:
        write_outputs(plan, beside)
        folder = _renamed(plan, beside)
    except OSError:
        shutil.rmtree(beside, ignore_errors=True)
        raise
    _name_newest(Path(out), folder.name, own)
    return str(folder)


def _name_newest(out: Path, name: str, own: str) -> None:
    """`own`: what no other night calls its files. Raises OSError."""
    latest, beside = out / LATEST, out / f".{LATEST}-{own}"
    try:
        beside.write_text(name + "\n", encoding="utf-8")
        os.replace(beside, latest)
    except OSError as error:
        beside.unlink(missing_ok=True)
        if error.errno == errno.ENOSPC:
            raise
        why = (error.strerror or str(error)).lower()
        raise OSError(
            f"{latest}: cannot be replaced: {why}; move away what is in the way and run the date again; "
            f"the plan itself is written: {out / _PLANS / name}"
        ) from None


def _renamed(plan: Plan, beside: Path) -> Path:
    """To the first number that nobody takes meanwhile: no folder with files in it can be renamed onto."""
    while True:
        runs = (path.name for path in beside.parent.glob(f"{plan.day.isoformat()}-*"))
        folder = beside.with_name(_next_run(plan, runs))
        try:
            return beside.rename(folder)
        except OSError:
            if not folder.exists():
                raise


def _forget_unfinished(plans: Path) -> None:
    """What nights left that were killed."""
    for beside in plans.glob(".*.new"):
        try:
            is_old = time.time() - beside.stat().st_mtime > _UNFINISHED_S
        except OSError:
            continue  # renamed meanwhile
        if is_old:
            shutil.rmtree(beside, ignore_errors=True)


def _uploaded(plan: Plan, place: LogFolder) -> str:
    root = place.root.rstrip("/")
    plans = f"{root}/{_PLANS}"
    found = place.filesystem.get_file_info(fs.FileSelector(plans, allow_not_found=True))
    name = _next_run(plan, (info.base_name for info in found))
    with tempfile.TemporaryDirectory(prefix="sluice-plan-") as folder:
        write_outputs(plan, Path(folder))
        fs.copy_files(folder, f"{plans}/{name}", fs.LocalFileSystem(), place.filesystem)
    with place.filesystem.open_output_stream(f"{root}/{LATEST}") as latest:
        latest.write(f"{name}\n".encode())
    return f"{place.scheme}{plans}/{name}"


def _next_run(plan: Plan, names: Iterable[str]) -> str:
    """After the highest of this date: runs may have been tidied away."""
    prefix = f"{plan.day.isoformat()}-"
    numbers = [name.removeprefix(prefix) for name in names if name.startswith(prefix)]
    return f"{prefix}{max((int(number) for number in numbers if number.isdecimal()), default=0) + 1}"
