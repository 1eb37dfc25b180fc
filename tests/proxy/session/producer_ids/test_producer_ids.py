"""New producer ids above their rate: held, then refused in the broker's place, in order; known ones pass."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from sluice.protocol.apis import PRODUCE
from sluice.proxy.session.causes import DisconnectCause
from sluice.proxy.session.connection_states import State
from sluice.proxy.session.policy import SessionPolicy, SharedState
from sluice.proxy.session.producer_ids.shared import ProducerIds
from sluice.proxy.session.session import Session
from sluice.quotas.entity import DEFAULT, QuotaEntity
from sluice.quotas.limits.limits import QuotaLimits
from sluice.quotas.manager import QuotaManager
from sluice.quotas.producer_ids.principal import BROKER_BYTES_PER_PAIR, ProducerIdSettings
from sluice.usage.flow import TopicNames
from sluice.usage.records import EventKind, Recorder
from testkit.frames.frames import decoded, produce, produce_answer, produce_of, record_batch
from testkit.proxy.playbook import (
    Broker,
    Client,
    ClientLeaves,
    Drain,
    Ending,
    Held,
    Playbook,
    Shell,
    ToBroker,
    ToClient,
    Wait,
)

BUDGET_MS = 8_000.0
HOUR_MS = 3_600_000.0


def limits_of(ids_per_hour: float, **limits: object) -> QuotaLimits:
    return QuotaLimits([(QuotaEntity(DEFAULT, None), {"producer_ids_rate": ids_per_hour, **limits})])


def shells(
    count: int, ids_per_hour: float = 1.0, *, forced_after_ms: float = HOUR_MS, **limits: object
) -> list[Shell]:
    """Connections of one user, whose bucket holds one hour of his rate."""
    settings = ProducerIdSettings(forced_after_ms=forced_after_ms)
    quotas = QuotaManager(limits_of(ids_per_hour, **limits))
    shared = SharedState(quotas, Recorder(), producer_ids=ProducerIds(settings))
    return [Shell(Session(shared, SessionPolicy(), "10.0.0.1")) for _ in range(count)]


def with_id(
    producer_id: int, sequence: int = 0, *, correlation_id: int = 1, acks: int = -1, version: int = 9
) -> bytes:
    batch = record_batch(b"records", producer_id=producer_id, epoch=0, sequence=sequence)
    topic = "00000000-0000-0000-0000-000000000001" if version >= 13 else "orders"
    return produce({topic: [(0, batch)]}, acks=acks, correlation_id=correlation_id, version=version)


def refusals_of(shell: Shell) -> list[tuple[int, int, str]]:
    """(correlation id, throttle_time_ms, message) of each refusal that went to the client, and no more."""
    found = []
    while shell.to_client:
        size = 4 + int.from_bytes(shell.to_client[:4], "big")
        frame: Any = decoded("response", PRODUCE, 9, bytes(shell.to_client[:size]))
        del shell.to_client[:size]
        (topic,) = frame.body["responses"]
        (partition,) = topic["partitionResponses"]
        assert (partition["errorCode"], partition["baseOffset"]) == (19, -1)
        message = partition["errorMessage"]
        found.append((frame.header["correlationId"], frame.body["throttleTimeMs"], message))
    return found


def test_a_new_id_within_the_rate_passes_and_is_known_from_then_on() -> None:
    (shell,) = shells(1)
    for sequence in range(3):
        shell.client_sends(with_id(7, sequence, correlation_id=sequence))
    assert bytes(shell.to_broker) == b"".join(with_id(7, n, correlation_id=n) for n in range(3))
    (principal,) = shell.shared.producer_ids.quota.principals()
    assert principal.admitted == 1


@pytest.mark.parametrize("step", [1, 10_000])
@pytest.mark.parametrize(
    "client_ids",
    [
        ("app", "app", "app", "ape", "app", "", None, "app"),
        ("app",) * 4 + ("ape",) * 4 + ("app", "ape"),
        ("é", "e\u0301"),
    ],
)
def test_whoever_a_connection_says_it_is_is_charged_though_its_requests_are_else_alike(
    client_ids: tuple[str | None, ...], step: int
) -> None:
    """Of a known producer id, so that they are compared with an earlier one and not read."""
    (shell,) = shells(1, producer_byte_rate=10**9)
    batch = record_batch(b"records", producer_id=7, epoch=0)
    for client_id in (*client_ids * 2, client_ids[-1], client_ids[-1]):
        frame = produce({"orders": [(0, batch)]}, client_id=client_id)
        for at in range(0, len(frame), step):
            shell.client_sends(frame[at : at + step])
        shell.broker_sends(produce_answer())
        assert shell.records[-1].client_id == (client_id or "")
        assert shell.session.identity.client_id == (client_id or "")


def test_a_client_id_that_is_no_utf_8_is_read_as_kafka_reads_it_and_goes_on_as_it_came() -> None:
    """Java puts U+FFFD for what it cannot read; requests are else alike, so that they are compared."""
    batch = record_batch(b"records", producer_id=7, epoch=0)
    good = produce({"orders": [(0, batch)]})
    odd, half = (
        good.replace(b"app", b"a\xffp"),
        good.replace(b"app", b"\xed\xa0\x80"),
    )  # half a surrogate pair
    for step in (1, 10_000):
        (shell,) = shells(1, producer_byte_rate=10**9)
        for frame in (good, good, odd, odd, good, half):
            for at in range(0, len(frame), step):
                shell.client_sends(frame[at : at + step])
            shell.broker_sends(produce_answer())
        assert shell.to_broker == good * 2 + odd * 2 + good + half
        read = [record.client_id for record in shell.records]
        assert read == ["app", "app", "a\ufffdp", "a\ufffdp", "app", "\ufffd"]
        assert shell.cause is None


def test_a_request_without_an_id_is_never_counted() -> None:
    (shell,) = shells(1)
    for number in range(5):
        shell.client_sends(produce_of(500, correlation_id=number))
    assert len(shell.to_broker) == 5 * 500
    assert not shell.events


def test_a_new_id_above_the_rate_is_held_and_refused_when_its_budget_is_over() -> None:
    (shell,) = shells(1)
    late = with_id(2, correlation_id=2)
    (
        Playbook(shell)
        >> Client(with_id(1))
        << ToBroker(with_id(1))
        >> Broker(produce_answer())
        << ToClient(produce_answer())
        >> Client(late)
        << Held(BUDGET_MS)
    )
    shell.advance(BUDGET_MS)
    assert not shell.to_broker
    ((correlation_id, throttle_ms, message),) = refusals_of(shell)
    assert (correlation_id, throttle_ms) == (2, 1_000)
    assert "producer_ids_rate" in message
    assert [event.kind for event in shell.events] == [EventKind.HOLD, EventKind.REFUSAL]
    assert {event.quota for event in shell.events} == {"producer_ids"}
    assert {event.address for event in shell.events} == {"10.0.0.1"}
    assert [event.reason for event in shell.events] == ["", "producer_ids_rate"]
    assert [(event.limit, event.charged) for event in shell.events] == [(1.0, 1), (1.0, 0)]
    (principal,) = shell.shared.producer_ids.quota.principals()
    assert (principal.held_ms, principal.holds) == (BUDGET_MS, 1)
    # It comes again, as clients do, and is held anew.
    shell.client_sends(late)
    assert shell.is_delayed
    assert not shell.to_broker


def test_a_refusal_waits_behind_every_answer_that_the_broker_owes() -> None:
    (shell,) = shells(1)
    shell.client_sends(with_id(1, correlation_id=1) + with_id(1, 1, correlation_id=2))
    shell.to_broker.clear()
    shell.client_sends(with_id(2, correlation_id=3))
    shell.advance(BUDGET_MS)
    assert not shell.to_client
    first, second = produce_answer(correlation_id=1), produce_answer(correlation_id=2)
    shell.broker_sends(first + second[:20])
    assert bytes(shell.to_client) == first + second[:20]
    shell.to_client.clear()
    shell.broker_sends(second[20:])
    assert shell.to_client.startswith(second[20:])
    del shell.to_client[: len(second) - 20]
    assert [refusal[0] for refusal in refusals_of(shell)] == [3]
    assert shell.session.in_flight == 0


def test_a_refused_request_that_still_arrives_is_swallowed_and_the_next_one_goes() -> None:
    (shell,) = shells(1)
    shell.client_sends(with_id(1))
    shell.to_broker.clear()
    late, known = with_id(2, correlation_id=2), with_id(1, 1, correlation_id=3)
    cut = len(late) - 5
    shell.client_sends(late[:cut])
    shell.broker_sends(produce_answer())
    shell.to_client.clear()
    shell.advance(BUDGET_MS)
    assert [refusal[0] for refusal in refusals_of(shell)] == [2]
    shell.client_sends(late[cut:] + known)
    assert bytes(shell.to_broker) == known
    assert shell.session.bytes_from_client == len(with_id(1)) + len(known)


@pytest.mark.parametrize("step", [1, 3, 50])
def test_it_makes_no_difference_how_the_bytes_arrive(step: int) -> None:
    (shell,) = shells(1)
    requests = [with_id(1), with_id(2, correlation_id=2), with_id(1, 1, correlation_id=3)]
    data = b"".join(requests)
    for at in range(0, len(data), step):
        shell.client_sends(data[at : at + step])
    shell.broker_sends(produce_answer())
    shell.to_client.clear()
    shell.advance(BUDGET_MS)
    assert bytes(shell.to_broker) == requests[0] + requests[2]
    assert [refusal[0] for refusal in refusals_of(shell)] == [2]


def test_later_batches_of_a_refused_id_are_refused_at_once_until_it_came_again() -> None:
    first, second = shells(2)
    first.client_sends(with_id(1))
    second.client_sends(with_id(2, correlation_id=2) + with_id(2, 1, correlation_id=3))
    second.advance(BUDGET_MS)
    assert not second.to_broker
    refusals = refusals_of(second)
    assert [refusal[0] for refusal in refusals] == [2, 3]
    assert "earlier batch" in refusals[1][2]


def test_a_known_id_that_passes_by_its_template_stops_at_its_gate() -> None:
    """It is refused for another id's sake, and then its next batch must not overtake that one."""
    (shell,) = shells(1)
    for sequence in range(5):
        shell.client_sends(with_id(1, sequence, correlation_id=sequence))
        shell.broker_sends(produce_answer(correlation_id=sequence))
    assert len(shell.to_broker) == 5 * len(with_id(1))
    shell.to_broker.clear()
    batches = [
        (partition, record_batch(b"records", producer_id=producer_id, epoch=0, sequence=sequence))
        for partition, producer_id, sequence in ((0, 1, 5), (1, 2, 0))
    ]
    shell.client_sends(produce({"orders": batches}, acks=-1, correlation_id=5) + with_id(1, 6))
    assert shell.is_delayed
    shell.advance(BUDGET_MS)
    assert not shell.to_broker
    refusals = [event.reason for event in shell.events if event.kind is EventKind.REFUSAL]
    assert refusals == ["producer_ids_rate", "sequence_gate"]
    shell.client_sends(with_id(1, 5, correlation_id=7) + with_id(1, 6, correlation_id=8))
    assert bytes(shell.to_broker) == with_id(1, 5, correlation_id=7) + with_id(1, 6, correlation_id=8)


