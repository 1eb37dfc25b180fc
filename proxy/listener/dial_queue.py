"""Who waits for a connection to a broker: so many dials of one address at a time, the others in turn.

Thousands of clients at once overrun the broker's queue of connections (Kafka: socket.listen.backlog.size,
50), whose kernel then drops what it cannot keep: all try again in step, and many wait for longer than a dial
may take. Of a client its first bytes are read, and no more before there is a broker, so whether one has left
is asked for twice a second, from when a short dial would be over: one that only says that it sends no more
looks as one that is gone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self
from weakref import WeakValueDictionary

from sluice.proxy.listener.circuit import Address

MAX_DIALS: Final = 64
"""most dials of one listener to one broker at a time. The broker's queue holds 51: a few more keep it full,
and nearly all of those for whom there was no place find one when the kernel asks again, a second later."""
_FIRST_LOOK_S: Final = 3.0
"""longer than a handshake, or than the kernel takes to ask again a broker whose queue was full"""
_LOOK_S: Final = 0.5


class DialQueue:
    """The dials of one listener."""

    __slots__ = ("_places",)

    def __init__(self) -> None:
        # Weak: brokers move, and an address that nobody dials is forgotten.
        self._places: WeakValueDictionary[Address, asyncio.Semaphore] = WeakValueDictionary()

    def place(self, address: Address) -> asyncio.Semaphore:
        """`async with`: in turn; cancelled it leaves no place taken."""
        places = self._places.get(address)
        if places is None:
            places = self._places[address] = asyncio.Semaphore(MAX_DIALS)
        return places

    def is_full(self, address: Address) -> bool:
        """Who dials it now would have to wait."""
        places = self._places.get(address)
        return places is not None and places.locked()

    def __len__(self) -> int:
        """Addresses that are dialled now."""
        return len(self._places)


class ClientPatience:
    """`async with`: raises TimeoutError after `total_s`, or once nobody waits any more."""

    __slots__ = ("_is_given_up", "_look", "_loop", "_timeout", "client_left", "waits_for")

    def __init__(
        self, loop: asyncio.AbstractEventLoop, is_given_up: Callable[[], bool] | None, total_s: float
    ) -> None:
        """`is_given_up` None: there is nobody who could leave."""
        self._loop = loop
        self._is_given_up = is_given_up
        self._timeout = asyncio.timeout(total_s)
        self._look: asyncio.TimerHandle | None = None
        self.client_left = False
        self.waits_for = ""
        """why the last try brought nothing"""

    async def __aenter__(self) -> Self:
        await self._timeout.__aenter__()
        if self._is_given_up is not None:
            self._look = self._loop.call_later(_FIRST_LOOK_S, self._look_at, self._is_given_up)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._look is not None:
            self._look.cancel()
        await self._timeout.__aexit__(kind, error, trace)

    def _look_at(self, is_given_up: Callable[[], bool]) -> None:
        if is_given_up():
            self.client_left = True
            self._look = None
            if not self._timeout.expired():
                self._timeout.reschedule(self._loop.time())
        else:
            self._look = self._loop.call_later(_LOOK_S, self._look_at, is_given_up)
