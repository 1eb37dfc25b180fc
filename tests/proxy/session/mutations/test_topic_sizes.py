"""Deletions and growth are counted by the sizes of topics, as brokers tell them and as they just became."""

from __future__ import annotations

import pytest

from sluice.protocol.codec.wire import Value
from sluice.proxy.session.mutations.topic_defaults import TopicDefaults
from testkit.frames.frames import METADATA, answer, throttle_of
from testkit.frames.mutation_frames import (
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    DELETE_TOPICS,
    REFUSED,
    create,
    created,
    delete,
    deleted,
    errors_in,
    grow,
    grown,
    question,
    sizes,
    topic_id,
)
from testkit.proxy.mutation_session import connections, in_debt, shell_of, tokens
from testkit.proxy.playbook import (
    AwaitingBroker,
    Broker,
    Client,
    Playbook,
    Reading,
    Shell,
    ToBroker,
    ToClient,
)


def test_deletion_is_counted_by_the_partitions_that_the_broker_tells() -> None:
    shell = shell_of()
    (
        Playbook(shell)
        >> Client(delete(["a", "b"]))
        << ToBroker(question(["a", "b"]))
        << AwaitingBroker()
        >> Broker(sizes({"a": (1, 4), "b": (2, 3)}))
        << ToBroker(delete(["a", "b"]))
        << Reading()
        >> Broker(deleted({"a": (0, 1), "b": (0, 2)}))
        << ToClient(deleted({"a": (0, 1), "b": (0, 2)}))
    ).done()
    assert tokens(shell) == 15
    assert shell.session.bytes_from_client == len(question(["a", "b"]) + delete(["a", "b"]))


def test_names_and_ids_are_asked_for_apart() -> None:
    shell = shell_of()
    asked = delete(["a"], ids=[7])
    (
        Playbook(shell)
        >> Client(asked)
        << ToBroker(question(["a"]))
        << AwaitingBroker()
        >> Broker(sizes({"a": (1, 4)}))
        << ToBroker(question(ids=[7]))
        >> Broker(sizes({"b": (7, 2)}))
        << ToBroker(asked)
        << Reading()
    ).done()
    assert tokens(shell) == 16


def test_a_deletion_refused_is_told_with_name_and_id() -> None:
    shell = in_debt(10)
    shell.client_sends(delete([], ids=[7, 8], correlation_id=2))
    shell.broker_sends(sizes({"a": (7, 4), "b": (8, 1)}, correlation_id=2))
    assert bytes(shell.to_broker) == question(ids=[7, 8], correlation_id=2)
    assert bytes(shell.to_client) == deleted(
        {"a": (REFUSED, 7), "b": (REFUSED, 8)}, throttle_ms=5_000, correlation_id=2
    )


def test_a_topic_that_does_not_exist_is_the_brokers_to_refuse() -> None:
    shell = in_debt(10)
    shell.client_sends(delete(["none"], correlation_id=2))
    shell.broker_sends(sizes({"none": (0, 0)}, correlation_id=2))
    assert bytes(shell.to_broker).endswith(delete(["none"], correlation_id=2))
    shell.broker_sends(deleted({"none": (3, 0)}, correlation_id=2))
    assert errors_in(DELETE_TOPICS, 6, shell.to_client) == {"none": 3}
    assert tokens(shell) == -10


def test_what_a_broker_said_before_counts_no_more() -> None:
    shell = shell_of()
    shell.client_sends(delete(["a"]))
    shell.broker_sends(sizes({"a": (1, 4)}))
    shell.broker_sends(deleted({"a": (29, 0)}))
    shell.client_sends(delete(["a"]))
    shell.broker_sends(sizes({"a": (0, 0)}))
    assert tokens(shell) == 22


def test_a_topic_that_came_into_being_after_the_question_costs_one() -> None:
    shell = shell_of()
    shell.client_sends(delete(["young"]))
    shell.broker_sends(sizes({"young": (0, 0)}))
    shell.broker_sends(deleted({"young": (0, 5)}))
    assert tokens(shell) == 21


