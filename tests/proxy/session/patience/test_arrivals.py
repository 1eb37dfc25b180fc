"""Requests behind one another: their delays end with their client's patience, and not in one lump."""

from __future__ import annotations

from itertools import pairwise
from math import inf

import pytest

from sluice.protocol.codec.wire import Value
from sluice.proxy.session.arrivals import Arrivals
from sluice.proxy.session.delays import DelayLimits, WaitBudget
from sluice.proxy.session.policy import SessionPolicy, SharedState
from sluice.proxy.session.session import Session
from testkit.frames.frames import (
    API_VERSIONS,
    FETCH,
    answer,
    fetch,
    fetch_answer_of,
    produce_answer,
    produce_of,
    request,
)
from testkit.proxy.playbook import START_MS, Shell, in_debt, limits_of, shared_of, shell_of

SLOW = 1e9
"""ms a byte: the quota can pay nothing in time"""


def arrivals_of(pipelined_ms: float = 16_000.0, alone_ms: float = 8_000.0) -> Arrivals:
    arrivals = Arrivals(WaitBudget(8_000.0, alone_ms, pipelined_ms))
    arrivals.is_pipelined = True
    return arrivals


def named(name: str, shell: Shell) -> Shell:
    """A client that has told what it is, and has its answer."""
    shell.client_sends(request(API_VERSIONS, 3, {"clientSoftwareName": name, "clientSoftwareVersion": "1.0"}))
    shell.broker_sends(answer(API_VERSIONS, 3))
    shell.to_broker.clear()
    shell.to_client.clear()
    return shell


def went_ms(shell: Shell, frame_bytes: int, count: int) -> list[float]:
    """When each of `count` requests of this size goes, from now on."""
    begun_ms = shell.now_ms
    went: list[float] = []
    shell.to_broker.clear()
    while len(went) < count:
        for _ in range(len(shell.to_broker) // frame_bytes):
            went.append(shell.now_ms - begun_ms)
            shell.broker_sends(produce_answer())
        shell.to_broker.clear()
        if len(went) < count:
            assert shell.is_delayed
            shell.advance(max(shell.session.pace.wake_at_ms - shell.now_ms, 0.0))
    return went


# The arithmetic ---------------------------------------------------------------------------------------------


def test_each_of_those_that_came_together_has_its_part_of_the_time_by_bytes() -> None:
    """100 and 300 B may wait 16 s: the first goes after a fourth of it, the other at its end."""
    arrivals = arrivals_of()
    arrivals.came(0, 400, 0.0)
    assert arrivals.latest_ms(0, 100, 0.0, SLOW) == 4_000
    assert arrivals.latest_ms(100, 300, 4_000.0, SLOW) == 16_000


def test_what_came_later_has_time_of_its_own_and_takes_none_from_what_came_before() -> None:
    arrivals = arrivals_of()
    arrivals.came(0, 100, 0.0)
    arrivals.came(0, 200, 10_000.0)
    assert arrivals.latest_ms(0, 100, 10_000.0, SLOW) == 16_000
    assert arrivals.latest_ms(100, 100, 16_000.0, SLOW) == 26_000


def test_a_request_waits_longer_where_the_quota_can_still_pay_the_others_in_time() -> None:
    """300 B at 10 ms each: 3 s before the end."""
    arrivals = arrivals_of()
    arrivals.came(0, 400, 0.0)
    assert arrivals.latest_ms(0, 100, 0.0, 10.0) == 13_000


def test_a_request_that_was_not_read_ahead_and_one_whose_time_is_over() -> None:
    arrivals = arrivals_of()
    arrivals.came(0, 100, 0.0)
    assert arrivals.latest_ms(0, 100, 20_000.0, SLOW) == 20_000
    assert arrivals.latest_ms(100, 100, 20_000.0, SLOW) == inf
    assert not arrivals


def test_a_client_that_waits_for_one_answer_at_a_time_has_the_shorter_time() -> None:
    arrivals = arrivals_of()
    arrivals.is_pipelined = False
    arrivals.came(0, 100, 0.0)
    assert arrivals.latest_ms(0, 100, 5_000.0, SLOW) == 8_000


def test_what_comes_a_quarter_of_a_second_later_is_not_one_with_what_came_before() -> None:
    for ms, marks in ((249.9, 1), (250.0, 2)):
        arrivals = arrivals_of()
        arrivals.came(0, 100, 0.0)
        arrivals.came(0, 200, ms)
        assert len(arrivals) == marks


def test_bytes_that_come_one_by_one_are_kept_as_few_marks() -> None:
    """A mark for what comes within 250 ms of it: 40 in 10 s."""
    arrivals = arrivals_of()
    for ms in range(10_000):
        arrivals.came(0, ms + 1, float(ms))
    assert len(arrivals) == 40
    arrivals.came(10_000, 10_001, 10_000.0)
    assert len(arrivals) == 1


# Connections ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "budget_s", "last_s"),
    [("librdkafka", 8, 48), ("apache-kafka-java", 8, 24), ("kgo", 8, 16), ("platformatic-kafka", 4, 4)],
)
def test_pipelined_requests_all_go_before_their_client_gives_up(
    name: str, budget_s: float, last_s: float
) -> None:
    """14 requests of 16 kB, 1,000 s of debt, all sent at once: 0.8 of what the client waits, and evenly."""
    shell = named(name, in_debt(1_000_000))
    shell.client_sends(produce_of(16_000) * 14)
    went = went_ms(shell, 16_000, 14)
    assert went[0] <= budget_s * 1_000
    assert went[-1] == pytest.approx(last_s * 1_000)
    gaps = [after - before for before, after in pairwise([0.0, *went])]
    assert max(gaps) <= 1.2 * last_s * 1_000 / 14


