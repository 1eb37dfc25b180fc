"""Topics created, grown and deleted under controller_mutation_rate, by the bytes that go and come. KIP-599.

2 partitions a second, 11 windows of 1 s: 22 tokens at first.
"""

from __future__ import annotations

import pytest

from sluice.proxy.session.authentication import WHOLE_MAX_BYTES
from sluice.proxy.session.causes import DisconnectCause
from sluice.proxy.session.connection_states import State
from sluice.proxy.session.errors import BrokerMalformed
from sluice.proxy.session.policy import SessionPolicy
from sluice.proxy.session.session import Session
from sluice.quotas.kinds import QuotaKind
from sluice.quotas.limits.limits import QuotaLimits
from sluice.usage.records import EventKind
from testkit.frames.frames import HEARTBEAT, answer, request, throttle_of
from testkit.frames.mutation_frames import (
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
)
from testkit.proxy.gateway import broker_map
from testkit.proxy.mutation_session import EVERYBODY, KEY, creates, in_debt, shell_of, tokens
from testkit.proxy.playbook import (
    AwaitingBroker,
    Broker,
    Client,
    Muted,
    Playbook,
    Reading,
    Shell,
    ToBroker,
    ToClient,
    Wait,
    shared_of,
)


def test_a_request_within_the_quota_goes_on_as_it_is() -> None:
    shell = shell_of()
    (
        Playbook(shell)
        >> Client(create({"a": 5, "b": 7}))
        << ToBroker(create({"a": 5, "b": 7}))
        >> Broker(created({"a": (0, 5), "b": (0, 7)}))
        << ToClient(created({"a": (0, 5), "b": (0, 7)}))
    ).done()
    assert tokens(shell) == 10


def test_a_request_however_large_passes_while_nothing_is_owed() -> None:
    assert tokens(in_debt(1_000)) == -1_000


def test_what_comes_in_debt_is_refused_with_the_time_after_which_to_come_again() -> None:
    """10 partitions are owed: 5 s. A refused client is muted for as long."""
    shell = in_debt(10)
    play = (
        Playbook(shell)
        >> Client(create({"more": 1}, correlation_id=2))
        << ToBroker(question(["more"], correlation_id=2))
        << AwaitingBroker()
        >> Broker(sizes({"more": (0, 0)}, correlation_id=2))
    )
    refusal = created({"more": (REFUSED, -1)}, throttle_ms=5_000, correlation_id=2)
    assert errors_in(CREATE_TOPICS, 7, shell.to_client or refusal) == {"more": REFUSED}
    (play << ToClient(refusal) << Muted(for_ms=5_000) >> Wait(5_000) << Reading()).done()
    assert tokens(shell) == 0
    (
        Playbook(shell)
        >> Client(create({"more": 1}, correlation_id=3))
        << ToBroker(question(["more"], correlation_id=3))
        << AwaitingBroker()
        >> Broker(sizes({"more": (0, 0)}, correlation_id=3))
        << ToBroker(create({"more": 1}, correlation_id=3))
        << Reading()
    ).done()


def test_topic_by_topic_the_first_are_taken_and_the_others_refused() -> None:
    """22 tokens: 20 leave 2, 3 more owe 1, and the next finds a debt."""
    shell = shell_of()
    theirs = created({"a": (0, 20), "b": (0, 3)}, configs=3)
    creates(shell, {"a": 20, "b": 3, "c": 1, "d": 1})
    assert bytes(shell.to_broker) == create({"a": 20, "b": 3})
    shell.broker_sends(theirs)
    assert errors_in(CREATE_TOPICS, 7, shell.to_client) == {"a": 0, "b": 0, "c": REFUSED, "d": REFUSED}
    assert throttle_of(CREATE_TOPICS, 7, shell.to_client) == 500
    sent_bytes = len(question(["a", "b", "c", "d"]) + create({"a": 20, "b": 3}))
    assert shell.session.bytes_from_client == sent_bytes


def test_a_topic_that_the_broker_refuses_costs_nothing() -> None:
    shell = shell_of()
    shell.client_sends(create({"old": 5, "new": 2}))
    assert tokens(shell) == 15
    shell.broker_sends(created({"old": (36, -1), "new": (0, 2)}))
    assert tokens(shell) == 20


def test_what_the_broker_may_yet_do_after_its_timeout_stays_charged() -> None:
    shell = shell_of()
    shell.client_sends(create({"slow": 5}))
    shell.broker_sends(created({"slow": (7, -1)}))
    assert tokens(shell) == 17


