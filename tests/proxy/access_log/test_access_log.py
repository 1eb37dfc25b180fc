"""The access log of a process: what sessions did, in the rows that its writer is handed."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from sluice.proxy.access_log import access_log
from sluice.proxy.access_log.access_log import (
    NOTHING_WRITTEN,
    AccessLog,
    LimitsNow,
    access_log_of,
    writer_settings,
)
from sluice.proxy.access_log.writer import AccessWriterCounters
from sluice.proxy.config.access_log import (
    AccessLogBucketOptions,
    AccessLogDirectoryOptions,
    AccessLogOptions,
    AccessLogTopicOptions,
    access_log_contradictions,
)
from sluice.proxy.metrics.usage_meter import UsageMeter
from sluice.proxy.session.causes import DisconnectCause
from sluice.proxy.session.policy import SessionPolicy, SharedState
from sluice.proxy.session.producer_ids.shared import ProducerIds
from sluice.proxy.session.session import Session
from sluice.quotas.entity import DEFAULT, QuotaEntity
from sluice.quotas.limits.limits import QuotaLimits
from sluice.quotas.manager import QuotaManager
from sluice.quotas.producer_ids.principal import ProducerIdSettings
from sluice.usage.access_record import (
    HEARTBEAT_CLASS,
    HEARTBEAT_END_CLASS,
    REQUESTS,
    ROLLUP,
    TABLES,
    WINDOW_MS,
    Columns,
)
from sluice.usage.records import Recorder
from sluice.usage.rollup import Window
from testkit.access_log.access_windows import Told
from testkit.frames.frames import (
    API_VERSIONS,
    METADATA,
    SASL_HANDSHAKE,
    answer,
    fetch,
    fetch_answer_of,
    produce,
    produce_answer,
    produce_of,
    record_batch,
    request,
)
from testkit.frames.mutation_frames import create, created
from testkit.proxy.playbook import START_MS, Shell

EVERYBODY = QuotaEntity(DEFAULT)
BEATS = (HEARTBEAT_CLASS, HEARTBEAT_END_CLASS)
Named = dict[str, Any]


class Kept:
    """A writer that keeps what it is offered."""

    def __init__(self) -> None:
        self.rows: list[tuple[str, Named]] = []
        self.told = Told()
        self.is_started = False
        self.is_closed = False
        self.ready = threading.Event()

    def start(self) -> None:
        self.is_started = True

    def offer(self, table: str, columns: Columns) -> bool:
        names = [column.name for column in TABLES[table]]
        self.rows += [(table, dict(zip(names, row, strict=True))) for row in zip(*columns, strict=True)]
        return True

    def offer_window(self, window: Window) -> bool:
        self.rows += [(ROLLUP, row) for row in self.told.rows(window)]
        return window.heartbeat is None or self.offer(ROLLUP, window.heartbeat)

    def close(self, deadline_s: float) -> None:
        self.is_closed = True

    @property
    def counters(self) -> AccessWriterCounters:
        return NOTHING_WRITTEN

    def of(self, table: str) -> list[Named]:
        """But for heartbeats."""
        return [row for of, row in self.rows if of == table and row.get("api_class") not in BEATS]

    @property
    def beats(self) -> list[tuple[int, str]]:
        return [
            (row["window_start_ms"], row["api_class"])
            for of, row in self.rows
            if of == ROLLUP and row["api_class"] in BEATS
        ]


class Process:
    """Sessions, the usage meter and the access log of one process, without sockets."""

    def __init__(self, limits: QuotaLimits | None = None, **options: Any) -> None:
        given: dict[str, Any] = {"instance": "p1", "sample_share": 0.0, **options}
        self.writer = Kept()
        self.recorder = Recorder()
        self.quotas = QuotaManager(limits or QuotaLimits())
        self.log = AccessLog(
            AccessLogOptions(**given), self.quotas, self.writer, START_MS, lambda: 1_795_000_000_000.0
        )
        self.shared = SharedState(
            self.quotas,
            self.recorder,
            producer_ids=ProducerIds(ProducerIdSettings(forced_after_ms=3_600_000.0)),
            topic_names=self.log.topic_names,
        )
        self.meter = UsageMeter(self.recorder, self.quotas)
        self.meter.access_log = self.log.take

    def connection(self) -> Shell:
        return Shell(Session(self.shared, SessionPolicy(), "10.0.0.7", broker="1"))

    def ends(self, now_ms: float) -> Kept:
        """As the server ends it."""
        self.meter.drain(now_ms)
        asyncio.run(self.log.close(now_ms))
        assert self.writer.is_closed
        return self.writer


def limited(**rates: float) -> QuotaLimits:
    return QuotaLimits([(EVERYBODY, rates)])


def test_what_clients_did_is_in_the_rows() -> None:
    process = Process()
    shell = process.connection()
    orders = produce({"orders": [(0, record_batch(bytes(500)))]})
    shell.client_sends(orders + fetch(correlation_id=2))
    shell.now_ms += 4
    shell.broker_sends(produce_answer())
    shell.broker_sends(fetch_answer_of(7_000, correlation_id=2))
    rows = process.ends(START_MS + 100).of(ROLLUP)
    found = {row["api_class"]: row for row in rows}
    who = ("proxy", "broker", "user", "client_id", "address")
    assert {tuple(row[name] for name in who) for row in rows} == {("p1", "1", "ANONYMOUS", "app", "")}
    what = ("topic", "requests", "request_bytes", "response_bytes", "upstream_ms", "connections")
    assert [found["produce"][name] for name in what] == [
        "orders",
        1,
        len(orders),
        len(produce_answer()),
        4.0,
        1,
    ]
    assert [found["fetch"][name] for name in what] == ["", 1, len(fetch()), 7_000, 4.0, 1]


def test_a_produce_without_acks_is_in_the_rows_with_its_topic() -> None:
    process = Process()
    process.connection().client_sends(produce({"orders": [(0, record_batch())]}, acks=0))
    [row] = process.ends(START_MS + 100).of(ROLLUP)
    assert (row["topic"], row["requests"], row["response_bytes"]) == ("orders", 1, 0)


def test_a_held_and_a_muted_produce_are_in_their_topics_row_with_their_limit() -> None:
    """1,000 B/s: the first of 1,200 B mutes for 200 ms, another connection's waits for its turn."""
    process = Process(limited(producer_byte_rate=1_000))
    one, other = process.connection(), process.connection()
    for shell in (one, other):
        shell.client_sends(produce_of(1_200))
        shell.advance(3_000)
        shell.broker_sends(produce_answer())
    writer = process.ends(START_MS + 3_001)
    [row] = writer.of(ROLLUP)
    counted = ("topic", "requests", "holds", "mutes", "producer_byte_rate", "connections")
    assert [row[name] for name in counted] == ["t", 2, 1, 2, 1_000.0, 2]
    assert row["held_ms"] == pytest.approx(200.0)
    reasons = [(row["why"], row["rule"], row["topic"]) for row in writer.of(REQUESTS)]
    assert ("throttled", "default_user", "t") in reasons


