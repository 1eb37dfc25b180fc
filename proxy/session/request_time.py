"""request_percentage at one connection: what its requests cost the broker, charged when they are answered.

An answer is charged by the cost model (usage/request_cost.py), told in its throttle_time_ms, and followed by
a mute of at most one quota window. While the entity owes, a connection has one request at a time under way,
as in a broker: so the most that passes in a window is max(quota, connections · a request's time), KIP-124's
bound, though a client sends many requests ahead of their answers. Pure.
"""

from __future__ import annotations

from collections.abc import Callable
from math import ceil, inf
from typing import Final, TypeAlias

from sluice.protocol.apis import (
    AUTHENTICATION_APIS,
    FETCHES,
    FLEXIBLE_WHEN_REMOVED,
    PRODUCE,
    ErrorCode,
)
from sluice.protocol.codec.codec import decode_frame
from sluice.protocol.codec.error_codes import error_codes
from sluice.protocol.errors import ProtocolError
from sluice.protocol.headers import RESPONSE_HEAD_BYTES, request_body, response_body
from sluice.protocol.primitives import int16, skip_tags
from sluice.protocol.produce import ProduceUsage
from sluice.protocol.record_batch import CODEC_BITS
from sluice.protocol.throttle_field import at_fixed_offset, raise_at_fixed_offset, raise_in_whole
from sluice.proxy.session.identity import Identity
from sluice.proxy.session.in_flight import MAX_IN_FLIGHT, TOPIC_SIZES, InFlight
from sluice.proxy.session.policy import SessionPolicy, SharedState
from sluice.proxy.session.produce.one_batch import OneBatch
from sluice.proxy.session.read_gate import Pace
from sluice.quotas.kinds import QuotaKind
from sluice.quotas.sensors.sensor import Sensor
from sluice.usage.records import EventKind, Flow, Recorder, ThrottleEvent
from sluice.usage.request_cost import RequestCosts, request_cost_ms

IN_FLIGHT_WITHIN_QUOTA: Final = 6
"""Requests of a connection under way while its entity owes nothing: one more than idempotent producers have,
whose reader would else be stopped and started again for every five"""
IN_FLIGHT_IN_DEBT: Final = 1
_HEAD_BYTES: Final = 1024
_KEPT_MAX_BYTES: Final = 512 * 1024
CLUSTER_ACTION_MAX_BYTES: Final = 16 * 1024
"""Longest answer to a request between brokers that is decoded to see whether it is exempt: 10 ms. A broker
that writes the markers of a transaction to 1,000 partitions is told of them in 7 KiB."""
CLUSTER_ACTION_BRAKE_MS_PER_KIB: Final = 2.0
"""The brake behind it, for 0.65 ms are taken for each KiB: a connection has a quarter of the time"""


_Mark: TypeAlias = tuple[int, int, int, int, bool]
"""What of a Produce its answer does not tell: correlation_id, batches, records, codec, acks_all."""


