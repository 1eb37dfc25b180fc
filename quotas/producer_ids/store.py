"""Which producer ids a principal has had admitted within the window, in layers of time. Pure.

KIP-936's `track()` in two: `seen` looks up, `admit` remembers. One that remembers on sight lets a refused id
pass on its retry, ahead of the batches before it (wire-semantics 3.2). A layer is one sample of `sample_ms`;
there are at most `window_num`, and a layer goes window_num samples after it began. So an id is remembered for
window_num − 1 to window_num samples after it was last seen: one found in an old layer moves to the newest,
or a long-lived one would look new. Source: KIP-936, "Caching layer to track active PIDs per KafkaPrincipal".
"""

from __future__ import annotations

import math
import sys
from array import array
from collections.abc import Iterable
from enum import Enum
from itertools import islice
from random import SystemRandom
from typing import Final, Protocol, TypeAlias

from mmh3 import hash128
from rbloom import Bloom

DEFAULT_WINDOW_NUM: Final = 11
DEFAULT_SAMPLE_MS: Final = 3_600_000.0
DEFAULT_FALSE_POSITIVE_RATE: Final = 0.01
_INT_BYTES: Final = 32
"""of a Python int below 2⁶⁰; producer ids that brokers hand out are"""
_WORD_BYTES: Final = 8
_KEY_BYTES: Final = 16
"""As long as a block of MurmurHash3's: what is behind it meets a state that nobody knows, so that no ids can
be chosen that set the same bits, whatever is known of the hash and its seeds."""
MAX_LAYER_IDS: Final = 10_000_000
"""for which one Bloom filter is made: 20 MB and more"""
_MAX_HASHES: Final = 128
_AS_IT_IS: Final = int.__pos__
"""what a filter is given is a hash already; so it is made once for all layers"""

IdLayer: TypeAlias = "tuple[float, list[int] | array[int] | bytes]"
"""(began_ms, the ids or the filter's bytes), for the snapshot"""


class StoreKind(Enum):
    """The value is what the configuration says."""

    EXACT = "exact"
    BLOOM = "bloom"


class ProducerIdStore(Protocol):
    """What both stores can do. Times must not fall."""

    eligible_at_ms: float
    """a layer begins or ends then: what was seen before may be taken as known, and as fresh, until then"""

    def seen(self, producer_id: int, now_ms: float) -> bool:
        """Was it admitted within the window? Then it is now in the newest layer."""
        ...

    def admit(self, producer_id: int, now_ms: float) -> None:
        """Remember it: its request goes to the broker."""
        ...

    def expire(self, now_ms: float) -> bool:
        """Drop what is older than the window; True if nothing is left."""
        ...

    def __len__(self) -> int:
        """Ids remembered (bloom: additions to all layers, so that one that moved on counts in each)."""
        ...

    @property
    def layers(self) -> int: ...

    @property
    def size_bytes(self) -> int:
        """Estimate of the memory taken, from the sizes of tables and filters; O(layers)."""
        ...

    def dump(self) -> list[IdLayer]:
        """All layers, oldest first."""
        ...

    def load(self, layers: Iterable[IdLayer], now_ms: float) -> None:
        """Take over what `dump` gave, beside what is here already; what is too old is left out.

        Raises ValueError if another kind or shape of store gave it, or if what is here cannot be kept with
        it.
        """
        ...


