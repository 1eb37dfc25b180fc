"""How many client connections there may be, and how fast a listener takes new ones. Pure; time is given.

    accept ─ AcceptRate.wait_ms ─► ConnectionLimits.admit ─► Seat: located ─ authenticated ─► close
             too fast: the accept waits    too many: closed at once, with the cause that is returned

*Too many who have not authenticated*: the oldest of those whose turn it is, to speak or to read, is ended
for the one that comes; where there is none, the oldest whose bytes wait for the share of a core, if it has
been read more often than a login takes (guests.py); where all have come just now, or wait for the broker,
nobody is accepted for a moment (docs/decisions.md). One that has authenticated is never ended for another.

*Too many* closes at once. Kafka does so for one address (max.connections.per.ip, SocketServer's
ConnectionQuotas), but stops accepting when there are too many in all (max.connections). Sluice closes then
too: a client that nobody accepts is connected all the same, for the kernel answers it, and learns of nothing
before its request timeout of 30 s; one that is closed tries the next address, or again, within a second. *Too
fast* waits, as Kafka's listener does (max.connection.creation.rate): after a restart all clients come at
once, the kernel queues them meanwhile, and if they were closed they would only come again sooner.

What is remembered is one number for each address and user that has a connection now, so no more than there
are connections: addresses that came and went leave nothing (wire-semantics 4.4).
"""

from __future__ import annotations

from collections.abc import Callable
from ipaddress import IPv6Address
from typing import Final

from sluice.proxy.connection.guest_share import GuestShare
from sluice.proxy.connection.spare_files import SpareFiles
from sluice.proxy.session.causes import DisconnectCause
from sluice.quotas.entity import ANONYMOUS, UNNAMED_USERS

IPV6_PREFIX_BITS: Final = 64
"""One host has all addresses of its /64, and may use another one for every connection (RFC 8981). Where many
hosts share a /64, as the pods of a Kubernetes node do, 128 counts each by itself."""
_UNAUTHENTICATED_SHARE: Final = 4
"""One address may have a quarter of the places of those that have not authenticated yet, where it is surely a
client's: a balancer told it (PROXY protocol), or somebody who knows has set max_connections_per_address. Else
a thousand clients may come from behind one (NAT)."""
GRACE_MS: Final = 1_000.0
"""for which who has just come may not be ended for another: a login's round trips, on a long way too"""
FILES_EACH: Final = 2
"""towards the client and towards the broker"""
_SHARED_NAMES: Final = UNNAMED_USERS | {ANONYMOUS}
"""each is many principals"""


class Seat:
    """One connection's place, from its accept to its end."""

    __slots__ = ("_address", "_end", "_is_open", "_limits", "_user", "_waits", "begun_ms", "waits_for_share")

    def __init__(self, limits: ConnectionLimits, address: str | None, begun_ms: float) -> None:
        self._limits = limits
        self.begun_ms = begun_ms
        """when the client was accepted"""
        self.waits_for_share = False
        """it has spoken, more often than a login takes, and is not read before those who have not
        authenticated may take time again"""
        self._waits: Callable[[], bool] | None = None
        self._end: Callable[[], None] | None = None
        self._address = address
        self._user: str | None = None
        self._is_open = True

    def located(self, address: str) -> DisconnectCause | None:
        """Whose connection a balancer passes on, for a seat admitted without an address (PROXY protocol).

        A cause: the address has too many; close the connection. To be called before `authenticated`.
        """
        assert self._address is None
        assert self._user is None
        key = self._limits.address_key(address)
        cause = self._limits._address_refusal(key, is_real=True)
        if cause is None:
            self._limits._address_enters(key)
            self._address = key
        return cause

    def authenticated(self, user: str) -> DisconnectCause | None:
        """The principal is known: by the broker's yes, by the certificate, or because nobody need say it.

        A cause: the user has too many; close the connection. Again with the same user: nothing happens.
        """
        if user == self._user:
            return None
        assert self._user is None, "a connection's principal never changes"
        cause = self._limits._user_refusal(user)
        if cause is None:
            self._limits._authenticates(self, self._address, user)
            self._user = user
            self._waits = self._end = None
        return cause

    def may_end(self, waits: Callable[[], bool], end: Callable[[], None]) -> None:
        """Until it authenticates `end` ends the connection for a newer one, if `waits` says that it is the
        client's turn."""
        self._waits = waits
        self._end = end

    def may_not_end(self) -> None:
        """It is the broker's turn, or ours."""
        self._waits = self._end = None

    @property
    def is_open(self) -> bool:
        """The connection has not ended."""
        return self._is_open

    @property
    def is_waiting(self) -> bool:
        """Nothing is lost with it but what the client might have said, or has left unread."""
        return self._waits is not None and self._waits()

    def end(self) -> None:
        """One that is waiting, for a newer one."""
        assert self._end is not None
        self._end()

    def close(self) -> None:
        """The connection has ended; may be called twice."""
        if self._is_open:
            self._is_open = False
            self._waits = self._end = None  # no circle: the connection is freed at once
            self._limits._leaves(self, self._address, self._user)