def test_what_was_just_done_counts_more_than_what_the_broker_has_heard_yet() -> None:
    """Created, grown, deleted and created again while the broker still knows nothing of it."""
    shell = shell_of()
    nothing_yet = sizes({"a": (0, 0)})
    shell.client_sends(create({"a": -1}))
    shell.broker_sends(created({"a": (0, 3)}))
    shell.client_sends(grow({"a": 5}))
    shell.broker_sends(nothing_yet)
    shell.broker_sends(grown({"a": 0}))
    assert tokens(shell) == 22 - 3 - 2
    shell.client_sends(delete(["a"]))
    shell.broker_sends(nothing_yet)
    shell.broker_sends(deleted({"a": (0, 9)}))
    assert tokens(shell) == 17 - 5
    shell.client_sends(delete(["a"]))
    shell.broker_sends(sizes({"a": (9, 5)}))
    assert tokens(shell) == 12, "it is gone"
    shell.broker_sends(deleted({"a": (3, 0)}))
    shell.advance(10_000)
    shell.client_sends(delete(["a"]))
    shell.broker_sends(sizes({"a": (10, 4)}))
    assert tokens(shell) == 22 - 4, "after a while brokers know better"


def created_with_id(name: str, number: int, partitions: int) -> bytes:
    """The answer to CreateTopics v7, which tells the id."""
    told: Value = {
        "name": name,
        "topicId": topic_id(number),
        "errorCode": 0,
        "errorMessage": None,
        "numPartitions": partitions,
        "replicationFactor": 1,
        "configs": [],
    }
    return answer(CREATE_TOPICS, 7, {"throttleTimeMs": 0, "topics": [told]})


def test_a_topic_that_has_just_grown_is_deleted_by_its_id_at_its_new_size() -> None:
    """Created with 1 partition, grown to 20; its deletion, pipelined behind the growth, asks for it anew."""
    shell = shell_of(100.0)
    shell.client_sends(create({"a": 1}))
    shell.broker_sends(created_with_id("a", 7, 1))
    assert tokens(shell) == 1_100 - 1
    shell.client_sends(grow({"a": 20}))
    shell.broker_sends(sizes({"a": (7, 1)}))
    shell.client_sends(delete(["b"]))
    shell.broker_sends(grown({"a": 0}))
    shell.broker_sends(sizes({"b": (0, 0)}))
    shell.broker_sends(deleted({"b": (3, 0)}))
    assert tokens(shell) == 1_100 - 20
    shell.client_sends(delete([], ids=[7]))
    shell.broker_sends(sizes({"a": (7, 20)}))
    shell.broker_sends(deleted({"a": (0, 7)}))
    assert tokens(shell) == 1_100 - 40


def test_a_topic_that_was_deleted_by_its_name_is_gone_by_its_id_too() -> None:
    """Below v6 the answer does not tell the id; brokers that are asked have not heard of it yet."""
    shell = shell_of()
    shell.client_sends(create({"a": 5}))
    shell.broker_sends(created_with_id("a", 7, 5))
    shell.client_sends(delete(["a"], version=5))
    shell.broker_sends(sizes({"a": (7, 5)}))
    shell.broker_sends(deleted({"a": (0, 0)}, version=5))
    assert tokens(shell) == 22 - 10
    shell.client_sends(delete([], ids=[7]))
    shell.broker_sends(sizes({"a": (7, 5)}))
    assert tokens(shell) == 22 - 10


def begun_deletion(first: Shell) -> None:
    """`a`, of 22 partitions, is created and deleted again by one who has not heard yet that it is gone."""
    first.client_sends(create({"a": 22}))
    first.broker_sends(created({"a": (0, 22)}))
    first.client_sends(delete(["a"]))
    first.broker_sends(sizes({"a": (1, 22)}))


@pytest.mark.parametrize("version", [4, 7])
@pytest.mark.parametrize("validate_only", [False, True])
def test_a_topic_that_is_created_behind_its_own_deletion_is_charged(
    version: int, validate_only: bool
) -> None:
    """Whether the answer tells how many partitions it has (version 5 on) or not; 22 are owed then."""
    new = connections(2.0)
    first, second = new(), new()
    begun_deletion(first)
    assert tokens(first) == -22
    asked = create({"a": 20}, version=version, validate_only=validate_only)
    second.client_sends(asked)
    second.broker_sends(sizes({"a": (1, 22)}))
    assert bytes(second.to_broker).endswith(asked), "it exists, as far as is known: the broker's to refuse"
    assert tokens(second) == -22
    first.broker_sends(deleted({"a": (0, 1)}))
    second.broker_sends(created({"a": (0, 20)}, version=version))
    assert tokens(second) == -42


