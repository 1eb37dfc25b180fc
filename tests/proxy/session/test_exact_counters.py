"""What sessions count, against what they let through: equal to the byte, at any moment and at the end.

Rates are powers of two of bytes a millisecond, and times eighths of one, so that no float is rounded.
"""

from __future__ import annotations

import asyncio
import random
from fractions import Fraction
from math import ceil

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sluice.proxy.metrics.usage_meter import UsageMeter
from sluice.proxy.session.connection_states import State
from sluice.proxy.session.policy import SessionPolicy, SharedState
from sluice.proxy.session.session import Session
from sluice.quotas.sensors.sensor import Sensor
from testkit.frames.frames import (
    HEARTBEAT,
    answer,
    fetch,
    fetch_answer_of,
    produce_answer,
    produce_of,
    request,
)
from testkit.proxy.playbook import START_MS, Shell, limits_of, shared_of
from testkit.thorough import cases

MIB = 1024 * 1024
RATE = 1_024_000
"""1,024 B in a millisecond"""


def connect(shared: SharedState, now_ms: float = START_MS) -> Shell:
    return Shell(Session(shared, SessionPolicy(), "10.0.0.1"), now_ms=now_ms)


def the_sensor(shared: SharedState) -> Sensor:
    (sensor,) = shared.quotas.sensors()
    return sensor


class Passed:
    """All that went on: each with its time, and the most that it ever was ahead of burst and rate."""

    def __init__(self, rate_per_s: int) -> None:
        self._per_ms = Fraction(rate_per_s, 1_000)
        self.bytes = 0
        self.most_ahead = Fraction(0)

    def note(self, size: int, now_ms: float) -> None:
        if size:
            self.bytes += size
            paid = self._per_ms * (1_000 + Fraction(now_ms) - Fraction(START_MS))
            self.most_ahead = max(self.most_ahead, self.bytes - paid)


@pytest.mark.parametrize(
    ("is_group", "seconds"), [pytest.param(False, 62, marks=pytest.mark.long), (True, 21)]
)
def test_fifty_connections_that_pour_are_over_by_what_passed_less_burst_and_rate_by_time(
    is_group: bool, seconds: int
) -> None:
    """50 × 1 MiB at 1 MB/s, each held for 8 s at most, or for 2 that carried a group request."""
    shared = shared_of(limits_of(produce_rate=RATE))
    shells = [connect(shared) for _ in range(50)]
    passed = Passed(RATE)
    frame = produce_of(MIB)
    for shell in shells:
        if is_group:
            shell.client_sends(request(HEARTBEAT, 4))
            shell.broker_sends(answer(HEARTBEAT, 4))
            shell.to_broker.clear()
    due_ms = [START_MS + number / 8 for number in range(len(shells))]
    while (now_ms := min(due_ms)) < START_MS + seconds * 1_000:
        number = due_ms.index(now_ms)
        shell = shells[number]
        shell.now_ms = now_ms
        if shell.is_delayed:
            shell.wake()
        while True:
            passed.note(len(shell.to_broker), now_ms)
            if shell.to_broker:
                shell.to_broker.clear()
                shell.broker_sends(produce_answer())
            if shell.state is not State.READING:
                break
            shell.client_sends(frame)
        due_ms[number] = shell.session.pace.wake_at_ms
    sensor = the_sensor(shared)
    assert sensor.over == ceil(passed.most_ahead)
    assert sensor.over > 50 * MIB
    assert sensor.used == passed.bytes


Step = tuple[int, str, int, int]
"""eighths of a ms since the one before, what, which connection, bytes"""
STEPS = st.lists(
    st.tuples(
        st.integers(0, 40_000),
        st.sampled_from(["send", "send", "send", "send 0", "leave", "drain", "close", "wait", "fold"]),
        st.integers(0, 3),
        st.integers(100, 20_000).filter(lambda size: size != 164),  # no Produce frame is so long
    ),
    max_size=40,
)


