"""One principal's producer ids: what was admitted, its buckets, its waiting ids and their ages, its figures.

Knows no connections and decides nothing: quota.py is the door. Pure; time is an argument.
Source: wire-semantics 3; KIP-936.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from hashlib import blake2b
from random import SystemRandom
from typing import Final

from sluice.quotas.producer_ids.buckets import MS_PER_HOUR, BucketShape, IdBucket
from sluice.quotas.producer_ids.store import (
    DEFAULT_FALSE_POSITIVE_RATE,
    DEFAULT_SAMPLE_MS,
    DEFAULT_WINDOW_NUM,
    MAX_LAYER_IDS,
    BloomStore,
    ExactStore,
    ProducerIdStore,
    StoreKind,
)
from sluice.quotas.producer_ids.transactional_ids import TransactionalIds

BROKER_BYTES_PER_PAIR: Final = 270
"""heap that a broker keeps for one (producer id, partition); measured: 262 to 272 on Kafka 4.3.1"""
_PAIR_LAYERS: Final = 8
_MAX_TOPICS: Final = 10_000
_MAX_TOPIC_BYTES: Final = 249
_NUMBER_BYTES: Final = 11
_PRIME: Final = 2**89 - 1
_TO_60_BITS: Final = 29
"""ints below 2⁶⁰ take 32 bytes each, larger ones 36"""
_MIN_LAYER_IDS: Final = 1_000
SMALL_PAIRS: Final = 256
"""(id, partition) pairs; a principal that holds no more of them may go up to the ceiling itself"""
SHARE_OF_LARGE: Final = 0.9
"""of the ceiling, at which principals that hold more than SMALL_PAIRS stop"""
_RANDOM: Final = SystemRandom()


@dataclass(frozen=True, slots=True)
class ProducerIdSettings:
    """The settings of the producer-id quota; the limit itself stands in the quota file."""

    window_num: int = DEFAULT_WINDOW_NUM
    """producer.id.quota.window.num: layers, one a sample"""
    sample_ms: float = DEFAULT_SAMPLE_MS
    """producer.id.quota.window.size.seconds, in ms"""
    store: StoreKind = StoreKind.EXACT
    false_positive_rate: float = DEFAULT_FALSE_POSITIVE_RATE
    """of a Bloom store as a whole"""
    buckets: BucketShape = field(default_factory=BucketShape)
    forced_after_ms: float = 30_000.0
    broker_heap_bytes: int = 1024**3
    """of the broker behind; Kafka's start script gives it 1 GiB"""
    heap_share: float = 0.25
    """of that heap which producer ids may take"""
    principal_share: float = 0.5
    """of the ceiling which one principal may take"""
    max_waiting_ids: int = 10_000
    """of one principal, whose ages are kept; beyond, an id begins to wait anew with each hold"""
    waiting_expiry_ms: float = 120_000.0
    """an id that did not ask for so long waits no more"""
    max_observed_ids: int = 100_000
    """remembered of a principal that is not limited: shadow mode, exempt"""
    transactional_ids_per_hour: float | None = None
    """new ones of one principal; None: counted, not limited"""
    max_principals: int = 10_000
    """principals of their own; those beyond share one"""

    @property
    def max_pairs(self) -> int:
        """The ceiling over all principals, in (id, partition) pairs within the broker's expiration."""
        return int(self.broker_heap_bytes * self.heap_share / BROKER_BYTES_PER_PAIR)


class PairKeys:
    """(producer id, topic, partition) → a number that stands for it. Secret factors: nobody can make two
    meet."""

    __slots__ = ("_ids", "_partitions", "_topics", "salt")

    def __init__(self, salt: bytes | None = None) -> None:
        """`salt`: 16 bytes, kept in the snapshot; None: a new one."""
        self.salt = _RANDOM.randbytes(16) if salt is None else salt
        self._ids = self._number(b"ids")
        self._topics: dict[bytes, int] = {}
        self._partitions = self._number(b"partitions")

    def key(self, producer_id: int, topic: bytes, partition: int) -> int:
        """0 ≤ key < 2⁶⁰. `topic`: its name or uuid."""
        number = self._topics.get(topic)
        if number is None:
            number = self._number(topic)
            if len(topic) <= _MAX_TOPIC_BYTES:
                if len(self._topics) >= _MAX_TOPICS:
                    self._topics.clear()
                self._topics[topic] = number
        mixed = producer_id * self._ids + partition * self._partitions + number
        return mixed % _PRIME >> _TO_60_BITS

    def name_key(self, name: bytes) -> int:
        """The same of a name alone, of any length."""
        return self._number(name) >> _TO_60_BITS

    def _number(self, of: bytes) -> int:
        return int.from_bytes(blake2b(of, digest_size=_NUMBER_BYTES, key=self.salt).digest(), "big")


