"""What the access log has taken and not yet put away, noted on disk: a killed proxy's loss can so be told.

A file for each process, `INSTANCE-TOKEN.journal`, locked as long as the process lives. Its lines say what
goes into each file of the log, again and again while it grows, and that it is settled. At the next start the
unlocked ones of the same instance are read: what was not settled is lost. Of the last window, which had not
been handed over yet, no note can tell.
"""

from __future__ import annotations

import fcntl
import json
import os
import stat
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from errno import EINVAL
from functools import partial
from pathlib import Path
from typing import Any, Final

SUFFIX: Final = ".journal"
_MODE: Final = 0o640
_MAX_LINE_BYTES: Final = 4096
_MAX_BYTES: Final = 64 * 1024 * 1024
"""a line has 80 bytes, and the file is emptied whenever all is settled"""


@dataclass(frozen=True, slots=True)
class LostPart:
    """Rows that an earlier process had taken and never put away."""

    table: str
    rows: int
    first_ms: int
    """begin of the first row's window; Unix time"""
    last_ms: int


class AccessJournal:
    """The journal of one process. Several threads may call its methods; each writes at most a line."""

    def __init__(self, folder: Path, instance: str, token: str) -> None:
        """`instance`: without a slash; `token`: of this process alone, without a hyphen."""
        self.folder = folder
        self.instance = instance
        self._path = folder / f"{instance}-{token}{SUFFIX}"
        self._lock = threading.Lock()
        self._handle: int | None = None
        self._open_parts: set[int] = set()

    def begin(self) -> None:
        """Make the file. Raises OSError."""
        self.folder.mkdir(mode=0o750, exist_ok=True)
        handle = os.open(self._path, os.O_CREAT | os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC, _MODE)
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self._handle = handle

    @property
    def has_begun(self) -> bool:
        """`begin` went well, and `end` was not called yet."""
        return self._handle is not None

    def took(self, part: int, table: str, rows: int, first_ms: int, last_ms: int) -> None:
        """`part` holds so much by now. Raises OSError."""
        with self._lock:
            self._open_parts.add(part)
            self._line({"part": part, "table": table, "rows": rows, "from": first_ms, "to": last_ms})

    def settle(self, part: int) -> None:
        """`part` has been written, or dropped and told. Raises OSError."""
        with self._lock:
            self._open_parts.discard(part)
            if self._open_parts or self._handle is None:
                self._line({"part": part, "settled": True})
            else:
                os.ftruncate(self._handle, 0)

    def end(self) -> None:
        """Remove the file if nothing is left open; else the next start will tell."""
        with self._lock:
            if self._handle is None:
                return
            if not self._open_parts:
                with suppress(OSError):
                    self._path.unlink()
            os.close(self._handle)
            self._handle = None

    def abandoned(self, failed: Callable[[OSError], None]) -> Iterator[tuple[str, list[LostPart]]]:
        """(token, what was lost) of each dead process of this instance. Its file is removed when the next is
        asked for. One that cannot be read or removed is told to `failed`, and keeps no other from being told.
        """
        for path in sorted(self.folder.glob(f"*{SUFFIX}")):
            instance, _, token = path.name.removesuffix(SUFFIX).rpartition("-")
            if instance != self.instance or path == self._path:
                continue
            try:
                with open(path, "rb", opener=_not_waiting) as file:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                        raise OSError(EINVAL, "is no regular file", str(path))
                    yield token, _unsettled(iter(partial(file.readline, _MAX_LINE_BYTES), b""))
                    path.unlink()
            except (FileNotFoundError, BlockingIOError):
                continue  # another process of this instance has told it; or its own is alive
            except OSError as error:
                failed(error)

    def _line(self, entry: dict[str, Any]) -> None:
        if self._handle is not None:
            os.write(self._handle, json.dumps(entry).encode() + b"\n")


def _not_waiting(path: str, flags: int) -> int:
    """A FIFO would never be opened."""
    return os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY)


def _unsettled(lines: Iterable[bytes]) -> list[LostPart]:
    """What a journal says; a line that was cut off, or is none, says nothing. Of what is larger than any
    journal the rest is not read."""
    parts: dict[int, LostPart] = {}
    size_bytes = 0
    for line in lines:
        size_bytes += len(line)
        if size_bytes > _MAX_BYTES:
            break
        try:
            entry = json.loads(line)
            if entry.get("settled"):
                parts.pop(entry["part"], None)
            else:
                parts[int(entry["part"])] = LostPart(
                    str(entry["table"]), int(entry["rows"]), int(entry["from"]), int(entry["to"])
                )
        except (ValueError, KeyError, TypeError, AttributeError):
            continue
    return list(parts.values())
