"""Records of the quota topic: what is read and written, what is refused, and what a log of them comes to."""

from __future__ import annotations

import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.proxy.quota_store.entities import key_of
from sluice.proxy.quota_store.topic_records import (
    NOTHING,
    BadRecord,
    Base,
    Outdated,
    Stored,
    TopicLog,
    copy_of,
    entries_of,
    read_key,
    read_value,
    value_of,
)
from sluice.quotas.entity import DEFAULT, OVERFLOW, QuotaEntity
from sluice.quotas.kinds import CLIENT_KINDS
from sluice.quotas.limits.limits import why_not_for

ALICE = QuotaEntity("alice")
KEY = b'{"user":"alice"}'
NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20) | st.just(DEFAULT)
ENTITIES = st.one_of(
    NAMES.map(QuotaEntity),
    NAMES.map(lambda name: QuotaEntity(None, name)),
    st.tuples(NAMES, NAMES).map(lambda names: QuotaEntity(*names)),
    (st.ip_addresses().map(str) | st.just(DEFAULT)).map(lambda address: QuotaEntity(ip=address)),
)


@st.composite
def stored(draw: st.DrawFn, entity: QuotaEntity) -> Stored:
    if entity.ip is not None:
        keys = ["connection_creation_rate"]
    else:
        keys = [spec.config_key for spec in CLIENT_KINDS if why_not_for(spec, entity) is None]
    limits = draw(st.dictionaries(st.sampled_from(keys), st.integers(1, 2**31 - 1), min_size=1))
    return Stored(limits, draw(st.frozensets(st.sampled_from(sorted(limits)))))


@given(st.data())
def test_what_is_written_is_read(data: st.DataObject) -> None:
    entity = data.draw(ENTITIES)
    limits = data.draw(stored(entity))
    assert read_key(key_of(entity)) == entity
    assert read_value(entity, value_of(limits)) == limits


@given(st.dictionaries(ENTITIES, st.just(Stored({"producer_byte_rate": 5}))).map(dict))
def test_a_copy_holds_every_entry(entries: dict[QuotaEntity, Stored]) -> None:
    entries = {entity: one for entity, one in entries.items() if entity.ip is None}
    assert entries_of(json.loads(json.dumps(copy_of(entries)))) == entries


@given(st.binary(max_size=80), st.binary(max_size=80) | st.none())
def test_whatever_stands_in_a_record_it_is_taken_or_refused(key: bytes, value: bytes | None) -> None:
    log = TopicLog()
    try:
        log.apply(key, value)
    except BadRecord:
        assert not log.entries


@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.integers() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(
            st.sampled_from(["user", "client-id", "ip", "producer_byte_rate", "shadow", "x"]), inner
        ),
    )
)  # fmt: skip
def test_whatever_json_stands_in_a_record_it_is_taken_or_refused(value: object) -> None:
    text = json.dumps(value).encode()
    for key, content in ((text, b'{"producer_byte_rate":1}'), (KEY, text)):
        log = TopicLog()
        try:
            applied = log.apply(key, content)
        except BadRecord:
            assert not log.entries
        else:
            assert log.entries == {applied.entity: applied.new}


def test_an_entity_has_one_key_and_no_other_spelling() -> None:
    assert key_of(QuotaEntity("alice", DEFAULT)) == b'{"user":"alice","client-id":null}'
    for other in (b'{"client-id":null,"user":"alice"}', b'{"user": "alice","client-id":null}'):
        with pytest.raises(BadRecord, match="must be written") as caught:
            read_key(other)
        assert caught.value.entity == QuotaEntity("alice", DEFAULT)
    for address in (b"0:0::1", b"::ffff:7f00:1", b"::ffff:127.0.0.1"):
        with pytest.raises(BadRecord, match="must be written"):
            read_key(b'{"ip":"%s"}' % address)
    with pytest.raises(BadRecord, match="is no address"):
        read_key(b'{"ip":"fe80::1%lo"}')


