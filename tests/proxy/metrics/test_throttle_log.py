"""Logs: one shape for all, nothing secret, nothing that steers a terminal, no flood."""

from __future__ import annotations

import io
import json
import logging
from itertools import pairwise

import pytest

from sluice.proxy.config.log import LogOptions
from sluice.proxy.metrics.throttle_log import (
    LINE_INTERVAL_MS,
    MAX_ENTITIES,
    MAX_MINTERS,
    QUIET_MS,
    ThrottleLine,
    ThrottleLog,
    _Minters,
)
from sluice.proxy.runtime.log import LineBudget, configure_logging, get_logger
from sluice.quotas.entity import QuotaEntity, Tenant
from sluice.usage.records import EventKind, ThrottleEvent


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def logged(options: LogOptions, stream: io.StringIO) -> str:
    configure_logging(options, stream)
    get_logger().info("something_happened", delay_ms=12.5, user="alice")
    return stream.getvalue()


def test_json_has_one_object_a_line_with_time_and_level() -> None:
    line = json.loads(logged(LogOptions(format="json"), io.StringIO()))
    assert line.pop("time").endswith("Z")
    assert line == {"event": "something_happened", "level": "info", "delay_ms": 12.5, "user": "alice"}


def test_auto_is_json_unless_a_person_reads() -> None:
    assert logged(LogOptions(), io.StringIO()).startswith("{")
    assert "something_happened" in logged(LogOptions(), Terminal())
    assert not logged(LogOptions(), Terminal()).startswith("{")


def test_the_level_is_the_least_that_is_written() -> None:
    assert logged(LogOptions(level="warning"), io.StringIO()) == ""


def test_a_loggers_error_of_a_library_looks_like_ours() -> None:
    stream = io.StringIO()
    configure_logging(LogOptions(format="json"), stream)
    logging.getLogger("asyncio").error("Task exception was never retrieved")
    logging.getLogger("asyncio").info("Using selector")
    line = json.loads(stream.getvalue())
    assert (line["event"], line["level"], line["logger"]) == (
        "Task exception was never retrieved",
        "error",
        "asyncio",
    )


def test_an_exception_is_written_with_its_traceback() -> None:
    stream = io.StringIO()
    configure_logging(LogOptions(format="json"), stream)
    try:
        raise RuntimeError("boom")
    except RuntimeError:
        get_logger().exception("internal_error")
    assert "RuntimeError: boom" in json.loads(stream.getvalue())["exception"]


def test_a_value_under_a_telling_key_is_not_logged() -> None:
    stream = io.StringIO()
    configure_logging(LogOptions(format="json"), stream)
    get_logger().info("x", password="hunter2", sasl_token="abc", tokens=-5)
    line = json.loads(stream.getvalue())
    assert (line["password"], line["sasl_token"], line["tokens"]) == ("[not logged]", "[not logged]", -5)


def test_a_long_name_is_cut() -> None:
    stream = io.StringIO()
    configure_logging(LogOptions(format="json"), stream)
    get_logger().info("x", client_id="a" * 257, user="b" * 256)
    line = json.loads(stream.getvalue())
    assert line["client_id"] == "a" * 256 + "… (257 characters)"
    assert line["user"] == "b" * 256


@pytest.mark.parametrize("options", [LogOptions(format="json"), LogOptions(format="console")])
def test_a_name_with_control_characters_stays_on_its_line_and_steers_no_terminal(options: LogOptions) -> None:
    stream = io.StringIO()
    configure_logging(options, stream)
    get_logger().info("x", client_id="a\x1b[2Jb\nlevel=error")
    assert "\x1b" not in stream.getvalue()
    assert stream.getvalue().count("\n") == 1


def test_a_line_budget_counts_what_it_suppresses() -> None:
    budget = LineBudget(lines_per_s=3)
    assert [budget.take(now_ms) for now_ms in (0.0, 1.0, 2.0, 3.0, 999.0, 1000.0)] == [
        True, True, True, False, False, True,
    ]  # fmt: skip
    assert (budget.suppressed(), budget.suppressed()) == (2, 0)


def event(begun_ms: float, user: str = "alice", delay_ms: float = 100.0, rule: str = "user") -> ThrottleEvent:
    return ThrottleEvent(
        EventKind.HOLD, begun_ms, delay_ms, "produce", rule, user, "app", 0, 1000, limit=500.0
    )


class Log:
    """A throttle log, and its lines as (time, began or ended)."""

    def __init__(self, lines_per_s: int = 20) -> None:
        self.log = ThrottleLog(LineBudget(lines_per_s))
        self.lines: list[tuple[float, ThrottleLine]] = []

    def tick(self, now_ms: float, *events: ThrottleEvent) -> None:
        for one in events:
            self.log.note(one)
        self.lines.extend((now_ms, line) for line in self.log.due(now_ms))

    @property
    def told(self) -> list[tuple[float, str]]:
        return [(now_ms, line[0].removeprefix("throttling_")) for now_ms, line in self.lines]


