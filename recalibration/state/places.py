"""What must not stand in the way in an output folder: a file in the place of a folder, or the reverse.

Looked at before the night's work: that takes minutes, and ended at a first write, in the file system's words.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

_FOLDERS: Final = ("state", "windows", "standing", "beats", "plans")
_FILES: Final = ("LATEST", ".lock", "peaks.json", "grants.json", "rolled_back.json")


def check_places(out: str) -> None:
    """Raises OSError, naming what is in the way and what to do. An object store has no folders."""
    if "://" in out:
        return
    for name in _FOLDERS:
        if os.path.lexists(place := Path(out, name)) and not place.is_dir():
            raise OSError(f"{place}: is no folder; a night keeps one there: move it away")
    for name in _FILES:
        # A link that leads nowhere is replaced, as a file is.
        if (place := Path(out, name)).exists() and not place.is_file():
            raise OSError(f"{place}: is no file; a night keeps one there: move it away")