class ConnectionLimits:
    """The client connections of one process. None: no limit.

    The maxima may be set while connections live, as the configuration is reloaded; those beyond a lower one
    stay. With max_connections_per_user below max_connections nobody is refused because of one user's
    connections, and with max_connections_per_address because of one address's; connections that have not
    authenticated have places of their own, so that those who cannot do not use up what the others need.
    """

    __slots__ = (
        "_by_address",
        "_by_user",
        "_guests",
        "_ipv6_prefix_bits",
        "_unauthenticated_by_address",
        "caps_shared_names",
        "connections",
        "ended_for_others",
        "guests",
        "max_connections",
        "max_connections_per_address",
        "max_connections_per_user",
        "max_unauthenticated",
        "refused",
        "spare",
        "unauthenticated",
    )

    def __init__(
        self,
        *,
        max_connections: int | None = None,
        max_connections_per_address: int | None = None,
        max_connections_per_user: int | None = None,
        max_unauthenticated: int | None = None,
        ipv6_prefix_bits: int = IPV6_PREFIX_BITS,
    ) -> None:
        """`max_unauthenticated`: connections whose principal is not known yet."""
        self.max_connections = max_connections
        self.max_connections_per_address = max_connections_per_address
        self.max_connections_per_user = max_connections_per_user
        self.max_unauthenticated = max_unauthenticated
        self.caps_shared_names = True
        """whether max_connections_per_user holds for names that many principals share, too"""
        self._ipv6_prefix_bits = ipv6_prefix_bits
        self.connections = 0
        """open now"""
        self.unauthenticated = 0
        """of these, those whose principal is not known yet"""
        self.guests = GuestShare()
        """what these may cost"""
        self.spare = SpareFiles()
        """what the connections leave of the open files"""
        self.ended_for_others = 0
        """of these, since the start, those that were ended for a newer one"""
        self._guests: dict[Seat, None] = {}
        """the same; the oldest first"""
        self._by_address: dict[str, int] = {}
        self._unauthenticated_by_address: dict[str, int] = {}
        self._by_user: dict[str, int] = {}
        self.refused = {
            DisconnectCause.TOO_MANY_CONNECTIONS: 0,
            DisconnectCause.TOO_MANY_CONNECTIONS_OF_ADDRESS: 0,
            DisconnectCause.TOO_MANY_CONNECTIONS_OF_USER: 0,
            DisconnectCause.TOO_MANY_UNAUTHENTICATED: 0,
        }
        """by cause, since the start"""

    @property
    def is_crowded(self) -> bool:
        """A newer connection has no place, unless one that has not authenticated makes room."""
        return _is_reached(self.unauthenticated, self.max_unauthenticated) or (
            self.unauthenticated > 0 and _is_reached(self.connections, self.max_connections)
        )

    def make_room(self, now_ms: float) -> bool:
        """End the oldest that has not authenticated and whose turn it is, if it has had its time; if there
        is none, the oldest with `waits_for_share`. True: so it was done, or nothing is to be gained: accept
        the next one. False: later."""
        ended: Seat | None = None
        for guest in self._guests:
            if now_ms - guest.begun_ms < GRACE_MS:
                break
            if guest.is_waiting:
                ended = guest
                break
            if ended is None and guest.waits_for_share:
                ended = guest
        if ended is not None:
            self.ended_for_others += 1
            ended.end()
            ended.close()
            return True
        return not _is_reached(self.unauthenticated, self.max_unauthenticated)

    def admit(self, address: str | None, now_ms: float = 0.0) -> Seat | DisconnectCause:
        """A place for a connection just accepted, or why it is to be closed at once.

        `address`: the client's, without its port; None if a balancer will only tell (PROXY protocol).
        """
        if _is_reached(self.connections, self.max_connections):
            return self._refuse(DisconnectCause.TOO_MANY_CONNECTIONS)
        if _is_reached(self.unauthenticated, self.max_unauthenticated):
            return self._refuse(DisconnectCause.TOO_MANY_UNAUTHENTICATED)
        key = None if address is None else self.address_key(address)
        if key is not None:
            cause = self._address_refusal(key, is_real=self.max_connections_per_address is not None)
            if cause is not None:
                return cause
            self._address_enters(key)
        self.spare.reserve(FILES_EACH)
        self.connections += 1
        self.unauthenticated += 1
        seat = Seat(self, key, now_ms)
        self._guests[seat] = None
        return seat

    def address_key(self, address: str) -> str:
        """What is counted as one address: an IPv4 address, or the prefix of an IPv6 address.

        An IPv4-mapped IPv6 address (::ffff:10.0.0.1, as a listener on `::` sees IPv4 clients) is the IPv4
        address. What is no address (a balancer may pass on a Unix socket's name) is counted as it is.
        """
        if ":" not in address:
            return address
        try:
            ipv6 = IPv6Address(address.partition("%")[0])
        except ValueError:
            return address
        if ipv6.ipv4_mapped is not None:
            return str(ipv6.ipv4_mapped)
        host_bits = 128 - self._ipv6_prefix_bits
        return str(IPv6Address(int(ipv6) >> host_bits << host_bits))

    def connections_of_user(self, user: str) -> int:
        """Open now, and known to be his."""
        return self._by_user.get(user, 0)

    def connections_of_address(self, address: str) -> int:
        """Open now, of all that is counted as one with this address."""
        return self._by_address.get(self.address_key(address), 0)

    def _refuse(self, cause: DisconnectCause) -> DisconnectCause:
        self.refused[cause] += 1
        return cause

    def _address_refusal(self, key: str, *, is_real: bool) -> DisconnectCause | None:
        if _is_reached(self._by_address.get(key, 0), self.max_connections_per_address):
            return self._refuse(DisconnectCause.TOO_MANY_CONNECTIONS_OF_ADDRESS)
        if is_real and self.max_unauthenticated is not None:
            share = max(1, self.max_unauthenticated // _UNAUTHENTICATED_SHARE)
            if self._unauthenticated_by_address.get(key, 0) >= share:
                return self._refuse(DisconnectCause.TOO_MANY_UNAUTHENTICATED)
        return None

    def _address_enters(self, key: str) -> None:
        _add(self._by_address, key)
        _add(self._unauthenticated_by_address, key)

    def _user_refusal(self, user: str) -> DisconnectCause | None:
        if user in _SHARED_NAMES and not self.caps_shared_names:
            return None
        if _is_reached(self._by_user.get(user, 0), self.max_connections_per_user):
            return self._refuse(DisconnectCause.TOO_MANY_CONNECTIONS_OF_USER)
        return None

    def _authenticates(self, seat: Seat, address_key: str | None, user: str) -> None:
        _add(self._by_user, user)
        del self._guests[seat]
        self.unauthenticated -= 1
        if address_key is not None:
            _take(self._unauthenticated_by_address, address_key)

    def _leaves(self, seat: Seat, address_key: str | None, user: str | None) -> None:
        self.spare.free(FILES_EACH)
        self.connections -= 1
        if address_key is not None:
            _take(self._by_address, address_key)
        if user is not None:
            _take(self._by_user, user)
            return
        del self._guests[seat]
        self.unauthenticated -= 1
        if address_key is not None:
            _take(self._unauthenticated_by_address, address_key)


class AcceptRate:
    """How fast a listener accepts: a token bucket of max(1, rate × burst) connections.

    In any span of T seconds it lets through at most rate × T + max(1, rate × burst).
    """

    __slots__ = ("_burst_ms", "_clears_at_ms", "_interval_ms", "paused_ms", "pauses")

    def __init__(self, per_s: float, burst_s: float = 1.0) -> None:
        """`per_s` > 0: connections a second (Kafka: max.connection.creation.rate)."""
        self._interval_ms = 1000.0 / per_s
        self._burst_ms = max(0.0, burst_s * 1000.0 - self._interval_ms)
        self._clears_at_ms = float("-inf")
        self.pauses = 0
        """times that the listener was told to wait"""
        self.paused_ms = 0.0
        """how long, in all"""

    def wait_ms(self, now_ms: float) -> float:
        """0: accept one now, and say so with `accepted`. Else for how long the listener shall accept nobody.

        Ask once a pause, and round up to what the timer can tell apart.
        """
        wait_ms = self._clears_at_ms - self._burst_ms - now_ms
        if wait_ms <= 0.0:
            return 0.0
        self.pauses += 1
        self.paused_ms += wait_ms
        return wait_ms

    def accepted(self, now_ms: float) -> None:
        """One was there and is accepted."""
        self._clears_at_ms = max(self._clears_at_ms, now_ms) + self._interval_ms


def _is_reached(count: int, limit: int | None) -> bool:
    return limit is not None and count >= limit


def _add(counts: dict[str, int], key: str) -> None:
    counts[key] = counts.get(key, 0) + 1


def _take(counts: dict[str, int], key: str) -> None:
    left = counts[key] - 1
    if left:
        counts[key] = left
    else:
        del counts[key]
