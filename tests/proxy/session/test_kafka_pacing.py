"""A session in `pacing.mode: kafka`: nothing is held, who was above the limit is muted. Wire semantics 2.

1,000 B/s, 11 windows of 1 s: 10,000 B pass at first, and each byte more is a millisecond.
"""

from __future__ import annotations

from sluice.proxy.session.connection_states import State
from sluice.proxy.session.policy import SessionPolicy, SharedState
from sluice.proxy.session.session import Session
from sluice.quotas.manager import QuotaManager
from sluice.usage.records import EventKind, Recorder
from testkit.frames.frames import (
    FETCH,
    answer,
    fetch,
    fetch_answer_of,
    max_bytes_of,
    produce_answer,
    produce_of,
)
from testkit.proxy.playbook import (
    Broker,
    Client,
    Muted,
    Playbook,
    Reading,
    Shell,
    ToBroker,
    ToClient,
    Wait,
    limits_of,
)


def neighbours(count: int, *, produce_rate: int | None = None, fetch_rate: int | None = None) -> list[Shell]:
    shared = SharedState(QuotaManager(limits_of(produce_rate, fetch_rate), pacing="kafka"), Recorder())
    return [Shell(Session(shared, SessionPolicy(), "10.0.0.1")) for _ in range(count)]


def test_a_produce_above_the_limit_goes_at_once_and_mutes_for_kafkas_delay() -> None:
    (shell,) = neighbours(1, produce_rate=1_000)
    (
        Playbook(shell)
        >> Client(produce_of(10_000))
        << ToBroker(produce_of(10_000))
        >> Client(produce_of(500))
        << ToBroker(produce_of(500))
        << Muted(for_ms=500)
        >> Broker(produce_answer() + produce_answer())
        << ToClient(produce_answer() + produce_answer(throttle_ms=500))
        >> Wait(500)
        << Reading()
    ).done()


def test_while_one_connection_is_muted_its_neighbours_requests_still_go() -> None:
    """The first owes 1,000 ms. The second sends 200 B: they go, and mute it for 1,200."""
    first, second = neighbours(2, produce_rate=1_000)
    first.client_sends(produce_of(11_000))
    (
        Playbook(second)
        >> Client(produce_of(200))
        << ToBroker(produce_of(200))
        << Muted(for_ms=1_200)
    ).done()  # fmt: skip
    assert first.state is State.MUTED
    assert [event.kind for event in first.events] == [EventKind.MUTE, EventKind.MUTE]


def test_kafkas_delay_is_bounded_by_the_answer_budget_as_any_other() -> None:
    """30,000 B: 20 s in Kafka, 8 s here."""
    (shell,) = neighbours(1, produce_rate=1_000)
    (
        Playbook(shell)
        >> Client(produce_of(30_000))
        << ToBroker(produce_of(30_000))
        << Muted(for_ms=8_000)
    ).done()  # fmt: skip


def test_a_fetch_may_ask_for_ten_windows_of_the_quota_however_many_fetch() -> None:
    """One after the other, for the first is promised all of it."""
    for shell in neighbours(3, fetch_rate=1_000):
        shell.client_sends(fetch(max_bytes=50_000_000))
        assert max_bytes_of(FETCH, 12, shell.to_broker) == 10_000
        shell.broker_sends(answer(FETCH, 12))


def test_a_fetch_answer_above_the_limit_is_delivered_and_mutes() -> None:
    """10,300 B: 300 ms."""
    (shell,) = neighbours(1, fetch_rate=1_000)
    (
        Playbook(shell)
        >> Client(fetch(max_bytes=10_000))
        << ToBroker(fetch(max_bytes=10_000))
        >> Broker(fetch_answer_of(10_300))
        << ToClient(fetch_answer_of(10_300, throttle_ms=300))
        << Muted(for_ms=300)
    ).done()
    assert shell.events[0].api_key == FETCH
