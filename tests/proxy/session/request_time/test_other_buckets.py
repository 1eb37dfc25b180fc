"""A connection that takes another client id is charged to another bucket, and waits for what is owed there.

`app` has a bucket of its own, of 100 ms a second, beside its user's; a request costs 10 ms.
"""

from __future__ import annotations

import pytest

from sluice.proxy.session.causes import DisconnectCause
from sluice.proxy.session.connection_states import State
from sluice.proxy.session.policy import SharedState
from sluice.quotas.entity import DEFAULT, QuotaEntity
from sluice.quotas.kinds import QuotaKind
from sluice.quotas.limits.limits import QuotaLimits
from testkit.frames.frames import produce_of, request
from testkit.proxy.playbook import Shell
from testkit.proxy.request_time_session import exchange, metadata, metadata_answer, shared_of, shell_of

INIT_PRODUCER_ID = 22


def owing(owed_ms: float, **more: float) -> SharedState:
    """`app` owes so much, its user nothing."""
    shared = shared_of(
        QuotaLimits(
            [
                (QuotaEntity(DEFAULT, None), {"request_percentage": 1_000.0, **more}),
                (QuotaEntity(DEFAULT, "app"), {"request_percentage": 10.0}),
            ]
        )
    )
    sensor = shared.quotas.sensor(QuotaKind.REQUEST, "ANONYMOUS", "app", 10_000.0)
    assert sensor is not None
    sensor.charge(100.0 + owed_ms / 10.0, 10_000.0)
    return shared


def behind_another(shared: SharedState, client_id: str = "x") -> Shell:
    """A connection that has sent one request as `client_id`."""
    shell = shell_of(shared)
    exchange(shell, metadata(client_id=client_id), metadata_answer(), 0.0)
    shell.to_broker.clear()
    return shell


@pytest.mark.parametrize(("owed_ms", "wait_ms"), [(300.0, 300.0), (5_000.0, 1_000.0)])
@pytest.mark.parametrize("client_id", ["x", "new"])
def test_to_begin_as_another_clears_no_debt(client_id: str, owed_ms: float, wait_ms: float) -> None:
    """Who came anew for each Produce, and asked for versions as another first, passed 40 times the quota."""
    shell = behind_another(owing(owed_ms), client_id)
    shell.client_sends(produce_of(150))
    assert (shell.state, shell.session.pace.wake_at_ms - shell.now_ms) == (State.MUTED, wait_ms)
    assert not shell.to_broker
    shell.advance(wait_ms)
    assert shell.to_broker == produce_of(150)


def test_a_produce_that_is_recognised_by_its_begin_waits_as_well() -> None:
    """Under a limit on producer ids another client id of the same length is looked for last."""
    shell = behind_another(owing(300.0, producer_ids_rate=1_000_000.0), "pap")
    init = request(INIT_PRODUCER_ID, 4, {"transactionalId": None}, client_id="pap")
    shell.client_sends(init)
    shell.client_sends(produce_of(150, client_id="pap"))
    shell.to_broker.clear()
    assert shell.session._requests._produce_begin is None
    shell.client_sends(produce_of(150))
    assert (shell.state, bytes(shell.to_broker)) == (State.MUTED, b"")
    shell.advance(300.0)
    assert shell.to_broker == produce_of(150)


def test_whose_client_left_meanwhile_does_not_go_on() -> None:
    shell = behind_another(owing(300.0))
    shell.client_sends(metadata(2))
    shell.client_leaves()
    shell.advance(1_000.0)
    assert (bytes(shell.to_broker), shell.cause) == (b"", DisconnectCause.LEFT_WHILE_HELD)


def test_what_it_owes_in_the_bucket_that_it_stays_in_it_waits_for_behind_its_answers() -> None:
    shell = behind_another(owing(-500.0), "app")
    sensor = shell.shared.quotas.sensor(QuotaKind.REQUEST, "ANONYMOUS", "app", shell.now_ms)
    assert sensor is not None
    sensor.charge(500.0, shell.now_ms)
    shell.client_sends(metadata(2))
    assert shell.to_broker == metadata(2)
