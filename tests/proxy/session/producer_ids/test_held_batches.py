"""A batch that a connection holds is not overtaken by a later one on another connection.

Its partition's leader has moved, and the producer sends the next batches there: the broker would take any of
them for the first of an id that it does not know, and refuse the held one for good. Wire-semantics 3.5.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sluice.proxy.session.connection_states import State
from sluice.proxy.session.producer_ids.batches import GateKey
from sluice.proxy.session.producer_ids.gate_table import GateTable, GateTables
from sluice.proxy.session.producer_ids.held_batches import Holding
from sluice.proxy.session.producer_ids.verdict import RefusalReason, Verdict
from sluice.quotas.limits.limits import QuotaLimits
from testkit.proxy.playbook import Shell
from testkit.proxy.refusing_session import BUDGET_MS, limits_of, refusals_of, shells
from tests.proxy.session.over_budget.test_over_budget import idempotent
from tests.proxy.session.producer_ids.test_gate import BUDGET_MS as HOLD_MS
from tests.proxy.session.producer_ids.test_gate import BUF, Rig, head

KEY: GateKey = (7, b"orders", 0)
OTHER: GateKey = (7, b"orders", 1)


def test_what_is_above_a_held_batch_of_the_same_epoch_is_blocked_while_it_is_held() -> None:
    table = GateTable()
    holding = Holding(table.held, {KEY: (1, 10)})
    assert table.blocks({KEY: (1, 20)}, 0.0)
    for other in ({KEY: (1, 10)}, {KEY: (1, 0)}, {KEY: (0, 20)}, {KEY: (2, 20)}, {OTHER: (1, 20)}):
        assert not table.blocks(other, 0.0)
    holding.end()
    assert not table.blocks({KEY: (1, 20)}, 0.0)
    assert len(table.held) == 0


def test_what_two_connections_hold_is_held_until_both_have_let_go() -> None:
    table = GateTable()
    later, first = Holding(table.held, {KEY: (0, 10)}), Holding(table.held, {KEY: (0, 0)})
    assert table.held.before(KEY, 0, 20) == 0
    first.end()
    assert table.held.before(KEY, 0, 20) == 10
    first.end()
    assert table.held.before(KEY, 0, 20) == 10
    later.end()
    assert len(table.held) == 0


def test_what_was_refused_for_a_held_batchs_sake_is_the_gate_when_that_has_gone() -> None:
    """On the wire: 0 held, 1 refused for it, 0 goes, 2: the broker misses 1."""
    table = GateTable()
    holding = Holding(table.held, {KEY: (0, 0)})
    table.refused({KEY: (0, 10)}, 0.0)
    holding.end()
    table.forwarded({KEY: (0, 0)}, 1.0)
    assert table.blocks({KEY: (0, 20)}, 2.0)
    assert not table.blocks({KEY: (0, 10)}, 2.0)


def test_a_batch_that_goes_on_one_connection_is_waited_for_on_no_other() -> None:
    """The client has left the other, which has not shown yet."""
    table = GateTable()
    Holding(table.held, {KEY: (0, 0)})
    Holding(table.held, {KEY: (0, 30)})
    table.forwarded({KEY: (0, 0)}, 0.0)
    assert not table.blocks({KEY: (0, 10)}, 0.0)
    assert table.blocks({KEY: (0, 40)}, 0.0)
    table.forwarded({KEY: (1, 0)}, 0.0)
    assert len(table.held) == 0


def test_a_table_is_kept_while_a_connection_holds_something() -> None:
    tables = GateTables(idle_ms=10.0)
    table = tables.table("alice", 0.0)
    holding = Holding(table.held, {KEY: (0, 0)})
    tables.expire(1e6)
    assert tables.table("alice", 1e6) is table
    assert tables.has_gates("alice")
    holding.end()
    assert not tables.has_gates("alice")
    tables.expire(2e6)
    assert tables.counts() == []


def test_what_waits_for_its_id_is_not_overtaken_by_what_would_pass_as_resumed() -> None:
    rig = Rig()
    rig.spend()
    moved = rig.connection()
    assert rig.judge(head(1)) is Verdict.HOLD
    assert rig.judge(head(1, 10), gate=moved) is Verdict.REFUSE
    assert moved.reason is RefusalReason.GATE
    rig.quota.serve(60_000.0)
    assert rig.gate.wake(60_000.0) is Verdict.ADMIT
    assert rig.judge(head(1, 10), gate=moved, now_ms=60_000.0) is Verdict.REFUSE  # it has not gone yet
    rig.gate.forwarded(60_000.0)
    assert rig.judge(head(1, 20), gate=moved, now_ms=60_000.0) is Verdict.REFUSE
    assert rig.judge(head(1, 10), gate=moved, now_ms=60_000.0) is Verdict.ADMIT
    moved.forwarded(60_000.0)
    assert rig.judge(head(1, 20), gate=moved, now_ms=60_000.0) is Verdict.ADMIT
    moved.forwarded(60_000.0)
    assert len(rig.table) == len(rig.table.held) == 0


def test_when_it_is_refused_it_is_a_gate_and_when_it_is_dropped_it_is_none() -> None:
    rig = Rig()
    rig.spend()
    rig.refuse(head(1))
    assert len(rig.table.held) == 0
    assert list(rig.table.gates) == [(1, b"orders", 0)]
    assert rig.judge(head(2), now_ms=HOLD_MS) is Verdict.HOLD
    assert len(rig.table.held) == 1
    rig.gate.dropped(HOLD_MS)
    assert len(rig.table.held) == 0
    assert list(rig.table.gates) == [(1, b"orders", 0)]
    assert rig.judge(head(2, 10), gate=rig.connection(), now_ms=HOLD_MS) is Verdict.ADMIT


def test_what_waits_above_a_batch_that_another_connection_holds_since_is_refused_when_its_turn_comes() -> (
    None
):
    rig = Rig()
    rig.spend()
    rig.principal.resumed.restore(0.85, 0.0)  # a token at 9 s
    waiting = rig.connection()
    assert rig.judge(head(1, 10), gate=waiting) is Verdict.HOLD
    assert rig.judge(head(1), now_ms=5_000.0) is Verdict.HOLD
    assert rig.quota.serve(9_000.0) == [waiting.ticket]
    assert waiting.wake(9_000.0) is Verdict.REFUSE
    assert waiting.reason is RefusalReason.GATE


def test_a_request_without_an_answer_holds_up_no_other() -> None:
    """Nobody sends it again, and it goes though its client has left."""
    rig = Rig()
    rig.spend()
    assert rig.judge(head(1), acks=0) is Verdict.HOLD
    assert len(rig.table.held) == 0


def test_only_the_first_batches_of_what_waits_for_another_quota_are_waited_for() -> None:
    rig = Rig()
    rig.admit(head(1))
    beside = rig.connection()
    assert beside.judge(BUF, [head(1, 10), head(1, 0, partition=1)], -1, 0.0, 1.0) is Verdict.PASS
    assert beside.hold_first(0.0)
    assert rig.judge(head(1, 20, partition=2)) is Verdict.PASS
    assert rig.judge(head(1, 20, topic=1)) is Verdict.PASS
    assert rig.judge(head(1, 20)) is Verdict.PASS
    assert rig.judge(head(1, 10, partition=1)) is Verdict.REFUSE
    beside.forwarded(0.0)
    assert len(rig.table.held) == 0
    assert not rig.gate.hold_first(0.0)


def test_what_passed_before_is_not_waited_for_when_a_later_request_waits() -> None:
    rig = Rig()
    rig.admit(head(1))
    assert rig.judge(head(1, 0, partition=1)) is Verdict.PASS
    assert rig.judge(head(1, 10)) is Verdict.PASS
    assert not rig.gate.hold_first(0.0)
    assert rig.judge(head(-1)) is Verdict.PASS
    assert not rig.gate.hold_first(0.0)


ID_LIMIT = limits_of(1_000, refuses=False, producer_ids_rate=1_000)
REFUSING = limits_of(1_000)
LIMITS = pytest.mark.parametrize("limits", [ID_LIMIT, REFUSING], ids=["ids", "refuses"])


def holding(limits: QuotaLimits) -> tuple[Shell, Shell]:
    """The first waits for 1.5 s for its bytes, with the first batch of its producer."""
    neighbour, held, moved = shells(3, limits)
    neighbour.client_sends(idempotent(0, 2_400, producer_id=1))
    neighbour.to_broker.clear()
    held.client_sends(idempotent(0))
    assert held.state is State.HOLDING
    return held, moved


@LIMITS
def test_what_waits_for_its_bytes_is_not_overtaken(limits: QuotaLimits) -> None:
    held, moved = holding(limits)
    moved.client_sends(idempotent(1))
    assert not moved.to_broker
    assert [number for number, _, _ in refusals_of(moved)] == [1]
    for shell in (held, moved):
        shell.advance(BUDGET_MS)
    assert bytes(held.to_broker) == idempotent(0)
    moved.client_sends(idempotent(1))
    moved.advance(BUDGET_MS)
    assert bytes(moved.to_broker) == idempotent(1)
    tables = held.shared.producer_ids.tables
    assert not tables.has_gates(held.session.user)


def leaves(shell: Shell) -> None:
    shell.client_leaves()
    shell.wake()


def drains(shell: Shell) -> None:
    shell.drain()


def closes(shell: Shell) -> None:
    shell.session.closed(shell.now_ms)


@LIMITS
@pytest.mark.parametrize("end", [leaves, drains, closes])
def test_what_is_dropped_holds_up_no_other(end: Callable[[Shell], None], limits: QuotaLimits) -> None:
    held, moved = holding(limits)
    assert held.shared.producer_ids.tables.has_gates(held.session.user)
    end(held)
    assert not held.to_broker
    assert not held.shared.producer_ids.tables.has_gates(held.session.user)
    moved.client_sends(idempotent(1))
    moved.advance(BUDGET_MS)
    assert bytes(moved.to_broker) == idempotent(1)


def test_what_waits_for_its_bytes_and_is_refused_is_a_gate_from_then_on() -> None:
    neighbour, held, moved = shells(3)
    neighbour.client_sends(idempotent(0, 9_000, producer_id=1))
    held.client_sends(idempotent(0))
    for shell in (held, moved):
        shell.advance(BUDGET_MS)
    assert [number for number, _, _ in refusals_of(held)] == [0]
    (table,) = held.shared.producer_ids.tables._tables.values()
    assert (len(table.held), list(table.gates)) == (0, [KEY])
    moved.client_sends(idempotent(1))
    assert [number for number, _, _ in refusals_of(moved)] == [1]


@LIMITS
def test_a_limit_that_goes_lets_what_waits_go_and_what_is_behind_it_after_it(limits: QuotaLimits) -> None:
    held, moved = holding(limits)
    held.shared.quotas.reload(QuotaLimits(), held.now_ms)
    moved.client_sends(idempotent(1))
    assert [number for number, _, _ in refusals_of(moved)] == [1]
    held.advance(1.0)
    assert bytes(held.to_broker) == idempotent(0)
    moved.client_sends(idempotent(1))
    assert bytes(moved.to_broker) == idempotent(1)
