"""Where brokers' addresses stand in responses, and responses with other addresses in their place.

For a gateway whose clients are to reach each broker through it. Only what must be spliced is touched: a host
(its length and bytes), its port, the size of a tagged field around them, the size of the frame; all else
stays byte for byte. Knows no gateway: the caller maps addresses. Source: the response JSON of 4.3.1; KIP-951
(NodeEndpoints).

    Metadata v0–13           the brokers come first; the topics behind them are not looked at
    FindCoordinator v0–6     v0–3 one at the top level, v4–6 one for each key
    DescribeCluster v0–2     the brokers
    Produce v10–13           NodeEndpoints, tag 0, at the end
    Fetch v16–18             NodeEndpoints, tag 0, behind the data
    ShareFetch, ShareAcknowledge v1–2   NodeEndpoints, not tagged, behind the data

DescribeQuorum, Vote, Begin/EndQuorumEpoch, FetchSnapshot, UpdateRaftVoter and the registrations carry the
brokers' own addresses, StreamsGroup* those of applications: they stay (wire-semantics 5).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from sluice.protocol._tables import FLEXIBLE
from sluice.protocol.addresses.walks import WALKS, Address, TaggedField
from sluice.protocol.apis import FETCH, METADATA, PRODUCE, READABLE, SHARE_FETCH, ApiKey
from sluice.protocol.codec.wire import encode_varint
from sluice.protocol.errors import MalformedFrame, UnsupportedVersion
from sluice.protocol.headers import RESPONSE_HEAD_BYTES, SIZE_BYTES
from sluice.protocol.primitives import INT16, INT32, Buffer, int32, skip, skip_compact_nullable, skip_tags

VERSIONS_WITH_ADDRESSES: Final[Mapping[int, tuple[int, int]]] = {
    api_key: (first, READABLE[api_key][1])
    for api_key, first in {
        PRODUCE: 10,
        FETCH: 16,
        METADATA: 0,
        ApiKey.FIND_COORDINATOR: 0,
        ApiKey.DESCRIBE_CLUSTER: 0,
        SHARE_FETCH: 1,
        ApiKey.SHARE_ACKNOWLEDGE: 1,
    }.items()
}
"""api_key -> first and last version whose response can carry an address; above the last we cannot tell."""

_CONTROLLERS: Final = 2
"""DescribeCluster's endpoint type"""
_MAX_HOST_BYTES: Final = 2**15 - 1
_MAX_PORT: Final = 2**16 - 1
_MAX_SIZE: Final = 2**31 - 1

AddressMap: TypeAlias = Callable[[int, str, int], tuple[str, int] | None]
"""(node id, host, port) → the host and port to write instead, or None to leave them."""

Edit: TypeAlias = tuple[int, int, bytes]
"""(start, stop, replacement): offsets absolute in the buffer that was read."""


def carries_addresses(api_key: int, version: int) -> bool:
    """Can the response hold an address? True also for versions above those we know, which are refused."""
    return version >= VERSIONS_WITH_ADDRESSES.get(api_key, (2**15, 0))[0]


def find_addresses(buf: Buffer, pos: int, end: int, api_key: int, version: int) -> list[Address]:
    """The addresses in the response body `buf[pos:end]`, in the order in which they stand there.

    Empty for an API or version that has none. An answer that names no broker (FindCoordinator's errors: an
    empty host, port −1) has no address. Raises MalformedFrame if the walk does not end at `end` (Metadata: if
    the brokers do not end before it), UnsupportedVersion above the last version we know.
    """
    if not carries_addresses(api_key, version):
        return []
    if version > VERSIONS_WITH_ADDRESSES[api_key][1]:
        raise UnsupportedVersion("addresses cannot be found", api_key=api_key, api_version=version)
    found: list[Address] = []
    pos = WALKS[api_key](buf, pos, end, version, found)
    if pos != end and api_key != METADATA:
        raise MalformedFrame(f"response ends {end - pos} bytes before its frame", offset=pos)
    return found


