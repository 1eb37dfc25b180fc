"""No request is charged more than a controller could have done with it: 10,000 partitions made or added.

2 partitions a second, 22 tokens at first; buckets of more where nothing is to be owed.
"""

from __future__ import annotations

import pytest

from sluice.proxy.session.causes import DisconnectCause
from sluice.proxy.session.connection_states import State
from sluice.quotas.kinds import QuotaKind
from testkit.frames.mutation_frames import (
    create,
    created,
    delete,
    deleted,
    errors_in,
    grow,
    grown,
    sizes,
)
from testkit.proxy.mutation_session import connections, shell_of, tokens
from testkit.proxy.playbook import Shell

MOST = 10_000


def nothing_there(shell: Shell, *names: str) -> None:
    """The broker's answer, if it is asked."""
    if shell.state is State.AWAITING_BROKER:
        shell.broker_sends(sizes(dict.fromkeys(names, (0, 0))))


@pytest.mark.parametrize("version", [4, 7])
@pytest.mark.parametrize("partitions", [MOST + 1, 2_000_000_000])
def test_a_topic_of_more_partitions_than_a_controller_makes_is_the_brokers_to_refuse(
    version: int, partitions: int
) -> None:
    """Kafka's own quota does not count it either: PolicyViolationException comes before."""
    opened = connections()
    shell = opened()
    asked = create({"x": partitions}, version=version)
    shell.client_sends(asked)
    assert bytes(shell.to_broker) == asked
    assert tokens(shell) == 22
    shell.session.client_closed(DisconnectCause.CLIENT_RESET)
    shell.session.closed(shell.now_ms)
    neighbour = opened()
    neighbour.client_sends(create({"y": 1}))
    assert bytes(neighbour.to_broker) == create({"y": 1})


def test_a_topic_of_as_many_as_a_controller_makes_is_charged() -> None:
    shell = shell_of(MOST / 11)
    shell.client_sends(create({"x": MOST}))
    assert round(tokens(shell), 3) == 0


def test_of_topics_that_are_more_together_what_one_request_can_make_is_charged() -> None:
    """All of them are refused, unless some are refused for themselves: then the others are made."""
    shell = shell_of(10.0)
    shell.client_sends(create({"not his": 1, "a": 8_000, "b": 7_000, "c": 1_000}, version=4))
    nothing_there(shell, "a", "b", "c")
    assert tokens(shell) == 110 - MOST
    results = {"not his": (17, -1), "a": (29, -1), "b": (0, 7_000), "c": (29, -1)}
    shell.broker_sends(created(results, version=4))
    assert tokens(shell) == 110 - 7_000, "what was made, though it was beyond what was charged at first"


def test_all_of_them_refused_cost_nothing() -> None:
    shell = shell_of(10.0)
    shell.client_sends(create({"a": 8_000, "b": 7_000}, version=4))
    nothing_there(shell, "a", "b")
    shell.broker_sends(created({"a": (44, -1), "b": (44, -1)}, version=4))
    assert tokens(shell) == 110


def test_growth_beyond_what_a_controller_adds_is_charged_and_refused_as_that() -> None:
    """Kafka charges all that is asked for."""
    opened = connections()
    first, second = opened(), opened()
    for shell in (first, second):
        shell.client_sends(grow({"x": 2_000_000_000}))
        shell.broker_sends(sizes({"x": (1, 5)}))
        assert tokens(shell) == 22 - MOST
    assert errors_in(37, 3, second.to_client) == {"x": 89}


@pytest.mark.parametrize("error", [7, -1])
def test_what_a_controller_may_have_added_before_it_failed_stays_charged(error: int) -> None:
    """Of 20,000 it adds 10,000, says UNKNOWN_SERVER_ERROR, and keeps them (ReplicationControlManager)."""
    shell = shell_of()
    shell.client_sends(grow({"x": 20_000}))
    shell.broker_sends(sizes({"x": (1, 5)}))
    shell.broker_sends(grown({"x": error}))
    assert tokens(shell) == 22 - MOST


def test_growth_that_the_broker_refuses_costs_nothing_however_large() -> None:
    shell = shell_of()
    shell.client_sends(grow({"x": 20_000, "y": 20_000}, version=2))
    shell.broker_sends(sizes({"x": (1, 5), "y": (2, 5)}))
    shell.broker_sends(grown({"x": 44, "y": 44}, version=2))
    assert tokens(shell) == 22


def test_a_default_that_makes_more_than_a_controller_does_is_bounded_too() -> None:
    shell = shell_of()
    shell.shared.topic_defaults.partitions = 6_000
    shell.client_sends(create({"a": -1, "b": -1}, version=5))
    nothing_there(shell, "a", "b")
    assert tokens(shell) == 22 - MOST
    shell.broker_sends(created({"a": (0, 3), "b": (0, 3)}, version=5))
    assert tokens(shell) == 22 - 6


def test_deletions_have_no_such_bound_for_a_controller_has_none() -> None:
    shell = shell_of()
    shell.client_sends(delete(["a", "b"], version=4))
    shell.broker_sends(sizes({"a": (1, 8_000), "b": (2, 7_000)}))
    shell.advance(1_000.0)
    shell.broker_sends(deleted({"a": (0, 1), "b": (0, 2)}, version=4))
    assert shell.sensor(QuotaKind.CONTROLLER_MUTATION).used == 15_000


def test_one_that_is_held_and_never_goes_gives_back_what_it_was_charged() -> None:
    opened = connections()
    first, second = opened(), opened()
    first.client_sends(delete(["old"], version=4))
    first.broker_sends(sizes({"old": (1, 32)}))
    second.client_sends(create({"a": 8_000, "b": 7_000}, version=4))
    nothing_there(second, "a", "b")
    assert second.state is State.HOLDING
    assert tokens(second) == -10 - MOST
    second.session.closed(second.now_ms)
    assert tokens(second) == -10


def test_the_answer_to_one_whose_client_has_left_is_waited_for_and_puts_it_right() -> None:
    """Only by what the broker says: a reset alone gives nothing back."""
    shell = shell_of()
    shell.client_sends(create({"x": 20}))
    shell.session.client_closed(DisconnectCause.CLIENT_RESET)
    owed = [shell.session.is_owed_charges]
    assert tokens(shell) == 2
    shell.broker_sends(created({"x": (29, -1)}))
    owed.append(shell.session.is_owed_charges)
    assert owed == [True, False]
    assert tokens(shell) == 22


def test_what_no_broker_ever_answers_stays_charged() -> None:
    shell = shell_of()
    shell.client_sends(create({"x": 20}))
    shell.session.broker_closed(DisconnectCause.BROKER_RESET)
    shell.session.closed(shell.now_ms)
    assert tokens(shell) == 2
