"""Whatever is refused, held, retried or cut off: every record exactly once and in order.

Judged by a model broker that enforces Kafka's sequence rules, with clients as well-behaved as Java's.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from sluice.proxy.session.producer_ids.gate_table import GateTables
from sluice.quotas.producer_ids.buckets import MS_PER_HOUR, BucketShape
from sluice.quotas.producer_ids.principal import ProducerIdSettings
from sluice.quotas.producer_ids.quota import ProducerIdQuota
from testkit.oracles.producer_model import (
    SEQUENCES,
    ModelBroker,
    ModelClient,
    ModelProducer,
    ModelProxy,
    Outcome,
    assert_exactly_once_in_order,
    finish,
)
from testkit.thorough import cases

SETTINGS = ProducerIdSettings(buckets=BucketShape(burst_h=0.01, expiration_ms=1.0))
"""2.4 tokens for new ids and for resumed ones, so that a request with two can pass, and the third waits"""
RATE = 240.0
"""a new id every 15 s: some are held only, some refused first"""


def places_of(number: int) -> list[tuple[bytes, int]]:
    return [(b"orders", number * 10), (b"orders", number * 10 + 1), (b"payments", number * 10)]


CLIENTS = st.integers(0, 5)


class Machine(RuleBasedStateMachine):
    """Two users; two clients write with two producers each, whose batches share requests."""

    max_gates = 10_000

    def __init__(self) -> None:
        super().__init__()
        self.broker = ModelBroker()
        self.quota = ProducerIdQuota(SETTINGS)
        self.proxy = ModelProxy(self.broker, self.quota, GateTables(self.max_gates))
        self.clients = [
            self._client("alice", ModelProducer(1, places_of(1))),
            self._client("alice", ModelProducer(2, places_of(2)), ModelProducer(3, places_of(3))),
            self._client("alice", ModelProducer(4, places_of(4)[:1])),
            self._client("alice", self._resumed(5), self._resumed(7)),
            self._client("alice", self._resumed(8)),
            self._client("bob", ModelProducer(6, places_of(6))),
        ]

    def _client(self, user: str, *producers: ModelProducer) -> ModelClient:
        return ModelClient(self.proxy, user, RATE, list(producers))

    def _resumed(self, producer_id: int) -> ModelProducer:
        """Its broker knows it and the proxy does not; its sequences begin anew after a few records."""
        for place in places_of(producer_id):
            self.broker.seed(producer_id, place, SEQUENCES - 7)
        return ModelProducer(producer_id, places_of(producer_id), first_sequence=SEQUENCES - 7)

    @rule(client=CLIENTS, choice=st.integers(1, 63), count=st.integers(1, 5))
    def add_and_send(self, client: int, choice: int, count: int) -> None:
        chosen = self.clients[client]
        bits = choice
        for producer in chosen.producers:
            for place in producer.queues:
                if bits & 1:
                    producer.add(place, count)
                bits >>= 1
        chosen.send(choice)

    @rule(client=CLIENTS, choice=st.integers(1, 63))
    def send(self, client: int, choice: int) -> None:
        self.clients[client].send(choice)

    @rule(client=CLIENTS)
    def receive(self, client: int) -> None:
        self.clients[client].receive()

    @rule(connection=st.integers(0, 50))
    def read(self, connection: int) -> None:
        connections = self.proxy.connections
        self.proxy.read(connections[connection % len(connections)])

    @rule(elapsed_ms=st.sampled_from([0.0, 1.0, 400.0, 3_000.0, 10_000.0, 31_000.0, 130_000.0]))
    def advance(self, elapsed_ms: float) -> None:
        while elapsed_ms > 30_000.0:
            self._advance(30_000.0)
            elapsed_ms -= 30_000.0
        self._advance(elapsed_ms)

    def _advance(self, elapsed_ms: float) -> None:
        for client in self.clients:
            client.receive_old(self.proxy.now_ms + elapsed_ms)
        self.proxy.advance(elapsed_ms)

    @rule(client=CLIENTS)
    def reconnect(self, client: int) -> None:
        self.clients[client].reconnect()

    @rule(client=CLIENTS)
    def move(self, client: int) -> None:
        self.clients[client].move()

    @rule(client=CLIENTS)
    def bump_epoch(self, client: int) -> None:
        self.clients[client].producers[0].bump_epoch()

    @invariant()
    def admissions_stay_in_bound(self) -> None:
        for principal in self.quota.principals():
            bound = SETTINGS.buckets.bound(RATE, self.proxy.now_ms / MS_PER_HOUR)
            assert principal.admitted <= bound

    def teardown(self) -> None:
        finish(self.proxy, self.clients)
        self.check()

    def check(self) -> None:
        assert_exactly_once_in_order(self.broker, self.clients)
        assert all(principal.waiting_tickets == 0 for principal in self.quota.principals())
        assert self.quota.ceiling.reserved == 0


class FullTable(Machine):
    """Alice's few gates are soon taken. What then fails or waits on is her own; bob, whose one client needs
    three, loses nothing. Nor does she where one partition begins with sequence 0: it is safe without a gate.
    """

    max_gates = 3

    def teardown(self) -> None:
        safe = [self.clients[2], self.clients[5]]
        finish(self.proxy, self.clients, safe)
        assert_exactly_once_in_order(self.broker, safe)
        for client in self.clients:
            assert {outcome for outcome, _ in client.failures} <= {Outcome.OUT_OF_ORDER, Outcome.STALE_EPOCH}


_SETTINGS = settings(
    max_examples=cases(200),
    stateful_step_count=60,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
TestMachine = Machine.TestCase
TestMachine.settings = _SETTINGS
TestFullTable = FullTable.TestCase
TestFullTable.settings = _SETTINGS


def one_client(
    *partitions: int, max_gates: int = 100, spent: bool = True
) -> tuple[ModelProxy, ModelClient, ModelProducer]:
    """A client whose id is new; `spent`: all tokens are taken."""
    quota = ProducerIdQuota(replace(SETTINGS, forced_after_ms=1e9))
    if spent:
        principal = quota.principal("alice", RATE, 1_000.0)
        assert not principal.main.charge(3, 1_000.0)
        principal.main.restore(0.0, 1_000.0)
    proxy = ModelProxy(ModelBroker(), quota, GateTables(max_gates))
    producer = ModelProducer(1, [(b"orders", partition) for partition in partitions])
    return proxy, ModelClient(proxy, "alice", RATE, [producer]), producer


def test_five_pipelined_batches_are_refused_together_and_written_in_order() -> None:
    proxy, client, producer = one_client(0)
    for _ in range(5):
        producer.add((b"orders", 0), 10)
        client.send(1)
    proxy.advance(11_000.0)
    assert proxy.refusals == 5  # one hold for the first; the four behind it at once
    finish(proxy, [client])
    assert_exactly_once_in_order(proxy.broker, [client])


def test_a_hold_that_ends_in_time_is_seen_by_nobody() -> None:
    proxy, client, producer = one_client(0)
    proxy.advance(8_000.0)
    for _ in range(5):
        producer.add((b"orders", 0), 10)
        client.send(1)
    proxy.advance(7_100.0)
    assert proxy.refusals == 0
    assert len(proxy.broker.logs[b"orders", 0]) == 50


def test_a_client_that_leaves_while_held_loses_and_doubles_nothing() -> None:
    proxy, client, producer = one_client(0, 1)
    for _ in range(3):
        producer.add((b"orders", 0), 5)
        producer.add((b"orders", 1), 5)
        client.send(3)
    proxy.advance(100.0)
    client.reconnect()
    finish(proxy, [client])
    assert_exactly_once_in_order(proxy.broker, [client])


@pytest.mark.parametrize("first_sequence", [0, SEQUENCES - 15])
def test_a_known_id_refused_for_anothers_sake_is_not_overtaken_by_itself(first_sequence: int) -> None:
    """Also where its sequences begin anew between the refused batch and the one behind it."""
    proxy, _, _ = one_client(0)
    known = ModelProducer(8, [(b"orders", 8)], first_sequence)
    proxy.broker.seed(8, (b"orders", 8), first_sequence)
    client = ModelClient(proxy, "alice", RATE, [known, ModelProducer(9, [(b"orders", 9)])])
    proxy.quota.principal("alice", RATE, proxy.now_ms).store.admit(8, proxy.now_ms)
    for choice in (3, 1, 1, 1):
        for producer, bit in zip(client.producers, (1, 2), strict=True):
            if choice & bit:
                producer.add(next(iter(producer.queues)), 10)
        client.send(choice)
    proxy.advance(11_000.0)
    assert proxy.refusals == 4
    finish(proxy, [client])
    assert_exactly_once_in_order(proxy.broker, [client])


def test_a_batch_sent_before_the_refusal_of_the_one_before_it_is_heard_does_not_overtake_it() -> None:
    """On the wire: 0 (refused), 1 (refused for it), 0 again, which now passes, and 2: the broker misses 1."""
    machine = Machine()
    machine.add_and_send(choice=9, client=1, count=1)
    machine.add_and_send(choice=1, client=0, count=1)
    machine.add_and_send(choice=1, client=2, count=1)
    machine.advance(elapsed_ms=31_000.0)
    machine.add_and_send(choice=1, client=0, count=1)
    machine.receive(client=0)
    machine.add_and_send(choice=1, client=0, count=1)
    machine.teardown()


@pytest.mark.parametrize("gated", [False, True])
def test_without_its_gates_the_model_would_lose_records(gated: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The oracle is no rubber stamp: KIP-936 as written, where the refused id passes on its retry."""
    if not gated:
        monkeypatch.setattr("sluice.proxy.session.producer_ids.gate_table.GateTable.blocks", lambda *_: False)
    proxy, client, producer = one_client(0)
    for _ in range(5):
        producer.add((b"orders", 0), 10)
        client.send(1)
    proxy.advance(31_000.0)  # the first is refused after 8 s; a token comes while a later one is held
    finish(proxy, [client])
    assert (client.failures == []) is gated
