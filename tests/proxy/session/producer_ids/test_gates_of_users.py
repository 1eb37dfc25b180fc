"""Gates are a user's own, whether his ids have a state of their own or are counted among the others'."""

from __future__ import annotations

from dataclasses import replace

from sluice.proxy.session.producer_ids.verdict import RefusalReason, Verdict
from sluice.quotas.producer_ids.principal import ProducerIdSettings
from tests.proxy.session.producer_ids.test_gate import BUDGET_MS, RATE, Rig, head

FULL = replace(ProducerIdSettings(), forced_after_ms=1e9, max_principals=2)


def crowded_rig() -> Rig:
    """Others have all states, so that alice shares one with who else comes. Its bucket is empty."""
    rig = Rig(FULL)
    for user in ("bob", "dave"):
        rig.quota.principal(user, RATE, 0.0)
    rig.spend()
    return rig


def test_a_user_who_gets_a_state_of_his_own_keeps_his_gates() -> None:
    rig = crowded_rig()
    rig.refuse(head(1))
    rig.quota.expire(BUDGET_MS)  # the others have nothing left: alice is one of her own now
    assert rig.judge(head(1, 10), now_ms=BUDGET_MS) is Verdict.REFUSE
    assert rig.gate.reason is RefusalReason.GATE
    assert rig.judge(head(1, 0), now_ms=BUDGET_MS) is Verdict.ADMIT
    rig.gate.forwarded(BUDGET_MS)
    assert rig.judge(head(1, 10), now_ms=BUDGET_MS) is Verdict.ADMIT


def test_users_who_share_a_state_have_gates_of_their_own() -> None:
    rig = crowded_rig()
    rig.refuse(head(1))
    assert rig.tables.has_gates("alice")
    assert rig.tables.counts() == [("alice", 1)]
    carol = rig.connection("carol")
    assert rig.judge(head(1, 10), gate=carol, now_ms=BUDGET_MS) is not Verdict.REFUSE
