"""New producer ids that come by a transaction: judged where they first make state, and never inside one."""

from __future__ import annotations

from typing import Any

import pytest

from sluice.protocol.apis import ApiKey
from sluice.proxy.session.causes import DisconnectCause
from sluice.proxy.session.connection_states import State
from sluice.proxy.session.policy import SessionPolicy
from sluice.proxy.session.replication.inter_broker import InterBroker
from sluice.proxy.session.session import Session
from sluice.quotas.producer_ids.buckets import BucketShape
from sluice.quotas.producer_ids.principal import BROKER_BYTES_PER_PAIR, ProducerIdSettings
from sluice.usage.records import EventKind
from testkit.frames.frames import HEARTBEAT, answer, decoded, produce, produce_of, record_batch, request
from testkit.proxy.playbook import Shell
from testkit.proxy.transaction_session import HOUR_MS, RETRIED, STATE_MAKING, adding, admitted, shells

HOLD_MS = 8_000.0
GROUP_HOLD_MS = 2_000.0


def errors_in(value: Any) -> list[int]:
    """All error codes of an answer, but those that say that nothing is wrong."""
    if isinstance(value, dict):
        return [
            error
            for key, field in value.items()
            for error in (
                [field] if key in {"errorCode", "partitionErrorCode"} and field else errors_in(field)
            )
        ]
    return [error for field in value for error in errors_in(field)] if isinstance(value, list) else []


def take_answers(shell: Shell, api_key: int, version: int) -> list[Any]:
    """What the client has been sent."""
    found = []
    while shell.to_client:
        size = 4 + int.from_bytes(shell.to_client[:4], "big")
        found.append(decoded("response", api_key, version, bytes(shell.to_client[:size])))
        del shell.to_client[:size]
    return found


def until_its_turn(shell: Shell, ms: float) -> None:
    """So much time passes; then the door is asked whose turn it is, and wakes them."""
    shell.advance(ms)
    tickets = shell.shared.producer_ids.quota.serve(shell.now_ms)
    assert len(tickets) <= 1
    if tickets:
        shell.wake()


@pytest.mark.parametrize(("api_key", "version"), STATE_MAKING)
def test_an_id_above_the_rate_waits_where_it_first_makes_state_and_is_then_refused(
    api_key: int, version: int
) -> None:
    shell, late = shells(2)
    shell.client_sends(adding(1))
    assert shell.to_broker == adding(1)
    frame = adding(2, api_key, version, partitions=3, correlation_id=9)
    late.client_sends(frame)
    assert late.state is State.HOLDING
    late.advance(HOLD_MS - 1.0)
    assert not late.to_client
    late.advance(1.0)
    (refused,) = take_answers(late, api_key, version)
    assert refused.header["correlationId"] == 9
    assert errors_in(refused.body) == [RETRIED[api_key]] * (1 if api_key == ApiKey.ADD_OFFSETS_TO_TXN else 3)
    assert refused.body["throttleTimeMs"] == 1_000
    assert not late.to_broker
    assert late.session.bytes_from_client == 0
    assert [event.kind for event in shell.events] == [EventKind.HOLD, EventKind.REFUSAL]
    assert {(event.api_key, event.quota) for event in shell.events} == {(api_key, "producer_ids")}
    assert admitted(shell) == 1
    assert not late.is_delayed


@pytest.mark.parametrize(("api_key", "version"), STATE_MAKING)
def test_a_request_whose_turn_comes_goes_as_it_came_and_its_id_is_known(api_key: int, version: int) -> None:
    """At one id in 5 s the second one's token comes within its hold."""
    first, second = shells(2, 720.0, settings=ProducerIdSettings(buckets=BucketShape(burst_h=1 / 720)))
    first.client_sends(adding(1))
    frame = adding(2, api_key, version)
    end = request(ApiKey.END_TXN, 3, {"transactionalId": "app", "producerId": 2}, correlation_id=2)
    second.client_sends(frame + end)
    assert not second.to_broker
    until_its_turn(second, 5_001.0)
    assert second.to_broker == frame + end
    assert not second.to_client
    second.broker_sends(answer(api_key, version))
    assert second.records[-1].api_key == api_key
    assert second.records[-1].held_ms == pytest.approx(5_000.0, abs=2.0)
    again = adding(2, api_key, version, partitions=7)
    second.client_sends(again)
    assert second.to_broker == frame + end + again
    assert admitted(second) == 2


def test_an_id_that_a_transaction_brought_is_known_where_it_produces() -> None:
    shell, other = shells(2)
    shell.client_sends(adding(1))
    batch = record_batch(b"records", producer_id=1, epoch=0, sequence=0)
    frame = produce({"orders": [(0, batch)]}, transactional_id="app")
    other.client_sends(frame)
    assert other.to_broker == frame
    assert admitted(other) == 1


