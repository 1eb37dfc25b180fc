"""Known batches pass without a look-up until a layer turns; and what a connection leaves behind elsewhere."""

from __future__ import annotations

from math import inf

import pytest

from sluice.protocol.produce import BatchHead
from sluice.protocol.transactions.requests import Addition
from sluice.proxy.session.producer_ids.gate import ProducerGate
from sluice.proxy.session.producer_ids.verdict import RefusalReason, Verdict
from sluice.quotas.producer_ids.buckets import BucketShape
from sluice.quotas.producer_ids.principal import ProducerIdSettings
from sluice.quotas.producer_ids.store import ExactStore
from tests.proxy.session.producer_ids.test_gate import BUDGET_MS, RATE, Rig, head

MINUTE_MS = 60_000.0
HOUR_MS = 60 * MINUTE_MS


@pytest.fixture
def look_ups(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The ids that stores were asked for, in the order of the questions."""
    asked: list[int] = []
    seen = ExactStore.seen

    def counted(store: ExactStore, producer_id: int, now_ms: float) -> bool:
        asked.append(producer_id)
        return seen(store, producer_id, now_ms)

    monkeypatch.setattr(ExactStore, "seen", counted)
    return asked


def partitions(first: int, count: int) -> list[BatchHead]:
    """Batches of one known id, each to a partition of its own."""
    return [head(1, 10, partition=number) for number in range(first, first + count)]


def test_the_same_batches_pass_without_a_look_up_and_others_do_not(look_ups: list[int]) -> None:
    rig = Rig()
    rig.admit(head(1))
    look_ups.clear()
    assert rig.judge(head(1, 10)) is Verdict.PASS
    assert look_ups == []
    assert rig.judge(head(1, 20), head(1, 0, partition=1)) is Verdict.PASS
    assert look_ups
    look_ups.clear()
    assert rig.judge(head(1, 30), head(1, 10, partition=1)) is Verdict.PASS
    assert rig.judge(head(1, 40)) is Verdict.PASS
    assert look_ups == []
    assert rig.judge(head(2, 0), head(1, 50)) is Verdict.ADMIT
    assert 2 in look_ups


def test_an_id_behind_a_batch_without_one_is_judged() -> None:
    rig = Rig()
    assert rig.judge(head(-1), head(5, partition=1)) is Verdict.ADMIT


@pytest.mark.parametrize(("expiration_h", "ends_h"), [(24, 1.0), (4, 0.5)])
def test_the_short_cut_ends_when_a_layer_of_ids_or_of_pairs_is_over(
    expiration_h: float, ends_h: float, look_ups: list[int]
) -> None:
    """A layer of ids takes an hour; one of pairs (id, partition) an eighth of the broker's expiration: the
    earlier end counts."""
    rig = Rig(ProducerIdSettings(buckets=BucketShape(expiration_ms=expiration_h * HOUR_MS)))
    rig.admit(head(1))
    ends_ms = rig.gate.passes_until(1)[1]
    assert ends_ms == ends_h * HOUR_MS
    look_ups.clear()
    assert rig.judge(head(1, 10), now_ms=ends_ms - 1.0) is Verdict.PASS
    assert look_ups == []
    assert rig.judge(head(1, 20), now_ms=ends_ms) is Verdict.PASS
    assert look_ups, "at its end it is looked up, and so put into the new layer"
    assert rig.gate.passes_until(1)[1] > ends_ms


def test_sixty_four_partitions_are_remembered_and_no_more(look_ups: list[int]) -> None:
    rig = Rig()
    rig.admit(head(1))
    for count, is_remembered in ((64, True), (65, False)):
        assert rig.judge(*partitions(1_000 * count, count)) is Verdict.PASS
        look_ups.clear()
        assert rig.judge(*partitions(1_000 * count, count)) is Verdict.PASS
        assert (not look_ups) is is_remembered


def test_one_partition_too_many_begins_anew_with_the_latest(look_ups: list[int]) -> None:
    rig = Rig()
    rig.admit(head(1))
    assert rig.judge(*partitions(1, 63)) is Verdict.PASS
    look_ups.clear()
    assert rig.judge(head(1, 10)) is Verdict.PASS
    assert look_ups == [], "64 with the first"
    assert rig.judge(head(1, 10, partition=99)) is Verdict.PASS
    look_ups.clear()
    assert rig.judge(head(1, 20, partition=99)) is Verdict.PASS
    assert look_ups == []
    assert rig.judge(head(1, 20)) is Verdict.PASS
    assert look_ups


def test_another_client_or_limit_begins_anew(look_ups: list[int]) -> None:
    rig = Rig()
    rig.admit(head(1))
    rig.gate.use("alice", RATE, enforced=True, client=("10.0.0.1", "app"))
    assert rig.gate.passes_until(1)[1] == -inf
    look_ups.clear()
    assert rig.judge(head(1, 10)) is Verdict.PASS
    assert look_ups


def test_a_batch_without_an_id_always_passes_again_and_one_with_the_id_0_as_others_do() -> None:
    rig = Rig()
    assert rig.gate.passes_until(-1) == ((), inf)
    rig.admit(head(0))
    gates, ends_ms = rig.gate.passes_until(0)
    assert ends_ms < inf
    rig.spend()
    rig.refuse(head(0, 20), head(2, partition=1), gate=rig.connection())
    assert len(gates) == 2, "the gates of its principal, as they are set"


def test_what_is_not_remembered_until_it_goes_takes_no_short_cut() -> None:
    rig = Rig()
    assert rig.judge(head(1)) is Verdict.ADMIT
    rig.gate.dropped(0.0)
    assert rig.judge(head(1)) is Verdict.ADMIT


def gates_only(rig: Rig, user: str = "alice") -> ProducerGate:
    """A connection whose user has no limit on ids, and one on bytes that refuses."""
    gate = ProducerGate(rig.quota, rig.tables)
    gate.use_gates(user)
    return gate


def test_without_a_limit_on_ids_no_id_is_remembered_and_the_table_of_gates_kept(
    look_ups: list[int],
) -> None:
    """The table is asked for once in half an hour at least: one that none asks for in an hour is dropped."""
    rig = Rig()
    gate = gates_only(rig)
    for now_ms, ends_ms in ((0.0, 0.5), (0.5, 1.0), (0.75, 1.0), (1.0, 1.5)):
        assert rig.judge(head(1), gate=gate, now_ms=now_ms * HOUR_MS) is Verdict.PASS
        assert gate.passes_until(1)[1] == ends_ms * HOUR_MS
    assert look_ups == []
    rig.tables.expire(1.75 * HOUR_MS)
    gate.refuse_batches(bytearray(b"orders"), [head(1, 10)], 1.75 * HOUR_MS)
    assert rig.judge(head(1, 20), gate=gate, now_ms=1.75 * HOUR_MS) is Verdict.REFUSE


def test_a_limit_on_ids_that_comes_later_counts_them() -> None:
    rig = Rig()
    gate = gates_only(rig)
    assert rig.judge(head(1), gate=gate) is Verdict.PASS
    gate.use("alice", RATE, enforced=True)
    assert rig.judge(head(1, 10), gate=gate) is Verdict.ADMIT


def test_what_another_quota_refuses_is_a_gate_for_all_and_gives_its_token_back() -> None:
    rig = Rig()
    assert rig.judge(head(1)) is Verdict.ADMIT
    rig.gate.refuse_batches(bytearray(b"orders"), [head(1)], 0.0)
    assert rig.principal.main.tokens(0.0) == RATE
    assert len(rig.gate.passes_until(1)[0]) == 1
    assert rig.judge(head(1, 10)) is Verdict.REFUSE
    assert rig.judge(head(1, 10), gate=rig.connection()) is Verdict.REFUSE
    assert rig.judge(head(1)) is Verdict.ADMIT


def test_what_is_added_to_a_transaction_lifts_no_gate() -> None:
    """Nor that of a batch that this connection was let through before."""
    rig = Rig()
    rig.admit(head(1))
    assert rig.judge(head(1, 10), head(1, 0, partition=1)) is Verdict.PASS
    rig.table.refused({(1, b"orders", 0): (0, 10)}, 0.0)
    added = Addition(b"t", 7, 0, [(b"orders", (3,))])
    assert rig.gate.judge_transaction([added], 0.0, BUDGET_MS) is Verdict.ADMIT
    rig.gate.forwarded(0.0)
    assert len(rig.table) == 1


def test_an_id_above_its_first_epoch_is_resumed_in_a_transaction_and_one_of_0_is_new() -> None:
    rig = Rig()
    rig.gate.hand_out(0, 0.0)
    for producer_id, epoch in ((0, 0), (7, 1)):
        added = Addition(b"t", producer_id, epoch, [(b"orders", (3,))])
        assert rig.gate.judge_transaction([added], 0.0, BUDGET_MS) is Verdict.ADMIT
        assert rig.gate.asked_ids == 1
        rig.gate.forwarded(0.0)
        assert rig.gate.asked_ids == 0
    assert (rig.principal.admitted, rig.principal.resumed_admitted) == (2, 1)


def test_a_resumed_id_that_waited_goes_when_its_token_comes_and_so_does_a_new_one_of_a_full_table() -> None:
    rig = Rig(max_gates=1)
    rig.spend()
    rig.principal.resumed.restore(0.0, 0.0)
    resumed, new = rig.connection(), rig.connection()
    assert rig.judge(head(1, 10), gate=resumed) is Verdict.HOLD
    (ticket,) = rig.quota.serve(60 * MINUTE_MS)
    assert ticket is resumed.ticket
    assert resumed.wake(60 * MINUTE_MS) is Verdict.ADMIT
    resumed.forwarded(60 * MINUTE_MS)
    rig.principal.main.restore(0.0, 60 * MINUTE_MS)
    assert rig.judge(head(2), gate=new, now_ms=60 * MINUTE_MS) is Verdict.HOLD
    rig.table.refused({(8, b"orders", 0): (0, 1), (9, b"orders", 0): (0, 1)}, 60 * MINUTE_MS)
    assert rig.quota.serve(61 * MINUTE_MS) == [new.ticket]
    assert new.wake(61 * MINUTE_MS) is Verdict.ADMIT


def test_the_wait_of_a_held_request_is_counted_from_when_it_came() -> None:
    rig = Rig()
    rig.spend()
    assert rig.judge(head(1), now_ms=1_000.0) is Verdict.HOLD
    assert rig.gate.count_hold(5_500.0) == 4_500.0
    assert (rig.principal.held_ms, rig.principal.holds) == (4_500.0, 1)
    rig.gate.dropped(5_500.0)
    assert rig.judge(head(1), now_ms=6_000.0) is Verdict.HOLD
    assert rig.gate.count_hold(6_500.0) == 500.0
    assert (rig.principal.held_ms, rig.principal.holds) == (5_000.0, 2)


def test_a_refusal_says_which_quota_and_whether_the_batch_may_be_sent_again() -> None:
    rig = Rig()
    rig.spend()
    rig.refuse(head(1))
    quota = "quota producer_ids_rate of user alice (60 new ids an hour)"
    assert rig.gate.message == f"{quota}: this producer id waits for its turn; the batch may be sent again"
    assert rig.judge(head(1, 10), now_ms=BUDGET_MS) is Verdict.REFUSE
    assert rig.gate.reason is RefusalReason.GATE
    assert rig.gate.message == f"{quota}: an earlier batch of this producer waits for its turn"


@pytest.mark.parametrize("sequences", [(0, 1), (1, 0)])
def test_one_batch_behind_its_first_makes_an_id_resumed(sequences: tuple[int, int]) -> None:
    rig = Rig()
    rig.admit(head(1, sequences[0]), head(1, sequences[1], partition=1))
    assert rig.principal.resumed_admitted == 1


def test_two_first_batches_of_an_id_are_of_a_new_one() -> None:
    rig = Rig()
    rig.admit(head(1), head(1, partition=1))
    assert (rig.principal.admitted, rig.principal.resumed_admitted) == (1, 0)


@pytest.mark.parametrize("epochs", [(57, 57), (0, 57), (57, 0)])
def test_an_id_above_its_first_epoch_is_resumed_at_the_beginning_of_its_sequence_too(
    epochs: tuple[int, int],
) -> None:
    """As in each transaction of version 2 (KIP-890), and after an epoch is raised (KIP-360): it waited as a
    new one where the broker or proxy that had seen it was gone, and was refused."""
    rig = Rig()
    rig.spend()
    rig.admit(head(1, epoch=epochs[0]), head(1, partition=1, epoch=epochs[1]))
    assert (rig.principal.admitted, rig.principal.resumed_admitted) == (1, 1)
    assert rig.judge(head(2, epoch=0)) is Verdict.HOLD


def test_with_a_full_table_what_begins_a_later_epoch_goes_at_once_and_when_its_turn_comes() -> None:
    """Nothing of its epoch comes before it, so that it can be ahead of no refused batch."""
    rig = Rig(max_gates=1)
    rig.spend()
    waiting, behind = rig.connection(), rig.connection()
    rig.table.refused({(8, b"orders", 0): (0, 1), (9, b"orders", 0): (0, 1)}, 0.0)
    rig.admit(head(1, epoch=57))
    assert rig.judge(head(2, 1, epoch=57), gate=behind) is Verdict.HOLD
    assert behind.ticket is None
    rig.principal.resumed.restore(0.95, 0.0)  # a token in 3 s
    assert rig.judge(head(3, epoch=57), gate=waiting) is Verdict.HOLD
    assert rig.quota.serve(3_001.0) == [waiting.ticket]
    assert waiting.wake(3_001.0) is Verdict.ADMIT


def test_a_transaction_that_waited_goes_when_its_turn_comes_though_a_gate_found_no_room() -> None:
    """Nothing is produced before it, and so none of its batches can have been refused."""
    rig = Rig(max_gates=1)
    rig.principal.resumed.restore(0.95, 0.0)  # a token in 3 s
    added = Addition(b"t", 7, 57, [(b"orders", (3,))])
    assert rig.gate.judge_transaction([added], 0.0, BUDGET_MS) is Verdict.HOLD
    rig.table.refused({(8, b"orders", 0): (0, 1), (9, b"orders", 0): (0, 1)}, 0.0)
    assert rig.quota.serve(3_001.0) == [rig.gate.ticket]
    assert rig.gate.wake(3_001.0) is Verdict.ADMIT


def lets_go(rig: Rig, how: str) -> None:
    if how == "goes":
        rig.gate.forwarded(0.0)
    elif how == "is dropped":
        rig.gate.dropped(0.0)
    else:
        rig.gate.refuse_batches(bytearray(b"orders"), [head(1)], 0.0)


@pytest.mark.parametrize("how", ["goes", "is dropped", "is refused for its bytes"])
def test_a_connection_at_rest_keeps_nothing_of_the_request_that_it_judged(how: str) -> None:
    """One request may bring batches for thousands of partitions, and its connection be idle for hours."""
    rig = Rig()
    assert rig.judge(head(1)) is Verdict.ADMIT
    assert rig.gate._batches
    lets_go(rig, how)
    assert rig.gate._batches == {}


def test_nor_does_it_when_its_budget_is_over() -> None:
    rig = Rig()
    rig.spend()
    rig.refuse(head(1))
    assert rig.gate._batches == {}