class PairCeiling:
    """(id, partition) pairs of all principals against the share of the broker's heap (wire-semantics 3.12).

    A pair counts from its admission until the broker's expiration, or one eighth longer, after it was last
    seen. Known ids always pass, so a known id's further partitions count too but are not refused: the ceiling
    stops ids. Its last tenth is for principals that hold little, so that a few that hold much do not keep all
    others' ids out.
    """

    __slots__ = ("_max_of_large", "max_at_once", "max_of_one", "max_pairs", "reserved", "total")

    def __init__(self, settings: ProducerIdSettings) -> None:
        self.max_pairs = settings.max_pairs
        self.max_of_one = int(settings.max_pairs * settings.principal_share)
        self._max_of_large = int(settings.max_pairs * SHARE_OF_LARGE)
        as_small = min(SMALL_PAIRS, self.max_pairs)
        self.max_at_once = min(max(as_small, self._max_of_large), self.max_of_one)
        """pairs of one request; one with more is never admitted"""
        self.total = 0
        """pairs remembered; what has expired is still in it until the next clean-up"""
        self.reserved = 0
        """of requests that are admitted and have not gone yet"""

    def has_room(self, principal: PrincipalIds, count: int) -> bool:
        """May `count` pairs more be admitted?"""
        return count <= self.room(principal)

    def room(self, principal: PrincipalIds) -> int:
        """How many pairs more a principal may have; < 0: it has more than it may."""
        held, taken = principal.held_pairs, self.total + self.reserved
        as_small = min(SMALL_PAIRS - held, self.max_pairs - taken)
        return min(max(as_small, self._max_of_large - taken), self.max_of_one - held)

    @property
    def heap_bytes(self) -> int:
        """Estimate of what the broker keeps for these producer ids."""
        return self.total * BROKER_BYTES_PER_PAIR