@pytest.mark.parametrize(
    "frame",
    [
        request(ApiKey.INIT_PRODUCER_ID, 4, {"transactionalId": "app", "transactionTimeoutMs": 1}),
        request(ApiKey.END_TXN, 3, {"transactionalId": "app", "producerId": 2}),
        request(ApiKey.END_TXN, 5, {"transactionalId": "app", "producerId": 2}),
        adding(2, version=5, verify_only=True),
        adding(2, partitions=0),
        adding(2, ApiKey.TXN_OFFSET_COMMIT, 3, partitions=0),
    ],
)
def test_what_makes_no_state_goes_on_whatever_the_bucket_holds(frame: bytes) -> None:
    shell, other = shells(2)
    shell.client_sends(adding(1))
    other.client_sends(frame)
    assert other.to_broker == frame
    assert admitted(other) == 1


@pytest.mark.parametrize("policy", [SessionPolicy(inter_broker=InterBroker(is_listener=True))])
def test_what_brokers_say_of_others_transactions_is_not_judged(policy: SessionPolicy) -> None:
    (shell,) = shells(1, policy=policy)
    frames = b"".join(adding(number, version=5) for number in range(5))
    shell.client_sends(frames)
    assert shell.to_broker == frames
    assert admitted(shell) == 0


def test_without_a_limit_no_transaction_is_looked_at() -> None:
    (shell,) = shells(1, None)
    shell.client_sends(adding(1))
    assert shell.to_broker == adding(1)
    assert shell.session._requests.transactions is None


def test_of_several_transactions_in_one_request_all_are_judged_together() -> None:
    (shell,) = shells(1, 2.0)
    transactions: list[Any] = [
        {"transactionalId": f"app{number}", "producerId": number, "producerEpoch": 0, "verifyOnly": False,
         "topics": [{"name": "orders", "partitions": [0]}]}
        for number in range(3)
    ]  # fmt: skip
    shell.client_sends(request(ApiKey.ADD_PARTITIONS_TO_TXN, 4, {"transactions": transactions}))
    assert not shell.to_broker
    shell.advance(HOLD_MS)
    (refused,) = take_answers(shell, ApiKey.ADD_PARTITIONS_TO_TXN, 4)
    assert errors_in(refused.body) == [51] * 3
    two = request(ApiKey.ADD_PARTITIONS_TO_TXN, 4, {"transactions": transactions[:2]})
    shell.client_sends(two)
    assert shell.to_broker == two


def test_a_refusal_stands_behind_the_answers_that_are_due() -> None:
    shell, first = shells(2)
    first.client_sends(adding(1))
    heartbeat = request(ApiKey.INIT_PRODUCER_ID, 4, {"transactionalId": None}, correlation_id=5)
    shell.client_sends(heartbeat + adding(2, correlation_id=6))
    shell.advance(HOLD_MS)
    assert shell.to_broker == heartbeat
    assert not shell.to_client
    theirs = answer(ApiKey.INIT_PRODUCER_ID, 4, correlation_id=5)
    shell.broker_sends(theirs)
    assert shell.to_client[: len(theirs)] == theirs
    del shell.to_client[: len(theirs)]
    (refused,) = take_answers(shell, ApiKey.ADD_PARTITIONS_TO_TXN, 3)
    assert refused.header["correlationId"] == 6


def test_a_client_that_left_while_its_transaction_was_held_is_not_forwarded() -> None:
    shell, first = shells(2, 720.0, settings=ProducerIdSettings(buckets=BucketShape(burst_h=1 / 720)))
    first.client_sends(adding(1))
    unacknowledged = produce_of(100, acks=0)
    shell.client_sends(adding(2) + unacknowledged)
    shell.client_left = True
    until_its_turn(shell, 5_001.0)
    assert shell.to_broker == unacknowledged, "nobody sends it again"
    assert shell.cause is DisconnectCause.LEFT_WHILE_HELD
    assert shell.detail == f"a AddPartitionsToTxn of {len(adding(2))} bytes not forwarded"
    assert admitted(shell) == 1
    principal = next(shell.shared.producer_ids.quota.principals())
    assert principal.main.reserved == 0


def test_an_id_that_has_waited_long_enough_is_forced_through_across_its_refusals() -> None:
    """A transaction of which no timeout is known waits for a third of 45 s at most."""
    shell, first = shells(2, settings=ProducerIdSettings(forced_after_ms=30_000.0))
    first.client_sends(adding(1))
    shell.client_sends(adding(2))
    shell.advance(HOLD_MS)
    assert errors_in(take_answers(shell, ApiKey.ADD_PARTITIONS_TO_TXN, 3)[0].body) == [51]
    shell.client_sends(adding(2))
    until_its_turn(shell, 15_000.0 - HOLD_MS)
    assert shell.to_broker == adding(2)
    principal = next(shell.shared.producer_ids.quota.principals())
    assert (principal.admitted, principal.forced_admitted) == (2, 1)


