"""When the next request of a connection may be begun: the state that the shell obeys, and the times that go
with it. Pure; time is an argument.

What leads where: connection_states.py. A mute never cuts a frame in two: what is judged and still arrives is
read on. So a mute first shuts the *gate*, and the state changes where the session meets the gate, at the next
frame boundary.
"""

from __future__ import annotations

from math import inf
from typing import Final

from sluice.proxy.session.causes import DisconnectCause
from sluice.proxy.session.connection_states import (
    Event,
    Gate,
    ImpossibleEvent,
    State,
    Times,
    rows,
)
from sluice.proxy.session.in_flight import MAX_IN_FLIGHT
from sluice.quotas.kinds import QuotaKind

EARLY_MS: Final = 0.5
"""A wake that comes this early is on time: the loop's clock ticks in ms."""
JUST_ENDED_MS: Final = 100.0
"""A request that comes so soon behind a delay has waited for its end: its client's sleep, and its way here,
are late by that"""
_FREE_MS: Final = 50.0
"""of a brake that is not sat out: what clients ask when they start, or once in five minutes, costs less"""
_NEW: Final = rows()
_STAY, _SHUT, _GATE, _WAKE, _ = Times


class Pace:
    """The reading state of one client connection."""

    __slots__ = (
        "_gate",
        "_mute_until_ms",
        "_row",
        "_stopped_ms",
        "close_cause",
        "close_detail",
        "gate_ms",
        "is_full",
        "max_in_flight",
        "state",
        "throttled_by",
        "wake_at_ms",
    )

    def __init__(self) -> None:
        self.state = State.READING
        self.wake_at_ms = inf
        """when the shell shall call Session.wake; of meaning in MUTED and HOLDING"""
        self.gate_ms = 0.0
        """no frame is begun before this; inf: not before something happens"""
        self.throttled_by: QuotaKind | None = None
        """the kind whose delay MUTED or HOLDING is"""
        self.close_cause: DisconnectCause | None = None
        """why the connection ends"""
        self.close_detail = ""
        self.is_full = False
        """AWAITING_BROKER because too much is in flight"""
        self.max_in_flight = MAX_IN_FLIGHT
        """requests; a limit on request time lowers it"""
        self._gate = Gate.TIME
        self._row = _NEW
        self._mute_until_ms = 0.0
        self._stopped_ms = inf

    @property
    def is_delayed(self) -> bool:
        """In MUTED or HOLDING: the delay is the proxy's own doing."""
        return self.state in {State.MUTED, State.HOLDING}

    @property
    def muted_until_ms(self) -> float:
        """The end of the latest mute; may be over."""
        return self._mute_until_ms

    def meet_gate(self) -> None:
        """A frame boundary is reached while the gate is closed."""
        self._on(Event.BOUNDARY)

    def latest_ms(self, limit_ms: float, now_ms: float) -> float:
        """The latest end of a delay that may take `limit_ms` in all, what is already being sat out
        included."""
        begun_ms = self._stopped_ms if self._is_stopped(now_ms) else now_ms
        return max(now_ms, begun_ms + limit_ms)

    def begun_ms(self, now_ms: float) -> float:
        """When the delay began that a request sits out which is held from now on: its own, or the mute that
        it stood behind."""
        is_behind = self._stopped_ms <= now_ms <= self._mute_until_ms + JUST_ENDED_MS
        return self._stopped_ms if is_behind else now_ms

    def _is_stopped(self, now_ms: float) -> bool:
        """A delay has begun and is not over: a hold and the mute behind it are one, and so are a mute and the
        time before it in which a frame is read on."""
        return self.is_delayed or self._mute_until_ms > now_ms

    def mute(
        self, until_ms: float, now_ms: float, kind: QuotaKind | None, *, at_boundary: bool = False
    ) -> None:
        """Close the gate until `until_ms`. `at_boundary`: no frame is half read, so the state changes at
        once. `kind`: None for what no client's quota brings about."""
        is_stopped = self._is_stopped(now_ms)
        if not is_stopped:
            self._stopped_ms = now_ms
        self._mute_until_ms = max(self._mute_until_ms, until_ms)
        if kind is not None or not is_stopped:
            self.throttled_by = kind
        self._on(Event.MUTE_AT_BOUNDARY if at_boundary else Event.MUTE)

    def hold(self, until_ms: float, now_ms: float, kind: QuotaKind) -> None:
        """The request at hand waits for its turn."""
        self._stopped_ms = now_ms
        self.throttled_by = kind
        self.wake_at_ms = until_ms
        self._on(Event.HOLD)  # the gate is shut, or the held bytes, given again, would be charged again

    def release(self, clears_at_ms: float) -> None:
        """The held request goes on; the delay lasts until `clears_at_ms`."""
        self._mute_until_ms = max(self._mute_until_ms, clears_at_ms)
        self._on(Event.RELEASE)

    def wake(self, now_ms: float) -> None:
        """`wake_at_ms` has come while MUTED; an answer that came meanwhile may have moved the end."""
        self._on(Event.WAKE_EARLY if now_ms < self.gate_ms < inf else Event.WAKE)

    def await_broker(self) -> None:
        """Nothing follows the request at hand before its answer."""
        self._on(Event.AWAIT)

    def suspend(self) -> bool:
        """As `await_broker`, between two requests; one that is held goes later. False: not now, for another
        wait would end it."""
        if self._gate is not Gate.TIME:
            return False
        self._on(Event.AWAIT)
        return True

    @property
    def is_hold_suspended(self) -> bool:
        """A held request may not go, though its turn may have come."""
        return self.state is State.HOLDING and self._gate is Gate.BROKER

    def fill(self) -> None:
        """Too much is in flight; if nothing else shuts the gate, wait for answers."""
        if self._gate is Gate.TIME:
            self._on(Event.AWAIT)
            self.is_full = True

    def broker_answered(self) -> None:
        """What was waited for has come."""
        self.is_full = False
        self._on(Event.ANSWER)

    def end(self, cause: DisconnectCause, detail: str, *, at_boundary: bool) -> None:
        """Begin no further request, for good. The first cause stays."""
        if self.close_cause is None:
            self.close_cause = cause
            self.close_detail = detail
        self._on(Event.END_AT_BOUNDARY if at_boundary else Event.END)

    def _on(self, event: Event) -> None:
        transition = self._row[event]
        if transition is None:
            raise ImpossibleEvent(f"{event.name} in {self.state.name}, {self._gate.name}")
        self.state, self._gate, times, self._row = transition
        if times is _STAY:
            return
        if times is _SHUT:
            self.gate_ms = inf
            return
        if times is not _WAKE:
            self.gate_ms = self._mute_until_ms
        if times is not _GATE:
            self.wake_at_ms = self.gate_ms


class Brake:
    """A wait behind what takes long to work on, a multiple of that: so nobody has the loop for himself by
    what no quota counts."""

    __slots__ = ("_pace", "_until_ms")

    def __init__(self, pace: Pace) -> None:
        self._pace = pace
        self._until_ms = 0.0  # if each wait followed the last one's

    def add(self, wait_ms: float, now_ms: float, *, at_boundary: bool = False) -> None:
        """No further request is begun for so long, or not yet: a little is free. `at_boundary`: as for
        Pace.mute."""
        self._until_ms = max(self._until_ms, now_ms) + wait_ms
        if self._until_ms > now_ms + _FREE_MS:
            self._pace.mute(self._until_ms, now_ms, None, at_boundary=at_boundary)
