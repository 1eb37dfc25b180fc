"""The limit on producer ids changes while a request waits for its new id: the limit of now judges it."""

from __future__ import annotations

import pytest

from sluice.protocol.apis import PRODUCE, ApiKey
from sluice.protocol.codec.wire import Struct
from sluice.proxy.session.policy import SessionPolicy, SharedState
from sluice.proxy.session.producer_ids.gate import ProducerGate
from sluice.proxy.session.producer_ids.shared import ProducerIds
from sluice.proxy.session.producer_ids.verdict import Verdict
from sluice.proxy.session.session import Session
from sluice.quotas.entity import DEFAULT, QuotaEntity
from sluice.quotas.limits.limits import QuotaLimits
from sluice.quotas.manager import QuotaManager
from sluice.quotas.producer_ids.principal import PrincipalIds, ProducerIdSettings
from sluice.usage.records import Recorder
from testkit.frames.frames import answer, decoded, produce, record_batch, request
from testkit.proxy.playbook import Shell

BUDGET_MS = 8_000.0
AGAIN_MS = 1_000.0


def limits_of(ids_per_hour: float, **others: float) -> QuotaLimits:
    entries = [(QuotaEntity(user), {"producer_ids_rate": rate}) for user, rate in others.items()]
    return QuotaLimits([(QuotaEntity(DEFAULT), {"producer_ids_rate": ids_per_hour}), *entries])


IN_SHADOW = QuotaLimits(
    [(QuotaEntity(DEFAULT), {"producer_ids_rate": 1.0})], shadow={QuotaEntity(DEFAULT): ["producer_ids_rate"]}
)


class Waiting:
    """A connection whose second producer id waits, at one an hour."""

    def __init__(self) -> None:
        self.quotas = QuotaManager(limits_of(1.0))
        ids = ProducerIds(ProducerIdSettings(forced_after_ms=3_600_000.0))
        self.recorder = Recorder()
        shared = SharedState(self.quotas, self.recorder, producer_ids=ids)
        self.shell = Shell(Session(shared, SessionPolicy(), "10.0.0.1"))
        self.begun_ms = self.shell.now_ms
        for producer_id in (1, 2):
            batch = record_batch(b"records", producer_id=producer_id, epoch=0)
            self.request = produce({"orders": [(0, batch)]}, correlation_id=producer_id)
            self.shell.client_sends(self.request)
        self.shell.to_broker.clear()
        assert self.shell.is_delayed

    def reload(self, limits: QuotaLimits) -> None:
        """A second after it came."""
        self.shell.now_ms = self.begun_ms + 1_000.0
        self.quotas.reload(limits, self.shell.now_ms)

    def wait(self, ms: float) -> None:
        """Until so long after it came, by the connection's own wakes."""
        shell = self.shell
        while shell.is_delayed and shell.session.pace.wake_at_ms <= self.begun_ms + ms:
            shell.now_ms = max(shell.now_ms, shell.session.pace.wake_at_ms)
            shell.wake()
        shell.now_ms = self.begun_ms + ms


@pytest.mark.parametrize(
    ("limits", "held_ms"),
    [(limits_of(1_000_000.0), BUDGET_MS), (IN_SHADOW, BUDGET_MS), (QuotaLimits([]), 0.0)],
    ids=["raised", "in shadow", "removed"],
)
def test_what_the_limit_of_now_lets_through_is_not_refused_by_the_one_before(
    limits: QuotaLimits, held_ms: float
) -> None:
    """It was refused, though the limit had been in shadow mode, or high enough, for seven seconds."""
    waiting = Waiting()
    waiting.reload(limits)
    waiting.wait(BUDGET_MS + AGAIN_MS)
    assert bytes(waiting.shell.to_broker) == waiting.request
    waiting.shell.broker_sends(answer(PRODUCE, 9, correlation_id=1))
    waiting.shell.broker_sends(answer(PRODUCE, 9, correlation_id=2))
    assert [record.held_ms for record in waiting.shell.records] == [0.0, held_ms]


def test_what_the_limit_of_now_does_not_let_through_waits_a_second_more_at_most() -> None:
    waiting = Waiting()
    waiting.reload(limits_of(2.0))
    waiting.wait(BUDGET_MS)
    assert waiting.shell.is_delayed
    for each in range(10):  # however often it changes
        waiting.quotas.reload(limits_of(3.0 + each), waiting.shell.now_ms)
        waiting.wait(BUDGET_MS + (each + 1) * AGAIN_MS / 10)
    assert (bytes(waiting.shell.to_broker), waiting.shell.is_delayed) == (b"", False)
    waiting.shell.broker_sends(answer(PRODUCE, 9, correlation_id=1))
    size = 4 + int.from_bytes(waiting.shell.to_client[:4], "big")
    refusal = decoded("response", PRODUCE, 9, bytes(waiting.shell.to_client[size:]))
    assert refusal.header["correlationId"] == 2


def test_another_users_limit_changes_nothing() -> None:
    waiting = Waiting()
    waiting.reload(limits_of(1.0, bob=9.0))
    waiting.wait(BUDGET_MS)
    assert (bytes(waiting.shell.to_broker), waiting.shell.is_delayed) == (b"", False)


