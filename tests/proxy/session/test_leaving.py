"""Who leaves while it is delayed, and what drain does: wire semantics 1.2 and 4.1.

Buckets hold one second of the rate. At 1,000 B/s a byte takes 1 ms; a full bucket holds 1,000 B.
"""

from __future__ import annotations

import pytest

from sluice.proxy.session.causes import DisconnectCause
from sluice.proxy.session.connection_states import State
from sluice.proxy.session.delays import LeftBehind
from sluice.proxy.session.policy import SessionPolicy, SharedState
from sluice.proxy.session.produce.unacknowledged import unacknowledged
from sluice.proxy.session.session import Session
from sluice.usage.records import EventKind
from testkit.frames.frames import METADATA, SASL_AUTHENTICATE, produce, produce_answer, produce_of, request
from testkit.proxy import refusing_session
from testkit.proxy.playbook import (
    Broker,
    Client,
    ClientLeaves,
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
    in_debt,
    limits_of,
    session_of,
    shared_of,
)

# 1.2 Produce, acks = 0 ------------------------------------------------------------------------------------


def test_without_acks_requests_go_at_the_pace_of_the_quota_and_none_is_lost() -> None:
    """Ten of 500 B at 1,000 B/s from a full bucket: three at once (1,500 B), then one each 500 ms."""
    frames = [produce_of(500, acks=0, correlation_id=i) for i in range(10)]
    shell = Shell(session_of(produce_rate=1_000))
    shell.client_sends(b"".join(frames))
    passed = []
    for _ in range(9):
        passed.append(len(shell.to_broker))
        shell.advance(500)
    assert passed == [1_500, 2_000, 2_500, 3_000, 3_500, 4_000, 4_500, 5_000, 5_000]
    assert shell.to_broker == b"".join(frames)
    assert shell.session.in_flight == 0
    assert [record.request_bytes for record in shell.records] == [500] * 10


def test_what_a_client_without_acks_leaves_behind_goes_on_at_the_pace_of_the_quota() -> None:
    (
        Playbook(session_of(produce_rate=1_000))
        >> Client(b"".join(produce_of(1_000, acks=0, correlation_id=i) for i in range(4)))
        << ToBroker(produce_of(1_000, acks=0, correlation_id=0) + produce_of(1_000, acks=0, correlation_id=1))
        << Muted(for_ms=1_000)
        >> ClientLeaves()
        >> Wait(1_000)
        << ToBroker(produce_of(1_000, acks=0, correlation_id=2))
        << Muted(for_ms=1_000)
        >> Wait(1_000)
        << ToBroker(produce_of(1_000, acks=0, correlation_id=3))
        << Muted(for_ms=1_000)
        >> Wait(1_000)
        << Ending(DisconnectCause.CLIENT_CLOSED)
    ).done()


# 4.1 Who left while it was held ---------------------------------------------------------------------------


def test_a_request_with_acks_whose_client_left_while_it_was_held_is_dropped_and_refunded() -> None:
    """Else its client's retry would double it. 1,500 B were charged before; the 200 B are given back."""
    shell = (
        Playbook(in_debt(500))
        >> Client(produce_of(200))
        << Held(for_ms=500)
        >> ClientLeaves()
        >> Wait(500)
        << Ending(DisconnectCause.LEFT_WHILE_HELD)
    ).done()
    assert shell.sensor().tokens(shell.now_ms) == 0
    assert shell.sensor().refunded == 200
    assert shell.events[-1].kind is EventKind.DROP
    assert shell.records == []
    assert shell.session.finished


def test_a_request_with_acks_that_was_not_begun_before_its_client_left_is_not_begun() -> None:
    shell = (
        Playbook(session_of(produce_rate=1_000))
        >> Client(produce_of(1_500) + produce_of(100, correlation_id=2))
        << ToBroker(produce_of(1_500))
        << Muted(for_ms=500)
        >> ClientLeaves()
        >> Wait(500)
        << Ending(DisconnectCause.LEFT_WHILE_HELD)
    ).done()
    assert shell.sensor().charged == 1_500
    assert not shell.session.finished, "the answer of the first is still due"
    shell.broker_sends(produce_answer())
    assert shell.session.finished


def test_a_request_without_acks_whose_client_left_while_it_was_held_goes() -> None:
    (
        Playbook(in_debt(500))
        >> Client(produce_of(200, acks=0))
        << Held(for_ms=500)
        >> ClientLeaves()
        >> Wait(500)
        << ToBroker(produce_of(200, acks=0))
        << Ending(DisconnectCause.CLIENT_CLOSED)
    ).done()


@pytest.mark.parametrize("acks", [0, 1])
def test_a_connection_that_ends_while_holding_gives_back_what_it_charged(acks: int) -> None:
    """Its broker died, say. Once; and neither a late wake nor a drain brings the request back to life."""
    shell = in_debt(500)
    shell.client_sends(produce_of(200, acks=acks))
    shell.session.client_closed(DisconnectCause.CLIENT_RESET)
    assert shell.state is State.ENDING
    shell.session.wake(shell.now_ms + 500, client_left=True)
    shell.session.drain(shell.now_ms + 500)
    shell.session.closed(shell.now_ms + 500)
    assert shell.state is State.ENDING
    assert shell.sensor().refunded == 200
    assert shell.session.requests == 0


