"""One client connection: bytes in, and how many of them may go on; what is decided stands in attributes.

Pure: knows no socket, loop or clock; time is an argument. It works in place on the caller's buffer, for it
lies on the way of every byte: frames are found, charged, patched and left where they are, and no object is
made per frame but the tuples that remember a request. Binding for what it decides: the wire semantics
(docs/wire.md). When the next request may be begun: pace.py, with the drawing of the states.
"""

from __future__ import annotations

from collections import deque
from math import ceil
from typing import Final

from sluice.protocol._tables import VERSIONS
from sluice.protocol.errors import MalformedFrame, ProtocolError, UnsupportedVersion
from sluice.protocol.fetch import lower_max_bytes, max_bytes_offset
from sluice.protocol.groups import GROUP_APIS, session_timeout_ms
from sluice.protocol.headers import (
    API_VERSIONS,
    FETCH,
    JOIN_GROUP,
    MIN_REQUEST_SIZE,
    PRODUCE,
    REQUEST_HEAD,
    REQUEST_HEAD_BYTES,
    RESPONSE_HEAD,
    RESPONSE_HEAD_BYTES,
    SASL_AUTHENTICATE,
    SHARE_FETCH,
    SIZE_BYTES,
    refuse_size,
    request_body,
)
from sluice.protocol.produce import FIRST_FLEXIBLE, read_acks
from sluice.proxy.answers import cap_api_versions, write_fetch_throttle, write_produce_throttle
from sluice.proxy.authentication import AUTHENTICATION_APIS, Authentication
from sluice.proxy.causes import DisconnectCause
from sluice.proxy.errors import BrokerError, BrokerMalformed, NotAuthenticated, UnknownApi
from sluice.proxy.in_flight import AnswerWork, Held, InFlight
from sluice.proxy.pace import Pace, State
from sluice.proxy.policy import SessionPolicy, SharedState
from sluice.quotas.kinds import QuotaKind
from sluice.quotas.records import EventKind, ThrottleEvent
from sluice.quotas.sensor import Sensor

_PRODUCE_MIN, _PRODUCE_MAX = VERSIONS[PRODUCE]
_FETCHES: Final = frozenset({FETCH, SHARE_FETCH})
_WINDOW_MS: Final = 1000
_UNKNOWN_LENGTH: Final = -2  # no client id has this length, so the next request is looked up
_HEAD_ENOUGH_BYTES: Final = 128 * 1024
"""What a request may need to be judged: its client, transactional, group and member ids have at most 32 KiB
each."""
_FETCH_ANSWER_HEAD_BYTES: Final = 1024
"""throttle_time_ms stands behind the header's tags, of which Kafka has none."""
WHOLE_MAX_BYTES: Final = 512 * 1024
"""Largest frame that is kept until it is whole: half the receive buffer, and Kafka's own limit before a
login."""

# Reaching an enum member through its class costs 40 ns each time.
_NONE: Final = AnswerWork.NONE
_CHARGE: Final = AnswerWork.CHARGE
_THROTTLE: Final = AnswerWork.THROTTLE
_CAP_VERSIONS: Final = AnswerWork.CAP_VERSIONS
_RAW_TOKEN: Final = AnswerWork.RAW_TOKEN
_READING: Final = State.READING


