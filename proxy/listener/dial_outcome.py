"""What a dial of a broker came to: a connection, a fault of one of its host's addresses, or silence."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

from sluice.proxy.connection.stream import Stream
from sluice.proxy.listener.circuit import Address
from sluice.proxy.listener.host_addresses import SocketAddress
from sluice.proxy.runtime.error_words import words_of


class SaysNothing(Exception):
    """A broker did not take the connection in time, or took it and then said nothing.

    That is no failure of a dial: a broker that is paused for a while must not have its clients refused.
    """


@dataclass(slots=True)
class BrokerStream:
    """A connection to a broker on which requests may be sent."""

    stream: Stream
    address: Address
    session_lifetime_ms: int = 0
    """how long the broker lets the proxy's login count (KIP-368); 0: for ever, or it is the client's"""
    there: SocketAddress | None = None
    """where it leads to, if its host has other addresses"""


class Dialled(NamedTuple):
    """A connection to a broker without a login."""

    stream: Stream
    there: SocketAddress | None
    """where it leads to, if its host has other addresses"""


@dataclass(frozen=True, slots=True)
class Fault:
    """What a dial of one socket address came to, if not to a connection."""

    error: OSError
    """a TimeoutError: silence"""
    at: str
    """the address, if its host has several"""
    has_connected: bool
    """it was TLS that came to nothing, or the PROXY header"""
    within_s: float
    """how long it was waited for at most"""
    besides: str = ""
    """what was wrong at another address of its host"""

    @property
    def is_silence(self) -> bool:
        """Nothing came in time: it may only be slow."""
        return isinstance(self.error, TimeoutError)

    def told(self, words: str) -> str:
        """`words`, and where that was."""
        return self.with_the_other(f"at {self.at}: {words}" if self.at else words)

    def with_the_other(self, told: str) -> str:
        """And what is wrong besides: an address that is off hides no certificate that does not fit."""
        return f"{told}; {self.besides}" if self.besides else told

    def and_then(self, later: Fault) -> Fault:
        """What to hold against the host once the next address has failed, too."""
        kept, other = (self, later) if self.is_silence else (later, self)
        if other.is_silence or not kept.is_silence:
            return kept
        return replace(kept, besides=f"at {other.at}: {words_of(other.error)}")