def names_controllers(buf: Buffer, pos: int, end: int, api_key: int, version: int) -> bool:
    """Are the addresses in the response body `buf[pos:end]` those of controllers (KIP-919)?"""
    if api_key != ApiKey.DESCRIBE_CLUSTER or version < 1:
        return False
    pos = skip_compact_nullable(buf, skip(pos, 6, end), end)  # throttle, error code; error message
    return buf[skip(pos, 1, end) - 1] == _CONTROLLERS


def rewrite_addresses(frame: bytes, api_key: int, version: int, mapping: AddressMap) -> bytes:
    """The response `frame` (whole, size prefix included) with the addresses that `mapping` gives.

    The same object where nothing changes. Raises as `find_addresses`, MalformedFrame also if the frame is not
    as long as it says, and ValueError for a host or port of `mapping` that Kafka cannot write.
    """
    if not carries_addresses(api_key, version):
        return frame
    end = len(frame)
    size, _ = int32(frame, 0, end)
    if size != end - SIZE_BYTES:
        raise MalformedFrame(f"frame of {end - SIZE_BYTES} bytes that says {size}", offset=0)
    body = skip(0, RESPONSE_HEAD_BYTES, end)
    if version >= FLEXIBLE[api_key]:
        body = skip_tags(frame, body, end)
    edits = address_edits(0, end, find_addresses(frame, body, end, api_key, version), mapping)
    return spliced(frame, 0, end, edits) if edits else frame


def address_edits(pos: int, frame_end: int, addresses: list[Address], mapping: AddressMap) -> list[Edit]:
    """What is to be put in the place of what, for the `addresses` of the frame `[pos:frame_end]` to be those
    of `mapping`: the size of the frame and of tagged fields too. Empty if nothing changes.

    Sorted, without overlap, all before the last address's end: what stands behind need not have arrived.
    Raises ValueError as `rewrite_addresses`, MalformedFrame if no frame can be as large as that.
    """
    edits: list[Edit] = []
    growth: dict[TaggedField, int] = {}
    for address in addresses:
        mapped = mapping(address.node_id, address.host, address.port)
        if mapped is None or mapped == (address.host, address.port):
            continue
        written = _written(*mapped, compact=address.compact)
        edits.append((address.length_pos, address.stop, written))
        if address.field is not None:
            grown = len(written) - (address.stop - address.length_pos)
            growth[address.field] = growth.get(address.field, 0) + grown
    if not edits:
        return edits
    for field, grown in growth.items():
        edits.append((field.size_pos, field.start, encode_varint(field.stop - field.start + grown)))
    size = frame_end - pos - SIZE_BYTES
    size += sum(len(replacement) - (stop - start) for start, stop, replacement in edits)
    if size > _MAX_SIZE:
        raise MalformedFrame(f"frame that grows to {size} bytes", offset=pos)
    edits.append((pos, pos + SIZE_BYTES, INT32.pack(size)))
    edits.sort()
    return edits


def spliced(buf: Buffer, start: int, stop: int, edits: list[Edit]) -> bytes:
    """`buf[start:stop]` with the `edits`, which are sorted, do not overlap and lie within."""
    pieces: list[Buffer] = []
    for edit_start, edit_stop, replacement in edits:
        pieces += (buf[start:edit_start], replacement)
        start = edit_stop
    pieces.append(buf[start:stop])
    return b"".join(pieces)


def _written(host: str, port: int, *, compact: bool) -> bytes:
    name = host.encode()
    if not 0 < len(name) <= _MAX_HOST_BYTES or not 0 <= port <= _MAX_PORT:
        raise ValueError(f"not an address: host of {len(name)} bytes, port {port}")
    length = encode_varint(len(name) + 1) if compact else INT16.pack(len(name))
    return length + name + INT32.pack(port)
