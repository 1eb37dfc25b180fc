"""When a connection in which nothing moves is to be ended: idle, unauthenticated, slow or stopped. Pure.

Once a second the shell walks over all connections and says of each for what it waits, and how many bytes have
moved there since the beginning; a `Watch` compares that with when it last moved enough:

    for what it waits      what counts            enough        too long (default)     cause
    AUTHENTICATION         nothing does           -             30 s                   authentication_timeout
    CLIENT_FRAME           bytes from the client  1 KiB         30 s                   slow_frame
    CLIENT_READS           bytes the client took  1             600 s                  client_stopped_reading
    BROKER                 bytes either way       1             600 s                  broker_stalled
    BROKER_CLIENT_LEFT     bytes either way       1             10 s                   client_closed
    CLIENT_REQUEST         bytes either way       1             never                  idle
    FIRST_REQUEST          bytes either way       1             600 s, or as above     idle
    NOTHING                -                      -             never                  -

Each wait begins anew when another one is seen, so time in which the proxy holds or mutes, or the broker takes
nothing, is never the client's.

*Idle:* off, for the broker closes connections on which nothing happens (connections.max.idle.ms, 10 min), and
its end is passed on; one for which no broker has been dialled yet is ended after as long. Where it is set,
let it be longer than the clients' own (Java: 9 min), or they will send requests into connections that are
just being closed. *Stopped:* a client that takes nothing of its answers for 10 min would be closed by the
broker too, to whom the connection is idle. Not sooner: a Java consumer reads nothing while its application
works on records, up to max.poll.interval.ms (5 min). *A frame that drips* ties up a connection and little
else; 1 KiB in 30 s is a thousandth of a slow link.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from math import inf
from typing import Final

from sluice.proxy.session.causes import DisconnectCause

SWEEP_INTERVAL_MS: Final = 1_000.0
_NO_BROKER_MS: Final = 600_000.0
"""Kafka's default of connections.max.idle.ms"""
_CLIENT_LEFT_MS: Final = 10_000.0
"""as long as a client that has left otherwise keeps a connection whose answers are due (connection.py)"""

ENDING_DEADLINE_S: Final = 10.0
"""How long a connection that begins no more requests waits for the answers still due, or for a client to take
them. A drain has a deadline of its own (proxy/server.py)."""
DRAIN_AGAIN_S: Final = 0.05
"""A connection in the midst of a login of the proxy's own at the broker is drained behind that, some round
trips later, if anything of its client's may still go."""
LAST_ANSWER_S: Final = 0.2
"""Between the last answer of a drain and the end of the connection: kafka-python (3.0.12) drops an answer
that it reads together with the end behind it, and sends its request again."""


class WaitsFor(IntEnum):
    """What must happen next on a connection; of several that are true, the first."""

    NOTHING = 0
    """the proxy's own doing, which it ends itself: held, muted, draining or closing; or an answer, which may
    take the broker as long as it likes (JoinGroup)"""
    AUTHENTICATION = 1
    """the broker has not said yes yet"""
    CLIENT_READS = 2
    """the client takes what was sent to it"""
    BROKER_CLIENT_LEFT = 3
    """as BROKER, and nobody is left to wait for it"""
    BROKER = 4
    """the client is not read because the broker takes nothing, or answers nothing"""
    CLIENT_FRAME = 5
    """the client goes on with a frame that it has begun"""
    CLIENT_REQUEST = 6
    """the client asks for something; nothing is due"""
    FIRST_REQUEST = 7
    """the same, and no broker has been dialled for it yet"""


@dataclass(frozen=True, slots=True)
class WatchTimeouts:
    """The settings; None: never."""

    authentication_s: float | None = 30.0
    """From the accept to the broker's yes, TLS handshake included; not while the broker is dialled."""
    slow_frame_s: float | None = 30.0
    slow_frame_min_bytes: int = 1024
    """what must come within slow_frame_s of a frame that has begun"""
    stopped_s: float | None = 600.0
    """a client, or a broker, that takes nothing of what waits for it"""
    idle_s: float | None = None


