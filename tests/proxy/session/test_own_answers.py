"""Answers of the proxy's own stand between the broker's, never within one, and are not owed by the broker."""

from __future__ import annotations

from typing import Any

import pytest

from sluice.proxy.session.connection_states import State
from sluice.proxy.session.local_responses import DUE_BYTES, LocalAnswers
from sluice.proxy.session.own_topic.own_topic import OwnTopic
from sluice.proxy.session.policy import SessionPolicy, SharedState
from sluice.proxy.session.read_gate import Pace
from sluice.proxy.session.session import Session
from sluice.quotas.manager import QuotaManager
from sluice.usage.flow import TopicNames
from sluice.usage.records import Recorder
from testkit.frames.frames import (
    HEARTBEAT,
    METADATA,
    answer,
    fetch,
    fetch_answer_of,
    produce,
    record_batch,
    request,
)
from testkit.proxy.playbook import Shell, limits_of

OWN = "__sluice_quotas"


def shell_with_own_topic(*, names: TopicNames | None = None) -> Shell:
    """A Produce to OWN is answered by the proxy."""
    topic = OwnTopic(OWN, frozenset(), bytes(range(16)))
    shared = SharedState(QuotaManager(limits_of()), Recorder(), own_topic=topic, topic_names=names)
    return Shell(Session(shared, SessionPolicy(), "10.0.0.1"))


def to_own_topic(correlation_id: int) -> bytes:
    return produce({OWN: [(0, record_batch(b"x"))]}, correlation_id=correlation_id)


def correlation_ids(stream: bytes | bytearray) -> list[int]:
    """Of whole frames, one behind the other; anything else is an error."""
    found = []
    while stream:
        size = 4 + int.from_bytes(stream[:4], "big")
        assert len(stream) >= size, "a frame without its end"
        found.append(int.from_bytes(stream[4:8], "big"))
        stream = stream[size:]
    return found


LONG: Any = {"topics": [{"name": f"topic-{number}", "partitions": [{}] * 9} for number in range(900)]}
"""of which the beginning goes on before all has come"""


@pytest.mark.parametrize("in_flight", [1, 2])
@pytest.mark.parametrize(
    ("asked", "answered"),
    [
        (fetch(correlation_id=1), fetch_answer_of(5_000, correlation_id=1)),
        (request(METADATA, 12, correlation_id=1), answer(METADATA, 12, LONG, correlation_id=1)),
    ],
    ids=["Fetch", "Metadata"],
)
def test_one_that_is_due_while_a_brokers_answer_arrives_stands_behind_all_of_it(
    asked: bytes, answered: bytes, in_flight: int
) -> None:
    """Of the broker's answer a head has been sent on; the request that it answers is in flight no more."""
    shell = shell_with_own_topic()
    shell.client_sends(asked)
    if in_flight == 2:
        shell.client_sends(request(HEARTBEAT, 4, correlation_id=2))
    shell.broker_sends(answered[: len(answered) // 2])
    assert shell.to_client
    shell.client_sends(to_own_topic(3))
    shell.broker_sends(answered[len(answered) // 2 :])
    if in_flight == 2:
        shell.broker_sends(answer(HEARTBEAT, 4, correlation_id=2))
    assert shell.to_client.startswith(answered)
    assert correlation_ids(shell.to_client) == ([1, 3] if in_flight == 1 else [1, 2, 3])


def test_once_an_answer_has_wholly_come_one_of_its_own_goes_at_once() -> None:
    shell = shell_with_own_topic()
    shell.client_sends(fetch(correlation_id=1))
    answered = fetch_answer_of(5_000, correlation_id=1)
    shell.broker_sends(answered[:100])
    shell.broker_sends(answered[100:])
    shell.client_sends(to_own_topic(2))
    assert correlation_ids(shell.to_client) == [1, 2]


def test_a_connection_that_ends_leaves_only_the_brokers_answers_unanswered() -> None:
    """Two requests, of which one was the proxy's own to answer, behind the broker's: one is left."""
    shell = shell_with_own_topic(names=TopicNames())
    shell.client_sends(request(HEARTBEAT, 4, correlation_id=1))
    shell.client_sends(to_own_topic(2))
    assert not shell.to_client
    shell.session.closed(shell.now_ms)
    assert [left.api_key for left in shell.shared.recorder.unanswered] == [HEARTBEAT]


def test_who_has_much_refused_behind_a_long_poll_is_not_read_on_until_it_is_answered() -> None:
    """Refusals wait for the broker's answer, and are larger than what they refuse: 2,000 of them were
    kept, whatever their size."""
    shell = shell_with_own_topic()
    shell.client_sends(fetch(correlation_id=1))
    many = produce({OWN: [(number, None) for number in range(1_000)] + [(0, record_batch(b"x"))]})
    for _ in range(100):
        shell.client_sends(many)
        shell.advance(200)  # the brake behind each
    assert DUE_BYTES < shell.session.due_bytes < DUE_BYTES + 100_000
    states = [shell.state]
    shell.broker_sends(fetch_answer_of(100, correlation_id=1))
    assert shell.session.due_bytes == 0
    assert [*states, shell.state] == [State.AWAITING_BROKER, State.MUTED], "the next one has been refused"
    shell.advance(100 * 200)
    assert len(correlation_ids(shell.to_client)) == 1 + 100


def test_what_the_proxy_answers_itself_took_no_time_at_the_broker_and_waited_for_no_quota() -> None:
    shell = shell_with_own_topic()
    shell.client_sends(to_own_topic(3))
    (record,) = shell.records
    assert (record.request_bytes, record.response_bytes) == (len(to_own_topic(3)), len(shell.to_client))
    assert (record.upstream_ms, record.throttle_ms, record.held_ms) == (0.0, 0.0, 0.0)


def test_reading_stops_beyond_so_many_bytes_and_begins_again_at_half_of_them() -> None:
    """256 KiB that are due are not too many yet; half as many are few enough."""
    pace = Pace()
    local = LocalAnswers(pace)
    for answer_bytes, is_full, has_room in (
        (DUE_BYTES // 2, False, True), (1, False, False), (DUE_BYTES // 2 - 1, False, False),
        (1, True, False),
    ):  # fmt: skip
        local.wait(bytes(answer_bytes))
        assert (pace.is_full, local.has_room) == (is_full, has_room)
    left = []
    while local.due:
        local.take()
        left.append((local.due_bytes, local.has_room))
    assert left == [(DUE_BYTES // 2 + 1, False), (DUE_BYTES // 2, True), (1, True), (0, True)]
