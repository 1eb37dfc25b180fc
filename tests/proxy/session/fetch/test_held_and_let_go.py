"""A Fetch is held, and its limit goes, or goes into shadow mode: nothing of its wait is left behind.

1,000 B/s that owe 60 s, so a Fetch is held for 3 s, its bound.
"""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from sluice.proxy.session.connection_states import State
from sluice.proxy.session.policy import SharedState
from sluice.proxy.session.producer_ids.shared import ProducerIds
from sluice.quotas.entity import DEFAULT, QuotaEntity
from sluice.quotas.kinds import QuotaKind
from sluice.quotas.limits.limits import QuotaLimits
from sluice.quotas.manager import QuotaManager
from sluice.quotas.producer_ids.principal import ProducerIdSettings
from sluice.usage.records import Recorder
from testkit.frames.frames import (
    FETCH,
    answer,
    fetch,
    fetch_answer_of,
    max_bytes_of,
    produce,
    record_batch,
    request,
)
from testkit.frames.mutation_frames import create, sizes
from testkit.proxy.mutation_session import creates
from testkit.proxy.playbook import Shell, shell_of

HEARTBEAT = 12
EVERYBODY = QuotaEntity(DEFAULT)
BYTES = "consumer_byte_rate"
NO_OTHERS: Mapping[str, float] = {}
ONE_ID = {"producer_ids_rate": 1.0}
MUTATIONS = {"controller_mutation_rate": 2.0}


def limits_of(others: Mapping[str, float] = NO_OTHERS, *, shadow: bool = False) -> QuotaLimits:
    return QuotaLimits([(EVERYBODY, {BYTES: 1_000, **others})], shadow={EVERYBODY: [BYTES]} if shadow else {})


def in_debt(others: Mapping[str, float] = NO_OTHERS) -> SharedState:
    shared = SharedState(
        QuotaManager(limits_of(others)), Recorder(), producer_ids=ProducerIds(ProducerIdSettings())
    )
    other = shell_of(shared)
    other.client_sends(fetch())
    other.broker_sends(fetch_answer_of(61_000))
    return shared


def let_go(shared: SharedState, limits: QuotaLimits) -> Shell:
    """A connection whose Fetch was held until these limits were in force; it has been answered."""
    shell = shell_of(shared)
    shell.client_sends(fetch(max_bytes=7_000))
    assert shell.state is State.HOLDING
    shell.advance(1_000)
    shared.quotas.reload(limits, shell.now_ms)
    shell.advance(2_000)
    assert shell.to_broker == fetch(max_bytes=7_000), "as it came"
    shell.broker_sends(answer(FETCH, 12))
    shell.to_broker.clear()
    shell.to_client.clear()
    return shell


def batch(producer_id: int) -> bytes:
    return produce({"t": [(0, record_batch(bytes(10), producer_id=producer_id, epoch=0, sequence=0))]})


@pytest.mark.parametrize(
    ("limits", "held_ms"),
    [(limits_of(shadow=True), 3_000.0), (QuotaLimits([]), 1_000.0)],
    ids=["in shadow mode", "no limit"],
)
def test_its_wait_is_recorded_and_the_next_fetch_has_none(limits: QuotaLimits, held_ms: float) -> None:
    """An hour later, when the limit is in force and its bucket full again."""
    shared = in_debt()
    shell = let_go(shared, limits)
    shell.advance(3_600_000)
    shared.quotas.reload(limits_of(), shell.now_ms)
    shell.client_sends(fetch(correlation_id=2, max_bytes=500))
    assert max_bytes_of(FETCH, 12, bytes(shell.to_broker)) == 500
    shell.broker_sends(answer(FETCH, 12, correlation_id=2))
    assert [record.held_ms for record in shell.records][-2:] == [held_ms, 0.0]


def test_its_place_and_what_was_reserved_for_it_are_given_back() -> None:
    shared = in_debt()
    waiting = shell_of(shared)
    waiting.client_sends(fetch())
    queue = waiting.sensor(QuotaKind.FETCH).fetch_queue()
    assert len(queue) == 1
    shared.quotas.reload(limits_of(shadow=True), waiting.now_ms)
    waiting.advance(3_000)
    assert (len(queue), queue.reserved_bytes) == (0, 0.0)


