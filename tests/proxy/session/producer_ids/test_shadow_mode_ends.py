"""Shadow mode ends, or an exemption: ids that are alive go on, in transactions and out of them."""

from __future__ import annotations

from sluice.protocol.apis import ApiKey
from sluice.proxy.session.policy import SessionPolicy, SharedState
from sluice.proxy.session.producer_ids.shared import ProducerIds
from sluice.proxy.session.session import Session
from sluice.quotas.entity import DEFAULT, QuotaEntity
from sluice.quotas.limits.limits import QuotaLimits
from sluice.quotas.manager import QuotaManager
from sluice.quotas.producer_ids.principal import ProducerIdSettings
from sluice.usage.records import Recorder
from testkit.frames.frames import answer, produce, record_batch, request
from testkit.proxy.playbook import Shell
from testkit.proxy.transaction_session import adding

USERS = QuotaEntity(DEFAULT, None)
SHADOW = {USERS: ["producer_ids_rate"]}
IDS = range(1_000, 1_040)


def limits(*, shadow: bool) -> QuotaLimits:
    """Ten new ids an hour."""
    rates = {"producer_byte_rate": 1e9, "producer_ids_rate": 10.0}
    return QuotaLimits([(USERS, rates)], shadow=SHADOW if shadow else {})


class Live:
    """A connection each of 40 producers, whose transactional ids were named in shadow mode."""

    def __init__(self, settings: ProducerIdSettings | None = None) -> None:
        self.quotas = QuotaManager(limits(shadow=True))
        self.shared = SharedState(
            self.quotas, Recorder(), producer_ids=ProducerIds(settings or ProducerIdSettings())
        )
        self.shells = [
            Shell(Session(self.shared, SessionPolicy(), f"10.0.0.{number}")) for number in range(len(IDS))
        ]
        for producer_id, shell in zip(IDS, self.shells, strict=True):
            named = {"transactionalId": f"app{producer_id}", "transactionTimeoutMs": 60_000}
            shell.client_sends(request(ApiKey.INIT_PRODUCER_ID, 4, named))  # type: ignore[arg-type]
            handed_out = {"producerId": producer_id, "producerEpoch": 0}
            shell.broker_sends(answer(ApiKey.INIT_PRODUCER_ID, 4, handed_out))  # type: ignore[arg-type]

    def goes(self, shell: Shell, frame: bytes) -> bool:
        """At once; then its answer comes."""
        shell.to_broker.clear()
        shell.client_sends(frame)
        if shell.to_broker != frame:
            return False
        api_key = int.from_bytes(frame[4:6], "big")
        shell.broker_sends(answer(api_key, int.from_bytes(frame[6:8], "big"), {}, correlation_id=1))
        return True

    def transactions(self) -> int:
        """A transaction of version 1 of each, with epoch 0: how many go on."""
        return sum(
            self.goes(shell, adding(producer_id)) for producer_id, shell in zip(IDS, self.shells, strict=True)
        )

    def first_batches(self, partition: int) -> int:
        """The first batch of each to a partition, in its transaction."""
        return sum(
            self.goes(
                shell,
                produce(
                    {"orders": [(partition, record_batch(b"r", producer_id=producer_id, epoch=0))]},
                    correlation_id=1,
                ),
            )
            for producer_id, shell in zip(IDS, self.shells, strict=True)
        )

    def switch(self, *, shadow: bool) -> None:
        for shell in self.shells:
            shell.now_ms += 60_000
        self.quotas.reload(limits(shadow=shadow), self.shells[0].now_ms)


def test_live_transactions_go_on_when_shadow_mode_ends_and_a_new_id_does_not() -> None:
    """Their ids were handed out here, so 30 of 40 were taken for new: held for 8 s, then refused."""
    live = Live()
    assert live.transactions() == len(IDS)
    live.switch(shadow=False)
    assert live.transactions() == len(IDS)
    quota = live.shared.producer_ids.quota
    assert sum(principal.admitted for principal in quota.principals() if principal.enforced) == 0
    went = 0
    while went < 20 and live.goes(live.shells[0], produce_of(5_000 + went)):
        went += 1
    assert went == 10


def produce_of(producer_id: int) -> bytes:
    batch = record_batch(b"r", producer_id=producer_id, epoch=0)
    return produce({"orders": [(0, batch)]}, correlation_id=1)


def test_a_live_ids_first_batch_to_a_further_partition_goes_when_shadow_mode_has_ended() -> None:
    live = Live()
    assert live.first_batches(0) == len(IDS)
    live.switch(shadow=False)
    assert live.first_batches(1) == len(IDS)


def test_ids_of_the_time_before_and_of_shadow_mode_are_known_when_it_ends_again() -> None:
    live = Live()
    assert live.transactions() == len(IDS)
    for shadow in (False, True, False):
        live.switch(shadow=shadow)
        assert live.transactions() == len(IDS)
    quota = live.shared.producer_ids.quota
    assert sum(principal.admitted for principal in quota.principals()) == len(IDS)


def test_a_live_id_that_shadow_mode_could_not_remember_is_resumed_and_not_new() -> None:
    """The latest are remembered; who has begun to live is never new for its next transaction."""
    live = Live(ProducerIdSettings(max_observed_ids=20))
    assert live.transactions() == len(IDS)
    live.switch(shadow=False)
    assert live.transactions() == len(IDS)
    (principal,) = (one for one in live.shared.producer_ids.quota.principals() if one.enforced)
    assert principal.resumed_admitted == principal.admitted >= 20


def test_a_batch_that_fits_a_template_is_looked_up_anew_after_the_switch_and_goes() -> None:
    live = Live()
    shell = live.shells[0]
    for _ in range(3):
        assert live.goes(shell, produce_of(1))
    live.switch(shadow=False)
    for _ in range(3):
        assert live.goes(shell, produce_of(1))
    assert shell.records[-1].held_ms == 0.0
