"""What the access log has taken and not yet put away, noted on disk: a killed proxy's loss can so be told.

A file for each process, `INSTANCE-TOKEN.journal`, locked as long as the process lives. Its lines say what
goes into each file of the log, again and again while it grows, and that it is settled; now and then what is
not settled is written anew. At the next start the unlocked ones of the same instance are read: what was not
settled is lost. Of the last window, which had not been handed over yet, no note can tell.
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
from errno import EINVAL, ENOSPC
from functools import partial
from pathlib import Path
from typing import Any, Final

SUFFIX: Final = ".journal"
_ANEW_SUFFIX: Final = ".journal-anew"
"""until it is complete; in the place of the other then"""
_MODE: Final = 0o640
_MAX_LINE_BYTES: Final = 4096
_MAX_BYTES: Final = 64 * 1024 * 1024
"""a line has 80 bytes, and the file is written anew before it has far fewer"""
_ANEW_BYTES: Final = 64 * 1024
"""it is, from this size on: under load there is never a moment at which all is settled"""


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
        self._anew_path = self._path.with_suffix(_ANEW_SUFFIX)
        self._lock = threading.Lock()
        self._handle: int | None = None
        self._has_ended = False
        self._open_parts: dict[int, bytes] = {}
        """the last line of each"""
        self._size_bytes = 0
        self._anew_bytes = _ANEW_BYTES

    def begin(self) -> None:
        """Make the file. Raises OSError."""
        self._handle = self._made(self._path)

    @property
    def has_begun(self) -> bool:
        """`begin` went well, and `end` was not called yet."""
        return self._handle is not None

    def took(self, part: int, table: str, rows: int, first_ms: int, last_ms: int) -> None:
        """`part` holds so much by now. Raises OSError."""
        with self._lock:
            entry = {"part": part, "table": table, "rows": rows, "from": first_ms, "to": last_ms}
            self._open_parts[part] = _line_of(entry)
            self._add(self._open_parts[part])

    def settle(self, part: int) -> None:
        """`part` has been written, or dropped and told. Raises OSError."""
        with self._lock:
            self._open_parts.pop(part, None)
            if self._has_ended:
                self._settle_late(part)
            elif self._open_parts or self._handle is None:
                self._add(_line_of({"part": part, "settled": True}))
            else:
                os.ftruncate(self._handle, 0)
                self._size_bytes, self._anew_bytes = 0, _ANEW_BYTES

    def _settle_late(self, part: int) -> None:
        """Behind `end`, which could not wait for it: what the next start would tell is not lost."""
        if not self._open_parts:
            self._path.unlink(missing_ok=True)
            return
        with suppress(FileNotFoundError):  # the next process has told it already
            handle = os.open(self._path, os.O_WRONLY | os.O_APPEND)
            try:
                _write_whole(handle, _line_of({"part": part, "settled": True}), self._path)
            finally:
                os.close(handle)

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
            self._has_ended = True

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
                    if not os.path.samestat(os.fstat(file.fileno()), path.stat()):
                        continue  # its process was alive and wrote it anew just now
                    yield token, _unsettled(iter(partial(file.readline, _MAX_LINE_BYTES), b""))
                    path.with_suffix(_ANEW_SUFFIX).unlink(missing_ok=True)
                    path.unlink()
            except (FileNotFoundError, BlockingIOError):
                continue  # another process of this instance has told it; or its own is alive
            except OSError as error:
                failed(error)

    def _add(self, line: bytes) -> None:
        if self._handle is None:
            return
        try:
            _write_whole(self._handle, line, self._path)
        except OSError:
            self._anew_bytes = 0  # with the next line, so that this one is not lost
            # What it had room for would be one with the next line.
            os.ftruncate(self._handle, self._size_bytes)
            raise
        self._size_bytes += len(line)
        if self._size_bytes >= self._anew_bytes:
            self._anew_bytes = self._size_bytes + _ANEW_BYTES  # if it fails: not with each line again
            self._write_anew(self._handle)

    def _write_anew(self, old: int) -> None:
        """What is open alone, in another file, locked before it has the name; the old one stays locked until
        then. A process that is killed at any step leaves one of the two whole under the name."""
        lines = b"".join(self._open_parts.values())
        handle = self._made(self._anew_path)
        try:
            os.ftruncate(handle, 0)  # what an attempt left that failed
            _write_whole(handle, lines, self._anew_path)
            os.fsync(handle)
            os.replace(self._anew_path, self._path)
        except OSError:
            os.close(handle)
            with suppress(OSError):
                self._anew_path.unlink()
            raise
        self._handle, self._size_bytes = handle, len(lines)
        self._anew_bytes = max(_ANEW_BYTES, 2 * len(lines))
        os.close(old)

    def _made(self, path: Path) -> int:
        """A file of this process alone, open and locked."""
        self.folder.mkdir(mode=0o750, exist_ok=True)
        handle = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC, _MODE)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(handle)
            raise
        return handle


def _line_of(entry: dict[str, Any]) -> bytes:
    return json.dumps(entry).encode() + b"\n"


def _write_whole(handle: int, data: bytes, path: Path) -> None:
    """Raises OSError; a part of it may be there."""
    if os.write(handle, data) < len(data):
        raise OSError(ENOSPC, os.strerror(ENOSPC), str(path))


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