def test_a_request_behind_it_that_waits_for_its_producer_id_has_its_turn() -> None:
    shared = in_debt(ONE_ID)
    shell_of(shared).client_sends(batch(1))  # the only token
    shell = let_go(shared, limits_of(ONE_ID, shadow=True))
    shell.client_sends(batch(77))
    assert shell.is_delayed
    shell.advance(8_000)
    assert shell.to_client, "refused at its bound, for its client to send it again"
    assert shell.state is State.READING
    (principal,) = (one for one in shared.producer_ids.quota.principals() if one.enforced)
    shell.session.closed(shell.now_ms)
    assert principal.waiting_tickets == 0


def test_a_mutation_behind_it_is_charged_once_and_goes() -> None:
    limits = limits_of(MUTATIONS, shadow=True)
    shared = in_debt(MUTATIONS)
    shell = let_go(shared, limits)
    debtor = shell_of(shared)
    debtor.now_ms = shell.now_ms
    creates(debtor, {"large": 26}, version=4)
    sensor = shell.sensor(QuotaKind.CONTROLLER_MUTATION)
    charged = sensor.charged
    shell.client_sends(create({"x": 1}, version=4))
    assert shell.state is State.AWAITING_BROKER
    shell.broker_sends(sizes({"x": (3, 0)}))
    shell.to_broker.clear()
    assert shell.is_delayed
    shell.advance(8_000)
    assert shell.to_broker == create({"x": 1}, version=4)
    assert sensor.charged == charged + 1


def test_a_wake_belongs_to_the_request_that_waits_for_its_producer_id_though_a_fetch_is_said_to() -> None:
    shared = in_debt(ONE_ID)
    first, second = shell_of(shared), shell_of(shared)
    first.client_sends(batch(1))
    second.client_sends(batch(77))
    second.session._throttling.fetches.is_held = True
    second.advance(8_000)
    assert second.to_client


def test_a_wake_belongs_to_the_mutation_that_waits_though_a_fetch_is_said_to() -> None:
    shared = in_debt(MUTATIONS)
    first, second = shell_of(shared), shell_of(shared)
    creates(first, {"large": 26}, version=4)
    second.client_sends(create({"x": 1}, version=4))
    second.broker_sends(sizes({"x": (3, 0)}))
    second.to_broker.clear()
    second.session._throttling.fetches.is_held = True
    second.advance(8_000)
    assert second.to_broker == create({"x": 1}, version=4)


def test_one_that_goes_before_the_answer_before_it_is_paid_has_waited_for_nothing() -> None:
    """That delay was told, and its own begins behind it. The limit is raised, so that its turn comes sooner,
    and lifted."""
    shared = SharedState(QuotaManager(limits_of()), Recorder())
    other, shell = shell_of(shared), shell_of(shared)
    other.client_sends(fetch())
    other.broker_sends(fetch_answer_of(2_000))
    shell.client_sends(fetch(max_bytes=7_000))
    shell.advance(1_500)
    shell.broker_sends(fetch_answer_of(3_000))
    shell.client_sends(fetch(max_bytes=7_000, correlation_id=2))
    assert shell.state is State.HOLDING
    shared.quotas.reload(QuotaLimits([(EVERYBODY, {BYTES: 10_000})]), shell.now_ms)
    shared.quotas.reload(QuotaLimits([]), shell.now_ms)
    shell.advance(1_000)
    shell.broker_sends(answer(FETCH, 12, correlation_id=2))
    assert [record.held_ms for record in shell.records][-1] == 0.0


def test_a_connection_that_becomes_a_groups_holds_its_next_fetch_for_2_s_whatever_was_told_before() -> None:
    """sarama's, when the coordinator moves to a broker that it fetches from. The heartbeat behind that Fetch
    waited for 9.9 s: its bound counted from the end of what the answer before had told."""
    shared = SharedState(QuotaManager(limits_of()), Recorder())
    other, shell = shell_of(shared), shell_of(shared)
    other.client_sends(fetch())
    other.broker_sends(fetch_answer_of(2_500))
    shell.client_sends(fetch(max_bytes=7_000))
    assert shell.is_delayed
    shell.advance(2_900)
    shell.broker_sends(fetch_answer_of(60_000))
    assert shell.session.pace.wake_at_ms <= shell.now_ms, "its next Fetch waits with the others"
    shell.client_sends(request(HEARTBEAT, 4, correlation_id=2))
    shell.broker_sends(answer(HEARTBEAT, 4, correlation_id=2))
    shell.to_broker.clear()
    heartbeat = request(HEARTBEAT, 4, correlation_id=4)
    shell.client_sends(fetch(max_bytes=7_000, correlation_id=3) + heartbeat)
    assert not shell.to_broker
    shell.advance(2_000)
    assert bytes(shell.to_broker).endswith(heartbeat)