def test_what_kafka_has_no_entity_for_has_no_key() -> None:
    with pytest.raises(ValueError, match="cannot be kept"):
        key_of(QuotaEntity(OVERFLOW))


@pytest.mark.parametrize(
    "key",
    [
        None,
        b"",
        b"\xff",
        b"[]",
        b"{}",
        b'{"user":""}',
        b'{"user":5}',
        b'{"group":"x"}',
        b'{"user":"a","ip":"10.0.0.1"}',
        b'{"ip":"nowhere"}',
        b'{"user":"\\ud800"}',
        b'{"user":"' + b"x" * 80_000 + b'"}',
    ],
)
def test_a_key_that_names_nobody_is_refused(key: bytes | None) -> None:
    with pytest.raises(BadRecord) as caught:
        read_key(key)
    assert caught.value.entity is None


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"5",
        b"{}",
        b'{"producer_byte_rate":0}',
        b'{"producer_byte_rate":1.5}',
        b'{"producer_byte_rate":"5"}',
        b'{"producer_byte_rate":true}',
        b'{"producer_byte_rate":NaN}',
        b'{"request_percentage":1' + b"0" * 400 + b"}",
        b'{"connection_creation_rate":5}',
        b'{"nonsense":5}',
        b'{"shadow":[]}',
        b'{"producer_byte_rate":5,"shadow":"all"}',
        b'{"producer_byte_rate":5,"shadow":["consumer_byte_rate"]}',
        b"[" * 5_000,
        b'{"x":"' + b"x" * 70_000 + b'"}',
    ],
)
def test_a_value_that_no_limit_can_have_is_refused_and_says_whom_it_is_about(value: bytes) -> None:
    with pytest.raises(BadRecord) as caught:
        read_value(ALICE, value)
    assert caught.value.entity == ALICE


def test_the_latest_record_holds_and_a_tombstone_ends_the_limits() -> None:
    log = TopicLog()
    log.apply(KEY, b'{"producer_byte_rate":1}')
    applied = log.apply(KEY, b'{"producer_byte_rate":2,"shadow":["producer_byte_rate"]}')
    assert applied.old == Stored({"producer_byte_rate": 1})
    assert log.entries == {ALICE: Stored({"producer_byte_rate": 2}, frozenset({"producer_byte_rate"}))}
    assert log.apply(KEY, None).new == NOTHING
    assert not log.entries
    assert log.apply(KEY, None).old == NOTHING


def test_a_bad_record_leaves_in_force_what_was() -> None:
    log = TopicLog()
    log.apply(KEY, b'{"producer_byte_rate":1}')
    with pytest.raises(BadRecord):
        log.apply(KEY, b'{"producer_byte_rate":-1}')
    assert log.entries == {ALICE: Stored({"producer_byte_rate": 1})}


def test_of_whom_compaction_left_only_a_bad_record_keeps_what_was_known_of_him() -> None:
    log, known = TopicLog(), {ALICE: Stored({"producer_byte_rate": 7}), QuotaEntity("gone"): NOTHING}
    with pytest.raises(BadRecord):
        log.apply(KEY, b"broken")
    log.apply(b'{"user":"bob"}', b'{"producer_byte_rate":2}')
    assert log.keep_from(known) == [ALICE]
    assert set(log.entries) == {ALICE, QuotaEntity("bob")}


def test_a_good_record_after_a_bad_one_ends_the_doubt() -> None:
    log = TopicLog()
    with pytest.raises(BadRecord):
        log.apply(KEY, b"broken")
    log.apply(KEY, None)
    assert log.keep_from({ALICE: Stored({"producer_byte_rate": 7})}) == []
    assert not log.entries


# Who writes at the same time --------------------------------------------------------------------------------


def rate(number: int) -> bytes:
    return b'{"producer_byte_rate":%d}' % number


