"""A question for Metadata has no broker make the topic of its own accord, with its own partitions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from sluice.protocol.apis import OFFERED
from sluice.proxy.session.causes import DisconnectCause
from testkit.frames.frames import METADATA, decoded, request
from tests.proxy.session.own_topic.test_topic_acl import NAME, OTHER_TEXT, shell

VERSIONS = pytest.mark.parametrize("version", range(4, OFFERED[METADATA][1] + 1))


def asking(names: Sequence[str], version: int, *, allows: bool = True, **fields: Any) -> bytes:
    topics: Any = [{"name": name} for name in names]
    if version >= 10:
        topics.insert(1, {"topicId": OTHER_TEXT, "name": None})
    body: Any = {"topics": topics, "allowAutoTopicCreation": allows, **fields}
    return request(METADATA, version, body)


@VERSIONS
@pytest.mark.parametrize("operations", [False, True])
def test_who_names_it_makes_nothing(version: int, operations: bool) -> None:
    more: Any = {}
    if version >= 8:
        more["includeTopicAuthorizedOperations"] = operations
    if 8 <= version <= 10:
        more["includeClusterAuthorizedOperations"] = operations
    names = ["orders", NAME, "payments"]
    one = shell()
    one.client_sends(asking(names, version, **more))
    assert one.to_broker == asking(names, version, allows=False, **more)
    assert one.cause is None


@VERSIONS
def test_others_may_be_made(version: int) -> None:
    for names in (["orders"], ["orders", NAME + "2"], ["west." + NAME]):
        sent = asking(names, version)
        one = shell()
        one.client_sends(sent)
        assert decoded("request", METADATA, version, one.to_broker).body["allowAutoTopicCreation"]
        assert one.to_broker == sent


@VERSIONS
def test_admins_may_have_it_made(version: int) -> None:
    sent = asking([NAME], version)
    one = shell(admins=["ANONYMOUS"])
    one.client_sends(sent)
    assert one.to_broker == sent


@pytest.mark.parametrize("version", [4, 13])
def test_in_pieces_it_makes_nothing_either(version: int) -> None:
    sent = asking(["orders", NAME], version)
    one = shell()
    for number in range(len(sent)):
        one.client_sends(sent[number : number + 1])
    assert one.to_broker == asking(["orders", NAME], version, allows=False)


@pytest.mark.parametrize("version", range(4))
def test_versions_that_always_make_what_they_name_end_their_connection(version: int) -> None:
    one = shell()
    one.client_sends(request(METADATA, version, {"topics": [{"name": "orders"}, {"name": NAME + "2"}]}))
    assert one.to_broker
    assert one.cause is None
    one = shell()
    one.client_sends(request(METADATA, version, {"topics": [{"name": NAME}]}))
    assert not one.to_broker
    assert one.cause is DisconnectCause.OWN_TOPIC
    assert NAME in one.detail


@pytest.mark.parametrize("version", [4, 9, 12])
@pytest.mark.parametrize(("topics", "passes"), [(19_000, True), (20_001, False)])
def test_of_very_many_topics_it_is_not_looked_for_long(version: int, topics: int, passes: bool) -> None:
    named: Any = [{"name": NAME}, *[{"name": "a"}] * (topics - 1)]
    sent = request(METADATA, version, {"topics": named})
    one = shell()
    one.client_sends(sent)
    assert bool(one.to_broker) == passes
    assert one.cause is (None if passes else DisconnectCause.MALFORMED_FRAME)


def test_a_version_that_nobody_knows_ends_its_connection_if_it_names_it() -> None:
    frame = bytearray(asking([NAME], 13))
    frame[6:8] = (14).to_bytes(2, "big")
    one = shell()
    one.client_sends(bytes(frame))
    assert not one.to_broker
    assert one.cause is not None