def test_a_client_that_sends_while_it_is_muted_counts_from_then() -> None:
    """kafka-go (no name, 10 s, one request at a time): the mute, and the hold behind it, end after 8 s."""
    shell = Shell(Session(shared := shared_of(limits_of(produce_rate=1_000)), SessionPolicy(), "10.0.0.1"))
    shell.client_sends(produce_of(9_000))
    shell.broker_sends(produce_answer())
    shell.to_broker.clear()
    assert shell.session.pace.wake_at_ms - START_MS == 8_000
    neighbour = Shell(Session(shared, SessionPolicy(), "10.0.0.1"))
    neighbour.client_sends(produce_of(100_000))
    shell.advance(2_000)
    shell.client_sends(produce_of(1_000))
    assert went_ms(shell, 1_000, 1) == [8_000]


def test_twenty_clients_without_idempotence_pass_evenly_what_they_have_outstanding() -> None:
    """220 requests of 1 kB each at 10 kB/s shared. Each has its answer within 48 s, and no second has more
    than what is outstanding ÷ 48 s."""
    shared: SharedState = shared_of(limits_of(produce_rate=10_000))
    shells = [
        named("librdkafka", Shell(Session(shared, SessionPolicy(), "10.0.0.1"), now_ms=START_MS))
        for _ in range(20)
    ]
    for shell in shells:
        shell.client_sends(produce_of(1_000) * 220)
    seconds = [0] * 50
    ends = [0.0] * len(shells)
    while any(shell.is_delayed for shell in shells):
        now_ms = min(
            shell.now_ms if shell._is_woken else shell.session.pace.wake_at_ms
            for shell in shells
            if shell.is_delayed
        )
        for number, shell in enumerate(shells):
            if shell.is_delayed and (shell._is_woken or shell.session.pace.wake_at_ms <= now_ms):
                shell.now_ms = max(now_ms, shell.now_ms)
                shell._is_woken = False
                shell.wake()
            for _ in range(len(shell.to_broker) // 1_000):
                seconds[int((shell.now_ms - START_MS) // 1_000)] += 1_000
                ends[number] = shell.now_ms - START_MS
                shell.broker_sends(produce_answer())
            shell.to_broker.clear()
    assert sum(seconds) == 20 * 220 * 1_000
    assert max(ends) <= 48_100
    assert max(seconds[1:]) <= 1.05 * 20 * 220 * 1_000 / 48 + 20 * 1_000


def test_the_time_that_a_client_can_claim_ends_at_five_seconds() -> None:
    """Who calls himself the least patient gets what is outstanding ÷ 4 s, and no more."""
    shell = named("platformatic-kafka", in_debt(1_000_000))
    shell.client_sends(produce_of(1_000) * 200)
    went = went_ms(shell, 1_000, 200)
    assert went[-1] == pytest.approx(4_000)
    for second in range(4):
        assert sum(second * 1_000 <= ms < second * 1_000 + 1_000 for ms in went) <= 52
    assert min(DelayLimits(patience_s={"a": 0.1}).budget("a").answer_ms, 4_000.0) == 4_000


def test_requests_behind_a_fetch_that_was_replaced_by_a_shorter_one_do_not_go_ahead_of_the_quota() -> None:
    """The mark of 20 kB of Fetch counted for what was sent a minute later, and its time was over."""
    shared = shared_of(limits_of(produce_rate=1_000, fetch_rate=1_000))
    other, shell = shell_of(shared), shell_of(shared)
    other.client_sends(fetch())
    other.broker_sends(fetch_answer_of(200_000))
    partitions: list[Value] = [{"partition": number} for number in range(500)]
    large = request(FETCH, 12, {"maxBytes": 50_000_000, "topics": [{"topic": "t", "partitions": partitions}]})
    shell.client_sends(large)
    shell.advance(60_000)
    assert 0 < len(shell.to_broker) < 200
    assert shell.session._requests.position == len(large)
    shell.broker_sends(fetch_answer_of(100))
    shell.advance(60_000)
    other.advance(120_000)
    other.client_sends(produce_of(30_000, acks=0))
    shell.client_sends(produce_of(1_000) * 2)
    assert went_ms(shell, 1_000, 2)[0] == 8_000
