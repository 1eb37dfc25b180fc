"""The way to the broker: dial one of several addresses, PROXY header, TLS, login.

Then the client's bytes may follow. Of one listener. An address that failed is left alone for a while
(circuit.py); one that is slow is tried again, in turn, for as long as its client waits (dial_queue.py).
Closes what it opened if it fails.
"""

from __future__ import annotations

import asyncio
import secrets
import socket
from collections.abc import Callable, Sequence
from errno import ECONNREFUSED
from math import inf
from random import random
from time import monotonic
from typing import TYPE_CHECKING, Final

from sluice.protocol.errors import ProtocolError
from sluice.protocol.proxy_protocol import LOCAL_HEADER, Endpoint, build_v2
from sluice.proxy.config.listener import ListenerOptions
from sluice.proxy.connection.stream import Stream, receive, send_all
from sluice.proxy.connection.undialled import NotConnected
from sluice.proxy.listener.circuit import Address, Circuits
from sluice.proxy.listener.dial_outcome import BrokerStream, Dialled, Fault, SaysNothing
from sluice.proxy.listener.dial_queue import ClientPatience, DialQueue
from sluice.proxy.listener.host_addresses import (
    Found,
    HostAddresses,
    SocketAddress,
    connects_at_once,
    is_here,
    literal,
    opened,
    refuse_itself,
)
from sluice.proxy.runtime.error_words import OUT_OF_DESCRIPTORS, words_of
from sluice.proxy.runtime.log import get_logger
from sluice.proxy.session.causes import DisconnectCause
from sluice.proxy.session.gateway.broker_map import in_text

if TYPE_CHECKING:
    from sluice.proxy.listener.login.credentials import CredentialsFile
    from sluice.proxy.listener.login.login import UpstreamLogin
    from sluice.proxy.listener.tls.context import ClientTls

_READ_BYTES: Final = 16 * 1024
_CLIENT_ID: Final = "sluice"
DIAL_TOTAL_S: Final = 20.0
"""below the 30 s after which most clients give a request up; who has less patience leaves, and its place"""
_NO_TIME: Final = 0.01
"""of a dial's time: timers come up to half a millisecond too soon, so nothing is never exactly left"""
_LEAST_SHARE: Final = 0.2
"""of a dial's time for one of many addresses of a name; the sixth comes in the next dial"""
_TOLD_EVERY_S: Final = 10.0

_log = get_logger()


