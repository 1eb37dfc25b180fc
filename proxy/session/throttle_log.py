"""What the proxy does to a connection for its quotas, written down as it begins. Pure."""

from __future__ import annotations

from sluice.proxy.session.identity import Identity
from sluice.proxy.session.in_flight import InFlight
from sluice.proxy.session.producer_ids.admission import ProduceIds
from sluice.quotas.kinds import QuotaKind
from sluice.quotas.sensors.sensor import Sensor
from sluice.usage.records import EventKind, Recorder, ThrottleEvent


class ThrottleLog:
    """Writes down the throttling of one connection, in the log of all."""

    __slots__ = ("_address", "_identity", "_in_flight", "_throttles")

    def __init__(
        self, recorder: Recorder, identity: Identity, address: str, in_flight: list[InFlight]
    ) -> None:
        self._throttles = recorder.throttles
        self._identity = identity
        self._address = address
        self._in_flight = in_flight

    def add_ids(
        self, kind: EventKind, ids: ProduceIds, delay_ms: float, request_bytes: int, now_ms: float
    ) -> None:
        """Write down that a Produce waits, or is refused, for its producer ids."""
        self._throttles.append(
            ThrottleEvent(
                kind=kind,
                begun_ms=now_ms,
                delay_ms=delay_ms,
                quota=QuotaKind.PRODUCER_IDS.value,
                rule=ids.rule,
                user=self._identity.user,
                client_id=self._identity.client_id,
                api_key=ids.api_key,
                charged_bytes=request_bytes,
                address=self._address,
                reason=ids.gate.reason.value if kind is EventKind.REFUSAL else "",
                limit=ids.limit,
                charged=ids.gate.asked_ids,
                flow=self._identity.flow,
            )
        )

    def add(
        self,
        kind: EventKind,
        sensor: Sensor,
        api_key: int,
        delay_ms: float,
        charged_bytes: int,
        now_ms: float,
        charged: float = 0.0,
        reason: str = "",
        *,
        continues: bool = False,
    ) -> None:
        """A request is held, a connection muted, …; `charged`: units where they are no bytes; `reason`: of a
        refusal; `continues`: the request was held before."""
        self._throttles.append(
            ThrottleEvent(
                kind=kind,
                begun_ms=now_ms,
                delay_ms=delay_ms,
                quota=sensor.kind.value,
                rule=sensor.level.value,
                user=self._identity.user,
                client_id=self._identity.client_id,
                api_key=api_key,
                charged_bytes=charged_bytes,
                reason=reason,
                limit=sensor.limit,
                charged=charged,
                bucket=sensor.entity,
                # A Fetch is charged when its answer comes: the connection may have sent others since.
                flow=self._in_flight[0][3]
                if sensor.kind is QuotaKind.FETCH and charged_bytes
                else self._identity.flow,
                continues=continues,
            )
        )

    def note_shadow(
        self,
        sensor: Sensor,
        api_key: int,
        clears_at_ms: float,
        limit_ms: float,
        charged_bytes: int,
        now_ms: float,
    ) -> None:
        """A limit in shadow mode would have delayed this request: say by how much, and do nothing.

        The delay is what this request alone adds: what of its bytes is above the limit, in time at the limit,
        bounded as a real delay is (`limit_ms`). Then it counts as waited for (`waive`), for the client sends
        on as if there were no limit. So delays do not grow from one request to the next, and add up to how
        much longer one connection would have taken for the same requests. (Where a real limit delays several
        connections, they wait at the same time, and their delays add up to more.)
        """
        sensor.waive(now_ms)
        self.add(
            EventKind.SHADOW, sensor, api_key, min(clears_at_ms - now_ms, limit_ms), charged_bytes, now_ms
        )
