"""A file of our own that survives a restart: replaced as a whole, readable by its owner alone.

Written beside and put in its place, so that a reader sees all of one state. Names of users stand in such
files.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path


class PrivateFile:
    """One path. Threads may write it at the same time: what was taken later stays."""

    __slots__ = ("_beside", "_lock", "_taken", "_written", "path")

    def __init__(self, path: Path) -> None:
        """`path`: one that is not `unusable`. Raises ValueError for one that has no name (`.`, `/`)."""
        self.path = path
        self._beside = path.with_name(f".{path.name}.new")
        self._lock = threading.Lock()
        self._taken = 0
        self._written = 0

    def take_number(self) -> int:
        """A number for the state that is taken now, which `replace` asks for."""
        with self._lock:
            self._taken += 1
            return self._taken

    def replace(self, data: bytes, number: int) -> None:
        """Put `data` in its place, unless a later state stands there: a thread goes on when its task is
        cancelled.

        Blocks. Raises OSError; what was there is there still then.
        """
        with self._lock:
            if number < self._written:
                return
            with open(self._beside, "wb", opener=_private) as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(self._beside, self.path)
            self._written = number

    def move_aside(self) -> str:
        """It is refused, but may be somebody else's, or be of use to who asks why. Returns what it is called
        now, or why it could not be kept."""
        kept = self.path.with_name(f"{self.path.name}.refused")
        try:
            os.replace(self.path, kept)
        except OSError as error:
            return f"not kept: {error}"
        return str(kept)


def unusable(path: Path) -> str:
    """Why no file can ever be written there; empty: one can."""
    folder = path.parent
    if not folder.is_dir():
        return f"there is no folder {folder}; make it, or name a file in one that is there"
    if path.is_dir():
        return f"{path} is a folder; name a file in it"
    if not os.access(folder, os.W_OK | os.X_OK):
        return f"nothing can be written into the folder {folder} by this user"
    return ""


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
