"""First batches of a request, by producer and partition, and which of two sequences is the later one. Pure.

Source: wire-semantics 3.5; DefaultRecordBatch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias

from sluice.protocol.produce import BatchHead

_SEQUENCES: Final = 0x7FFFFFFF
_HALF: Final = 0x40000000

GateKey: TypeAlias = tuple[int, bytes, int]
"""producer id, topic (name or uuid, as the request has it), partition"""
Batches: TypeAlias = Mapping[GateKey, tuple[int, int]]
"""(epoch, base sequence) of the first batch of each key in a request"""


def first_batches(buf: bytearray, batches: Sequence[BatchHead]) -> dict[GateKey, tuple[int, int]]:
    """(epoch, base sequence) of the first batch of each producer id and partition."""
    first: dict[GateKey, tuple[int, int]] = {}
    for topic_pos, topic_end, partition, _, producer_id, epoch, sequence, _ in batches:
        if producer_id >= 0:  # below: none, whatever the number (DefaultRecordBatch.hasProducerId)
            key = (producer_id, bytes(buf[topic_pos:topic_end]), partition)
            if key not in first:
                first[key] = (epoch, sequence)
    return first


def is_above(sequence: int, gate: int) -> bool:
    """Is `sequence` later than `gate`? They are modulo 2³¹; what is half of that away counts as earlier."""
    return 0 < (sequence - gate) & _SEQUENCES < _HALF
