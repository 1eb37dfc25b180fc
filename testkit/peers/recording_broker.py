"""A broker's side of connections that answers as it should and notes what arrives."""

from __future__ import annotations

from time import monotonic

from testkit.frames.frames import PRODUCE
from testkit.peers.fault_broker import BrokerSide, answer_to
from testkit.peers.loop_clock import LoopClock


class Recording:
    """A broker that answers as it should and notes the correlation ids of what arrives, and when."""

    def __init__(self, clock: LoopClock | None = None) -> None:
        self.arrived: list[tuple[int, float]] = []
        self.by_clock_s: list[float] = []
        """when each arrived by `clock`, if there is one"""
        self._clock = clock

    async def __call__(self, client: BrokerSide) -> None:
        while True:
            asked = await client.request()
            self.arrived.append((asked.correlation_id, monotonic()))
            if self._clock is not None:
                self.by_clock_s.append(self._clock.now_s)
            if asked.api_key != PRODUCE or asked.acks != 0:
                await client.send(answer_to(asked))

    @property
    def ids(self) -> list[int]:
        return [correlation_id for correlation_id, _ in self.arrived]
