"""The debt of controller_mutation_rate is the entity's: who connects anew waits, too (wire-semantics 1.6).

Older clients (CreateTopics below v6), who know no error 89. 2 partitions a second, 22 at first; a delay ends
after 8 s, and after 2 s for a group's connection.
"""

from __future__ import annotations

import heapq
from itertools import count

import pytest

from sluice.proxy.session.causes import DisconnectCause
from sluice.proxy.session.connection_states import State
from sluice.quotas.limits.limits import QuotaLimits
from sluice.usage.records import EventKind
from testkit.frames.frames import HEARTBEAT, answer, request, throttle_of
from testkit.frames.mutation_frames import (
    CREATE_TOPICS,
    REFUSED,
    create,
    created,
    delete,
    errors_in,
    grow,
    question,
    sizes,
)
from testkit.proxy.mutation_session import EVERYBODY, KEY, connections, creates, tokens
from testkit.proxy.playbook import (
    AwaitingBroker,
    Broker,
    Client,
    ClientLeaves,
    Drain,
    Ending,
    Held,
    Muted,
    Playbook,
    Reading,
    Reload,
    Shell,
    ToBroker,
    ToClient,
    Wait,
)
from testkit.thorough import few

BOUND_S = 8.0
RATE = 2.0
BURST = 22.0
ONE = create({"one": 1}, version=4)
NONE_YET = sizes({"one": (0, 0)})


def owing(partitions: int) -> Shell:
    """A new connection of an entity that owes so many."""
    connect = connections()
    creates(connect(), {"large": 22 + partitions}, version=4)
    return connect()


def held(partitions: int) -> Shell:
    """Likewise; its request for one more waits."""
    shell = owing(partitions)
    shell.client_sends(ONE)
    shell.broker_sends(NONE_YET)
    assert shell.state is State.HOLDING
    shell.to_broker.clear()
    return shell


def test_a_request_on_a_new_connection_waits_until_the_debt_is_paid() -> None:
    """10 owed: 5 s. The one that then goes is owed for 0.5 s."""
    shell = (
        Playbook(owing(10))
        >> Client(ONE)
        << ToBroker(question(["one"]))
        << AwaitingBroker()
        >> Broker(NONE_YET)
        << Held(for_ms=5_000)
        >> Wait(5_000)
        << ToBroker(ONE)
        << Muted(for_ms=500)
        >> Broker(created({"one": (0, 1)}, version=4))
        << ToClient(created({"one": (0, 1)}, version=4, throttle_ms=500))
        >> Wait(500)
        << Reading()
    ).done()
    assert tokens(shell) == 0
    record = shell.records[-1]
    assert (record.api_key, record.held_ms, record.throttle_ms) == (CREATE_TOPICS, 5_000, 5_500)
    kinds = [(event.kind, event.delay_ms, event.charged) for event in shell.events]
    assert kinds[1:] == [(EventKind.HOLD, 5_000, 1), (EventKind.MUTE, 500, 1)]
    assert [event.continues for event in shell.events][1:] == [False, True], "one delay"


def test_a_debt_beyond_the_bound_lets_it_go_after_eight_seconds_and_it_counts() -> None:
    """100 owed: 50 s."""
    shell = held(100)
    assert shell.session.pace.wake_at_ms - shell.now_ms == 8_000
    shell.advance(7_999)
    assert not shell.to_broker
    shell.advance(1)
    assert bytes(shell.to_broker) == ONE
    assert tokens(shell) == -100 - 1 + 16
    assert shell.state is State.READING, "hold and mute together end after the bound"
    assert [event.kind for event in shell.events][1:] == [EventKind.HOLD], "there is no mute"


def test_on_a_groups_connection_it_is_held_for_two_seconds_at_most() -> None:
    shell = owing(10)
    shell.client_sends(request(HEARTBEAT, 4, correlation_id=1))
    shell.broker_sends(answer(HEARTBEAT, 4, correlation_id=1))
    shell.client_sends(ONE)
    shell.broker_sends(NONE_YET)
    assert shell.session.pace.wake_at_ms - shell.now_ms == 2_000


def test_what_the_broker_will_refuse_waits_for_nothing() -> None:
    """The topic exists: that is not the quota's to delay."""
    shell = owing(10)
    shell.client_sends(ONE)
    shell.broker_sends(sizes({"one": (1, 4)}))
    assert bytes(shell.to_broker) == question(["one"]) + ONE
    assert tokens(shell) == -10


