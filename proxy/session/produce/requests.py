"""The Produce requests of a connection: ids and bytes judged; forwarded, held, refused or left behind. Pure.

The half of RequestSide (requests.py) that is about Produce; the other half finds the frames and calls it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Final

from sluice.protocol.addresses.addresses import Edit
from sluice.protocol.apis import OFFERED, PRODUCE, ErrorCode
from sluice.protocol.errors import MalformedFrame, UnsupportedVersion
from sluice.protocol.headers import REQUEST_HEAD_BYTES, request_body
from sluice.protocol.produce import FIRST_FLEXIBLE, read_acks
from sluice.protocol.produce_refusal import refuse_produce
from sluice.protocol.record_batch import CODEC_BITS, MAGIC
from sluice.proxy.session.causes import DisconnectCause
from sluice.proxy.session.identity import Identity
from sluice.proxy.session.in_flight import ADDRESSES, LOCAL, NONE, THROTTLE, Held, InFlight
from sluice.proxy.session.local_responses import LocalAnswers
from sluice.proxy.session.policy import SessionPolicy, SharedState
from sluice.proxy.session.produce.header_prediction import LENGTHS_2, MAX_2, MIN_2
from sluice.proxy.session.producer_ids.verdict import Verdict
from sluice.proxy.session.read_gate import Pace
from sluice.proxy.session.throttling import Throttling
from sluice.proxy.session.topic_attribution import UNKNOWN_HEAD, Flows, KnownBegin
from sluice.quotas.sensors.sensor import Sensor
from sluice.usage.flow import REFUSED, AccessFlow

HEAD_ENOUGH_BYTES: Final = 128 * 1024
"""What a request may need to be judged: client, transactional, group and member ids, of 32 KiB at most."""
_PRODUCE_MIN, _PRODUCE_MAX = OFFERED[PRODUCE]
_NONE_BEGINS_SO: Final = ()  # the next Produce is to be looked at, whatever its bytes
_PASS: Final = Verdict.PASS
_ADMIT: Final = Verdict.ADMIT


class ProduceSide(ABC):
    """The Produces of one connection. The parts that it is given are shared with the session's other side."""

    __slots__ = (
        "_amounts", "_client_id_raw", "_dropping", "_flows", "_identity", "_in_flight", "_local", "_pace",
        "_paid_work", "_produce_acks", "_produce_begin", "_produce_flow", "_produce_head_bytes",
        "_produce_version", "_records", "_skip", "_start", "_throttling", "bytes_read", "client_left",
        "count", "dropped_bytes", "edits", "has_unacknowledged",
    )  # fmt: skip

    def __init__(
        self,
        shared: SharedState,
        policy: SessionPolicy,
        pace: Pace,
        identity: Identity,
        throttling: Throttling,
        in_flight: list[InFlight],
        local: LocalAnswers,
        flows: Flows | None,
    ) -> None:
        """`flows`: None without an access log."""
        self._flows = flows
        self._client_id_raw = b""
        # A Produce that begins so needs no further look for whose it is; with an access log, of what topic.
        # None: it is _produce that looks.
        self._produce_begin: bytes | tuple[()] | None = b""
        # What is behind the client id of that, to the topic's end; None: without an access log.
        self._produce_head_bytes = None if flows is None else UNKNOWN_HEAD
        # As KnownBegin says.
        self._produce_flow = identity.flow
        self._produce_version = -1
        self._produce_acks = 0
        self._amounts = shared.recorder.amounts
        self._records = shared.recorder.requests
        self._pace = pace
        self._identity = identity
        self._throttling = throttling
        self._in_flight = in_flight
        self._local = local
        # What the answer to a Produce needs that owes nothing: in a gateway it may name brokers.
        self._paid_work = NONE if policy.broker_map is None else ADDRESSES
        self._skip = 0  # bytes of a frame that is judged and still arrives
        self._dropping = False  # these do not go on
        self.edits: list[Edit] = []
        """left by `data` for its caller: (start, stop, b""), requests that do not go to the broker"""
        self.client_left = False
        """the client closed its side while it was held or muted"""
        self.count = 0
        """requests judged and forwarded"""
        self.has_unacknowledged = False
        """among them some with acks = 0"""
        self.bytes_read = 0
        self.dropped_bytes = 0
        """of requests that did not go on"""
        self._start = 0  # where what `data` was given begins

    # Whole on purpose: every Produce comes through here, and a call more is a twentieth of what one costs.
    def _produce(
        self, buf: bytearray, pos: int, end: int, frame_end: int, api_key: int, version: int,
        correlation_id: int, client_id_end: int, now_ms: float,
    ) -> bool:  # fmt: skip
        """Charge a Produce; forward or hold it. False: not judged yet, held, or refused."""
        if not _PRODUCE_MIN <= version <= _PRODUCE_MAX:
            raise UnsupportedVersion("this version would go unmetered")
        identity, throttling, is_head_known = self._identity, self._throttling, False
        if self._produce_head_bytes is not None:
            if client_id_end + self._produce_head_bytes <= (end if end < frame_end else frame_end):
                identity.flow = self._produce_flow
                is_head_known = version == self._produce_version
            elif not self._find_topic(buf, pos, end, frame_end, client_id_end, version):
                return False
        known = throttling.known
        fits, magic, codec, records = False, 0, 0, 0
        if (
            now_ms < known.until_ms and version == known.version and not known.gates
            and (frame_end <= end or pos + known.enough_bytes <= end)
        ):  # fmt: skip
            # KnownProduce's commonest case stands here, for the same reason.
            batch_bytes = frame_end - pos - known.less_bytes
            if MIN_2 <= batch_bytes <= MAX_2:
                head, length, batch_length, magic, codec, producer_id, records = known.unpack(buf, pos)
                fits = (
                    producer_id == known.producer_id and batch_length == batch_bytes
                    and length == LENGTHS_2[batch_bytes] and (head == known.head or head in known.heads)
                )  # fmt: skip
            else:
                fits = known.fits_other(buf, pos, frame_end)
        if fits:
            acks = known.acks
        elif throttling.ids is None and is_head_known:
            acks = self._produce_acks
        elif (
            throttling.ids is None and version >= FIRST_FLEXIBLE
            and client_id_end + 4 <= (end if end < frame_end else frame_end)
            and not (buf[client_id_end] or buf[client_id_end + 1])
        ):  # fmt: skip
            acks = buf[client_id_end + 2] << 8 | buf[client_id_end + 3]  # no header tags, no transaction
        else:
            return self._judge_anew(buf, pos, end, frame_end, version, correlation_id, client_id_end, now_ms)
        request_bytes = frame_end - pos
        if self.client_left and self._is_left_behind(request_bytes):
            return False
        if (request_time := throttling.request_time) is not None and acks:
            if fits and magic == MAGIC and records >= 0:  # of its one batch all is read that is charged by
                request_time.marks.append((correlation_id, 1, records, codec & CODEC_BITS, acks != 1))
            elif not request_time.note(buf, client_id_end, end, frame_end, version, correlation_id, acks):
                return False
        sensor = throttling.produce_sensor
        clears_at_ms = 0.0 if sensor is None else sensor.charge(request_bytes, now_ms)
        if clears_at_ms > now_ms or not acks or (sensor is not None and sensor.held):
            return self._go_on(pos, correlation_id, version, request_bytes, acks, clears_at_ms, now_ms)
        self._in_flight.append((
            correlation_id, PRODUCE, version, identity.flow, request_bytes,
            now_ms, 0.0, clears_at_ms, sensor, self._paid_work,
        ))  # fmt: skip
        return True

    def _judge_anew(
        self, buf: bytearray, pos: int, end: int, frame_end: int, version: int,
        correlation_id: int, client_id_end: int, now_ms: float,
    ) -> bool:  # fmt: skip
        """A Produce that is not like the last ones: read its acks, and ask for its producer ids."""
        if self._produce_begin is None and self._waits_as_another(buf, pos, client_id_end, now_ms):
            return False
        throttling = self._throttling
        ids = throttling.ids
        limit = end if end < frame_end else frame_end
        body = request_body(buf, client_id_end, limit, PRODUCE, version)
        acks = read_acks(buf, body, limit, version)
        if acks is None:
            if frame_end <= end or end - pos > HEAD_ENOUGH_BYTES:
                raise MalformedFrame("Produce request without acks", offset=body)
            return False
        request_bytes = frame_end - pos
        held_ms, brings_ids = 0.0, False
        request_time = throttling.request_time if acks else None
        if request_time is not None and not request_time.note(
            buf, client_id_end, end, frame_end, version, correlation_id, acks
        ):
            return False
        if ids is not None:
            deadline_ms = now_ms + throttling.id_limit_ms
            verdict = ids.judge(buf, pos, body, end, frame_end, version, acks, now_ms, deadline_ms)
            if verdict is not _PASS and verdict is not _ADMIT:
                if request_time is not None:
                    request_time.take_back(correlation_id)
                return self._stop(buf, pos, body, limit, frame_end, version, correlation_id, now_ms, verdict)
            brings_ids = verdict is _ADMIT
            if brings_ids and not ids.gates_only:
                self._mark("producer_id")
            held_ms = ids.take_held_ms(now_ms)
        if self.client_left and self._is_left_behind(request_bytes):  # once: it may have waited for its ids
            return False
        sensor = throttling.produce_sensor
        clears_at_ms = 0.0 if sensor is None else sensor.charge(request_bytes, now_ms)
        goes = self._go_on(
            pos, correlation_id, version, request_bytes, acks, clears_at_ms, now_ms, held_ms,
            brings_ids=brings_ids,
        )  # fmt: skip
        if ids is not None:
            throttling.produces.held = ids.held_for_bytes(throttling.produces.held, now_ms)
        return goes

    def _go_on(
        self, pos: int, correlation_id: int, version: int, request_bytes: int, acks: int, clears_at_ms: float,
        now_ms: float, held_ms: float = 0.0, *, brings_ids: bool = False,
    ) -> bool:  # fmt: skip
        """A Produce that was charged: forward it, or hold it until its turn (False)."""
        throttling = self._throttling
        sensor = throttling.produce_sensor
        if sensor is not None and (clears_at_ms > now_ms or sensor.held):
            begin = self.bytes_read + self.dropped_bytes + pos - self._start
            eligible_at_ms, clears_at_ms = throttling.produces.owe(
                sensor, clears_at_ms, request_bytes, acks, now_ms, held_ms, begin,
                is_group=throttling.is_group,
            )  # fmt: skip
            if eligible_at_ms > now_ms:
                begun_ms = max(now_ms - held_ms, throttling.produces.paid_at_ms)
                throttling.produces.held = Held(
                    correlation_id, version, request_bytes, acks, begun_ms, clears_at_ms, sensor, brings_ids
                )
                return False
        if brings_ids:
            self._bring_ids(now_ms)
        if acks == 0:
            self._finished_without_answer(version, request_bytes, held_ms, clears_at_ms, sensor, now_ms)
        else:
            work = THROTTLE if clears_at_ms > now_ms else self._paid_work
            self._in_flight.append((
                correlation_id, PRODUCE, version, self._identity.flow, request_bytes,
                now_ms, held_ms, clears_at_ms, sensor, work,
            ))  # fmt: skip
        return True

    def pass_unacknowledged(self, version: int, request_bytes: int, now_ms: float) -> None:
        """It goes at once, with acks = 0: the connection ends. Its bytes count; throttled it is not."""
        sensor = self._throttling.produce_sensor
        clears_at_ms = 0.0 if sensor is None else sensor.charge(request_bytes, now_ms)
        if sensor is not None and clears_at_ms > now_ms:
            sensor.count_over(request_bytes, clears_at_ms)
        self._finished_without_answer(version, request_bytes, 0.0, now_ms, sensor, now_ms)

    def _is_left_behind(self, request_bytes: int) -> bool:
        """The client is gone, its request has acks = 0: True if that does not go on, and so ends the
        connection."""
        if self._throttling.produces.outlives_its_client(0, request_bytes):
            self._throttling.produces.is_for_nobody = True
            return False
        self.leave_behind(request_bytes)
        return True

    def _find_topic(
        self, buf: bytearray, pos: int, end: int, frame_end: int, start: int, version: int
    ) -> bool:
        """The access log's: of which topic is a Produce that begins otherwise than the last? False: what
        tells it has not arrived."""
        flows = self._flows
        assert flows is not None
        known = flows.read_produce(buf, pos + REQUEST_HEAD_BYTES, start, min(end, frame_end), version)
        if known is not None:
            self._use_begin(known)
            self._identity.flow = known.flow
        elif frame_end > end and end - pos <= HEAD_ENOUGH_BYTES:
            return False
        else:
            self._identity.flow = flows.other(PRODUCE)
        return True

    def _use_begin(self, known: KnownBegin) -> None:
        (
            self._produce_begin, self._produce_head_bytes, self._produce_flow, self._produce_version,
            self._produce_acks,
        ) = known  # fmt: skip

    def _forget_head(self) -> None:
        """Whose the next Produce is is told by its client id; with an access log its topic is looked for."""
        self._produce_begin = _NONE_BEGINS_SO if self._throttling.are_ids_due else self._client_id_raw
        if self._flows is not None:
            self._produce_head_bytes = UNKNOWN_HEAD
        elif self._throttling.ids is not None:
            self._produce_begin = None  # what KnownProduce compares begins with the client id

    def _waits_as_another(self, buf: bytearray, pos: int, client_id_end: int, now_ms: float) -> bool:
        """Look for a new client id in a Produce that fits no template, if it is as long as the last one."""
        begin = pos + REQUEST_HEAD_BYTES
        return not buf.startswith(self._client_id_raw, begin) and self._begins_otherwise(
            buf, pos, client_id_end, client_id_end - begin, PRODUCE, now_ms
        )

    @abstractmethod
    def _begins_otherwise(
        self, buf: bytearray, pos: int, client_id_end: int, id_length: int, api_key: int, now_ms: float
    ) -> bool:
        """What RequestSide has looked up for this client id, this user and these quotas is to be anew."""

    def _mark(self, why: str) -> None:
        """The request at hand gets a row of its own in the access log."""
        flow = self._identity.flow
        if isinstance(flow, AccessFlow):
            self._identity.flow = flow.marked(why)

    def _bring_ids(self, now_ms: float) -> None:
        """The request goes whose producer ids were admitted."""
        ids = self._throttling.ids
        assert ids is not None  # they are looked up anew when the next request is judged, not while one waits
        if self._flows is None:
            ids.gate.forwarded(now_ms)
        else:
            self._amounts += ids.forwarded(self._identity.flow, now_ms)

    def _stop(
        self, buf: bytearray, pos: int, body: int, limit: int, frame_end: int, version: int, correlation_id:
        int, now_ms: float, verdict: Verdict | None,
    ) -> bool:  # fmt: skip
        """A Produce does not go on for its producer ids: not yet, or never. True: it is answered here."""
        throttling, identity = self._throttling, self._identity
        ids = throttling.ids
        assert ids is not None
        request_bytes = frame_end - pos
        if verdict is None:  # more of it must come first, or its turn
            return False
        if verdict is Verdict.HOLD:
            ids.request_bytes = request_bytes
            throttling.hold_for_ids(ids, request_bytes, now_ms)
            return False
        self._mark(REFUSED)
        held_ms, throttle_ms, message, sensor = throttling.refused_produce(ids, request_bytes, now_ms)
        if verdict is Verdict.CLOSE:
            self._pace.end(DisconnectCause.PRODUCER_ID_REFUSED, message, at_boundary=True)
            return False
        answer = refuse_produce(
            buf, body, limit, version, correlation_id,
            error_code=ErrorCode.NOT_ENOUGH_REPLICAS, message=message, throttle_ms=throttle_ms,
        )  # fmt: skip
        self._local.add(answer, self._in_flight, (
            correlation_id, PRODUCE, version, identity.flow, request_bytes,
            now_ms, held_ms, 0.0, None, LOCAL,
        ))  # fmt: skip
        self._records.append((
            identity.flow, request_bytes, len(answer), 0.0, held_ms, held_ms, now_ms,
            PRODUCE, version, identity.user, sensor,
        ))  # fmt: skip
        self._drop_frame(pos, min(frame_end, limit), frame_end)
        return True

    def _drop_frame(self, pos: int, arrived_end: int, frame_end: int) -> None:
        """This request does not go on, nor what still arrives of it."""
        self._drop(pos, arrived_end)
        self._dropping = frame_end > arrived_end

    def _drop(self, start: int, stop: int) -> None:
        """These bytes are done with, and do not go on."""
        self.edits.append((start, stop, b""))
        self.bytes_read -= stop - start
        self.dropped_bytes += stop - start

    def release(self, held: Held, now_ms: float) -> None:
        """A held Produce goes: its bytes, and what still arrives of them, pass without a second look."""
        if held.brings_ids:
            self._bring_ids(now_ms)
        clears_at_ms = held.clears_at_ms
        held_ms = max(now_ms - held.begun_ms, 0.0)
        version, request_bytes, sensor = held.api_version, held.request_bytes, held.sensor
        if held.acks == 0:
            self._finished_without_answer(version, request_bytes, held_ms, clears_at_ms, sensor, now_ms)
        else:
            self._in_flight.append((
                held.correlation_id, PRODUCE, version, self._identity.flow, request_bytes,
                now_ms, held_ms, clears_at_ms, sensor, THROTTLE,
            ))  # fmt: skip
        self.pass_on(request_bytes, is_answered=held.acks != 0)

    def pass_on(self, request_bytes: int, *, is_answered: bool) -> None:
        """A request that was held and judged goes: so many bytes pass without a second look. `is_answered`:
        it is in flight now, and behind it there may be too much."""
        self._skip = request_bytes
        self.count += 1
        if is_answered and len(self._in_flight) >= self._pace.max_in_flight:
            self._pace.fill()

    def _finished_without_answer(
        self,
        version: int,
        request_bytes: int,
        held_ms: float,
        clears_at_ms: float,
        sensor: Sensor | None,
        now_ms: float,
    ) -> None:
        self.has_unacknowledged = True
        identity = self._identity
        throttle_ms = held_ms + max(clears_at_ms - now_ms, 0.0)
        self._records.append((
            identity.flow, request_bytes, 0, 0.0, throttle_ms, held_ms, now_ms,
            PRODUCE, version, identity.user, sensor,
        ))  # fmt: skip

    def leave_behind(self, request_bytes: int) -> None:
        """End the connection over a request with acks = 0 that does not outlive its client."""
        detail = f"a Produce of {request_bytes} bytes not forwarded"
        self._pace.end(DisconnectCause.UNFINISHED_BYTES_OVER_CAP, detail, at_boundary=True)
