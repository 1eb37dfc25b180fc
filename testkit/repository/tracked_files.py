"""The project's own files: those that git tracks; in a checkout without git, all that .gitignore lets be."""

from __future__ import annotations

import fnmatch
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path


def tracked_files(root: Path, folder: str = ".") -> list[str]:
    """Those that are there, below `folder`, relative to `root`, sorted."""
    if shutil.which("git") and (root / ".git").exists():
        listed = subprocess.run(
            ["git", "ls-files", folder], cwd=root, check=True, capture_output=True, text=True
        )
        found = listed.stdout.splitlines()
    else:
        found = unignored_files(root, folder)
    return sorted(path for path in found if (root / path).is_file())


def unignored_files(root: Path, folder: str = ".") -> list[str]:
    """All that .gitignore lets be."""
    ignored = [".git", *(root / ".gitignore").read_text(encoding="utf-8").split()]
    return [path.relative_to(root).as_posix() for path in _walk(root / folder, ignored)]


def _walk(folder: Path, ignored: list[str]) -> Iterator[Path]:
    """Names are held against patterns, whatever the folders above; a pattern of several by its last."""
    for path in folder.iterdir():
        if any(_is_ignored(path, pattern) for pattern in ignored):
            continue
        if path.is_dir() and not path.is_symlink():
            yield from _walk(path, ignored)
        else:
            yield path


def _is_ignored(path: Path, pattern: str) -> bool:
    is_folder = pattern.endswith("/")
    return (path.is_dir() or not is_folder) and fnmatch.fnmatch(path.name, pattern.rstrip("/").split("/")[-1])