class PrincipalIds:
    """State of one principal. `admitted`, `resumed_admitted`, … never fall: they are counters for metrics.

    A user has two where his limit was enforced for a part of his connections, or of the time, alone: in
    shadow mode, at an exempt address. Each has buckets of its own, and what either knows the other knows, too
    (`join`): an id that is alive is not new because a limit is in force now.
    """

    __slots__ = (
        "_ages", "_ceiling", "_settings", "admitted", "due_ms", "enforced", "forced", "forced_admitted",
        "held_ms", "holds", "ids_per_hour", "learned", "main", "other", "over", "pairs",
        "reserved_pairs", "resumed", "resumed_admitted", "store",
        "transactional_ids", "user", "waiting_tickets",
    )  # fmt: skip

    def __init__(
        self,
        user: str,
        ids_per_hour: float,
        settings: ProducerIdSettings,
        ceiling: PairCeiling,
        now_ms: float,
        *,
        enforced: bool,
    ) -> None:
        """`ids_per_hour` > 0. Not `enforced`: everything passes and is counted, and memory is of fixed
        size."""
        self.user = user
        self.ids_per_hour = ids_per_hour
        self.enforced = enforced
        self._settings = settings
        self._ceiling = ceiling
        shape = settings.buckets
        self.main = IdBucket(shape.main(ids_per_hour), now_ms)
        self.forced = IdBucket(shape.forced(ids_per_hour), now_ms)
        self.resumed = IdBucket(shape.resumed(ids_per_hour), now_ms)
        max_ids = None if enforced else settings.max_observed_ids
        self.store: ProducerIdStore
        if settings.store is StoreKind.BLOOM and enforced:
            self.store = _bloom_store(ids_per_hour, settings)
        else:
            self.store = ExactStore(settings.window_num, settings.sample_ms, max_ids=max_ids)
        # A layer more than the samples of the expiration: none is forgotten before the broker may forget it.
        sample_ms = shape.expiration_ms / _PAIR_LAYERS
        self.pairs = ExactStore(_PAIR_LAYERS + 1, sample_ms, max_ids=max_ids)
        self.transactional_ids = TransactionalIds(
            settings.transactional_ids_per_hour if enforced else None,
            burst_h=shape.burst_h,
            window_num=settings.window_num,
            sample_ms=settings.sample_ms,
            max_ids=settings.max_observed_ids,
            now_ms=now_ms,
        )
        self.other: PrincipalIds | None = None
        """the same user's state where the limit is not enforced as it is here"""
        self.reserved_pairs = 0
        self._ages: dict[int, tuple[float, float]] = {}  # id → (first asked, last asked), by the latter
        self.waiting_tickets = 0
        self.due_ms = math.inf
        """when a waiting request can be admitted if nothing else happens; the door's"""
        self.admitted = 0
        """new ids, forced and resumed ones included"""
        self.learned = 0
        """ids that were unseen and are known since, in either state: admitted, or successors"""
        self.forced_admitted = 0
        self.resumed_admitted = 0
        self.held_ms = 0.0
        """for which requests were held, in all"""
        self.holds = 0
        """requests that were held"""
        self.over = 0
        """requests that passed beyond the limit because it is not enforced"""

    @property
    def waiting_ids(self) -> int:
        """Ids whose age is kept."""
        return len(self._ages)

    def tokens(self, now_ms: float) -> float:
        """KIP-936's `tokens`: what the main bucket holds less the requests that wait; < 0: throttling
        applies."""
        return self.main.tokens(now_ms) - self.waiting_tickets

    @property
    def held_pairs(self) -> int:
        """(id, partition) pairs of its user, in both his states, and those of requests that are admitted."""
        other = 0 if self.other is None else len(self.other.pairs)
        return len(self.pairs) + self.reserved_pairs + other

    def join(self, other: PrincipalIds) -> None:
        """The same user has this state, too.

        Nothing is copied: what is kept where a limit is not enforced is of fixed size, and who brings ids
        there without end would else fill the other state, which only the quota bounds.
        """
        self.other, other.other = other, self
        self.transactional_ids.other = other.transactional_ids
        other.transactional_ids.other = self.transactional_ids

    def part(self) -> None:
        """This state is forgotten."""
        if self.other is not None:
            self.other.other = self.other.transactional_ids.other = None

    def knows(self, producer_id: int, now_ms: float) -> bool:
        """Was it admitted within the window, in either of its user's states? Then it stays for another."""
        if self.store.seen(producer_id, now_ms):
            return True
        return self.other is not None and self.other.store.seen(producer_id, now_ms)

    def fresh_until_ms(self, now_ms: float) -> float:
        """What was known just now, ids and pairs, may be taken as known, and as fresh, until then."""
        until_ms = min(self.store.eligible_at_ms, self.pairs.eligible_at_ms)
        if self.other is not None:
            for store in (self.other.store, self.other.pairs):
                if store.eligible_at_ms > now_ms:  # else nothing was found there
                    until_ms = min(until_ms, store.eligible_at_ms)
        return until_ms

    def count_hold(self, held_ms: float) -> None:
        """A request is held no more."""
        self.held_ms += held_ms
        self.holds += 1

    def learn(self, producer_id: int, now_ms: float) -> bool:
        """An id is known from now on. False: it was already."""
        if self.knows(producer_id, now_ms):
            return False
        self.store.admit(producer_id, now_ms)
        self.learned += 1
        if self.other is not None:
            self.other.learned += 1
        return True

    def see_pair(self, key: int, now_ms: float) -> None:
        """A known or admitted id writes to a partition: remember it, or that it is still alive."""
        pairs, other = self.pairs, self.other
        if not pairs.seen(key, now_ms) and (other is None or not other.pairs.seen(key, now_ms)):
            before = len(pairs)
            pairs.admit(key, now_ms)
            self._ceiling.total += len(pairs) - before

    def see_known_pairs(self, keys: Iterable[int], now_ms: float) -> None:
        """As `see_pair`, of partitions that a known id writes to or adds to a transaction: no more of them
        than the ceiling has room for.

        The id passes all the same. But a partition is named in four bytes, whether it exists or not, so one
        request could fill our memory, and keep neighbours' ids out.
        """
        pairs, other, room = self.pairs, self.other, self._ceiling.room(self)
        for key in keys:
            if pairs.seen(key, now_ms) or (other is not None and other.pairs.seen(key, now_ms)):
                continue
            if room > 0:
                self.see_pair(key, now_ms)
                room -= 1

    def waiting_since_ms(self, producer_ids: Iterable[int], now_ms: float) -> float:
        """Since when the youngest of some ids, which now ask, has waited. Ages survive refusals, up to a
        share."""
        self._forget_ages(now_ms)
        ages = self._ages
        room = self._settings.max_waiting_ids
        youngest_ms = -math.inf
        for producer_id in producer_ids:
            known = ages.pop(producer_id, None)
            first_ms = now_ms if known is None else known[0]
            if first_ms > youngest_ms:  # noqa: PLR1730  a call of max() would be a third of all this
                youngest_ms = first_ms
            if len(ages) < room:
                ages[producer_id] = (first_ms, now_ms)
        return youngest_ms

    def forced_floor(self, *, is_member: bool) -> float:
        """Tokens that a request must leave in the forced bucket."""
        return 0.0 if is_member else self._settings.buckets.forced_floor(self.forced.capacity)

    def can_ever_admit(self, new: int, resumed: int, pairs: int, *, is_member: bool) -> bool:
        """False: so many ids or pairs at once are more than the buckets hold, or than its share of the
        ceiling."""
        fits = new <= self.main.capacity and resumed <= self.resumed.capacity
        forced_fits = new + resumed + self.forced_floor(is_member=is_member) <= self.forced.capacity
        return (fits or forced_fits) and pairs <= self._ceiling.max_at_once

    def end_wait(self, producer_id: int) -> None:
        """Forget how long an id has waited: it is admitted."""
        self._ages.pop(producer_id, None)

    def update(self, ids_per_hour: float, now_ms: float) -> None:
        """Go on with another limit; what was admitted stays admitted."""
        shape = self._settings.buckets
        self.ids_per_hour = ids_per_hour
        self.main.update(shape.main(ids_per_hour), now_ms)
        self.forced.update(shape.forced(ids_per_hour), now_ms)
        self.resumed.update(shape.resumed(ids_per_hour), now_ms)

    def expire(self, now_ms: float) -> bool:
        """Drop what is too old. True: this principal may be forgotten, for beginning anew would change
        nothing."""
        gone = self.pairs.expire(now_ms) and self.transactional_ids.expire(now_ms)
        self._forget_ages(now_ms)
        return (
            self.store.expire(now_ms)
            and gone
            and not self._ages
            and not self.waiting_tickets
            and all(bucket.is_full(now_ms) for bucket in (self.main, self.forced, self.resumed))
        )

    def _forget_ages(self, now_ms: float) -> None:
        oldest_ms = now_ms - self._settings.waiting_expiry_ms
        ages = self._ages
        while ages:
            producer_id = next(iter(ages))
            if ages[producer_id][1] >= oldest_ms:
                break
            del ages[producer_id]

    def __repr__(self) -> str:
        return (
            f"<PrincipalIds {self.user}: {self.ids_per_hour:g}/h, {len(self.store)} ids, "
            f"{len(self.pairs)} pairs, {self.waiting_tickets} waiting>"
        )


def _bloom_store(ids_per_hour: float, settings: ProducerIdSettings) -> BloomStore:
    """Its first filter is for what comes in one sample."""
    layer_ids = math.ceil(ids_per_hour * (settings.buckets.burst_h + settings.sample_ms / MS_PER_HOUR))
    return BloomStore(
        settings.window_num,
        settings.sample_ms,
        layer_ids=min(max(layer_ids, _MIN_LAYER_IDS), MAX_LAYER_IDS),
        false_positive_rate=settings.false_positive_rate,
    )
