"""An unseen id of epoch 0 in a transaction: new if its coordinator has handed it out here, else resumed.

Clients that speak transaction version 1 keep epoch 0 as long as they live.
"""

from __future__ import annotations

import pytest

from sluice.protocol.apis import ApiKey, readable_versions
from sluice.proxy.session.connection_states import State
from sluice.proxy.session.producer_ids.shared import ProducerIds
from sluice.quotas.producer_ids import quota as producer_id_quota
from sluice.quotas.producer_ids.principal import PrincipalIds
from testkit.frames.frames import answer, request
from testkit.proxy.playbook import Shell
from testkit.proxy.transaction_session import HOUR_MS, STATE_MAKING, adding, shells

INIT = ApiKey.INIT_PRODUCER_ID


def principal_of(shell: Shell) -> PrincipalIds:
    (principal,) = shell.shared.producer_ids.quota.principals()
    return principal


def begins(
    shell: Shell,
    producer_id: int,
    *,
    version: int = 4,
    epoch: int = 0,
    error: int = 0,
    name: str | None = "app",
) -> None:
    """InitProducerId, and its answer."""
    shell.client_sends(request(INIT, version, {"transactionalId": name, "transactionTimeoutMs": 60_000}))
    body = {"errorCode": error, "producerId": producer_id, "producerEpoch": epoch}
    shell.broker_sends(answer(INIT, version, body))  # type: ignore[arg-type]
    shell.to_broker.clear()
    shell.to_client.clear()


def goes(shell: Shell, frame: bytes) -> bool:
    """At once."""
    shell.to_broker.clear()
    shell.client_sends(frame)
    return bool(shell.to_broker == frame)


@pytest.mark.parametrize(("api_key", "version"), STATE_MAKING)
def test_live_ids_of_epoch_0_go_on_after_a_restart_though_no_new_id_would(api_key: int, version: int) -> None:
    (shell,) = shells(1, handed_out=())
    begins(shell, 100)
    assert goes(shell, adding(100))
    for producer_id in range(20):
        assert goes(shell, adding(producer_id, api_key, version))
    principal = principal_of(shell)
    assert (principal.admitted, principal.resumed_admitted) == (21, 20)


@pytest.mark.parametrize("version", readable_versions(INIT))
def test_an_id_that_was_handed_out_here_is_new_on_any_connection(version: int) -> None:
    first, second = shells(2, handed_out=())
    begins(first, 1, version=version)
    begins(first, 2, version=version)
    assert goes(second, adding(1))
    assert not goes(second, adding(2))
    assert second.state is State.HOLDING
    principal = principal_of(second)
    assert (principal.admitted, principal.resumed_admitted) == (1, 0)


@pytest.mark.parametrize("how", [{"error": 51}, {"name": None}, {"epoch": 3}])
def test_an_answer_that_hands_out_no_id_of_epoch_0_to_a_transaction_makes_none_new(
    how: dict[str, int],
) -> None:
    (shell,) = shells(1, handed_out=())
    begins(shell, 5, **how)  # type: ignore[arg-type]
    assert goes(shell, adding(5))
    assert principal_of(shell).resumed_admitted == 1


def test_where_ids_have_no_limit_none_is_remembered() -> None:
    (shell,) = shells(1, None, handed_out=())
    begins(shell, 5)
    assert len(shell.shared.producer_ids.quota.handed_out) == 0


def test_invented_ids_come_in_no_further_than_the_resumed_bucket_goes() -> None:
    """One id an hour: the bucket holds 25 of them."""
    (shell,) = shells(1, handed_out=())
    went = 0
    while went < 100 and goes(shell, adding(went)):
        went += 1
    principal = principal_of(shell)
    assert went == principal.resumed.capacity == 25.0
    assert (principal.resumed_admitted, shell.state) == (25, State.HOLDING)


def test_who_has_more_ids_handed_out_than_are_remembered_wins_what_the_resumed_bucket_holds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(producer_id_quota, "MAX_HANDED_OUT", 100)
    (shell,) = shells(1, handed_out=())
    for producer_id in range(1_000):
        begins(shell, producer_id)
        assert len(shell.shared.producer_ids.quota.handed_out) <= 100
    went = 0
    while went < 100 and goes(shell, adding(went)):
        went += 1
    assert went == 25


def test_what_was_handed_out_is_forgotten_in_time() -> None:
    quota = ProducerIds().quota
    quota.handed_out.admit(1, 0.0)
    quota.expire(10 * HOUR_MS)
    assert len(quota.handed_out) == 1
    quota.expire(12 * HOUR_MS)
    assert len(quota.handed_out) == 0
