"""The client's side of a session: its bytes → requests judged, charged, remembered; how many may go on.

Works in place on the caller's buffer, for it lies on the way of every byte: frames are found, charged,
patched and left where they are, and no object is made per frame but the tuple that remembers it. Pure.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from sluice.protocol._tables import VERSIONS
from sluice.protocol.errors import MalformedFrame, ProtocolError, UnsupportedVersion
from sluice.protocol.fetch import (
    FIRST_FLEXIBLE,
    MAX_BYTES_AT,
    closing_fetch,
    max_bytes_offset,
    read_session,
)
from sluice.protocol.headers import (
    API_VERSIONS,
    FETCH,
    MIN_REQUEST_SIZE,
    PRODUCE,
    REQUEST_HEAD,
    REQUEST_HEAD_BYTES,
    SHARE_FETCH,
    SIZE_BYTES,
    check_size,
    request_body,
)
from sluice.protocol.replication.fetch_request import is_follower
from sluice.proxy.session.authentication import AUTHENTICATION_APIS, Authentication
from sluice.proxy.session.causes import DisconnectCause
from sluice.proxy.session.errors import NotAuthenticated
from sluice.proxy.session.fetch_turns import Turn
from sluice.proxy.session.identity import Identity
from sluice.proxy.session.in_flight import CHARGE, FOLLOWER, NEW_SESSION, NO_RECORDS, InFlight
from sluice.proxy.session.local_responses import LocalAnswers
from sluice.proxy.session.mutations.requests import MutationRequests
from sluice.proxy.session.other_requests import OtherRequests
from sluice.proxy.session.own_topic.topic_acl import Judge, TopicGuard
from sluice.proxy.session.policy import SessionPolicy, SharedState
from sluice.proxy.session.produce import HEAD_ENOUGH_BYTES, ProduceSide
from sluice.proxy.session.producer_ids.transactions import TransactionRequests
from sluice.proxy.session.quota_requests import QuotaRequests
from sluice.proxy.session.read_gate import Pace
from sluice.proxy.session.replication.requests import ReplicaRequests
from sluice.proxy.session.throttling import Throttling
from sluice.proxy.session.topic_attribution import NO_TOPICS, TOPICS_AT, Flows, is_incremental
from sluice.quotas.sensors.sensor import Sensor
from sluice.usage.records import Flow

_GO: Final = Turn.GO
_FETCHES: Final = frozenset({FETCH, SHARE_FETCH})
_BEFORE_AUTHENTICATION: Final = AUTHENTICATION_APIS | {API_VERSIONS}
_UNKNOWN_LENGTH: Final = -2  # no client id has this length, so the first request is looked up


class RequestSide(ProduceSide):
    """Of one connection. The parts that it is given are shared with the session's other side."""

    __slots__ = (
        "_client_id_length", "_fetch_flow", "_fetch_head", "_followers", "_frame_limit", "_guard",
        "_is_follower", "_others", "_policy", "_quotas", "_topic_defaults", "quota_requests", "raw_tokens",
        "replicas",
    )  # fmt: skip

    def __init__(
        self,
        shared: SharedState,
        policy: SessionPolicy,
        pace: Pace,
        identity: Identity,
        authentication: Authentication,
        throttling: Throttling,
        in_flight: deque[InFlight],
        local: LocalAnswers,
        flows: Flows | None,
    ) -> None:
        super().__init__(shared, policy, pace, identity, throttling, in_flight, local, flows)
        # As for Produce; from the topics on, of a Fetch whose session has one topic.
        self._fetch_head = None if flows is None else flows.fetch_head
        self._fetch_flow = identity.flow
        self._quotas = shared.quotas
        self._policy = policy
        self._others = OtherRequests(policy, pace, identity, authentication, throttling, in_flight, flows)
        self.quota_requests = None
        if policy.quota_api is not None:
            self.quota_requests = QuotaRequests(
                policy.quota_api, pace, identity, in_flight, local, self._records, self._drop
            )
        self._others.quota_requests = self.quota_requests
        self._topic_defaults = shared.topic_defaults
        self._guard = None
        if shared.own_topic is not None:
            self._guard = TopicGuard(
                shared.own_topic, identity, in_flight, local, self._records, self._drop_frame
            )
        self.replicas: ReplicaRequests | None = None
        """of an inter-broker listener: where followers' fetches are judged"""
        if policy.replication is not None:
            self.replicas = ReplicaRequests(
                policy.replication, pace, identity, in_flight, local, self.edits, self._records
            )
        # Are its Fetches a broker's? None: not known yet.
        self._is_follower: bool | None = None
        self._followers = shared.recorder.followers
        self._client_id_length = _UNKNOWN_LENGTH
        self._frame_limit = policy.frame_limit(authenticated=identity.authenticated)
        self.raw_tokens = False
        """the next frames are bare tokens (SaslHandshake v0)"""

    @property
    def mutations(self) -> MutationRequests | None:
        """Where topics are created and deleted under a quota."""
        return self._others.mutations

    @property
    def transactions(self) -> TransactionRequests | None:
        """Where transactions are judged under a limit on producer ids."""
        return self._others.transactions

    @property
    def at_boundary(self) -> bool:
        """No frame is half read."""
        return not self._skip

    @property
    def passing_bytes(self) -> int:
        """Bytes still to come of a frame that goes on as it is."""
        return 0 if self._dropping else self._skip

    def passed(self, count: int) -> None:
        """So many of them went on without having been given to `data`; one at least is left for it."""
        self._skip -= count
        self.bytes_read += count

    def lift_frame_limit(self) -> None:
        """The broker said yes."""
        self._frame_limit = self._policy.max_frame_bytes

    # Whole on purpose, as `_produce`: every frame comes through here. What is rare has functions of its own.
    def data(self, buf: bytearray, start: int, end: int, now_ms: float) -> int:
        """Scan `buf[start:end]`, which begins where the last call left off; may patch it in place. Returns up
        to where it goes to the broker now; the rest is to be given again, with what follows."""
        pos = self._rest_of_frame(start, end) if self._skip else start
        if self._skip:
            return end
        pace, throttling, quotas = self._pace, self._throttling, self._quotas
        in_flight, guard = self._in_flight, self._guard
        judge: Judge
        try:
            while pace.gate_ms <= now_ms:
                if end - pos < REQUEST_HEAD_BYTES or self.raw_tokens:
                    if (token_end := self._token_or_size(buf, pos, end, now_ms)) > end:
                        break
                    pos = token_end
                    continue
                size, api_key, version, correlation_id, id_length = REQUEST_HEAD.unpack_from(buf, pos)
                if not MIN_REQUEST_SIZE <= size <= self._frame_limit:
                    check_size(buf, pos, end, self._frame_limit)
                frame_end = pos + SIZE_BYTES + size
                client_id_end = pos + REQUEST_HEAD_BYTES + (id_length if id_length > 0 else 0)
                if client_id_end > frame_end:
                    raise _client_id_too_long(id_length, pos, api_key, version)
                if client_id_end > end:
                    break
                judge, begin = self._produce, self._produce_begin
                if api_key != PRODUCE:
                    judge = self._fetch if api_key in _FETCHES else self._others.judge
                    begin = self._client_id_raw
                if guard is not None:
                    judge, begin = self._guarded(guard, judge, begin, api_key)
                try:
                    if (
                        id_length != self._client_id_length or throttling.generation != quotas.generation
                        or (begin is not None and not buf.startswith(begin, pos + REQUEST_HEAD_BYTES))
                    ):  # fmt: skip
                        self._begins_otherwise(buf, pos, client_id_end, id_length, api_key, now_ms)
                    if not judge(
                        buf, pos, end, frame_end, api_key, version, correlation_id, client_id_end, now_ms
                    ):
                        break
                except ProtocolError as error:
                    if _may_be_cut_off(error, end, min(frame_end, pos + HEAD_ENOUGH_BYTES)):
                        break
                    error.api_key, error.api_version = api_key, version
                    raise
                self.count += 1
                if len(in_flight) >= pace.max_in_flight:
                    pace.fill()
                pos = frame_end
                if frame_end > end:
                    self._skip, pos = frame_end - end, end
                    break
            else:
                pace.meet_gate()
        except ProtocolError as error:
            self._end_over(error, pos)
        self.bytes_read += pos - start
        return pos

    def _rest_of_frame(self, start: int, end: int) -> int:
        """More of a frame that is judged has come, or is dropped. Returns its end; all of it has come only if
        `_skip` is 0 now."""
        skip = self._skip
        if self._dropping:
            self._drop(start, min(start + skip, end))
        if skip > end - start:
            self._skip = skip - (end - start)
            self.bytes_read += end - start
            return end
        self._skip = 0
        self._dropping = False
        return start + skip

    def _token_or_size(self, buf: bytearray, pos: int, end: int, now_ms: float) -> int:
        """The end of a bare token, or beyond `end`: more must come. Raises ProtocolError for a size that no
        request may have."""
        if end - pos >= SIZE_BYTES:
            if self.raw_tokens:
                return self._others.raw_token(buf, pos, end, now_ms)
            check_size(buf, pos, end, self._frame_limit)
        return end + 1

    def _guarded(
        self, guard: TopicGuard, judge: Judge, begin: bytes | None, api_key: int
    ) -> tuple[Judge, bytes]:
        """The guard of the own topic looks first, and then has `judge` go on. It is told whose request is
        refused, so that the client id is always looked for."""
        if self._flows is not None:
            self._identity.flow = self._flows.other(api_key)
        guard.then = judge
        return guard.judge, begin or self._client_id_raw

    def _end_over(self, error: ProtocolError, pos: int) -> None:
        """The connection ends for what stands in the frame at `pos`."""
        if error.offset is not None:
            error.offset -= pos
        self._pace.end(DisconnectCause(error.cause), str(error), at_boundary=True)

    def _begins_otherwise(
        self, buf: bytearray, pos: int, client_id_end: int, id_length: int, api_key: int, now_ms: float
    ) -> None:
        """The client id, the user or the quotas are new, or what begins a Produce: its topic.

        Comes for every request until the broker has said yes, for until then no generation is the current
        one.
        """
        start = pos + REQUEST_HEAD_BYTES
        is_same = (
            id_length == self._client_id_length and self._throttling.generation == self._quotas.generation
        )
        if is_same and api_key == PRODUCE and self._flows is not None:
            known = self._flows.produces.find(buf, start)
            if known is not None:
                self._use_begin(known)
                return
        if not is_same or not buf.startswith(self._client_id_raw, start):
            raw = bytes(buf[start:client_id_end])
            self._identify(raw, pos, id_length, api_key, now_ms)
        self._forget_head()

    def _identify(self, raw: bytes, pos: int, id_length: int, api_key: int, now_ms: float) -> None:
        """Whose sensors are charged from now on?"""
        identity = self._identity
        try:
            identity.client_id = raw.decode()
        except UnicodeDecodeError as error:
            offset = pos + REQUEST_HEAD_BYTES + error.start
            raise MalformedFrame(f"client id is not UTF-8 ({error.reason})", offset=offset) from None
        self._client_id_length = id_length
        self._client_id_raw = raw
        flows = self._flows
        if flows is None:
            identity.flow = Flow(identity.client_id)
        else:
            identity.flow = flows.of_client(identity.user, identity.client_id)
            self._fetch_head = flows.fetch_head
        if identity.authenticated:
            self._throttling.look_up(now_ms)
            if self._throttling.mutation_sensor is not None and self.mutations is None:
                self._others.mutations = MutationRequests(
                    self._topic_defaults, self._pace, identity, self._throttling,
                    self._in_flight, self._local, self.edits, self._records,
                    self._amounts,
                )  # fmt: skip
            if self._throttling.ids is not None and self.transactions is None:
                self._others.transactions = TransactionRequests(
                    identity, self._throttling, self._in_flight, self._local, self._records,
                    self._drop, self._bring_ids, self._policy.inter_broker,
                )  # fmt: skip
        elif api_key not in _BEFORE_AUTHENTICATION:
            raise NotAuthenticated("a request before authentication")

    def _find_fetched(
        self, buf: bytearray, pos: int, end: int, frame_end: int, offset: int, api_key: int, version: int
    ) -> bool:
        """As _find_topic for a Produce; `offset`: of max_bytes."""
        flows = self._flows
        assert flows is not None
        flow = None
        if api_key == FETCH:
            flow = flows.fetched(buf, offset, min(end, frame_end), version)
            if flow is None and frame_end > end and end - pos <= HEAD_ENOUGH_BYTES:
                return False
        self._identity.flow = flow or flows.other(api_key)
        self._fetch_head, self._fetch_flow = flows.fetch_head, flows.fetch
        return True

    def _look_for_replica(
        self, buf: bytearray, pos: int, client_id_end: int, end: int, frame_end: int, version: int
    ) -> bool:
        """Is the connection a follower's, by its first Fetch that tells? False: more of that must come first,
        since its replica id would be believed."""
        is_believed = self._policy.inter_broker.covers(self._identity.user)
        names_replica = is_follower(buf, pos, client_id_end, end, frame_end, version)
        if names_replica is None:
            return not is_believed
        self._is_follower = names_replica and is_believed
        if names_replica:
            self._followers["exempt" if is_believed else "charged"] += 1
        return True

    def _fetch(
        self, buf: bytearray, pos: int, end: int, frame_end: int, api_key: int, version: int, correlation_id:
        int, client_id_end: int, now_ms: float,
    ) -> bool:  # fmt: skip
        """Lower a Fetch's max_bytes to its connection's share, and forward it; its answer will be charged."""
        first, last = VERSIONS[api_key]
        if not first <= version <= last:
            raise UnsupportedVersion("this version would go unmetered")
        if self.replicas is not None and api_key == FETCH:
            if self._flows is not None:
                self._identity.flow = self._flows.other(FETCH)
            judged = self.replicas.judge(
                buf, pos, end, frame_end, api_key, version, correlation_id, client_id_end, now_ms
            )
            if judged is not None:
                return judged
        identity = self._identity
        if self._is_follower is not False and api_key == FETCH:
            if self._is_follower is None and not self._look_for_replica(
                buf, pos, client_id_end, end, frame_end, version
            ):
                return False
            if self._is_follower:
                if self._flows is not None:
                    identity.flow = self._flows.other(FETCH)
                self._in_flight.append((
                    correlation_id, FETCH, version, identity.flow, frame_end - pos,
                    now_ms, 0.0, 0.0, None, FOLLOWER,
                ))  # fmt: skip
                return True
        limit = end if end < frame_end else frame_end
        offset = client_id_end + MAX_BYTES_AT[version]
        if api_key != FETCH or offset + 4 > limit or (version >= FIRST_FLEXIBLE and buf[client_id_end]):
            # Hardly any is so; else two calls are spared.
            body = request_body(buf, client_id_end, limit, api_key, version)
            offset = max_bytes_offset(buf, body, limit, api_key, version)
        head = self._fetch_head
        if head is not None:
            if (
                api_key == FETCH
                and buf.startswith(head, offset + TOPICS_AT, limit)
                and (head is not NO_TOPICS or is_incremental(buf, offset, limit))
            ):
                identity.flow = self._fetch_flow
            elif not self._find_fetched(buf, pos, end, frame_end, offset, api_key, version):
                return False
        sensor = self._throttling.fetch_sensor
        reserved = held_ms = 0.0
        if sensor is not None and not sensor.shadow:
            fetches = self._throttling.fetches
            turn = fetches.turn(sensor, buf, offset, api_key, now_ms)
            if turn is not _GO:
                return self._fetch_waits(
                    turn, sensor, buf, pos, limit, frame_end, api_key, version, correlation_id, client_id_end,
                    offset, now_ms,
                )  # fmt: skip
            reserved, held_ms = fetches.reserved_bytes, fetches.held_ms
        self._in_flight.append((
            correlation_id, api_key, version, identity.flow, frame_end - pos,
            now_ms, held_ms, reserved, sensor, CHARGE,
        ))  # fmt: skip
        return True

    def _fetch_waits(
        self, turn: Turn, sensor: Sensor, buf: bytearray, pos: int, limit: int, frame_end: int, api_key: int,
        version: int, correlation_id: int, client_id_end: int, offset: int, now_ms: float,
    ) -> bool:  # fmt: skip
        """A Fetch does not go on: not yet; or it is replaced by one for nothing, which ends its session."""
        throttling = self._throttling
        if turn is Turn.WAIT:
            throttling.note_fetch_hold(sensor, api_key, now_ms)
            return False
        session_id, epoch = read_session(buf, offset, limit, version)
        work = NEW_SESSION if epoch > 0 else NO_RECORDS
        throttling.note_fetch_refusal(sensor, now_ms)
        self._mark("refused")
        self._in_flight.append((
            correlation_id, FETCH, version, self._identity.flow, frame_end - pos,
            now_ms, throttling.fetches.held_ms, 0.0, None, work,
        ))  # fmt: skip
        closing = closing_fetch(buf, pos, client_id_end, version, session_id)
        self.edits.append((pos, limit, closing))
        self.bytes_read -= limit - pos - len(closing)
        self._dropping = frame_end > limit
        return True


def _may_be_cut_off(error: ProtocolError, end: int, enough_end: int) -> bool:
    """What looks malformed may only be cut off by what has arrived."""
    return isinstance(error, MalformedFrame) and end < enough_end


def _client_id_too_long(id_length: int, pos: int, api_key: int, version: int) -> MalformedFrame:
    reason = f"client id of {id_length} bytes"
    return MalformedFrame(reason, api_key=api_key, api_version=version, offset=pos + 12)