def test_the_brokers_default_is_learnt_from_its_answer() -> None:
    shell = shell_of()
    shell.client_sends(create({"a": -1}))
    assert tokens(shell) == 21, "one is assumed at first"
    shell.broker_sends(created({"a": (0, 6)}))
    assert tokens(shell) == 16
    shell.client_sends(create({"b": -1}))
    assert tokens(shell) == 10


def test_a_larger_default_than_the_brokers_is_put_right() -> None:
    shell = shell_of()
    shell.shared.topic_defaults.partitions = 8
    shell.client_sends(create({"a": -1}))
    shell.broker_sends(created({"a": (0, 3)}))
    assert tokens(shell) == 19


def test_a_topic_that_exists_gets_the_brokers_own_error_even_in_debt() -> None:
    shell = in_debt(10)
    shell.client_sends(create({"old": 1, "new": 1}, correlation_id=2))
    shell.broker_sends(sizes({"old": (4, 9), "new": (0, 0)}, correlation_id=2))
    assert bytes(shell.to_broker) == question(["old", "new"], correlation_id=2) + create(
        {"old": 1}, correlation_id=2
    )
    shell.broker_sends(created({"old": (36, -1)}, correlation_id=2))
    assert errors_in(CREATE_TOPICS, 7, shell.to_client) == {"old": 36, "new": REFUSED}


def test_validate_only_costs_the_same_for_the_controllers_work_is_the_same() -> None:
    """As with the quota of a broker of 4.3.1 (tests/e2e): 32 of 22, 10 owed."""
    shell = shell_of()
    asked = create({"large": 32}, validate_only=True)
    (
        Playbook(shell)
        >> Client(asked)
        << ToBroker(question(["large"]))
        << AwaitingBroker()
        >> Broker(sizes({"large": (0, 0)}))
        << ToBroker(asked)
        << Reading()
        >> Broker(created({"large": (0, 32)}))
        << ToClient(created({"large": (0, 32)}))
    ).done()
    assert tokens(shell) == -10
    shell.client_sends(create({"more": 1}, validate_only=True, correlation_id=2))
    shell.broker_sends(sizes({"more": (0, 0)}, correlation_id=2))
    assert errors_in(CREATE_TOPICS, 7, shell.to_client) == {"more": REFUSED}


def test_what_was_only_validated_is_not_taken_for_created() -> None:
    """7 s later the same topic is created, and deleted: its size is the broker's to tell."""
    shell = shell_of()
    for frame in (create({"a": 5}, validate_only=True), grow({"b": 6}, validate_only=True)):
        shell.client_sends(frame)
        if shell.state is State.AWAITING_BROKER:
            shell.broker_sends(sizes({"b": (1, 4)}))
            shell.broker_sends(grown({"b": 0}))
        else:
            shell.broker_sends(created({"a": (0, 5)}))
    assert tokens(shell) == 22 - 5 - 2
    shell.client_sends(delete(["a", "b"]))
    shell.broker_sends(sizes({"a": (0, 0), "b": (1, 4)}))
    assert tokens(shell) == 22 - 5 - 2 - 4


def test_older_clients_are_served_and_throttled_afterwards() -> None:
    """CreateTopics v5 does not know error 89. 32 of 22: 10 are owed, 5 s; a further one makes it 5.5."""
    shell = shell_of()
    (
        Playbook(shell)
        >> Client(create({"a": 32}, version=5))
        << ToBroker(question(["a"]))
        << AwaitingBroker()
        >> Broker(sizes({"a": (0, 0)}))
        << ToBroker(create({"a": 32}, version=5))
        << Muted(for_ms=5_000)
        >> Broker(created({"a": (0, 32)}, version=5))
        << ToClient(created({"a": (0, 32)}, version=5, throttle_ms=5_000))
        >> Wait(5_000)
        << Reading()
        >> Client(create({"b": 1}, version=5))
        << ToBroker(question(["b"]))
        << AwaitingBroker()
        >> Broker(sizes({"b": (0, 0)}))
        << ToBroker(create({"b": 1}, version=5))
        << Muted(for_ms=500)
    ).done()


def test_older_clients_are_served_in_debt_too_once_it_is_paid() -> None:
    """10 partitions are owed: 5 s. Then the 4 of the topic are, for 2 s."""
    shell = in_debt(10)
    asked = delete(["a"], version=4, correlation_id=2)
    shell.client_sends(asked)
    shell.broker_sends(sizes({"a": (0, 4)}, correlation_id=2))
    assert bytes(shell.to_broker) == question(["a"], correlation_id=2)
    assert tokens(shell) == -14
    shell.advance(5_000)
    assert bytes(shell.to_broker) == question(["a"], correlation_id=2) + asked
    shell.broker_sends(deleted({"a": (0, 0)}, version=4, correlation_id=2))
    assert throttle_of(DELETE_TOPICS, 4, shell.to_client) == 2_000
    assert tokens(shell) == -4