class Session:
    """The state machine of one client connection. The shell reads `pace.state` after every call."""

    __slots__ = (
        "_authenticated",
        "_authentication",
        "_client_id_length",
        "_client_id_raw",
        "_client_left",
        "_client_skip",
        "_fetch_sensor",
        "_fetch_window",
        "_generation",
        "_held",
        "_in_flight",
        "_is_group",
        "_left_behind_bytes",
        "_max_frame_bytes",
        "_policy",
        "_produce_sensor",
        "_quotas",
        "_raw_tokens",
        "_records",
        "_response_skip",
        "_shared",
        "address",
        "bytes_from_client",
        "bytes_to_client",
        "client_id",
        "close_cause",
        "close_detail",
        "pace",
        "requests",
        "user",
    )

    def __init__(self, shared: SharedState, policy: SessionPolicy, address: str) -> None:
        """`address`: the client's, without its port."""
        self._shared = shared
        self._quotas = shared.quotas
        self._records = shared.recorder.requests
        self._policy = policy
        self.pace = Pace()
        self.address = address
        self.user = "ANONYMOUS"
        """the principal's name: User:ANONYMOUS until the broker has said yes to another"""
        self.client_id = ""
        self.close_cause: DisconnectCause | None = None
        self.close_detail = ""
        self.requests = 0
        self.bytes_from_client = 0
        self.bytes_to_client = 0
        self._authentication = Authentication(policy.oauthbearer_principal_claim)
        self._authenticated = not policy.authentication_required
        self._raw_tokens = False  # the next frames are bare (SaslHandshake v0)
        self._max_frame_bytes = (
            policy.max_frame_bytes_before_authentication
            if policy.authentication_required
            else policy.max_frame_bytes
        )
        self._client_id_length = _UNKNOWN_LENGTH
        self._client_id_raw = b""
        self._generation = -1
        self._produce_sensor: Sensor | None = None
        self._fetch_sensor: Sensor | None = None
        self._fetch_window = -1
        self._is_group = False
        self._in_flight: deque[InFlight] = deque()
        self._client_skip = 0  # bytes of a frame that is judged and still arrives
        self._response_skip = 0
        self._held: Held | None = None
        self._client_left = False
        self._left_behind_bytes = 0

    def __repr__(self) -> str:
        who = f"{self.user}/{self.client_id}"
        return f"<Session {who} {self.pace.state.name}, {len(self._in_flight)} in flight>"

    @property
    def in_flight(self) -> int:
        """Requests forwarded and not yet answered."""
        return len(self._in_flight)

    @property
    def finished(self) -> bool:
        """Nothing more is to come in either direction: the shell may close."""
        return self.pace.state is State.ENDING and not self._in_flight and not self._response_skip

    # From the client --------------------------------------------------------------------------------------

    def client_data(self, buf: bytearray, start: int, end: int, now_ms: float) -> int:
        """Scan `buf[start:end]`, which begins where the last call left off; may patch it in place.

        Returns the offset up to which the bytes go to the broker now. The rest is to be kept, and given again
        with what follows it: a frame not yet judged, or what must wait while the state is not READING.
        """
        pos = start
        skip = self._client_skip
        if skip:
            if skip > end - start:
                self._client_skip = skip - (end - start)
                self.bytes_from_client += end - start
                return end
            self._client_skip = 0
            pos += skip
        pace = self.pace
        try:
            while True:
                if pace.gate_ms > now_ms:
                    pace.meet_gate()
                    break
                if end - pos < REQUEST_HEAD_BYTES or self._raw_tokens:
                    if end - pos < SIZE_BYTES:
                        break
                    if self._raw_tokens:
                        frame_end = self._raw_token(buf, pos, end, now_ms)
                        if frame_end > end:
                            break
                        pos = frame_end
                        continue
                    self._check_size(buf, pos, end)
                    break
                size, api_key, version, correlation_id, id_length = REQUEST_HEAD.unpack_from(buf, pos)
                if not MIN_REQUEST_SIZE <= size <= self._max_frame_bytes:
                    self._check_size(buf, pos, end)
                frame_end = pos + SIZE_BYTES + size
                client_id_end = pos + REQUEST_HEAD_BYTES + (id_length if id_length > 0 else 0)
                if client_id_end > end or client_id_end > frame_end:
                    if client_id_end > frame_end:
                        raise MalformedFrame(f"client id of {id_length} bytes", offset=pos + 12)
                    break
                if (
                    id_length != self._client_id_length
                    or self._generation != self._quotas.generation
                    or not buf.startswith(self._client_id_raw, pos + REQUEST_HEAD_BYTES)
                ):
                    self._identify(buf, pos, client_id_end, id_length, now_ms)
                if api_key == PRODUCE:
                    judge = self._produce
                elif api_key in _FETCHES:
                    judge = self._fetch
                else:
                    judge = self._other
                try:
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
                self.requests += 1
                if frame_end > end:
                    self._client_skip = frame_end - end
                    pos = end
                    break
                pos = frame_end
        except ProtocolError as error:
            if error.offset is not None:
                error.offset -= pos
            self._end(DisconnectCause(error.cause), str(error), at_boundary=True)
        self.bytes_from_client += pos - start
        return pos

    def client_closed(self) -> None:
        """No more bytes come from the client, and all that came have been given to `client_data`."""
        self._end(DisconnectCause.CLIENT_CLOSED, "", at_boundary=True)

    def _check_size(self, buf: bytearray, pos: int, end: int) -> None:
        size = int.from_bytes(buf[pos : pos + SIZE_BYTES], "big", signed=True)
        if not 0 <= size <= self._max_frame_bytes:
            raise refuse_size(buf, pos, end, size, self._max_frame_bytes)
        if size < MIN_REQUEST_SIZE:
            raise MalformedFrame(f"frame of {size} bytes, too short for a request header", offset=pos)

    def _identify(self, buf: bytearray, pos: int, client_id_end: int, id_length: int, now_ms: float) -> None:
        """Find the sensors of (user, client id): at first, and when the client id or the quotas change."""
        raw = bytes(buf[pos + REQUEST_HEAD_BYTES : client_id_end])
        try:
            self.client_id = raw.decode()
        except UnicodeDecodeError as error:
            offset = pos + REQUEST_HEAD_BYTES + error.start
            raise MalformedFrame(f"client id is not UTF-8 ({error.reason})", offset=offset) from None
        self._client_id_length = id_length
        self._client_id_raw = raw
        if self._authenticated:
            quotas = self._quotas
            self._produce_sensor = quotas.sensor(QuotaKind.PRODUCE, self.user, self.client_id, now_ms)
            self._fetch_sensor = quotas.sensor(QuotaKind.FETCH, self.user, self.client_id, now_ms)
            self._generation = quotas.generation
            self._fetch_window = -1

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
        if not self._authenticated:
            raise NotAuthenticated("a request before authentication")
        if client_id_end < end and buf[client_id_end] == 0 and version >= FIRST_FLEXIBLE:
            body = client_id_end + 1
        else:
            body = request_body(buf, client_id_end, min(end, frame_end), PRODUCE, version)
        acks = read_acks(buf, body, min(end, frame_end), version)
        if acks is None:
            if frame_end <= end:
                raise MalformedFrame("Produce request without acks", offset=body)
            return False
        request_bytes = frame_end - pos
        if self._client_left and not self._outlives_its_client(acks, request_bytes):
            return False
        sensor = self._produce_sensor
        paid_ms = 0.0
        if sensor is not None:
            paid_ms = sensor.charge(request_bytes, now_ms)
            if paid_ms > now_ms:
                last_ms = now_ms + self._delay_limit_ms(PRODUCE)
                over_bytes = _over_quota_bytes(sensor, request_bytes, paid_ms, last_ms)
                paid_ms = min(paid_ms, last_ms)
                turn_ms = min(sensor.turn_ms, last_ms)
                if turn_ms > now_ms:
                    self._held = Held(correlation_id, version, request_bytes, acks, now_ms, paid_ms, sensor)
                    self.pace.hold(turn_ms, now_ms, QuotaKind.PRODUCE)
                    delay_ms = turn_ms - now_ms
                    self._event(EventKind.HOLD, sensor, PRODUCE, delay_ms, request_bytes, over_bytes, now_ms)
                    return False
                self.pace.mute(paid_ms, now_ms, QuotaKind.PRODUCE)
                delay_ms = paid_ms - now_ms
                self._event(EventKind.MUTE, sensor, PRODUCE, delay_ms, request_bytes, over_bytes, now_ms)
        if acks == 0:
            self._finished_without_answer(version, request_bytes, 0.0, paid_ms, sensor, now_ms)
        else:
            work = _THROTTLE if paid_ms > now_ms else _NONE
            self._in_flight.append(
                (correlation_id, PRODUCE, version, request_bytes, now_ms, 0.0, paid_ms, sensor, work)
            )
        return True

    def _finished_without_answer(
        self,
        version: int,
        request_bytes: int,
        held_ms: float,
        paid_ms: float,
        sensor: Sensor | None,
        now_ms: float,
    ) -> None:
        throttle_ms = held_ms + max(paid_ms - now_ms, 0.0)
        self._records.append((
            PRODUCE, version, self.user, self.client_id, request_bytes, 0,
            now_ms, 0.0, held_ms, throttle_ms, sensor,
        ))  # fmt: skip

    def _outlives_its_client(self, acks: int, request_bytes: int) -> bool:
        """May a request go on whose client is gone? With acks ≠ 0 it would double the client's retry.

        One with acks = 0 was reported as sent; it goes on, up to a cap per user (wire-semantics 1.2, 4.1).
        """
        if acks == 0 and self._shared.left_behind.take(self.user, request_bytes):
            self._left_behind_bytes += request_bytes
            return True
        cause = DisconnectCause.LEFT_WHILE_HELD if acks else DisconnectCause.UNFINISHED_BYTES_OVER_CAP
        self._end(cause, f"a Produce of {request_bytes} bytes not forwarded", at_boundary=True)
        return False

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
        if not self._authenticated:
            raise NotAuthenticated("a request before authentication")
        limit = end if end < frame_end else frame_end
        body = request_body(buf, client_id_end, limit, api_key, version)
        offset = max_bytes_offset(buf, body, limit, api_key, version)
        sensor = self._fetch_sensor
        if sensor is not None:
            window = int(now_ms // _WINDOW_MS)
            if window != self._fetch_window:
                self._fetch_window = window
                sensor.count_fetcher(window)
            max_bytes = lower_max_bytes(buf, offset, sensor.fetch_max_bytes(now_ms))
            sensor.promise(max_bytes, now_ms)
        self._in_flight.append(
            (correlation_id, api_key, version, frame_end - pos, now_ms, 0.0, 0.0, sensor, _CHARGE)
        )
        return True

    def _other(
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
        """Forward a request that no byte rate covers; note what its connection is used for."""
        work = _NONE
        if api_key == API_VERSIONS:
            work = _CAP_VERSIONS
        elif api_key in AUTHENTICATION_APIS:
            whole = self._authentication.check_whole(end, pos, frame_end, WHOLE_MAX_BYTES)
            if not whole:
                return False
            work = self._authentication.request(buf, client_id_end, frame_end, api_key, version)
            self.pace.await_broker()
        elif not self._authenticated:
            raise NotAuthenticated("a request before authentication")
        elif api_key in GROUP_APIS:
            if api_key == JOIN_GROUP:
                limit = min(end, frame_end)
                body = request_body(buf, client_id_end, limit, api_key, version)
                timeout_ms = session_timeout_ms(buf, body, limit, version)
                self._shared.session_timeouts.saw(self.user, self.client_id, self.address, timeout_ms)
            self._is_group = True
        elif api_key not in VERSIONS and not self._policy.pass_unknown_apis:
            raise UnknownApi("an API that this proxy does not know")
        self._in_flight.append(
            (correlation_id, api_key, version, frame_end - pos, now_ms, 0.0, 0.0, None, work)
        )
        return True

    def _raw_token(self, buf: bytearray, pos: int, end: int, now_ms: float) -> int:
        """A bare token of SaslHandshake v0. Returns its end, which may not have arrived yet."""
        size = int.from_bytes(buf[pos : pos + SIZE_BYTES], "big", signed=True)
        if not 0 <= size <= min(self._max_frame_bytes, WHOLE_MAX_BYTES):
            raise refuse_size(buf, pos, end, size, self._max_frame_bytes)
        frame_end = pos + SIZE_BYTES + size
        if frame_end <= end:
            self._authentication.raw_token(buf, pos + SIZE_BYTES, frame_end)
            self.pace.await_broker()
            self._in_flight.append(
                (0, SASL_AUTHENTICATE, 0, frame_end - pos, now_ms, 0.0, 0.0, None, _RAW_TOKEN)
            )
        return frame_end

    # From the broker --------------------------------------------------------------------------------------

    def broker_data(self, buf: bytearray, start: int, end: int, now_ms: float) -> int:
        """As `client_data`, for the broker's bytes: returns the offset up to which they go to the client now.

        Raises ProtocolError (mostly BrokerError: they contradict what was asked); then both connections are
        to be closed.
        """
        pos = start
        skip = self._response_skip
        if skip:
            if skip > end - start:
                self._response_skip = skip - (end - start)
                self.bytes_to_client += end - start
                return end
            self._response_skip = 0
            pos += skip
        in_flight = self._in_flight
        while end - pos >= SIZE_BYTES:
            if not in_flight:
                raise BrokerError("an answer that no request asked for")
            asked_id, api_key, version, request_bytes, forwarded_ms, held_ms, paid_ms, sensor, work = (
                in_flight[0]
            )
            if work is _RAW_TOKEN:
                frame_end = self._raw_answer(buf, pos, end)
                if frame_end > end:
                    break
                in_flight.popleft()
                pos = frame_end
                continue
            if end - pos < RESPONSE_HEAD_BYTES:
                break
            size, correlation_id = RESPONSE_HEAD.unpack_from(buf, pos)
            if correlation_id != asked_id:
                raise BrokerError(
                    f"correlation id {correlation_id}, due is {asked_id}",
                    api_key=api_key,
                    api_version=version,
                )
            if size < SIZE_BYTES:
                raise BrokerMalformed(f"answer of {size} bytes", api_key=api_key, api_version=version)
            frame_end = pos + SIZE_BYTES + size
            throttle_ms = 0.0
            if work is not _NONE:
                if end < frame_end and not self._enough_arrived(end - pos, frame_end - pos, work):
                    break
                try:
                    throttle_ms = self._work_on_answer(
                        buf,
                        pos,
                        end,
                        frame_end,
                        api_key,
                        version,
                        forwarded_ms,
                        paid_ms,
                        sensor,
                        work,
                        now_ms,
                    )
                except MalformedFrame as error:
                    raise BrokerMalformed(error.reason, api_key=api_key, api_version=version) from None
            in_flight.popleft()
            self._records.append((
                api_key, version, self.user, self.client_id, request_bytes, size + SIZE_BYTES,
                now_ms, now_ms - forwarded_ms, held_ms, held_ms + throttle_ms, sensor,
            ))  # fmt: skip
            if frame_end > end:
                self._response_skip = frame_end - end
                pos = end
                break
            pos = frame_end
        self.bytes_to_client += pos - start
        return pos

    @staticmethod
    def _enough_arrived(arrived_bytes: int, frame_bytes: int, work: AnswerWork) -> bool:
        """Can an answer whose end has not arrived be worked on? One too large to keep goes on as it is."""
        if work is _CHARGE:
            return arrived_bytes >= _FETCH_ANSWER_HEAD_BYTES
        return frame_bytes > WHOLE_MAX_BYTES

    def _work_on_answer(
        self,
        buf: bytearray,
        pos: int,
        end: int,
        frame_end: int,
        api_key: int,
        version: int,
        forwarded_ms: float,
        paid_ms: float,
        sensor: Sensor | None,
        work: AnswerWork,
        now_ms: float,
    ) -> float:
        """Charge, patch or learn from an answer. Returns the throttle in ms that its request brought
        about."""
        if work is _CHARGE:
            if sensor is None:
                return 0.0
            throttle_ms = self._charge_fetch(sensor, api_key, frame_end - pos, now_ms)
            if throttle_ms > 0.0:
                written_ms = min(throttle_ms, self._policy.delays.written_fetch_throttle_max_ms)
                write_fetch_throttle(buf, pos, min(end, frame_end), api_key, version, ceil(written_ms))
            return throttle_ms
        if work is _THROTTLE:
            left_ms = paid_ms - now_ms
            if left_ms > 0.0 and frame_end <= end:
                write_produce_throttle(buf, pos, frame_end, version, ceil(left_ms))
            return paid_ms - forwarded_ms
        if frame_end <= end:
            if work is _CAP_VERSIONS:
                cap_api_versions(buf, pos, frame_end, version)
            else:
                self._learn(self._authentication.answer(buf, pos, frame_end, api_key, version))
        return 0.0

    def _charge_fetch(self, sensor: Sensor, api_key: int, response_bytes: int, now_ms: float) -> float:
        """Charge an answer of Fetch or ShareFetch by its size, which its first bytes tell; mute what is
        owed."""
        paid_ms = sensor.charge(response_bytes, now_ms)
        if paid_ms <= now_ms:
            return 0.0
        last_ms = self.pace.latest_ms(self._delay_limit_ms(api_key), now_ms)
        over_bytes = _over_quota_bytes(sensor, response_bytes, paid_ms, last_ms)
        paid_ms = min(paid_ms, last_ms)
        self.pace.mute(paid_ms, now_ms, QuotaKind.FETCH, at_boundary=not self._client_skip)
        self._event(EventKind.MUTE, sensor, api_key, paid_ms - now_ms, response_bytes, over_bytes, now_ms)
        return paid_ms - now_ms

    def _raw_answer(self, buf: bytearray, pos: int, end: int) -> int:
        size = int.from_bytes(buf[pos : pos + SIZE_BYTES], "big", signed=True)
        if not 0 <= size <= WHOLE_MAX_BYTES:
            raise BrokerMalformed(f"token of {size} bytes")
        frame_end = pos + SIZE_BYTES + size
        if frame_end <= end:
            self._learn(self._authentication.raw_answer(buf, pos + SIZE_BYTES, frame_end))
        return frame_end

    def _learn(self, user: str | None) -> None:
        """The broker answered an authentication. With a user it said yes: from now on that one's quotas
        apply."""
        self._raw_tokens = self._authentication.raw_tokens
        self.pace.broker_answered()
        if user is None:
            return
        self.user = user
        self._authenticated = True
        self._max_frame_bytes = self._policy.max_frame_bytes
        self._client_id_length = _UNKNOWN_LENGTH

    # Time, and the shell ----------------------------------------------------------------------------------

    def wake(self, now_ms: float, client_left: bool) -> None:
        """`pace.wake_ms` has come. `client_left`: the client has closed its side.

        (A FIN behind unread bytes shows neither in a peek nor as readable; TCP_INFO tells.) If the state is
        READING afterwards, the shell gives the kept bytes to `client_data` and reads on.
        """
        self._client_left = client_left
        held = self._held
        if held is None:
            self.pace.wake(now_ms)
            return
        self._held = None
        if client_left and not self._outlives_its_client(held.acks, held.request_bytes):
            held.sensor.refund(held.request_bytes, now_ms)
            self._event(EventKind.DROP, held.sensor, PRODUCE, 0.0, held.request_bytes, 0, now_ms)
        else:
            self._release(held, now_ms)

    def _release(self, held: Held, now_ms: float) -> None:
        """The held request goes: its bytes, and what still arrives of them, pass without a second look."""
        self.pace.release()
        self._client_skip = held.request_bytes
        self.requests += 1
        paid_ms = held.paid_ms
        held_ms = now_ms - held.begun_ms
        if paid_ms > now_ms:
            self.pace.mute(paid_ms, now_ms, QuotaKind.PRODUCE)
            delay_ms = paid_ms - now_ms
            self._event(EventKind.MUTE, held.sensor, PRODUCE, delay_ms, held.request_bytes, 0, now_ms)
        if held.acks == 0:
            self._finished_without_answer(
                held.api_version, held.request_bytes, held_ms, paid_ms, held.sensor, now_ms
            )
        else:
            self._in_flight.append((
                held.correlation_id, PRODUCE, held.api_version, held.request_bytes, now_ms, held_ms, paid_ms,
                held.sensor, _THROTTLE if paid_ms > now_ms else _NONE,
            ))  # fmt: skip

    def drain(self, now_ms: float) -> None:
        """Begin no further request; what is in flight will be answered (wire-semantics 4.1).

        A held Produce with acks ≠ 0 stays unforwarded, for its client sends it again. With acks = 0 it goes,
        for nobody will.
        """
        held = self._held
        self._held = None
        if held is not None and held.acks == 0:
            self._release(held, now_ms)
        elif held is not None:
            held.sensor.refund(held.request_bytes, now_ms)
        self._end(DisconnectCause.DRAINED, "", at_boundary=not self._client_skip)

    def closed(self, now_ms: float) -> None:
        """The connection is closed: return its part of the shared budgets, and what a held request was
        charged."""
        if self._held is not None:
            self._held.sensor.refund(self._held.request_bytes, now_ms)
            self._held = None
        self._shared.left_behind.give_back(self.user, self._left_behind_bytes)
        self._left_behind_bytes = 0

    def _end(self, cause: DisconnectCause, detail: str, *, at_boundary: bool) -> None:
        """Begin no further request. The first cause stays."""
        self.pace.end(at_boundary=at_boundary)
        if self.close_cause is None:
            self.close_cause = cause
            self.close_detail = detail

    def _delay_limit_ms(self, api_key: int) -> float:
        delays = self._policy.delays
        if self._is_group:
            return delays.group_max_ms
        if api_key == PRODUCE:
            return delays.answer_budget_ms
        if api_key == FETCH:
            timeouts = self._shared.session_timeouts
            return timeouts.fetch_limit_ms(self.user, self.client_id, self.address, delays)
        return min(delays.share_fetch_max_ms, delays.answer_budget_ms)

    def _event(
        self,
        kind: EventKind,
        sensor: Sensor,
        api_key: int,
        delay_ms: float,
        charged_bytes: int,
        over_bytes: int,
        now_ms: float,
    ) -> None:
        self._shared.recorder.throttles.append(
            ThrottleEvent(
                kind,
                now_ms,
                delay_ms,
                sensor.kind.value,
                sensor.level.value,
                self.user,
                self.client_id,
                api_key,
                charged_bytes,
                over_bytes,
            )
        )


def _over_quota_bytes(sensor: Sensor, charged_bytes: int, paid_ms: float, last_ms: float) -> int:
    """The part of a charge that passes ahead of its rate, because its delay is bounded (wire-semantics
    1.6)."""
    if paid_ms <= last_ms:
        return 0
    return min(charged_bytes, ceil((paid_ms - last_ms) * sensor.rate_per_s / 1000.0))
