"""Who makes room for whom while a connection has not authenticated."""

from __future__ import annotations

from sluice.proxy.connection.limits import GRACE_MS, ConnectionLimits, Seat
from sluice.proxy.session.causes import DisconnectCause


class Guest:
    """A connection that has not authenticated; `is_to_speak`: nothing is due to it."""

    def __init__(self, limits: ConnectionLimits, begun_ms: float, *, is_to_speak: bool = True) -> None:
        admitted = limits.admit("10.0.0.1", begun_ms)
        assert isinstance(admitted, Seat)
        self.seat = admitted
        self.is_to_speak = is_to_speak
        self.seat.may_end(lambda: self.is_to_speak, self.seat.close)


def test_the_oldest_that_is_to_speak_makes_room_once_it_has_had_its_time() -> None:
    limits = ConnectionLimits(max_unauthenticated=3)
    known, logs_in, silent = (Guest(limits, at_ms) for at_ms in (0.0, 1.0, 2.0))
    assert limits.is_crowded
    assert known.seat.authenticated("alice") is None
    young = Guest(limits, 500.0)
    logs_in.is_to_speak = False
    assert limits.is_crowded
    assert not limits.make_room(2.0 + GRACE_MS - 0.1)
    assert limits.make_room(2.0 + GRACE_MS)
    assert [one.seat.is_open for one in (known, logs_in, silent, young)] == [True, True, False, True]
    assert (limits.ended_for_others, limits.is_crowded) == (1, False)
    Guest(limits, 600.0)
    assert not limits.make_room(2.0 + GRACE_MS)
    assert limits.make_room(500.0 + GRACE_MS)
    assert [one.seat.is_open for one in (known, logs_in, young)] == [True, True, False]


def test_those_who_have_authenticated_are_never_ended_for_another() -> None:
    limits = ConnectionLimits(max_connections=2, max_unauthenticated=2)
    guests = [Guest(limits, 0.0) for _ in range(2)]
    for guest in guests:
        assert guest.seat.authenticated("alice") is None
    assert not limits.is_crowded
    assert limits.make_room(1e9)
    assert all(guest.seat.is_open for guest in guests)
    assert limits.admit("10.0.0.1", 1e9) is DisconnectCause.TOO_MANY_CONNECTIONS


def test_a_silent_one_makes_room_where_all_places_are_taken() -> None:
    limits = ConnectionLimits(max_connections=2, max_unauthenticated=2)
    assert Guest(limits, 0.0).seat.authenticated("alice") is None
    silent = Guest(limits, 0.0)
    assert limits.is_crowded
    assert limits.make_room(GRACE_MS)
    assert not silent.seat.is_open
    assert Guest(limits, 0.0).seat.authenticated("bob") is None


def test_one_that_waits_for_the_share_makes_room_only_where_nobody_is_to_speak() -> None:
    limits = ConnectionLimits(max_unauthenticated=3)
    waits, known, speaks = (Guest(limits, at_ms, is_to_speak=at_ms == 2.0) for at_ms in (0.0, 1.0, 2.0))
    waits.seat.waits_for_share = True
    assert limits.make_room(2.0 + GRACE_MS)
    assert [one.seat.is_open for one in (waits, known, speaks)] == [True, True, False]
    Guest(limits, 500.0, is_to_speak=False).seat.waits_for_share = True
    assert known.seat.authenticated("alice") is None
    Guest(limits, 600.0, is_to_speak=False)
    assert limits.make_room(500.0 + GRACE_MS)
    assert [one.seat.is_open for one in (waits, known)] == [False, True]
