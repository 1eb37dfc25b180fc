"""Bounds how many parts of one request are walked, tagged fields among them.

Knows no message.
"""

from __future__ import annotations

from typing import Final

from sluice.protocol.errors import MalformedFrame
from sluice.protocol.primitives import Buffer, skip_tags, tag_count

MAX_PARTS: Final = 20_000
"""Topics, partitions and tagged fields of a request, and batches: each costs a microsecond or two, in which
nobody else is served. A Produce of 1 MiB, Kafka's default at most, has room for 14,000 batches; brokers take
one a partition, and nobody writes tagged fields"""


class Parts:
    """Counts what one request names: each part costs a microsecond or two, in which nobody else is served."""

    __slots__ = ("_count", "_what")

    def __init__(self, what: str) -> None:
        """`what`: these parts, as an error tells them."""
        self._what = what
        self._count = 0

    def add(self, count: int, pos: int) -> None:
        """`count` more, before they are read; none of an array that is null. Raises MalformedFrame above
        MAX_PARTS in all."""
        self._count += max(count, 0)
        if self._count > MAX_PARTS:
            raise MalformedFrame(
                f"request of {self._count:,} {self._what}, must be ≤ {MAX_PARTS:,}", offset=pos
            )

    def skip_tags(self, buf: Buffer, pos: int, end: int) -> int:
        """As `primitives.skip_tags`; the fields count."""
        if pos < end and buf[pos] == 0:
            return pos + 1
        self.add(*tag_count(buf, pos, end))
        return skip_tags(buf, pos, end)
