"""A connection that is closed is freed at once, and does not wait for the garbage collector."""

from __future__ import annotations

import gc

import pytest

from sluice.proxy.session.policy import SessionPolicy
from sluice.proxy.session.session import Session
from sluice.quotas.limits.limits import QuotaLimits
from testkit.frames.frames import METADATA, PRODUCE, answer, fetch, produce, request
from testkit.proxy.playbook import Shell, limits_of, shared_of


@pytest.mark.parametrize("limits", [limits_of(None, None), limits_of(1_000_000, 1_000_000)])
def test_nothing_of_a_closed_session_stands_in_a_circle(limits: QuotaLimits) -> None:
    shared = shared_of(limits)
    policy = SessionPolicy()

    def lives() -> None:
        shell = Shell(Session(shared, policy, "10.0.0.1"))
        shell.client_sends(request(METADATA, 12))
        shell.broker_sends(answer(METADATA, 12))
        shell.client_sends(produce({}, version=9, correlation_id=8))
        shell.broker_sends(answer(PRODUCE, 9, correlation_id=8))
        shell.client_sends(fetch(version=12, correlation_id=9))
        shell.session.closed(shell.now_ms)

    lives()  # makes what stays
    gc.collect()
    gc.disable()
    try:
        lives()
        assert gc.collect() == 0
    finally:
        gc.enable()
