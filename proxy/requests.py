"""The client's side of a session: its bytes → requests judged, charged, remembered; how many may go on.

Works in place on the caller's buffer, for it lies on the way of every byte: frames are found, charged,
patched and left where they are, and no object is made per frame but the tuple that remembers it. Pure.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from sluice.protocol._tables import VERSIONS
from sluice.protocol.errors import MalformedFrame, ProtocolError, UnsupportedVersion
from sluice.protocol.fetch import lower_max_bytes, max_bytes_offset
from sluice.protocol.headers import (
    API_VERSIONS,
    FETCH,
    JOIN_GROUP,
    MIN_REQUEST_SIZE,
    PRODUCE,
    REQUEST_HEAD,
    REQUEST_HEAD_BYTES,
    SHARE_FETCH,
    SIZE_BYTES,
    check_size,
    request_body,
)
from sluice.protocol.produce import FIRST_FLEXIBLE, read_acks
from sluice.proxy.authentication import AUTHENTICATION_APIS, Authentication
from sluice.proxy.causes import DisconnectCause
from sluice.proxy.errors import NotAuthenticated
from sluice.proxy.identity import Identity
from sluice.proxy.in_flight import ADDRESSES, CHARGE, MAX_IN_FLIGHT, NONE, THROTTLE, Held, InFlight
from sluice.proxy.other_requests import OtherRequests
from sluice.proxy.pace import Pace
from sluice.proxy.policy import SessionPolicy, SharedState
from sluice.proxy.throttling import Throttling
from sluice.quotas.sensor import Sensor

_PRODUCE_MIN, _PRODUCE_MAX = VERSIONS[PRODUCE]
_JOIN_GROUP_MAX = VERSIONS[JOIN_GROUP][1]
_FETCHES: Final = frozenset({FETCH, SHARE_FETCH})
_BEFORE_AUTHENTICATION: Final = AUTHENTICATION_APIS | {API_VERSIONS}
_UNKNOWN_LENGTH: Final = -2  # no client id has this length, so the first request is looked up
_HEAD_ENOUGH_BYTES: Final = 128 * 1024
"""What a request may need to be judged: client, transactional, group and member ids, of 32 KiB at most."""


class RequestSide:
    """Of one connection. The parts that it is given are shared with the session's other side."""

    __slots__ = (
        "_client_id_length",
        "_client_id_raw",
        "_frame_limit",
        "_identity",
        "_in_flight",
        "_others",
        "_pace",
        "_paid_work",
        "_policy",
        "_quotas",
        "_records",
        "_skip",
        "_throttling",
        "bytes_read",
        "client_left",
        "count",
        "raw_tokens",
    )

    def __init__(
        self,
        shared: SharedState,
        policy: SessionPolicy,
        pace: Pace,
        identity: Identity,
        authentication: Authentication,
        throttling: Throttling,
        in_flight: deque[InFlight],
    ) -> None:
        self._quotas = shared.quotas
        self._records = shared.recorder.requests
        self._policy = policy
        self._pace = pace
        self._identity = identity
        self._throttling = throttling
        self._in_flight = in_flight
        self._others = OtherRequests(policy, pace, identity, authentication, throttling, in_flight)
        # What the answer to a Produce needs that owes nothing: in a gateway it may name brokers.
        self._paid_work = NONE if policy.broker_map is None else ADDRESSES
        self._client_id_length = _UNKNOWN_LENGTH
        self._client_id_raw = b""
        self._frame_limit = policy.frame_limit(authenticated=identity.authenticated)
        self._skip = 0  # bytes of a frame that is judged and still arrives
        self.client_left = False
        """the client closed its side while it was held or muted"""
        self.raw_tokens = False
        """the next frames are bare tokens (SaslHandshake v0)"""
        self.count = 0
        """requests judged and forwarded"""
        self.bytes_read = 0

    @property
    def at_boundary(self) -> bool:
        """No frame is half read."""
        return not self._skip

    def lift_frame_limit(self) -> None:
        """The broker said yes."""
        self._frame_limit = self._policy.max_frame_bytes

    def data(self, buf: bytearray, start: int, end: int, now_ms: float) -> int:
        """Scan `buf[start:end]`, which begins where the last call left off; may patch it in place.

        Returns the offset up to which the bytes go to the broker now. The rest is to be kept, and given again
        with what follows it: a frame not yet judged, or what must wait while the state is not READING.
        """
        pos = start
        skip = self._skip
        if skip:
            if skip > end - start:
                self._skip = skip - (end - start)
                self.bytes_read += end - start
                return end
            self._skip = 0
            pos += skip
        pace = self._pace
        throttling = self._throttling
        in_flight = self._in_flight
        try:
            while True:
                if pace.gate_ms > now_ms:
                    pace.meet_gate()
                    break
                if end - pos < REQUEST_HEAD_BYTES or self.raw_tokens:
                    if end - pos < SIZE_BYTES:
                        break
                    if self.raw_tokens:
                        frame_end = self._others.raw_token(buf, pos, end, now_ms)
                        if frame_end > end:
                            break
                        pos = frame_end
                        continue
                    check_size(buf, pos, end, self._frame_limit)
                    break
                size, api_key, version, correlation_id, id_length = REQUEST_HEAD.unpack_from(buf, pos)
                if not MIN_REQUEST_SIZE <= size <= self._frame_limit:
                    check_size(buf, pos, end, self._frame_limit)
                frame_end = pos + SIZE_BYTES + size
                client_id_end = pos + REQUEST_HEAD_BYTES + (id_length if id_length > 0 else 0)
                if client_id_end > end or client_id_end > frame_end:
                    if client_id_end > frame_end:
                        reason = f"client id of {id_length} bytes"
                        raise MalformedFrame(reason, api_key=api_key, api_version=version, offset=pos + 12)
                    break
                if api_key == PRODUCE:
                    judge = self._produce
                elif api_key in _FETCHES:
                    judge = self._fetch
                else:
                    judge = self._others.judge
                try:
                    if (
                        id_length != self._client_id_length
                        or throttling.generation != self._quotas.generation
                        or not buf.startswith(self._client_id_raw, pos + REQUEST_HEAD_BYTES)
                    ):
                        self._identify(buf, pos, client_id_end, id_length, api_key, now_ms)
                    if not judge(
                        buf, pos, end, frame_end, api_key, version, correlation_id, client_id_end, now_ms
                    ):
                        break
                except ProtocolError as error:
                    # What looks malformed may only be cut off by what has arrived.
                    if isinstance(error, MalformedFrame) and end < min(frame_end, pos + _HEAD_ENOUGH_BYTES):
                        break
                    error.api_key = api_key
                    error.api_version = version
                    raise
                self.count += 1
                if len(in_flight) >= MAX_IN_FLIGHT:
                    pace.fill()
                if frame_end > end:
                    self._skip = frame_end - end
                    pos = end
                    break
                pos = frame_end
        except ProtocolError as error:
            if error.offset is not None:
                error.offset -= pos
            pace.end(DisconnectCause(error.cause), str(error), at_boundary=True)
        self.bytes_read += pos - start
        return pos

    def _identify(
        self, buf: bytearray, pos: int, client_id_end: int, id_length: int, api_key: int, now_ms: float
    ) -> None:
        """The client id, the user or the quotas are new: whose sensors are charged from now on?

        Comes for every request until the broker has said yes, for until then no generation is the current
        one.
        """
        raw = bytes(buf[pos + REQUEST_HEAD_BYTES : client_id_end])
        identity = self._identity
        try:
            identity.client_id = raw.decode()
        except UnicodeDecodeError as error:
            offset = pos + REQUEST_HEAD_BYTES + error.start
            raise MalformedFrame(f"client id is not UTF-8 ({error.reason})", offset=offset) from None
        self._client_id_length = id_length
        self._client_id_raw = raw
        if identity.authenticated:
            self._throttling.look_up(now_ms)
        elif api_key not in _BEFORE_AUTHENTICATION:
            raise NotAuthenticated("a request before authentication")

    def _produce(
        self,
        buf: bytearray,
        pos: int,
        end: int,
        frame_end: int,
        api_key: int,
        version: int,
        correlation_id: int,
        client_id_end: int,
        now_ms: float,
    ) -> bool:
        """Charge a Produce, and forward it or hold it until its turn. False: not judged yet, held, or
        refused."""
        if not _PRODUCE_MIN <= version <= _PRODUCE_MAX:
            raise UnsupportedVersion("this version would go unmetered")
        identity = self._identity
        limit = end if end < frame_end else frame_end
        body = client_id_end + 1
        if version >= FIRST_FLEXIBLE and body + 3 <= limit and not (buf[client_id_end] or buf[body]):
            # No header tags, no transaction: so do nearly all, and what is read is but two bytes.
            acks = buf[body + 1] << 8 | buf[body + 2]
        else:
            body = request_body(buf, client_id_end, limit, PRODUCE, version)
            found = read_acks(buf, body, limit, version)
            if found is None:
                if frame_end <= end or end - pos > _HEAD_ENOUGH_BYTES:
                    raise MalformedFrame("Produce request without acks", offset=body)
                return False
            acks = found
        request_bytes = frame_end - pos
        if self.client_left and not self._throttling.outlives_its_client(acks, request_bytes):
            self.leave_behind(acks, request_bytes)
            return False
        sensor = self._throttling.produce_sensor
        paid_ms = 0.0
        if sensor is not None:
            paid_ms = sensor.charge(request_bytes, now_ms)
            if paid_ms > now_ms:
                turn_ms, paid_ms = self._throttling.owe_for_produce(sensor, paid_ms, request_bytes, now_ms)
                if turn_ms > now_ms:
                    self._throttling.held = Held(
                        correlation_id, version, request_bytes, acks, now_ms, paid_ms, sensor
                    )
                    return False
        if acks == 0:
            self._finished_without_answer(version, request_bytes, 0.0, paid_ms, sensor, now_ms)
        else:
            work = THROTTLE if paid_ms > now_ms else self._paid_work
            self._in_flight.append((
                correlation_id, PRODUCE, version, identity.client_id, request_bytes,
                now_ms, 0.0, paid_ms, sensor, work,
            ))  # fmt: skip
        return True

    def release(self, held: Held, now_ms: float) -> None:
        """A held Produce goes: its bytes, and what still arrives of them, pass without a second look."""
        self._skip = held.request_bytes
        self.count += 1
        paid_ms = held.paid_ms
        held_ms = now_ms - held.begun_ms
        version, request_bytes, sensor = held.api_version, held.request_bytes, held.sensor
        if held.acks == 0:
            self._finished_without_answer(version, request_bytes, held_ms, paid_ms, sensor, now_ms)
        else:
            work = THROTTLE if paid_ms > now_ms else self._paid_work
            self._in_flight.append((
                held.correlation_id, PRODUCE, version, self._identity.client_id, request_bytes,
                now_ms, held_ms, paid_ms, sensor, work,
            ))  # fmt: skip

    def _finished_without_answer(
        self,
        version: int,
        request_bytes: int,
        held_ms: float,
        paid_ms: float,
        sensor: Sensor | None,
        now_ms: float,
    ) -> None:
        identity = self._identity
        throttle_ms = held_ms + max(paid_ms - now_ms, 0.0)
        self._records.append((
            PRODUCE, version, identity.user, identity.client_id, request_bytes, 0,
            now_ms, 0.0, held_ms, throttle_ms, sensor,
        ))  # fmt: skip

    def leave_behind(self, acks: int, request_bytes: int) -> None:
        """End the connection over a request that does not outlive its client."""
        cause = DisconnectCause.LEFT_WHILE_HELD if acks else DisconnectCause.UNFINISHED_BYTES_OVER_CAP
        self._pace.end(cause, f"a Produce of {request_bytes} bytes not forwarded", at_boundary=True)

    def _fetch(
        self,
        buf: bytearray,
        pos: int,
        end: int,
        frame_end: int,
        api_key: int,
        version: int,
        correlation_id: int,
        client_id_end: int,
        now_ms: float,
    ) -> bool:
        """Lower a Fetch's max_bytes to its connection's share, and forward it; its answer will be charged."""
        first, last = VERSIONS[api_key]
        if not first <= version <= last:
            raise UnsupportedVersion("this version would go unmetered")
        identity = self._identity
        limit = end if end < frame_end else frame_end
        body = request_body(buf, client_id_end, limit, api_key, version)
        offset = max_bytes_offset(buf, body, limit, api_key, version)
        sensor = self._throttling.fetch_sensor
        if sensor is not None and not sensor.shadow:
            max_bytes = lower_max_bytes(buf, offset, self._throttling.fetch_share(sensor, now_ms))
            sensor.promise(max_bytes, now_ms)
        self._in_flight.append((
            correlation_id, api_key, version, identity.client_id, frame_end - pos,
            now_ms, 0.0, 0.0, sensor, CHARGE,
        ))  # fmt: skip
        return True
