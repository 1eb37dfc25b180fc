"""A connection that fetches for several client ids: what is under way stays in its bucket."""

from __future__ import annotations

from sluice.proxy.session.connection_states import State
from sluice.quotas.entity import DEFAULT, QuotaEntity
from sluice.quotas.kinds import QuotaKind
from sluice.quotas.limits.limits import QuotaLimits
from sluice.quotas.sensors.batch_sizes import UNKNOWN_BYTES
from testkit.frames.frames import FETCH, HEARTBEAT, answer, fetch, fetch_answer_of, request
from testkit.proxy.playbook import START_MS, shared_of, shell_of


def test_what_a_poll_may_bring_stays_reserved_while_its_connection_fetches_for_another_client_id() -> None:
    """Two buckets of one connection: the first one's poll is at the broker still."""
    limits = QuotaLimits([(QuotaEntity(None, DEFAULT), {"consumer_byte_rate": 1_000})])
    shared = shared_of(limits)
    first, second = shell_of(shared), shell_of(shared)
    first.client_sends(fetch(client_id="a"))
    first.client_sends(fetch(client_id="b", correlation_id=2))
    second.client_sends(fetch(client_id="a"))
    assert not second.to_broker, "nobody has seen a batch yet"
    first.broker_sends(answer(FETCH, 12))
    second.advance(1)
    assert second.to_broker, "the answer to the first was empty"
    second.broker_sends(answer(FETCH, 12))
    third = shell_of(shared)
    third.client_sends(fetch(client_id="b"))
    assert not third.to_broker
    first.session.closed(first.now_ms)
    third.advance(1)
    assert third.to_broker


def test_what_an_answer_brought_is_known_of_the_bucket_that_it_was_charged_to() -> None:
    """Two client ids by turns: the batches of one say nothing of the other's."""
    limits = QuotaLimits([(QuotaEntity(None, DEFAULT), {"consumer_byte_rate": 10_000_000})])
    shell = shell_of(shared_of(limits))
    queues = []
    for number, client_id in enumerate(("a", "b")):
        shell.client_sends(fetch(client_id=client_id, correlation_id=number + 1, max_bytes=1_000))
        (sensor,) = (sensor for sensor in shell.session.sensors if sensor.kind is QuotaKind.FETCH)
        queues.append(sensor.fetch_queue())
    shell.broker_sends(fetch_answer_of(2_500))
    of_a, of_b = queues
    assert of_a is not None
    assert of_b is not None
    assert of_a.batches.typical_bytes > 0
    assert of_b.batches.typical_bytes == 0
    assert (of_a.connections, of_b.connections) == (0, 1), "it fetches from the second alone now"


def test_who_comes_back_to_a_client_id_has_its_place_and_counts_once() -> None:
    limits = QuotaLimits([(QuotaEntity(None, DEFAULT), {"consumer_byte_rate": 10_000_000})])
    shared = shared_of(limits)
    shell = shell_of(shared)
    for number, client_id in enumerate(("a", "b", "a", "b", "a")):
        shell.client_sends(fetch(client_id=client_id, correlation_id=number + 1, max_bytes=1_000))
    (of_a,) = (sensor for sensor in shell.session.sensors if sensor.kind is QuotaKind.FETCH)
    queue = of_a.fetch_queue()
    assert queue is not None
    assert queue.connections == 1
    assert queue.reserved_bytes == 3 * UNKNOWN_BYTES
    for number in range(5):
        shell.broker_sends(answer(FETCH, 12, correlation_id=number + 1))
    assert queue.reserved_bytes == 0
    shell.session.closed(shell.now_ms)
    assert queue.connections == 0


def test_polls_that_are_cut_short_are_spaced_also_where_client_ids_take_turns() -> None:
    """Else two consumers that do so ask as fast as they are answered."""
    limits = QuotaLimits([(QuotaEntity(None, DEFAULT), {"consumer_byte_rate": 1_000})])
    shared = shared_of(limits)
    first, second = shell_of(shared), shell_of(shared)
    first.client_sends(fetch(client_id="a"))
    second.client_sends(fetch(client_id="a"))
    first.broker_sends(answer(FETCH, 12))
    first.client_sends(fetch(client_id="a", correlation_id=2))
    second.advance(1)
    assert second.to_broker, "with max_wait 0, since the first waits again"
    second.broker_sends(answer(FETCH, 12))
    second.client_sends(fetch(client_id="b", correlation_id=2))
    second.broker_sends(answer(FETCH, 12, correlation_id=2))
    second.client_sends(fetch(client_id="a", correlation_id=3))
    assert (second.state, second.session.pace.wake_at_ms) == (State.HOLDING, START_MS + 1 + 499)


def test_what_a_connection_had_reserved_in_all_its_buckets_is_given_back_when_it_ends() -> None:
    limits = QuotaLimits([(QuotaEntity(None, DEFAULT), {"consumer_byte_rate": 1_000})])
    shared = shared_of(limits)
    first, of_a, of_b = (shell_of(shared) for _ in range(3))
    first.client_sends(fetch(client_id="a"))
    first.client_sends(fetch(client_id="b", correlation_id=2))
    of_a.client_sends(fetch(client_id="a"))
    of_b.client_sends(fetch(client_id="b"))
    assert not of_a.to_broker + of_b.to_broker
    first.session.closed(first.now_ms)
    for waiting in (of_a, of_b):
        waiting.advance(1)
        assert waiting.to_broker
    assert {sensor.fetch_queue().connections for sensor in shared.quotas.sensors()} == {1}


def test_an_answer_for_a_bucket_that_was_replaced_meanwhile_settles_nothing() -> None:
    """The limit went and came again while a Fetch was at the broker: that bucket knows of no such Fetch."""
    rate = QuotaLimits([(QuotaEntity(None, DEFAULT), {"consumer_byte_rate": 1_000})])
    shared = shared_of(rate)
    shell = shell_of(shared)
    shell.client_sends(fetch(client_id="a"))
    for limits in (QuotaLimits([]), rate):
        shared.quotas.reload(limits, shell.now_ms)
        shell.client_sends(request(HEARTBEAT, 4, correlation_id=5))
    shell.broker_sends(fetch_answer_of(500, correlation_id=1))
    (sensor,) = (sensor for sensor in shell.session.sensors if sensor.kind is QuotaKind.FETCH)
    assert sensor.fetch_queue().reserved_bytes == 0
    shell.session.closed(shell.now_ms)
    assert sensor.fetch_queue().connections == 0