class Lowered:
    """3,600 an hour are lowered to one while a connection that was judged before has something under way;
    of the others' new ids three wait."""

    def __init__(self) -> None:
        ids = ProducerIds(ProducerIdSettings(forced_after_ms=3_600_000.0))
        self.quotas = QuotaManager(self.limits(3_600.0))
        self.shared = SharedState(self.quotas, Recorder(), producer_ids=ids)
        self.before = self.connection()

    @staticmethod
    def limits(ids_per_hour: float) -> QuotaLimits:
        rates = {"producer_ids_rate": ids_per_hour, "producer_byte_rate": 1e6}
        return QuotaLimits([(QuotaEntity(DEFAULT), rates)])

    def connection(self) -> Shell:
        return Shell(Session(self.shared, SessionPolicy(), "10.0.0.1"))

    @property
    def principal(self) -> PrincipalIds:
        (principal,) = self.shared.producer_ids.quota.principals()
        return principal

    def lower(self) -> None:
        shell = self.before
        self.principal.main.restore(1_080.0, shell.now_ms)
        self.quotas.reload(self.limits(1.0), shell.now_ms)
        self.waiting = [self.connection() for _ in range(3)]
        for producer_id, waiting in enumerate(self.waiting, start=10):
            waiting.client_sends(produce_with(producer_id))
        assert [waiting.is_delayed for waiting in self.waiting] == [True] * 3

    def still_waiting(self, now_ms: float) -> int:
        self.shared.producer_ids.serve(now_ms)
        for waiting in self.waiting:
            waiting.advance(0)
        assert self.principal.ids_per_hour == 1.0
        return sum(waiting.is_delayed for waiting in self.waiting)


def produce_with(producer_id: int, record_bytes: int = 7) -> bytes:
    batch = record_batch(b"r" * record_bytes, producer_id=producer_id, epoch=0)
    return produce({"orders": [(0, batch)]}, correlation_id=1)


def test_what_was_admitted_by_a_higher_limit_and_goes_after_it_was_lowered_leaves_the_lower_in_force() -> (
    None
):
    """It put the higher one back, and all who waited went by that: 800 new ids under one an hour."""
    lowered = Lowered()
    lowered.connection().client_sends(produce_with(1, record_bytes=4_000_000))
    shell = lowered.before
    shell.client_sends(produce_with(2))
    assert shell.is_delayed  # for its bytes
    lowered.lower()
    shell.advance(8_000)
    assert shell.to_broker
    assert lowered.still_waiting(lowered.waiting[0].now_ms) == 3


def test_a_successor_that_is_handed_out_after_the_limit_was_lowered_leaves_the_lower_in_force() -> None:
    lowered = Lowered()
    shell = lowered.before
    shell.client_sends(produce_with(1))
    ended: Struct = {"transactionalId": "app", "producerId": 1, "producerEpoch": 0, "committed": True}
    shell.client_sends(request(ApiKey.END_TXN, 5, ended, correlation_id=2))
    lowered.lower()
    shell.broker_sends(answer(PRODUCE, 9, correlation_id=1))
    successor: Struct = {"throttleTimeMs": 0, "errorCode": 0, "producerId": 2, "producerEpoch": 0}
    shell.broker_sends(answer(ApiKey.END_TXN, 5, successor, correlation_id=2))
    assert lowered.principal.store.seen(2, shell.now_ms)
    assert lowered.still_waiting(shell.now_ms) == 3


@pytest.mark.parametrize("enforced", [True, False])
def test_only_who_judges_puts_a_limit_in_force(enforced: bool) -> None:
    """All else is about a request that was judged before, perhaps by a limit that is another now."""
    shared = ProducerIds()
    quota = shared.quota
    gate = ProducerGate(quota, shared.tables)
    gate.use("alice", 3_600.0, enforced=enforced)
    head = (0, 6, 0, 500, 1, 0, 0, 10)
    assert gate.judge(bytearray(b"orders"), [head], -1, 0.0, BUDGET_MS) is Verdict.ADMIT
    principal = quota.principal("alice", 1.0, 0.0, enforced=enforced)
    gate.forwarded(0.0)
    gate.count_hold(0.0)
    gate.saw_member(1_000, 0.0)
    gate.succeed(1, 2, 0.0)
    gate.withdraw_name(gate.ask_for_name(b"app", 0.0)[1], 0.0)
    gate.bring_name(b"app", 0.0, 0.0)
    gate.refuse_batches(bytearray(b"orders"), [head], 0.0)
    gate.dropped(0.0)
    assert principal.ids_per_hour == 1.0
    assert list(quota.principals()) == [principal]


def test_what_waits_and_is_woken_after_the_limit_was_lowered_leaves_the_lower_in_force() -> None:
    shared = ProducerIds(ProducerIdSettings(forced_after_ms=3_600_000.0))
    quota = shared.quota
    gate = ProducerGate(quota, shared.tables)
    gate.use("alice", 3_600.0, enforced=True)
    quota.principal("alice", 3_600.0, 0.0).main.restore(0.0, 0.0)
    assert gate.judge(bytearray(b"orders"), [(0, 6, 0, 500, 1, 0, 0, 10)], -1, 0.0, BUDGET_MS) is Verdict.HOLD
    principal = quota.principal("alice", 1.0, 0.0)
    assert gate.wake(1_000.0) is Verdict.HOLD
    assert gate.wake(BUDGET_MS) is Verdict.REFUSE
    assert principal.ids_per_hour == 1.0
