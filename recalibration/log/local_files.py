"""The files below a folder of this machine, each once, whatever links there are.

A link may lead back to where it lies: each file then has many names, and two such links make more of them
than can be listed. Under two names a file would be a copy of itself (copies.py); compaction removes copies.
"""

from __future__ import annotations

import os
from contextlib import suppress


def files_below(folder: str) -> list[str]:
    """Paths of regular files; what links lead to is among them, under one name. Raises OSError.

    A file's own name goes before any by a link; of several links to a folder the first in order is followed.
    """
    found: dict[str, str] = {}
    seen: set[str] = set()
    waiting = [folder]
    file_links: list[str] = []
    folder_links: list[str] = []
    while waiting:
        at = waiting.pop()
        real = os.path.realpath(at)
        if real not in seen:
            seen.add(real)
            with suppress(FileNotFoundError), os.scandir(at) as entries:  # no log, or removed meanwhile
                for entry in entries:
                    path = f"{at}/{entry.name}"
                    if entry.is_symlink():
                        (folder_links if os.path.isdir(path) else file_links).append(path)
                    elif entry.is_dir():
                        waiting.append(path)
                    elif entry.is_file():
                        found[f"{real}/{entry.name}"] = path
        if not waiting:
            waiting, folder_links = sorted(folder_links, reverse=True), []
    for path in sorted(file_links):
        if os.path.isfile(path):
            found.setdefault(os.path.realpath(path), path)
    return list(found.values())
