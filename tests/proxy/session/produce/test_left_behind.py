"""What clients leave behind with acks = 0, and how much of it is forwarded: wire semantics 1.2.

Buckets hold one second of the rate. At 1,000 B/s a byte takes 1 ms.
"""

from __future__ import annotations

from sluice.proxy.session.causes import DisconnectCause
from sluice.proxy.session.connection_states import State
from sluice.proxy.session.delays import LeftBehind
from sluice.proxy.session.policy import SessionPolicy, SharedState
from sluice.proxy.session.produce.unacknowledged import unacknowledged_bytes
from sluice.proxy.session.session import Session
from testkit.frames.frames import METADATA, produce_of, request
from testkit.proxy.playbook import Shell, limits_of, shared_of


def leaver(cap_bytes: int, neighbours_debt: int) -> tuple[Shell, SharedState]:
    """Muted for 1 s; when it goes on, its entity is that much in debt again. It has 2 × 600 B to send."""
    plain = shared_of(limits_of(produce_rate=1_000))
    shared = SharedState(plain.quotas, plain.recorder, left_behind=LeftBehind(cap_bytes))
    neighbour, shell = (Shell(Session(shared, SessionPolicy(), "10.0.0.1")) for _ in range(2))
    shell.client_sends(produce_of(2_000, acks=0))
    if neighbours_debt:
        neighbour.client_sends(produce_of(neighbours_debt))
    shell.client_sends(produce_of(600, acks=0, correlation_id=1) + produce_of(600, acks=0, correlation_id=2))
    shell.client_leaves()
    shell.to_broker.clear()
    return shell, shared


def test_what_a_client_left_behind_is_forwarded_up_to_a_cap() -> None:
    """Cap 1,000: of 600 + 600 B, the first."""
    shell, shared = leaver(cap_bytes=1_000, neighbours_debt=0)
    shell.advance(10_000)
    assert shell.to_broker == produce_of(600, acks=0, correlation_id=1)
    assert shell.cause is DisconnectCause.UNFINISHED_BYTES_OVER_CAP
    assert "600 bytes" in shell.detail
    assert not shared.left_behind.take("ANONYMOUS", 401)
    shell.session.closed(shell.now_ms)
    assert shared.left_behind.take("ANONYMOUS", 1_000)


def test_what_is_held_and_beyond_the_cap_is_dropped_as_soon_as_its_client_has_left() -> None:
    """Nobody waits for it: in the queue until its deadline it would have others go sooner, and at its turn
    ahead of the quota if there was room by then."""
    plain = shared_of(limits_of(produce_rate=1_000))
    shared = SharedState(plain.quotas, plain.recorder, left_behind=LeftBehind(cap_bytes=500))
    neighbour, shell = (Shell(Session(shared, SessionPolicy(), "10.0.0.1")) for _ in range(2))
    neighbour.client_sends(produce_of(4_000))
    shell.client_sends(produce_of(600, acks=0))
    assert shell.state is State.HOLDING
    shell.client_leaves()
    shell.wake()
    assert shell.cause is DisconnectCause.UNFINISHED_BYTES_OVER_CAP
    assert not shell.to_broker
    assert shell.sensor().hold_queue() is not None
    assert len(shell.sensor().hold_queue() or ()) == 0


def test_a_request_left_behind_counts_once_though_it_is_held_after_its_client_left() -> None:
    """Cap 1,200 and 600 + 600 B, both held behind a neighbour's debt: both go."""
    shell, shared = leaver(cap_bytes=1_200, neighbours_debt=1_000)
    shell.advance(20_000)
    expected = produce_of(600, acks=0, correlation_id=1) + produce_of(600, acks=0, correlation_id=2)
    assert shell.to_broker == expected
    assert shell.cause is DisconnectCause.CLIENT_CLOSED
    assert not shared.left_behind.take("ANONYMOUS", 1)


