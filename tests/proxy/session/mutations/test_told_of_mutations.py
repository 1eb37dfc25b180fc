"""What the access log, the records and later requests are told of topics that were created and deleted."""

from __future__ import annotations

import pytest

from sluice.proxy.session.connection_states import State
from sluice.proxy.session.mutations.topic_defaults import TopicDefaults
from sluice.proxy.session.policy import SessionPolicy, SharedState
from sluice.proxy.session.session import Session
from sluice.quotas.limits.limits import QuotaLimits
from sluice.quotas.manager import QuotaManager
from sluice.usage.flow import TopicNames
from sluice.usage.records import EventKind, Recorder
from testkit.frames.frames import throttle_of
from testkit.frames.mutation_frames import (
    CREATE_TOPICS,
    create,
    created,
    delete,
    deleted,
    errors_in,
    grow,
    grown,
    question,
    sizes,
)
from testkit.proxy.mutation_session import EVERYBODY, KEY, connections, creates, in_debt, shell_of, tokens
from testkit.proxy.playbook import Shell


def logged_shell(rate: float = 2.0) -> Shell:
    """Its access log tells of mutations."""
    quotas = QuotaManager(QuotaLimits([(EVERYBODY, {KEY: rate})]))
    return Shell(
        Session(SharedState(quotas, Recorder(), topic_names=TopicNames()), SessionPolicy(), "10.0.0.1")
    )


def mutations_of(shell: Shell) -> list[float]:
    amounts = shell.shared.recorder.amounts
    assert all(amount.column == "mutations" and amount.at_ms == shell.now_ms for amount in amounts)
    return [amount.amount for amount in amounts]


def test_the_access_log_is_told_what_was_done_once_the_broker_has_said_so() -> None:
    shell = logged_shell()
    shell.client_sends(create({"a": 3, "b": 2, "c": -1}))
    assert mutations_of(shell) == []
    shell.broker_sends(created({"a": (0, 3), "b": (36, 0), "c": (0, 4)}))
    assert mutations_of(shell) == [3, 4]
    assert tokens(shell) == 22 - 3 - 4


@pytest.mark.parametrize("version", [4, 7])
def test_what_the_broker_refuses_is_never_told_however_late_it_says_so(version: int) -> None:
    shell = logged_shell()
    shell.client_sends(create({f"t{number}": 2**31 - 1 for number in range(9)}, version=version))
    shell.advance(10_000.0)
    shell.broker_sends(created({f"t{number}": (29, -1) for number in range(9)}, version=version))
    assert mutations_of(shell) == []


def test_what_no_broker_has_answered_is_not_told_though_it_stays_charged() -> None:
    """As no byte of such a request is: the roll-up counts what finished."""
    shell = logged_shell()
    shell.client_sends(create({"a": 3}))
    shell.session.closed(shell.now_ms)
    assert mutations_of(shell) == []
    assert tokens(shell) == 19


def test_a_topic_that_was_not_known_counts_one_when_it_is_gone_and_one_that_is_not_there_none() -> None:
    shell = logged_shell()
    shell.client_sends(delete(["young", "none"]))
    shell.broker_sends(sizes({"young": (0, 0), "none": (0, 0)}))
    assert mutations_of(shell) == []
    shell.broker_sends(deleted({"young": (0, 5), "none": (3, 0)}))
    assert mutations_of(shell) == [1]


def test_what_may_have_been_done_though_its_time_was_over_stays_counted() -> None:
    shell = logged_shell()
    shell.client_sends(create({"a": 3}))
    shell.broker_sends(created({"a": (7, 0)}))
    assert mutations_of(shell) == [3]
    assert tokens(shell) == 19


def test_fewer_partitions_by_default_than_were_charged_come_back() -> None:
    shell = logged_shell()
    shell.client_sends(create({"a": -1}))
    shell.broker_sends(created({"a": (0, 5)}))
    assert tokens(shell) == 17
    shell.client_sends(create({"b": -1}, correlation_id=2))
    assert tokens(shell) == 12, "as many as the last one had"
    shell.broker_sends(created({"b": (0, 2)}, correlation_id=2))
    assert tokens(shell) == 15
    assert mutations_of(shell) == [5, 2]


def test_what_was_told_by_number_is_not_put_right_by_the_answer() -> None:
    shell = logged_shell()
    shell.client_sends(create({"a": 3}))
    shell.broker_sends(created({"a": (0, 9)}))
    assert mutations_of(shell) == [3]
    assert tokens(shell) == 19


def test_what_is_only_validated_is_charged_and_remembered_by_nobody() -> None:
    shell = logged_shell()
    shell.client_sends(create({"a": 3}, validate_only=True))
    shell.broker_sends(created({"a": (0, 3)}))
    shell.client_sends(grow({"a": 5}, correlation_id=2))
    shell.broker_sends(sizes({"a": (0, 0)}, correlation_id=2))
    shell.broker_sends(grown({"a": 37}, correlation_id=2))
    assert tokens(shell) == 19


