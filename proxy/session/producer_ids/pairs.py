"""What a request writes to or adds to a transaction → its (producer id, topic, partition) as keys. Pure.

They count against the ceiling (quotas/producer_ids/principal.py). Source: wire-semantics 3.8, 3.12.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from sluice.protocol.transactions.requests import Addition
from sluice.proxy.session.producer_ids.batches import GateKey
from sluice.quotas.producer_ids.principal import PairKeys

_OFFSETS_PARTITION: Final = -1
"""no topic has it, so that no group is taken for one"""


def pairs_of(batches: Iterable[GateKey], keys: PairKeys) -> tuple[int, ...]:
    """Those of a Produce."""
    key = keys.key
    return tuple(key(*batch) for batch in batches)


def added_pairs(additions: Sequence[Addition], keys: PairKeys) -> tuple[int, ...]:
    """A group's offsets go to one partition of a topic that clients cannot produce to: the pair is told by
    its name."""
    key = keys.key
    pairs: set[int] = set()
    for addition in additions:
        if addition.group is not None:
            pairs.add(key(addition.producer_id, addition.group, _OFFSETS_PARTITION))
            continue
        for name, partitions in addition.topics:
            pairs.update(key(addition.producer_id, name, partition) for partition in partitions)
    return tuple(pairs)
