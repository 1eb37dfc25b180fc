"""Produces of many batches under a limit: they leave the loop to others, and their objects count as bytes."""

from __future__ import annotations

import pytest

from sluice.proxy.session.connection_states import State
from sluice.proxy.session.producer_ids.batches import GateKey
from sluice.proxy.session.producer_ids.held_batches import HELD_BATCH_BYTES, HeldBatches, Holding
from sluice.proxy.session.producer_ids.large_turns import FREE_BATCHES
from sluice.quotas.exempt import ExemptRule, network_of
from sluice.quotas.limits.limits import QuotaLimits
from testkit.frames.frames import produce, record_batch
from testkit.proxy.playbook import Shell
from testkit.proxy.refusing_session import BUDGET_MS, USERS, limits_of, refusals_of, shells

LARGE = FREE_BATCHES + 4_000
TURN_MS = 4_000 * 0.015
"""what a large one is paid with"""
KEPT_MS = 4_000 * 0.03
IDS = limits_of(10**9, refuses=False, producer_ids_rate=1)
REFUSING = limits_of(10**9)
LIMITS = pytest.mark.parametrize("limits", [IDS, REFUSING], ids=["ids", "refuses"])


def many(batches: int, sequence: int = 0, *, producer_id: int = 7, acks: int = -1) -> bytes:
    batch = record_batch(b"", producer_id=producer_id, epoch=0, sequence=sequence)
    return produce({"orders": [(n, batch) for n in range(batches)]}, acks=acks, correlation_id=sequence)


def goes_at_ms(shell: Shell) -> float:
    return shell.session.pace.wake_at_ms - shell.now_ms if shell.state is State.MUTED else 0.0


@LIMITS
def test_large_ones_of_a_user_are_looked_at_by_turns(limits: QuotaLimits) -> None:
    first, *others = shells(4, limits)
    first.client_sends(many(LARGE))
    assert bytes(first.to_broker) == many(LARGE)
    for shell in others:
        shell.client_sends(many(LARGE))
    each_ms = TURN_MS + KEPT_MS  # for nobody knows yet whether those before it will be held
    waits_ms = [TURN_MS, TURN_MS + each_ms, TURN_MS + 2 * each_ms]
    assert [goes_at_ms(shell) for shell in others] == pytest.approx(waits_ms)
    assert not any(shell.to_broker for shell in others)
    for shell in others:
        shell.advance(goes_at_ms(shell))
        assert bytes(shell.to_broker) == many(LARGE)
    assert [shell.records for shell in others if shell.to_client] == []


@LIMITS
@pytest.mark.parametrize("batches", [1, FREE_BATCHES])
def test_one_of_a_hundred_batches_waits_for_no_turn_and_no_other_for_it(
    batches: int, limits: QuotaLimits
) -> None:
    large, *others = shells(12, limits)
    large.client_sends(many(LARGE))
    for shell in others:
        shell.client_sends(many(batches))
        assert bytes(shell.to_broker) == many(batches)


@LIMITS
def test_a_producer_of_200_partitions_at_a_hundred_requests_a_second_waits_for_nothing(
    limits: QuotaLimits,
) -> None:
    (shell,) = shells(1, limits)
    for number in range(200):
        shell.client_sends(many(200, number))
        assert bytes(shell.to_broker) == many(200, number)
        shell.to_broker.clear()
        shell.advance(10.0)


@pytest.mark.parametrize("is_exempt", [False, True], ids=["shadow", "exempt"])
def test_in_shadow_mode_and_for_who_is_exempt_there_are_no_turns(is_exempt: bool) -> None:
    quota = {"producer_ids_rate": 1.0}
    shadow = {} if is_exempt else {USERS: ["producer_ids_rate"]}
    exempt = [ExemptRule(network=network_of("10.0.0.0/8"))] if is_exempt else []
    for shell in shells(4, QuotaLimits([(USERS, quota)], shadow=shadow, exempt=exempt)):
        shell.client_sends(many(LARGE))
        assert bytes(shell.to_broker) == many(LARGE)


def test_it_waits_for_its_turn_and_its_id_no_longer_than_for_its_id_alone() -> None:
    spent, first, second = shells(3, IDS)
    spent.client_sends(many(1, producer_id=99))
    first.client_sends(many(LARGE, producer_id=1))
    assert (first.state, first.session.pace.wake_at_ms) == (State.HOLDING, first.now_ms + BUDGET_MS)
    second.client_sends(many(LARGE, producer_id=2))
    assert goes_at_ms(second) == pytest.approx(TURN_MS + KEPT_MS)
    until_ms = second.now_ms + BUDGET_MS
    second.advance(goes_at_ms(second))
    assert second.state is State.HOLDING
    assert second.session.pace.wake_at_ms == pytest.approx(until_ms)
    second.advance(BUDGET_MS)
    assert [number for number, _, _ in refusals_of(second)] == [0]
    assert second.records[-1].held_ms == pytest.approx(BUDGET_MS)


