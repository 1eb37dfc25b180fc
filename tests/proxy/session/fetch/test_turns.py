"""Fetch over its quota: held, lowered, ended without records. Wire semantics 1.3 and 1.4.

Buckets hold one second of the rate. At 1,000 B/s a byte takes 1 ms; a full bucket holds 1,000 B.
"""

from __future__ import annotations

import pytest

from sluice.protocol.apis import READABLE, ApiKey, readable_versions
from sluice.protocol.codec.wire import Struct, Value
from sluice.protocol.fetch_batches import batch_sizes
from sluice.proxy.session.authentication import WHOLE_MAX_BYTES
from sluice.proxy.session.causes import DisconnectCause
from sluice.proxy.session.connection_states import State
from sluice.proxy.session.delays import OTHERS, DelayLimits
from sluice.proxy.session.policy import SessionPolicy
from sluice.proxy.session.session import Session
from sluice.quotas.kinds import QuotaKind
from sluice.quotas.limits.limits import QuotaLimits
from sluice.usage.records import EventKind
from testkit.frames.frames import (
    FETCH,
    HEARTBEAT,
    METADATA,
    SHARE_FETCH,
    TOPIC_ID,
    answer,
    decoded,
    fetch,
    fetch_answer_of,
    max_bytes_of,
    produce,
    record_batch,
    request,
    throttle_of,
)
from testkit.proxy.playbook import (
    START_MS,
    Broker,
    Client,
    Drain,
    Ending,
    Held,
    Muted,
    Playbook,
    Reading,
    Shell,
    ToBroker,
    ToClient,
    Wait,
    fetch_debt,
    limits_of,
    session_of,
    shared_of,
    shell_of,
)


def mute_of(shell: Shell, *, client_id: str = "app") -> float:
    """For how long a connection is muted that fetched a minute's worth of 1,000 B/s."""
    shell.client_sends(fetch(client_id=client_id))
    shell.broker_sends(fetch_answer_of(60_000))
    return shell.session.pace.wake_at_ms - shell.now_ms


# 1.3 Fetch ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", readable_versions(ApiKey.FETCH))
def test_a_fetch_answer_is_delivered_with_its_records_then_its_connection_is_muted(version: int) -> None:
    """2,500 B against 1,000 of burst: 1,500 ms."""
    (
        Playbook(session_of(fetch_rate=1_000))
        >> Client(fetch(version=version))
        << ToBroker(fetch(version=version, max_bytes=1_000))
        >> Broker(fetch_answer_of(2_500, version=version))
        << ToClient(fetch_answer_of(2_500, version=version, throttle_ms=1_500))
        << Muted(for_ms=1_500)
        >> Client(fetch(version=version, correlation_id=2))
        >> Wait(1_500)
        << ToBroker(fetch(version=version, correlation_id=2, max_bytes=records_of(2_500, version)))  # a batch
        << Reading()
    ).done()


@pytest.mark.parametrize("version", range(12, READABLE[ApiKey.FETCH][1] + 1))
@pytest.mark.parametrize("client_id", ["app", "", None])
def test_a_fetch_with_tags_in_its_header_is_lowered_where_its_max_bytes_stands(
    version: int, client_id: str | None
) -> None:
    def asking(max_bytes: int) -> bytes:
        body: Struct = {"maxWaitMs": 500, "minBytes": 1, "maxBytes": max_bytes}
        return request(FETCH, version, body, client_id=client_id, header_tags=2)

    for step in (1, 1_000):
        shell = shell_of(shared_of(limits_of(fetch_rate=1_000)))
        for at in range(0, len(asking(50_000_000)), step):
            shell.client_sends(asking(50_000_000)[at : at + step])
        assert shell.to_broker == asking(1_000)


def test_a_fetch_answer_within_the_quota_is_not_touched() -> None:
    (
        Playbook(session_of(fetch_rate=1_000))
        >> Client(fetch())
        << ToBroker(fetch(max_bytes=1_000))
        >> Broker(fetch_answer_of(1_000, throttle_ms=5))
        << ToClient(fetch_answer_of(1_000, throttle_ms=5))
    ).done()


def records_of(frame_bytes: int, version: int = 12) -> int:
    """Bytes of the records in an answer of `frame_bytes`."""
    frame = fetch_answer_of(frame_bytes, version=version)
    sizes = batch_sizes(bytearray(frame), 9 if version >= 12 else 8, len(frame), version)
    assert sizes is not None
    return sizes[0]