def test_an_episode_of_throttling_has_two_lines() -> None:
    log = Log()
    for now_ms in range(50_000, 80_000, 100):
        log.tick(now_ms, *([event(now_ms)] if now_ms < 62_000 else []))
    # The last delay begins at 61.9 s and ends at 62.0 s.
    assert log.told == [(50_000, "began"), (62_000 + QUIET_MS, "ended")]
    whom = {"quota": "produce", "rule": "user", "user": "alice", "limit_bytes_per_s": 500.0}
    charged = {"api": "Produce", "charged_bytes": 1000, "delay_ms": 100.0}
    assert log.lines[0][1][1] == {**whom, "by_client_id": "app", **charged}
    assert log.lines[1][1][1] == {
        **whom,
        "lasted_s": 12.0, "delays": 120, "delayed_s": 12.0,
    }  # fmt: skip


def test_an_entity_has_at_most_one_line_in_ten_seconds() -> None:
    log = Log()
    for now_ms in range(0, 100_000, 100):
        # Throttled for a moment every 6 s: begins and ends again and again.
        log.tick(now_ms, *([event(now_ms)] if now_ms % 6_000 == 0 else []))
    times = [now_ms for now_ms, _ in log.told]
    assert all(later - earlier >= LINE_INTERVAL_MS for earlier, later in pairwise(times))
    assert [what for _, what in log.told][:2] == ["began", "ended"]


def test_a_long_delay_has_not_ended_before_it_is_over() -> None:
    log = Log()
    log.tick(0, event(0, delay_ms=9_000.0))
    log.tick(13_000)
    assert log.told == [(0, "began")]
    log.tick(14_000)
    assert log.told == [(0, "began"), (14_000, "ended")]


def test_connections_of_one_bucket_are_one_entity_and_buckets_are_apart() -> None:
    log = Log()
    log.tick(0, event(0), event(0), event(0, rule="user_client"), event(0, user="bob"))
    assert [{key: fields.get(key) for key in ("user", "client_id")} for _, (_, fields) in log.lines] == [
        {"user": "alice", "client_id": None},
        {"user": "alice", "client_id": "app"},
        {"user": "bob", "client_id": None},
    ]


@pytest.mark.parametrize(
    ("bucket", "by"),
    [
        (QuotaEntity(Tenant("team-a")), {"by_user": "alice", "by_client_id": "app"}),
        (QuotaEntity(None, "app"), {"by_user": "alice"}),
        (QuotaEntity("alice", "app"), {}),
        (QuotaEntity("alice"), {"by_client_id": "app"}),
    ],
)
def test_the_begin_names_who_it_began_with_as_far_as_the_bucket_does_not(
    bucket: QuotaEntity, by: dict[str, str]
) -> None:
    log = Log()
    log.tick(0, event(0)._replace(bucket=bucket))
    log.tick(100 + QUIET_MS + LINE_INTERVAL_MS)
    (_, (_, began)), (_, (_, ended)) = log.lines
    assert {key: name for key, name in began.items() if key.startswith("by_")} == by
    assert not [key for key in ended if key.startswith("by_")]


def test_a_long_client_id_is_cut() -> None:
    log = Log()
    log.tick(0, event(0)._replace(client_id="x" * 32_000))
    assert log.lines[0][1][1]["by_client_id"] == "x" * 256


def test_what_a_limit_in_shadow_mode_would_have_done_is_told_apart() -> None:
    log = Log()
    shadow = event(0)._replace(kind=EventKind.SHADOW)
    log.tick(0, event(0), shadow)
    log.tick(100 + QUIET_MS + LINE_INTERVAL_MS)
    assert [line[0] for _, line in log.lines] == [
        "throttling_began",
        "would_be_throttled",
        "throttling_ended",
        "would_be_throttled_ended",
    ]
    fields = {"quota": "produce", "rule": "user", "user": "alice", "limit_bytes_per_s": 500.0}
    charged = {"by_client_id": "app", "api": "Produce", "charged_bytes": 1000, "delay_ms": 100.0}
    assert log.lines[1][1][1] == {**fields, **charged}
    assert log.lines[3][1][1] == {**fields, "lasted_s": 0.1, "delays": 1, "delayed_s": 0.1}


@pytest.mark.parametrize(
    ("quota", "explained"),
    [
        ("fetch", {"limit_bytes_per_s": 50.0, "charged_bytes": 7.5}),
        ("request", {"limit_percent": 50.0, "charged_ms": 7.5}),
        ("controller_mutation", {"limit_partitions_per_s": 50.0, "charged_partitions": 7.5}),
        ("producer_ids", {"limit_per_hour": 50.0, "charged_ids": 7.5}),
        ("connection_creation", {"limit_per_s": 50.0, "charged_connections": 7.5}),
    ],
)
def test_a_line_explains_itself_in_the_unit_of_its_quota(quota: str, explained: dict[str, float]) -> None:
    log = Log()
    log.tick(0, event(0)._replace(quota=quota, limit=50.0, charged=7.5, charged_bytes=0))
    ((_, (_, fields)),) = log.lines
    assert explained.items() <= fields.items()
    assert {"quota", "rule", "user", "api", "delay_ms"} <= set(fields)


