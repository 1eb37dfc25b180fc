"""What the producer-id quota knows ↔ bytes, so that a restart does not make every live id new. Pure.

    "SLUICEPI"  version uint16  header's length uint32  header (JSON)  blocks  BLAKE2b-256 of all before
    header: scope, taken_at_ms (wall clock), salt, and of each principal its levels and its blocks
    block: the ids of a layer as int64, little-endian, or a Bloom filter's bytes

Ages are kept, not times: monotonic clocks begin anew. What is damaged, of another version, of another scope
(broker) or from the future is refused as a whole; the caller then begins empty. Knows no files. Source:
wire-semantics 3.14.
"""

from __future__ import annotations

import json
import math
import sys
from array import array
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from struct import Struct
from typing import Any, Final, TypeAlias

from sluice.quotas.producer_ids.principal import PrincipalIds
from sluice.quotas.producer_ids.quota import ProducerIdQuota
from sluice.quotas.producer_ids.store import ExactStore, IdLayer, ProducerIdStore

VERSION: Final = 1
FUTURE_MAX_MS: Final = 300_000.0
"""so much may the wall clock have been set back"""
_MAGIC: Final = b"SLUICEPI"
_HEAD: Final = Struct(">8sHI")
_DIGEST_BYTES: Final = 32
_ID_BYTES: Final = 8
_IDS_PER_PIECE: Final = 5_000
"""about 0.5 ms of work"""
_BUCKETS: Final = ("main", "forced", "resumed")


Part: TypeAlias = "bytes | list[int] | array[int]"
"""a piece of a snapshot; ids become bytes when it is sealed"""


class SnapshotError(ValueError):
    """The bytes are no snapshot that may be taken over; the text says why."""


def encode_snapshot(quota: ProducerIdQuota, scope: str, now_ms: float, wall_ms: float) -> bytes:
    """All that `quota` has admitted, and its buckets' levels.

    `scope` says whose ids they are: the broker behind. `wall_ms`: milliseconds since 1970.
    """
    return sealed(snapshot_parts(quota, scope, now_ms, wall_ms))


def sealed(parts: list[Part]) -> bytes:
    """What `snapshot_parts` took, with its checksum; shares nothing with the quota, so another thread may.

    In small pieces, between which other threads get their turn.
    """
    body = b"".join(piece for part in parts for piece in _pieces(part))
    return body + blake2b(body, digest_size=_DIGEST_BYTES).digest()


def snapshot_parts(quota: ProducerIdQuota, scope: str, now_ms: float, wall_ms: float) -> list[Part]:
    """The half of `encode_snapshot` that reads the quota: nothing else may change it meanwhile."""
    blocks: list[Part] = []
    principals = []
    for principal in quota.principals():
        levels = {name: _level(principal, name, now_ms) for name in _BUCKETS}
        principals.append({
            "user": principal.user,
            "ids_per_hour": principal.ids_per_hour,
            "enforced": principal.enforced,
            "levels": levels,
            "ids": _layers(principal.store, now_ms, blocks),
            "pairs": _layers(principal.pairs, now_ms, blocks),
        })  # fmt: skip
    header = {
        "scope": scope,
        "taken_at_ms": wall_ms,
        "salt": quota.pair_keys.salt.hex(),
        "principals": principals,
    }
    text = json.dumps(header).encode()
    return [_HEAD.pack(_MAGIC, VERSION, len(text)), text, *blocks]


