"""Requests that a limit with `over_budget: refuse` holds while it, or what it may hold for, changes.

At 1,000 B/s a byte takes 1 ms; a full bucket holds 1,000 B. Source: wire-semantics 1.5, 1.6.
"""

from __future__ import annotations

import itertools

import pytest

from sluice.protocol.apis import API_VERSIONS, FETCH, METADATA
from sluice.proxy.session.policy import SessionPolicy, SharedState
from sluice.proxy.session.session import Session
from sluice.quotas.limits.limits import QuotaLimits
from sluice.quotas.manager import QuotaManager
from sluice.usage.records import Recorder
from testkit.frames.frames import answer, fetch, produce_answer, produce_of, request
from testkit.proxy.playbook import Playbook, Reload, Shell
from testkit.proxy.refusing_session import BUDGET_MS, limits_of, refusals_of, shells
from tests.proxy.session.over_budget.test_over_budget import JOIN_GROUP, behind_a_debt, idempotent


@pytest.mark.parametrize("acks", [-1, 0])
@pytest.mark.parametrize("after", [limits_of(refuses=False), limits_of(shadow=True), QuotaLimits()])
def test_what_is_held_when_the_option_goes_goes_within_its_budget(after: QuotaLimits, acks: int) -> None:
    """With acks = 0 it stayed held, up to 60 s."""
    shell = behind_a_debt(8_000)
    shell.client_sends(idempotent(0, acks=acks))
    Playbook(shell) >> Reload(after)
    shell.advance(BUDGET_MS)
    assert (bytes(shell.to_broker), refusals_of(shell)) == (idempotent(0, acks=acks), [])


@pytest.mark.parametrize("acks", [-1, 0])
@pytest.mark.parametrize("refuses", [False, True])
def test_what_is_held_when_the_limit_goes_goes_at_once(acks: int, *, refuses: bool) -> None:
    """By the limit that was gone it waited for up to 8 s."""
    each = shells(20, limits_of(refuses=refuses))
    for shell in each:
        shell.client_sends(produce_of(8_000, acks=acks))
    each[0].shared.quotas.reload(QuotaLimits(), each[0].now_ms)
    for shell in each:
        shell.advance(1.0)
    assert [len(shell.to_broker) for shell in each] == [8_000] * 20
    assert not any(shell.to_client for shell in each)


def test_what_is_held_when_the_option_goes_goes_evenly() -> None:
    """20 × 1 MB at 100 kB/s, and 1.5 s left of 2: 19 MB went at once when the budget was over."""
    each = shells(20, limits_of(100_000))
    for shell in each:
        shell.client_sends(produce_of(1_000_000))
    for shell in each:
        shell.advance(500.0)
    Playbook(each[0]) >> Reload(limits_of(100_000, refuses=False))
    passed: list[int] = []
    for _ in range(16):
        for shell in each:
            shell.advance(100.0)
        passed.append(sum(len(shell.to_broker) for shell in each[1:]))
    assert passed[-1] == 19 * len(produce_of(1_000_000))
    assert max(after - before for before, after in itertools.pairwise(passed)) <= 3_100_000


def test_a_budget_that_has_become_shorter_than_what_was_told_before_holds_no_less_than_nothing() -> None:
    """A connection that becomes a group's: -5,800 ms stood in the access log."""
    shared = SharedState(QuotaManager(limits_of()), Recorder())
    shell = Shell(Session(shared, SessionPolicy(), "10.0.0.1"))
    shell.client_sends(produce_of(20_000, correlation_id=0))
    shell.broker_sends(produce_answer(correlation_id=0))
    shell.to_client.clear()
    shell.client_sends(request(JOIN_GROUP, 5, correlation_id=1))
    shell.broker_sends(answer(JOIN_GROUP, 5, correlation_id=1))
    shell.to_client.clear()
    shell.client_sends(produce_of(500, correlation_id=2))
    shell.advance(BUDGET_MS)
    assert refusals_of(shell)
    assert min(record.held_ms for record in shell.records) >= 0.0


@pytest.mark.parametrize("after", [limits_of(refuses=False), limits_of(shadow=True), QuotaLimits()])
def test_a_later_batch_does_not_overtake_a_refused_one_when_nothing_is_refused_any_more(
    after: QuotaLimits,
) -> None:
    """The broker took it as the first of its id; the refused one was then out of order."""
    shell = behind_a_debt(8_000)
    shell.client_sends(idempotent(0))
    shell.advance(BUDGET_MS)
    assert [number for number, _, _ in refusals_of(shell)] == [0]
    shell.shared.quotas.reload(after, shell.now_ms)
    shell.client_sends(idempotent(1))
    ((number, _, message),) = refusals_of(shell)
    assert number == 1
    assert message.endswith(": an earlier batch of this producer waits for its turn")
    assert "ids" not in message
    shell.advance(60_000.0)
    shell.client_sends(idempotent(0) + idempotent(1))
    assert bytes(shell.to_broker) == idempotent(0) + idempotent(1)


@pytest.mark.parametrize("before", [(), (API_VERSIONS, 3), (METADATA, 9), (FETCH, 12)])
@pytest.mark.parametrize("after", [limits_of(refuses=False), limits_of(shadow=True), QuotaLimits()])
def test_nor_does_it_on_a_new_connection_whatever_that_sends_first(
    before: tuple[int, ...], after: QuotaLimits
) -> None:
    """A producer that reconnects asks for versions and Metadata first."""
    shell = behind_a_debt(8_000)
    shell.client_sends(idempotent(0))
    shell.advance(BUDGET_MS)
    shell.shared.quotas.reload(after, shell.now_ms)
    again = Shell(Session(shell.shared, SessionPolicy(), "10.0.0.1"), now_ms=shell.now_ms)
    if before:
        api_key, version = before
        again.client_sends(fetch(version=version) if api_key == FETCH else request(api_key, version))
        again.broker_sends(answer(api_key, version))
    again.to_broker.clear()
    again.to_client.clear()
    again.client_sends(idempotent(1))
    assert not again.to_broker
    ((number, _, message),) = refusals_of(again)
    assert number == 1
    assert message.endswith(": an earlier batch of this producer waits for its turn")