def test_entities_share_the_lines_and_who_is_still_throttled_gets_its_line_later() -> None:
    log = Log(lines_per_s=2)
    log.tick(0, *(event(0, user=f"user-{index}", delay_ms=500.0 * index) for index in range(5)))
    for now_ms in (100, 900, 1_000):
        log.tick(now_ms)
    assert [(now_ms, fields["user"]) for now_ms, (_, fields) in log.lines] == [
        (0, "user-0"), (0, "user-1"), (1_000, "user-2"), (1_000, "user-3"),
    ]  # fmt: skip


def test_an_episode_that_was_over_before_its_line_is_told_as_a_number() -> None:
    log = Log(lines_per_s=1)
    log.tick(0, event(0, user="a"), event(0, user="b"), event(0, user="c"))
    log.tick(6_000)
    log.tick(7_000, event(7_000, user="d"))
    assert [(fields["user"], fields.get("lines_suppressed")) for _, (_, fields) in log.lines] == [
        ("a", None),
        ("d", 2),
    ]


def test_what_clients_can_mint_is_bounded() -> None:
    log = Log(lines_per_s=1)
    log.tick(0, *(event(0, user=f"user-{index}") for index in range(MAX_ENTITIES + 50)))
    assert len(log.log._episodes) == MAX_ENTITIES
    log.tick(30_000)
    log.tick(60_000)
    log.tick(90_000)
    assert not log.log._episodes


def test_a_log_that_cannot_be_written_costs_its_line_and_nothing_else() -> None:
    stream = io.StringIO()
    configure_logging(LogOptions(format="json"), stream)
    stream.close()
    get_logger().warning("nobody_reads_this")


def of_ids(
    begun_ms: float, client_id: str, address: str, *, reason: str = "", user: str = "alice"
) -> ThrottleEvent:
    kind, delay_ms = (EventKind.REFUSAL, 0.0) if reason else (EventKind.HOLD, 1_000.0)
    place = ("producer_ids", "default_user", user, client_id, 0, 1000)
    return ThrottleEvent(kind, begun_ms, delay_ms, *place, address=address, reason=reason)


def test_the_lines_of_producer_ids_name_who_brings_most_of_them_and_go_on_while_it_lasts() -> None:
    log = Log()
    for second in range(100):
        now_ms = second * 1000.0
        log.tick(now_ms, of_ids(now_ms, "neighbour", "10.0.0.1"))
        rogue = [of_ids(now_ms, "rogue", "10.0.0.9", reason="producer_ids_rate") for _ in range(3)]
        log.tick(now_ms, *rogue)
    for second in range(100, 110):
        log.tick(second * 1000.0)
    assert log.told == [(0, "began"), (60_000, "goes_on"), (105_000, "ended")]
    whom = {"quota": "producer_ids", "rule": "default_user"}
    rogue_is = {"client_id": "rogue", "address": "10.0.0.9"}
    fields = [line[1][1] for line in log.lines]
    assert all(whom.items() <= one.items() for one in fields)
    assert fields[0]["client_id"] == "neighbour"  # whose id waited first
    assert rogue_is.items() <= fields[1].items()
    assert rogue_is.items() <= fields[2].items()
    assert (fields[2]["delays"], fields[2]["refused"], fields[2]["lasted_s"]) == (100, 300, 100.0)


def test_a_line_of_a_refusal_tells_its_reason_in_place_of_a_delay() -> None:
    log = Log()
    log.tick(0, of_ids(0, "rogue", "10.0.0.9", reason="sequence_gate")._replace(limit=60.0))
    ((_, (_, fields)),) = log.lines
    assert {"reason": "sequence_gate", "limit_per_hour": 60.0, "api": "Produce"}.items() <= fields.items()
    assert "delay_ms" not in fields


def test_who_brings_most_ids_is_found_among_any_number_of_names_in_fixed_space() -> None:
    minters = _Minters()
    for number in range(10_000):
        minters.add(f"once-{number}", "10.0.0.1")
        if number % 8 == 0:
            minters.add("rogue", "10.0.0.9")
        assert len(minters._counts) <= MAX_MINTERS
    assert minters.top() == ("rogue", "10.0.0.9")


def test_where_everybody_has_a_name_of_his_own_the_address_is_told_all_the_same() -> None:
    minters = _Minters()
    for number in range(MAX_MINTERS + 1):
        minters.add(f"{number:05}" * 8_000, "10.0.0.9")
    client_id, address = minters.top()
    assert address == "10.0.0.9"
    assert client_id.startswith(f"{MAX_MINTERS:05}")
    assert len(client_id) <= 256
