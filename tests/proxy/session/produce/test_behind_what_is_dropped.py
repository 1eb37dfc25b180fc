"""Clients that leave while a request is held: Produces with acks = 0 behind it, which nobody sends again, go.

Wire semantics 1.2 and 4.1. A byte rate's bucket holds one second of it.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sluice.proxy.session.causes import DisconnectCause
from sluice.proxy.session.connection_states import State
from sluice.proxy.session.delays import LeftBehind
from sluice.proxy.session.own_topic.own_topic import OwnTopic
from sluice.proxy.session.policy import SessionPolicy, SharedState
from sluice.proxy.session.producer_ids.shared import ProducerIds
from sluice.proxy.session.session import Session
from sluice.quotas.entity import DEFAULT, QuotaEntity
from sluice.quotas.limits.limits import QuotaLimits
from sluice.quotas.manager import QuotaManager
from sluice.quotas.producer_ids.principal import ProducerIdSettings
from sluice.usage.records import EventKind, Recorder
from testkit.frames.frames import (
    METADATA,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    fetch,
    fetch_answer_of,
    produce,
    produce_answer,
    produce_of,
    record_batch,
    request,
)
from testkit.frames.mutation_frames import create, sizes
from testkit.proxy import refusing_session
from testkit.proxy.mutation_session import connections, creates
from testkit.proxy.playbook import Shell, fetch_debt, in_debt, limits_of, session_of, shared_of, shell_of
from testkit.proxy.request_time_session import metadata, spend
from testkit.proxy.request_time_session import shared_of as shared_by_time
from testkit.proxy.request_time_session import shell_of as shell_by_time

UNACKNOWLEDGED = [produce_of(100 + number, acks=0, correlation_id=10 + number) for number in range(20)]
ANSWERED = [
    request(METADATA, 9, correlation_id=2),
    fetch(correlation_id=3),
    produce_of(150, correlation_id=4),
    create({"two": 1}, version=4),
]
LEADS = {
    "Metadata, its user owes request time": metadata(1),
    "Fetch, its user owes request time": fetch(),
    "Produce, its user owes request time": produce_of(100),
    "Fetch": fetch(),
    "CreateTopics": create({"one": 1}, version=4),
    "Produce": produce_of(200),
    "Produce, its limit refuses": produce_of(200),
    "Produce of a new producer id": produce({"t": [(0, record_batch(producer_id=2, epoch=0, sequence=0))]}),
}


def greeted() -> Shell:
    shared = shared_by_time()
    spend(shell_by_time(shared), 500.0)
    return shell_by_time(shared)


def without_an_id_left(left_behind: LeftBehind | None = None) -> Shell:
    limits = QuotaLimits([(QuotaEntity(DEFAULT, None), {"producer_ids_rate": 1.0})])
    ids = ProducerIds(ProducerIdSettings(forced_after_ms=3_600_000.0))
    left_behind = left_behind or LeftBehind()
    shared = SharedState(QuotaManager(limits), Recorder(), producer_ids=ids, left_behind=left_behind)
    for number in range(3):
        batch = record_batch(producer_id=100 + number, epoch=0, sequence=0)
        shell_of(shared).client_sends(produce({"t": [(0, batch)]}))
    return shell_of(shared)


def refusing() -> Shell:
    neighbour, shell = refusing_session.shells(2)
    neighbour.client_sends(produce_of(1_500))
    return shell


def owing_partitions() -> Shell:
    connect = connections()
    creates(connect(), {"large": 32}, version=4)
    return connect()


def new_connection(lead: str) -> Shell:
    """On which that request waits."""
    if "request time" in lead:
        return greeted()
    connect: dict[str, Callable[[], Shell]] = {
        "Fetch": lambda: shell_of(fetch_debt()),
        "CreateTopics": owing_partitions,
        "Produce": lambda: in_debt(500),
        "Produce, its limit refuses": refusing,
        "Produce of a new producer id": without_an_id_left,
    }
    return connect[lead]()


def waiting(lead: str, behind: bytes) -> Shell:
    """A connection on which `behind` was read, too."""
    shell = new_connection(lead)
    shell.client_sends(LEADS[lead] + behind)
    if lead == "CreateTopics":
        shell.broker_sends(sizes({"one": (0, 0)}))
    assert shell.is_delayed
    shell.to_broker.clear()
    return shell


@pytest.mark.parametrize("lead", LEADS)
def test_what_nobody_sends_again_goes_though_what_is_ahead_of_it_is_dropped(lead: str) -> None:
    shell = waiting(lead, b"".join(UNACKNOWLEDGED))
    count = shell.session.requests
    shell.client_leaves()
    shell.wake()
    shell.advance(30_000.0)
    assert shell.to_broker == b"".join(UNACKNOWLEDGED)
    assert shell.cause is DisconnectCause.LEFT_WHILE_HELD
    name = lead.partition(" ")[0].rstrip(",")
    assert shell.detail == f"a {name} of {len(LEADS[lead])} bytes not forwarded"
    assert shell.session.requests == count + len(UNACKNOWLEDGED), "what was dropped does not count"
    assert shell.session.finished


def test_what_waits_for_its_producer_id_counts_once_of_what_its_user_leaves_behind() -> None:
    """It counted as often as it was judged: 9 of 16 MiB were more than may be left."""
    batch = record_batch(bytes(500), producer_id=3, epoch=0, sequence=0)
    last = produce({"t": [(0, batch)]}, acks=0)
    shell = without_an_id_left(LeftBehind(len(last)))
    shell.client_sends(LEADS["Produce of a new producer id"] + last)
    shell.client_leaves()
    shell.wake()
    assert shell.is_delayed, "by its own id now"
    shell.shared.quotas.reload(QuotaLimits(), shell.now_ms)
    shell.advance(8_000.0)
    assert bytes(shell.to_broker) == last


@pytest.mark.parametrize("lead", LEADS)
def test_whatever_is_answered_behind_it_is_dropped(lead: str) -> None:
    """An answer would come in the place of one that never does."""
    mixed = [frame for pair in zip(ANSWERED * 5, UNACKNOWLEDGED, strict=True) for frame in pair]
    shell = waiting(lead, b"".join(mixed))
    shell.client_leaves()
    shell.wake()
    shell.advance(30_000.0)
    assert shell.to_broker == b"".join(UNACKNOWLEDGED)
    assert not shell.to_client
    assert shell.session.in_flight == 0
    assert shell.cause is DisconnectCause.LEFT_WHILE_HELD


@pytest.mark.parametrize("lead", LEADS)
def test_what_has_not_wholly_come_of_the_last_is_dropped(lead: str) -> None:
    shell = waiting(lead, UNACKNOWLEDGED[0] + UNACKNOWLEDGED[1][:20])
    shell.client_leaves()
    shell.wake()
    shell.advance(30_000.0)
    assert shell.to_broker == UNACKNOWLEDGED[0]
    assert shell.cause is DisconnectCause.LEFT_WHILE_HELD


def test_it_is_so_behind_a_fetch_that_was_held_only_after_the_client_left() -> None:
    """1,000 B/s both ways: the fetch comes to its turn, and does not go."""
    shared = shared_of(limits_of(produce_rate=1_000, fetch_rate=1_000))
    other, shell = shell_of(shared), shell_of(shared)
    other.client_sends(fetch())
    other.broker_sends(fetch_answer_of(60_000))
    first = produce_of(2_000, acks=0)
    shell.client_sends(first + fetch() + UNACKNOWLEDGED[0] + metadata(2) + UNACKNOWLEDGED[1])
    shell.client_leaves()
    shell.advance(60_000.0)
    assert shell.to_broker == first + UNACKNOWLEDGED[0] + UNACKNOWLEDGED[1]
    assert shell.cause is DisconnectCause.LEFT_WHILE_HELD


def test_the_rest_of_what_is_dropped_may_come_later() -> None:
    """What is unread when its client leaves. (A Fetch waits once it is whole.)"""
    shell = new_connection("Produce")
    shell.client_sends(LEADS["Produce"][:-3])
    assert shell.is_delayed
    shell.session.wake(shell.now_ms, client_left=True)
    shell._resume()
    assert shell.state is State.READING
    for byte in LEADS["Produce"][-3:] + UNACKNOWLEDGED[0]:
        shell.client_sends(bytes([byte]))
    shell.client_leaves()
    shell.advance(30_000.0)
    assert shell.to_broker == UNACKNOWLEDGED[0]
    assert shell.cause is DisconnectCause.LEFT_WHILE_HELD


def test_they_go_by_their_quota_and_what_is_dropped_is_given_back() -> None:
    """1,000 B/s, 500 B owed."""
    frames = [produce_of(500, acks=0, correlation_id=number) for number in range(4)]
    shell = in_debt(500)
    shell.client_sends(produce_of(300) + b"".join(frames))
    shell.client_leaves()
    shell.wake()
    passed = []
    for _ in range(6):
        passed.append(len(shell.to_broker))
        shell.advance(500)
    assert passed == [0, 500, 1_000, 1_500, 2_000, 2_000]
    assert shell.to_broker == b"".join(frames)
    assert shell.sensor().refunded == 300
    assert [event.kind for event in shell.events].count(EventKind.DROP) == 1


def test_it_is_so_behind_what_has_acks_and_was_not_begun_before_the_client_left() -> None:
    shell = Shell(session_of(produce_rate=1_000))
    behind = produce_of(300, acks=0, correlation_id=3)
    shell.client_sends(produce_of(1_500) + produce_of(100, correlation_id=2) + behind)
    shell.client_leaves()
    shell.advance(30_000)
    assert shell.to_broker == produce_of(1_500) + behind
    assert shell.cause is DisconnectCause.LEFT_WHILE_HELD
    assert not shell.session.finished, "the answer of the first is still due"
    shell.broker_sends(produce_answer())
    assert shell.session.finished


def test_what_is_beyond_the_cap_is_told() -> None:
    plain = shared_of(limits_of(produce_rate=1_000))
    shared = SharedState(plain.quotas, plain.recorder, left_behind=LeftBehind(1_000))
    neighbour, shell = (Shell(Session(shared, SessionPolicy(), "10.0.0.1")) for _ in range(2))
    neighbour.client_sends(produce_of(1_500))
    frames = [produce_of(400, acks=0, correlation_id=number) for number in range(4)]
    shell.client_sends(produce_of(300) + b"".join(frames))
    shell.client_leaves()
    shell.wake()
    shell.advance(30_000)
    assert shell.to_broker == frames[0] + frames[1]
    assert shell.cause is DisconnectCause.UNFINISHED_BYTES_OVER_CAP
    assert "400 bytes" in shell.detail
    shell.session.closed(shell.now_ms)
    assert shared.left_behind.take("ANONYMOUS", 1_000)


@pytest.mark.parametrize("login", [SASL_HANDSHAKE, SASL_AUTHENTICATE])
def test_nothing_goes_behind_a_login_that_is_dropped(login: int) -> None:
    """Whose it is, and where bare tokens end, is not known."""
    shell = waiting("Produce", UNACKNOWLEDGED[0] + request(login, 0) + UNACKNOWLEDGED[1])
    shell.client_leaves()
    shell.wake()
    shell.advance(30_000)
    assert shell.to_broker == UNACKNOWLEDGED[0]
    assert shell.cause is DisconnectCause.LEFT_WHILE_HELD


def test_what_cannot_be_read_behind_it_ends_the_connection_as_ever() -> None:
    shell = waiting("Produce", UNACKNOWLEDGED[0] + b"\xff\xff\xff\xff" + bytes(20))
    shell.client_leaves()
    shell.wake()
    shell.advance(30_000)
    assert shell.to_broker == UNACKNOWLEDGED[0]
    assert shell.cause is DisconnectCause.FRAME_TOO_LARGE


def test_the_own_topic_is_kept_from_who_has_left_too() -> None:
    plain = shared_of(limits_of(produce_rate=1_000))
    own = OwnTopic("sluice-quotas", frozenset(), bytes(16))
    shared = SharedState(plain.quotas, plain.recorder, own_topic=own)
    neighbour, shell = (Shell(Session(shared, SessionPolicy(), "10.0.0.1")) for _ in range(2))
    neighbour.client_sends(produce_of(1_500))
    shell.client_sends(
        produce_of(200)
        + UNACKNOWLEDGED[0]
        + produce({"sluice-quotas": [(0, record_batch())]}, correlation_id=2)
        + UNACKNOWLEDGED[1]
        + produce({"sluice-quotas": [(0, record_batch())]}, acks=0, correlation_id=3)
        + UNACKNOWLEDGED[2]
    )
    shell.client_leaves()
    shell.wake()
    shell.advance(30_000)
    assert shell.to_broker == UNACKNOWLEDGED[0] + UNACKNOWLEDGED[1]
    assert not shell.to_client
    assert shell.cause is DisconnectCause.OWN_TOPIC


@pytest.mark.parametrize("leaves", [True, False])
def test_a_drain_lets_them_all_go(leaves: bool) -> None:
    """At once, whether the client has left or not; the shell sends what is taken here."""
    mixed = b"".join(frame for pair in zip(ANSWERED, UNACKNOWLEDGED, strict=False) for frame in pair)
    shell = waiting("Produce", mixed)
    if leaves:
        shell.client_leaves()
        shell.wake()
        assert shell.state is State.HOLDING
    sent = bytes(shell.to_broker)
    shell.session.drain(shell.now_ms)
    shell._resume()
    goes = shell.session.take_unacknowledged(bytearray(shell.kept), shell.now_ms)
    assert sent + bytes(shell.to_broker) + goes == b"".join(UNACKNOWLEDGED[:4])
    assert shell.cause is DisconnectCause.DRAINED
