"""The quota topic as one process follows and writes it; a list of records in memory is the topic."""

from __future__ import annotations

import asyncio
import json
import tomllib
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from aiokafka import TopicPartition
from aiokafka.errors import (
    ClusterAuthorizationFailedError,
    MessageSizeTooLargeError,
    TopicAuthorizationFailedError,
)
from structlog.testing import capture_logs

from sluice.proxy.config.quotas import QuotaTopicOptions
from sluice.proxy.quota_store import topic_lines
from sluice.proxy.quota_store.audit import QuotaAudit
from sluice.proxy.quota_store.client_quotas import Alteration, QuotaApiError
from sluice.proxy.quota_store.entities import key_of
from sluice.proxy.quota_store.topic import QuotaTopic
from sluice.proxy.quota_store.topic_headers import FOREIGN, Headers, headers_of
from sluice.proxy.quota_store.topic_reader import TopicReader
from sluice.proxy.quota_store.topic_records import Stored
from sluice.quotas.entity import QuotaEntity
from testkit.peers.loop_clock import LoopClock

pytestmark = pytest.mark.asyncio
ALICE = QuotaEntity("alice")
ROOT = Path(__file__).parents[3]
PARTITION = TopicPartition("__sluice_quotas", 0)


class Records:
    """Consumer and producer of a topic that holds `records`; each one that is written is read at once."""

    def __init__(self, audit: QuotaAudit) -> None:
        self.records: list[Any] = []
        options = QuotaTopicOptions(bootstrap=("127.0.0.1:1",))
        self.proxy = cast(Any, QuotaTopic(options, audit, lambda: None, lambda _: None, {}))
        self.proxy._producer = self
        self.proxy._following.set()
        self.reader = TopicReader(self, PARTITION)
        self.is_silent = False
        """what is sent is not answered"""
        self._read = 0

    def add(self, value: bytes | None, headers: Sequence[tuple[str, bytes | None]]) -> None:
        place = {"topic": PARTITION.topic, "partition": 0, "offset": len(self.records), "timestamp": 1_000}
        self.records.append(SimpleNamespace(key=key_of(ALICE), value=value, headers=headers, **place))

    async def ready(self) -> None:
        """In the place of a TopicProducer."""

    async def send(self, _key: bytes, value: bytes | None, headers: Any) -> None:
        if self.is_silent:
            await asyncio.Event().wait()
        self.add(value, headers)
        await self.take_next()

    async def take_next(self) -> None:
        await self.proxy._take_next(self.reader)

    async def getmany(self, *_partitions: Any, **_limits: Any) -> dict[TopicPartition, list[Any]]:
        found = {PARTITION: self.records[self._read :]}
        self._read = len(self.records)
        return found

    async def beginning_offsets(self, _partitions: Any) -> dict[TopicPartition, int]:
        return {PARTITION: 0}

    async def end_offsets(self, _partitions: Any) -> dict[TopicPartition, int]:
        return {PARTITION: len(self.records)}

    async def position(self, _partition: TopicPartition) -> int:
        return self._read

    def seek(self, _partition: TopicPartition, offset: int) -> None:
        self._read = offset

    async def set_rate(self, rate: float | None) -> None:
        asked = Alteration((("user", "alice"),), (("producer_byte_rate", rate),))
        (result,) = await self.proxy.alter([asked], validate_only=False, by="tester")
        assert result.code == 0


@pytest.fixture
def audit() -> QuotaAudit:
    return QuotaAudit()


@pytest.fixture
def topic(audit: QuotaAudit) -> Records:
    return Records(audit)


async def test_a_record_says_on_top_of_which_record_it_is_and_whether_that_is_a_tombstone(
    topic: Records,
) -> None:
    for rate in (1.0, 2.0, None, 3.0):
        await topic.set_rate(rate)
    told = [(one.after, one.after_tombstone) for one in map(headers_of, topic.records)]
    assert told == [(-1, False), (0, False), (1, False), (2, True)]
    assert topic.proxy.entries == {ALICE: Stored({"producer_byte_rate": 3})}


async def test_a_record_that_another_proxy_wrote_too_late_is_told_in_the_log(topic: Records) -> None:
    await topic.set_rate(1.0)
    topic.add(b'{"producer_byte_rate":2}', Headers("bob", "0123", -1).written())
    with capture_logs() as lines:
        await topic.take_next()
    (line,) = [line for line in lines if line["event"] == "quota_record_outdated"]
    assert (line["offset"], line["about"], line["by"]) == (1, "user 'alice'", "bob")
    assert topic.proxy.entries == {ALICE: Stored({"producer_byte_rate": 1})}


async def test_many_records_that_come_too_late_are_a_few_lines(
    topic: Records, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic_lines, "monotonic", lambda: 7.0)
    await topic.set_rate(1.0)
    for _ in range(50):
        topic.add(b'{"producer_byte_rate":2}', Headers("bob", "0123", -1).written())
    with capture_logs() as lines:
        await topic.take_next()
    assert len([line for line in lines if line["event"] == "quota_record_outdated"]) == 5


