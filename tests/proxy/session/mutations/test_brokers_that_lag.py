"""Brokers that have not heard for a while of what was done through the proxy: one that is told of 10,000
partitions at once lagged by more than a minute, and what it did not know of passed in debt, at no cost.
"""

from __future__ import annotations

import pytest

from sluice.protocol.apis import ApiKey
from sluice.proxy.session.mutations.topic_defaults import RECENT_MS, UNHEARD_MS, TopicDefaults
from testkit.frames.mutation_frames import (
    CREATE_PARTITIONS,
    DELETE_TOPICS,
    REFUSED,
    create,
    created,
    delete,
    deleted,
    errors_in,
    grow,
    grown,
    sizes,
)
from testkit.proxy.mutation_session import creates, shell_of, tokens
from testkit.proxy.playbook import Shell

LATER_MS = 60_000.0
UNHEARD_OF = sizes({"a": (0, 0)})


def made(partitions: int) -> Shell:
    """Topic a was made through the proxy a minute ago, and its user owes since."""
    shell = shell_of()
    shell.client_sends(create({"a": partitions}))
    shell.broker_sends(created({"a": (0, partitions)}))
    shell.advance(LATER_MS)
    creates(shell, {"large": 400})
    shell.broker_sends(created({"large": (0, 400)}))
    shell.to_client.clear()
    assert tokens(shell) < 0
    return shell


def test_a_topic_made_here_grows_only_as_the_quota_has_it() -> None:
    shell = made(1)
    shell.client_sends(grow({"a": 3_000}))
    shell.broker_sends(UNHEARD_OF)
    assert errors_in(CREATE_PARTITIONS, 3, shell.to_client) == {"a": REFUSED}


def test_a_topic_made_here_is_deleted_only_as_the_quota_has_it() -> None:
    shell = made(20)
    shell.client_sends(delete(["a"]))
    shell.broker_sends(UNHEARD_OF)
    assert errors_in(DELETE_TOPICS, 6, shell.to_client) == {"a": REFUSED}


@pytest.mark.parametrize("error", [0, -1])
def test_a_topic_that_nobody_knew_of_and_grew_is_charged_for_what_it_may_have_grown_by(error: int) -> None:
    """-1: by a part, which a controller keeps."""
    shell = shell_of()
    shell.client_sends(grow({"a": 3_000}))
    shell.broker_sends(UNHEARD_OF)
    shell.broker_sends(grown({"a": error}))
    assert tokens(shell) == 22 - 2_999


def test_no_growth_is_charged_beyond_what_a_controller_adds() -> None:
    shell = shell_of()
    shell.client_sends(grow({"a": 2_000_000_000}))
    shell.broker_sends(UNHEARD_OF)
    shell.broker_sends(grown({"a": -1}))
    assert tokens(shell) == 22 - 10_000


@pytest.mark.parametrize("error", [3, 37, 41])
def test_what_a_broker_refuses_costs_nothing(error: int) -> None:
    shell = shell_of()
    shell.client_sends(grow({"a": 3_000}))
    shell.broker_sends(UNHEARD_OF)
    shell.broker_sends(grown({"a": error}))
    assert tokens(shell) == 22


@pytest.mark.parametrize(
    ("api_key", "said", "present"),
    [
        (ApiKey.DELETE_TOPICS, 0, 5),
        (ApiKey.DELETE_TOPICS, 9, 9),
        (ApiKey.CREATE_PARTITIONS, 0, 5),
        (ApiKey.CREATE_PARTITIONS, 2, 2),
        (ApiKey.CREATE_PARTITIONS, 9, 5),
        (ApiKey.CREATE_TOPICS, 0, 0),
        (ApiKey.CREATE_TOPICS, 9, 5),
    ],
)
def test_of_what_was_done_and_what_is_told_counts_what_costs_more(
    api_key: ApiKey, said: int, present: int
) -> None:
    """It may have been changed elsewhere meanwhile."""
    defaults = TopicDefaults()
    defaults.remember("a", 5, 0.0)
    assert defaults.present("a", said, api_key, RECENT_MS - 1.0) == 5
    assert defaults.present("a", said, api_key, RECENT_MS) == present
    assert defaults.present("a", said, api_key, UNHEARD_MS - 1.0) == present
    assert defaults.present("a", said, api_key, UNHEARD_MS) == said


def test_what_a_broker_has_heard_of_counts_for_ten_seconds() -> None:
    defaults = TopicDefaults()
    defaults.remember("a", 5, 0.0)
    defaults.heard("a", 4)
    assert defaults.present("a", 9, ApiKey.CREATE_PARTITIONS, RECENT_MS) == 5
    defaults.heard("a", 5)
    assert defaults.present("a", 9, ApiKey.CREATE_PARTITIONS, RECENT_MS - 1.0) == 5
    assert defaults.present("a", 9, ApiKey.CREATE_PARTITIONS, RECENT_MS) == 9


def test_a_topic_that_was_made_and_told_is_as_the_broker_says_from_then_on() -> None:
    shell = shell_of()
    shell.client_sends(create({"a": 1}))
    shell.broker_sends(created({"a": (0, 1)}))
    for said in (1, 9):
        shell.client_sends(grow({"a": 10}))
        shell.broker_sends(sizes({"a": (1, said)}))
        shell.broker_sends(grown({"a": 37}))
        shell.advance(LATER_MS)
    shell.client_sends(grow({"a": 10}))
    shell.broker_sends(sizes({"a": (1, 9)}))
    assert tokens(shell) == 22 - 1


def test_a_topic_that_was_deleted_and_made_elsewhere_is_charged_as_it_is() -> None:
    shell = shell_of()
    shell.client_sends(delete(["a"]))
    shell.broker_sends(sizes({"a": (1, 2)}))
    shell.broker_sends(deleted({"a": (0, 1)}))
    shell.advance(LATER_MS)
    shell.client_sends(delete(["a"]))
    shell.broker_sends(sizes({"a": (2, 7)}))
    assert tokens(shell) == 22 - 7
