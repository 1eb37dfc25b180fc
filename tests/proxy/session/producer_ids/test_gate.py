"""One connection's machine: each verdict, and what it leaves behind."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from sluice.protocol.produce import BatchHead
from sluice.proxy.session.producer_ids.gate import ProducerGate
from sluice.proxy.session.producer_ids.gate_table import GateTable, GateTables
from sluice.proxy.session.producer_ids.shared import ProducerIds
from sluice.proxy.session.producer_ids.verdict import RefusalReason, Verdict
from sluice.quotas.producer_ids.principal import PrincipalIds, ProducerIdSettings
from sluice.quotas.producer_ids.quota import ProducerIdQuota

RATE = 60.0
BUDGET_MS = 8_000.0
BUF = bytearray(b"ordersreturns")


def head(
    producer_id: int, sequence: int = 0, *, partition: int = 0, epoch: int = 0, topic: int = 0
) -> BatchHead:
    start, end = ((0, 6), (6, 13))[topic]
    return start, end, partition, 500, producer_id, epoch, sequence, 10


class Rig:
    """Connections of one principal that share a quota and gates."""

    def __init__(self, settings: ProducerIdSettings | None = None, *, max_gates: int = 100) -> None:
        self.quota = ProducerIdQuota(settings or replace(ProducerIdSettings(), forced_after_ms=1e9))
        self.tables = GateTables(max_gates)
        self.gate = self.connection()

    def connection(self, user: str = "alice", *, enforced: bool = True) -> ProducerGate:
        gate = ProducerGate(self.quota, self.tables)
        gate.use(user, RATE, enforced=enforced)
        return gate

    @property
    def principal(self) -> PrincipalIds:
        return self.quota.principal("alice", RATE, 0.0)

    @property
    def table(self) -> GateTable:
        return self.tables.table("alice", 0.0)

    def spend(self) -> None:
        self.principal.main.restore(0.0, 0.0)

    def judge(
        self, *heads: BatchHead, now_ms: float = 0.0, acks: int = -1, gate: ProducerGate | None = None
    ) -> Verdict:
        return (gate or self.gate).judge(BUF, heads, acks, now_ms, now_ms + BUDGET_MS)

    def admit(self, *heads: BatchHead, now_ms: float = 0.0) -> None:
        assert self.judge(*heads, now_ms=now_ms) is Verdict.ADMIT
        self.gate.forwarded(now_ms)

    def refuse(self, *heads: BatchHead, now_ms: float = 0.0, gate: ProducerGate | None = None) -> None:
        """Hold it until its budget is over."""
        gate = gate or self.gate
        assert self.judge(*heads, now_ms=now_ms, gate=gate) is Verdict.HOLD
        assert gate.wake(now_ms + BUDGET_MS) is Verdict.REFUSE


def test_batches_without_a_producer_id_pass_and_leave_nothing() -> None:
    rig = Rig()
    assert rig.judge(head(-1)) is Verdict.PASS
    assert rig.judge(head(-1), head(-2, partition=1)) is Verdict.PASS
    assert rig.judge() is Verdict.PASS
    assert rig.principal.admitted == 0


def test_a_new_id_is_admitted_and_remembered_when_its_request_goes() -> None:
    rig = Rig()
    assert rig.judge(head(1)) is Verdict.ADMIT
    assert not rig.principal.store.seen(1, 0.0)
    rig.gate.forwarded(0.0)
    assert rig.principal.store.seen(1, 0.0)
    assert rig.judge(head(1, 10)) is Verdict.PASS


def test_an_admitted_request_that_never_went_gives_its_token_back() -> None:
    rig = Rig()
    assert rig.judge(head(1)) is Verdict.ADMIT
    rig.gate.dropped(0.0)
    assert rig.principal.main.tokens(0.0) == RATE
    assert not rig.principal.store.seen(1, 0.0)


def test_a_request_with_several_ids_is_judged_as_a_whole() -> None:
    rig = Rig()
    rig.admit(head(1))
    rig.spend()
    assert rig.judge(head(1, 10), head(2, partition=1)) is Verdict.HOLD


def test_above_the_rate_a_request_is_held_until_its_token_comes() -> None:
    rig = Rig()
    rig.principal.main.restore(0.9, 0.0)
    assert rig.judge(head(1), now_ms=0.0) is Verdict.HOLD
    assert rig.gate.wake_at_ms == BUDGET_MS
    assert rig.quota.serve(5_900.0) == []
    assert rig.quota.serve(6_000.0) == [rig.gate.ticket]
    assert rig.gate.wake(6_000.0) is Verdict.ADMIT
    assert not rig.gate.is_holding
    rig.gate.forwarded(6_000.0)
    assert rig.principal.store.seen(1, 6_000.0)


def test_a_wake_that_comes_too_early_changes_nothing() -> None:
    rig = Rig()
    rig.spend()
    assert rig.judge(head(1)) is Verdict.HOLD
    assert rig.gate.wake(BUDGET_MS - 1.0) is Verdict.HOLD
    assert rig.gate.is_holding


def test_when_the_budget_is_over_it_is_refused_and_what_is_above_it_at_once() -> None:
    rig = Rig()
    rig.spend()
    rig.refuse(head(1))
    refusals = [(rig.gate.reason, rig.gate.throttle_ms)]
    assert rig.judge(head(1, 10), now_ms=BUDGET_MS) is Verdict.REFUSE
    refusals.append((rig.gate.reason, rig.gate.throttle_ms))
    assert refusals == [(RefusalReason.RATE, 1_000), (RefusalReason.GATE, 0)]
    assert rig.principal.waiting_tickets == 0


def test_the_refusals_text_names_the_quota_and_the_user() -> None:
    rig = Rig()
    rig.spend()
    rig.refuse(head(1))
    assert "producer_ids_rate" in rig.gate.message
    assert "alice" in rig.gate.message


def test_a_refused_batch_that_comes_again_begins_a_new_hold_and_lifts_its_gate_when_it_goes() -> None:
    rig = Rig()
    rig.spend()
    rig.refuse(head(1))
    assert rig.judge(head(1), now_ms=120_000.0) is Verdict.ADMIT
    assert len(rig.table) == 1
    rig.gate.forwarded(120_000.0)
    assert len(rig.table) == 0
    assert rig.judge(head(1, 10), now_ms=120_000.0) is Verdict.PASS


def test_a_refusal_gates_the_known_ids_of_its_request_too_and_gates_survive_admission() -> None:
    rig = Rig()
    rig.admit(head(1))
    rig.spend()
    rig.refuse(head(1, 10), head(2, partition=1))
    assert rig.judge(head(1, 20), now_ms=20_000.0) is Verdict.REFUSE
    assert rig.judge(head(1, 10), now_ms=20_000.0) is Verdict.ADMIT


def test_a_gate_is_seen_before_the_connections_last_id() -> None:
    rig = Rig()
    rig.admit(head(1))
    rig.spend()
    assert rig.judge(head(1, 10)) is Verdict.PASS
    rig.refuse(head(1, 20), head(2, partition=1), gate=rig.connection())
    assert rig.judge(head(1, 30), now_ms=BUDGET_MS) is Verdict.REFUSE


def test_a_gate_that_was_set_while_a_request_waited_holds_for_it_too() -> None:
    rig = Rig()
    rig.spend()
    rig.principal.resumed.restore(0.85, 0.0)  # a token at 9 s
    first, later = rig.connection(), rig.connection()
    assert rig.judge(head(1, 10), gate=later) is Verdict.HOLD
    assert rig.judge(head(1), gate=first) is Verdict.HOLD
    assert first.wake(8_000.0) is Verdict.REFUSE
    assert rig.quota.serve(9_000.0) == [later.ticket]
    assert later.wake(9_000.0) is Verdict.REFUSE
    assert later.reason is RefusalReason.GATE
    assert rig.principal.resumed.reserved == rig.quota.ceiling.reserved == 0


def test_a_client_that_leaves_while_held_leaves_no_gate_and_no_ticket() -> None:
    rig = Rig()
    rig.spend()
    assert rig.judge(head(1)) is Verdict.HOLD
    rig.gate.dropped(3_000.0)
    assert not rig.gate.is_holding
    assert len(rig.table) == 0
    assert rig.principal.waiting_tickets == 0


def test_without_an_answer_to_send_the_connection_ends_instead() -> None:
    rig = Rig()
    rig.spend()
    assert rig.judge(head(1), acks=0) is Verdict.HOLD
    assert rig.gate.wake(BUDGET_MS) is Verdict.CLOSE
    assert rig.judge(head(1, 10), acks=0, now_ms=BUDGET_MS) is Verdict.CLOSE


def test_after_30_seconds_and_some_refusals_a_patient_client_is_forced_in() -> None:
    rig = Rig(ProducerIdSettings())
    rig.principal.main.restore(-1e9, 0.0)
    for hold in range(3):
        rig.refuse(head(1), now_ms=hold * BUDGET_MS)
    assert rig.judge(head(1), now_ms=30_000.0) is Verdict.ADMIT
    rig.gate.forwarded(30_000.0)
    assert rig.principal.forced_admitted == 1


def test_an_unseen_id_in_the_midst_of_its_sequence_is_resumed() -> None:
    rig = Rig()
    rig.spend()
    assert rig.judge(head(1, 500)) is Verdict.ADMIT
    rig.gate.forwarded(0.0)
    assert rig.principal.resumed_admitted == 1
    assert rig.judge(head(2, 0), head(2, 7, partition=1)) is Verdict.ADMIT  # one partition is enough
    rig.gate.dropped(0.0)
    assert rig.judge(head(3, -1)) is Verdict.HOLD


def test_a_full_share_of_gates_refuses_on_and_lets_only_a_first_batch_in() -> None:
    rig = Rig(max_gates=1)
    rig.spend()
    rig.refuse(head(1))
    rig.refuse(head(2), now_ms=BUDGET_MS)
    rig.principal.main.restore(5.0, 20_000.0)
    assert rig.judge(head(2, 10), now_ms=20_000.0) is Verdict.REFUSE
    assert rig.judge(head(3, 10), now_ms=20_000.0) is Verdict.HOLD
    assert rig.gate.ticket is None
    assert rig.gate.wake(30_000.0) is Verdict.REFUSE
    assert rig.gate.reason is RefusalReason.UNTRACKED
    assert rig.judge(head(2, 0), now_ms=30_000.0) is Verdict.ADMIT
    rig.gate.forwarded(30_000.0)
    other = rig.connection("bob")
    assert rig.judge(head(9, 50), gate=other, now_ms=30_000.0) is Verdict.ADMIT


def test_what_is_not_enforced_passes_and_is_counted() -> None:
    rig = Rig()
    gate = rig.connection("carol", enforced=False)
    for producer_id in range(100):
        assert rig.judge(head(producer_id), gate=gate) is Verdict.ADMIT
        gate.forwarded(0.0)
    principal = rig.quota.principal("carol", RATE, 0.0, enforced=False)
    assert principal.admitted == 100
    assert principal.over == 40


def test_a_known_id_that_writes_on_stays_known_for_days() -> None:
    """The short cut must not keep its id out of the newest layer."""
    rig = Rig()
    rig.admit(head(1))
    for minutes in range(1, 60 * 72):
        assert rig.judge(head(1, minutes), now_ms=minutes * 60_000.0) is Verdict.PASS
    now_ms = 60 * 72 * 60_000.0
    assert rig.judge(head(1, 9_999), now_ms=now_ms, gate=rig.connection()) is Verdict.PASS
    rig.quota.expire(now_ms)
    assert rig.quota.ceiling.total == 1


def test_each_partition_of_a_known_id_counts_once_towards_the_brokers_heap() -> None:
    rig = Rig()
    rig.admit(head(1))
    for _ in range(3):
        assert rig.judge(head(1, 10), head(1, 0, partition=1), head(1, 0, topic=1)) is Verdict.PASS
    assert rig.quota.ceiling.total == 3


def test_an_id_in_the_midst_of_its_sequence_is_refused_when_its_turn_comes_if_a_gate_found_no_room() -> None:
    """While it waited, another connection's batch was refused and could not be remembered: it may be the one
    that comes before this."""
    rig = Rig(max_gates=1)
    rig.spend()
    rig.principal.resumed.restore(0.85, 0.0)  # a token at 9 s
    waiting = rig.connection()
    assert rig.judge(head(1, 10), gate=waiting) is Verdict.HOLD
    rig.table.refused({(8, b"orders", 0): (0, 1), (9, b"orders", 0): (0, 1)}, 3_000.0)
    assert rig.quota.serve(9_000.0) == [waiting.ticket]
    assert waiting.wake(9_000.0) is Verdict.REFUSE
    assert waiting.reason is RefusalReason.UNTRACKED
    assert waiting.ticket is None
    assert rig.principal.resumed.reserved == 0


def test_who_has_no_shell_any_more_is_passed_over_and_all_others_are_woken() -> None:
    shared = ProducerIds(replace(ProducerIdSettings(), forced_after_ms=1e9))
    woken: list[int] = []
    for number, owner in enumerate((None, woken.append)):
        gate = ProducerGate(shared.quota, shared.tables)
        gate.use(f"user-{number}", RATE, enforced=True)
        shared.quota.principal(f"user-{number}", RATE, 0.0).main.restore(0.9, 0.0)
        wake = None if owner is None else partial(owner, number)
        assert gate.judge(BUF, [head(1)], -1, 0.0, BUDGET_MS, wake) is Verdict.HOLD
    shared.serve(6_000.0)
    assert woken == [1]
