"""Each delay is written down as it begins: what it is, for whom, by which limit, how long, for how much."""

from __future__ import annotations

from sluice.protocol.apis import FETCH, PRODUCE
from sluice.proxy.session.connection_states import State
from sluice.quotas.entity import QuotaEntity
from sluice.quotas.kinds import QuotaKind
from sluice.usage.records import EventKind, ThrottleEvent
from testkit.frames.frames import fetch, fetch_answer_of, produce_of
from testkit.proxy.playbook import START_MS, Shell, fetch_debt, limits_of, session_of, shared_of, shell_of


def told(event: ThrottleEvent) -> tuple[object, ...]:
    return (
        event.kind, event.begun_ms - START_MS, event.delay_ms, event.quota, event.rule, event.api_key,
        event.charged_bytes, event.continues,
    )  # fmt: skip


def events_of(shell: Shell) -> list[tuple[object, ...]]:
    return [told(event) for event in shell.events]


def test_a_produce_that_waits_and_is_muted() -> None:
    shell = Shell(session_of(produce_rate=1_000))
    shell.client_sends(produce_of(1_500))
    shell.advance(500)
    shell.sensor(QuotaKind.PRODUCE).charge(200, shell.now_ms)
    shell.client_sends(produce_of(300, correlation_id=2))
    shell.advance(200)
    assert events_of(shell) == [
        (EventKind.MUTE, 0.0, 500.0, "produce", "default_user", PRODUCE, 1_500, False),
        (EventKind.HOLD, 500.0, 200.0, "produce", "default_user", PRODUCE, 300, False),
        (EventKind.MUTE, 700.0, 300.0, "produce", "default_user", PRODUCE, 300, True),
    ]
    event = next(iter(shell.events))
    assert (event.user, event.client_id, event.limit, event.charged) == ("ANONYMOUS", "app", 1_000, 0.0)
    assert (event.bucket, event.reason, event.address) == (QuotaEntity("ANONYMOUS"), "", "")


def test_a_fetch_that_waits_and_is_muted_and_one_that_is_muted_alone() -> None:
    shell = shell_of(shared_of(limits_of(fetch_rate=1_000)))
    for _ in range(2):
        shell.client_sends(fetch())
        shell.broker_sends(fetch_answer_of(1_500))
        shell.advance(500)
    assert [event[0] for event in events_of(shell)] == [EventKind.MUTE, EventKind.MUTE]
    first, second = events_of(shell)
    assert first == (EventKind.MUTE, 0.0, 500.0, "fetch", "default_user", FETCH, 1_500, False)
    assert second == (EventKind.MUTE, 500.0, 1_500.0, "fetch", "default_user", FETCH, 1_500, False)


def test_a_fetch_that_was_held_and_told_so_goes_on_being_throttled_by_its_answer() -> None:
    shell = shell_of(fetch_debt(2_000))
    before = len(list(shell.events))
    shell.client_sends(fetch())
    shell.advance(2_000)
    assert shell.state is State.READING
    shell.broker_sends(fetch_answer_of(1_000))
    held, muted = events_of(shell)[before:]
    assert held[0] is EventKind.HOLD
    assert (held[2], held[6]) == (2_000.0, 0)
    assert muted[0] is EventKind.MUTE
    assert (muted[6], muted[7]) == (1_000, True)
    shell.advance(1_000)
    shell.client_sends(fetch(correlation_id=2))
    shell.broker_sends(fetch_answer_of(1_000, correlation_id=2))
    last = events_of(shell)[-1]
    assert (last[0], last[7]) == (EventKind.MUTE, False), "that one was not held"


def test_a_fetch_that_finds_no_turn_is_refused() -> None:
    shell = shell_of(fetch_debt())
    before = len(list(shell.events))
    shell.client_sends(fetch())
    shell.advance(3_000)
    assert [(event[0], event[2], event[5], event[6]) for event in events_of(shell)[before:]] == [
        (EventKind.HOLD, 3_000.0, FETCH, 0),
        (EventKind.REFUSAL, 0.0, FETCH, 0),
    ]


def test_a_fetch_that_waits_only_for_what_another_may_bring_is_not_throttled() -> None:
    shared = shared_of(limits_of(fetch_rate=1_000))
    first, second = shell_of(shared), shell_of(shared)
    first.client_sends(fetch())
    second.client_sends(fetch())
    assert second.state is State.HOLDING
    assert not [event for event in second.events if event.kind is EventKind.HOLD]
