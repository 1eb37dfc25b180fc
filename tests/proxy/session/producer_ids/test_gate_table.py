"""Which batch may pass a gate, when a gate ends, and what happens when there is no room for another."""

from __future__ import annotations

import pytest

from sluice.proxy.session.producer_ids.batches import GateKey, first_batches, is_above
from sluice.proxy.session.producer_ids.gate_table import GateTable, GateTables

KEY: GateKey = (7, b"orders", 0)
OTHER: GateKey = (7, b"orders", 1)
MAX = 2**31 - 1


@pytest.mark.parametrize(
    ("sequence", "gate", "above"),
    [
        (0, 0, False),
        (1, 0, True),
        (0, 1, False),
        (0, MAX, True),
        (MAX, 0, False),
        (5, MAX - 5, True),
        (2**30 - 1, 0, True),
        (2**30, 0, False),
    ],
)
def test_sequences_compare_modulo_two_to_the_31(sequence: int, gate: int, above: bool) -> None:
    assert is_above(sequence, gate) is above


def test_what_is_above_the_lowest_refused_sequence_is_blocked_and_nothing_else() -> None:
    table = GateTable()
    table.refused({KEY: (0, 20)}, 0.0)
    table.refused({KEY: (0, 10)}, 0.0)
    table.refused({KEY: (0, 30)}, 0.0)
    assert table.blocks({KEY: (0, 20)}, 1.0)
    assert not table.blocks({KEY: (0, 10)}, 1.0)
    assert not table.blocks({KEY: (0, 0)}, 1.0)
    assert not table.blocks({OTHER: (0, 20)}, 1.0)
    assert table.blocks({OTHER: (0, 20), KEY: (0, 20)}, 1.0)


def test_a_gate_is_lifted_by_its_batch_or_an_earlier_one_and_not_by_a_later() -> None:
    table = GateTable()
    table.refused({KEY: (0, 10), OTHER: (0, 10)}, 0.0)
    table.forwarded({KEY: (0, 20)}, 0.0)
    assert len(table) == 2
    table.forwarded({KEY: (0, 10)}, 0.0)
    assert list(table.gates) == [OTHER]
    table.forwarded({OTHER: (0, 3)}, 0.0)
    assert len(table) == 0


def test_what_was_refused_above_a_gate_is_the_gate_when_that_has_gone() -> None:
    """On the wire: 10 (refused), 20 (refused for it), 10 again, 30 before the refusal of 20 is heard."""
    table = GateTable()
    for sequence in (10, 30, 20, 20):
        table.refused({KEY: (0, sequence)}, 0.0)
    table.forwarded({KEY: (0, 10)}, 50_000.0)
    assert not table.blocks({KEY: (0, 20)}, 169_999.0)
    assert table.blocks({KEY: (0, 30)}, 169_999.0)
    table.forwarded({KEY: (0, 20)}, 60_000.0)
    assert table.blocks({KEY: (0, 40)}, 60_000.0)
    table.forwarded({KEY: (0, 30)}, 70_000.0)
    assert len(table) == 0


def test_of_the_refused_above_a_gate_the_lowest_are_remembered_also_where_sequences_begin_anew() -> None:
    table = GateTable()
    last = 2**31 - 1
    for sequence in (last, *range(20, -1, -1)):
        table.refused({KEY: (0, sequence)}, 0.0)
    assert table.gates[KEY] == (0, last, 0.0, tuple(range(8)))
    table.refused({KEY: (0, last - 5)}, 1.0)
    assert table.gates[KEY] == (0, last - 5, 1.0, (last, *range(7)))
    table.refused({KEY: (1, 0)}, 2.0)
    assert table.gates[KEY] == (1, 0, 2.0, ())


def test_a_higher_epoch_passes_and_lifts_a_lower_one_stays_blocked() -> None:
    table = GateTable()
    table.refused({KEY: (3, 10)}, 0.0)
    assert table.blocks({KEY: (2, 0)}, 0.0)
    assert not table.blocks({KEY: (4, 50)}, 0.0)
    table.refused({KEY: (4, 0)}, 0.0)
    assert table.blocks({KEY: (3, 10)}, 0.0)
    table.forwarded({KEY: (3, 0)}, 0.0)
    assert len(table) == 1
    table.forwarded({KEY: (5, 0)}, 0.0)
    assert len(table) == 0


