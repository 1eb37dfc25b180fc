"""Where results go and what machine they come from."""

import json
import os
import platform
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

from rich.console import Console

OFFICIAL: Final = Path(__file__).parent.parent / "results"
TRIAL: Final = Path(__file__).parent.parent.parent / ".cache" / "bench"


def results_folder(asked: Path | None, *, official: bool) -> Path:
    """The folder asked for; else bench/results for a full run, and a git-ignored one for any other."""
    folder = asked or (OFFICIAL if official else TRIAL)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def machine() -> dict[str, object]:
    """What a reader needs to know to compare: processor, cores, kernel, Python, time, commit; and of the time
    in which the cores had work since the start, what the host gave to others."""
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "ended": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "load_average_at_end": [round(x, 2) for x in os.getloadavg()],
        "steal_share": _steal_share(),
        "commit": _commit(),
    }


def write_json(path: Path, content: object) -> None:
    path.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def wide_console() -> Console:
    """A console that does not break tables when standard output is a file."""
    return Console() if sys.stdout.isatty() else Console(width=170)


def print_last_line(summary: dict[str, object]) -> None:
    """The one line that other programs read."""
    print(json.dumps(summary), flush=True)
    sys.stdout.flush()


def _work_and_steal() -> tuple[int, int]:
    """Clock ticks of all cores (proc_stat(5)): those with work, and of these the stolen ones."""
    with Path("/proc/stat").open(encoding="ascii") as file:
        user, nice, system, _, _, irq, softirq, steal, *_ = map(int, file.readline().split()[1:])
    return user + nice + system + irq + softirq + steal, steal


_AT_START: Final = _work_and_steal()


def _steal_share() -> float:
    work, steal = (now - then for now, then in zip(_work_and_steal(), _AT_START, strict=True))
    return round(steal / work, 3) if work else 0.0


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def _commit() -> str:
    asked = subprocess.run(
        ["git", "describe", "--always", "--dirty"], capture_output=True, text=True, cwd=OFFICIAL, check=False
    )
    return asked.stdout.strip() or "unknown"
