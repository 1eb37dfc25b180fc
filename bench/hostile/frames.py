"""Requests of real clients → the same requests at every other version, and those damaged in every way. Pure.

Damage is drawn from a seed, so that a run can be had again. Knows the frame's outer shape (size, header) and,
by the codec, its fields; nothing of sockets.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from random import Random
from typing import Final

from sluice.protocol.codec._schemas import REQUESTS
from sluice.protocol.codec.codec import DecodedFrame, EncodeError, decode_frame, encode_frame
from sluice.protocol.codec.spec_model import Field, load_message
from sluice.protocol.codec.tags import TAG_ORDER, UNKNOWN_TAGS
from sluice.protocol.codec.wire import Struct, Value
from sluice.protocol.errors import ProtocolError

HEADER_BYTES: Final = 14  # size 4, api key 2, version 2, correlation id 4, length of the client id 2
FIRST_UNKNOWN_TAG: Final = 100  # Kafka 4.3.1 has no tag above 3
FARAWAY: Final = (0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, 0x8000, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF)
WIDEST_VARINT: Final = b"\xff\xff\xff\xff\x0f"
# What these do to a cluster would outlast the connection, and would be measured as the proxy's doing:
# CreateTopics, CreatePartitions, AlterPartitionReassignments, UpdateFeatures, UnregisterBroker, Add- and
# RemoveRaftVoter.
LEFT_OUT: Final = frozenset({19, 37, 45, 57, 64, 80, 81})


@dataclass(frozen=True, slots=True)
class Attack:
    """What one connection sends: chunk by chunk, each in a packet of its own, then nothing or an end."""

    kind: str
    chunks: tuple[bytes, ...]


# Requests of every version ----------------------------------------------------------------------------------


def api_of(frame: bytes) -> tuple[int, int]:
    """(api key, version) of a request with its size. Raises struct.error if it is too short."""
    key, version = struct.unpack_from(">hh", frame, 4)
    return key, version


def at_every_version(recorded: Iterable[bytes]) -> list[bytes]:
    """Each recorded request (with its size) at every version of its API; of APIs not recorded, an empty one.

    Fields that a version does not have are left out; a request that a version cannot carry otherwise is left
    out itself. Of equal (api, version) pairs the first recorded one counts.
    """
    found: dict[tuple[int, int], bytes] = {}
    bodies: dict[int, DecodedFrame] = {}
    for frame in recorded:
        key, version = api_of(frame)
        if key in LEFT_OUT or (key, version) in found:
            continue
        try:
            decoded = decode_frame("request", key, version, frame[4:])
        except ProtocolError:
            continue  # a SASL token without a header, or what no version of ours knows
        found[key, version] = frame
        bodies.setdefault(key, decoded)
    for key in REQUESTS:
        message = load_message("request", key)
        if message is None or key in LEFT_OUT:
            continue
        like = bodies.get(key, DecodedFrame({"clientId": "hostile", "correlationId": 1}, {}))
        for version in range(message.versions.first, message.versions.last + 1):
            if (key, version) not in found and (frame := _reencoded(like, message.fields, key, version)):
                found[key, version] = frame
    return [found[pair] for pair in sorted(found)]


def _reencoded(like: DecodedFrame, fields: Sequence[Field], key: int, version: int) -> bytes:
    header = {name: like.header[name] for name in ("clientId", "correlationId")}
    header |= {"requestApiKey": key, "requestApiVersion": version}
    try:
        frame = encode_frame(
            "request", key, version, DecodedFrame(header, _pruned(like.body, fields, version))
        )
    except EncodeError:
        return b""
    return struct.pack(">i", len(frame)) + frame


def _pruned(value: Struct, fields: Sequence[Field], version: int) -> Struct:
    known = {field.name: field for field in fields if version in field.versions}
    return {
        name: _pruned_value(inner, known[name], version)
        for name, inner in value.items()
        if name in known and name not in {UNKNOWN_TAGS, TAG_ORDER}
    }


def _pruned_value(value: Value, field: Field, version: int) -> Value:
    if isinstance(value, list) and field.fields:
        return [_pruned(x, field.fields, version) if isinstance(x, dict) else x for x in value]
    return _pruned(value, field.fields, version) if isinstance(value, dict) else value


# Damage -----------------------------------------------------------------------------------------------------


def flipped(frame: bytes, random: Random, start: int = 4) -> bytes:
    """One to eight bits the other way, at `start` or behind it."""
    out = bytearray(frame)
    for _ in range(random.randint(1, 8)):
        out[random.randrange(min(start, len(out) - 1), len(out))] ^= 1 << random.randrange(8)
    return bytes(out)


def _body_flipped(frame: bytes, random: Random) -> bytes:
    return flipped(frame, random, HEADER_BYTES)


def _header_flipped(frame: bytes, random: Random) -> bytes:
    return flipped(frame[:HEADER_BYTES], random) + frame[HEADER_BYTES:]


def _wrong_size(frame: bytes, random: Random) -> bytes:
    right = len(frame) - 4
    sizes = (right + random.randint(-right, 64), right + (1 << 20), -1, 100 * 2**20 + 1, *FARAWAY)
    return struct.pack(">I", random.choice(sizes) & 0xFFFFFFFF) + frame[4:]


def _inner_length(frame: bytes, random: Random) -> bytes:
    """Somewhere a length, a count or another number that nobody means."""
    wide = random.choice((1, 2, 4))
    number = random.choice(FARAWAY) & (256**wide - 1)
    new = WIDEST_VARINT if random.random() < 0.3 else number.to_bytes(wide, "big")
    at = random.randrange(4, len(frame))
    return frame[:at] + new + frame[at + len(new) :]


def _duplicated(frame: bytes, random: Random) -> bytes:
    start, end = _slice(frame, random)
    return frame[:end] + frame[start:end] + frame[end:]


def _removed(frame: bytes, random: Random) -> bytes:
    start, end = _slice(frame, random)
    return frame[:start] + frame[end:]


def _reordered(frame: bytes, random: Random) -> bytes:
    start, end = _slice(frame, random)
    between = random.randrange(start, end)
    return frame[:start] + frame[between:end] + frame[start:between] + frame[end:]


def _slice(frame: bytes, random: Random) -> tuple[int, int]:
    """Never the whole frame: without it nothing would be left to send."""
    start = random.randrange(len(frame))
    return start, random.randint(start + 1, len(frame) - (start == 0))


DAMAGE: Final[Mapping[str, Callable[[bytes, Random], bytes]]] = {
    "body bits": _body_flipped,
    "header bits": _header_flipped,
    "wrong size": _wrong_size,
    "inner length": _inner_length,
    "part doubled": _duplicated,
    "part missing": _removed,
    "parts swapped": _reordered,
}
TRUNCATED: Final = "truncated"
OTHER_TAIL: Final = "tail of another"


def damaged(frames: Sequence[bytes], random: Random) -> Attack:
    """One frame damaged in one way, in one to four chunks; every third behind an unharmed one."""
    frame = random.choice(frames)
    kind = random.choice((*DAMAGE, TRUNCATED, OTHER_TAIL))
    if kind == TRUNCATED:
        data = frame[: random.randrange(1, len(frame))]
    elif kind == OTHER_TAIL:
        other = random.choice(frames)
        data = frame[: random.randrange(1, len(frame))] + other[random.randrange(len(other)) :]
    else:
        data = DAMAGE[kind](frame, random)
    if random.random() < 1 / 3:
        data = random.choice(frames) + data
    cuts = sorted({0, len(data), *(random.randrange(len(data)) for _ in range(random.randint(0, 3)))})
    chunks = tuple(data[start:end] for start, end in pairwise(cuts))
    return Attack(kind, chunks)


def garbage(random: Random) -> Attack:
    """What is no Kafka at all."""
    kinds = {
        "random bytes": random.randbytes(random.randint(1, 4096)),
        "TLS ClientHello": bytes.fromhex("16030102000100") + random.randbytes(508),
        "HTTP": b"GET / HTTP/1.1\r\nHost: broker\r\nUser-Agent: scanner\r\n\r\n",
        "PROXY header": b"\r\n\r\n\x00\r\nQUIT\n\x21\x11\x00\x0c" + random.randbytes(12),
        "zeros": bytes(random.randint(1, 4096)),
        "small frame of noise": struct.pack(">i", 64) + random.randbytes(64),
    }
    kind = random.choice(sorted(kinds))
    return Attack(kind, (kinds[kind],))
