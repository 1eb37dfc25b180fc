"""A user's table of gates is full: what is kept from overtaking a refused batch, and what goes on."""

from __future__ import annotations

from sluice.proxy.session.policy import SessionPolicy
from sluice.proxy.session.producer_ids.batches import GateKey
from sluice.proxy.session.producer_ids.gate_table import GateTable, GateTables
from sluice.proxy.session.producer_ids.untracked import Untracked
from sluice.proxy.session.producer_ids.verdict import RefusalReason, Verdict
from sluice.proxy.session.session import Session
from sluice.quotas.limits.limits import QuotaLimits
from testkit.proxy.playbook import Shell
from testkit.proxy.refusing_session import BUDGET_MS, refusals_of
from tests.proxy.session.over_budget.test_over_budget import behind_a_debt, idempotent
from tests.proxy.session.producer_ids.test_gate import BUDGET_MS as HOLD_MS
from tests.proxy.session.producer_ids.test_gate import Rig, head

KEY: GateKey = (7, b"orders", 0)
OTHER: GateKey = (7, b"orders", 1)
EXPIRY_MS = 120_000.0


def full_table(now_ms: float = 0.0) -> GateTable:
    table = GateTable(max_gates=1, expiry_ms=EXPIRY_MS)
    table.refused({(1, b"t", 0): (0, 0)}, now_ms)
    return table


def test_what_comes_behind_a_first_batch_without_a_gate_is_blocked_until_that_has_come_again() -> None:
    table = full_table()
    table.refused({KEY: (0, 0)}, 5.0)
    assert table.blocks({KEY: (0, 10)}, 6.0)
    assert not table.blocks({KEY: (0, 0)}, 6.0)
    table.forwarded({KEY: (0, 0)}, 7.0)
    assert not table.blocks({KEY: (0, 10)}, 8.0)


def test_other_partitions_ids_and_epochs_go_on_in_the_midst_of_their_sequences() -> None:
    table = full_table()
    table.refused({KEY: (1, 0)}, 5.0)
    for other in ({OTHER: (1, 10)}, {(8, b"orders", 0): (1, 10)}, {KEY: (0, 10)}, {KEY: (2, 10)}):
        assert not table.blocks(other, 6.0)


def test_a_first_batch_that_is_refused_once_more_is_waited_for_once_more() -> None:
    table = full_table()
    table.refused({KEY: (0, 0)}, 5.0)
    table.forwarded({KEY: (0, 0)}, 6.0)
    table.refused({KEY: (0, 0)}, 7.0)
    assert table.blocks({KEY: (0, 10)}, 8.0)


def test_a_later_batch_that_found_no_gate_holds_up_nobody() -> None:
    """The broker knows its producer there, and refuses what comes too early for now, not for good."""
    table = full_table()
    table.refused({KEY: (0, 10)}, 5.0)
    assert not table.blocks({KEY: (0, 20)}, 6.0)


def test_what_is_refused_behind_one_without_a_gate_does_not_keep_it() -> None:
    table = full_table()
    table.refused({KEY: (0, 0)}, 5.0)
    table.refused({KEY: (0, 10)}, 100_000.0)
    assert table.blocks({KEY: (0, 10)}, 120_004.0)
    assert not table.blocks({KEY: (0, 10)}, 120_005.0)


def test_each_is_waited_for_as_long_as_a_gate_however_many_come_after_it() -> None:
    untracked = Untracked(EXPIRY_MS)
    untracked.add(KEY, 0, 0.0)
    for seconds in range(1, 360):
        untracked.add((seconds, b"t", 0), 0, seconds * 1_000.0)
        untracked.expire(seconds * 1_000.0)
        assert untracked.has(KEY, 0) is (seconds < 120)
    assert not untracked.expire(478_999.0)
    assert untracked.expire(479_000.0)


def test_of_a_hundred_thousand_made_up_ones_no_other_waits_with_them() -> None:
    """With a Bloom filter in this place, one client of a user stopped his colleagues for minutes."""
    table = full_table()
    live = {(number, b"orders", 0): (0, 10) for number in range(5_000)}
    for number in range(100_000):
        table.refused({(99, b"made-up", number): (0, 0)}, 1.0)
    assert not any(table.blocks({key: place}, 2.0) for key, place in live.items())
    assert table.blocks({(99, b"made-up", 0): (0, 10)}, 2.0)


def test_beyond_so_many_of_a_user_none_more_is_remembered_and_none_is_forgotten() -> None:
    untracked = Untracked(EXPIRY_MS, max_batches=2)
    for number in range(4):
        untracked.add((number, b"t", 0), 0, float(number))
    untracked.add((0, b"t", 0), 0, 5.0)
    assert [untracked.has((number, b"t", 0), 0) for number in range(4)] == [True, True, False, False]