def test_a_fetch_waits_until_its_bucket_is_out_of_debt_whatever_connection_it_comes_on() -> None:
    """2 s are owed. Then it asks for one batch, as large as they are known to be, and waits no longer."""
    shell = (Playbook(shell_of(fetch_debt(2_000))) >> Client(fetch()) << Held(for_ms=2_000)).shell
    shell.advance(2_000)
    assert shell.state is State.READING
    went = decoded("request", FETCH, 12, shell.to_broker).body
    assert (went["maxWaitMs"], went["maxBytes"]) == (0, records_of(3_000))


@pytest.mark.parametrize(("version", "session_id", "epoch"), [
    *((version, 0, 0) for version in range(7, READABLE[ApiKey.FETCH][1] + 1)),
    (4, 0, 0), (5, 0, 0), (6, 0, 0), (12, 7, 3), (17, 7, 3), (7, 7, 3), (12, 7, -1),
])  # fmt: skip
def test_a_fetch_that_finds_no_turn_is_replaced_by_one_that_ends_its_session(
    version: int, session_id: int, epoch: int
) -> None:
    """3 s, and the broker still answers, but without records. A session is gone with it: error 70."""
    body: Struct = {"maxWaitMs": 500, "minBytes": 1, "maxBytes": 50_000_000}
    name: Struct = {"topicId": TOPIC_ID} if version >= 13 else {"topic": "t"}
    body |= {"topics": [{**name, "partitions": [{"partition": 0}]}]}
    if version >= 7:
        body |= {"sessionId": session_id, "sessionEpoch": epoch}
    shell = shell_of(fetch_debt())
    shell.client_sends(request(FETCH, version, body, correlation_id=4))
    assert (shell.state, shell.session.pace.wake_at_ms - shell.now_ms) == (State.HOLDING, 3_000)
    shell.advance(3_000)
    went = decoded("request", FETCH, version, shell.to_broker)
    assert bytes(shell.to_broker[8:12]) == (4).to_bytes(4, "big")
    assert went.body["topics"] == []
    assert went.body["maxWaitMs"] == 0
    if version >= 7:
        assert (went.body["sessionId"], went.body["sessionEpoch"]) == (session_id, -1)
    shell.broker_sends(answer(FETCH, version, correlation_id=4))
    told = decoded("response", FETCH, version, shell.to_client).body
    assert told["throttleTimeMs"] == 2_000
    assert told["responses"] == []
    if version >= 7:
        assert told["errorCode"] == (70 if epoch > 0 else 0)
    assert shell.state is State.READING
    assert [event.kind for event in list(shell.events)[1:]] == [EventKind.HOLD, EventKind.REFUSAL]
    assert shell.records[-1].held_ms == 3_000


def test_a_replaced_fetch_may_arrive_in_parts_and_what_follows_it_goes_on() -> None:
    """One that is too long to be kept until it is whole."""
    topics: list[Value] = [{"topic": "t" * 20_000, "partitions": [{"partition": 0}]} for _ in range(30)]
    large = request(FETCH, 12, {"maxBytes": 9, "topics": topics}, correlation_id=4)
    first, second = WHOLE_MAX_BYTES + 1, WHOLE_MAX_BYTES + 51
    shell = shell_of(fetch_debt())
    shell.client_sends(large[:first])
    shell.advance(3_000)
    replaced = len(shell.to_broker)
    shell.client_sends(large[first:second])
    assert len(shell.to_broker) == replaced
    shell.client_sends(large[second:] + request(METADATA, 12, correlation_id=5))
    assert shell.to_broker[replaced:] == request(METADATA, 12, correlation_id=5)
    assert shell.session.bytes_from_client == len(shell.to_broker)


def test_what_follows_a_replaced_fetch_that_had_arrived_whole_may_come_in_parts() -> None:
    shell = shell_of(fetch_debt())
    shell.client_sends(fetch())
    shell.advance(3_000)
    replaced = len(shell.to_broker)
    behind = produce({"orders": [(0, record_batch(bytes(5_000)))]}, version=9, correlation_id=5)
    shell.client_sends(behind[:1_000])
    shell.client_sends(behind[1_000:3_000])
    shell.client_sends(behind[3_000:])
    assert shell.to_broker[replaced:] == behind


def test_a_held_fetch_whose_client_has_left_goes_nowhere() -> None:
    shared = fetch_debt(2_000)
    shell = shell_of(shared)
    shell.client_sends(fetch())
    shell.client_left = True
    shell.advance(2_000)
    assert not shell.to_broker
    assert shell.cause is DisconnectCause.LEFT_WHILE_HELD
    assert next(iter(shared.quotas.sensors())).fetch_queue().reserved_bytes == 0