def test_a_member_of_a_group_is_delayed_and_told_no_longer_than_its_heartbeats_allow() -> None:
    """10 partitions are owed, 5 s; 2 s are what groups bear."""
    shell = in_debt(10)
    shell.client_sends(request(HEARTBEAT, 4, correlation_id=2))
    shell.broker_sends(answer(HEARTBEAT, 4, correlation_id=2))
    shell.to_client.clear()
    shell.client_sends(create({"more": 1}, correlation_id=3))
    shell.broker_sends(sizes({"more": (0, 0)}, correlation_id=3))
    assert throttle_of(CREATE_TOPICS, 7, shell.to_client) == 2_000
    assert shell.session.pace.wake_at_ms == shell.now_ms + 2_000


def test_requests_that_say_one_thing_twice_are_the_brokers_to_refuse() -> None:
    shell = in_debt(10)
    asked = delete(["a", "a"], correlation_id=2)
    shell.client_sends(asked)
    assert bytes(shell.to_broker) == asked


def test_a_refusal_waits_for_the_answers_before_it() -> None:
    shell = in_debt(10)
    first, second = request(HEARTBEAT, 4, correlation_id=2), create({"x": 1}, correlation_id=3)
    shell.client_sends(first + second)
    assert bytes(shell.to_broker) == first + question(["x"], correlation_id=3)
    shell.broker_sends(answer(HEARTBEAT, 4, correlation_id=2))
    shell.broker_sends(sizes({"x": (0, 0)}, correlation_id=3))
    refusal = created({"x": (REFUSED, -1)}, throttle_ms=2_000, correlation_id=3)
    assert bytes(shell.to_client) == answer(HEARTBEAT, 4, correlation_id=2) + refusal


def test_answers_are_read_however_they_are_cut() -> None:
    """Byte by byte: the question's answer, and one with configs of many KB whose head is made anew."""
    shell = shell_of()
    shell.client_sends(delete(["a", "b", "c"]))
    for byte in sizes({"a": (1, 21), "b": (2, 2), "c": (3, 1)}):
        shell.broker_sends(bytes([byte]))
    assert bytes(shell.to_client) == b""
    assert bytes(shell.to_broker) == question(["a", "b", "c"]) + delete(["a", "b"])
    for byte in deleted({"a": (0, 1), "b": (3, 2)}):
        shell.broker_sends(bytes([byte]))
    assert errors_in(DELETE_TOPICS, 6, shell.to_client) == {"a": 0, "b": 3, "c": REFUSED}
    assert tokens(shell) == 1


@pytest.mark.parametrize("policy", [SessionPolicy(), SessionPolicy(broker_map=broker_map())])
def test_requests_are_judged_however_they_are_cut_in_a_gateway_too(policy: SessionPolicy) -> None:
    shell = Shell(Session(shared_of(QuotaLimits([(EVERYBODY, {KEY: 2.0})])), policy, "10.0.0.1"))
    for byte in delete(["a", "b"]) + create({"c": 1, "d": 1}, correlation_id=2):
        shell.client_sends(bytes([byte]))
    assert bytes(shell.to_broker) == question(["a", "b"])
    shell.broker_sends(sizes({"a": (1, 23), "b": (2, 3)}))
    assert bytes(shell.to_broker) == question(["a", "b"]) + delete(["a"])
    shell.broker_sends(deleted({"a": (0, 1)}))
    assert errors_in(DELETE_TOPICS, 6, shell.to_client) == {"a": 0, "b": REFUSED}
    shell.to_client.clear()
    shell.to_broker.clear()
    shell.advance(500)
    assert bytes(shell.to_broker) == question(["c", "d"], correlation_id=2)
    shell.to_broker.clear()
    shell.broker_sends(sizes({"c": (0, 0), "d": (0, 0)}, correlation_id=2))
    assert bytes(shell.to_broker) == create({"c": 1}, correlation_id=2)
    shell.broker_sends(created({"c": (0, 1)}, correlation_id=2))
    assert errors_in(CREATE_TOPICS, 7, shell.to_client) == {"c": 0, "d": REFUSED}


def test_a_long_answer_is_passed_on_while_it_arrives() -> None:
    shell = shell_of(100.0)
    names = {f"topic-{n}": 1 for n in range(60)}
    shell.client_sends(create(names))
    theirs = created({name: (0 if n % 2 else 36, 1) for n, name in enumerate(names)}, configs=60)
    for begin in range(0, len(theirs), 1_500):
        shell.broker_sends(theirs[begin : begin + 1_500])
        assert bytes(shell.to_client) == theirs[: begin + 1_500]
    assert tokens(shell) == 1_100 - 30


