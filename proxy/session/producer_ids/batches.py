"""First batches of a request, by producer and partition, and which of two sequences is the later one. Pure.

Source: wire-semantics 3.5; DefaultRecordBatch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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
    topic, last_pos = b"", -1
    # What most of them share is one object: thousands may have to be kept while they wait.
    places: dict[tuple[int, int], tuple[int, int]] = {}
    last_id = -1
    for topic_pos, topic_end, partition, _, producer_id, epoch, sequence, _ in batches:
        if producer_id >= 0:  # below: none, whatever the number (DefaultRecordBatch.hasProducerId)
            if topic_pos != last_pos:
                topic, last_pos = bytes(buf[topic_pos:topic_end]), topic_pos
            if producer_id != last_id:
                last_id = producer_id
            key = (last_id, topic, partition)
            if key not in first:
                place = (epoch, sequence)
                first[key] = places.setdefault(place, place)
    return first


def unseen_ids(batches: Batches, seen: Callable[[int, float], bool], now_ms: float) -> dict[int, bool]:
    """The producer ids that are not known: has it written before?"""
    unseen: dict[int, bool] = {}
    for (producer_id, _, _), (epoch, sequence) in batches.items():
        if producer_id in unseen:
            unseen[producer_id] |= sequence > 0 or epoch > 0
        elif not seen(producer_id, now_ms):
            unseen[producer_id] = sequence > 0 or epoch > 0
    return unseen


def is_above(sequence: int, gate: int) -> bool:
    """Is `sequence` later than `gate`? They are modulo 2³¹; what is half of that away counts as earlier."""
    return 0 < (sequence - gate) & _SEQUENCES < _HALF


def centred(sequence: int, about: int) -> int:
    """A number that puts sequences in the order of `is_above`, less than half of them away from `about`."""
    return (sequence - about + _HALF) & _SEQUENCES