def test_what_a_connection_had_reserved_is_given_back_when_it_ends() -> None:
    shared = shared_of(limits_of(fetch_rate=1_000))
    first, second = shell_of(shared), shell_of(shared)
    first.client_sends(fetch())
    second.client_sends(fetch())
    assert second.state is State.HOLDING
    first.session.closed(first.now_ms)
    second.advance(1)
    assert second.to_broker


def test_an_answer_without_records_gives_back_what_was_reserved() -> None:
    shared = shared_of(limits_of(fetch_rate=1_000))
    first, second = shell_of(shared), shell_of(shared)
    first.client_sends(fetch())
    second.client_sends(fetch())
    assert not second.to_broker
    first.broker_sends(answer(FETCH, 12))
    second.advance(1)
    assert second.to_broker
    assert not [event for event in second.events if event.kind is EventKind.HOLD], "nobody is in debt"


def test_an_answer_that_is_overdue_keeps_nobody_waiting() -> None:
    """Its broker hangs: 500 ms and 5 s."""
    shared = shared_of(limits_of(fetch_rate=1_000))
    policy = SessionPolicy(delays=DelayLimits(fetch_default_ms=8_000))
    first, second = (Shell(Session(shared, policy, "10.0.0.1")) for _ in range(2))
    first.client_sends(fetch())
    second.client_sends(fetch())
    second.advance(5_499)
    assert second.state is State.HOLDING
    second.advance(1)
    assert second.to_broker


def max_wait_of(shell: Shell) -> int:
    wait_ms = decoded("request", FETCH, 12, shell.to_broker).body["maxWaitMs"]
    assert isinstance(wait_ms, int)
    return wait_ms


@pytest.mark.parametrize(("max_bytes", "asked_ms", "went_ms"), [
    (50_000_000, 600_000, 1_000), (50_000_000, 300, 300),  # nothing is left to others, should one come
    (1_000, 600_000, 5_000), (1_000, 5_000, 5_000), (1_000, 2**31 - 1, 5_000),
])  # fmt: skip
def test_a_poll_alone_does_not_reserve_for_minutes_what_others_may_need(
    max_bytes: int, asked_ms: int, went_ms: int
) -> None:
    shell = shell_of(shared_of(limits_of(fetch_rate=10_000_000)))
    shell.client_sends(fetch(max_wait_ms=asked_ms, max_bytes=max_bytes))
    assert max_wait_of(shell) == went_ms


def test_polls_that_are_cut_short_for_others_are_spaced_by_their_own_wait() -> None:
    """Two idle consumers of a small quota: the second goes with max_wait 0, since the first waits again."""
    shared = shared_of(limits_of(fetch_rate=1_000))
    first, second = shell_of(shared), shell_of(shared)
    first.client_sends(fetch())
    second.client_sends(fetch())
    first.broker_sends(answer(FETCH, 12))
    first.client_sends(fetch(correlation_id=2))
    second.advance(1)
    assert decoded("request", FETCH, 12, second.to_broker).body["maxWaitMs"] == 0
    second.broker_sends(answer(FETCH, 12))
    second.client_sends(fetch(correlation_id=2))
    assert (second.state, second.session.pace.wake_at_ms) == (State.HOLDING, START_MS + 1 + 499)


@pytest.mark.parametrize("version", readable_versions(ApiKey.SHARE_FETCH))
def test_a_share_fetch_is_held_for_two_seconds_at_most_and_then_goes(version: int) -> None:
    """It carries acknowledgements: never replaced."""
    shell = shell_of(fetch_debt())
    body: Struct = {"groupId": "g", "memberId": "m", "maxBytes": 50_000_000}
    shell.client_sends(request(SHARE_FETCH, version, body))
    assert shell.session.pace.wake_at_ms - shell.now_ms == 2_000
    shell.advance(2_000)
    assert max_bytes_of(SHARE_FETCH, version, shell.to_broker) == records_of(61_000)


def test_a_share_fetch_makes_nobody_owe_less_for_a_large_batch() -> None:
    """1,000 s are owed. A broker's refusal of a ShareFetch adds nothing to them, and takes nothing away."""
    shared = fetch_debt(1_000_000)
    shell = shell_of(shared)
    shell.client_sends(request(SHARE_FETCH, 1))
    shell.advance(2_000)
    shell.broker_sends(answer(SHARE_FETCH, 1, {"errorCode": 29}))
    assert shell.sensor(QuotaKind.FETCH).owed_ms(shell.now_ms) == 1_000_000 - 2_000


