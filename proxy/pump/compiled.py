"""The session and the connection with the compiled functions in the place of their hot ones. Importing it
raises ImportError where the pump is not built."""

from __future__ import annotations

from typing import Final

from sluice.proxy.connection.connection import Connection
from sluice.proxy.connection.poller import Poller
from sluice.proxy.pump import core
from sluice.proxy.session.requests import RequestSide
from sluice.proxy.session.responses import AnswerSide
from sluice.proxy.session.session import Session
from sluice.usage.tallies import Counting

COUNTING: Final = Counting(core.count_requests, core.pack_requests)


class PumpedRequests(RequestSide):
    """A client's side whose requests are looked at by the pump first."""

    __slots__ = ()
    data = core.client_data


class PumpedAnswers(AnswerSide):
    """A broker's side, likewise."""

    __slots__ = ()
    data = core.broker_data


core.belong(PumpedRequests, PumpedAnswers)


class PumpedSession(Session):
    """A session with these two."""

    __slots__ = ()
    request_side = PumpedRequests
    answer_side = PumpedAnswers


class PumpedConnection(Connection):
    """A connection that reads and sends by the pump while nothing is kept."""

    __slots__ = ()
    _client_readable = core.client_readable
    _broker_readable = core.broker_readable


class PumpedPoller(Poller):
    """What says which of their sockets are ready; in uvloop's loop it also sleeps in the loop's place."""

    __slots__ = ("_sleep",)
    _ready = core.sockets_ready

    def _attach(self) -> None:
        self._sleep = core.sleep_for(self, self._loop)
        if self._sleep is None:
            super()._attach()

    def _detach(self) -> None:
        if self._sleep is None:
            super()._detach()
        else:
            self._sleep.close()
