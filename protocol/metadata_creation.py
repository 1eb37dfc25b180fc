"""A Metadata request that has arrived whole → where it says whether the broker may make the topics it names.

Pure. Source: MetadataRequest.json 4.3.1.

    v4–v8    [name string], allow_auto_topic_creation bool, …
    v9       [name compact string, tags], the same
    v10–v13  [id uuid, name compact nullable string, tags], the same
"""

from __future__ import annotations

from typing import Final

from sluice.protocol.errors import MalformedFrame
from sluice.protocol.fetch_topic_ids import LONG_BYTES, MAX_PARTS, parts_left, skip_few_tags
from sluice.protocol.primitives import (
    UUID_BYTES,
    array_count,
    compact_array_count,
    skip,
    skip_compact_nullable,
    skip_nullable_string,
)

FIRST_ASKED: Final = 4
"""Before it brokers make whatever is named, if they make topics at all."""
FIRST_FLEXIBLE: Final = 9
_FIRST_TOPIC_ID: Final = 10


def allows_creation_at(buf: bytearray, body: int, end: int, version: int) -> int:
    """Offset of the byte that allows it; `body`: where the request's body begins.

    Raises MalformedFrame if it does not stand before `end`, and where the topics would take long to walk.
    """
    is_long = end - body > LONG_BYTES
    if version < FIRST_FLEXIBLE:
        topics, pos = array_count(buf, body, end, 2)
        parts_left(MAX_PARTS, topics, pos)
        for _ in range(topics):
            pos = skip_nullable_string(buf, pos, end)
    else:
        id_bytes = UUID_BYTES if version >= _FIRST_TOPIC_ID else 0
        topics, pos = compact_array_count(buf, body, end, id_bytes + 2)
        parts_left(MAX_PARTS, topics, pos)
        for _ in range(topics):
            pos = skip_compact_nullable(buf, skip(pos, id_bytes, end), end)
            pos = skip_few_tags(buf, pos, end, is_long=is_long)
    if pos >= end:
        raise MalformedFrame("a Metadata request that ends behind its topics", offset=pos)
    return pos
