"""Whether an upstream address is worth dialling, and which of several comes first. Pure; time is given.

    CLOSED ── a dial failed ──► OPEN: clients are refused at once, instead of after the dial timeout
      ▲                          │ ▲
      │                 its time │ │ the probe failed: open for twice as long
      │                  is over ▼ │
      └── a dial succeeded ── HALF OPEN: one dial is tried, the other clients are refused

Only what is the address's own fault is a failure: a connection refused, a name that does not resolve, a TLS
handshake with the proxy's identity that is refused. A listener may have an identity of its own, so circuits
are shared only by those that have the same. Never a login that the broker refused: one user's bad credentials
would refuse others. Nor silence, before or behind the connection: the broker may be paused or starved, its
queue full of those who came at once, and its clients wait (dial_queue.py; upstream_watch.py tells readiness).
"""

from __future__ import annotations

from collections.abc import Container, Hashable, Iterable
from math import inf
from typing import Final, TypeAlias

FIRST_BACK_OFF_MS: Final = 100.0
MAX_BACK_OFF_MS: Final = 1_000.0
"""as long as clients wait at most between two attempts (Java: reconnect.backoff.max.ms)"""
MAX_CIRCUITS: Final = 1_000
_TOLD_EVERY_MS: Final = 60_000.0
_CAUSE_TOLD_EVERY_MS: Final = 10_000.0
FORGOTTEN_MS: Final = 60_000.0
"""so long after a dial nobody wants the address: those that brokers have are probed (upstream_watch.py)"""

Address: TypeAlias = tuple[str, int]
"""host, port"""