@pytest.mark.parametrize(("rate", "owed_ms"), [(1_001, 999_001), (2_000, 500_000)])
def test_another_limit_makes_nobody_owe_less_bytes_for_a_large_batch(rate: int, owed_ms: float) -> None:
    shared = fetch_debt(1_000_000)
    shell = shell_of(shared)
    shared.quotas.reload(limits_of(fetch_rate=rate), shell.now_ms)
    shell.client_sends(fetch())
    assert shell.state is State.HOLDING
    assert shell.sensor(QuotaKind.FETCH).owed_ms(shell.now_ms) == pytest.approx(owed_ms, abs=1.0)


def test_a_group_connection_holds_a_fetch_for_two_seconds_at_most() -> None:
    shell = shell_of(fetch_debt())
    shell.client_sends(request(HEARTBEAT, 4, correlation_id=1))
    shell.broker_sends(answer(HEARTBEAT, 4, correlation_id=1))
    shell.client_sends(fetch(correlation_id=2))
    assert shell.session.pace.wake_at_ms - shell.now_ms == 2_000


def test_a_drain_ends_a_held_fetch_unforwarded() -> None:
    shell = shell_of(fetch_debt())
    (Playbook(shell) >> Client(fetch()) << Held(for_ms=3_000) >> Drain()
     << Ending(DisconnectCause.DRAINED)).done()  # fmt: skip
    assert len(shell.sensor(QuotaKind.FETCH).fetch_queue()) == 0, "nobody waits behind it"


def test_a_limit_that_goes_while_a_fetch_is_held_lets_it_go_as_it_came() -> None:
    shared = fetch_debt()
    shell = shell_of(shared)
    shell.client_sends(fetch())
    shared.quotas.reload(QuotaLimits([]), shell.now_ms)
    shell.advance(3_000)
    assert shell.to_broker == fetch()


def test_a_connection_that_only_fetches_is_muted_for_three_seconds_at_most_and_told_of_two() -> None:
    """10,000 B owe 9 s. What is left of them stays owed."""
    shell = (
        Playbook(session_of(fetch_rate=1_000))
        >> Client(fetch())
        << ToBroker(fetch(max_bytes=1_000))
        >> Broker(fetch_answer_of(10_000))
        << ToClient(fetch_answer_of(10_000, throttle_ms=2_000))
        << Muted(for_ms=3_000)
        >> Wait(3_000)
        << Reading()
    ).done()
    assert shell.sensor(QuotaKind.FETCH).tokens(shell.now_ms) == -6_000
    assert shell.sensor(QuotaKind.FETCH).over == 6_000
    assert shell.records[0].throttle_ms == 3_000


def test_answers_that_come_during_a_mute_are_delivered_and_do_not_prolong_it_beyond_its_limit() -> None:
    """3 s from the first answer on; the second, 2 s later, may add one. (Two at once: batches are known to be
    small.)"""
    shell = Shell(session_of(fetch_rate=1_000))
    shell.client_sends(fetch(correlation_id=1, max_bytes=100))
    shell.sensor(QuotaKind.FETCH).fetch_queue().batches.saw([100], shell.now_ms)
    shell.broker_sends(answer(FETCH, 12))
    shell.client_sends(fetch(correlation_id=1, max_bytes=100) + fetch(correlation_id=2, max_bytes=100))
    shell.broker_sends(fetch_answer_of(2_952, correlation_id=1))
    assert (shell.state, shell.session.pace.wake_at_ms - START_MS) == (
        State.MUTED,
        1_952 + len(answer(FETCH, 12)),
    )
    shell.advance(1_900)
    shell.broker_sends(fetch_answer_of(5_000, correlation_id=2))
    assert shell.session.pace.wake_at_ms - START_MS == 3_000
    shell.advance(1_100)
    assert shell.state is State.READING


@pytest.mark.parametrize("version", readable_versions(ApiKey.SHARE_FETCH))
def test_a_share_fetch_is_muted_for_ten_seconds_at_most_and_told_of_two(version: int) -> None:
    """Acquisition locks last 30 s. Even where the answer budget is 15 s."""
    policy = SessionPolicy(delays=DelayLimits(answer_budget_ms=15_000, patience_s={OTHERS: 30}))
    shell = Shell(session_of(fetch_rate=1_000, policy=policy))
    body: Struct = {"groupId": "g", "memberId": "m", "maxBytes": 50_000_000}
    shell.client_sends(request(SHARE_FETCH, version, body))
    content: Struct = {"errorMessage": "x" * 20_000}
    shell.broker_sends(answer(SHARE_FETCH, version, content))
    assert shell.session.pace.wake_at_ms - shell.now_ms == 10_000
    assert throttle_of(SHARE_FETCH, version, shell.to_client) == 2_000
