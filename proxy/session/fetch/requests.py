"""The Fetch requests of a connection: lowered to their grant, held, or ended without records. Pure.

The half of RequestSide (requests.py) that is about Fetch and ShareFetch.
"""

from __future__ import annotations

from abc import ABC
from typing import Final

from sluice.protocol.apis import FETCH, OFFERED
from sluice.protocol.errors import UnsupportedVersion
from sluice.protocol.fetch import (
    FIRST_FLEXIBLE,
    MAX_BYTES_AT,
    closing_fetch,
    max_bytes_offset,
    read_session,
)
from sluice.protocol.headers import request_body
from sluice.protocol.replication.fetch_request import is_follower
from sluice.proxy.session.authentication import WHOLE_MAX_BYTES
from sluice.proxy.session.fetch.turns import Turn
from sluice.proxy.session.identity import Identity
from sluice.proxy.session.in_flight import CHARGE, DECLARED, NEW_SESSION, NO_RECORDS, InFlight
from sluice.proxy.session.local_responses import LocalAnswers
from sluice.proxy.session.policy import SessionPolicy, SharedState
from sluice.proxy.session.produce.requests import HEAD_ENOUGH_BYTES, ProduceSide
from sluice.proxy.session.read_gate import Pace
from sluice.proxy.session.replication.requests import ReplicaRequests
from sluice.proxy.session.throttling import Throttling
from sluice.proxy.session.topic_attribution import NO_TOPICS, TOPICS_AT, Flows, is_incremental
from sluice.quotas.sensors.sensor import Sensor
from sluice.usage.flow import REFUSED

_GO: Final = Turn.GO


class FetchSide(ProduceSide, ABC):
    """The fetches of one connection. The parts that it is given are shared with the session's other side."""

    __slots__ = (
        "_fetch_flow", "_fetch_head", "_followers", "_greeted_at", "_is_follower", "_policy", "replicas",
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
        super().__init__(shared, policy, pace, identity, throttling, in_flight, local, flows)
        self._policy = policy
        # As for Produce; from the topics on, of a Fetch whose session has one topic.
        self._fetch_head = None if flows is None else flows.fetch_head
        self._fetch_flow = identity.flow
        self.replicas: ReplicaRequests | None = None
        """of an inter-broker listener: where followers' fetches are judged"""
        if policy.replication is not None:
            self.replicas = ReplicaRequests(
                policy.replication, pace, identity, in_flight, local, self.edits, self._records
            )
        # Are its Fetches a broker's? None: not known yet.
        self._is_follower: bool | None = None
        self._greeted_at = -1  # requests that had gone on when one waited for what its user owes
        self._followers = shared.recorder.followers

    def _is_for_nobody(self) -> bool:
        """A client that has left had waited for what its user owes of request time, and nothing behind its
        login, if there was one, has gone on. Nor does its first request, or who leaves would wait for
        nothing."""
        return self.count == self._greeted_at

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
        if not is_believed and frame_end - pos > HEAD_ENOUGH_BYTES:
            return True  # charged whatever it names, and to read it would take a while
        names_replica = is_follower(buf, pos, client_id_end, end, frame_end, version)
        if names_replica is None:
            return not is_believed
        self._is_follower = names_replica and is_believed
        if names_replica:
            self._followers["exempt" if is_believed else "charged"] += 1
        return True

    def _forward_followers(
        self, correlation_id: int, version: int, request_bytes: int, now_ms: float
    ) -> bool:
        """A follower's Fetch is charged to nobody."""
        if self._flows is not None:
            self._identity.flow = self._flows.other(FETCH)
        self._in_flight.append((
            correlation_id, FETCH, version, self._identity.flow, request_bytes,
            now_ms, 0.0, 0.0, None, DECLARED,
        ))  # fmt: skip
        return True

    def _fetch(
        self, buf: bytearray, pos: int, end: int, frame_end: int, api_key: int, version: int, correlation_id:
        int, client_id_end: int, now_ms: float,
    ) -> bool:  # fmt: skip
        """Lower a Fetch's max_bytes to its connection's share, and forward it; its answer will be charged."""
        first, last = OFFERED[api_key]
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
                return self._forward_followers(correlation_id, version, frame_end - pos, now_ms)
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
            if frame_end > end and end - pos <= WHOLE_MAX_BYTES:
                return False  # no broker answers it yet: what it reserves would be kept from the others
            fetches = self._throttling.fetches
            turn = fetches.turn(sensor, buf, offset, api_key, now_ms)
            if turn is not _GO:
                return self._wait_or_end(
                    turn, sensor, buf, pos, limit, frame_end, api_key, version, correlation_id, client_id_end,
                    offset, now_ms,
                )  # fmt: skip
            reserved, held_ms = fetches.reserved_bytes, fetches.held_ms
        elif self._throttling.fetches.is_held:
            held_ms = self._throttling.let_fetch_go(now_ms)
        self._in_flight.append((
            correlation_id, api_key, version, identity.flow, frame_end - pos,
            now_ms, held_ms, reserved, sensor, CHARGE,
        ))  # fmt: skip
        return True

    def _wait_or_end(
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
        self._mark(REFUSED)
        self._in_flight.append((
            correlation_id, FETCH, version, self._identity.flow, frame_end - pos,
            now_ms, throttling.fetches.held_ms, 0.0, None, work,
        ))  # fmt: skip
        closing = closing_fetch(buf, pos, client_id_end, version, session_id)
        self.edits.append((pos, limit, closing))
        shorter_by = limit - pos - len(closing)
        self.bytes_read -= shorter_by
        self.dropped_bytes += shorter_by  # or a later request would stand before it
        self._dropping = frame_end > limit
        return True