def test_who_is_refused_again_and_again_has_a_small_part_of_the_loop() -> None:
    """Each turn costs some 0.1 s of work here; what counts is how many there are."""
    spent, shell = shells(2, IDS)
    spent.client_sends(many(1, producer_id=99))
    shell.client_sends(many(LARGE))
    shell.advance(BUDGET_MS)
    refusals_of(shell)
    refused = 0
    until_ms = shell.now_ms + 10_000.0
    while shell.now_ms < until_ms:
        shell.client_sends(many(LARGE, 5))
        shell.advance(max(goes_at_ms(shell), 1.0))
        refused += len(refusals_of(shell))
    assert refused == pytest.approx(10_000.0 / (TURN_MS + KEPT_MS), abs=2)
    shell.advance(1_000.0)
    shell.client_sends(many(1, 5, producer_id=7))
    assert len(refusals_of(shell)) <= 2, "a small one is refused at once"


def test_the_turn_of_a_connection_that_ends_is_given_back() -> None:
    first, *others, last = shells(20, REFUSING)
    first.client_sends(many(LARGE))
    for shell in others:
        shell.client_sends(many(LARGE))
        shell.session.closed(shell.now_ms)
        assert not shell.to_broker
    last.client_sends(many(LARGE))
    assert goes_at_ms(last) == pytest.approx(TURN_MS)
    last.advance(TURN_MS)
    assert bytes(last.to_broker) == many(LARGE)


def test_what_waits_for_its_turn_keeps_its_order() -> None:
    first, shell = shells(2, IDS)
    first.client_sends(many(LARGE, producer_id=1))
    frames = [many(LARGE, 0, producer_id=1), many(1, 1, producer_id=1), many(LARGE, 2, producer_id=1)]
    shell.client_sends(b"".join(frames))
    assert not shell.to_broker
    shell.advance(10_000.0)
    assert bytes(shell.to_broker) == b"".join(frames)


@pytest.mark.parametrize("acks", [-1, 0])
def test_of_what_waits_that_which_needs_no_answer_goes_though_its_client_has_left(acks: int) -> None:
    first, shell = shells(2, REFUSING)
    first.client_sends(many(LARGE))
    shell.client_sends(many(LARGE, producer_id=8, acks=acks))
    assert not shell.to_broker
    shell.client_leaves()
    shell.advance(10_000.0)
    assert bytes(shell.to_broker) == (b"" if acks else many(LARGE, producer_id=8, acks=0))


@LIMITS
def test_batches_that_wait_count_among_what_is_kept(limits: QuotaLimits) -> None:
    spent, shell = shells(2, limits)
    if limits is REFUSING:
        spent.shared.quotas.reload(limits_of(1_000), spent.now_ms)
        spent.client_sends(many(100))
        shell.client_sends(many(50, producer_id=8))
    else:
        spent.client_sends(many(1, producer_id=99))
        shell.client_sends(many(50, producer_id=8))
    assert shell.state is State.HOLDING
    assert shell.session.due_bytes == 50 * HELD_BATCH_BYTES
    shell.advance(BUDGET_MS)
    assert len(refusals_of(shell)) == 1
    assert shell.session.due_bytes == 0


def test_nothing_stays_of_the_batches_of_what_has_gone() -> None:
    (shell,) = shells(1, IDS)
    for number in range(3):
        shell.client_sends(many(100, number))
        ids = shell.session._throttling.ids
        assert ids is not None
        assert (len(ids.gate._batches), len(ids._usage.batches), shell.session.due_bytes) == (0, 0, 0)


KEY: GateKey = (7, b"orders", 0)


def test_of_many_that_hold_the_same_the_lowest_of_an_epoch_is_known() -> None:
    """As by a walk through all of them; sequences go round."""
    held = HeldBatches()
    begin = 2**31 - 40
    places = [(n % 3, (begin + n * 37 % 101) % 2**31) for n in range(100)]
    holdings = {Holding(held, {KEY: place}): place for place in places}
    order = list(holdings)
    while order:
        for epoch in range(4):
            left = [(seq - begin) % 2**31 for of, seq in holdings.values() if of == epoch]
            lowest = (min(left) + begin) % 2**31 if left else None
            assert held.before(KEY, epoch, (begin + 200) % 2**31) == lowest
        gone = order.pop(len(order) * 7 % 5 % len(order))
        gone.end()
        del holdings[gone]
    assert len(held) == 0


def test_of_many_that_hold_the_same_those_go_that_another_has_brought() -> None:
    held = HeldBatches()
    for sequence in range(50):
        Holding(held, {KEY: (sequence % 2, sequence)})
    held.forwarded(KEY, 1, 20)
    assert held.before(KEY, 0, 100) is None
    assert held.before(KEY, 1, 100) == 21
    held.forwarded(KEY, 2, 0)
    assert len(held) == 0
