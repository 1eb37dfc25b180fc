"""Who would create topics "if they are not there" is neither charged nor delayed for those that are.

2 partitions a second, 22 tokens at first. What an answer tells is what is owed once it has been read.
"""

from __future__ import annotations

import pytest

from sluice.proxy.session.connection_states import State
from testkit.frames.frames import throttle_of
from testkit.frames.mutation_frames import CREATE_TOPICS, create, created, errors_in, question, sizes
from testkit.proxy.mutation_session import connections, creates, shell_of, tokens
from testkit.proxy.playbook import AwaitingBroker, Broker, Client, Playbook, Reading, ToBroker, ToClient


@pytest.mark.parametrize("version", [4, 7])
def test_a_new_topic_beside_one_that_exists_is_made_and_its_client_not_delayed(version: int) -> None:
    asked = create({"existing": 50, "new": 1}, version=version)
    told = created({"existing": (36, -1), "new": (0, 1)}, version=version)
    shell = (
        Playbook(shell_of())
        >> Client(asked)
        << ToBroker(question(["existing", "new"]))
        << AwaitingBroker()
        >> Broker(sizes({"existing": (1, 50), "new": (0, 0)}))
        << ToBroker(asked)
        << Reading()
        >> Broker(told)
        << ToClient(told)
    ).done()
    assert tokens(shell) == 21


def test_a_neighbour_is_not_held_for_a_topic_that_exists() -> None:
    opened = connections()
    first, second = opened(), opened()
    first.client_sends(create({"existing": 1_000}, version=4))
    first.broker_sends(sizes({"existing": (1, 1_000)}))
    second.client_sends(create({"other": 1}, version=4))
    assert bytes(second.to_broker) == create({"other": 1}, version=4)
    assert (first.state, second.state) == (State.READING, State.READING)


@pytest.mark.parametrize(("partitions", "is_asked"), [(22, False), (23, True)])
def test_only_what_the_bucket_does_not_cover_is_asked_about(partitions: int, is_asked: bool) -> None:
    shell = shell_of()
    shell.client_sends(create({"a": partitions - 1, "b": 1, "not sound": 5_000}))
    assert (shell.state is State.AWAITING_BROKER) == is_asked


def test_what_was_made_here_a_moment_ago_needs_no_question() -> None:
    shell = shell_of()
    shell.client_sends(create({"a": 20}))
    shell.broker_sends(created({"a": (0, 20)}))
    shell.to_broker.clear()
    shell.client_sends(create({"a": 20, "b": 2}))
    assert bytes(shell.to_broker) == create({"a": 20, "b": 2})


def test_who_is_refused_beside_what_the_broker_refuses_is_told_to_come_again_at_once() -> None:
    """A policy forbids the first topic: nothing is owed any more."""
    shell = shell_of()
    creates(shell, {"forbidden": 32, "b": 1})
    assert bytes(shell.to_broker) == create({"forbidden": 32})
    shell.broker_sends(created({"forbidden": (44, -1)}))
    assert errors_in(CREATE_TOPICS, 7, shell.to_client) == {"b": 89, "forbidden": 44}
    assert throttle_of(CREATE_TOPICS, 7, shell.to_client) == 0


@pytest.mark.parametrize(("error", "told_ms"), [(0, 10_000), (44, 4_000)])
def test_an_older_client_is_told_what_is_owed_for_what_was_done(error: int, told_ms: int) -> None:
    """30 and 12 of 22: 20 owed; without the 12, 8."""
    shell = shell_of()
    creates(shell, {"a": 30, "b": 12}, version=4)
    shell.broker_sends(created({"a": (0, -1), "b": (error, -1)}, version=4))
    assert throttle_of(CREATE_TOPICS, 4, shell.to_client) == told_ms


def test_what_others_have_come_to_owe_meanwhile_is_not_told() -> None:
    opened = connections()
    first, second = opened(), opened()
    creates(first, {"a": 24}, version=4)
    creates(second, {"b": 100}, version=4)
    assert second.state is State.HOLDING
    first.broker_sends(created({"a": (0, -1)}, version=4))
    assert throttle_of(CREATE_TOPICS, 4, first.to_client) == 1_000