class Circuit:
    """The circuit breaker of one upstream address. Each dial that `may_dial` allowed ends in one of
    `succeeded`, `failed` and `abandoned`, or no other is ever tried."""

    __slots__ = (
        "_back_off_ms",
        "_is_told",
        "_slow_told_ms",
        "_told_cause",
        "_told_ms",
        "_told_ms_by_cause",
        "_under_way",
        "_until_ms",
        "dialled_ms",
        "failures",
        "is_slow",
        "openings",
        "reason",
        "refused",
        "was_reached",
    )

    def __init__(self) -> None:
        self._until_ms = -inf
        self._back_off_ms = 0.0  # 0: closed
        self.dialled_ms = -inf
        """when the last dial began"""
        self._under_way = 0
        self._slow_told_ms = -inf
        self._told_ms = -inf
        self._told_cause: object = None
        self._told_ms_by_cause: dict[object, float] = {}  # of the last 10 s
        self._is_told = False  # that it is open now
        self.reason = ""
        """why the last dial brought nothing; empty: it did, or none has ended"""
        self.is_slow = False
        """the last dial that ended got no answer in time; others may go first"""
        self.was_reached = False
        """since the start: until then a broker may just not be up yet"""
        self.failures = 0
        """dials that failed since the start"""
        self.openings = 0
        """times that it was closed and opened, since the start"""
        self.refused = 0
        """dials that were not tried because it was open, since the start"""

    @property
    def is_closed(self) -> bool:
        """The last that was heard of the address is good, or nothing was."""
        return not self._back_off_ms

    @property
    def under_way(self) -> int:
        """Dials that have begun and not ended."""
        return self._under_way

    @property
    def is_unused(self) -> bool:
        """Closed, and no dial is under way: nothing is lost with it but its counts."""
        return self.is_closed and not self._under_way

    def is_forgotten(self, now_ms: float) -> bool:
        """Open, and not dialled for so long that nobody will: its broker has moved, or is no more."""
        return not (self.is_closed or self._under_way) and now_ms >= self.dialled_ms + FORGOTTEN_MS

    def would_refuse(self, now_ms: float) -> bool:
        """Whether `may_dial` would say no; changes nothing.

        Dials that were begun before it opened and are still under way are probes enough.
        """
        return not self.is_closed and (self._under_way > 0 or now_ms < self._until_ms)

    def may_dial(self, now_ms: float) -> bool:
        """Whether to dial now. If not, the client is to be refused, or another address tried."""
        if self.would_refuse(now_ms):
            self.refused += 1
            return False
        self._under_way += 1
        self.dialled_ms = now_ms
        return True

    def failed(self, now_ms: float, jitter: float, reason: str = "", cause: object = None) -> bool:
        """A dial failed. True: worth a line in the log, for it is open and nobody was told, or the cause is
        another than was told last: a broker may be down at first and then be wrong. One that comes and goes
        for the same cause is told once in 10 s.

        `reason`: in words; `cause`: equal for what is the same, whatever the words.
        `jitter`, 0 ≤ jitter < 1, takes up to half off the back-off, so that proxies which lost the same
        broker do not come back together. Of dials that were begun before it opened, and now fail one after
        the other for the same reason, only the last makes the back-off longer.
        """
        self._failed(reason)
        self._open(now_ms, jitter)
        return self._is_news(now_ms, cause)

    def _is_news(self, now_ms: float, cause: object) -> bool:
        """It is open: whether to tell that, or its new cause. True: it counts as told."""
        old_ms = now_ms - _CAUSE_TOLD_EVERY_MS
        if self._is_told:
            is_news = cause != self._told_cause and self._told_ms <= old_ms
        else:
            is_news = self._told_ms_by_cause.get(cause, -inf) <= old_ms
        if is_news:
            recent = {one: at_ms for one, at_ms in self._told_ms_by_cause.items() if at_ms > old_ms}
            self._told_ms_by_cause = recent | {cause: now_ms}
            self._is_told, self._told_cause, self._told_ms = True, cause, now_ms
        return is_news

    def timed_out(self, now_ms: float, jitter: float, reason: str = "") -> bool:
        """A dial got no answer in time. True: worth a line in the log, at most one a minute.

        It opens nothing; where the circuit is open already, the probe has failed.
        """
        self._failed(reason)
        if not self.is_closed:
            self._open(now_ms, jitter)
            return False
        self.is_slow = True
        if now_ms - self._slow_told_ms < _TOLD_EVERY_MS:
            return False
        self._slow_told_ms = now_ms
        return True

    def succeeded(self) -> bool:
        """A dial succeeded. True: it was open until now, which was told, so its end is worth a line."""
        self._ended()
        was_told, self._is_told = self._is_told, False
        self.reason = ""
        self.is_slow = False
        self.was_reached = True
        self._back_off_ms = 0.0
        return was_told

    def abandoned(self, reason: str = "") -> None:
        """A dial was given up with nothing learnt: its client left, the proxy ends; or for `reason`, which is
        no failure."""
        self._ended()
        self.reason = reason or self.reason

    def _failed(self, reason: str) -> None:
        self._ended()
        self.failures += 1
        self.reason = reason

    def _open(self, now_ms: float, jitter: float) -> None:
        """For longer, if it is open and its time is over."""
        if self.is_closed:
            self.openings += 1
        elif self.would_refuse(now_ms):
            return
        self._back_off_ms = min(max(self._back_off_ms * 2.0, FIRST_BACK_OFF_MS), MAX_BACK_OFF_MS)
        self._until_ms = now_ms + self._back_off_ms * (1.0 - jitter / 2.0)

    def _ended(self) -> None:
        assert self._under_way > 0, "a dial that was not allowed, or ended twice"
        self._under_way -= 1