def test_what_stands_behind_a_held_request_counts_as_soon_as_its_client_has_left() -> None:
    """Cap 1,000, and two leave 3 × 300 B each: 900 are kept for the first, so the second is dropped at once,
    and keeps nothing. (If each request counted at its turn, both would be kept.)"""
    plain = shared_of(limits_of(produce_rate=1_000))
    shared = SharedState(plain.quotas, plain.recorder, left_behind=LeftBehind(cap_bytes=1_000))
    neighbour, first, second = (Shell(Session(shared, SessionPolicy(), "10.0.0.1")) for _ in range(3))
    neighbour.client_sends(produce_of(4_000))
    left = b"".join(produce_of(300, acks=0, correlation_id=i) for i in range(3))
    for shell in (first, second):
        shell.client_sends(left)
        shell.client_leaves()
        shell.wake()
    assert first.state is State.HOLDING
    assert second.cause is DisconnectCause.UNFINISHED_BYTES_OVER_CAP
    second.session.closed(second.now_ms)
    assert shared.left_behind.take_up_to("ANONYMOUS", 1_000) == 100
    shared.left_behind.give_back("ANONYMOUS", 100)
    first.advance(20_000)
    assert first.to_broker == left
    first.session.closed(first.now_ms)
    assert shared.left_behind.take_up_to("ANONYMOUS", 1_001) == 1_000


def test_of_more_than_the_cap_what_fits_goes() -> None:
    """Cap 1,000 and 3 × 400 B, held: two go, and their connection ends with the third."""
    plain = shared_of(limits_of(produce_rate=1_000))
    shared = SharedState(plain.quotas, plain.recorder, left_behind=LeftBehind(cap_bytes=1_000))
    neighbour, shell = (Shell(Session(shared, SessionPolicy(), "10.0.0.1")) for _ in range(2))
    neighbour.client_sends(produce_of(4_000))
    frames = [produce_of(400, acks=0, correlation_id=i) for i in range(3)]
    shell.client_sends(b"".join(frames))
    shell.client_leaves()
    shell.advance(20_000)
    assert shell.to_broker == frames[0] + frames[1]
    assert shell.cause is DisconnectCause.UNFINISHED_BYTES_OVER_CAP


def test_what_has_acks_behind_it_takes_nothing_of_the_cap() -> None:
    plain = shared_of(limits_of(produce_rate=1_000))
    shared = SharedState(plain.quotas, plain.recorder, left_behind=LeftBehind(cap_bytes=1_000))
    neighbour, shell = (Shell(Session(shared, SessionPolicy(), "10.0.0.1")) for _ in range(2))
    neighbour.client_sends(produce_of(4_000))
    shell.client_sends(produce_of(300, acks=0) + produce_of(600, acks=1))
    shell.client_leaves()
    shell.wake()
    assert shell.state is State.HOLDING
    assert shared.left_behind.take_up_to("ANONYMOUS", 1_000) == 700


def test_what_did_not_fit_counts_no_longer_while_its_connection_still_has_an_answer_to_come() -> None:
    """Cap 1,000: 1,200 B do not fit, and another's 100 B do, though the first waits for its answer."""
    plain = shared_of(limits_of(produce_rate=1_000))
    shared = SharedState(plain.quotas, plain.recorder, left_behind=LeftBehind(cap_bytes=1_000))
    neighbour, first, second = (Shell(Session(shared, SessionPolicy(), "10.0.0.1")) for _ in range(3))
    neighbour.client_sends(produce_of(4_000))
    first.client_sends(request(METADATA, 1) + produce_of(1_200, acks=0))
    first.client_leaves()
    first.wake()
    assert first.cause is DisconnectCause.UNFINISHED_BYTES_OVER_CAP
    assert first.session.in_flight == 1
    frame = produce_of(100, acks=0)
    second.client_sends(frame)
    second.client_leaves()
    second.advance(20_000)
    assert second.to_broker == frame


def test_of_very_many_frames_the_first_tell_how_many_of_the_bytes_have_acks_0() -> None:
    """To read a million frames takes a second, and the event loop stands still."""
    one, other = produce_of(100, acks=0), produce_of(100, acks=1)
    assert unacknowledged_bytes(bytearray(one + other + one)) == 200
    assert unacknowledged_bytes(bytearray((one + other) * 2_048 + other * 8_000)) == 50 * (4_096 + 8_000)
    assert unacknowledged_bytes(bytearray()) == 0