class RequestTime:
    """The request time of one connection whose principal has a limit."""

    __slots__ = (
        "_address",
        "_costs",
        "_delays",
        "_identity",
        "_one_batch",
        "_pace",
        "_shared",
        "_usage",
        "marks",
        "sensor",
    )

    def __init__(
        self,
        sensor: Sensor,
        policy: SessionPolicy,
        shared: SharedState,
        pace: Pace,
        identity: Identity,
        address: str,
    ) -> None:
        self._costs = policy.request_costs
        self._delays = policy.delays
        self._shared = shared
        self._pace = pace
        self._identity = identity
        self._address = address
        self._usage = ProduceUsage()
        self._one_batch = OneBatch()
        self.marks: list[_Mark] = []
        """of the Produces under way, in order"""
        self.sensor = sensor
        """whose limit it is; exempt: measured only"""

    def use(self, sensor: Sensor, now_ms: float) -> None:
        """The limit in force for the next requests."""
        self.sensor = sensor
        self._set_in_flight(in_debt=not sensor.shadow and sensor.tokens(now_ms) < 0.0)

    def greet(self, now_ms: float) -> float:
        """The first request of a connection in this bucket waits for what is owed there, for one window at
        most: to connect anew clears no debt (wire-semantics 1.6). Returns the wait in ms."""
        sensor = self.sensor
        wait_ms = 0.0 if sensor.shadow else min(sensor.owed_ms(now_ms), self._delays.request_max_ms)
        if wait_ms > 0.0:
            self._pace.mute(now_ms + wait_ms, now_ms, QuotaKind.REQUEST, at_boundary=True)
        return wait_ms

    def dropped(self) -> None:
        """There is no limit any more."""
        self._pace.max_in_flight = MAX_IN_FLIGHT

    def note(
        self,
        buf: bytearray,
        client_id_end: int,
        end: int,
        frame_end: int,
        version: int,
        correlation_id: int,
        acks: int,
    ) -> bool:
        """A Produce is about to go on that will be answered. False: not all heads of its batches have
        arrived, by which it is charged.

        Raises MalformedFrame for one that contradicts itself, or has too many parts: the broker may read it
        all the same.
        """
        found = self._one_batch.records_and_codec(
            buf, client_id_end, end if end < frame_end else frame_end, frame_end, version
        )
        if found is not None:
            self.marks.append((correlation_id, 1, *found, acks != 1))
            return True
        usage = self._usage
        body = request_body(buf, client_id_end, min(end, frame_end), PRODUCE, version)
        usage.read(buf, body, end, frame_end, version)
        if not usage.heads_read:
            return False
        records = sum(batch[7] for batch in usage.batches if batch[7] > 0)
        codec = max(usage.codecs.bit_length() - 1, 0)
        if usage.codecs != 1 << codec and usage.codecs:
            codec = self._dearest_codec(usage, frame_end - client_id_end, version, records, acks != 1)
        self._one_batch.walked(buf, client_id_end, version, usage)
        self.marks.append((correlation_id, len(usage.batches), records, codec, acks != 1))
        usage.batches.clear()  # thousands would stay with the connection
        return True

    def _dearest_codec(
        self, usage: ProduceUsage, request_bytes: int, version: int, records: int, acks_all: bool
    ) -> int:
        """The whole request counts as those of its batches whose compression costs most, or a tiny one would
        make the others cheap."""

        def cost_ms(codec: int) -> float:
            coefficients = self._costs.of(PRODUCE, version, codec, acks_all)
            return request_cost_ms(coefficients, request_bytes, 0, inf, len(usage.batches), records)

        return max((codec for codec in range(CODEC_BITS + 1) if usage.codecs >> codec & 1), key=cost_ms)

    def take_back(self, correlation_id: int) -> None:
        """The Produce that was noted last does not go on, if it is this one."""
        if self.marks and self.marks[-1][0] == correlation_id:
            self.marks.pop()

    @staticmethod
    def can_tell(pos: int, end: int, frame_end: int, api_key: int, version: int) -> bool:
        """Has enough of an answer arrived to write into it? One too large to keep goes on as it is."""
        if end >= frame_end or frame_end - pos > _KEPT_MAX_BYTES:
            return True
        return end - pos >= _HEAD_BYTES and at_fixed_offset(api_key, version) is not None

    def charge(
        self,
        buf: bytearray,
        pos: int,
        end: int,
        frame_end: int,
        entry: InFlight,
        delay_limit_ms: Callable[[int], float],
        now_ms: float,
        *,
        at_boundary: bool,
    ) -> None:
        """The answer to `entry`, `buf[pos:frame_end]`, of which all before `end` has arrived, goes on.

        `delay_limit_ms`: by API key, the longest that the connection may be delayed in all. Raises
        MalformedFrame for an answer without room for what it must have.
        """
        correlation_id, api_key, version, flow, request_bytes, forwarded_ms, _, _, _, _ = entry
        batches = records = codec = 0
        acks_all = False
        if api_key == PRODUCE:
            marks = self.marks
            mark = marks.pop(0) if marks and marks[0][0] == correlation_id else None
            _, batches, records, codec, acks_all = mark or self._take_mark(correlation_id)
        elif api_key in AUTHENTICATION_APIS and _is_fine(buf, pos, min(end, frame_end), api_key, version):
            return  # a login that the broker took for one, on its network threads
        coefficients = self._costs.of(api_key, version, codec, acks_all)
        upstream_ms = now_ms - forwarded_ms
        cost_ms = request_cost_ms(coefficients, request_bytes, frame_end - pos, upstream_ms, batches, records)
        sensor: Sensor | None = self.sensor
        client_id = flow.client_id
        if client_id != self._identity.client_id:
            sensor = self._shared.quotas.sensor(
                QuotaKind.REQUEST, self._identity.user, client_id, now_ms, self._address
            )
            if sensor is None:
                return
        assert sensor is not None
        clears_at_ms = sensor.charge(cost_ms, now_ms)
        if sensor.exempt:
            self._shared.recorder.exempt_request_ms["rule"] += cost_ms
            return
        if entry[9] is TOPIC_SIZES:  # the debt is sat out once, behind the request that it is for
            return
        if clears_at_ms <= now_ms:
            if self._pace.max_in_flight == IN_FLIGHT_IN_DEBT:
                self._set_in_flight(in_debt=False)
            return
        last_ms = self._pace.latest_ms(delay_limit_ms(api_key), now_ms)
        told_ms = self._owe(sensor, api_key, flow, clears_at_ms, cost_ms, last_ms, now_ms, at_boundary)
        if told_ms > 0.0:
            _tell(buf, pos, end, frame_end, api_key, version, ceil(told_ms))

    def _owe(
        self, sensor: Sensor, api_key: int, flow: Flow, clears_at_ms: float, cost_ms: float,
        last_ms: float, now_ms: float, at_boundary: bool,
    ) -> float:  # fmt: skip
        """The entity is in debt: mute the connection. Returns the delay in ms that its answer tells, or 0."""
        window_ms = self._delays.request_max_ms
        if sensor.shadow:
            sensor.waive(now_ms)
            delay_ms = min(clears_at_ms - now_ms, window_ms)
            self._event(EventKind.SHADOW, sensor, api_key, delay_ms, cost_ms, flow, now_ms)
            return 0.0
        self._set_in_flight(in_debt=True)
        pace = self._pace
        until_ms = min(clears_at_ms, now_ms + window_ms, last_ms)
        if until_ms <= now_ms:
            return 0.0
        if until_ms > pace.muted_until_ms:  # else another quota's delay is the larger one, and it counts
            self._event(EventKind.MUTE, sensor, api_key, until_ms - now_ms, cost_ms, flow, now_ms)
            pace.mute(until_ms, now_ms, QuotaKind.REQUEST, at_boundary=at_boundary)
        told_ms = until_ms - now_ms
        return min(told_ms, self._delays.written_fetch_throttle_max_ms) if api_key in FETCHES else told_ms

    def _take_mark(self, correlation_id: int) -> _Mark:
        """The mark of the answered Produce: the first, unless it went on before there was a limit."""
        marks = self.marks
        for index, mark in enumerate(marks):
            if mark[0] == correlation_id:
                del marks[: index + 1]
                return mark
        return (correlation_id, 1, 1, 0, False)

    def _set_in_flight(self, *, in_debt: bool) -> None:
        """In shadow mode, and for whom an exempt rule covers, as without a limit."""
        if self.sensor.shadow:
            self._pace.max_in_flight = MAX_IN_FLIGHT
        else:
            self._pace.max_in_flight = IN_FLIGHT_IN_DEBT if in_debt else IN_FLIGHT_WITHIN_QUOTA

    def _event(
        self,
        kind: EventKind,
        sensor: Sensor,
        api_key: int,
        delay_ms: float,
        cost_ms: float,
        flow: Flow,
        now_ms: float,
    ) -> None:
        self._shared.recorder.throttles.append(
            ThrottleEvent(
                kind=kind,
                begun_ms=now_ms,
                delay_ms=delay_ms,
                quota=sensor.kind.value,
                rule=sensor.level.value,
                user=self._identity.user,
                client_id=flow.client_id,
                api_key=api_key,
                charged_bytes=0,
                limit=sensor.limit,
                charged=cost_ms,
                bucket=sensor.entity,
                flow=flow,
            )
        )


