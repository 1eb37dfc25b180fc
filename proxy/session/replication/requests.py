"""Followers' fetches on one connection of an inter-broker listener: asked, held, answered. Pure.

Beside the session's two sides, which find the frames: `judge` is called for a Fetch, `begin` and `go_on` for
its answer. A held fetch stays unread with the shell (Pace.mute) and is judged again. Fetches that are no
follower's, and those with topics' names (≤ v12), are left to others.
"""

from __future__ import annotations

from collections import deque
from struct import Struct
from typing import Final

from sluice.protocol.addresses.addresses import Edit
from sluice.protocol.apis import FETCH, ErrorCode
from sluice.protocol.errors import MalformedFrame
from sluice.protocol.headers import RESPONSE_HEAD_BYTES, request_body
from sluice.protocol.primitives import INT32
from sluice.protocol.replication.fetch_request import (
    FIRST_WITH_TOPIC_IDS,
    LAST_KNOWN,
    ReplicaFetch,
    read_replica_fetch,
)
from sluice.protocol.replication.fetch_response import ReplicaAnswer
from sluice.proxy.session.errors import BrokerMalformed
from sluice.proxy.session.identity import Identity
from sluice.proxy.session.in_flight import LOCAL, REPLICA, InFlight
from sluice.proxy.session.local_responses import LocalAnswers
from sluice.proxy.session.read_gate import Pace
from sluice.proxy.session.replication.followers import Replication
from sluice.proxy.session.replication.mirror import Grant, SessionMirror, give_back
from sluice.usage.records import RequestRecord

SESSIONLESS_HOLD_MS: Final = 500.0
"""Longest that a follower without a session waits (replica.fetch.wait.max.ms): it holds up all its
partitions."""
_ERROR_BODY: Final = Struct(">BihiBB")
"""header's tags, throttle, error code, session id, no topics, no tags"""


class _Sent:
    """What is remembered of a fetch until its answer has passed."""

    __slots__ = ("grants", "mirror", "request")

    def __init__(self, mirror: SessionMirror, request: ReplicaFetch, grants: list[Grant]) -> None:
        self.mirror = mirror
        self.request = request
        self.grants = grants