class WatchRules:
    """The settings by what is waited for, so that a look takes one index."""

    __slots__ = ("after_ms", "enough_bytes")

    def __init__(self, timeouts: WatchTimeouts) -> None:
        stopped_ms = _ms(timeouts.stopped_s)
        after_ms = {
            WaitsFor.NOTHING: inf,
            WaitsFor.AUTHENTICATION: _ms(timeouts.authentication_s),
            WaitsFor.CLIENT_READS: stopped_ms,
            WaitsFor.BROKER_CLIENT_LEFT: _CLIENT_LEFT_MS,
            WaitsFor.BROKER: stopped_ms,
            WaitsFor.CLIENT_FRAME: _ms(timeouts.slow_frame_s),
            WaitsFor.CLIENT_REQUEST: _ms(timeouts.idle_s),
            WaitsFor.FIRST_REQUEST: _NO_BROKER_MS if timeouts.idle_s is None else _ms(timeouts.idle_s),
        }
        self.after_ms = tuple(after_ms[waits_for] for waits_for in WaitsFor)
        self.enough_bytes = tuple(
            timeouts.slow_frame_min_bytes if waits_for is WaitsFor.CLIENT_FRAME else 1
            for waits_for in WaitsFor
        )


class Watch:
    """The time limits of one connection."""

    __slots__ = ("_moved_bytes", "_since_ms", "_waits_for")

    def __init__(self, now_ms: float) -> None:
        """`now_ms`: as SweepClock tells it, when the connection was accepted."""
        self._waits_for = WaitsFor.AUTHENTICATION
        self._moved_bytes = 0
        self._since_ms = now_ms

    def look(
        self, waits_for: WaitsFor, moved_bytes: int, now_ms: float, rules: WatchRules
    ) -> DisconnectCause | None:
        """Why the connection is to be ended now; None: it is not.

        `moved_bytes`: of what counts for `waits_for`, since the connection began; 0 for AUTHENTICATION.
        `now_ms`: as SweepClock tells it.
        """
        if waits_for is self._waits_for:
            # What was kept and is dropped makes it less, and something has happened then.
            if -1 < moved_bytes - self._moved_bytes < rules.enough_bytes[waits_for]:
                if now_ms - self._since_ms < rules.after_ms[waits_for]:
                    return None
                return _CAUSES[waits_for]
        else:
            self._waits_for = waits_for
        self._moved_bytes = moved_bytes
        self._since_ms = now_ms
        return None


class SweepClock:
    """Time in which the proxy was awake: after a pause of its process no client is to blame that nothing
    moved."""

    __slots__ = ("_last_ms", "now_ms")

    def __init__(self, now_ms: float) -> None:
        self._last_ms = now_ms
        self.now_ms = now_ms

    def tick(self, now_ms: float) -> float:
        """The time of this sweep, at most two intervals later than the last one's."""
        self.now_ms += min(now_ms - self._last_ms, 2.0 * SWEEP_INTERVAL_MS)
        self._last_ms = now_ms
        return self.now_ms


def _ms(seconds: float | None) -> float:
    return inf if seconds is None else seconds * 1000.0


_CAUSES: Final = {
    WaitsFor.AUTHENTICATION: DisconnectCause.AUTHENTICATION_TIMEOUT,
    WaitsFor.CLIENT_READS: DisconnectCause.CLIENT_STOPPED_READING,
    WaitsFor.BROKER_CLIENT_LEFT: DisconnectCause.CLIENT_CLOSED,
    WaitsFor.BROKER: DisconnectCause.BROKER_STALLED,
    WaitsFor.CLIENT_FRAME: DisconnectCause.SLOW_FRAME,
    WaitsFor.CLIENT_REQUEST: DisconnectCause.IDLE,
    WaitsFor.FIRST_REQUEST: DisconnectCause.IDLE,
}
