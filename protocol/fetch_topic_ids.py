"""A Fetch or ShareFetch that has arrived whole → the ids of the topics that it asks for; a DeleteTopics →
those of the topics that it deletes by id. Pure.

Only versions that name topics by id. Source: FetchRequest.json, ShareFetchRequest.json,
DeleteTopicsRequest.json 4.3.1.

    Fetch v13–v18  …, maxBytes int32, isolationLevel int8, sessionId int32, epoch int32,
                   [topic uuid, [32 bytes, tags]]
    ShareFetch     …, maxBytes int32, maxRecords int32, batchSize int32, (v2: int8, bool,)
                   [topic uuid, [index int32, [first int64, last int64, types]]]
    DeleteTopics v6  [name string or null, topic uuid], timeoutMs int32
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from sluice.protocol.apis import FETCH
from sluice.protocol.errors import MalformedFrame
from sluice.protocol.fetch import max_bytes_offset
from sluice.protocol.primitives import (
    UUID_BYTES,
    compact_array_count,
    skip,
    skip_compact_nullable,
    skip_tags,
    tag_count,
    uvarint,
)

FETCH_FIRST_TOPIC_ID: Final = 13
_FETCH_TOPICS_AT: Final = 13
"""behind where max_bytes stands"""
_SHARE_TOPICS_AT: Final = (0, 12, 14)
"""by version"""
_PARTITION_BYTES: Final = 32
"""of a Fetch, up to its tags"""
_ONE_BYTES: Final = UUID_BYTES + 1 + _PARTITION_BYTES + 2
"""of a topic with one partition, without tags"""
_KNOWN_TAG_BYTES: Final[Mapping[int, Mapping[int, int]]] = {17: {0: 16}, 18: {0: 16, 1: 8}}
"""by version of a Fetch and by tag: of a partition's replica directory, and its high watermark"""
_NO_TAGS: Final[Mapping[int, int]] = {}
_TOPIC_MIN_BYTES: Final = UUID_BYTES + 2
_SHARE_PARTITION_MIN_BYTES: Final = 6
_ACKNOWLEDGEMENT_MIN_BYTES: Final = 18
MAX_PARTS: Final = 20_000
"""Topics of a Fetch; topics, partitions and acknowledgements of a ShareFetch: each costs up to a microsecond,
in which nobody else is served"""
LONG_BYTES: Final = 128 * 1024
"""A longer request has no tags in its topics: clients write none, and each takes as long as a topic."""


def fetch_topic_ids(buf: bytearray, body: int, end: int, api_key: int, version: int) -> list[bytes]:
    """16 bytes each, as often as the request names it; `body`: where its body begins.

    Raises MalformedFrame if the topics do not stand before `end`, and where they would take long to walk.
    """
    is_long = end - body > LONG_BYTES
    pos = max_bytes_offset(buf, body, end, api_key, version)
    pos += _FETCH_TOPICS_AT if api_key == FETCH else _SHARE_TOPICS_AT[version]
    topics, pos = compact_array_count(buf, pos, end, _TOPIC_MIN_BYTES)
    left = parts_left(MAX_PARTS, topics, pos)
    stop = pos + topics * _ONE_BYTES
    if api_key == FETCH and topics > 0 and stop <= end and _have_one(buf, pos, stop, topics):
        return [bytes(buf[at : at + UUID_BYTES]) for at in range(pos, stop, _ONE_BYTES)]
    found = []
    for _ in range(topics):
        after = skip(pos, UUID_BYTES, end)
        found.append(bytes(buf[pos:after]))
        if api_key == FETCH:
            pos = _skip_fetch(buf, after, end, version, is_long=is_long)
        else:
            pos, left = _skip_share_fetch(buf, after, end, left, is_long=is_long)
        pos = skip_few_tags(buf, pos, end, is_long=is_long)
    return found


def parts_left(parts: int, count: int, pos: int) -> int:
    """So many of `parts` are left. Raises MalformedFrame if that is less than none."""
    if count > parts:
        raise MalformedFrame(f"more than {MAX_PARTS} topics and partitions", offset=pos)
    return parts - max(count, 0)