def count_cluster_action(
    costs: RequestCosts, recorder: Recorder, entry: InFlight, response_bytes: int, now_ms: float
) -> None:
    """A request between brokers was answered: its time is measured, and limited by nobody's quota."""
    _, api_key, version, _, request_bytes, forwarded_ms, *_ = entry
    recorder.exempt_request_ms["cluster_action"] += request_cost_ms(
        costs.of(api_key, version), request_bytes, response_bytes, now_ms - forwarded_ms
    )


def has_taken(buf: bytearray, pos: int, frame_end: int, api_key: int, version: int) -> bool:
    """Did the broker take who sent this request for a broker? By its answer `buf[pos:frame_end]`, which
    decides by what it says: one without any error code, or that cannot be read, says nothing for him."""
    try:
        if api_key in FLEXIBLE_WHEN_REMOVED:
            body = pos + RESPONSE_HEAD_BYTES
            if version >= FLEXIBLE_WHEN_REMOVED[api_key]:
                body = skip_tags(buf, body, frame_end)
            return int16(buf, body, frame_end)[0] != ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        frame = decode_frame("response", api_key, version, bytes(buf[pos + 4 : frame_end]))
    except ProtocolError:
        return False
    codes = set(error_codes(frame.body))
    return bool(codes) and ErrorCode.CLUSTER_AUTHORIZATION_FAILED not in codes


def _is_fine(buf: bytearray, pos: int, end: int, api_key: int, version: int) -> bool:
    """Error code 0, with which the answer to SaslHandshake and SaslAuthenticate begins."""
    body = response_body(buf, pos, end, api_key, version)
    return buf[body : min(body + 2, end)] == b"\0\0"


def _tell(
    buf: bytearray, pos: int, end: int, frame_end: int, api_key: int, version: int, throttle_ms: int
) -> None:
    """max(the broker's, ours) as throttle_time_ms, if the answer has it and it has arrived."""
    if end >= frame_end:
        raise_in_whole(buf, pos, frame_end, api_key, version, throttle_ms)
    else:
        raise_at_fixed_offset(buf, pos, end, api_key, version, throttle_ms)
