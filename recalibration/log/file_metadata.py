"""What Sluice writes into the metadata of a log's Parquet files, and whether it is that.

Another program may copy the keys and write something else there. By such a file nobody can tell which rows
are counted elsewhere, so it is damaged as a whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pyarrow import parquet

from sluice.quotas.files.json_text import parse_json, text_from
from sluice.usage.access_record import VERSION_KEY

REPLACES_KEY: Final = "sluice_replaces"
"""in a compacted file's metadata: a JSON list of the names, in the same folder, whose rows it has"""
CONTENTS_KEY: Final = "sluice_contents"
"""likewise: a JSON list of the contents (copies.contents_of) of each file whose rows it has"""
_MOST_DIGITS: Final = 9


def names_in(footer: parquet.FileMetaData, key: str) -> Sequence[str]:
    """The list under REPLACES_KEY or CONTENTS_KEY; empty: there is none. Raises ValueError: it is no list."""
    told = (footer.metadata or {}).get(key.encode())
    found = [] if told is None else parse_json(told)
    if not isinstance(found, list):
        raise ValueError("no list")
    return [text_from(name) for name in found]


def version_of(footer: parquet.FileMetaData) -> int:
    """The schema's version; files that do not tell have the first. Raises ValueError if it is no number."""
    told = (footer.metadata or {}).get(VERSION_KEY.encode(), b"1")
    if not told.isdigit() or len(told) > _MOST_DIGITS:
        raise ValueError("no whole number")
    return int(told)


def damage_of(footer: parquet.FileMetaData) -> str | None:
    """What of the metadata is not what Sluice writes, in words; None: all is well."""
    for key in (REPLACES_KEY, CONTENTS_KEY, VERSION_KEY):
        try:
            if key == VERSION_KEY:
                version_of(footer)
            else:
                names_in(footer, key)
        except ValueError as error:
            return f"its metadata {key} is not what Sluice writes: {error}"
    return None
