"""A connection's limit on producer ids is looked up where it sends the first request that may bring some:
whatever it sent before, none passes unseen."""

from __future__ import annotations

import pytest

from sluice.protocol.apis import API_VERSIONS, METADATA, ApiKey
from sluice.proxy.session.connection_states import State
from sluice.proxy.session.own_topic.own_topic import OwnTopic
from sluice.proxy.session.policy import SessionPolicy, SharedState
from sluice.proxy.session.producer_ids.shared import ProducerIds
from sluice.proxy.session.session import Session
from sluice.quotas.entity import DEFAULT, QuotaEntity
from sluice.quotas.limits.limits import QuotaLimits
from sluice.quotas.manager import QuotaManager
from sluice.quotas.producer_ids.principal import ProducerIdSettings
from sluice.usage.flow import TopicNames
from sluice.usage.records import Recorder
from testkit.frames.frames import fetch, produce, produce_answer, record_batch, request
from testkit.proxy.playbook import Shell

HOUR_MS = 3_600_000.0
BEFORE = {
    "nothing": (),
    "versions": (request(API_VERSIONS, 3),),
    "metadata": (request(METADATA, 9), request(METADATA, 9)),
    "fetch": (fetch(),),
    "versions of another client": (request(API_VERSIONS, 3, client_id="another"),),
}


def limits_of(**limits: float) -> QuotaLimits:
    return QuotaLimits([(QuotaEntity(DEFAULT, None), limits)])


ONE_AN_HOUR = limits_of(producer_ids_rate=1.0)


def with_id(producer_id: int, client_id: str = "app") -> bytes:
    batch = record_batch(b"records", producer_id=producer_id, epoch=0, sequence=0)
    return produce({"orders": [(0, batch)]}, client_id=client_id)


def shared_by(limits: QuotaLimits, *, logged: bool, guarded: bool) -> SharedState:
    settings = ProducerIdSettings(forced_after_ms=HOUR_MS)
    return SharedState(
        QuotaManager(limits),
        Recorder(),
        producer_ids=ProducerIds(settings),
        topic_names=TopicNames() if logged else None,
        own_topic=OwnTopic("sluice-quotas", frozenset(), bytes(16)) if guarded else None,
    )


def connected(shared: SharedState) -> Shell:
    return Shell(Session(shared, SessionPolicy(), "10.0.0.1"))


def is_due(shell: Shell) -> bool:
    return shell.session._throttling.are_ids_due


def is_limited(shell: Shell) -> bool:
    return shell.session.has_id_limit


@pytest.mark.parametrize("before", BEFORE)
@pytest.mark.parametrize("logged", [False, True])
@pytest.mark.parametrize("guarded", [False, True])
@pytest.mark.parametrize("at_once", [False, True])
def test_the_first_produce_is_judged(before: str, logged: bool, guarded: bool, at_once: bool) -> None:
    shared = shared_by(ONE_AN_HOUR, logged=logged, guarded=guarded)
    first, second = connected(shared), connected(shared)
    first.client_sends(with_id(7))
    assert first.to_broker == with_id(7)  # it has the hour's id
    earlier = b"".join(BEFORE[before])
    if at_once:
        second.client_sends(earlier + with_id(8))
    else:
        for frame in (*BEFORE[before], with_id(8)):
            second.client_sends(frame)
    assert second.to_broker == earlier
    assert second.session.pace.state is State.HOLDING
    assert is_limited(second)


@pytest.mark.parametrize("logged", [False, True])
def test_the_first_transaction_looks_it_up_behind_requests_that_bring_no_ids(logged: bool) -> None:
    shared = shared_by(ONE_AN_HOUR, logged=logged, guarded=False)
    begins = request(ApiKey.INIT_PRODUCER_ID, 4, {"transactionalId": "tx", "transactionTimeoutMs": 1})
    shell = connected(shared)
    shell.client_sends(request(METADATA, 9))
    assert is_due(shell)
    shell.client_sends(begins)
    assert not is_due(shell)
    assert is_limited(shell)
    assert shell.to_broker == request(METADATA, 9) + begins


@pytest.mark.parametrize("logged", [False, True])
@pytest.mark.parametrize("between", ["metadata", "fetch"])
def test_a_limit_that_comes_while_the_connection_produces_is_seen_behind_another_request(
    logged: bool, between: str
) -> None:
    """A request that brings no ids finds the new quotas first."""
    shared = shared_by(limits_of(producer_byte_rate=1e9), logged=logged, guarded=False)
    shell = connected(shared)
    for _ in range(3):
        shell.client_sends(with_id(7))
        shell.broker_sends(produce_answer())
    assert not is_limited(shell)
    shared.quotas.reload(ONE_AN_HOUR, shell.now_ms)
    for frame in BEFORE[between]:
        shell.client_sends(frame)
    assert is_limited(shell)
    shell.to_broker.clear()
    shell.client_sends(with_id(8))  # the hour's
    assert shell.to_broker == with_id(8)
    shell.to_broker.clear()
    shell.client_sends(with_id(9))
    assert not shell.to_broker
    assert shell.session.pace.state is State.HOLDING


@pytest.mark.parametrize("logged", [False, True])
def test_a_limit_that_goes_is_looked_up_no_more(logged: bool) -> None:
    shared = shared_by(ONE_AN_HOUR, logged=logged, guarded=False)
    shell = connected(shared)
    shell.client_sends(request(API_VERSIONS, 3))
    assert is_limited(shell)
    shared.quotas.reload(limits_of(producer_byte_rate=1e9), shell.now_ms)
    for producer_id in range(7, 12):
        shell.client_sends(request(METADATA, 9) + with_id(producer_id))
        assert shell.session.pace.state is State.READING
        assert not is_limited(shell)


@pytest.mark.parametrize("logged", [False, True])
def test_no_client_id_can_pass_for_one_that_was_looked_at(logged: bool) -> None:
    """Its bytes are the client's to choose, and decide nothing before the look."""
    for raw in (b"\xff" * 3, b"\0\0\0", b"app"):
        shared = shared_by(ONE_AN_HOUR, logged=logged, guarded=False)
        first, second = connected(shared), connected(shared)
        first.client_sends(with_id(7))
        second.client_sends(request(API_VERSIONS, 3))
        second.client_sends(with_id(8).replace(b"app", raw))
        assert second.to_broker == request(API_VERSIONS, 3)


def test_a_limit_on_bytes_that_refuses_gates_the_first_produce_too() -> None:
    """`over_budget: refuse` has gates, which are looked up in the same way."""
    entity = QuotaEntity(DEFAULT, None)
    limits = QuotaLimits([(entity, {"producer_byte_rate": 1e9})], refusing=[entity])
    shared = shared_by(limits, logged=False, guarded=False)
    shell = connected(shared)
    shell.client_sends(request(METADATA, 9))
    shell.client_sends(with_id(7))
    assert shell.session._throttling.ids is not None
    assert shell.session._throttling.ids.gates_only
    assert not is_limited(shell)


def test_unacknowledged_requests_behind_a_delay_are_judged_at_the_end_though_none_was_before() -> None:
    """They would pass uncounted where the limit is not looked up."""
    shared = shared_by(limits_of(producer_ids_rate=1.0, request_percentage=1e-6), logged=False, guarded=False)
    shell = connected(shared)
    shell.client_sends(request(METADATA, 9))
    shell.session.drain(shell.now_ms)
    batch = record_batch(b"records", producer_id=7, epoch=0, sequence=0)
    kept = bytearray(produce({"orders": [(0, batch)]}, acks=0))
    assert shell.session.take_unacknowledged(kept, shell.now_ms) == b""
