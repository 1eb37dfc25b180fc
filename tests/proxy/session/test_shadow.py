"""Limits in shadow mode: what they would do is written down, and not a byte or a moment is changed.

1,000 B/s; a smooth bucket holds 1,000 B, so a byte above that is a millisecond.
"""

from __future__ import annotations

import pytest

from sluice.proxy.session.connection_states import State
from sluice.proxy.session.policy import SessionPolicy, SharedState
from sluice.proxy.session.session import Session
from sluice.quotas.entity import DEFAULT, QuotaEntity
from sluice.quotas.kinds import BYTE_KINDS, KINDS
from sluice.quotas.limits.limits import QuotaLimits
from sluice.quotas.manager import Pacing, QuotaManager
from sluice.usage.records import EventKind, Recorder
from testkit.frames.frames import FETCH, PRODUCE, fetch, fetch_answer_of, produce_answer, produce_of
from testkit.proxy.playbook import (
    START_MS,
    Broker,
    Client,
    Held,
    Muted,
    Playbook,
    Reading,
    Reload,
    Shell,
    ToBroker,
    ToClient,
    Wait,
    in_debt,
)

EVERYBODY = QuotaEntity(DEFAULT)
FREE_BYTES: dict[Pacing, int] = {"smooth": 1_000, "kafka": 10_000}
"""what passes at once: one second of burst, ten idle windows"""


def limits_in_shadow(*keys: str) -> QuotaLimits:
    """1,000 B/s of both kinds for each user; these keys in shadow mode, by default both."""
    limits = {KINDS[kind].config_key: 1_000 for kind in BYTE_KINDS}
    return QuotaLimits([(EVERYBODY, limits)], shadow={EVERYBODY: keys or tuple(limits)})


def shadowed(*keys: str, pacing: Pacing = "smooth") -> Shell:
    shared = SharedState(QuotaManager(limits_in_shadow(*keys), pacing=pacing), Recorder())
    return Shell(Session(shared, SessionPolicy(), "10.0.0.1"))


def would_be_delays(shell: Shell) -> list[float]:
    assert {event.kind for event in shell.events} <= {EventKind.SHADOW}
    return [event.delay_ms for event in shell.events]


@pytest.mark.parametrize("pacing", FREE_BYTES)
def test_a_produce_above_the_limit_passes_untouched_and_its_would_be_delay_is_written_down(
    pacing: Pacing,
) -> None:
    size = FREE_BYTES[pacing] + 500
    shell = (
        Playbook(shadowed(pacing=pacing))
        >> Client(produce_of(size))
        << ToBroker(produce_of(size))
        >> Broker(produce_answer(throttle_ms=7))
        << ToClient(produce_answer(throttle_ms=7))
    ).done()
    (event,) = shell.events
    assert event[:9] == (EventKind.SHADOW, START_MS, 500.0, "produce", "default_user", "ANONYMOUS", "app",
                          PRODUCE, size)  # fmt: skip
    (record,) = shell.records
    assert (record.held_ms, record.throttle_ms) == (0.0, 0.0)


@pytest.mark.parametrize("pacing", FREE_BYTES)
def test_a_fetch_asks_for_what_it_likes_and_its_answer_passes_untouched(pacing: Pacing) -> None:
    size = FREE_BYTES[pacing] + 500
    shell = (
        Playbook(shadowed(pacing=pacing))
        >> Client(fetch(max_bytes=50_000_000))
        << ToBroker(fetch(max_bytes=50_000_000))
        >> Broker(fetch_answer_of(size, throttle_ms=7))
        << ToClient(fetch_answer_of(size, throttle_ms=7))
        >> Client(fetch(max_bytes=50_000_000))
        << ToBroker(fetch(max_bytes=50_000_000))
    ).done()
    (event,) = shell.events
    assert (event.kind, event.delay_ms, event.quota, event.api_key) == (
        EventKind.SHADOW,
        500.0,
        "fetch",
        FETCH,
    )
    assert shell.records[0].throttle_ms == 0.0


def test_acks_0_passes_untouched_and_unthrottled() -> None:
    shell = (
        Playbook(shadowed())
        >> Client(produce_of(1_500, acks=0))
        << ToBroker(produce_of(1_500, acks=0))
    ).done()  # fmt: skip
    assert shell.records[0].throttle_ms == 0.0
    assert would_be_delays(shell) == [500.0]


def test_within_the_limit_nothing_is_written_down() -> None:
    shell = shadowed()
    shell.client_sends(produce_of(1_000))
    assert shell.events == []


@pytest.mark.parametrize("pacing", FREE_BYTES)
def test_would_be_delays_do_not_grow_with_each_request_of_a_client_that_is_not_slowed_down(
    pacing: Pacing,
) -> None:
    """400 B each 100 ms, four times the limit: 300 ms each. Kafka's windows add up to one to it."""
    shell = shadowed(pacing=pacing)
    for _ in range(600):
        shell.client_sends(produce_of(400))
        shell.advance(100)
    assert max(would_be_delays(shell)) <= (300 if pacing == "smooth" else 1_300)


def test_a_would_be_delay_is_bounded_as_a_real_one_is() -> None:
    """30,000 B: 29 s, of which a Produce is delayed by 8; a Fetch by 3."""
    shell = shadowed()
    shell.client_sends(produce_of(30_000) + fetch())
    shell.broker_sends(produce_answer() + fetch_answer_of(30_000))
    assert would_be_delays(shell) == [8_000.0, 3_000.0]


def test_one_quota_in_shadow_leaves_the_other_in_force() -> None:
    """Fetch in shadow, 1,500 B of each."""
    shell = (
        Playbook(shadowed("consumer_byte_rate"))
        >> Client(fetch() + produce_of(1_500))
        << ToBroker(fetch() + produce_of(1_500))
        << Muted(for_ms=500)
        >> Broker(fetch_answer_of(1_500) + produce_answer())
        << ToClient(fetch_answer_of(1_500) + produce_answer(throttle_ms=500))
    ).done()
    assert [(event.kind, event.quota) for event in shell.events] == [
        (EventKind.MUTE, "produce"),
        (EventKind.SHADOW, "fetch"),
    ]


@pytest.mark.parametrize("pacing", FREE_BYTES)
def test_a_limit_put_in_force_punishes_nobody_for_what_passed_in_shadow(pacing: Pacing) -> None:
    """100 times the limit, then it is in force: 100 B owe 100 ms."""
    shell = shadowed(pacing=pacing)
    shell.client_sends(produce_of(100_000))
    shell.shared.quotas.reload(limits_in_shadow("consumer_byte_rate"), shell.now_ms)
    shell.client_sends(produce_of(100))
    assert shell.state is State.MUTED
    assert shell.session.pace.wake_at_ms == pytest.approx(shell.now_ms + 100)


def test_what_was_decided_before_a_limit_went_to_shadow_mode_stays_and_nothing_is_added() -> None:
    """As with a limit that is lifted: held 500 ms, and then no more however much comes."""
    (
        Playbook(in_debt(500))
        >> Client(produce_of(200) + produce_of(5_000))
        << Held(for_ms=500)
        >> Reload(limits_in_shadow())
        >> Wait(500)
        << ToBroker(produce_of(200) + produce_of(5_000))
        << Reading()
    ).done()