def test_a_fetchs_mute_is_in_the_row_of_its_fetch_whatever_was_sent_since() -> None:
    process = Process(limited(consumer_byte_rate=1_000))
    shell = process.connection()
    shell.client_sends(fetch() + request(METADATA, 12, correlation_id=2))
    shell.broker_sends(fetch_answer_of(3_000))
    found = {row["api_class"]: row for row in process.ends(START_MS + 10).of(ROLLUP)}
    assert found.keys() == {"fetch"}
    assert (found["fetch"]["mutes"], found["fetch"]["consumer_byte_rate"]) == (1, 1_000.0)


def test_new_producer_ids_are_counted_and_their_requests_have_rows() -> None:
    """One id an hour: the first is admitted, the second held for its budget of 10 s and refused."""
    process = Process(limited(producer_ids_rate=1))
    shell = process.connection()
    for producer_id in (1, 2):
        batch = record_batch(b"records", producer_id=producer_id, epoch=0, sequence=0)
        shell.client_sends(sent := produce({"orders": [(0, batch)]}, correlation_id=producer_id))
        shell.broker_sends(produce_answer()) if producer_id == 1 else shell.advance(10_001)
    writer = process.ends(START_MS + 10_001)
    rows = writer.of(ROLLUP)
    names = ("producer_ids_new", "producer_ids_refused", "refusals", "holds", "requests", "request_bytes")
    assert [sum(row[name] for row in rows) for name in names] == [1, 1, 1, 1, 2, len(sent)]
    assert {row["topic"] for row in rows} == {"orders"}
    told = [(row["why"], row["request_bytes"]) for row in writer.of(REQUESTS)]
    assert told == [("producer_id", len(sent)), ("refused", len(sent))], "what came of both"


