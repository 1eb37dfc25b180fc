"""The walks through response bodies that carry brokers' addresses (which, and where: see addresses.py).

Each walk takes `(buf, pos, end, version, found)`, `pos` at the start of the body, adds each Address to
`found` and returns where it ended. Bounded by the bytes left; knows no frame. Source: the response JSON of
Kafka 4.3.1.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from sluice.protocol._tables import FLEXIBLE
from sluice.protocol.apis import FETCH, METADATA, PRODUCE, SHARE_FETCH, ApiKey
from sluice.protocol.errors import MalformedFrame
from sluice.protocol.primitives import (
    NULL,
    UUID_BYTES,
    Buffer,
    array_count,
    compact_array_count,
    int16,
    int32,
    skip,
    skip_compact_nullable,
    skip_nullable_string,
    skip_tags,
    text,
    uvarint,
)

_NODE_ENDPOINTS_TAG: Final = 0
_INT32_BYTES: Final = 4


class TaggedField(NamedTuple):
    """A tagged field that holds addresses: its size changes with them. Offsets as in `Address`."""

    tag_pos: int
    size_pos: int
    start: int
    stop: int


class Address(NamedTuple):
    """One broker's address; offsets are absolute in the buffer that was read.

    The length prefix of the host stands at `length_pos:host_pos`, the host at `host_pos:host_end`, and right
    behind it the port, an int32.
    """

    node_id: int
    host: str
    port: int
    length_pos: int
    host_pos: int
    host_end: int
    compact: bool
    """the length prefix is a uvarint of the length + 1, not an int16"""
    field: TaggedField | None
    """what encloses it, if its size is written too"""

    @property
    def port_pos(self) -> int:
        """Where the port stands."""
        return self.host_end

    @property
    def stop(self) -> int:
        """Where the address ends: behind its port."""
        return self.host_end + _INT32_BYTES


def _metadata(buf: Buffer, pos: int, end: int, version: int, found: list[Address]) -> int:
    pos = skip(pos, 4 if version >= 3 else 0, end)  # throttle
    flexible = version >= FLEXIBLE[METADATA]
    return _nodes(buf, pos, end, found, flexible=flexible, rack=version >= 1)


def _find_coordinator(buf: Buffer, pos: int, end: int, version: int, found: list[Address]) -> int:
    pos = skip(pos, 4 if version >= 1 else 0, end)  # throttle
    if version <= 3:
        pos = skip(pos, 2, end)  # error code
        flexible = version >= FLEXIBLE[ApiKey.FIND_COORDINATOR]
        if version >= 1:
            pos = (skip_compact_nullable if flexible else skip_nullable_string)(buf, pos, end)
        pos = _node(buf, pos, end, found, flexible=flexible)
        return skip_tags(buf, pos, end) if flexible else pos
    coordinators, pos = _count(buf, pos, end, 14)
    for _ in range(coordinators):
        pos = _node(buf, skip_compact_nullable(buf, pos, end), end, found, flexible=True)  # behind its key
        pos = skip_compact_nullable(buf, skip(pos, 2, end), end)  # error code and message
        pos = skip_tags(buf, pos, end)
    return skip_tags(buf, pos, end)


def _describe_cluster(buf: Buffer, pos: int, end: int, version: int, found: list[Address]) -> int:
    pos = skip_compact_nullable(buf, skip(pos, 6, end), end)  # throttle, error code; error message
    pos = skip(pos, 1 if version >= 1 else 0, end)  # endpoint type
    pos = skip(skip_compact_nullable(buf, pos, end), 4, end)  # cluster id, controller id
    pos = _nodes(buf, pos, end, found, flexible=True, fenced=version >= 2)
    return skip_tags(buf, skip(pos, 4, end), end)  # authorized operations


def _produce(buf: Buffer, pos: int, end: int, version: int, found: list[Address]) -> int:
    topics, pos = _count(buf, pos, end, 3)
    for _ in range(topics):
        pos = skip(pos, UUID_BYTES, end) if version >= 13 else skip_compact_nullable(buf, pos, end)
        partitions, pos = _count(buf, pos, end, 33)
        for _ in range(partitions):
            pos = skip(pos, 30, end)  # index, error code, base offset, append time, start offset
            errors, pos = _count(buf, pos, end, 6)
            for _ in range(errors):
                pos = skip_tags(buf, skip_compact_nullable(buf, skip(pos, 4, end), end), end)
            pos = skip_tags(buf, skip_compact_nullable(buf, pos, end), end)  # error message
        pos = skip_tags(buf, pos, end)
    return _tagged_nodes(buf, skip(pos, 4, end), end, found)  # behind the throttle


def _fetch(buf: Buffer, pos: int, end: int, _version: int, found: list[Address]) -> int:
    pos = skip(pos, 10, end)  # throttle, error code, session id
    topics, pos = _count(buf, pos, end, 18)
    for _ in range(topics):
        partitions, pos = _count(buf, skip(pos, UUID_BYTES, end), end, 37)
        for _ in range(partitions):
            pos = skip(pos, 30, end)  # index, error code, high watermark, last stable and start offset
            aborted, pos = _count(buf, pos, end, 17, nullable=True)
            for _ in range(aborted):
                pos = skip_tags(buf, skip(pos, 16, end), end)
            pos = skip(pos, 4, end)  # preferred read replica
            pos = skip_tags(buf, skip_compact_nullable(buf, pos, end), end)  # records
        pos = skip_tags(buf, pos, end)
    return _tagged_nodes(buf, pos, end, found)


def _share_fetch(buf: Buffer, pos: int, end: int, _version: int, found: list[Address]) -> int:
    pos = skip_compact_nullable(buf, skip(pos, 6, end), end)  # throttle, error code; error message
    pos = skip(pos, 4, end)  # acquisition lock timeout
    topics, pos = _count(buf, pos, end, 18)
    for _ in range(topics):
        partitions, pos = _count(buf, skip(pos, UUID_BYTES, end), end, 22)
        for _ in range(partitions):
            pos = skip_compact_nullable(buf, skip(pos, 6, end), end)  # index, error code; error message
            pos = skip_compact_nullable(buf, skip(pos, 2, end), end)  # acknowledge error code and message
            pos = skip_tags(buf, skip(pos, 8, end), end)  # current leader, a struct
            pos = skip_compact_nullable(buf, pos, end)  # records
            acquired, pos = _count(buf, pos, end, 19)
            for _ in range(acquired):
                pos = skip_tags(buf, skip(pos, 18, end), end)
            pos = skip_tags(buf, pos, end)
        pos = skip_tags(buf, pos, end)
    return skip_tags(buf, _nodes(buf, pos, end, found, flexible=True), end)


def _share_acknowledge(buf: Buffer, pos: int, end: int, version: int, found: list[Address]) -> int:
    pos = skip_compact_nullable(buf, skip(pos, 6, end), end)  # throttle, error code; error message
    pos = skip(pos, 4 if version >= 2 else 0, end)  # acquisition lock timeout
    topics, pos = _count(buf, pos, end, 18)
    for _ in range(topics):
        partitions, pos = _count(buf, skip(pos, UUID_BYTES, end), end, 17)
        for _ in range(partitions):
            pos = skip_compact_nullable(buf, skip(pos, 6, end), end)  # index, error code; error message
            pos = skip_tags(buf, skip(pos, 8, end), end)  # current leader, a struct
            pos = skip_tags(buf, pos, end)
        pos = skip_tags(buf, pos, end)
    return skip_tags(buf, _nodes(buf, pos, end, found, flexible=True), end)


WALKS: Final[dict[int, Callable[[Buffer, int, int, int, list[Address]], int]]] = {
    PRODUCE: _produce,
    FETCH: _fetch,
    METADATA: _metadata,
    ApiKey.FIND_COORDINATOR: _find_coordinator,
    ApiKey.DESCRIBE_CLUSTER: _describe_cluster,
    SHARE_FETCH: _share_fetch,
    ApiKey.SHARE_ACKNOWLEDGE: _share_acknowledge,
}


def _tagged_nodes(buf: Buffer, pos: int, end: int, found: list[Address]) -> int:
    """The tagged fields at the end of a Produce or Fetch response; tag 0 holds the nodes."""
    fields, pos = uvarint(buf, pos, end)
    for _ in range(fields):
        tag_pos = pos
        tag, size_pos = uvarint(buf, pos, end)
        size, start = uvarint(buf, size_pos, end)
        pos = skip(start, size, end)
        if tag == _NODE_ENDPOINTS_TAG:
            field = TaggedField(tag_pos, size_pos, start, pos)
            stop = _nodes(buf, start, pos, found, flexible=True, field=field)
            if stop != pos:
                raise MalformedFrame(f"NodeEndpoints end {pos - stop} bytes before their field", offset=stop)
    return pos


def _nodes(
    buf: Buffer,
    pos: int,
    end: int,
    found: list[Address],
    *,
    flexible: bool,
    rack: bool = True,
    fenced: bool = False,
    field: TaggedField | None = None,
) -> int:
    """An array of (node id, host, port, rack nullable, is fenced bool), the last two where they exist."""
    count, pos = _count(buf, pos, end, 10) if flexible else _classic_count(buf, pos, end)
    for _ in range(count):
        pos = _node(buf, pos, end, found, flexible=flexible, field=field)
        if rack:
            pos = (skip_compact_nullable if flexible else skip_nullable_string)(buf, pos, end)
        if fenced:
            pos = skip(pos, 1, end)
        if flexible:
            pos = skip_tags(buf, pos, end)
    return pos


def _node(
    buf: Buffer, pos: int, end: int, found: list[Address], *, flexible: bool, field: TaggedField | None = None
) -> int:
    node_id, length_pos = int32(buf, pos, end)
    length, host_pos = uvarint(buf, length_pos, end) if flexible else int16(buf, length_pos, end)
    host_end = skip(host_pos, length - 1 if flexible else length, end)
    port, pos = int32(buf, host_end, end)
    if host_end > host_pos:
        host = text(buf, host_pos, host_end)
        found.append(Address(node_id, host, port, length_pos, host_pos, host_end, flexible, field))
    return pos


def _count(
    buf: Buffer, pos: int, end: int, element_min_bytes: int, *, nullable: bool = False
) -> tuple[int, int]:
    count, after = compact_array_count(buf, pos, end, element_min_bytes)
    if count == NULL and not nullable:
        raise MalformedFrame("null array", offset=pos)
    return count, after


def _classic_count(buf: Buffer, pos: int, end: int) -> tuple[int, int]:
    count, after = array_count(buf, pos, end, 10)
    if count == NULL:
        raise MalformedFrame("null array", offset=pos)
    return count, after