class ExactStore:
    """Sets of ids. No false positives; its size is bounded by the quota, since only admitted ids are in it.

    `max_ids` bounds it where no quota does (shadow mode, exempt principals): when the newest layer holds half
    of it, that layer becomes old early and the layers before it are forgotten. A live id that is seen at
    least once in max_ids ÷ 2 others so stays known.
    """

    __slots__ = ("_began_ms", "_half", "_newest", "_num", "_older", "_sample_ms", "eligible_at_ms")

    def __init__(
        self,
        window_num: int = DEFAULT_WINDOW_NUM,
        sample_ms: float = DEFAULT_SAMPLE_MS,
        *,
        max_ids: int | None = None,
    ) -> None:
        self._num = window_num
        self._sample_ms = sample_ms
        self._half = None if max_ids is None else max(max_ids // 2, 1)
        self.eligible_at_ms = -math.inf
        self._began_ms = -math.inf
        self._newest: set[int] = set()
        self._older: list[tuple[float, set[int]]] = []  # newest first, none of them empty

    def seen(self, producer_id: int, now_ms: float) -> bool:
        if now_ms >= self.eligible_at_ms:
            self._turn(now_ms)
        if producer_id in self._newest:
            return True
        for _, ids in self._older:
            if producer_id in ids:
                ids.discard(producer_id)
                self.admit(producer_id, now_ms)
                return True
        return False

    def admit(self, producer_id: int, now_ms: float) -> None:
        if now_ms >= self.eligible_at_ms:
            self._turn(now_ms)
        self._newest.add(producer_id)
        if self._half is not None and len(self._newest) >= self._half:
            self._older = [(self._began_ms, self._newest)]
            self._newest = set()
            self._began_ms = now_ms
            self.eligible_at_ms = now_ms + self._sample_ms

    def discard(self, producer_id: int) -> None:
        """Remember it no more, if it is here."""
        self._newest.discard(producer_id)
        for _, ids in self._older:
            ids.discard(producer_id)

    def _turn(self, now_ms: float) -> None:
        """Begin a layer if the newest is over, and drop those that are too old or whose ids have moved on."""
        if now_ms >= self._began_ms + self._sample_ms:
            if self._newest:
                self._older.insert(0, (self._began_ms, self._newest))
                self._newest = set()
            self._began_ms = now_ms
        window_ms = self._num * self._sample_ms
        self._older = [layer for layer in self._older if layer[1] and layer[0] + window_ms > now_ms]
        self.eligible_at_ms = self._began_ms + self._sample_ms
        if self._older:
            self.eligible_at_ms = min(self.eligible_at_ms, self._older[-1][0] + window_ms)

    def expire(self, now_ms: float) -> bool:
        if now_ms >= self.eligible_at_ms:
            self._turn(now_ms)
        return not self._newest and not self._older

    def __len__(self) -> int:
        return len(self._newest) + sum(len(ids) for _, ids in self._older)

    @property
    def layers(self) -> int:
        return sum(1 for _, ids in self._older if ids) + bool(self._newest)

    @property
    def size_bytes(self) -> int:
        tables = sys.getsizeof(self._newest) + sum(sys.getsizeof(ids) for _, ids in self._older)
        return tables + len(self) * _INT_BYTES

    def dump(self) -> list[IdLayer]:
        # Lists, for they are copied fast; an array of as many ids takes seven times as long.
        layers: list[IdLayer] = [(began_ms, list(ids)) for began_ms, ids in reversed(self._older)]
        if self._newest:
            layers.append((self._began_ms, list(self._newest)))
        return layers

    def load(self, layers: Iterable[IdLayer], now_ms: float) -> None:
        loaded: list[tuple[float, set[int]]] = []
        for began_ms, ids in layers:
            if isinstance(ids, bytes):
                raise ValueError("a Bloom filter's bytes are no set of ids")
            loaded.insert(0, (min(began_ms, now_ms), set(ids)))
        if self._newest:
            self._older.insert(0, (self._began_ms, self._newest))
        self._older = self._merged(self._older, loaded) if self._older else loaded
        self._newest = set()
        self._began_ms = -math.inf
        self._turn(now_ms)

    def _merged(
        self, these: list[tuple[float, set[int]]], those: list[tuple[float, set[int]]]
    ) -> list[tuple[float, set[int]]]:
        """Layers of two stores. What began within one sample is one layer, or each look would have to go
        through the layers of all of them; and there are no more ids than `max_ids` says, the newest."""
        room = math.inf if self._half is None else 2 * self._half
        merged: list[tuple[float, set[int]]] = []
        for began_ms, ids in sorted(these + those, key=lambda layer: -layer[0]):
            kept = ids if len(ids) <= room else set(islice(ids, int(room)))
            room -= len(kept)
            # By a fixed grid: by distance, layers that follow closely would all become one, and as fresh.
            if merged and merged[-1][0] // self._sample_ms == began_ms // self._sample_ms:
                newer_ms, newer = merged[-1]
                few, many = sorted((newer, kept), key=len)
                many |= few
                merged[-1] = (newer_ms, many)
            else:
                merged.append((began_ms, kept))
        return merged


class BloomStore:
    """Layered Bloom filters: 2 to 4 bytes an id, and a known share of new ids passes as known, uncounted.

    A filter that is full is followed by another of the same sample, with room for as many ids as that has
    already; the first of a sample has room for those of the sample before (live ids move on). So whatever the
    limit was and is now, a sample's filters are few, and none is forgotten before its time. The rate of false
    positives is split so that it holds for the store: each sample has its part, of which the first filter
    takes half, and each that follows half of what is left (scalable Bloom filters; Almeida, Baquero, Preguiça
    and Hutchison, 2007). Ids are hashed with a secret key (MurmurHash3, 128 bits), for brokers hand them out
    in blocks of a thousand, and attackers choose them.
    """

    __slots__ = (
        "_began_ms", "_count", "_key", "_layer_ids", "_layers", "_max_layers", "_num", "_rate", "_room",
        "_sample_ms", "eligible_at_ms",
    )  # fmt: skip

    def __init__(
        self,
        window_num: int = DEFAULT_WINDOW_NUM,
        sample_ms: float = DEFAULT_SAMPLE_MS,
        *,
        layer_ids: int,
        false_positive_rate: float = DEFAULT_FALSE_POSITIVE_RATE,
    ) -> None:
        """`layer_ids` ≥ 1: for how many a filter is made at the least; `false_positive_rate` between 0 and 1,
        of the whole store."""
        self._num = window_num
        self._sample_ms = sample_ms
        self._layer_ids = layer_ids
        # Nothing that is admitted needs as many: two a sample, and 14 doublings from 1,000 to MAX_LAYER_IDS.
        self._max_layers = 4 * window_num
        self._rate = 1.0 - (1.0 - false_positive_rate) ** (0.5 / window_num)
        self._key = SystemRandom().randbytes(_KEY_BYTES)
        self.eligible_at_ms = -math.inf
        self._began_ms = -math.inf
        self._layers: list[tuple[float, Bloom]] = []  # newest first
        self._count: list[int] = []  # additions, one figure a layer
        self._room = 0  # what the newest layer is made for

    def seen(self, producer_id: int, now_ms: float) -> bool:
        if now_ms >= self.eligible_at_ms:
            self._turn(now_ms)
        return self._is_known(self._hash(producer_id))

    def _is_known(self, hashed: int) -> bool:
        for began_ms, bloom in self._layers:
            if hashed in bloom:
                if began_ms != self._began_ms:
                    self._add(hashed)
                return True
        return False

    def admit(self, producer_id: int, now_ms: float) -> None:
        if now_ms >= self.eligible_at_ms:
            self._turn(now_ms)
        hashed = self._hash(producer_id)
        if not self._is_known(hashed):
            self._add(hashed)

    def _hash(self, producer_id: int) -> int:
        return hash128(self._key + producer_id.to_bytes(_WORD_BYTES, "little", signed=True), signed=True)

    def _add(self, hashed: int) -> None:
        if not self._layers or self._layers[0][0] != self._began_ms or self._count[0] >= self._room:
            self._begin_filter()
        self._layers[0][1].add(hashed)
        self._count[0] += 1

    def _begin_filter(self) -> None:
        """The sample of now has none yet, or its last one is full."""
        newest = [
            count
            for (began_ms, _), count in zip(self._layers, self._count, strict=True)
            if began_ms == self._layers[0][0]
        ]
        before = len(newest) if self._layers and self._layers[0][0] == self._began_ms else 0
        self._room = max(self._layer_ids, min(sum(newest), MAX_LAYER_IDS))
        bloom = Bloom(self._room, self._rate / 2.0**before, _AS_IT_IS)
        self._layers.insert(0, (self._began_ms, bloom))
        self._count.insert(0, 0)
        del self._layers[self._max_layers :]
        del self._count[self._max_layers :]

    def _turn(self, now_ms: float) -> None:
        if now_ms >= self._began_ms + self._sample_ms:
            self._began_ms = now_ms
        window_ms = self._num * self._sample_ms
        while self._layers and self._layers[-1][0] + window_ms <= now_ms:
            self._layers.pop()
            self._count.pop()
        self.eligible_at_ms = self._began_ms + self._sample_ms
        if self._layers:
            self.eligible_at_ms = min(self.eligible_at_ms, self._layers[-1][0] + window_ms)

    def expire(self, now_ms: float) -> bool:
        if now_ms >= self.eligible_at_ms:
            self._turn(now_ms)
        return not self._layers

    def __len__(self) -> int:
        return sum(self._count)

    @property
    def layers(self) -> int:
        return len(self._layers)

    @property
    def size_bytes(self) -> int:
        return sum(bloom.size_in_bits // 8 for _, bloom in self._layers)

    def dump(self) -> list[IdLayer]:
        """Each layer's bytes: the key, the additions, the filter."""
        return [
            (began_ms, self._key + count.to_bytes(_WORD_BYTES, "little") + bloom.save_bytes())
            for (began_ms, bloom), count in zip(reversed(self._layers), reversed(self._count), strict=True)
        ]

    def load(self, layers: Iterable[IdLayer], now_ms: float) -> None:
        key = self._key
        blooms: list[tuple[float, Bloom]] = []
        counts: list[int] = []
        least_hashes = int.from_bytes(Bloom(1, self._rate, _AS_IT_IS).save_bytes()[:_WORD_BYTES], "little")
        least_bits_per_id = -math.log(self._rate) / math.log(2.0) ** 2
        for began_ms, data in layers:
            if not isinstance(data, bytes):
                raise ValueError("a set of ids is no Bloom filter's bytes")
            saved = data[_KEY_BYTES + _WORD_BYTES :]
            count = int.from_bytes(data[_KEY_BYTES : _KEY_BYTES + _WORD_BYTES], "little")
            hashes = int.from_bytes(saved[:_WORD_BYTES], "little")
            bits = 8 * (len(saved) - _WORD_BYTES)
            # load_bytes panics on what it did not write. Each filter has the size of its own time; one with
            # fewer hashes, or bits (rbloom makes whole bytes of them), has too many false positives.
            too_few = bits + 8 < count * least_bits_per_id or bits <= 0
            if too_few or not least_hashes <= hashes <= _MAX_HASHES:
                raise ValueError("the Bloom filter is made for more false positives, or is none")
            key = data[:_KEY_BYTES]
            counts.insert(0, count)
            blooms.insert(0, (min(began_ms, now_ms), Bloom.load_bytes(saved, _AS_IT_IS)))
        self._turn(now_ms)
        if self._layers:
            if blooms:
                raise ValueError("filters of two users have two keys, and these share one store")
            return
        self._key, self._layers, self._count, self._room = key, blooms, counts, 0
        self._began_ms = -math.inf
        self._turn(now_ms)