def test_a_topic_that_is_deleted_behind_its_own_creation_costs_what_it_has() -> None:
    new = connections(2.0)
    first, second = new(), new()
    first.client_sends(create({"a": 9}))
    second.client_sends(delete(["a"]))
    second.broker_sends(sizes({"a": (0, 0)}))
    first.broker_sends(created({"a": (0, 9)}))
    second.broker_sends(deleted({"a": (0, 1)}))
    assert tokens(second) == 22 - 9 - 9


def test_a_topic_that_is_grown_behind_its_own_creation_costs_what_it_grew_by() -> None:
    new = connections(2.0)
    first, second = new(), new()
    first.client_sends(create({"a": 2}))
    second.client_sends(grow({"a": 9}))
    second.broker_sends(sizes({"a": (0, 0)}))
    first.broker_sends(created({"a": (0, 2)}))
    second.broker_sends(grown({"a": 0}))
    assert tokens(second) == 22 - 2 - 7


def test_no_more_than_ten_thousand_topics_are_remembered() -> None:
    known = TopicDefaults()
    for number in range(10_001):
        known.remember(f"t-{number}", 3, 1_000.0)
    assert known.recent("t-0", 1_000.0) is None
    assert known.recent("t-1", 1_000.0) == 3
    known.remember("t-1", 4, 10_999.0)
    assert known.recent("t-10000", 10_999.0) == 3
    assert known.recent("t-10000", 11_000.0) is None
    assert known.recent("t-1", 11_000.0) == 4


def test_growth_is_counted_by_what_is_added() -> None:
    shell = shell_of()
    shell.client_sends(grow({"a": 10, "b": 3}))
    shell.broker_sends(sizes({"a": (1, 4), "b": (2, 3)}))
    assert bytes(shell.to_broker) == question(["a", "b"]) + grow({"a": 10, "b": 3})
    shell.broker_sends(grown({"a": 0, "b": 37}))
    assert bytes(shell.to_client) == grown({"a": 0, "b": 37})
    assert tokens(shell) == 16


def test_growth_beyond_the_quota_is_refused_beside_what_is_not() -> None:
    shell = shell_of()
    shell.client_sends(grow({"a": 30, "b": 5}))
    shell.broker_sends(sizes({"a": (1, 4), "b": (2, 3)}))
    assert bytes(shell.to_broker) == question(["a", "b"]) + grow({"a": 30})
    shell.broker_sends(grown({"a": 0}))
    assert errors_in(CREATE_PARTITIONS, 3, shell.to_client) == {"a": 0, "b": REFUSED}
    assert throttle_of(CREATE_PARTITIONS, 3, shell.to_client) == 2_000


def test_a_topic_whose_name_is_not_told_is_counted_by_its_id() -> None:
    shell = shell_of()
    asked = delete([], ids=[7, 8])
    shell.client_sends(asked)
    topics: list[Value] = [
        {
            "name": name,
            "topicId": topic_id(number),
            "partitions": [{"partitionIndex": n} for n in range(count)],
        }
        for name, number, count in ((None, 7, 3), ("b", 8, 4))
    ]
    shell.broker_sends(answer(METADATA, 12, {"topics": topics}))
    assert shell.to_broker.endswith(asked)
    assert tokens(shell) == 22 - 3 - 4


def test_what_the_broker_tells_of_a_topic_that_nobody_asked_for_is_not_learnt() -> None:
    shell = shell_of()
    shell.client_sends(create({"a": 3}))
    shell.broker_sends(created({"b": (0, 0)}))
    assert tokens(shell) == 22 - 3
    mutations = shell.session._requests.mutations
    assert mutations is not None
    assert mutations.defaults.recent("b", shell.now_ms) is None
    assert mutations.defaults.recent("a", shell.now_ms) is None