def test_created_partitions_are_counted_without_those_that_the_broker_refused() -> None:
    process = Process(limited(controller_mutation_rate=100))
    shell = process.connection()
    shell.client_sends(create({"large": 12, "taken": 3}))
    shell.broker_sends(created({"large": (0, 12), "taken": (36, -1)}))
    [row] = process.ends(START_MS + 10).of(ROLLUP)
    assert (row["api_class"], row["mutations"], row["requests"]) == ("admin", 12.0, 1)


def test_what_a_client_asks_after_its_login_is_the_users_whatever_it_asked_before() -> None:
    """ApiVersions before it, Metadata and ApiVersions behind it: all of one class, on one connection."""
    process = Process()
    policy = SessionPolicy(authentication_required=True)
    shell = Shell(Session(process.shared, policy, "10.0.0.7", broker="1"))

    def asks(api_key: int, version: int, body: dict[str, Any] | None = None, **answered: Any) -> None:
        shell.client_sends(request(api_key, version, body))
        shell.broker_sends(answer(api_key, version, answered))

    asks(API_VERSIONS, 3)
    process.meter.drain(START_MS + 1)
    asks(SASL_HANDSHAKE, 1, {"mechanism": "PLAIN"}, mechanisms=["PLAIN"])
    asks(36, 2, {"authBytes": b"\0alice\0secret".hex()})
    asks(API_VERSIONS, 3)
    asks(METADATA, 12)
    rows = process.ends(START_MS + 100).of(ROLLUP)
    found = {(row["user"], row["api_class"]): (row["requests"], row["connections"]) for row in rows}
    assert found == {
        ("ANONYMOUS", "metadata"): (1, 1),
        ("alice", "login"): (2, 1),
        ("alice", "metadata"): (2, 1),
    }


def test_a_connection_that_ends_before_its_answer_leaves_a_failed_request() -> None:
    process = Process()
    shell = process.connection()
    shell.client_sends(produce_of(300))
    shell.now_ms += 50
    shell.session.broker_closed(DisconnectCause.BROKER_RESET)
    process.recorder.connections.append(shell.session.record("10.0.0.7:5", START_MS, shell.now_ms))
    shell.session.closed(shell.now_ms)
    writer = process.ends(shell.now_ms)
    [row] = writer.of(REQUESTS)
    assert (row["why"], row["request_bytes"], row["upstream_ms"], row["topic"]) == ("failed", 300, 50.0, "t")
    [of_connections] = writer.of(ROLLUP)
    assert (of_connections["address"], of_connections["failures"]) == ("10.0.0.7", 1)


def test_rows_are_handed_over_when_their_window_is_over_and_the_rest_at_the_end() -> None:
    process = Process(sample_share=1.0)
    shell = process.connection()

    def answered(now_ms: float) -> None:
        shell.now_ms = now_ms
        shell.client_sends(request(METADATA, 12))
        shell.broker_sends(answer(METADATA, 12))
        process.meter.drain(now_ms)

    async def live() -> list[int]:
        running = asyncio.create_task(process.log.run())  # noqa: TID251
        answered(START_MS + 1)
        answered(START_MS + 10_001)
        while len(process.writer.of(ROLLUP)) < 1 or len(process.writer.of(REQUESTS)) < 2:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        before = [row["requests"] for row in process.writer.of(ROLLUP)]
        running.cancel()
        await process.log.close(START_MS + 10_002)
        return before

    assert asyncio.run(asyncio.wait_for(live(), 20)) == [1]
    assert [row["requests"] for row in process.writer.of(ROLLUP)] == [1, 1]
    assert process.writer.is_started


def test_nothing_is_handed_over_while_there_is_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    process = Process()
    handed_over = asyncio.Event()
    monkeypatch.setattr(process.log, "hand_over", handed_over.set)

    async def beat(_every_s: float) -> None:
        await asyncio.sleep(0)

    async def idle_then_over() -> None:
        monkeypatch.setattr(access_log, "next_beat", beat)
        running = asyncio.create_task(process.log.run())  # noqa: TID251
        for second in range(1, 10):
            process.meter.drain(START_MS + second * 1000.0)
            await asyncio.sleep(0.001)
        assert not handed_over.is_set()
        process.meter.drain(START_MS + 10_001)
        await handed_over.wait()
        running.cancel()

    asyncio.run(asyncio.wait_for(idle_then_over(), 20))


