"""What each attack gave, kept as soon as it is over: a run that was cut short goes on with `--resume`."""

import json
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from bench.bypass.outcome import Outcome, Transactions

FRESH_S: Final = 6 * 3600.0
"""older parts are of another day's code and machine, and are measured anew"""


class Parts:
    """The parts in one folder; a part is known by the attack, its side and its length in seconds."""

    def __init__(self, folder: Path, *, resumes: bool) -> None:
        self._folder = folder
        self._resumes = resumes

    def outcome(self, name: str, side: str, seconds: float) -> Outcome | str | None:
        """What an earlier run measured; how the broker ended; None: nothing, or it is not to be used."""
        found = self._read(name, side, seconds)
        if isinstance(found, dict):
            return Outcome(**found)
        return found

    def transactions(self, name: str, side: str, seconds: float) -> Transactions | None:
        """The same for the attack by transactions."""
        found = self._read(name, side, seconds)
        return Transactions(**found) if isinstance(found, dict) else None

    def keep(self, name: str, side: str, seconds: float, result: Outcome | Transactions | str) -> None:
        """`result`: a text says how the attack ended the broker itself."""
        self._folder.mkdir(parents=True, exist_ok=True)
        value = result if isinstance(result, str) else asdict(result)
        self._path(name, side, seconds).write_text(json.dumps(value), encoding="utf-8")

    def _read(self, name: str, side: str, seconds: float) -> dict[str, Any] | str | None:
        path = self._path(name, side, seconds)
        if not self._resumes or not path.exists() or time.time() - path.stat().st_mtime > FRESH_S:
            return None
        print(f"  {name}, {side}: as measured before", flush=True)
        found: dict[str, Any] | str = json.loads(path.read_text(encoding="utf-8"))
        return found

    def _path(self, name: str, side: str, seconds: float) -> Path:
        return self._folder / f"{name}-{side}-{seconds:.0f}.json"