async def test_who_wrote_the_records_without_headers_is_told_as_unknown_wherever_they_are_found(
    topic: Records, audit: QuotaAudit
) -> None:
    topic.add(b'{"producer_byte_rate":2}', [])
    topic.proxy.is_known = True
    await topic.proxy._read(topic.reader)
    topic.add(b'{"producer_byte_rate":3}', [])
    await topic.take_next()
    assert [change.by for change in audit.changes] == [FOREIGN, FOREIGN]


@pytest.mark.parametrize("name", ["traceparent", "by", "after"])
async def test_a_null_header_of_a_record_of_another_tool_stops_no_reader(topic: Records, name: str) -> None:
    """Each reading from the beginning met it again: limits stood still until compaction took the record."""
    topic.add(b'{"producer_byte_rate":5}', [(name, None)])
    topic.proxy.is_known = True
    await topic.proxy._read(topic.reader)
    topic.add(b'{"producer_byte_rate":6}', [(name, None)])
    await topic.take_next()
    assert topic.proxy.entries[ALICE].limits == {"producer_byte_rate": 6}


@pytest.mark.parametrize("after", ["٣", "7", "-5", "1_0", "²"])
async def test_an_offset_that_is_none_or_not_before_its_record_is_as_if_it_were_not_there(
    topic: Records, after: str
) -> None:
    await topic.set_rate(1.0)
    topic.add(b'{"producer_byte_rate":5}', [("after", after.encode())])
    await topic.take_next()
    assert topic.proxy.entries == {ALICE: Stored({"producer_byte_rate": 5})}
    await topic.set_rate(6.0)
    assert topic.proxy.entries == {ALICE: Stored({"producer_byte_rate": 6})}


@pytest.mark.parametrize("rate", [1.0, None])
async def test_of_whom_the_last_record_is_bad_each_alteration_is_written_though_it_changes_nothing_here(
    topic: Records, rate: float | None
) -> None:
    """Who reads the bad record alone knows other limits than this proxy; they have to be told these."""
    if rate is not None:
        await topic.set_rate(rate)
    topic.add(b"broken", [])
    await topic.take_next()
    before = len(topic.records)
    await topic.set_rate(rate)
    assert [headers_of(record).after for record in topic.records[before:]] == [before - 1]


class Unwalked(dict[Any, Any]):
    """Many entries, of which some are asked for; nobody goes through them."""

    def __iter__(self) -> Any:
        raise AssertionError("all entries are walked")

    items = values = __iter__


@pytest.mark.parametrize("rate", [7.0, None])
async def test_an_alteration_looks_at_no_other_entity(topic: Records, rate: float | None) -> None:
    """All clients stood still for 16 ms at each, with 10,000 others."""
    await topic.set_rate(5.0)
    log = topic.proxy._log
    log.entries, log._accepted = Unwalked(log.entries), Unwalked(log._accepted)
    await topic.set_rate(rate)
    assert log.entries.get(ALICE) == (None if rate is None else Stored({"producer_byte_rate": 7}))


async def test_of_many_alterations_each_stands_on_the_record_before(topic: Records) -> None:
    """They are looked at in a thread, as all was when that began."""
    await topic.set_rate(5.0)
    good = Alteration((("user", "alice"),), (("consumer_byte_rate", 6.0),))
    bad = Alteration((("user", ""),), (("consumer_byte_rate", 6.0),))
    results = await topic.proxy.alter([good, *[bad] * 150], validate_only=False, by="tester")
    assert [result.code for result in results] == [0, 42]
    (_, record) = topic.records
    assert headers_of(record).after == 0
    assert json.loads(record.value) == {"producer_byte_rate": 5, "consumer_byte_rate": 6}


async def test_who_alters_while_others_wait_for_the_topic_waits_no_longer_than_they(topic: Records) -> None:
    options = QuotaTopicOptions(bootstrap=("127.0.0.1:1",), request_timeout_s=1.0)
    topic.proxy._options = options
    topic.is_silent = True
    asked = Alteration((("user", "alice"),), (("producer_byte_rate", 5.0),))

    async def code() -> int:
        try:
            (result,) = await topic.proxy.alter([asked], validate_only=False, by="tester")
        except QuotaApiError as error:
            return error.code
        return int(result.code)

    with LoopClock() as clock:
        assert await asyncio.gather(*(code() for _ in range(4))) == [7] * 4
        assert clock.now_s < 3.0  # one after another it took four


async def test_what_cannot_be_written_at_all_is_told_to_be_as_it_was(topic: Records) -> None:
    """A login that may only read follows all the same."""

    async def refused() -> None:
        raise ClusterAuthorizationFailedError

    topic.proxy._producer = SimpleNamespace(ready=refused)
    asked = Alteration((("user", "alice"),), (("producer_byte_rate", 5.0),))
    (result,) = await topic.proxy.alter([asked], validate_only=False, by="tester")
    assert result.code == 7
    assert "Nothing has been changed" in result.message
    assert "ClusterAuthorizationFailed" in result.message