def test_what_stands_behind_a_held_request_is_not_begun_either_once_its_client_left() -> None:
    """It goes when the quota can pay it, 20 s later, not by its deadline; the next request has acks."""
    debt = in_debt(20_000)
    (
        Playbook(debt)
        >> Client(produce_of(200, acks=0, correlation_id=1) + produce_of(100, correlation_id=2))
        << Held(for_ms=8_000)
        >> ClientLeaves()
        >> Wait(8_000)
        << Held(for_ms=12_000)
        >> Wait(12_000)
        << ToBroker(produce_of(200, acks=0, correlation_id=1))
        << Ending(DisconnectCause.LEFT_WHILE_HELD)
    ).done()
    assert debt.sensor().charged == 21_200


def test_a_connection_that_ends_behind_a_hold_gives_nothing_back() -> None:
    """Its request went on: 1,700 B were charged, and stay so."""
    shell = in_debt(500)
    shell.client_sends(produce_of(200))
    shell.advance(500)
    shell.session.client_closed(DisconnectCause.CLIENT_RESET)
    shell.session.drain(shell.now_ms)
    shell.session.closed(shell.now_ms)
    assert (shell.sensor().charged, shell.sensor().refunded) == (1_700, 0)


# 4.1 Drain ------------------------------------------------------------------------------------------------


def test_drain_drops_a_held_request_with_acks_and_refunds_it() -> None:
    shell = (
        Playbook(in_debt(500))
        >> Client(produce_of(200))
        << Held(for_ms=500)
        >> Drain()
        << Ending(DisconnectCause.DRAINED)
    ).done()
    assert shell.sensor().refunded == 200
    assert shell.events[-1].kind is EventKind.DROP
    assert shell.session.finished


def test_drain_forwards_a_held_request_without_acks_and_nothing_behind_it() -> None:
    held = produce_of(200, acks=0)
    (
        Playbook(in_debt(500))
        >> Client(held[:150])
        << Held(for_ms=500)
        >> Drain()
        << ToBroker(held[:150])
        << Reading()
        >> Client(held[150:] + produce_of(100, acks=0, correlation_id=2))
        << ToBroker(held[150:])
        << Ending(DisconnectCause.DRAINED)
    ).done()


def test_drain_ends_a_muted_connection_at_once_and_still_delivers_its_answers() -> None:
    (
        Playbook(session_of(produce_rate=1_000))
        >> Client(produce_of(1_500) + produce_of(100, correlation_id=2))
        << ToBroker(produce_of(1_500))
        << Muted(for_ms=500)
        >> Drain()
        << Ending(DisconnectCause.DRAINED)
        >> Wait(500)
        >> Broker(produce_answer())
        << ToClient(produce_answer())
    ).done()


def test_what_a_client_without_answers_left_behind_goes_at_the_rate_and_not_by_its_deadline() -> None:
    """1,000 B/s. Twenty connections with 5,000 B of acks = 0 each, gone at once: 100 s' worth. By their
    answer budgets all would go within 8 s; but nobody waits for them."""
    shared = shared_of(limits_of(produce_rate=1_000))
    shells = [Shell(Session(shared, SessionPolicy(), "10.0.0.1")) for _ in range(20)]
    for shell in shells:
        shell.client_sends(produce_of(5_000, acks=0))
        shell.client_leaves()
        if shell.is_delayed:
            shell.wake()
    for _ in range(200):
        for shell in shells:
            shell.advance(100)
    passed = sum(len(shell.to_broker) for shell in shells)
    assert 1_000 + 20_000 - 5_000 <= passed <= 1_000 + 20_000 + 5_000
    for _ in range(1_000):
        for shell in shells:
            shell.advance(100)
    assert sum(len(shell.to_broker) for shell in shells) == 100_000


def test_a_held_request_whose_client_is_seen_to_have_left_makes_room_at_once() -> None:
    """Not when its turn has come: those behind it wait the less."""
    shared = shared_of(limits_of(produce_rate=1_000))
    first, leaver, last = (Shell(Session(shared, SessionPolicy(), "10.0.0.1")) for _ in range(3))
    first.client_sends(produce_of(2_000))
    leaver.client_sends(produce_of(5_000))
    last.client_sends(produce_of(5_000))
    leaver.client_left = True
    leaver.wake()
    assert leaver.cause is DisconnectCause.LEFT_WHILE_HELD
    last.advance(1_000)
    assert last.to_broker