def test_the_partitions_of_a_transaction_count_against_the_ceiling() -> None:
    settings = ProducerIdSettings(
        forced_after_ms=HOUR_MS, broker_heap_bytes=BROKER_BYTES_PER_PAIR * 40, heap_share=0.5
    )
    (shell,) = shells(1, 1_000.0, settings=settings)
    ceiling = shell.shared.producer_ids.quota.ceiling
    assert (ceiling.max_pairs, ceiling.max_of_one) == (20, 10)
    shell.client_sends(adding(1, partitions=6))
    shell.client_sends(adding(1, partitions=6))
    shell.client_sends(adding(1, ApiKey.ADD_OFFSETS_TO_TXN))
    shell.client_sends(adding(1, ApiKey.TXN_OFFSET_COMMIT, partitions=50))
    assert ceiling.total == 7
    gone = bytes(shell.to_broker)
    shell.client_sends(adding(2, partitions=4))
    assert shell.state is State.HOLDING
    shell.advance(HOLD_MS)
    assert shell.to_broker == gone
    shell.client_sends(adding(2, partitions=3))
    assert shell.to_broker == gone + adding(2, partitions=3)
    assert ceiling.total == 10


def test_a_known_id_can_fill_no_more_of_the_ceiling_than_its_users_share() -> None:
    """It passes all the same; but partitions that do not exist cost their sender four bytes each."""
    settings = ProducerIdSettings(broker_heap_bytes=BROKER_BYTES_PER_PAIR * 400, heap_share=0.5)
    (shell,) = shells(1, settings=settings)
    shell.client_sends(adding(1))
    shell.client_sends(adding(1, partitions=10_000))
    assert shell.to_broker == adding(1) + adding(1, partitions=10_000)
    ceiling = shell.shared.producer_ids.quota.ceiling
    assert ceiling.total == ceiling.max_of_one == 100


def test_two_users_who_name_all_partitions_that_they_can_leave_room_for_a_third_ones_new_id() -> None:
    settings = ProducerIdSettings(broker_heap_bytes=BROKER_BYTES_PER_PAIR * 10_000, heap_share=1.0)
    (third,) = shells(1, settings=settings)
    for number, user in enumerate(("first", "second"), 1):
        shell = Shell(Session(third.shared, SessionPolicy(), "10.0.0.1", user=user))
        shell.client_sends(adding(number))
        shell.client_sends(adding(number, partitions=10_000))
        assert shell.to_broker == adding(number) + adding(number, partitions=10_000)
    assert third.shared.producer_ids.quota.ceiling.total == 9_000
    third.client_sends(adding(3))
    assert third.to_broker == adding(3)


def test_an_id_with_an_earlier_life_is_resumed() -> None:
    shell, _ = shells(2)
    for producer_id in range(1, 6):
        shell.client_sends(adding(producer_id, epoch=1))
    principal = next(shell.shared.producer_ids.quota.principals())
    assert (principal.admitted, principal.resumed_admitted) == (5, 5)


@pytest.mark.parametrize("follows", [2**55 + 1, 0])
@pytest.mark.parametrize("was_known", [True, False])
def test_the_id_that_follows_an_exhausted_one_is_as_known_as_that(was_known: bool, follows: int) -> None:
    shell, other = shells(2)
    other.client_sends(adding(1))
    ended = 1 if was_known else 3
    shell.client_sends(request(ApiKey.END_TXN, 5, {"transactionalId": "app", "producerId": ended}))
    shell.broker_sends(answer(ApiKey.END_TXN, 5, {"producerId": follows, "producerEpoch": 0}))
    shell.to_broker.clear()
    frame = adding(follows)
    shell.client_sends(frame)
    assert shell.to_broker == (frame if was_known else b"")
    assert admitted(shell) == 1


def test_on_a_connection_of_a_group_a_transaction_waits_no_longer_than_a_group_may() -> None:
    shell, first = shells(2)
    first.client_sends(adding(1))
    shell.client_sends(request(HEARTBEAT, 4, {"groupId": "group", "memberId": "m"}))
    shell.broker_sends(answer(HEARTBEAT, 4))
    shell.to_client.clear()
    shell.client_sends(adding(2))
    shell.advance(GROUP_HOLD_MS)
    assert errors_in(take_answers(shell, ApiKey.ADD_PARTITIONS_TO_TXN, 3)[0].body) == [51]


def test_a_drain_leaves_a_held_transaction_unforwarded() -> None:
    shell, first = shells(2)
    first.client_sends(adding(1))
    shell.client_sends(adding(2))
    shell.drain()
    assert not shell.to_broker
    assert shell.state is State.ENDING
    principal = next(shell.shared.producer_ids.quota.principals())
    assert principal.waiting_tickets == 0