@settings(deadline=None, max_examples=cases(300))
@given(steps=STEPS)
@example([(0, "send", 0, 20_000), (0, "send", 1, 5_000), (8, "leave", 1, 0), (8, "fold", 0, 0)])
@example([(0, "send", 0, 20_000), (0, "send", 1, 5_000), (8, "drain", 1, 0), (0, "fold", 0, 0)])
@example([(0, "send", 0, 20_000), (0, "send 0", 1, 5_000), (8, "drain", 1, 0), (0, "fold", 0, 0)])
def test_the_meter_counts_what_was_forwarded_whoever_leaves_waits_or_is_drained(steps: list[Step]) -> None:
    """1,000 B/s: most are held. A connection that ended is followed by another."""
    shared = shared_of(limits_of(produce_rate=1_000))
    meter = UsageMeter(shared.recorder, shared.quotas)
    shells = [connect(shared) for _ in range(4)]
    now_ms, ended = START_MS, 0
    for gap, what, which, size in steps:
        now_ms += gap / 8
        for shell in sorted(shells, key=lambda one: one.session.pace.wake_at_ms):
            shell.advance(now_ms - shell.now_ms)
        shell = shells[which]
        if what.startswith("send"):
            if not shell.client_left:
                shell.client_sends(produce_of(size, acks=0 if what == "send 0" else 1))
        elif what == "leave":
            shell.client_leaves()
        elif what == "drain":
            shell.drain()
        elif what == "close":
            shell.session.closed(now_ms)
        if what in {"drain", "close"} or shell.state is State.ENDING:
            if what != "close":
                shell.session.closed(now_ms)
            ended += len(shell.to_broker)
            shells[which] = connect(shared, now_ms)
        asyncio.run(meter.fold(now_ms))
        forwarded = ended + sum(len(shell.to_broker) for shell in shells)
        counted = [series for series in meter.entities if series.quota == "produce"]
        assert sum(series.amount for series in counted) == forwarded
        assert 0 <= sum(series.over_quota_bytes for series in counted) <= forwarded


def test_fetches_are_over_by_what_was_delivered_less_burst_and_rate_by_time() -> None:
    """A consumer of 1,024 B/ms, to whom a broker gives batches of 10 MiB, muted for 3 s and held for 3 s: it
    gets the next when the last is paid, after 9,240 ms, and of each what is not paid after 3 s is over."""
    shared = shared_of(limits_of(fetch_rate=RATE))
    shell = connect(shared)
    shell.client_sends(fetch())
    shell.broker_sends(fetch_answer_of(10 * MIB))
    sensor = the_sensor(shared)
    assert sensor.over == 10 * MIB - 4_000 * 1_024
    assert sensor.used == 10 * MIB
    shell.advance(9_500)
    shell.client_sends(fetch(correlation_id=2))
    shell.broker_sends(fetch_answer_of(10 * MIB, correlation_id=2))
    assert sensor.over == 2 * 10 * MIB - 4_000 * 1_024 - (9_500 - 9_240 + 3_000) * 1_024
    assert sensor.used == 20 * MIB


@pytest.mark.parametrize("seed", range(5))
def test_the_log_tells_a_request_that_was_held_and_then_muted_as_one_delay(seed: int) -> None:
    """Four producers on 1,000 B/s, whose requests go at once, are muted, or held and then muted; and two
    consumers likewise. The metric counts requests."""
    rng = random.Random(seed)
    shared = shared_of(limits_of(produce_rate=1_000, fetch_rate=1_000))
    meter = UsageMeter(shared.recorder, shared.quotas)
    shells = [connect(shared) for _ in range(6)]
    now_ms = START_MS
    for number in range(400):
        now_ms += rng.choice([0, 100, 500, 3_000]) if number < 380 else 3_000
        for shell in sorted(shells, key=lambda one: one.session.pace.wake_at_ms):
            shell.advance(now_ms - shell.now_ms)
        which = rng.randrange(len(shells))
        shell = shells[which]
        is_fetch = which >= 4
        if shell.state is State.READING and number < 380:
            size = rng.choice([200, 900, 4_000])
            shell.client_sends(fetch(correlation_id=number) if is_fetch else produce_of(size))
        for index, shell in enumerate(shells):
            while shell.session.in_flight:
                first = shell.session._in_flight[0][0]
                size = rng.choice([300, 2_000])
                answer_of = fetch_answer_of(size, correlation_id=first) if index >= 4 else produce_answer()
                shell.broker_sends(answer_of)
        meter.drain(now_ms)
    for shell in shells:
        assert not shell.session.in_flight
    for quota in ("produce", "fetch"):
        episodes = [episode for episode in meter.throttle_log.episodes() if episode.event.quota == quota]
        counted = sum(series.throttled_requests for series in meter.entities if series.quota == quota)
        assert counted > 20
        told = sum(episode.delays for episode in episodes)
        # A hold of less than a millisecond is an event, and no delay of its record; a Fetch that waits for
        # what another may bring is the latter alone.
        assert told == pytest.approx(counted, rel=0.05)
