"""What a session's throttling leaves in the roll-up: which limit brought a wait about."""

from __future__ import annotations

from typing import Any

import pytest

from sluice.proxy.session.policy import SharedState
from sluice.proxy.session.session import Session
from sluice.quotas.manager import QuotaManager
from sluice.usage.flow import TopicNames
from sluice.usage.records import Recorder
from sluice.usage.rollup import Rollup
from testkit.access_log.access_records import NO_LIMITS
from testkit.access_log.access_windows import Told
from testkit.frames.frames import PRODUCE, produce, produce_answer, record_batch, throttle_of
from testkit.proxy.playbook import Shell
from testkit.proxy.request_time_session import exchange, limits_of, policy_of

BEGIN_MS = 10_000.0


def logged(limits: dict[str, float]) -> Shell:
    shared = SharedState(QuotaManager(limits_of(limits)), Recorder(), topic_names=TopicNames())
    return Shell(Session(shared, policy_of(), "10.0.0.1", broker="1"), now_ms=BEGIN_MS)


def rows_of(shell: Shell) -> list[dict[str, Any]]:
    recorder = shell.shared.recorder
    rollup = Rollup("p1", lambda: NO_LIMITS, now_ms=BEGIN_MS, unix_ms=BEGIN_MS)
    rollup.add_requests(recorder.requests, slow_ms=1e9)
    rollup.add_events(recorder.throttles)
    rollup.close(0.0)
    told = Told()
    return [row for window in rollup.over for row in told.rows(window)]


def produced(shell: Shell, correlation_id: int, upstream_ms: float = 50.0) -> int:
    """A Produce and its answer; returns what this tells as throttle_time_ms."""
    frame = produce({"orders": [(0, record_batch(bytes(400)))]}, correlation_id=correlation_id)
    answered = produce_answer(correlation_id=correlation_id)
    told = throttle_of(PRODUCE, 9, exchange(shell, frame, answered, upstream_ms))
    shell.advance(told)
    return told


def test_a_produce_that_waits_for_request_time_waits_for_no_byte_rate() -> None:
    """10 ms each of 20 ms a second, a full bucket at first; then each waits until its own is paid."""
    shell = logged({"request_percentage": 2.0, "producer_byte_rate": 1e9})
    waits_ms = [produced(shell, number) for number in range(8)]
    muted = [wait_ms for wait_ms in waits_ms if wait_ms]
    (row,) = rows_of(shell)
    assert len(muted) >= 3
    assert (row["requests"], row["throttle_ms"]) == (8, 0.0), "the time is not that of its bytes"
    assert (row["mutes"], row["request_mutes"], row["holds"]) == (len(muted), len(muted), 0)
    assert row["request_throttle_ms"] == pytest.approx(sum(muted), abs=len(muted))


def test_a_produce_that_waits_for_its_bytes_waits_for_no_request_time() -> None:
    shell = logged({"request_percentage": 100.0, "producer_byte_rate": 1_000.0})
    waits_ms = [produced(shell, number, upstream_ms=0.0) for number in range(6)]
    (row,) = rows_of(shell)
    assert any(waits_ms)
    assert row["throttle_ms"] > 0.0
    assert row["mutes"] > 0
    assert (row["request_mutes"], row["request_throttle_ms"]) == (0, 0.0)