def test_all_that_came_again_are_waited_for_no_more() -> None:
    """900 new producers of 50 partitions: with the latest 20,000 alone remembered, the others had to wait."""
    table = full_table()
    first = [(number, b"t", partition) for number in range(900) for partition in range(50)]
    for key in first:
        table.refused({key: (0, 0)}, 1.0)
    for key in first:
        table.forwarded({key: (0, 0)}, 2.0)
    assert not any(table.blocks({key: (0, 10)}, 3.0) for key in first)


def test_a_table_is_kept_and_its_user_looked_at_while_a_batch_without_a_gate_is_waited_for() -> None:
    tables = GateTables(max_gates=1, expiry_ms=1_000.0, idle_ms=10.0)
    table = tables.table("alice", 0.0)
    table.refused({KEY: (0, 0)}, 0.0)
    table.refused({OTHER: (0, 0)}, 500.0)
    tables.expire(1_499.0)
    assert len(table) == 0
    assert tables.has_gates("alice")
    assert tables.table("alice", 1_499.0) is table
    tables.expire(1_510.0)
    assert not tables.has_gates("alice")
    assert tables.counts() == []


def test_a_known_ids_further_partition_refused_without_a_gate_is_not_overtaken() -> None:
    rig = Rig(max_gates=1)
    rig.admit(head(1))
    rig.table.refused({(1, b"orders", 0): (0, 10)}, 0.0)
    beside = rig.connection()
    assert rig.judge(head(1, 20), head(1, 0, partition=1), gate=beside) is Verdict.REFUSE
    assert rig.judge(head(1, 10, partition=1), gate=beside) is Verdict.REFUSE
    assert beside.reason is RefusalReason.GATE
    assert rig.judge(head(1, 0, partition=1), now_ms=1.0) is Verdict.ADMIT
    rig.gate.forwarded(1.0)
    assert rig.judge(head(1, 10, partition=1), now_ms=2.0, gate=beside) is not Verdict.REFUSE


def test_a_refused_first_batch_is_not_overtaken_by_the_next_of_its_known_id_when_gates_are_over() -> None:
    """The full table's gates are older than the refusal that found no room."""
    rig = Rig(max_gates=1)
    rig.spend()
    rig.refuse(head(1))
    later_ms = 100_000.0
    rig.spend()
    rig.table.refused({(2, b"orders", 0): (0, 0)}, later_ms)
    rig.principal.learn(2, later_ms)
    now_ms = later_ms + EXPIRY_MS - HOLD_MS
    rig.table.expire(now_ms)
    assert len(rig.table) == 0
    assert rig.judge(head(2, 10), now_ms=now_ms) is Verdict.REFUSE


def test_under_a_byte_rate_that_refuses_the_next_batch_does_not_overtake_one_without_a_gate() -> None:
    shell = behind_a_debt(8_000)
    table = shell.shared.producer_ids.tables.table(shell.session.user, shell.now_ms)
    table.refused({(99, b"t", number): (0, 0) for number in range(20_000)}, shell.now_ms)
    shell.client_sends(idempotent(0))
    shell.advance(BUDGET_MS)
    assert [number for number, _, _ in refusals_of(shell)] == [0]
    assert table.overflows == 1
    shell.advance(60_000.0)
    shell.client_sends(idempotent(1))
    ((number, _, message),) = refusals_of(shell)
    assert number == 1
    assert message.endswith(": an earlier batch of this producer waits for its turn")
    shell.client_sends(idempotent(0) + idempotent(1))
    assert bytes(shell.to_broker) == idempotent(0) + idempotent(1)


def test_nor_does_it_when_the_limit_is_gone_and_the_gates_are_over() -> None:
    shell = behind_a_debt(8_000)
    tables = shell.shared.producer_ids.tables
    table = tables.table(shell.session.user, shell.now_ms)
    table.refused({(99, b"t", number): (0, 0) for number in range(20_000)}, shell.now_ms)
    shell.advance(100_000.0)
    table.refused({KEY: (0, 0)}, shell.now_ms)
    shell.advance(60_000.0)
    tables.expire(shell.now_ms)
    assert len(table) == 0
    shell.shared.quotas.reload(QuotaLimits(), shell.now_ms)
    again = Shell(Session(shell.shared, SessionPolicy(), "10.0.0.1"), now_ms=shell.now_ms)
    again.client_sends(idempotent(1))
    assert [number for number, _, _ in refusals_of(again)] == [1]
    again.client_sends(idempotent(0) + idempotent(1))
    assert bytes(again.to_broker) == idempotent(0) + idempotent(1)