def test_the_limits_in_force_follow_the_quotas_and_those_in_shadow_mode_are_none() -> None:
    alice = QuotaEntity("alice")
    rates = {"producer_byte_rate": 100, "request_percentage": 50, "producer_ids_rate": 7}
    quotas = QuotaManager(QuotaLimits([(alice, rates)], shadow={alice: ["request_percentage"]}))
    limits_now = LimitsNow(quotas)
    before = limits_now()
    assert before("alice", "app") == (100.0, None, None, None, 7.0)
    assert before("bob", "app") == (None,) * 5
    assert limits_now() is before, "so that nobody's limits are looked up again"
    quotas.reload(QuotaLimits([(alice, {"consumer_byte_rate": 9})]), 0.0)
    assert limits_now()("alice", "app") == (None, 9.0, None, None, None)
    assert before("alice", "app") == (100.0, None, None, None, 7.0), "those of a window that is over"


def test_there_is_no_log_unless_one_is_configured() -> None:
    assert access_log_of(None, QuotaManager(QuotaLimits()), 0.0) is None


def test_there_is_one_place_for_the_log() -> None:
    here = AccessLogDirectoryOptions(path=Path("/var/log/sluice"))
    there = AccessLogBucketOptions(bucket="logs")
    nowhere = [message for _, message in access_log_contradictions(AccessLogOptions())]
    both = [
        message for _, message in access_log_contradictions(AccessLogOptions(directory=here, bucket=there))
    ]
    assert nowhere == ["must say where it goes: one of directory, bucket, topic"]
    assert both == ["directory is given too; there is one place for the log"]
    assert list(access_log_contradictions(AccessLogOptions(bucket=there))) == []


def test_the_writer_is_told_what_the_configuration_says() -> None:
    topic = AccessLogTopicOptions(bootstrap=("kafka:9092",), retention_s=7_200)
    folder = AccessLogDirectoryOptions(path=Path("/logs"))
    there = AccessLogBucketOptions(bucket="b", prefix="x", region="r")
    settings = [
        writer_settings(options)
        for options in (
            AccessLogOptions(instance="p", rotate_s=5, directory=folder),
            AccessLogOptions(instance="p", rotate_s=5, bucket=there),
            AccessLogOptions(instance="p", rotate_s=5, topic=topic),
        )
    ]
    assert {(one.instance, one.rotate_s) for one in settings} == {("p", 5.0)}
    directory, bucket, of_topic = (one.sink for one in settings)
    assert getattr(directory, "path", None) == Path("/logs")
    assert [getattr(bucket, name, None) for name in ("bucket", "prefix", "region")] == ["b", "x", "r"]
    assert getattr(of_topic, "cluster", None) is topic
    assert getattr(of_topic, "retention_s", None) == 7_200


def test_each_window_has_a_heartbeat_an_empty_one_too_and_the_last_says_that_it_is() -> None:
    process = Process()
    first = 1_795_000_000_000 // WINDOW_MS * WINDOW_MS
    for number in range(3):
        process.meter.drain(START_MS + number * 10_000.0)
        process.log.hand_over()
    windows = [begin for begin, _ in process.writer.beats]
    assert windows == [windows[0], windows[0] + WINDOW_MS]
    assert windows[0] >= first
    ended = process.ends(START_MS + 21_000.0).beats
    assert [name for _, name in ended] == [HEARTBEAT_CLASS, HEARTBEAT_CLASS, HEARTBEAT_END_CLASS]
    assert all(not row["requests"] and row["proxy"] == "p1" for _, row in process.writer.rows)


def test_a_window_that_the_writer_does_not_take_has_no_heartbeat(monkeypatch: pytest.MonkeyPatch) -> None:
    process = Process()
    monkeypatch.setattr(process.writer, "offer_window", lambda window: False)
    shell = process.connection()
    shell.client_sends(produce_of(1_200))
    shell.broker_sends(produce_answer())
    process.meter.drain(START_MS + 10_000.0)
    process.log.hand_over()
    assert process.writer.beats == []
