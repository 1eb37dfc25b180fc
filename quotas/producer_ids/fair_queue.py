"""Who of one principal is admitted next: addresses take turns, at one its client ids, in one the oldest.

One bad client of a team would else take all of the team's ids: with a hundred waiting requests it would have
a hundred of every hundred and one turns (KIP-936 lists it as a known limit that a whole user is punished).
By address first, for a client can invent client ids; then by client id, for a sidecar has one address.

Turns are start-time fair queueing, in whole tickets: a node (an address, or a client id at one) that begins
to wait gets the turn that is being served now, and the next one after each ticket that is granted; of those
with one turn the oldest ticket goes first. So nothing is remembered of who does not wait, who is refused and
comes again is not overtaken by younger ones, and each operation costs a logarithm of those who wait. Pure.
Source: Goyal, Vin, Cheng, Start-time Fair Queueing (1996); wire-semantics 3.9.
"""

from __future__ import annotations

from heapq import heappop, heappush
from math import inf
from typing import Final, Generic, Protocol, TypeAlias, TypeVar

_DEAD_MAX: Final = 64


class Waiting(Protocol):
    """What stands in a queue."""

    client: tuple[str, str]
    """address, client id"""
    since_ms: float

    @property
    def waits(self) -> bool:
        """False: it is to be dropped when it comes up."""
        ...


T = TypeVar("T", bound=Waiting)
_Turn: TypeAlias = tuple[int, float, int, str]
"""turn, since when its oldest ticket waits, a number that tells equals apart, whose"""


class _Client(Generic[T]):
    """A client id at an address: its tickets, oldest first."""

    __slots__ = ("oldest_ms", "tickets", "turn")

    def __init__(self, turn: int) -> None:
        self.turn = turn
        self.oldest_ms = inf
        """as the order of turns knows it"""
        self.tickets: list[tuple[float, int, T]] = []

    def head(self) -> T | None:
        while self.tickets:
            ticket = self.tickets[0][2]
            if ticket.waits:
                return ticket
            heappop(self.tickets)
        return None


class _Address(Generic[T]):
    """Its client ids that wait, by turn."""

    __slots__ = ("clients", "oldest_ms", "served", "turn", "turns")

    def __init__(self, turn: int) -> None:
        self.turn = turn
        self.oldest_ms = inf
        self.served = 0
        """the turn of the client id that was granted last"""
        self.clients: dict[str, _Client[T]] = {}
        self.turns: list[_Turn] = []

    def head(self) -> T | None:
        while self.turns:
            turn, _, _, name = self.turns[0]
            client = self.clients.get(name)
            if client is not None and client.turn == turn:
                ticket = client.head()
                if ticket is not None:
                    return ticket
                del self.clients[name]
            heappop(self.turns)
        return None


class FairQueue(Generic[T]):
    """Waiting tickets of one principal."""

    __slots__ = ("_addresses", "_dead", "_number", "_served", "_size", "_turns")

    def __init__(self) -> None:
        self._addresses: dict[str, _Address[T]] = {}
        self._turns: list[_Turn] = []
        self._served = 0
        self._number = 0
        self._size = 0
        self._dead = 0

    def push(self, ticket: T) -> None:
        """It begins to wait."""
        address_name, client_name = ticket.client
        address = self._addresses.get(address_name)
        if address is None:
            address = self._addresses[address_name] = _Address(self._served)
        client = address.clients.get(client_name)
        if client is None:
            client = address.clients[client_name] = _Client(address.served)
        if ticket.since_ms < address.oldest_ms:
            self._enter(self._turns, address, ticket.since_ms, address_name)
        if ticket.since_ms < client.oldest_ms:
            self._enter(address.turns, client, ticket.since_ms, client_name)
        heappush(client.tickets, (ticket.since_ms, self._next(), ticket))
        self._size += 1

    def head(self) -> T | None:
        """The request whose turn is next; None: nobody waits."""
        while self._turns:
            turn, _, _, name = self._turns[0]
            address = self._addresses.get(name)
            if address is not None and address.turn == turn:
                ticket = address.head()
                if ticket is not None:
                    return ticket
                del self._addresses[name]
            heappop(self._turns)
        return None

    def granted(self, ticket: T) -> None:
        """What was the head has had its turn, and waits no more."""
        address = self._addresses[ticket.client[0]]
        client = address.clients[ticket.client[1]]
        self._served, address.served = address.turn, client.turn
        address.turn += 1
        client.turn += 1
        self._enter_next(ticket, address, client)
        self.bury()

    def take_head(self) -> T | None:
        """The head goes elsewhere and waits on; it has had no turn here."""
        ticket = self.head()
        if ticket is None:
            return None
        address = self._addresses[ticket.client[0]]
        client = address.clients[ticket.client[1]]
        heappop(client.tickets)
        heappop(address.turns)  # by which it was found
        heappop(self._turns)
        self._size -= 1
        self._enter_next(ticket, address, client)
        return ticket

    def _enter_next(self, ticket: T, address: _Address[T], client: _Client[T]) -> None:
        """Who comes after what was the head, of its client and of its address."""
        next_one = client.head()
        if next_one is not None:
            self._enter(address.turns, client, next_one.since_ms, ticket.client[1])
        else:
            del address.clients[ticket.client[1]]
        next_one = address.head()
        if next_one is not None:
            self._enter(self._turns, address, next_one.since_ms, ticket.client[0])
        else:
            del self._addresses[ticket.client[0]]

    def bury(self) -> None:
        """One of them waits no more. Those are dropped when they come up, or when they are many."""
        self._dead += 1
        if self._dead > _DEAD_MAX and self._dead * 2 > self._size:
            self._clean_up()

    def _clean_up(self) -> None:
        """Drop what does not wait; who is left keeps its turn."""
        self._size = self._dead = 0
        turns: list[_Turn] = []
        for name, address in list(self._addresses.items()):
            address.turns.clear()
            for client_name, client in list(address.clients.items()):
                client.tickets = sorted(entry for entry in client.tickets if entry[2].waits)
                self._size += len(client.tickets)
                if client.tickets:
                    self._enter(address.turns, client, client.tickets[0][0], client_name)
                else:
                    del address.clients[client_name]
            if (ticket := address.head()) is not None:
                self._enter(turns, address, ticket.since_ms, name)
            else:
                del self._addresses[name]
        self._turns = turns

    def _enter(self, turns: list[_Turn], node: _Address[T] | _Client[T], since_ms: float, name: str) -> None:
        """Into the order of turns. What stood there for it before is passed over: its turn is over, or it is
        younger, and the node gone when it comes up."""
        node.oldest_ms = since_ms
        heappush(turns, (node.turn, since_ms, self._next(), name))

    def __len__(self) -> int:
        """Tickets kept; at most half of them wait no more, but for a few."""
        return self._size

    def _next(self) -> int:
        self._number += 1
        return self._number