def test_a_hundred_topics_are_asked_for_at_once_and_more_one_after_another() -> None:
    names = [f"t{number}" for number in range(201)]
    shell = shell_of(rate=1_000.0)
    shell.client_sends(delete(names))
    for begin, end in ((0, 100), (100, 200), (200, 201)):
        assert bytes(shell.to_broker) == question(names[begin:end])
        shell.to_broker.clear()
        shell.broker_sends(sizes({name: (int(name[1:]) + 1, 1) for name in names[begin:end]}))
    assert bytes(shell.to_broker) == delete(names)


def test_a_request_that_is_refused_whole_is_recorded_with_the_mute_that_it_brought() -> None:
    shell = in_debt(10)
    before, forwarded = len(shell.records), shell.session.bytes_from_client
    asked = create({"a": 1}, correlation_id=2)
    shell.client_sends(asked)
    shell.broker_sends(sizes({"a": (0, 0)}, correlation_id=2))
    assert errors_in(CREATE_TOPICS, 7, shell.to_client) == {"a": 89}
    record = shell.records[-1]
    assert len(shell.records) > before
    assert shell.session.bytes_from_client == forwarded + len(shell.to_broker), "the question alone"
    assert (record.request_bytes, record.response_bytes) == (len(asked), len(shell.to_client))
    assert (record.upstream_ms, record.throttle_ms, record.held_ms) == (0.0, 5_000.0, 0.0)
    event = list(shell.events)[-1]
    assert (event.kind, event.delay_ms, event.charged, event.charged_bytes) == (
        EventKind.REFUSAL,
        5_000.0,
        0,
        0,
    )


def test_one_that_was_held_and_never_goes_is_told_of_as_dropped_and_gives_its_partitions_back() -> None:
    opened = connections()
    first, second = opened(), opened()
    creates(first, {"a": 30}, version=5)
    second.client_sends(create({"b": 4}, version=5))
    second.broker_sends(sizes({"b": (0, 0)}))
    assert second.state is State.HOLDING
    assert tokens(first) == -12
    second.session.closed(second.now_ms)
    assert tokens(first) == -8
    event = list(second.events)[-1]
    assert (event.kind, event.delay_ms, event.charged, event.charged_bytes) == (EventKind.DROP, 0.0, 4, 0)


def test_what_was_just_done_is_known_for_ten_seconds() -> None:
    defaults = TopicDefaults()
    assert (defaults.partitions, TopicDefaults(6).partitions) == (1, 6)
    defaults.remember("a", 3, 0.0)
    assert (defaults.recent("a", 9_999.0), defaults.recent("a", 10_000.0), defaults.recent("b", 0.0)) == (
        3,
        None,
        None,
    )
    defaults.remember("a", 5, 9_000.0)
    assert defaults.recent("a", 18_999.0) == 5


@pytest.mark.parametrize(("again_ms", "kept"), [(599_999.0, 3), (600_000.0, 2)])
def test_what_is_known_no_more_is_forgotten_with_the_next_that_comes(again_ms: float, kept: int) -> None:
    defaults = TopicDefaults()
    defaults.remember("a", 1, 0.0)
    defaults.remember("b", 1, 5_000.0)
    defaults.remember("c", 1, again_ms)
    assert len(defaults._recent) == kept


def test_a_topic_that_is_done_again_is_the_youngest() -> None:
    defaults = TopicDefaults()
    for now_ms, name in ((0.0, "a"), (3e5, "b"), (5.4e5, "a"), (7.2e5, "c"), (9e5, "d")):
        defaults.remember(name, 1, now_ms)
    assert list(defaults._recent) == ["a", "c", "d"]


def test_no_more_than_ten_thousand_topics_are_known() -> None:
    defaults = TopicDefaults()
    for number in range(10_005):
        defaults.remember(str(number), 1, 0.0)
    assert len(defaults._recent) == 10_000
    assert defaults.recent("4", 0.0) is None
    assert defaults.recent("5", 0.0) == 1


@pytest.mark.parametrize("rate", [0.001, 1e-300])
def test_a_debt_of_more_days_than_the_field_holds_is_told_as_its_most(rate: float) -> None:
    """A topic of 10,000 partitions, which the broker was still at when its time was over: so it stays
    counted. Whoever asks next is refused for 24 days, whole or in part, and keeps his connection."""
    shell = shell_of(rate)
    creates(shell, {"huge": 10_000})
    shell.broker_sends(created({"huge": (7, 0)}))
    shell.to_client.clear()
    shell.advance(8_000.0)
    shell.client_sends(create({"a": 1}, correlation_id=2))
    shell.broker_sends(sizes({"a": (0, 0)}, correlation_id=2))
    assert throttle_of(CREATE_TOPICS, 7, shell.to_client) == 2**31 - 1
    shell.to_client.clear()
    shell.advance(8_000.0)
    shell.client_sends(create({"b": 1, "huge": 2}, correlation_id=3))
    shell.broker_sends(sizes({"b": (0, 0), "huge": (0, 1)}, correlation_id=3))
    shell.broker_sends(created({"huge": (36, 0)}, correlation_id=3))
    assert throttle_of(CREATE_TOPICS, 7, shell.to_client) == 2**31 - 1
    assert errors_in(CREATE_TOPICS, 7, shell.to_client) == {"b": 89, "huge": 36}
