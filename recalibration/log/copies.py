"""Files of a log that lie there a second time, under whatever name: the same bytes. They are counted once.

A proxy's files have a name of their own, by a random token, and rows that no other has; so the same bytes are
a copy, as a sync that was run twice, or a restored backup, leaves it. Contents are hashed only of files whose
tables of contents are alike to the last offset; and of those that came after their hour was compacted: what a
compacted file has taken in, it names by its contents (CONTENTS_KEY).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from pyarrow import fs, parquet

from sluice.recalibration.log.file_metadata import CONTENTS_KEY, names_in

_DIGEST_BYTES: Final = 16
Footers: TypeAlias = Mapping[str, "parquet.FileMetaData | str"]
"""path → its table of contents, or what is wrong with it"""


def contents_of(filesystem: fs.FileSystem, path: str) -> str:
    """Stands for a file's bytes. Raises OSError."""
    with filesystem.open_input_file(path) as file:
        return hashlib.blake2b(file.read(), digest_size=_DIGEST_BYTES).hexdigest()


def taken_in(footer: parquet.FileMetaData) -> frozenset[str]:
    """The contents whose rows a compacted file has; empty: it is none, or an older one."""
    return frozenset(names_in(footer, CONTENTS_KEY))


def copies_in(footers: Footers, contents: Callable[[str], str]) -> set[str]:
    """The paths that are copies: of one that comes before them, or of one that was compacted.

    `footers`: of all files of a date whose rows count, in order. `contents`: `contents_of` a path.
    """
    whole = {path: found for path, found in footers.items() if not isinstance(found, str)}
    compacted = {path: its for path, found in whole.items() if (its := taken_in(found))}
    gone = {
        path
        for path in whole
        if compacted and path not in compacted and any(contents(path) in its for its in compacted.values())
    }
    alike: dict[tuple[int, int, int], list[str]] = {}
    for path, found in whole.items():
        if path not in gone:
            alike.setdefault(_shape(found), []).append(path)
    for paths in alike.values():
        gone |= _later_of_the_same(paths, whole, contents)
    return gone


def _later_of_the_same(
    paths: list[str], footers: Mapping[str, parquet.FileMetaData], contents: Callable[[str], str]
) -> set[str]:
    first: list[str] = []
    found = set()
    for path in paths:
        like = [other for other in first if footers[other].equals(footers[path])]
        if like and contents(path) in map(contents, like):
            found.add(path)
        else:
            first.append(path)
    return found


def _shape(footer: parquet.FileMetaData) -> tuple[int, int, int]:
    size = footer.row_group(0).total_byte_size if footer.num_row_groups else 0
    return footer.num_rows, footer.serialized_size, size
