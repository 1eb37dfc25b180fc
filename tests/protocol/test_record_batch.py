"""The head of a record batch, at the offsets of Kafka's own schema, and as real producers write it."""

from __future__ import annotations

import struct

from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.legacy_records import LegacyRecordBatchBuilder

from sluice.protocol.record_batch import HEAD, HEAD_BYTES, LENGTH_AND_MAGIC, LOG_OVERHEAD, MAGIC_END
from testkit.frames.frames import legacy_set, record_batch


def test_every_field_is_read_from_its_offset_in_kafkas_schema() -> None:
    """DefaultRecordBatch: length 8, magic 16, attributes 21, producerId 43, epoch 51, sequence 53,
    recordCount 57."""
    head = bytearray(b"\xee" * HEAD_BYTES)
    struct.pack_into(">i", head, 8, 1_234)
    head[16] = 2
    struct.pack_into(">h", head, 21, 0x0114)
    struct.pack_into(">q", head, 43, -(2**62))
    struct.pack_into(">h", head, 51, -7)
    struct.pack_into(">i", head, 53, 2**31 - 1)
    struct.pack_into(">i", head, 57, 99)
    assert HEAD.unpack_from(head) == (1_234, 2, 0x14, -(2**62), -7, 2**31 - 1, 99)
    assert LENGTH_AND_MAGIC.unpack_from(head) == (1_234, 2)
    assert (HEAD.size, LENGTH_AND_MAGIC.size) == (HEAD_BYTES, MAGIC_END) == (61, 17)


def test_a_batch_that_aiokafka_wrote_is_read() -> None:
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=0,
        is_transactional=1,
        producer_id=4_711,
        producer_epoch=3,
        base_sequence=12,
        batch_size=10_000,
    )
    for offset in range(5):
        builder.append(offset, timestamp=1_700_000_000_000, key=b"k", value=b"v" * 20, headers=[])
    batch = bytes(builder.build())
    assert HEAD.unpack_from(batch) == (len(batch) - LOG_OVERHEAD, 2, 0x10, 4_711, 3, 12, 5)


def test_a_legacy_set_that_aiokafka_wrote_has_its_size_and_magic_at_the_same_place() -> None:
    for magic in (0, 1):
        builder = LegacyRecordBatchBuilder(magic=magic, compression_type=0, batch_size=10_000)
        builder.append(0, timestamp=1_700_000_000_000, key=None, value=b"v" * 20)
        message_set = bytes(builder.build())
        assert LENGTH_AND_MAGIC.unpack_from(message_set) == (len(message_set) - LOG_OVERHEAD, magic)


def test_the_batches_of_these_tests_are_such() -> None:
    batch = record_batch(b"payload", producer_id=5, epoch=6, sequence=7, count=8)
    assert len(batch) == HEAD_BYTES + len(b"payload")
    assert HEAD.unpack_from(batch) == (len(batch) - LOG_OVERHEAD, 2, 0, 5, 6, 7, 8)
    assert LENGTH_AND_MAGIC.unpack_from(legacy_set(b"xyz", magic=0)) == (17, 0)