def test_a_request_that_only_asks_whether_it_could_be_done_waits_as_well() -> None:
    shell = owing(10)
    shell.client_sends(create({"one": 1}, version=4, validate_only=True))
    shell.broker_sends(NONE_YET)
    assert shell.session.pace.wake_at_ms - shell.now_ms == 5_000


@pytest.mark.parametrize("asked", [delete(["one"], version=4), grow({"one": 7}, version=2)])
def test_deletion_and_growth_wait_as_creation_does(asked: bytes) -> None:
    shell = owing(10)
    shell.client_sends(asked)
    shell.broker_sends(sizes({"one": (1, 4)}))
    assert shell.session.pace.wake_at_ms - shell.now_ms == 5_000
    shell.to_broker.clear()
    shell.advance(5_000)
    assert bytes(shell.to_broker) == asked


def test_requests_behind_it_follow_when_it_has_gone() -> None:
    shell = owing(2)
    second = request(HEARTBEAT, 4, correlation_id=2)
    shell.client_sends(ONE + second)
    shell.broker_sends(NONE_YET)
    shell.advance(1_000)
    assert bytes(shell.to_broker) == question(["one"]) + ONE
    shell.advance(500)
    assert bytes(shell.to_broker) == question(["one"]) + ONE + second


def test_a_newer_client_is_refused_while_older_ones_wait_and_not_told_less_than_they_wait() -> None:
    """10 owed and 4 waiting: 7 s."""
    connect = connections()
    creates(connect(), {"large": 32}, version=4)
    older, newer = connect(), connect()
    older.client_sends(create({"old": 4}, version=4))
    older.broker_sends(sizes({"old": (0, 0)}))
    newer.client_sends(create({"new": 1}))
    newer.broker_sends(sizes({"new": (0, 0)}))
    assert errors_in(CREATE_TOPICS, 7, newer.to_client) == {"new": REFUSED}
    assert throttle_of(CREATE_TOPICS, 7, newer.to_client) == 7_000


def test_a_limit_in_shadow_mode_holds_nobody() -> None:
    connect = connections()
    shadow = QuotaLimits([(EVERYBODY, {KEY: RATE})], shadow={EVERYBODY: [KEY]})
    first = connect()
    first.shared.quotas.reload(shadow, first.now_ms)
    for shell in (first, connect()):
        creates(shell, {"a": 60}, version=4)
        assert bytes(shell.to_broker) == create({"a": 60}, version=4)
        assert shell.state is State.READING


# Who leaves, and what else may come between ---------------------------------------------------------------


def test_a_client_that_left_while_it_was_held_has_its_request_dropped_and_given_back() -> None:
    shell = held(10)
    assert tokens(shell) == -11
    (Playbook(shell) >> ClientLeaves() >> Wait(5_000) << Ending(DisconnectCause.LEFT_WHILE_HELD)).done()
    assert not shell.to_broker
    assert shell.detail == f"a CreateTopics of {len(ONE)} bytes not forwarded"
    assert tokens(shell) == 0
    assert [event.kind for event in shell.events][-2:] == [EventKind.HOLD, EventKind.DROP]
    shell.session.closed(shell.now_ms)
    assert tokens(shell) == 0, "given back once"


def test_a_drain_ends_it_unforwarded() -> None:
    shell = held(10)
    (Playbook(shell) >> Drain() << Ending(DisconnectCause.DRAINED)).done()
    assert not shell.to_broker
    assert tokens(shell) == -10


def test_a_connection_that_closes_meanwhile_gives_it_back() -> None:
    shell = held(10)
    shell.session.closed(shell.now_ms)
    assert tokens(shell) == -10


@pytest.mark.parametrize("limits", [QuotaLimits(), QuotaLimits([(EVERYBODY, {KEY: 0.5})])])
def test_another_limit_meanwhile_lets_it_go_when_it_was_told_to(limits: QuotaLimits) -> None:
    shell = held(10)
    play = Playbook(shell) >> Reload(limits) >> Wait(5_000) << ToBroker(ONE) << Muted(for_ms=500)
    play.done()
    shell.broker_sends(created({"one": (0, 1)}, version=4))
    assert errors_in(CREATE_TOPICS, 4, shell.to_client) == {"one": 0}