class ReplicaRequests:
    """Followers' fetches on one connection. What it is given is shared with the session's sides."""

    __slots__ = (
        "_edits", "_held_ms", "_identity", "_in_flight", "_local", "_pace", "_records", "_replication",
        "_sent", "_sessionless", "_walk",
    )  # fmt: skip

    def __init__(
        self,
        replication: Replication,
        pace: Pace,
        identity: Identity,
        in_flight: list[InFlight],
        local: LocalAnswers,
        edits: list[Edit],
        records: list[RequestRecord],
    ) -> None:
        self._replication = replication
        self._pace = pace
        self._identity = identity
        self._in_flight = in_flight
        self._local = local
        self._edits = edits
        self._records = records
        self._sent: deque[_Sent] = deque()  # in the order of the entries in flight with work REPLICA
        self._walk: ReplicaAnswer | None = None
        self._held_ms: float | None = None  # since when a request is held
        self._sessionless: SessionMirror | None = None
        """what the broker was asked the last time, when it gave no session for it: its place in the buckets'
        queues and what is known of its partitions are not to be lost with every fetch"""

    def judge(
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
    ) -> bool | None:
        """Forward a follower's fetch, changed or not, hold or answer it. None: it is no follower's.

        False: more of it must come, or it waits. Raises MalformedFrame.
        """
        if not FIRST_WITH_TOPIC_IDS <= version <= LAST_KNOWN:
            return None
        users = self._replication.users
        if users is not None and self._identity.user not in users:
            return None
        if frame_end > end:
            return False
        body = request_body(buf, client_id_end, frame_end, api_key, version) - pos
        request = read_replica_fetch(bytes(buf[pos:frame_end]), body, version)
        if request.replica_id < 0:
            return None
        mirror = self._begun_anew(request) if request.is_full else self._replication.find(request)
        if mirror is None:
            self._refuse(pos, frame_end, api_key, version, correlation_id, request.session_id, now_ms)
            return True
        mirror.take(request)
        plan = mirror.plan(request, now_ms)
        hold_ms = plan.hold_ms
        if mirror is self._sessionless and mirror.waiting and not plan.grants:
            held_ms = 0.0 if self._held_ms is None else now_ms - self._held_ms
            hold_ms = min(mirror.wait_ms(now_ms), SESSIONLESS_HOLD_MS - held_ms)
        if hold_ms > 0.0:
            if self._held_ms is None:
                self._held_ms = now_ms
            self._pace.mute(now_ms + hold_ms, now_ms, None, at_boundary=True)
            return False
        held_ms = 0.0 if self._held_ms is None else now_ms - self._held_ms
        self._held_ms = None
        mirror.commit(plan, now_ms)
        if request.is_full:
            if request.session_id:
                self._replication.forget(request.session_id)
        else:
            mirror.went()
        if plan.frame is not None:
            self._edits.append((pos, frame_end, plan.frame))
        self._sent.append(_Sent(mirror, request, plan.grants))
        self._in_flight.append((
            correlation_id, api_key, version, self._identity.flow, frame_end - pos,
            now_ms, held_ms, 0.0, None, REPLICA,
        ))  # fmt: skip
        return True

    def _begun_anew(self, request: ReplicaFetch) -> SessionMirror:
        """The mirror of a session that a full fetch begins."""
        mirror = self._sessionless
        if mirror is None or mirror.replica_id != request.replica_id:
            return SessionMirror(request.replica_id, self._replication)
        mirror.begin_anew(request)
        return mirror

    def _refuse(
        self,
        pos: int,
        frame_end: int,
        api_key: int,
        version: int,
        correlation_id: int,
        session_id: int,
        now_ms: float,
    ) -> None:
        """Error 71, once: the follower closes the session, which is not known here, and fetches all anew."""
        self._replication.unknown_sessions += 1
        body = _ERROR_BODY.pack(0, 0, ErrorCode.INVALID_FETCH_SESSION_EPOCH, session_id, 1, 0)
        answer = INT32.pack(4 + len(body)) + INT32.pack(correlation_id) + body
        flow, request_bytes = self._identity.flow, frame_end - pos
        self._local.add(
            answer,
            self._in_flight,
            (correlation_id, api_key, version, flow, request_bytes, now_ms, 0.0, 0.0, None, LOCAL),
        )
        self._records.append((
            flow, request_bytes, len(answer), 0.0, 0.0, 0.0, now_ms,
            api_key, version, self._identity.user, None,
        ))  # fmt: skip
        self._edits.append((pos, frame_end, b""))

    # Answers ----------------------------------------------------------------------------------------------

    @property
    def is_walking(self) -> bool:
        """An answer has begun and not ended."""
        return self._walk is not None

    def begin(self, buf: bytearray, pos: int, end: int, frame_end: int, now_ms: float) -> None:
        """The answer to the oldest fetch that is out begins at `pos`; it has arrived up to `end`.

        Raises BrokerMalformed.
        """
        start = pos + RESPONSE_HEAD_BYTES
        self._walk = ReplicaAnswer(frame_end - start)
        self.go_on(buf, start, min(end, frame_end), now_ms)

    def go_on(self, buf: bytearray, start: int, end: int, now_ms: float) -> None:
        """It goes on, and does not reach beyond its end. Raises BrokerMalformed."""
        walk = self._walk
        assert walk is not None
        try:
            walk.feed(buf, start, end)
        except MalformedFrame as error:
            malformed = BrokerMalformed(error.reason, api_key=FETCH)
            malformed.good_end = start
            raise malformed from None
        if not walk.left_bytes:
            self._walk = None
            self._answered(walk, now_ms)

    def _answered(self, walk: ReplicaAnswer, now_ms: float) -> None:
        sent = self._sent.popleft()
        mirror, request = sent.mirror, sent.request
        if walk.error_code:
            self._replication.forget(request.session_id)
            give_back(sent.grants, now_ms)
            return
        written_bytes = mirror.answered(sent.grants, walk.partitions, request.max_bytes, now_ms)
        if written_bytes:
            self._replication.written_rate.record(written_bytes, int(now_ms))
        came_bytes = sum(partition[3] for partition in walk.partitions)
        if came_bytes:
            self._replication.passed(request.replica_id, came_bytes)
        if not request.is_full:
            if not walk.session_id:  # closed by the broker
                self._replication.forget(request.session_id)
        elif walk.session_id:
            self._left_sessionless(None)
            self._replication.begun(mirror, walk.session_id)
        else:
            self._left_sessionless(mirror)

    def _left_sessionless(self, mirror: SessionMirror | None) -> None:
        before, self._sessionless = self._sessionless, mirror
        if before is not None and before is not mirror:
            before.dropped()

    def closed(self, now_ms: float) -> None:
        """The connection has ended: nothing more comes for what is out."""
        for sent in self._sent:
            give_back(sent.grants, now_ms)
        self._sent.clear()
        self._left_sessionless(None)
