"""Whether a listener's upstream can be reached, for /readyz: asked at the start, and while it cannot.

Clients' own dials tell it otherwise (circuit.py). But where a Service sends no clients to a pod that is not
ready nobody would find out that the broker is back, so the proxy dials it then: TCP alone, closed at once,
which a broker takes for a client that changed its mind.
"""

from __future__ import annotations

import asyncio
from time import monotonic
from typing import Final

from sluice.proxy.listener.circuit import Circuits
from sluice.proxy.listener.route import Route
from sluice.proxy.listener.upstream import Upstream
from sluice.proxy.runtime.log import get_logger
from sluice.proxy.session.gateway.broker_map import in_text

_INTERVAL_S: Final = 1.0
"""as long as a circuit is open at most (circuit.MAX_BACK_OFF_MS)"""

_log = get_logger()


class UpstreamWatch:
    """Of one listener."""

    def __init__(self, name: str, upstream: Upstream, route: Route, circuits: Circuits) -> None:
        """`name`: the listener's."""
        self._name = name
        self._upstream = upstream
        self._route = route
        self._circuits = circuits
        self._was_reached = False

    @property
    def problem(self) -> str:
        """Why no client should be sent to this listener; empty: nothing is known against it."""
        if not self._was_reached:
            return f"listener {self._name}: its upstream has not been reached yet"
        addresses = self._route.addresses(None, monotonic() * 1000.0)
        if any(self._circuits.of(address).is_closed for address in addresses):
            return ""
        return f"listener {self._name}: {', '.join(map(in_text, addresses))} cannot be reached"

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            if self.problem:
                addresses = self._route.addresses(None, monotonic() * 1000.0)
                if await self._upstream.can_be_reached(addresses) and not self._was_reached:
                    self._was_reached = True
                    _log.info("upstream_reached", listener=self._name)
            await asyncio.sleep(_INTERVAL_S)