def test_a_wake_before_its_time_changes_nothing() -> None:
    shell = held(10)
    shell.wake()
    assert shell.state is State.HOLDING
    assert not shell.to_broker


# How much passes in all -----------------------------------------------------------------------------------


def passed_in_a_minute(clients: int, partitions: int) -> tuple[list[float], list[int]]:
    """Each client opens a new connection for each request, as fast as it is served. Returns when each request
    went, in seconds, and how many went for each client."""
    connect = connections(RATE)
    numbers = count()
    went_s: list[float] = []
    turns = [0] * clients
    start_ms = connect().now_ms
    waiting = [(start_ms, next(numbers), client, None) for client in range(clients)]
    queue: list[tuple[float, int, int, Shell | None]] = list(waiting)
    heapq.heapify(queue)
    while queue and queue[0][0] < start_ms + 60_000.0:
        now_ms, _, client, shell = heapq.heappop(queue)
        if shell is None:
            shell = connect()
            shell.now_ms = now_ms
            name = f"topic-{next(numbers)}"
            shell.client_sends(create({name: partitions}, version=4))
            if shell.state is State.AWAITING_BROKER:
                shell.broker_sends(sizes({name: (0, 0)}))
                shell.to_broker.clear()
        else:
            shell.now_ms = now_ms
            shell.wake()
        if shell.state is State.HOLDING:
            heapq.heappush(queue, (shell.session.pace.wake_at_ms, next(numbers), client, shell))
            continue
        went_s.append((now_ms - start_ms) / 1000.0)
        turns[client] += 1
        shell.session.closed(now_ms)  # answered, and gone before its mute is over
        heapq.heappush(queue, (now_ms + 1.0, next(numbers), client, None))
    return went_s, turns


@pytest.mark.parametrize("partitions", few([1, 3, 30, 500], 2))
@pytest.mark.parametrize("clients", few([1, 7, 20, 60], 3))
def test_a_new_connection_for_each_request_passes_the_burst_the_rate_and_one_request_in_eight_seconds(
    clients: int, partitions: int
) -> None:
    """In a minute 22 + 120 partitions and, of each client that waits at a time, one request in 8 s."""
    went_s, _ = passed_in_a_minute(clients, partitions)
    for span_s in (1.0, BOUND_S, 30.0, 60.0):
        beyond = clients * (int(span_s / BOUND_S) + 1)
        for begin_s in went_s:
            passed = sum(begin_s <= at_s < begin_s + span_s for at_s in went_s) * partitions
            assert passed <= BURST + RATE * span_s + beyond * partitions


@pytest.mark.parametrize(("clients", "partitions"), [(1, 1), (7, 1), (15, 1), (5, 3), (1, 15)])
def test_as_long_as_all_who_wait_can_be_served_within_the_bound_the_rate_is_exact(
    clients: int, partitions: int
) -> None:
    """What waits at a time takes less than 8 s: no more passes than the bucket has, and one on credit."""
    went_s, turns = passed_in_a_minute(clients, partitions)
    passed = len(went_s) * partitions
    assert BURST + RATE * 59 - clients * partitions <= passed <= BURST + RATE * 60 + partitions
    assert max(turns) - min(turns) <= 1 + BURST / partitions, "they take turns; who begins has the burst"


def test_those_who_wait_go_in_the_order_in_which_they_came() -> None:
    """2 owed; each asks for 4 partitions: the first goes after 1 s, each next one 2 s later."""
    connect = connections()
    creates(connect(), {"large": 24}, version=4)
    shells = [connect() for _ in range(4)]
    for number, shell in enumerate(shells):
        shell.client_sends(create({f"t{number}": 4}, version=4))
        shell.broker_sends(sizes({f"t{number}": (0, 0)}))
    assert [shell.session.pace.wake_at_ms - shell.now_ms for shell in shells] == [1_000, 3_000, 5_000, 7_000]


def test_one_entitys_debt_holds_nobody_else() -> None:
    connect = connections()
    creates(connect(), {"large": 100}, version=4)
    other = connect()
    other.session.identity.user = "bob"
    other.client_sends(ONE)
    assert bytes(other.to_broker) == ONE