def test_a_turn_that_comes_by_what_others_do_wakes_the_request_that_waits() -> None:
    first, second, third = shells(3, ids_per_hour=1.0)
    first.client_sends(with_id(1))
    second.client_sends(with_id(2))
    third.client_sends(with_id(3))
    assert not second.to_broker
    woken: list[Shell] = []
    for shell in (second, third):
        ids = shell.session._throttling.ids
        assert ids is not None
        ticket = ids.gate.ticket
        assert ticket is not None
        ticket.owner = partial(woken.append, shell)
    shared = first.shared.producer_ids
    shared.serve(first.now_ms + 9_000.0)
    assert not woken  # an hour's rate is one: nothing came in 9 s
    first.shared.quotas.reload(limits_of(3_600.0), first.now_ms)
    first.client_sends(with_id(1, 1, correlation_id=9))  # looks the limit up anew
    shared.serve(first.now_ms + 9_000.0)
    assert woken == [second, third]
    for shell in woken:
        shell.now_ms += 9_000.0
        shell.wake()
        assert len(shell.to_broker) == len(with_id(2))


def test_a_client_that_leaves_while_it_is_held_is_not_forwarded_and_not_remembered() -> None:
    first, second = shells(2)
    first.client_sends(with_id(1))
    playbook = Playbook(second) >> Client(with_id(2)) << Held(BUDGET_MS) >> ClientLeaves() >> Wait(BUDGET_MS)
    (playbook << Ending(DisconnectCause.LEFT_WHILE_HELD)).done()
    (principal,) = first.shared.producer_ids.quota.principals()
    assert principal.admitted == 1
    assert principal.waiting_tickets == 0