def test_a_held_request_without_acks_beyond_the_cap_ends_with_its_client() -> None:
    """Cap 1,000, of which another connection of its user has 700; it is held when its client leaves."""
    plain = shared_of(limits_of(produce_rate=1_000))
    shared = SharedState(plain.quotas, plain.recorder, left_behind=LeftBehind(1_000))
    assert shared.left_behind.take("ANONYMOUS", 700)
    neighbour, shell = (Shell(Session(shared, SessionPolicy(), "10.0.0.1")) for _ in range(2))
    neighbour.client_sends(produce_of(3_000))
    shell.client_sends(produce_of(600, acks=0))
    assert shell.is_delayed
    shell.client_leaves()
    shell.wake()
    shell.advance(10_000)
    assert not shell.to_broker
    assert shell.cause is DisconnectCause.UNFINISHED_BYTES_OVER_CAP


def test_what_was_read_and_has_no_answer_goes_at_a_drain_and_counts() -> None:
    """1,000 B are there, and 60,000 come in the minute that a debt is at most: of 62,000 B 1,000 are over."""
    kept = [produce_of(200, acks=0), produce_of(61_800, acks=0, client_id=None)]
    shell = Shell(session_of(produce_rate=1_000))
    shell.client_sends(request(METADATA, 12))
    shell.session.drain(shell.now_ms)
    behind = bytearray(kept[0] + produce_of(150) + request(METADATA, 12) + kept[1])
    assert shell.session.take_unacknowledged(behind, shell.now_ms) == b"".join(kept), "nothing with an answer"
    assert (shell.sensor().charged, shell.sensor().over) == (62_000, 1_000)
    assert [(record.request_bytes, record.held_ms) for record in shell.records] == [
        (200, 0.0), (61_800, 0.0),
    ]  # fmt: skip


def test_what_goes_at_a_drain_is_told_as_throttled_for_no_longer_than_it_was_held() -> None:
    """Each of 100 would be told the whole debt of its bucket, up to a minute: 5.4 h of a life of 16 s."""
    shell = Shell(session_of(produce_rate=1_000))
    shell.client_sends(produce_of(3_000, acks=0) + produce_of(500, acks=0))
    assert shell.is_delayed
    shell.advance(1_000)
    shell.session.drain(shell.now_ms)
    shell.session.take_unacknowledged(bytearray(produce_of(500, acks=0) * 100), shell.now_ms)
    mute, *drained = [(record.throttle_ms, record.held_ms) for record in shell.records]
    assert mute == (2_000.0, 0.0)
    assert drained == [(0.0, 0.0)] * 100
    assert shell.sensor().charged == 53_000


def test_so_it_does_where_the_limit_refuses() -> None:
    """It judges no producer ids, though it closes gates for some."""
    (shell,) = refusing_session.shells(1)
    shell.client_sends(produce_of(5_000))
    shell.client_sends(produce_of(300))
    assert shell.is_delayed
    shell.session.drain(shell.now_ms)
    behind = bytearray(produce_of(200, acks=0) + produce_of(150) + produce_of(250, acks=0))
    goes = shell.session.take_unacknowledged(behind, shell.now_ms)
    assert goes == produce_of(200, acks=0) + produce_of(250, acks=0)


def test_within_the_quota_it_is_over_nothing_and_what_is_not_whole_does_not_go() -> None:
    for behind in (b"", produce_of(100, acks=0)[:-1], request(METADATA, 12), b"\0\0\0\0"):
        shell = Shell(session_of(produce_rate=1_000))
        shell.client_sends(produce_of(100))
        shell.session.drain(shell.now_ms)
        kept = bytearray(produce_of(200, acks=0) + behind)
        assert shell.session.take_unacknowledged(kept, shell.now_ms) == produce_of(200, acks=0)
        assert (shell.sensor().charged, shell.sensor().over) == (300, 0)


def test_what_cannot_be_read_ends_what_goes_at_a_drain_and_without_one_nothing_goes() -> None:
    whole = produce_of(200, acks=0)
    head = whole[: whole.index(b"app") + len(b"app")] if b"app" in whole else whole[:14]
    broken = (len(head) - 4).to_bytes(4) + head[4:]  # a Produce that ends behind its client id
    shell = Shell(session_of(produce_rate=1_000))
    assert not shell.session.take_unacknowledged(bytearray(whole), shell.now_ms)
    shell.session.drain(shell.now_ms)
    assert shell.session.take_unacknowledged(bytearray(whole + broken + whole), shell.now_ms) == whole
    login = request(SASL_AUTHENTICATE, 2)  # it may change whose the requests behind it are
    assert shell.session.take_unacknowledged(bytearray(whole + login + whole), shell.now_ms) == whole


@pytest.mark.parametrize("client_id", [None, "", "app"])
@pytest.mark.parametrize("header_tags", [0, 2])
def test_it_is_found_behind_any_client_id_and_whatever_the_header_has(
    client_id: str | None, header_tags: int
) -> None:
    frames = [
        produce({"t": [(0, None)]}, version=9, acks=acks, client_id=client_id, header_tags=header_tags)
        for acks in (0, 1)
    ]
    size = len(frames[0])
    assert list(unacknowledged(bytearray(frames[0] * 2))) == [(0, size, 9), (size, 2 * size, 9)]
    assert list(unacknowledged(bytearray(frames[1] + frames[0]))) == [(size, 2 * size, 9)]
