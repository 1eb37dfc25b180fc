"""A storm of producer ids → bytes: requests that differ in id, checksum and correlation id alone. Pure.

Written against Kafka 4.3.1: Produce v12 (testkit/frames/load_frames.py), SaslHandshake v1, SaslAuthenticate
v0, record batch of magic 2. An id costs some 2 µs, so that the storm takes little of the cores that it
shares with its target.
"""

from __future__ import annotations

import struct
from typing import Final

from testkit.frames import load_frames as frames

SASL_HANDSHAKE: Final = 17
SASL_AUTHENTICATE: Final = 36
NO_ERROR: Final = 0
ALL_IN_SYNC: Final = -1
TIMEOUT_MS: Final = 30_000
VALUE: Final = b"storm"
ID_MASK: Final = (1 << 63) - 1
BATCH_BYTES: Final = len(frames.record_batch(VALUE))

# Within a record batch of magic 2 (DefaultRecordBatch).
CRC_AT: Final = 17
CRC_FROM: Final = 21
ID_AT: Final = 43
EPOCH_AT: Final = 51

_ODD: Final = 0x5851F42D4C957F2D
_FINE_BYTES: Final = 33
_UINT32: Final = struct.Struct(">I")
_INT32: Final = struct.Struct(">i")
_INT16: Final = struct.Struct(">h")
_INT64: Final = struct.Struct(">q")


def scattered_id(number: int) -> int:
    """The storm's producer id `number`: no two numbers below 2⁶³ have the same.

    Multiplying by an odd number is a bijection modulo 2⁶³; like random ones, the ids are no blocks that a
    store could be good at.
    """
    return number * _ODD & ID_MASK


class StormRequests:
    """Requests with one record for each of some partitions, every record in a batch with an id of its own."""

    def __init__(
        self, client_id: str, topic: str, partitions: int, timestamp_ms: int, *, with_ids: bool
    ) -> None:
        """For partitions 0 to `partitions` − 1. Without ids they are the same bytes, with producer id −1, as
        of a client that is not idempotent."""
        batch = bytearray(frames.record_batch(VALUE, timestamp_ms=timestamp_ms))
        if with_ids:
            struct.pack_into(">qhi", batch, ID_AT, 0, 0, 0)  # id, epoch, base sequence
            _UINT32.pack_into(batch, CRC_AT, frames.crc32c(bytes(batch[CRC_FROM:])))
        self._frame = _produce_request(client_id, topic, [bytes(batch)] * partitions)
        self._batches_at = _places(self._frame, bytes(batch))
        (self._crc_of_id_0,) = _UINT32.unpack_from(batch, CRC_AT)
        self._crc_changes = _crc_changes(len(batch) - CRC_FROM, ID_AT - CRC_FROM) if with_ids else None

    @property
    def frame_bytes(self) -> int:
        """The size of each frame."""
        return len(self._frame)

    @property
    def ids(self) -> int:
        """Batches of a request."""
        return len(self._batches_at)

    def block(self, first: int, count: int) -> bytes:
        """The frames of `count` requests; the ids are those of the numbers from `first` on.

        The correlation id is the lower half of a request's first number.
        """
        frame, changes = self._frame, self._crc_changes
        out = bytearray()
        number = first
        for _ in range(count):
            _INT32.pack_into(frame, frames.CORRELATION_AT, number & 0x7FFFFFFF)
            if changes is None:
                number += self.ids
            else:
                for at in self._batches_at:
                    id_at = at + ID_AT
                    _INT64.pack_into(frame, id_at, scattered_id(number))
                    crc = self._crc_of_id_0
                    for table, byte in zip(changes, frame[id_at : id_at + 8], strict=True):
                        crc ^= table[byte]
                    _UINT32.pack_into(frame, at + CRC_AT, crc)
                    number += 1
            out += frame
        return bytes(out)