def test_acks_0_with_an_id_is_held_and_then_its_connection_ends_unforwarded() -> None:
    first, second = shells(2)
    first.client_sends(with_id(1))
    (
        Playbook(second)
        >> Client(with_id(2, acks=0))
        << Held(BUDGET_MS)
        >> Wait(BUDGET_MS)
        << Ending(DisconnectCause.PRODUCER_ID_REFUSED)
    ).done()
    assert not second.to_broker


def test_a_drain_drops_what_waits_for_its_turn() -> None:
    first, second = shells(2)
    first.client_sends(with_id(1))
    (
        Playbook(second)
        >> Client(with_id(2))
        << Held(BUDGET_MS)
        >> Drain()
        << Ending(DisconnectCause.DRAINED)
    ).done()
    assert not second.to_broker


def test_shadow_mode_counts_and_holds_nobody() -> None:
    settings = ProducerIdSettings()
    entity = QuotaEntity(DEFAULT, None)
    limits = QuotaLimits([(entity, {"producer_ids_rate": 1})], shadow={entity: ["producer_ids_rate"]})
    shared = SharedState(QuotaManager(limits), Recorder(), producer_ids=ProducerIds(settings))
    shell = Shell(Session(shared, SessionPolicy(), "10.0.0.1"))
    for number in range(5):
        shell.client_sends(with_id(number, correlation_id=number))
    assert not shell.is_delayed
    assert len(shell.to_broker) == sum(len(with_id(n, correlation_id=n)) for n in range(5))