def test_of_two_written_after_the_same_record_the_second_is_refused() -> None:
    log = TopicLog()
    log.apply(KEY, rate(1), 0, -1)
    with pytest.raises(Outdated):
        log.apply(KEY, rate(2), 1, -1)
    assert log.base_of(ALICE) == Base(0)
    log.apply(KEY, rate(3), 2, 0)
    assert log.entries == {ALICE: Stored({"producer_byte_rate": 3})}
    assert not log.doubtful


def test_a_record_that_says_nothing_is_accepted_and_what_had_not_seen_it_refused() -> None:
    log = TopicLog()
    log.apply(KEY, rate(1), 0, -1)
    log.apply(KEY, rate(2), 5)
    with pytest.raises(Outdated):
        log.apply(KEY, rate(3), 6, 0)
    log.apply(KEY, rate(4), 7, 5)
    assert log.entries == {ALICE: Stored({"producer_byte_rate": 4})}


def test_a_tombstone_counts_as_a_record() -> None:
    log = TopicLog()
    log.apply(KEY, rate(1), 0, -1)
    log.apply(KEY, None, 1, 0)
    with pytest.raises(Outdated):
        log.apply(KEY, rate(2), 2, 0)
    assert not log.entries


@given(st.lists(st.integers(0, 3), min_size=1, max_size=12), st.data())
def test_who_begins_behind_a_compaction_ends_where_all_others_do(
    lags: list[int], data: st.DataObject
) -> None:
    """Writers have seen all accepted records but the last `lag` of them; the last one has seen them all."""
    live, records, accepted = TopicLog(), [], [-1]
    for offset, lag in enumerate([*lags, 0]):
        after = accepted[max(0, len(accepted) - 1 - lag)]
        records.append((offset, after))
        try:
            live.apply(KEY, rate(offset + 1), offset, after)
            accepted.append(offset)
        except Outdated:
            pass
    begin = data.draw(st.integers(0, len(records) - 1))
    late = TopicLog()
    for offset, after in records[begin:]:
        with suppress(Outdated):
            late.apply(KEY, rate(offset + 1), offset, after)
    assert late.entries == live.entries
    assert late.base_of(ALICE) == live.base_of(ALICE) == Base(len(records) - 1)


# Tombstones that compaction takes away ----------------------------------------------------------------------


def with_and_without_tombstone() -> tuple[TopicLog, TopicLog]:
    """Two readers: alice was set at 3 and removed at 7; the second came after a compaction."""
    with_it = TopicLog()
    with_it.apply(KEY, rate(1), 3, -1)
    with_it.apply(KEY, None, 7, 3)
    assert with_it.base_of(ALICE) == Base(7, is_tombstone=True)
    return with_it, TopicLog()


def test_what_is_set_by_one_who_does_not_know_the_tombstone_is_accepted_by_all() -> None:
    for log in with_and_without_tombstone():
        log.apply(KEY, rate(2), 20, -1)
        with pytest.raises(Outdated):
            log.apply(KEY, rate(3), 21, -1)
        log.apply(KEY, rate(4), 22, 20)
        assert log.entries == {ALICE: Stored({"producer_byte_rate": 4})}


@pytest.mark.parametrize("offsets", [(20, 21), (21, 20)])
def test_of_one_who_knows_the_tombstone_and_one_who_does_not_the_first_is_accepted_by_all(
    offsets: tuple[int, int],
) -> None:
    knows, does_not = offsets
    for log in with_and_without_tombstone():
        for offset in sorted(offsets):
            after, after_tombstone = (7, True) if offset == knows else (-1, False)
            with suppress(Outdated):
                log.apply(KEY, rate(offset), offset, after, after_tombstone=after_tombstone)
        assert log.entries == {ALICE: Stored({"producer_byte_rate": 20})}
        assert log.base_of(ALICE) == Base(20), (knows, does_not)


# What is no good, and what was carried over from another topic ----------------------------------------------