class Upstream:
    """Connects to the brokers of one listener."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        options: ListenerOptions,
        circuits: Circuits,
        *,
        dial_timeout_s: float,
        dial_total_s: float = DIAL_TOTAL_S,
        tls: ClientTls | None = None,
        credentials: CredentialsFile | None = None,
    ) -> None:
        """`circuits`: of all listeners with this one's identity. `tls`: if the broker has it; `credentials`:
        if the proxy logs in.

        `dial_timeout_s`: for the connection with TLS, and again for the login. `dial_total_s`: for all tries
        of one client, its place in the queue included.
        """
        self._loop = loop
        self._options = options
        self._circuits = circuits
        self.dial_timeout_s = dial_timeout_s
        self._dial_total_s = max(dial_total_s, dial_timeout_s)
        self._queue = DialQueue()
        self._hosts = HostAddresses(loop)
        self._tls = tls
        self._credentials = credentials
        logs_in = credentials is not None and options.logs_in
        self.cut_off = asyncio.Event()
        """A new connection ended before the broker had answered anything on it: upstream_watch.py, which
        clears this, is to look whether that happens to all."""
        self._silence_told_s = -inf
        self._is_plain = not (tls is not None or options.upstream_proxy_protocol or logs_in)

    @property
    def can_ask(self) -> bool:
        """Whether the proxy can send requests of its own: it needs no login, or has one."""
        if not self._options.upstream_has_sasl:
            return True
        return self._credentials is not None and self._credentials.service is not None

    def at_once(self, addresses: Sequence[Address]) -> BrokerStream | None:
        """The first of `addresses`, if it is on this machine, takes a connection now and is sent nothing
        before the client's own bytes. None: `connect` to it, which also tells what is wrong."""
        if not self._is_plain or not addresses:
            return None
        address = addresses[0]
        circuit = self._circuits.of(address)
        if not is_here(*address) or not circuit.is_closed or self._queue.is_full(address):
            return None
        ((family, found),) = literal(*address)
        try:
            broker = opened(family)
        except OSError:
            return None
        try:
            if connects_at_once(broker, found):
                circuit.may_dial(monotonic() * 1000.0)
                circuit.succeeded()
                return BrokerStream(broker, address)
        except OSError:
            pass
        broker.close()
        return None

    async def connect(
        self,
        addresses: Callable[[], Sequence[Address]],
        user: str | None,
        ends: tuple[Endpoint, Endpoint] | None,
        is_given_up: Callable[[], bool] | None = None,
    ) -> BrokerStream:
        """To the first of `addresses` that can be had, for `user` (None: the proxy itself). They are
        asked for again in each turn, for a broker may move while it is dialled.

        `ends`: the client's and what it connected to, for the PROXY header. `is_given_up`: whether nobody
        waits for it any more. Raises NotConnected.
        """
        patience = ClientPatience(self._loop, is_given_up, self._dial_total_s)
        try:
            async with patience:
                dialled, address = await self._dial_in_turn(addresses, ends, patience)
        except TimeoutError:
            if patience.client_left:
                raise NotConnected(DisconnectCause.CLIENT_CLOSED, "before a broker was reached") from None
            waits_for = (
                patience.waits_for or f"{', '.join(map(in_text, addresses()))}: too many wait before it"
            )
            detail = f"{waits_for}; given up after {self._dial_total_s:g} s"
            raise NotConnected(DisconnectCause.UPSTREAM_UNREACHABLE, detail) from None
        return await self._log_in(dialled, address, user)

    async def _dial_in_turn(
        self,
        addresses: Callable[[], Sequence[Address]],
        ends: tuple[Endpoint, Endpoint] | None,
        patience: ClientPatience,
    ) -> tuple[Dialled, Address]:
        """Again and again while any of them is slow. Raises NotConnected when all have failed."""
        is_slow = True
        while is_slow:
            is_slow = False
            for address in addresses():
                try:
                    async with self._queue.place(address):
                        if address not in addresses():  # many were before it
                            is_slow = True
                            continue
                        dialled = await self.dial(address, ends)
                except SaysNothing as error:
                    is_slow = True
                    patience.waits_for = str(error)
                    continue
                if dialled is not None:
                    return dialled, address
        raise NotConnected(DisconnectCause.UPSTREAM_UNREACHABLE, "")  # told when its circuit opened

    async def dial(self, address: Address, ends: tuple[Endpoint, Endpoint] | None) -> Dialled | None:
        """A connection without a login, with its PROXY header and TLS; None: not tried again yet, or failed.

        At once, also where others wait. All addresses of its host share `dial_timeout_s`.
        Raises SaysNothing, NotConnected (for want of file descriptors).
        """
        circuit = self._circuits.of(address)
        if not circuit.may_dial(monotonic() * 1000.0):
            return None
        try:
            found = await self._reached(address, ends)
        except BaseException:
            circuit.abandoned()
            raise
        if isinstance(found, Fault):
            if found.is_silence:
                self._was_silent(address, found)
            else:
                self._failed(address, found)
            return None
        if circuit.succeeded():
            _log.info("upstream_reachable_again", listener=self._options.name, upstream=in_text(address))
        return found

    def gave_no_answer(self, there: SocketAddress | None) -> None:
        """A connection of the proxy's own that led `there` brought no answer: its host's others go before it.
        Never by a client's: who sends what no broker answers would choose for all others."""
        if there is None:
            return
        now_s = monotonic()
        if not self._hosts.is_doubted(there) and now_s >= self._silence_told_s + _TOLD_EVERY_S:
            self._silence_told_s = now_s
            _log.warning(
                "upstream_address_answers_nothing",
                listener=self._options.name,
                address=str(there[0]),
                reason="it took a connection of the proxy's and answered nothing; its name's others go first",
            )
        self._hosts.failed(there)

    async def _reached(self, address: Address, ends: tuple[Endpoint, Endpoint] | None) -> Dialled | Fault:
        """The first of its host's addresses with which all goes well. Else what to hold against the host: a
        silence, if there was one, for then it may only be slow; else the last error. What is wrong besides is
        told with it."""
        end_s = self._loop.time() + self.dial_timeout_s
        fault: Fault | None = None
        hosts: Sequence[Found] = literal(*address)
        if not hosts:
            try:
                async with asyncio.timeout_at(end_s):
                    hosts = await self._hosts.of(*address)
            except OSError as error:
                return Fault(error, "", False, self.dial_timeout_s)
        for number, (family, there) in enumerate(hosts):
            left_s = end_s - self._loop.time()
            if fault is not None and left_s < _NO_TIME * self.dial_timeout_s:
                break
            within_s = self._share_s(left_s, [one for _, one in hosts[number:]])
            has_connected = False
            try:
                async with asyncio.timeout(within_s):
                    broker = opened(family)
                    try:
                        if not connects_at_once(broker, there):
                            await self._loop.sock_connect(broker, there)
                            refuse_itself(broker, there)
                        has_connected = True
                        stream = await self._secured(broker, address, ends)
                    except BaseException:
                        broker.close()
                        raise
            except OSError as error:
                is_one_of_several = len(hosts) > 1
                at = str(there[0]) if is_one_of_several else ""
                found = Fault(error, at, has_connected, within_s)
                fault = found if fault is None or error.errno in OUT_OF_DESCRIPTORS else fault.and_then(found)
                if error.errno in OUT_OF_DESCRIPTORS:
                    break
                if is_one_of_several:
                    self._hosts.failed(there)
            else:
                self._hosts.served(there)
                return Dialled(stream, there if len(hosts) > 1 else None)
        assert fault is not None
        return fault

    def _share_s(self, left_s: float, still: Sequence[SocketAddress]) -> float:
        """How much of what is left of a dial's time the first of `still` has. Those in doubt come last, and
        have what is left by then: the first of them all but the least share of each other, for it may only be
        slow."""
        least_s = min(_LEAST_SHARE * self.dial_timeout_s, left_s)
        sharing = sum(not self._hosts.is_doubted(one) for one in still)
        share_s = left_s / sharing if sharing else left_s - least_s * (len(still) - 1)
        return max(share_s, least_s)

    def _failed(self, address: Address, fault: Fault) -> None:
        """It opens the circuit, or keeps it open. Raises NotConnected where it is our own fault."""
        circuit, error = self._circuits.of(address), fault.error
        words = words_of(error)
        if error.errno in OUT_OF_DESCRIPTORS:
            circuit.abandoned()
            raise NotConnected(DisconnectCause.OUT_OF_FILE_DESCRIPTORS, words)
        reason = fault.told(words)
        # A sidecar starts before its broker.
        is_early = error.errno == ECONNREFUSED and not circuit.was_reached
        cause = (error.errno or words, is_early)  # not where: it may be another of the host's each time
        if circuit.failed(monotonic() * 1000.0, random(), reason, cause):  # noqa: S311  jitter is no secret
            tell = _log.warning if is_early else _log.error
            tell(
                "upstream_unreachable",
                listener=self._options.name,
                upstream=in_text(address),
                reason=reason,
            )

    def _was_silent(self, address: Address, fault: Fault) -> None:
        """No failure: raises SaysNothing."""
        circuit = self._circuits.of(address)
        shown = f"{in_text(address)} ({fault.at})" if fault.at else in_text(address)
        if fault.has_connected:
            words = "no answer to the TLS handshake in time"
            circuit.abandoned(fault.told(words))
            raise SaysNothing(fault.with_the_other(f"{shown}: {words}"))
        reason = fault.told(f"no connection within {fault.within_s:.3g} s")
        if circuit.timed_out(monotonic() * 1000.0, random(), reason):  # noqa: S311  the same
            _log.warning(
                "upstream_accepts_slowly",
                listener=self._options.name,
                upstream=in_text(address),
                reason=f"{reason}; it is tried again, its clients wait",
            )
        raise SaysNothing(fault.with_the_other(f"{shown}: took no connection in time"))

    async def _secured(
        self, broker: socket.socket, address: Address, ends: tuple[Endpoint, Endpoint] | None
    ) -> Stream:
        """Tell for whom, and secure. If this fails `broker` is still open."""
        if self._options.upstream_proxy_protocol:
            header = LOCAL_HEADER if ends is None else build_v2(*ends)
            await send_all(self._loop, broker, header)
        if self._tls is None:
            return broker
        from sluice.proxy.listener.tls.stream import TlsStream

        name = self._tls.server_name or address[0]
        return await TlsStream.handshake(
            self._loop, broker, self._tls.context, server_side=False, server_hostname=name
        )

    async def _log_in(self, dialled: Dialled, address: Address, user: str | None) -> BrokerStream:
        """For a client that cannot do so itself, or for the proxy."""
        broker, there = dialled
        lifetime_ms = 0
        try:
            if self._credentials is not None and (user is None or self._options.logs_in):
                async with asyncio.timeout(self.dial_timeout_s):
                    lifetime_ms = await self._exchange(dialled, self.new_login(user))
        except (ProtocolError, OSError, TimeoutError, ValueError) as error:
            broker.close()
            if isinstance(error, TimeoutError):
                self._was_cut_off(dialled)
            reason = f"{in_text(address)}: {words_of(error)}"
            raise NotConnected(DisconnectCause.UPSTREAM_LOGIN_FAILED, reason) from None
        except BaseException:
            broker.close()
            raise
        return BrokerStream(broker, address, lifetime_ms, there)

    def new_login(self, user: str | None) -> UpstreamLogin:
        """One that has not begun, for `user` (None: for the proxy itself).

        Raises ValueError if there are no credentials, or the mechanism cannot carry them.
        """
        from sluice.proxy.listener.login.login import UpstreamLogin

        assert self._credentials is not None
        assert self._options.upstream_sasl is not None
        credentials = self._credentials.service if user is None else self._credentials.for_user(user)
        if credentials is None:
            raise ValueError(f"no credentials for {'the proxy itself' if user is None else repr(user)}")
        mechanism = self._options.upstream_sasl.mechanism
        return UpstreamLogin(mechanism, credentials, client_id=_CLIENT_ID, nonce=secrets.token_urlsafe(24))

    async def _exchange(self, dialled: Dialled, login: UpstreamLogin) -> int:
        """Returns the session's lifetime in ms."""
        broker = dialled.stream
        data = await self._first_answer(dialled, login.start())
        while True:
            if not data:
                raise login.broker_closed()
            pos = 0
            while pos < len(data):
                taken, reply = login.received(data, pos, len(data))
                pos += taken
                if reply:
                    await send_all(self._loop, broker, reply)
                if login.done:
                    return login.session_lifetime_ms
            data = await receive(self._loop, broker, _READ_BYTES)

    async def _first_answer(self, dialled: Dialled, asked: bytes) -> bytes:
        """Empty: the broker closed instead."""
        try:
            await send_all(self._loop, dialled.stream, asked)
            data = await receive(self._loop, dialled.stream, _READ_BYTES)
        except OSError:
            self._was_cut_off(dialled)
            raise
        if not data:
            self._was_cut_off(dialled)
        return data

    def _was_cut_off(self, dialled: Dialled) -> None:
        """Before anything was said of who logs in, or in silence."""
        self.gave_no_answer(dialled.there)
        self.cut_off.set()
