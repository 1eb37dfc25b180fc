"""The access log in a folder: files are written below `.writing/`, made durable, and renamed into place.

A reader so sees whole files alone; each writer has a name of its own there, for two may write the same file
(`access-log fetch`, run twice). The folder itself is never made: where it has vanished a volume is not
mounted, and files would go to the disk below it.
"""

from __future__ import annotations

import glob
import os
from contextlib import suppress
from pathlib import Path
from secrets import token_hex
from typing import Final

from sluice.proxy.access_log.sinks.sink import UNBOUNDED_BYTES, DirectorySettings, LogFile, SinkError
from sluice.quotas.files.config_error import ConfigError, Problem

WRITING: Final = ".writing"
"""below the root, on the same file system; readers look below the tables' folders"""
PART_SUFFIX: Final = ".part"
_FILE_MODE: Final = 0o640
"""Names of users stand in it; the job that reads may be another user of the same group."""


class DirectorySink:
    """Puts the files of one process into a folder, which several may share."""

    max_file_bytes = UNBOUNDED_BYTES

    def __init__(self, settings: DirectorySettings) -> None:
        """Raises ConfigError if nothing could ever be written there."""
        self._root = settings.path
        problem = _unusable(self._root)
        if problem:
            raise ConfigError([Problem(problem, path="access_log.directory.path")])

    def write(self, file: LogFile) -> None:
        """Durable when it returns: file and folder entry are synced. Raises SinkError, OSError."""
        if not self._root.is_dir():
            raise SinkError(f"the folder {self._root} is gone")
        beside = self._root / WRITING / f"{file.name}.{token_hex(4)}{PART_SUFFIX}"
        beside.parent.mkdir(mode=0o750, exist_ok=True)
        try:
            with open(beside, "xb", opener=_for_the_group) as opened:
                opened.write(file.data)
                opened.flush()
                os.fsync(opened.fileno())
            folder = self._root / file.folder
            self._make(folder)
            os.replace(beside, folder / file.name)
            _sync(folder)
            _remove_parts(beside.parent, file.name)
        except OSError:
            with suppress(OSError):
                beside.unlink()
            raise

    def close(self) -> None:
        """Does nothing: nothing is held between two files."""

    def _make(self, folder: Path) -> None:
        """A partition that is durable as well: each new folder's entry is synced."""
        missing = []
        while not folder.is_dir():
            missing.append(folder)
            folder = folder.parent
        for new in reversed(missing):
            new.mkdir(mode=0o750, exist_ok=True)
            _sync(new.parent)


def _remove_parts(writing: Path, name: str) -> None:
    """What a killed process has left of the same file: `access-log fetch` comes to it again."""
    with suppress(OSError):
        for left in writing.glob(f"{glob.escape(name)}*{PART_SUFFIX}"):
            left.unlink(missing_ok=True)


def _sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _for_the_group(path: str, flags: int) -> int:
    return os.open(path, flags, _FILE_MODE)


def _unusable(folder: Path) -> str:
    """Why no file can be there; empty: one can."""
    if not folder.is_dir():
        return f"there is no folder {folder}; make it, or name one that is there"
    if not os.access(folder, os.W_OK | os.X_OK):
        return f"nothing can be written into the folder {folder} by this user"
    return ""