def read_bad(log: TopicLog, key: bytes, value: bytes, offset: int, after: int | None = None) -> None:
    with pytest.raises(BadRecord) as caught:
        log.apply(key, value, offset, after)
    assert not isinstance(caught.value, Outdated)


def test_what_is_written_after_a_bad_record_is_accepted_by_who_knows_the_one_before_it_and_who_does_not() -> (
    None
):
    all_of_it, behind_a_compaction = TopicLog(), TopicLog()
    all_of_it.apply(KEY, rate(1), 3, -1)
    for log in (all_of_it, behind_a_compaction):
        read_bad(log, KEY, b"broken", 9)
        assert log.base_of(ALICE) == Base(9)
        assert log.doubtful == {ALICE}
        with pytest.raises(Outdated):  # its writer had not seen the bad one
            log.apply(KEY, rate(2), 10, 3)
        log.apply(KEY, rate(3), 11, 9)
        assert log.entries == {ALICE: Stored({"producer_byte_rate": 3})}
        assert not log.doubtful


def test_a_bad_record_that_came_too_late_has_no_place_in_the_order() -> None:
    """A later version may write what this one does not know; others, who do, pass it over."""
    log = TopicLog()
    log.apply(KEY, rate(1), 0, -1)
    log.apply(KEY, rate(2), 1, 0)
    read_bad(log, KEY, b'{"later_rate":5}', 2, 0)
    assert log.base_of(ALICE) == Base(1)
    log.apply(KEY, rate(3), 3, 1)


def test_a_record_under_another_spelling_of_the_key_does_not_stand_before_those_of_the_entity() -> None:
    """Compaction takes nothing away for it: so it raises no doubt either, behind which limits that are long
    removed would come back from a copy."""
    log = TopicLog()
    log.apply(KEY, rate(1), 0, -1)
    read_bad(log, b'{"user": "alice"}', rate(7), 1)
    assert log.base_of(ALICE) == Base(0)
    assert not log.doubtful


@pytest.mark.parametrize("after", [1_000_000, 5, -2, -99])
def test_an_offset_that_its_record_cannot_stand_after_is_as_if_it_were_not_there(after: int) -> None:
    log = TopicLog()
    log.apply(KEY, rate(1), 2, -1)
    log.apply(KEY, rate(2), 5, after, after_tombstone=True)
    assert log.entries == {ALICE: Stored({"producer_byte_rate": 2})}
    with pytest.raises(Outdated):
        log.apply(KEY, rate(3), 6, 2)
    log.apply(KEY, rate(4), 7, log.base_of(ALICE).offset)
    assert log.entries == {ALICE: Stored({"producer_byte_rate": 4})}


@given(st.lists(st.integers(1, 40), min_size=1, max_size=8), st.integers(0, 60), st.data())
def test_records_that_were_carried_over_hold_in_their_order_and_the_next_alteration_does(
    gaps: list[int], begin_new: int, data: st.DataObject
) -> None:
    """All that a topic held, or what compaction had left of it, with its headers, behind other offsets."""
    old: list[tuple[int, int]] = []
    offset = 0
    for gap in gaps:
        old.append((offset, old[-1][0] if old else -1))
        offset += gap
    carried = old[data.draw(st.integers(0, len(old) - 1)) :]
    records = [(begin_new + number, after) for number, (_, after) in enumerate(carried)]
    logs = []
    for begin in range(len(records)):
        log = TopicLog()
        for offset, after in records[begin:]:
            log.apply(KEY, rate(offset + 1), offset, after)
        logs.append(log)
    end = begin_new + len(records)
    for log in logs:
        assert log.base_of(ALICE) == Base(end - 1)
        for other in logs:
            other.apply(KEY, rate(end + 1), end, log.base_of(ALICE).offset)
        end += 1
    assert all(log.entries == {ALICE: Stored({"producer_byte_rate": end})} for log in logs)
