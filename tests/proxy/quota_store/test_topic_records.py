"""Records of the quota topic: what is read and written, what is refused, and what a log of them comes to."""

from __future__ import annotations

import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.proxy.quota_store.topic_records import (
    NOTHING,
    BadRecord,
    Outdated,
    Stored,
    TopicLog,
    copy_of,
    entries_of,
    key_of,
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
    with pytest.raises(BadRecord, match="must be written"):
        read_key(b'{"ip":"0:0::1"}')


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
    assert log.last_offset(ALICE) == 0
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
    assert late.last_offset(ALICE) == live.last_offset(ALICE) == len(records) - 1