def restore_snapshot(
    quota: ProducerIdQuota, data: bytes, scope: str, now_ms: float, wall_ms: float
) -> list[str]:
    """Take over what `encode_snapshot` wrote; `quota` must be new. Returns what of it could not be used.

    A principal whose Bloom filters have more false positives than are allowed now begins empty, its buckets
    restored. Those who had a state of their own and share one now (max_principals was lowered) keep their ids
    in it, with the least that any of them had in each bucket. The limits in force now are put in force by
    whoever asks for the principals. Raises SnapshotError with `quota` untouched.
    """
    header, blocks = _checked(data, scope, wall_ms)
    away_ms = max(wall_ms - header["taken_at_ms"], 0.0)
    quota.pair_keys = type(quota.pair_keys)(bytes.fromhex(header["salt"]))
    left_out = []
    shared: set[PrincipalIds] = set()  # and whoever comes next is not the first in it
    position = 0
    for saved in header["principals"]:
        principal = quota.principal(saved["user"], saved["ids_per_hour"], now_ms, enforced=saved["enforced"])
        for name in _BUCKETS:
            bucket = getattr(principal, name)
            others = bucket.tokens(now_ms)
            bucket.restore(saved["levels"][name], now_ms - away_ms)
            if principal in shared:
                bucket.restore(min(others, bucket.tokens(now_ms)), now_ms)
        shared.add(principal)
        for store, key in ((principal.store, "ids"), (principal.pairs, "pairs")):
            layers: list[IdLayer] = []
            for age_ms, size_bytes, is_ids in saved[key]:
                block = blocks[position : position + size_bytes]
                position += size_bytes
                layers.append((now_ms - away_ms - age_ms, _ids(block) if is_ids else block))
            try:
                store.load(layers, now_ms)
            except ValueError as error:
                left_out.append(f"{key} of {saved['user']}: {error}")
    quota.expire(now_ms)
    return left_out


def _checked(data: bytes, scope: str, wall_ms: float) -> tuple[dict[str, Any], bytes]:
    """The header and the blocks of a snapshot that may be taken over."""
    if len(data) < _HEAD.size + _DIGEST_BYTES or not data.startswith(_MAGIC):
        raise SnapshotError("no snapshot of producer ids")
    _, version, header_bytes = _HEAD.unpack_from(data)
    if version != VERSION:
        raise SnapshotError(f"snapshot of version {version}; this Sluice knows version {VERSION}")
    body, digest = data[:-_DIGEST_BYTES], data[-_DIGEST_BYTES:]
    if blake2b(body, digest_size=_DIGEST_BYTES).digest() != digest:
        raise SnapshotError("damaged snapshot: its checksum does not fit")
    header = json.loads(body[_HEAD.size : _HEAD.size + header_bytes])
    if header["scope"] != scope:
        raise SnapshotError(f"snapshot of {header['scope']!r}, not of {scope!r}")
    if header["taken_at_ms"] > wall_ms + FUTURE_MAX_MS:
        ahead_s = (header["taken_at_ms"] - wall_ms) / 1000.0
        raise SnapshotError(f"snapshot from the future: {ahead_s:.0f} s ahead of the clock")
    return header, body[_HEAD.size + header_bytes :]


def _level(principal: PrincipalIds, name: str, now_ms: float) -> float:
    """What is reserved has not gone, and comes back if the process ends."""
    bucket = getattr(principal, name)
    level: float = bucket.tokens(now_ms) + bucket.reserved
    return level


def _layers(
    store: ProducerIdStore | ExactStore, now_ms: float, blocks: list[Part]
) -> list[tuple[float, int, bool]]:
    """(age in ms, size in bytes, ids or filter) of each layer, oldest first; their bytes go to `blocks`."""
    rows = []
    for began_ms, layer in _finite(store.dump()):
        is_ids = not isinstance(layer, bytes)
        blocks.append(layer)
        rows.append((now_ms - began_ms, len(layer) * (_ID_BYTES if is_ids else 1), is_ids))
    return rows


def _finite(layers: Iterable[IdLayer]) -> list[IdLayer]:
    return [layer for layer in layers if math.isfinite(layer[0])]


def _pieces(part: Part) -> Iterator[bytes]:
    if isinstance(part, bytes):
        yield part
        return
    for begin in range(0, len(part), _IDS_PER_PIECE):
        ids = array("q", part[begin : begin + _IDS_PER_PIECE])
        if sys.byteorder == "big":
            ids.byteswap()
        yield ids.tobytes()


def _ids(block: bytes) -> array[int]:
    ids = array("q")
    ids.frombytes(block)
    if sys.byteorder == "big":
        ids.byteswap()
    return ids