class Circuits:
    """A circuit for each upstream address that was dialled with one identity: as many as there are brokers.

    Brokers move, so addresses come and go: beyond `max_circuits` those that are closed and not being dialled
    are forgotten.
    """

    __slots__ = ("_circuits", "_max_circuits")

    def __init__(self, max_circuits: int = MAX_CIRCUITS) -> None:
        self._max_circuits = max_circuits
        self._circuits: dict[Address, Circuit] = {}

    def of(self, address: Address) -> Circuit:
        """Its circuit, closed if nothing is known of it."""
        circuit = self._circuits.get(address)
        if circuit is None:
            if len(self._circuits) >= self._max_circuits:
                self._circuits = {at: one for at, one in self._circuits.items() if not one.is_unused}
            circuit = self._circuits[address] = Circuit()
        return circuit

    def to_be_probed(self, among: Iterable[Address], now_ms: float) -> list[Address]:
        """Those of the addresses whose circuit is open and may be dialled, dialled longest ago first."""
        found = [
            (circuit.dialled_ms, address)
            for address in among
            if (circuit := self._circuits.get(address)) is not None
            and not (circuit.is_closed or circuit.would_refuse(now_ms))
        ]
        return [address for _, address in sorted(found)]

    def is_closed(self, address: Address) -> bool:
        """The last that was heard of it is good, or nothing was."""
        circuit = self._circuits.get(address)
        return circuit is None or circuit.is_closed

    def forget(self, now_ms: float, wanted: Container[Address] = ()) -> None:
        """Those that are open, and that nobody dials any more: metrics would tell of them for ever. `wanted`:
        not these, however long it takes until their turn to be probed comes."""
        gone = [
            address
            for address, circuit in self._circuits.items()
            if circuit.is_forgotten(now_ms) and address not in wanted
        ]
        for address in gone:
            del self._circuits[address]

    def __len__(self) -> int:
        return len(self._circuits)

    def items(self) -> Iterable[tuple[Address, Circuit]]:
        """All addresses with their circuits."""
        return self._circuits.items()


class CircuitsByIdentity:
    """The circuits of all listeners: shared by those that have the same identity towards their brokers, for
    what a broker thinks of one identity says nothing of another."""

    __slots__ = ("_circuits",)

    def __init__(self) -> None:
        self._circuits: dict[Hashable, Circuits] = {}

    def of(self, identity: Hashable) -> Circuits:
        """Those of all listeners with this identity (ListenerOptions.upstream_identity)."""
        return self._circuits.setdefault(identity, Circuits())

    def by_address(self) -> dict[Address, list[Circuit]]:
        """The circuits of each address, of all identities, for metrics."""
        found: dict[Address, list[Circuit]] = {}
        for circuits in self._circuits.values():
            for address, circuit in circuits.items():
                found.setdefault(address, []).append(circuit)
        return found


class Rotation:
    """Several addresses of which any will do, as bootstrap servers: in what order to try them."""

    __slots__ = ("_addresses", "_circuits", "_first", "turns")

    def __init__(self, addresses: Iterable[Address], circuits: Circuits) -> None:
        """In order of preference; at least one. An address named twice counts once."""
        self._addresses = tuple(dict.fromkeys(addresses))
        self._circuits = circuits
        self._first = 0
        self.turns = 0
        """how often another one has become the first"""

    def order(self, now_ms: float) -> list[Address]:
        """The last good one first, then those behind it in turn; behind them those that are slow, and
        last those whose circuit is open.

        All are in it: whoever dials asks each one's circuit, and goes on with the next if it may not or
        fails.
        """
        turned = self._addresses[self._first :] + self._addresses[: self._first]

        def doubt(address: Address) -> tuple[bool, bool]:
            circuit = self._circuits.of(address)
            return circuit.would_refuse(now_ms), circuit.is_slow

        return sorted(turned, key=doubt)

    @property
    def is_there(self) -> bool:
        """Some circuit is closed."""
        return any(map(self._circuits.is_closed, self._addresses))

    def __contains__(self, address: Address) -> bool:
        return address in self._addresses

    def good(self, address: Address) -> None:
        """A dial of it succeeded; from now on it is the first."""
        place = self._addresses.index(address)
        if place != self._first:
            self._first = place
            self.turns += 1

    def silent(self, address: Address) -> None:
        """It takes connections and answers nothing, which no dial shows: the one behind it is the first."""
        place = self._addresses.index(address)
        self.good(self._addresses[(place + 1) % len(self._addresses)])