class Refusing:
    """A producer whose records are refused by a broker, but those of `taken` and, unanswered, `lost`."""

    def __init__(self, topic: Records, error: Exception, taken: str = "", lost: str = "") -> None:
        self._topic, self._error = topic, error
        self._taken, self._lost = f'"{taken}"'.encode(), f'"{lost}"'.encode()

    async def ready(self) -> None:
        """It has connected before the ACL was taken away."""

    async def send(self, key: bytes, value: bytes | None, headers: Any) -> None:
        if self._lost in key:
            await asyncio.Event().wait()
        if self._taken in key:
            await self._topic.send(key, value, headers)
        else:
            await asyncio.sleep(0)
            raise self._error


async def told_by(topic: Records, *users: str) -> list[str | None]:
    asked = [Alteration((("user", user),), (("producer_byte_rate", 5.0),)) for user in users]
    results = await topic.proxy.alter(asked, validate_only=False, by="tester")
    assert all((result.code == 7) is (result.message is not None) for result in results)
    return [result.message for result in results]


@pytest.mark.parametrize("error", [TopicAuthorizationFailedError("quotas"), MessageSizeTooLargeError()])
async def test_who_may_no_longer_write_is_told_that_nothing_has_been_changed_and_why(
    topic: Records, error: Exception
) -> None:
    topic.proxy._producer = Refusing(topic, error)
    for message in await told_by(topic, "alice", "bob"):
        assert message is not None
        assert message.startswith("Nothing has been changed: the quota topic cannot be written (")
        assert type(error).__name__ in message


async def test_of_what_is_altered_beside_one_that_is_refused_only_what_is_known_is_told(
    topic: Records,
) -> None:
    topic.proxy._producer = Refusing(topic, TopicAuthorizationFailedError("quotas"), "alice", "carol")
    alice, bob, carol = await told_by(topic, "alice", "bob", "carol")
    assert (alice, topic.proxy.entries[ALICE].limits) == (None, {"producer_byte_rate": 5})
    assert "Nothing has been changed" in str(bob)
    assert "It is not known whether this is kept" in str(carol)


async def test_a_refusal_of_a_second_sending_leaves_what_the_first_has_brought(topic: Records) -> None:
    class LateRefusal(Refusing):
        async def send(self, key: bytes, value: bytes | None, headers: Any) -> None:
            await self._topic.send(key, value, headers)
            raise TopicAuthorizationFailedError("quotas")

    topic.proxy._producer = LateRefusal(topic, TopicAuthorizationFailedError("quotas"))
    assert await told_by(topic, "alice") == [None]


@pytest.mark.parametrize("pins", ["run", "image"])
async def test_what_reads_compressed_records_is_installed_with_the_proxy(pins: str) -> None:
    """Tests have it in any case: aiokafka without it read no topic in which another tool wrote by zstd."""
    told = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert any(each.startswith("cramjam") for each in told["project"]["dependencies"])
    assert "\ncramjam==" in (ROOT / f"requirements/{pins}.txt").read_text()


@pytest.mark.parametrize("timestamp_ms", [-(10**17), 10**17, -(2**63), -2])
async def test_a_record_of_an_odd_time_is_in_force_and_told(topic: Records, timestamp_ms: int) -> None:
    topic.add(b'{"producer_byte_rate":5}', [])
    topic.records[0].timestamp = timestamp_ms
    with capture_logs() as lines:
        await topic.take_next()
    assert topic.proxy.entries == {ALICE: Stored({"producer_byte_rate": 5})}
    (line,) = [line for line in lines if line["event"] == "quota_changed"]
    assert line["at"]


class Late(Records):
    """What is sent while `is_late` is appended, and neither acknowledged nor read before `take_next`."""

    is_late = False

    async def send(self, key: bytes, value: bytes | None, headers: Any) -> None:
        if self.is_late:
            self.add(value, headers)
            await asyncio.Event().wait()
        await super().send(key, value, headers)


@pytest.mark.parametrize("before", [1000.0, None])
@pytest.mark.parametrize("is_another", [False, True], ids=["same proxy", "another"])
async def test_what_is_taken_back_holds_though_the_record_before_it_comes_late(
    is_another: bool, before: float | None
) -> None:
    """It said what was in force, so nothing was written, and the one whose answer was *not known* won."""
    one, two = Late(QuotaAudit()), Late(QuotaAudit())
    two.records = one.records
    for each in (one, two):
        each.proxy._options = QuotaTopicOptions(bootstrap=("127.0.0.1:1",), request_timeout_s=1.0)

    async def set_rate(at: Late, rate: float | None) -> int:
        asked = Alteration((("user", "alice"),), (("producer_byte_rate", rate),))
        (result,) = await at.proxy.alter([asked], validate_only=False, by="admin")
        return int(result.code)

    assert await set_rate(one, before) == 0
    await two.take_next()
    one.is_late = True
    assert await set_rate(one, 9e6) == 7
    one.is_late = False
    assert await set_rate(two if is_another else one, before) == 0
    for each in (one, two):
        await each.take_next()
        limits = each.proxy.entries.get(ALICE, Stored({})).limits
        assert limits.get("producer_byte_rate") == before
