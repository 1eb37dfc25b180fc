"""The limit on producer ids changes while a request waits for its new id: the limit of now judges it."""

from __future__ import annotations

import pytest

from sluice.protocol.apis import PRODUCE
from sluice.proxy.session.policy import SessionPolicy, SharedState
from sluice.proxy.session.producer_ids.shared import ProducerIds
from sluice.proxy.session.session import Session
from sluice.quotas.entity import DEFAULT, QuotaEntity
from sluice.quotas.limits.limits import QuotaLimits
from sluice.quotas.manager import QuotaManager
from sluice.quotas.producer_ids.principal import ProducerIdSettings
from sluice.usage.records import Recorder
from testkit.frames.frames import answer, decoded, produce, record_batch
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
