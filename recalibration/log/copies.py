"""Files of a log that lie there a second time, under whatever name: the same bytes. They are counted once.

A proxy's files have a name of their own, by a random token, and rows that no other has; so the same bytes are
a copy, as a sync that was run twice, or a restored backup, leaves it. Contents are hashed only of files whose
tables of contents are alike to the last offset; and of those that came after their hour was compacted: what a
compacted file has taken in, it names by its contents (CONTENTS_KEY). A compacted file of which another has
all contents is a copy, too: two have compacted at once. One that shares some of them with a larger one, and
has others, can be neither left out nor counted beside it without harm: it is named as a damaged one is, and
stays.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from itertools import chain
from typing import Final, TypeAlias

import pyarrow as pa
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


def copies_in(footers: Footers, contents: Callable[[str], str]) -> dict[str, str]:
    """Path of a copy → whose rows it has: of one that comes before it, or of a compacted one.

    `footers`: of all files of a date whose rows count, in order. `contents`: `contents_of` a path.
    """
    whole = {path: found for path, found in footers.items() if not isinstance(found, str)}
    compacted = {path: its for path, found in whole.items() if (its := taken_in(found))}
    gone = {
        path: other
        for path in whole
        if compacted and path not in compacted
        for other, its in compacted.items()
        if contents(path) in its
    }
    gone |= _contained(compacted, whole)
    alike: dict[tuple[int, int, int], list[str]] = {}
    for path, found in whole.items():
        if path not in gone:
            alike.setdefault(_shape(found), []).append(path)
    for paths in alike.values():
        gone |= _later_of_the_same(paths, whole, contents)
    return gone


def overlapping_in(footers: Footers) -> dict[str, str]:
    """Path of a compacted file that has rows of another one, but not those alone → this, in words.

    `footers`: of all files of a date that can be used.
    """
    whole = {path: found for path, found in footers.items() if not isinstance(found, str)}
    compacted = {path: its for path, found in whole.items() if (its := taken_in(found))}
    return _judged(compacted, whole)[1] if len(compacted) > 1 else {}


def _contained(
    compacted: Mapping[str, frozenset[str]], footers: Mapping[str, parquet.FileMetaData]
) -> dict[str, str]:
    """Path of a compacted file → another that has all its contents; of those with the same, the first.
    Not one whose number of rows belies it: another program has written it, and left our metadata there."""
    return _judged(compacted, footers)[0]


def _judged(
    compacted: Mapping[str, frozenset[str]], footers: Mapping[str, parquet.FileMetaData]
) -> tuple[dict[str, str], dict[str, str]]:
    """Those contained in another, which they stand for, and those that share some of their contents with one,
    and what of them; neither stands for any other."""
    gone: dict[str, str] = {}
    overlapping: dict[str, str] = {}
    holders: dict[str, list[str]] = {}
    # The largest first: what a file is contained in comes before it.
    for path in sorted(compacted, key=lambda path: (-len(compacted[path]), path)):
        its = compacted[path]
        shared: dict[str, int] = {}
        for other in chain.from_iterable(holders.get(one, ()) for one in its):
            shared[other] = shared.get(other, 0) + 1
        for other, number in sorted(shared.items()):
            is_all = its == compacted[other]
            if number == len(its) and _has_rows_of(footers[other], footers[path], is_all=is_all):
                gone[path] = other
                break
        else:
            some = {other: number for other, number in shared.items() if number < len(its)}
            if some:
                overlapping[path] = _shared_words(*min(some.items()), len(its))
                continue
            for one in its:
                holders.setdefault(one, []).append(path)
    return gone, overlapping


def _shared_words(other: str, shared: int, of: int) -> str:
    name = "/".join(other.rsplit("/", 2)[-2:])
    files = "1 file" if shared == 1 else f"{shared} files"
    return f"it has rows of {files} that {name} has, too, and of {of - shared} that it has not"


def _has_rows_of(other: parquet.FileMetaData, part: parquet.FileMetaData, *, is_all: bool) -> bool:
    """Whether that may be so, by what both tables of contents tell; `is_all`: it has no others."""
    if not is_all:
        return bool(part.num_rows <= other.num_rows)
    return bool(part.num_rows == other.num_rows) and _bounds(part) == _bounds(other)


def _bounds(footer: parquet.FileMetaData) -> list[tuple[object, object]]:
    """Least and largest value of each column, row group by row group."""
    found: list[tuple[object, object]] = []
    for group in range(footer.num_row_groups):
        for number in range(footer.num_columns):
            its = footer.row_group(group).column(number).statistics
            found.append((its.min, its.max) if its is not None and its.has_min_max else (None, None))
    return found


def _later_of_the_same(
    paths: list[str], footers: Mapping[str, parquet.FileMetaData], contents: Callable[[str], str]
) -> dict[str, str]:
    """By their whole tables of contents first: each is looked at once, however many are of one shape."""
    if len(paths) == 1:
        return {}
    alike: dict[bytes, list[str]] = {}
    for path in paths:
        alike.setdefault(_table_of(footers[path]), []).append(path)
    found: dict[str, str] = {}
    for same in alike.values():
        first: dict[str, str] = {}
        for path in same if len(same) > 1 else ():
            other = first.setdefault(contents(path), path)
            if other != path:
                found[path] = other
    return found


def _table_of(footer: parquet.FileMetaData) -> bytes:
    """Stands for all that the table of contents says: offsets, sizes, statistics, texts."""
    written = pa.BufferOutputStream()
    footer.write_metadata_file(written)
    return hashlib.blake2b(written.getvalue(), digest_size=_DIGEST_BYTES).digest()


def _shape(footer: parquet.FileMetaData) -> tuple[int, int, int]:
    size = footer.row_group(0).total_byte_size if footer.num_row_groups else 0
    return footer.num_rows, footer.serialized_size, size