def test_a_gate_ends_two_minutes_after_its_own_batch_was_refused_last() -> None:
    table = GateTable()
    table.refused({KEY: (0, 10)}, 0.0)
    table.refused({KEY: (0, 10)}, 60_000.0)
    table.refused({KEY: (0, 20)}, 170_000.0)  # that it blocks others does not keep it
    assert table.blocks({KEY: (0, 20)}, 179_999.0)
    assert not table.blocks({KEY: (0, 20)}, 180_000.0)
    assert len(table) == 0


def test_a_gate_that_is_refused_anew_does_not_keep_one_that_is_over() -> None:
    for epoch, sequence in ((0, 10), (0, 5), (1, 10)):
        table = GateTable()
        table.refused({KEY: (0, 10)}, 0.0)
        table.refused({OTHER: (0, 10)}, 10.0)
        table.refused({KEY: (epoch, sequence)}, 60_000.0)
        table.expire(120_009.0)
        assert len(table) == 2
        table.expire(120_010.0)
        assert len(table) == 1
        assert table.blocks({KEY: (epoch, sequence + 1)}, 120_010.0)


def test_a_full_table_keeps_its_gates_and_says_that_others_are_missing() -> None:
    table = GateTable(max_gates=1)
    table.refused({KEY: (0, 10)}, 0.0)
    assert table.untracked_until_ms == 0.0
    table.refused({OTHER: (0, 10)}, 5.0)
    assert table.untracked_until_ms == 120_005.0
    assert table.overflows == 1
    assert table.blocks({KEY: (0, 20)}, 5.0)
    table.refused({KEY: (0, 5)}, 6.0)
    assert table.blocks({KEY: (0, 10)}, 6.0)


def test_a_name_that_no_topic_can_have_takes_no_room() -> None:
    table = GateTable(max_gates=1)
    table.refused({(7, b"x" * 30_000, 0): (0, 10)}, 0.0)
    assert len(table) == table.overflows == 0


def test_each_principal_has_a_share_of_its_own() -> None:
    tables = GateTables(max_gates=10)
    for producer_id in range(100):
        tables.table("rogue", 0.0).refused({(producer_id, b"t", 0): (0, 0)}, 0.0)
    tables.table("good", 0.0).refused({KEY: (0, 10)}, 0.0)
    assert tables.table("good", 0.0).blocks({KEY: (0, 20)}, 0.0)
    assert len(tables) == 11


def test_a_table_is_kept_while_a_connection_may_still_look_at_it() -> None:
    """Else a connection's short cut would look at one table, and refusals would go to another."""
    tables = GateTables(expiry_ms=1_000.0, idle_ms=10_000.0)
    table = tables.table("alice", 0.0)
    table.refused({KEY: (0, 0)}, 0.0)
    tables.expire(9_999.0)
    assert len(table) == 0
    assert tables.table("alice", 9_999.0) is table
    tables.expire(19_998.0)
    assert tables.counts() == [("alice", 0)]
    tables.expire(19_999.0)
    assert tables.counts() == []
    assert tables.table("alice", 20_000.0) is not table


def test_the_first_batch_of_each_id_topic_and_partition_stands_for_them() -> None:
    """Names may differ in their last byte alone; a batch without an id is nobody's."""
    buf = bytearray(b"..a1a2")
    heads = [
        (2, 4, 0, 61, 7, 1, 10, 1), (2, 4, 0, 61, 7, 1, 11, 1), (4, 6, 0, 61, 7, 2, 20, 1),
        (2, 4, 1, 61, 7, 3, 30, 1), (2, 4, 0, 61, 0, 4, 40, 1), (2, 4, 0, 61, -1, -1, -1, 1),
    ]  # fmt: skip
    assert first_batches(buf, heads) == {
        (7, b"a1", 0): (1, 10), (7, b"a2", 0): (2, 20), (7, b"a1", 1): (3, 30), (0, b"a1", 0): (4, 40),
    }  # fmt: skip


def test_a_refusal_of_an_earlier_epoch_leaves_the_gate_of_a_later_one() -> None:
    """The producer has begun anew since; what its former life still sends is fenced at the broker."""
    table = GateTable()
    table.refused({KEY: (2, 10)}, 0.0)
    table.refused({KEY: (1, 5)}, 1.0)
    assert table.gates == {KEY: (2, 10, 0.0, ())}
    assert table.blocks({KEY: (2, 11)}, 2.0)


def test_a_table_tells_how_full_it_is() -> None:
    table = GateTable(max_gates=1)
    table.refused({KEY: (0, 10), OTHER: (0, 10)}, 0.0)
    assert repr(table) == "<GateTable 1 of 1, 1 overflows>"
