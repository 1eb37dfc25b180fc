"""Which requests make a client a member, so that its producer's id waits no longer than its group may."""

from __future__ import annotations

import pytest

from sluice.protocol.codec.wire import Struct
from sluice.proxy.session.policy import SessionPolicy, SharedState
from sluice.proxy.session.producer_ids.shared import ProducerIds
from sluice.proxy.session.session import Session
from sluice.quotas.entity import DEFAULT, QuotaEntity
from sluice.quotas.limits.limits import QuotaLimits
from sluice.quotas.manager import QuotaManager
from sluice.usage.records import Recorder
from testkit.frames.frames import produce, record_batch, request
from testkit.proxy.playbook import Shell

LIMIT = {"producer_ids_rate": 1.0}
MEMBERS_REQUESTS: list[tuple[int, int, Struct, float]] = [
    (11, 0, {"groupId": "g", "sessionTimeoutMs": 9_000}, 3_000),
    (11, 5, {"groupId": "g", "sessionTimeoutMs": 9_000, "rebalanceTimeoutMs": 60_000}, 3_000),
    (11, 9, {"groupId": "g", "sessionTimeoutMs": 45_000, "rebalanceTimeoutMs": 12_000}, 4_000),
    (12, 4, {"groupId": "g"}, 15_000),
    (14, 5, {"groupId": "g"}, 15_000),
    (68, 0, {"groupId": "g", "memberId": "m", "instanceId": "i", "rebalanceTimeoutMs": 12_000}, 4_000),
    (68, 1, {"groupId": "g", "memberId": "m", "rebalanceTimeoutMs": -1}, 15_000),
    (76, 1, {"groupId": "g", "memberId": "m"}, 15_000),
    (88, 0, {"groupId": "g", "memberId": "m", "rackId": "r", "rebalanceTimeoutMs": 15_000}, 5_000),
    (22, 0, {"transactionalId": "tx", "transactionTimeoutMs": 18_000}, 6_000),
    (22, 5, {"transactionalId": "tx", "transactionTimeoutMs": 18_000}, 6_000),
    (24, 3, {"v3AndBelowTransactionalId": "tx", "v3AndBelowProducerId": 1}, 15_000),
]
OTHERS_REQUESTS: list[tuple[int, int, Struct]] = [
    (8, 8, {"groupId": "g"}),  # OffsetCommit and OffsetFetch: also an administrator's
    (9, 7, {"groupId": "g"}),
    (69, 0, {"groupIds": ["g"]}),
    (22, 5, {"transactionalId": None, "transactionTimeoutMs": 18_000}),
]


def shells(count: int, limits: dict[str, object] | None = None) -> list[Shell]:
    """Connections of one user from one address."""
    quotas = QuotaManager(QuotaLimits([(QuotaEntity(DEFAULT, None), limits or dict(LIMIT))]))
    shared = SharedState(quotas, Recorder(), producer_ids=ProducerIds())
    return [Shell(Session(shared, SessionPolicy(), "10.0.0.1")) for _ in range(count)]


def with_id(producer_id: int, client_id: str = "etl") -> bytes:
    batch = record_batch(b"records", producer_id=producer_id, epoch=0)
    return produce({"orders": [(0, batch)]}, client_id=client_id)


def wait_of_a_new_id(shells: list[Shell], client_id: str = "etl") -> float:
    """In ms, on another connection than all before, when the bucket is empty."""
    first, last = shells[0], shells[-1]
    first.client_sends(with_id(100, "x"))
    last.client_sends(with_id(101, client_id))
    assert not last.to_broker
    return last.shared.producer_ids.quota.due_ms - last.now_ms


@pytest.mark.parametrize(("api_key", "version", "body", "wait_ms"), MEMBERS_REQUESTS)
def test_a_members_new_id_waits_for_a_third_of_the_timeout_that_was_named_on_another_connection(
    api_key: int, version: int, body: Struct, wait_ms: float
) -> None:
    three = shells(3)
    three[1].client_sends(request(api_key, version, body, client_id="etl"))
    assert wait_of_a_new_id(three) == pytest.approx(wait_ms)


@pytest.mark.parametrize(("api_key", "version", "body"), OTHERS_REQUESTS)
def test_what_others_send_as_well_makes_no_member(api_key: int, version: int, body: Struct) -> None:
    three = shells(3)
    three[1].client_sends(request(api_key, version, body, client_id="etl"))
    assert wait_of_a_new_id(three) == pytest.approx(30_000)


def test_another_client_id_is_no_member() -> None:
    three = shells(3)
    three[1].client_sends(request(11, 5, {"groupId": "g", "sessionTimeoutMs": 9_000}, client_id="etl"))
    assert wait_of_a_new_id(three, "other") == pytest.approx(30_000)


def test_nothing_is_remembered_of_members_where_no_id_is_limited() -> None:
    (shell,) = shells(1, {"producer_byte_rate": 10**9})
    shell.client_sends(request(12, 4, {"groupId": "g"}, client_id="etl"))
    assert len(shell.shared.producer_ids.quota.members) == 0


def test_a_heartbeat_that_names_its_timeout_beyond_what_has_arrived_goes_on() -> None:
    three = shells(3)
    frame = request(
        68, 0, {"groupId": "g", "memberId": "m" * 5_000, "rebalanceTimeoutMs": 9_000}, client_id="etl"
    )
    three[1].client_sends(frame[:2_000])
    three[1].client_sends(frame[2_000:])
    assert bytes(three[1].to_broker) == frame
    assert wait_of_a_new_id(three) == pytest.approx(15_000)


def test_a_members_request_of_a_version_that_is_not_offered_names_no_timeout_and_goes_on() -> None:
    three = shells(3)
    frame = bytearray(request(68, 0, {"groupId": "g", "rebalanceTimeoutMs": 9_000}, client_id="etl"))
    frame[6:8] = (99).to_bytes(2, "big")
    three[1].client_sends(bytes(frame))
    assert three[1].to_broker == frame
    assert wait_of_a_new_id(three) == pytest.approx(15_000)


def test_what_is_over_is_dropped_on_both_sides_ids_and_gates() -> None:
    shared = ProducerIds()
    shared.quota.principal("alice", 60.0, 0.0).main.restore(0.0, 0.0)
    shared.tables.table("alice", 0.0).refused({(1, b"orders", 0): (0, 5)}, 0.0)
    shared.expire(0.0)
    assert [principal.user for principal in shared.quota.principals()] == ["alice"]
    shared.expire(1e12)
    assert list(shared.quota.principals()) == []
    assert shared.tables.counts() == []
