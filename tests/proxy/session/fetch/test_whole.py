"""Under a limit a Fetch has its turn when it is whole: a broker never answers one that is not, and what is
reserved for it would be kept from its neighbours."""

from __future__ import annotations

from typing import Any

import pytest

from sluice.protocol.apis import FETCH
from sluice.proxy.session.authentication import WHOLE_MAX_BYTES
from sluice.proxy.session.connection_states import State
from sluice.quotas.entity import DEFAULT, QuotaEntity
from sluice.quotas.limits.limits import QuotaLimits
from testkit.frames.frames import fetch, fetch_answer_of, request
from testkit.proxy.playbook import Shell, fetch_debt, limits_of, shared_of, shell_of

USERS = QuotaEntity(DEFAULT)


def fetch_of(partitions: int) -> bytes:
    """As a consumer's first: of all its partitions."""
    asked: Any = [{"partition": number, "partitionMaxBytes": 1_000} for number in range(partitions)]
    body: Any = {"maxWaitMs": 500, "maxBytes": 50_000, "topics": [{"topic": "orders", "partitions": asked}]}
    return request(FETCH, 12, body)


def reserved_by(shell: Shell) -> float:
    (sensor,) = shell.session.sensors
    return sensor.fetch_queue().reserved_bytes


@pytest.mark.parametrize("frame", [fetch(version=12), fetch(version=4), fetch_of(8_000)])
def test_nothing_is_reserved_until_its_last_byte_has_come(frame: bytes) -> None:
    """Three connections that left it out kept a bucket of 10 kB/s from all others for 73 of 100 s."""
    shell = shell_of(shared_of(limits_of(fetch_rate=10_000)))
    shell.client_sends(frame[:-1])
    assert (bytes(shell.to_broker), shell.state) == (b"", State.READING)
    assert reserved_by(shell) == 0.0
    shell.client_sends(frame[-1:])
    assert len(shell.to_broker) == len(frame)
    assert reserved_by(shell) > 0.0


def test_who_sends_halves_takes_nothing_of_the_others() -> None:
    shared = shared_of(limits_of(fetch_rate=10_000))
    for _ in range(20):
        shell_of(shared).client_sends(fetch(version=12)[:-1])
    honest = shell_of(shared)
    for number in range(3):
        honest.client_sends(fetch(version=12, correlation_id=number))
        assert honest.session.in_flight == 1, "at once"
        honest.broker_sends(fetch_answer_of(3_000, version=12, correlation_id=number))


def test_what_is_not_whole_waits_for_no_turn_and_is_not_ended() -> None:
    shell = shell_of(fetch_debt(debt_ms=60_000.0))
    shell.client_sends(fetch(version=12)[:-1])
    shell.advance(10_000.0)
    assert (shell.state, bytes(shell.to_broker)) == (State.READING, b"")
    shell.client_sends(fetch(version=12)[-1:])
    assert shell.state is State.HOLDING


def test_one_that_is_too_long_to_be_kept_goes_when_as_much_as_may_be_kept_has_come() -> None:
    frame = fetch_of(WHOLE_MAX_BYTES // 20)
    assert len(frame) > WHOLE_MAX_BYTES + 2
    shell = shell_of(shared_of(limits_of(fetch_rate=10_000)))
    shell.client_sends(frame[:WHOLE_MAX_BYTES])
    assert not shell.to_broker
    shell.client_sends(frame[WHOLE_MAX_BYTES : WHOLE_MAX_BYTES + 1])
    assert len(shell.to_broker) == WHOLE_MAX_BYTES + 1
    shell.client_sends(frame[WHOLE_MAX_BYTES + 1 :])
    assert len(shell.to_broker) == len(frame)


@pytest.mark.parametrize(
    "limits",
    [
        QuotaLimits(),
        QuotaLimits([(USERS, {"consumer_byte_rate": 10_000})], shadow={USERS: ["consumer_byte_rate"]}),
    ],
)
def test_without_a_limit_it_goes_as_it_comes(limits: QuotaLimits) -> None:
    shell = shell_of(shared_of(limits))
    shell.client_sends(fetch(version=12)[:-1])
    assert len(shell.to_broker) == len(fetch(version=12)) - 1
