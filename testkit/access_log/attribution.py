"""A session with an access log, requests for it, and of which topic it took the last one to be."""

from __future__ import annotations

from collections.abc import Sequence

from sluice.protocol.apis import readable_versions
from sluice.protocol.codec.wire import Struct, Value, uuid_text
from sluice.proxy.session.policy import SessionPolicy, SharedState
from sluice.proxy.session.session import Session
from sluice.quotas.manager import QuotaManager
from sluice.usage.flow import AccessFlow, TopicNames
from sluice.usage.records import Recorder
from testkit.frames.frames import FETCH, PRODUCE, produce, record_batch, request
from testkit.proxy.playbook import Shell, limits_of

PRODUCES = readable_versions(PRODUCE)
FETCHES = readable_versions(FETCH)
IDS = {name: uuid_text(name.encode().ljust(16, b"\0")) for name in ("a", "b", "orders")}
FULL, NEXT = 0, 5
"""a fetch session's epoch in its first request, and in a later one"""


def logged(*, authentication_required: bool = False) -> Shell:
    """A connection of a process with an access log."""
    shared = SharedState(QuotaManager(limits_of()), Recorder(), topic_names=TopicNames())
    policy = SessionPolicy(authentication_required=authentication_required)
    return Shell(Session(shared, policy, "10.0.0.7", broker="1"))


def flow_of(shell: Shell) -> AccessFlow:
    """The flow of the request that was judged last."""
    flow = shell.session.identity.flow
    assert isinstance(flow, AccessFlow)
    return flow


def topic_of(shell: Shell, frame: bytes) -> str:
    shell.client_sends(frame)
    assert shell.to_broker.endswith(frame)
    return flow_of(shell).named_key()[-1]


def produced(topics: Sequence[str], version: int, *, acks: int = 1, header_tags: int = 0) -> bytes:
    names = [IDS[topic] if version >= 13 else topic for topic in topics]
    batches = {name: [(0, record_batch(bytes(40)))] for name in names}
    return produce(batches, version=version, acks=acks, header_tags=header_tags)


def fetched(
    topics: Sequence[str], version: int, *, epoch: int = FULL, client_id: str | None = "app"
) -> bytes:
    name = "topicId" if version >= 13 else "topic"
    values: list[Value] = [
        {name: IDS[topic] if version >= 13 else topic, "partitions": [{"partition": 0}]} for topic in topics
    ]
    body: Struct = {"maxWaitMs": 500, "minBytes": 1, "maxBytes": 1_000_000, "topics": values}
    if version >= 7:
        body |= {"sessionId": 77, "sessionEpoch": epoch}
    return request(FETCH, version, body, client_id=client_id)


def told(topic: str, version: int) -> str:
    return IDS[topic] if version >= 13 else topic
