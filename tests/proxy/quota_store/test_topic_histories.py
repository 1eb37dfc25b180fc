"""Small histories of one entity in the quota topic: writers at once, records that are no good, compaction."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import permutations, product
from typing import TypeAlias

from hypothesis import given, settings
from hypothesis import strategies as st

from sluice.proxy.quota_store.entities import key_of
from sluice.proxy.quota_store.topic_records import NOTHING, BadRecord, Stored, TopicLog, value_of
from sluice.quotas.entity import QuotaEntity
from testkit.thorough import cases

ALICE = QuotaEntity("alice")
RATES = ("producer_byte_rate", "consumer_byte_rate")
Asked: TypeAlias = tuple[str, int | None]
"""a key, and its limit; None: it goes"""


@dataclass(frozen=True)
class Record:
    value: bytes | None
    offset: int
    after: int | None
    after_tombstone: bool = False


def read(log: TopicLog, record: Record) -> bool:
    """Whether it is in force then."""
    try:
        log.apply(
            key_of(ALICE), record.value, record.offset, record.after, after_tombstone=record.after_tombstone
        )
    except BadRecord:
        return False
    return True


def state_of(log: TopicLog) -> tuple[object, ...]:
    limits = log.entries.get(ALICE, NOTHING).limits
    return (*(limits.get(key) for key in RATES), log._accepted.get(ALICE), ALICE in log.doubtful)


def copy_of(log: TopicLog) -> TopicLog:
    return TopicLog(dict(log.entries), set(log.doubtful), dict(log._accepted))


@dataclass
class History:
    """Records of alice, and proxies that have read them, each from an offset on."""

    records: list[Record] = field(default_factory=list)
    proxies: list[TopicLog] = field(default_factory=lambda: [TopicLog()])

    def copy(self) -> History:
        return History(list(self.records), [copy_of(log) for log in self.proxies])

    def begins(self) -> list[int]:
        """The numbers of the records at which a proxy may begin to read, as compaction may have gone."""
        whole = len(self.records)
        is_gone = not whole or self.records[-1].value is None
        return [*range(whole), whole] if is_gone else list(range(whole))

    def joins(self, begin: int, known: TopicLog | None = None) -> None:
        """One more proxy. `known`: from whom it has the copy with which it starts."""
        log = TopicLog()
        for record in self.records[begin:]:
            read(log, record)
        if known is not None:
            log.keep_from(known.entries)
        self.proxies.append(log)

    def forget_doubles(self) -> None:
        """Proxies that know the same do the same."""
        self.proxies = list({state_of(log): log for log in self.proxies}.values())

    def alters(self, asked: Sequence[tuple[int, Asked]], bad_before: int | None = None) -> None:
        """Proxies alter at once; each one that is refused does so again on top of what it has read then.
        `bad_before`: before which of their records another tool writes one that is no good."""
        written = [self.written_by(*one) for one in asked]
        refused = []
        for number, (one, record) in enumerate(zip(asked, written, strict=True)):
            if number == bad_before:
                self.bad()
            if not self.takes(one[0], *record):
                refused.append(one)
        if bad_before == len(asked):
            self.bad()
        for one in refused:
            assert self.takes(one[0], *self.written_by(*one))

    def bad(self) -> None:
        """Another tool writes a record that is no good."""
        self.takes(0, b"broken", None, False)

    def written_by(self, proxy: int, asked: Asked) -> tuple[bytes | None, int, bool]:
        log = self.proxies[proxy]
        limits = dict(log.entries.get(ALICE, NOTHING).limits)
        key, limit = asked
        limits.pop(key, None)
        if limit is not None:
            limits[key] = limit
        return value_of(Stored(limits)), *log.base_of(ALICE)

    def takes(self, writer: int, value: bytes | None, after: int | None, after_tombstone: bool) -> bool:
        record = Record(value, len(self.records), after, after_tombstone)
        self.records.append(record)
        return [read(log, record) for log in self.proxies][writer]


def checked(history: History, asked: Sequence[Asked]) -> None:
    """All proxies know the same, and of each key the limit that one who asked for it was told is kept."""
    for log in history.proxies:
        limits = log.entries.get(ALICE, NOTHING).limits
        for key in {key for key, _ in asked}:
            assert limits.get(key) in [limit for asked_key, limit in asked if asked_key == key]
    assert len({log.entries.get(ALICE, NOTHING) == NOTHING for log in history.proxies}) == 1
    assert all(log.entries == history.proxies[0].entries for log in history.proxies)


@settings(max_examples=cases(300))
@given(st.data())
def test_whatever_compaction_takes_away_all_readers_end_alike_and_nothing_acknowledged_is_lost(
    data: st.DataObject,
) -> None:
    history = History()
    for _ in range(data.draw(st.integers(1, 5))):
        who = st.integers(0, len(history.proxies) - 1)
        one = st.tuples(who, st.tuples(st.sampled_from(RATES), st.integers(1, 9) | st.none()))
        asked = data.draw(st.lists(one, min_size=1, max_size=3, unique_by=lambda one: (one[0], one[1][0])))
        before = dict(history.proxies[0].entries.get(ALICE, NOTHING).limits)
        is_doubted = any(log.doubtful for log in history.proxies)
        bad_before = data.draw(st.none() | st.integers(0, len(asked)))
        history.alters(asked, bad_before)
        if bad_before is None or history.records[-1].value != b"broken":
            checked(history, [each for _, each in asked])
        if not is_doubted and bad_before is None:  # else who asked may have known less than others
            limits = history.proxies[0].entries.get(ALICE, NOTHING).limits
            for key in set(RATES) - {key for _, (key, _) in asked}:
                assert limits.get(key) == before.get(key)
        knows = history.proxies[0]
        for begin in history.begins():
            history.joins(begin)
            history.joins(begin, knows)
        sure = [log for log in history.proxies if not log.doubtful]
        assert all(log.entries == sure[0].entries for log in sure)
        del history.proxies[1 : -data.draw(st.integers(1, 2))]


def rounds(history: History, limit: int) -> Iterator[tuple[list[tuple[int, Asked]], int | None]]:
    """What one or two proxies may ask for at once, and where a bad record may stand among theirs."""
    numbers = range(len(history.proxies))
    asked: list[Asked] = [(RATES[0], limit), (RATES[0], None), (RATES[1], limit + 1)]
    for one in product(numbers, asked):
        yield from (([one], bad_before) for bad_before in (None, 0, 1))
    pairs = [*permutations(numbers, 2), (0, 0)]
    for (first, second), first_asked, second_asked in product(pairs, asked, asked):
        for bad_before in (None, 0, 1, 2):
            yield [(first, first_asked), (second, second_asked)], bad_before


def all_from(history: History, depth: int) -> int:
    """Checks all histories that go on from here; returns how many."""
    if not depth:
        return 1
    count = 0
    for asked, bad_before in rounds(history, 10 * depth):
        after = history.copy()
        after.alters(asked, bad_before)
        if after.records[-1].value != b"broken":
            checked(after, [each for _, each in asked])
        if depth > 1:
            knows = after.proxies[0]
            for begin in after.begins():
                after.joins(begin)
                after.joins(begin, knows)
            after.forget_doubles()
        count += all_from(after, depth - 1)
    return count


def test_so_it_is_in_all_small_histories() -> None:
    assert all_from(History(), 2) > 3_000