def test_who_is_exempt_is_neither_asked_about_nor_charged() -> None:
    shell = shell_of(0.001, exempt=True)
    for _ in range(3):
        (
            Playbook(shell)
            >> Client(delete(["a"]))
            << ToBroker(delete(["a"]))
            >> Broker(deleted({"a": (0, 1)}))
            << ToClient(deleted({"a": (0, 1)}))
        ).done()


def test_a_limit_in_shadow_mode_refuses_nobody_and_says_whom_it_would_have() -> None:
    shell = shell_of(shadow=True)
    for name, partitions in (("a", 32), ("b", 5)):
        creates(shell, {name: partitions})
        shell.broker_sends(created({name: (0, partitions)}))
    assert bytes(shell.to_broker) == create({"a": 32}) + create({"b": 5})
    assert bytes(shell.to_client) == created({"a": (0, 32)}) + created({"b": (0, 5)})
    (event,) = shell.events
    assert (event.kind, event.delay_ms, event.quota) == (EventKind.SHADOW, 5_000, "controller_mutation")
    assert tokens(shell) == -10, "as if it had been refused"


def test_a_limit_that_goes_while_the_broker_is_asked_lets_the_request_go() -> None:
    shell = shell_of()
    shell.client_sends(delete(["a"]))
    shell.shared.quotas.reload(QuotaLimits(), shell.now_ms)
    shell.broker_sends(sizes({"a": (1, 4)}))
    assert bytes(shell.to_broker) == question(["a"]) + delete(["a"])
    shell.broker_sends(deleted({"a": (0, 1)}))
    assert bytes(shell.to_client) == deleted({"a": (0, 1)})
    shell.to_broker.clear()
    shell.shared.quotas.reload(QuotaLimits([(EVERYBODY, {KEY: 2.0})]), shell.now_ms)
    shell.client_sends(delete(["b"]))
    assert bytes(shell.to_broker) == question(["b"]), "nothing is left of the one before"


def test_a_refusal_is_recorded_as_a_throttled_request() -> None:
    shell = in_debt(10)
    shell.client_sends(create({"more": 1}, correlation_id=2))
    shell.broker_sends(sizes({"more": (0, 0)}, correlation_id=2))
    one = shell.records[-1]
    assert (one.api_key, one.user) == (CREATE_TOPICS, "ANONYMOUS")
    assert (one.request_bytes, one.response_bytes) == (len(create({"more": 1})), len(shell.to_client))
    assert one.throttle_ms == 5_000
    assert one.sensor is shell.sensor(QuotaKind.CONTROLLER_MUTATION)
    assert [event.kind for event in shell.events] == [EventKind.REFUSAL]
    assert [record.api_key for record in shell.records] == [CREATE_TOPICS, CREATE_TOPICS], (
        "no question among them"
    )


def test_a_request_too_large_to_be_kept_whole_ends_the_connection() -> None:
    shell = shell_of()
    shell.client_sends(delete([f"{n:0240}" for n in range(2_200)]))
    assert shell.cause is DisconnectCause.FRAME_TOO_LARGE
    assert not shell.to_broker


def test_the_largest_request_that_is_kept_whole_is_counted() -> None:
    names = [f"{number:0240}" for number in range(WHOLE_MAX_BYTES // 264)]
    missing = WHOLE_MAX_BYTES - len(delete([*names, "x" * 5_000]))
    for more, cause in ((0, None), (1, DisconnectCause.FRAME_TOO_LARGE)):
        frame = delete([*names, "x" * (5_000 + missing + more)])
        assert len(frame) == WHOLE_MAX_BYTES + more
        shell = shell_of()
        shell.client_sends(frame)
        assert (shell.cause, bool(shell.to_broker)) == (cause, not more), "the question how large they are"


def test_a_version_that_would_go_uncounted_ends_the_connection() -> None:
    shell = shell_of()
    frame = bytearray(create({"a": 1}))
    frame[6:8] = (8).to_bytes(2, "big")
    shell.client_sends(bytes(frame))
    assert shell.cause is DisconnectCause.UNMETERED_VERSION


def test_an_answer_to_the_question_that_is_none_ends_the_connection_and_tells_the_client_nothing() -> None:
    shell = shell_of()
    shell.client_sends(delete(["a"]))
    good = sizes({"a": (1, 4)})
    bad = (len(good) - 3).to_bytes(4, "big") + good[4:] + b"\0"
    with pytest.raises(BrokerMalformed):
        shell.broker_sends(bad)
    assert not shell.to_client
