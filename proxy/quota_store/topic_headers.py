"""Headers of a quota topic's record: who asked for it, which writing it was, on top of which record.

    by                the principal
    id                of the writing, by which its writer knows it again
    after             the offset of the entity's record that the writer had seen last; -1: there was none
    after_tombstone   true: that one was a tombstone; left out otherwise

Records of other tools have none of them.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from aiokafka import ConsumerRecord

FOREIGN: Final = "unknown (not written by a proxy)"
_BY: Final = "by"
_WRITE_ID: Final = "id"
_AFTER: Final = "after"
_AFTER_TOMBSTONE: Final = "after_tombstone"
_NAMES: Final = frozenset({_BY, _WRITE_ID, _AFTER, _AFTER_TOMBSTONE})
_TRUE: Final = "true"
UNREADABLE: Final = "\udcff"
"""stands for the headers of a record of which one has a name that is no UTF-8; no name can be this"""
_MAX_DIGITS: Final = 20


class Headers(NamedTuple):
    """What the headers of one record say."""

    by: str = FOREIGN
    write_id: str = ""
    after: int | None = None
    """an offset, -1 for none; None: the record does not say"""
    after_tombstone: bool = False
    problem: str = ""
    """why the record is no good, if that shows here"""

    def written(self) -> list[tuple[str, bytes]]:
        """These headers as a record carries them, (name, value) each: what `headers_of` reads."""
        pairs = [(_BY, self.by), (_WRITE_ID, self.write_id), (_AFTER, str(self.after))]
        if self.after_tombstone:
            pairs.append((_AFTER_TOMBSTONE, _TRUE))
        return [(name, text.encode()) for name, text in pairs]


def headers_of(record: ConsumerRecord) -> Headers:
    """What a record's headers say; of two of one name the first counts. Any may be null, and other tools
    write headers of their own."""
    found: dict[str, str] = {}
    for name, value in record.headers:
        if name in _NAMES and name not in found:
            found[name] = bytes(value or b"").decode(errors="replace")
    after = found.get(_AFTER, "")
    digits = after.removeprefix("-")
    return Headers(
        found.get(_BY) or FOREIGN,
        found.get(_WRITE_ID, ""),
        int(after) if digits.isascii() and digits.isdigit() and len(after) < _MAX_DIGITS else None,
        found.get(_AFTER_TOMBSTONE) == _TRUE,
        "a header's name is no UTF-8" if any(name == UNREADABLE for name, _ in record.headers) else "",
    )
