"""The fixed 61-byte head of a magic-2 record batch, and what older message sets share with it.

Knows nothing of requests. Never decompresses: everything that quotas need stands before the compressed part.
Source: Kafka's DefaultRecordBatch (schema in its class comment), AbstractLegacyRecordBatch.

    0  baseOffset int64          8  batchLength int32 (bytes behind it)   12 partitionLeaderEpoch int32
    16 magic int8                17 crc uint32                            21 attributes int16
    23 lastOffsetDelta int32     27 baseTimestamp int64                   35 maxTimestamp int64
    43 producerId int64          51 producerEpoch int16                   53 baseSequence int32
    57 recordCount int32         61 records (maybe compressed)

A legacy message set (magic 0 and 1) has its size at 8 and its magic at 16 too, but neither id nor count.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

LOG_OVERHEAD: Final = 12
"""Bytes of baseOffset and batchLength, which batchLength does not count (Records.LOG_OVERHEAD)."""
MAGIC_END: Final = 17
"""A reader needs this much to know which head it looks at."""
HEAD_BYTES: Final = 61
MAGIC: Final = 2
"""of a batch, against 0 and 1 of a legacy set"""
CODEC_BITS: Final = 7
"""of the attributes"""
NO_PRODUCER_ID: Final = -1

LENGTH_AND_MAGIC: Final = Struct(">8xi4xb")
HEAD: Final = Struct(">8xi4xb5xB20xqhii")
"""batchLength, magic, attributes (low byte), producerId, producerEpoch, baseSequence, recordCount."""