def skip_few_tags(buf: bytearray, pos: int, end: int, *, is_long: bool) -> int:
    """As `skip_tags`; a long request has none."""
    if is_long and pos < end and buf[pos]:
        raise MalformedFrame(f"tagged fields in the topics of more than {LONG_BYTES} bytes", offset=pos)
    return skip_tags(buf, pos, end)


def _have_one(buf: bytearray, pos: int, stop: int, topics: int) -> bool:
    """All topics have one partition, and nothing has tags, as in most Fetches of many topics."""
    return (
        buf[pos + UUID_BYTES : stop : _ONE_BYTES] == b"\2" * topics
        and not any(buf[pos + _ONE_BYTES - 2 : stop : _ONE_BYTES])
        and not any(buf[pos + _ONE_BYTES - 1 : stop : _ONE_BYTES])
    )


def _skip_fetch(buf: bytearray, pos: int, end: int, version: int, *, is_long: bool) -> int:
    partitions, pos = compact_array_count(buf, pos, end, _PARTITION_BYTES + 1)
    stop = pos + partitions * (_PARTITION_BYTES + 1)
    # The usual: no partition has tags. Each then is as long as the others, and ends with a 0.
    if not any(buf[pos + _PARTITION_BYTES : stop : _PARTITION_BYTES + 1]):
        return max(pos, stop)
    known = _KNOWN_TAG_BYTES.get(version, _NO_TAGS)
    for _ in range(partitions):
        begin = skip(pos, _PARTITION_BYTES, end)
        pos = skip_few_tags(buf, begin, end, is_long=is_long)
        if known and buf[begin]:
            _check_known_tags(buf, begin, end, known)
    return pos


def _check_known_tags(buf: bytearray, pos: int, end: int, known: Mapping[int, int]) -> None:
    """Brokers read a field that they know, whatever the size before it says. One that says otherwise would
    have them find other topics behind it than are found here: raises MalformedFrame for it."""
    fields, pos = tag_count(buf, pos, end)
    for _ in range(fields):
        tag, pos = uvarint(buf, pos, end)
        size, pos = uvarint(buf, pos, end)
        if size != known.get(tag, size):
            raise MalformedFrame(f"tagged field {tag} of {size} bytes, has {known[tag]}", offset=pos)
        pos += size


def _skip_share_fetch(buf: bytearray, pos: int, end: int, left: int, *, is_long: bool) -> tuple[int, int]:
    """(where they end, `left` without them)"""
    partitions, pos = compact_array_count(buf, pos, end, _SHARE_PARTITION_MIN_BYTES)
    left = parts_left(left, partitions, pos)
    for _ in range(partitions):
        batches, pos = compact_array_count(buf, skip(pos, 4, end), end, _ACKNOWLEDGEMENT_MIN_BYTES)
        left = parts_left(left, batches, pos)
        for _ in range(batches):
            pos = skip_compact_nullable(buf, skip(pos, 16, end), end)
            pos = skip_few_tags(buf, pos, end, is_long=is_long)
        pos = skip_few_tags(buf, pos, end, is_long=is_long)
    return pos, left


def deleted_topic_ids(buf: bytearray, body: int, end: int) -> list[bytes]:
    """The ids by which a DeleteTopics v6 names topics; those with a name are left out.

    Raises MalformedFrame if the topics do not stand before `end`, and where they would take long to walk.
    """
    is_long = end - body > LONG_BYTES
    topics, pos = compact_array_count(buf, body, end, UUID_BYTES + 2)
    parts_left(MAX_PARTS, topics, pos)
    found = []
    for _ in range(topics):
        length, pos = uvarint(buf, pos, end)
        pos = skip(pos, max(length - 1, 0), end)
        after = skip(pos, UUID_BYTES, end)
        if length == 0:
            found.append(bytes(buf[pos:after]))
        pos = skip_few_tags(buf, after, end, is_long=is_long)
    return found
