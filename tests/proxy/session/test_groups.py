"""Sessions of a tenant's members, and of one prefix's client ids: one debt, one series, one episode."""

from __future__ import annotations

import asyncio

from sluice.proxy.metrics.throttle_log import ThrottleLog
from sluice.proxy.metrics.usage_meter import UsageMeter
from sluice.proxy.runtime.log import LineBudget
from sluice.proxy.session.connection_states import State
from sluice.proxy.session.policy import SessionPolicy
from sluice.proxy.session.session import Session
from sluice.quotas.entity import DEFAULT, Prefix, QuotaEntity, Tenant
from sluice.quotas.limits.limits import QuotaLimits
from testkit.frames.frames import fetch, fetch_answer_of, produce_of
from testkit.proxy.playbook import Shell, shared_of

TEAM = Tenant("team")
LIMITS = QuotaLimits(
    [
        (QuotaEntity(TEAM), {"producer_byte_rate": 1_000}),
        (QuotaEntity(DEFAULT, Prefix("etl-")), {"consumer_byte_rate": 1_000}),
    ],
    tenants={"team": ["alice", "bob"]},
)


def members(limits: QuotaLimits = LIMITS) -> tuple[Shell, Shell, Shell]:
    """Connections of alice and bob, who are members, and of carol, who is not."""
    shared = shared_of(limits)
    alice, bob, carol = (
        Shell(Session(shared, SessionPolicy(), "10.0.0.1", user=user)) for user in ("alice", "bob", "carol")
    )
    return alice, bob, carol


def test_what_one_member_sent_the_other_waits_for() -> None:
    """1,000 B/s, burst 1 s: alice's 3,000 B leave a debt of 2 s, behind which bob's turn comes."""
    alice, bob, carol = members()
    alice.client_sends(produce_of(3_000))
    bob.client_sends(produce_of(500))
    carol.client_sends(produce_of(3_000))
    assert (alice.state, bob.state, carol.state) == (State.MUTED, State.HOLDING, State.READING)
    assert bob.session.pace.wake_at_ms == bob.now_ms + 2_000
    bob.advance(2_000)
    assert bytes(bob.to_broker) == produce_of(500)


def test_client_ids_of_one_prefix_are_one_client_to_the_limit() -> None:
    """1,000 B/s, burst 1 s: two answers of 1,500 B to two names, 2 s of debt."""
    _, _, carol = members()
    for client_id in ("etl-1", "etl-2"):
        carol.client_sends(fetch(client_id=client_id))
        carol.broker_sends(fetch_answer_of(1_500))
        carol.advance(0)
        if client_id == "etl-1":
            assert carol.session.pace.wake_at_ms == carol.now_ms + 500
            carol.advance(500)
    assert carol.session.pace.wake_at_ms == carol.now_ms + 1_500


def test_metrics_name_the_group() -> None:
    alice, bob, _ = members()
    meter = UsageMeter(alice.shared.recorder, alice.shared.quotas)
    alice.client_sends(produce_of(3_000))
    bob.client_sends(produce_of(500))
    bob.advance(10_000)
    asyncio.run(meter.fold(bob.now_ms))
    used = {(one.quota, one.user, one.client_id): one.amount for one in meter.entities}
    assert used == {("produce", "tenant:team", ""): 3_500}
    assert meter.limits == {("produce", "tenant:team", "", "tenant"): 1_000}


def test_the_log_tells_one_episode_of_a_group() -> None:
    alice, bob, _ = members()
    log = ThrottleLog(LineBudget())
    alice.client_sends(produce_of(3_000))
    bob.client_sends(produce_of(500))
    for event in alice.events:
        log.note(event)
    ((name, fields),) = log.due(alice.now_ms)
    assert name == "throttling_began"
    assert (fields["rule"], fields["user"], "client_id" in fields) == ("tenant", "tenant:team", False)
