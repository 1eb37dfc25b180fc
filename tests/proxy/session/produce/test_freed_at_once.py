"""A connection that is closed is freed at once, and does not wait for the garbage collector."""

from __future__ import annotations

import gc

import pytest

from sluice.protocol.apis import ApiKey
from sluice.proxy.session.gateway.broker_map import BrokerMap
from sluice.proxy.session.own_topic.own_topic import OwnTopic
from sluice.proxy.session.policy import QuotaApi, SessionPolicy, SharedState
from sluice.proxy.session.session import Session
from sluice.quotas.entity import DEFAULT, QuotaEntity
from sluice.quotas.limits.limits import QuotaLimits
from sluice.quotas.manager import QuotaManager
from sluice.usage.flow import TopicNames
from sluice.usage.records import Recorder
from testkit.frames.frames import METADATA, PRODUCE, answer, fetch, produce, record_batch, request
from testkit.proxy.playbook import Shell, limits_of, shared_of

ALL_LIMITS = QuotaLimits([
    (QuotaEntity(DEFAULT, None), {
        "producer_byte_rate": 1e9, "consumer_byte_rate": 1e9, "request_percentage": 1e6,
        "controller_mutation_rate": 1e6, "producer_ids_rate": 1e6,
    }),
])  # fmt: skip


def everything() -> tuple[SharedState, SessionPolicy]:
    """As the server has it, with all features on."""
    topic = OwnTopic("sluice-quotas", frozenset(), bytes(16))
    shared = SharedState(QuotaManager(ALL_LIMITS), Recorder(), topic_names=TopicNames(), own_topic=topic)
    brokers = BrokerMap("gw", 9100, 0, 10, bind_port=9092)
    return shared, SessionPolicy(quota_api=QuotaApi(), broker_map=brokers)


@pytest.mark.parametrize(
    ("shared", "policy"),
    [
        (shared_of(limits_of(None, None)), SessionPolicy()),
        (shared_of(limits_of(1_000_000, 1_000_000)), SessionPolicy()),
        everything(),
    ],
    ids=["no limits", "byte rates", "everything"],
)
@pytest.mark.parametrize("is_short", [True, False])
def test_nothing_of_a_closed_session_stands_in_a_circle(
    shared: SharedState, policy: SessionPolicy, is_short: bool
) -> None:
    def lives() -> None:
        shell = Shell(Session(shared, policy, "10.0.0.1"))
        shell.client_sends(request(METADATA, 12))
        shell.broker_sends(answer(METADATA, 12))
        if not is_short:
            batch = record_batch(b"records", producer_id=7, epoch=0)
            shell.client_sends(produce({"orders": [(0, batch)]}, version=9, correlation_id=8))
            shell.broker_sends(answer(PRODUCE, 9, correlation_id=8))
            shell.client_sends(fetch(version=12, correlation_id=9))
            shell.client_sends(
                request(ApiKey.INIT_PRODUCER_ID.value, 4, {"transactionalId": "pay"}, correlation_id=10)
            )
            shell.client_sends(request(ApiKey.CREATE_TOPICS.value, 7, correlation_id=11))
            shell.client_sends(request(ApiKey.DESCRIBE_CLIENT_QUOTAS.value, 1, correlation_id=12))
        shell.session.closed(shell.now_ms)
        shared.recorder.clear()

    lives()  # makes what stays
    gc.collect()
    gc.freeze()  # else the next one walks through all that the tests before have left
    gc.disable()
    try:
        lives()
        assert gc.collect() == 0
    finally:
        gc.enable()
