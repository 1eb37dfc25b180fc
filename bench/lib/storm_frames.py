"""A storm of producer ids → bytes: requests that differ in id, checksum and correlation id alone. Pure.

Written against Kafka 4.3.1: Produce v12 (frames.py), SaslHandshake v1, SaslAuthenticate v0, record batch of
magic 2. A frame costs some 2 µs, so that the storm takes little of the cores that it shares with its target.
"""

from __future__ import annotations

import struct
from typing import Final

from bench.lib import frames

SASL_HANDSHAKE: Final = 17
SASL_AUTHENTICATE: Final = 36
NO_ERROR: Final = 0
ALL_IN_SYNC: Final = -1
VALUE: Final = b"storm"
ID_MASK: Final = (1 << 63) - 1

# Within a record batch of magic 2 (DefaultRecordBatch).
CRC_AT: Final = 17
CRC_FROM: Final = 21
ID_AT: Final = 43
EPOCH_AT: Final = 51

_ODD: Final = 0x5851F42D4C957F2D
_UINT32: Final = struct.Struct(">I")
_INT32: Final = struct.Struct(">i")
_INT16: Final = struct.Struct(">h")
_INT64: Final = struct.Struct(">q")


def scattered_id(number: int) -> int:
    """The producer id of the storm's request `number`: no two numbers below 2⁶³ have the same.

    Multiplying by an odd number is a bijection modulo 2⁶³; like random ones, the ids are no blocks that a
    store could be good at.
    """
    return number * _ODD & ID_MASK


class StormRequests:
    """Requests of one record each for one partition, by number."""

    def __init__(
        self, client_id: str, topic: str, partition: int, timestamp_ms: int, *, with_ids: bool
    ) -> None:
        """Without ids they are the same bytes, with producer id −1 as of a client that is not idempotent."""
        batch = bytearray(frames.record_batch(VALUE, timestamp_ms=timestamp_ms))
        if with_ids:
            struct.pack_into(">qhi", batch, ID_AT, 0, 0, 0)  # id, epoch, base sequence
            _UINT32.pack_into(batch, CRC_AT, frames.crc32c(bytes(batch[CRC_FROM:])))
        self._frame = frames.produce_request(
            client_id, topic, bytes(batch), acks=ALL_IN_SYNC, partition=partition
        )
        self._batch_at = self._frame.index(batch)
        (self._crc_of_id_0,) = _UINT32.unpack_from(batch, CRC_AT)
        self._crc_changes = _crc_changes(len(batch) - CRC_FROM, ID_AT - CRC_FROM) if with_ids else None

    @property
    def frame_bytes(self) -> int:
        """Each frame's size."""
        return len(self._frame)

    def block(self, first: int, count: int) -> bytes:
        """The frames of `count` numbers from `first` on; a number's lower half is the correlation id."""
        frame, changes = self._frame, self._crc_changes
        out = bytearray()
        crc_at, id_at = self._batch_at + CRC_AT, self._batch_at + ID_AT
        for number in range(first, first + count):
            _INT32.pack_into(frame, frames.CORRELATION_AT, number & 0x7FFFFFFF)
            if changes is not None:
                producer_id = scattered_id(number)
                _INT64.pack_into(frame, id_at, producer_id)
                crc = self._crc_of_id_0
                for table, byte in zip(changes, frame[id_at : id_at + 8], strict=True):
                    crc ^= table[byte]
                _UINT32.pack_into(frame, crc_at, crc)
            out += frame
        return bytes(out)


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


def produce_errors(data: bytes | bytearray, topic: str) -> tuple[list[int], int]:
    """(error codes of the whole answers in `data`, the bytes they take); each names one partition.

    The code stands at one place in all of them: behind size, correlation id and tags (9), one topic's count
    and name, one partition's count and number.
    """
    error_at = 9 + 1 + 1 + len(topic) + 1 + 4
    codes = []
    pos, size = 0, len(data)
    while size - pos >= 4:
        end = pos + 4 + _INT32.unpack_from(data, pos)[0]
        if end > size:
            break
        codes.append(_INT16.unpack_from(data, pos + error_at)[0])
        pos = end
    return codes, pos