def _produce_request(client_id: str, topic: str, batches: list[bytes]) -> bytearray:
    """Produce v12 with a batch for each partition from 0 on; acks: all that are in sync."""
    body = (
        frames.uvarint(0)  # no transactional id
        + struct.pack(">hi", ALL_IN_SYNC, TIMEOUT_MS)
        + frames.uvarint(2)
        + frames.compact(topic.encode())
        + frames.uvarint(len(batches) + 1)
        + b"".join(
            _INT32.pack(partition) + frames.compact(batch) + frames.NO_TAGS
            for partition, batch in enumerate(batches)
        )
        + frames.NO_TAGS * 2  # topic, request
    )
    return frames.request(frames.PRODUCE, frames.PRODUCE_VERSION, client_id, body)


def _places(frame: bytearray, batch: bytes) -> list[int]:
    found = []
    at = frame.find(batch)
    while at >= 0:
        found.append(at)
        at = frame.find(batch, at + len(batch))
    return found


def _crc_changes(size_bytes: int, at: int) -> tuple[tuple[int, ...], ...]:
    """For each of the 8 bytes from `at` on: by which value it changes the CRC of `size_bytes` bytes.

    A CRC is linear: crc(a xor b) = crc(a) xor crc(b) xor crc(0) for equal lengths. So what one byte changes
    does not depend on the others, and eight look-ups replace a run over the batch. Worked example in
    test_bench_storm.py: every id's batch against another library's checksum.
    """
    nothing = frames.crc32c(bytes(size_bytes))
    tables = []
    for position in range(at, at + 8):
        bits = [
            frames.crc32c(bytes(position) + bytes([1 << bit]) + bytes(size_bytes - position - 1)) ^ nothing
            for bit in range(8)
        ]
        tables.append(tuple(_xor_of(bits, byte) for byte in range(256)))
    return tuple(tables)


def _xor_of(bits: list[int], byte: int) -> int:
    value = 0
    for bit, change in enumerate(bits):
        if byte >> bit & 1:
            value ^= change
    return value


def login_requests(client_id: str, user: str, password: str) -> tuple[bytes, bytes]:
    """SaslHandshake v1 for PLAIN and SaslAuthenticate v0 (KIP-43, KIP-152), correlation ids 0 and 1."""
    token = f"\0{user}\0{password}".encode()
    return (
        _request_v1(SASL_HANDSHAKE, 1, 0, client_id, _string("PLAIN")),
        _request_v1(SASL_AUTHENTICATE, 0, 1, client_id, _INT32.pack(len(token)) + token),
    )


def login_error(answer: bytes | bytearray) -> int:
    """The error code of a whole answer to either: the first field of both."""
    code: int = _INT16.unpack_from(answer, 8)[0]
    return code


def _request_v1(api_key: int, version: int, correlation_id: int, client_id: str, body: bytes) -> bytes:
    head = struct.pack(">hhi", api_key, version, correlation_id) + _string(client_id)
    return _INT32.pack(len(head) + len(body)) + head + body


def _string(text: str) -> bytes:
    return _INT16.pack(len(text)) + text.encode()


def first_frame_end(data: bytes | bytearray) -> int:
    """Where the first frame ends; 0: it is not whole."""
    if len(data) < 4:
        return 0
    end: int = 4 + _INT32.unpack_from(data)[0]
    return end if len(data) >= end else 0


def produce_errors(data: bytes | bytearray, topic: str, partitions: int) -> tuple[list[int], int]:
    """(error codes of the partitions of the whole answers in `data`, the bytes these answers take).

    The first partition stands behind size, correlation id and tags (9), one topic's count and name, and the
    partitions' count. Where all is well each takes 33 bytes: number, code, offset, append time, log start, no
    record errors, no message, no tags. An answer of another size is Sluice's, who refuses all partitions
    alike, or an error's: then the first code counts for all.
    """
    first_at = 9 + 1 + 1 + len(topic) + 1
    size_when_fine = first_at + partitions * _FINE_BYTES + 1 + 4 + 1  # topic's tags, throttle time, tags
    codes: list[int] = []
    pos, size = 0, len(data)
    while size - pos >= 4:
        end = pos + 4 + _INT32.unpack_from(data, pos)[0]
        if end > size:
            break
        stride = _FINE_BYTES if end - pos == size_when_fine else 0
        codes += [
            _INT16.unpack_from(data, pos + first_at + 4 + stride * index)[0] for index in range(partitions)
        ]
        pos = end
    return codes, pos