def test_a_request_whose_batches_contradict_its_frame_ends_the_connection() -> None:
    (shell,) = shells(1)
    frame = bytearray(with_id(1))
    frame[-20:-16] = b"\x7f\xff\xff\xff"
    at = frame.index(b"\0\0\0\0\0\0\0\0" + (len(record_batch(b"records")) - 12).to_bytes(4, "big")) + 8
    frame[at : at + 4] = (10_000).to_bytes(4, "big")
    shell.client_sends(bytes(frame))
    assert shell.cause is DisconnectCause.MALFORMED_FRAME
    assert not shell.to_broker


def test_a_request_that_is_woken_before_its_time_waits_on_until_the_same_time() -> None:
    first, second = shells(2)
    first.client_sends(with_id(1))
    second.client_sends(with_id(2))
    until_ms = second.session.pace.wake_at_ms
    second.now_ms += 1_000.0
    second.wake()
    assert (second.state, second.session.pace.wake_at_ms) == (State.HOLDING, until_ms)
    assert not second.to_client


def test_a_new_id_whose_bytes_wait_goes_though_the_limit_on_ids_is_taken_away_meanwhile() -> None:
    """It was admitted: whoever looks it up later finds no quota to tell of it."""
    (shell,) = shells(1, producer_byte_rate=1_000)
    shell.client_sends(produce_of(2_000))  # owes 1 s, which its next request waits for
    shell.broker_sends(produce_answer())
    shell.advance(500)
    shell.client_sends(with_id(7, correlation_id=2))
    shell.shared.quotas.reload(QuotaLimits([]), shell.now_ms)
    shell.advance(1_000)
    assert shell.to_broker == produce_of(2_000) + with_id(7, correlation_id=2)


def test_of_who_left_nothing_with_acks_to_come_is_forwarded_of_what_was_read_ahead() -> None:
    """The client sends it again on another connection: forwarded here, it would be there twice. What has no
    answer goes."""
    (shell,) = shells(1, producer_byte_rate=1_000)
    shell.client_sends(produce_of(2_000, acks=0) + with_id(7, acks=-1) + with_id(8, acks=0))
    sent = bytes(shell.to_broker)
    shell.client_leaves()
    shell.advance(60_000)
    assert sent == produce_of(2_000, acks=0)
    assert shell.to_broker == sent + with_id(8, acks=0)
    assert shell.cause is DisconnectCause.LEFT_WHILE_HELD


def test_a_known_id_that_is_looked_at_for_anothers_gate_brings_no_new_id_to_the_access_log() -> None:
    settings = ProducerIdSettings(forced_after_ms=HOUR_MS)
    shared = SharedState(
        QuotaManager(limits_of(1.0)), Recorder(),
        producer_ids=ProducerIds(settings), topic_names=TopicNames(),
    )  # fmt: skip
    first, second = (Shell(Session(shared, SessionPolicy(), "10.0.0.1")) for _ in range(2))
    first.client_sends(with_id(1))
    assert [(amount.column, amount.amount) for amount in shared.recorder.amounts] == [("producer_ids_new", 1)]
    second.client_sends(with_id(2))
    second.advance(BUDGET_MS)
    assert len(refusals_of(second)) == 1, "which leaves a gate"
    first.client_sends(with_id(1, 1, correlation_id=2))
    assert first.to_broker == with_id(1) + with_id(1, 1, correlation_id=2)
    assert len(shared.recorder.amounts) == 1


def test_a_known_id_can_fill_no_more_of_the_ceiling_than_its_users_share() -> None:
    """Its requests pass all the same; but partitions that do not exist cost their sender 73 bytes each, and
    at the ceiling nobody's new ids are admitted."""
    settings = ProducerIdSettings(broker_heap_bytes=BROKER_BYTES_PER_PAIR * 400, heap_share=0.5)
    shared = SharedState(QuotaManager(limits_of(1.0)), Recorder(), producer_ids=ProducerIds(settings))
    shell = Shell(Session(shared, SessionPolicy(), "10.0.0.1"))
    shell.client_sends(with_id(7))
    batch = record_batch(b"", producer_id=7, epoch=0, sequence=1)
    many = produce({"orders": [(number, batch) for number in range(1, 5_000)]}, acks=-1, correlation_id=2)
    shell.client_sends(many)
    assert shell.to_broker == with_id(7) + many
    ceiling = shared.producer_ids.quota.ceiling
    assert ceiling.total == ceiling.max_of_one == 100
