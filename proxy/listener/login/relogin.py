"""Logs the proxy in anew at the broker while a connection relays, before its session ends (KIP-368).

    due ──► suspend: no further request is begun ──► quiet: all are answered ──► login ──► resume

The broker closes a connection that sends anything between the login's frames, and one that sends anything but
a login once the session is over. Clients notice a pause of some ms.
"""

from __future__ import annotations

from asyncio import AbstractEventLoop, TimerHandle
from collections.abc import Callable
from random import random
from typing import Final
from weakref import ref

from sluice.protocol.errors import ProtocolError
from sluice.proxy.connection.connection import Connection
from sluice.proxy.listener.login.login import UpstreamLogin, reauthenticate_after_ms
from sluice.proxy.session.causes import DisconnectCause

_LOOK_AGAIN_S: Final = 0.01


class Relogin:
    """Logs in anew on one connection, which it does not keep alive; who makes it calls `end` when that has
    ended."""

    __slots__ = ("_is_suspended", "_login", "_loop", "_new_login", "_relay", "_timeout_s", "_timer")

    def __init__(
        self,
        loop: AbstractEventLoop,
        relay: Connection,
        new_login: Callable[[], UpstreamLogin],
        session_lifetime_ms: int,
        timeout_s: float,
    ) -> None:
        """`new_login`: one that has not begun, with the credentials as they are then; raises ValueError.

        `timeout_s`: for each login, from its first byte on.
        """
        self._loop = loop
        self._relay = ref(relay)
        self._new_login = new_login
        self._timeout_s = timeout_s
        self._login: UpstreamLogin | None = None
        self._is_suspended = False
        self._timer: TimerHandle | None = None
        self._schedule(session_lifetime_ms)

    def _schedule(self, session_lifetime_ms: int) -> None:
        if session_lifetime_ms > 0:
            after_ms = reauthenticate_after_ms(session_lifetime_ms, random())  # noqa: S311  no secret
            self._timer = self._loop.call_later(after_ms / 1000.0, self._due)

    def end(self) -> None:
        """Nothing more is due. Without it this would be kept until the session's end, which may be hours."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _due(self) -> None:
        relay = self._relay()
        if relay is None or relay.is_closed:
            return
        if not self._is_suspended:
            self._is_suspended = relay.session.suspend()
        if self._is_suspended and relay.is_quiet:
            self._begin(relay)
        else:
            self._timer = self._loop.call_later(_LOOK_AGAIN_S, self._due)

    def _begin(self, relay: Connection) -> None:
        try:
            self._login = self._new_login()
            relay.talk_to_broker(self._login.start(), self._answered)
            self._timer = self._loop.call_later(self._timeout_s, self._timed_out, self._login)
        except (ProtocolError, ValueError) as error:
            relay.fail(DisconnectCause.UPSTREAM_LOGIN_FAILED, str(error))

    def _timed_out(self, login: UpstreamLogin) -> None:
        relay = self._relay()
        if relay is not None and login is self._login and not relay.is_closed:
            relay.fail(DisconnectCause.UPSTREAM_LOGIN_FAILED, "timed out, within a session")

    def _answered(self, relay: Connection, data: memoryview) -> bytes | None:
        """The broker's bytes; none: it has closed. Returns what to send it; None: the relay may go on."""
        login = self._login
        assert login is not None
        if not data:
            raise login.broker_closed()
        taken, reply = login.received(data, 0, len(data))
        if not login.done:
            return reply
        if taken < len(data):
            raise ProtocolError("the broker sent more than it was asked for")
        self.end()
        self._login = None
        self._is_suspended = False
        relay.session.resume()
        self._schedule(login.session_lifetime_ms)
        return None
