"""A question that every broker answers before a login, ApiVersions, on a connection of the proxy's own.

The connection is kept for the next question: to dial for each costs more than all else that an idle proxy
does. Not for ever (what stands before the broker may lead elsewhere by then), not where a new connection is
what is asked about, and not where it may be asked once only: on SASL listeners Kafka takes a second
ApiVersions for an error (SaslServerAuthenticator).
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from ssl import SSLError
from time import monotonic
from typing import Final

from sluice.protocol.api_versions import api_versions_request
from sluice.proxy.connection.stream import Stream, receive_exactly, send_all
from sluice.proxy.connection.undialled import NotConnected
from sluice.proxy.listener.circuit import Address
from sluice.proxy.listener.dial_outcome import SaysNothing
from sluice.proxy.listener.host_addresses import SocketAddress
from sluice.proxy.listener.upstream import Upstream
from sluice.proxy.runtime.error_words import words_of
from sluice.proxy.session.gateway.broker_map import in_text

_MAX_ANSWER_BYTES: Final = 64 * 1024
_CORRELATION_ID: Final = 0
_ID_BYTES: Final = 4
_KEPT_FOR_S: Final = 60.0
_CLIENT_ID: Final = "sluice"


class Heard(Enum):
    """What became of a question."""

    ANSWER = 1
    CLOSED = 2
    """the connection, unanswered"""
    NOTHING = 3
    REFUSED = 4
    """TLS ended with an alert, as where the broker wants a certificate: of TLS 1.3 it comes behind the
    handshake"""
    NOT_ASKED = 5
    """there was no connection, or no file descriptor for one"""


@dataclass(slots=True)
class _Line:
    """A connection that may be asked."""

    stream: Stream
    there: SocketAddress | None
    """as Dialled.there"""
    dialled_s: float
    answers: int = 0


class UpstreamProbe:
    """Asks the brokers behind one listener. One question at a time for each address."""

    def __init__(self, loop: asyncio.AbstractEventLoop, upstream: Upstream, answer_s: float) -> None:
        """`answer_s`: how long a question waits, dialling included."""
        self._loop = loop
        self._upstream = upstream
        self._answer_s = answer_s
        self._lines: dict[Address, _Line] = {}
        self._asked_once: set[Address] = set()
        self.why: dict[Heard, str] = {}
        """in words, of the last question with this end"""

    async def ask(self, address: Address, afresh: bool = False) -> Heard:
        """Ask the broker at `address`. `afresh`: on a new connection; one that is kept shows nothing of those
        that clients open now. Where that brings no answer the host's other addresses go first."""
        line = self._lines.pop(address, None)
        asked: _Line | None = None
        try:
            async with asyncio.timeout(self._answer_s):
                if line is not None and not afresh:
                    asked = line
                    if await self._kept_answers(address, line):
                        return Heard.ANSWER
                    asked = None
                dialled = await self._upstream.dial(address, None)
                if dialled is None:  # its circuit has the reason
                    return self._ends(Heard.NOT_ASKED, "")
                asked = _Line(*dialled, monotonic())
                if await self._is_answered(address, asked):
                    return Heard.ANSWER
                found = Heard.CLOSED
        except NotConnected as error:
            found = self._ends(Heard.NOT_ASKED, error.detail)
        except SaysNothing as error:
            found = self._ends(Heard.NOTHING, str(error))
        except TimeoutError:
            reason = f"{in_text(address)}: no answer to ApiVersions within {self._answer_s:g} s"
            found = self._ends(Heard.NOTHING, reason)
        except SSLError as error:
            found = self._ends(Heard.REFUSED, words_of(error))
        except OSError:
            found = Heard.CLOSED
        finally:
            # Only now: at a broker that limits connections its place would be what the new one gets.
            if line is not None and self._lines.get(address) is not line:
                line.stream.close()
        # Closed without a client having been closed: what stands there may let nobody ask, and serve.
        if asked is not None and (found is not Heard.CLOSED or afresh):
            self._upstream.gave_no_answer(asked.there)
        return found

    def close(self) -> None:
        """Close the connections that are kept."""
        for line in self._lines.values():
            line.stream.close()
        self._lines.clear()

    def _ends(self, how: Heard, reason: str) -> Heard:
        self.why[how] = reason
        return how

    async def _kept_answers(self, address: Address, line: _Line) -> bool:
        """False: it ends, by whatever error. Only a new connection tells what becomes of those."""
        with suppress(OSError):  # not this question's own timeout, which is raised further out
            return await self._is_answered(address, line)
        return False

    async def _is_answered(self, address: Address, line: _Line) -> bool:
        """False: the connection ends, or what came is no answer. It is kept, or closed."""
        try:
            with suppress(ConnectionError):  # why it is gone may be there to be read
                await send_all(self._loop, line.stream, api_versions_request(_CORRELATION_ID, _CLIENT_ID))
            size = int.from_bytes(await receive_exactly(self._loop, line.stream, 4))
            if not _ID_BYTES <= size <= _MAX_ANSWER_BYTES:
                return False
            answer = await receive_exactly(self._loop, line.stream, size)
            if int.from_bytes(answer[:_ID_BYTES]) != _CORRELATION_ID:
                return False
            line.answers += 1
            is_young = monotonic() - line.dialled_s < _KEPT_FOR_S
            if is_young and address not in self._asked_once:
                self._lines[address] = line
            return True
        except ConnectionError:
            if line.answers == 1:
                self._asked_once.add(address)
            return False
        finally:
            if self._lines.get(address) is not line:
                line.stream.close()
