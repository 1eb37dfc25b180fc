"""The requests that no byte rate covers: what their answers will need, and what may not pass at all. Pure.

Part of a connection's RequestSide (requests.py), which finds the frames and calls `judge` as it calls its own
methods for Produce and Fetch.
"""

from __future__ import annotations

from contextlib import suppress
from functools import lru_cache
from typing import Final

from sluice.protocol.api_versions import FIRST_WITH_SOFTWARE, client_software
from sluice.protocol.apis import (
    API_VERSIONS,
    AUTHENTICATION_APIS,
    CLUSTER_ACTIONS,
    GROUP_APIS,
    JOIN_GROUP,
    MEMBER_APIS,
    METADATA,
    MUTATION_APIS,
    OFFERED,
    QUOTA_APIS,
    SASL_AUTHENTICATE,
    TOKEN_APIS,
    TRANSACTION_APIS,
)
from sluice.protocol.errors import MalformedFrame
from sluice.protocol.groups import member_timeout_ms, session_timeout_ms
from sluice.protocol.headers import SIZE_BYTES, refuse_size, request_body
from sluice.protocol.request_layout import MAX_BYTES, check_layout
from sluice.proxy.session.authentication import WHOLE_MAX_BYTES, Authentication
from sluice.proxy.session.errors import LoginNotTaken, UnknownApi
from sluice.proxy.session.gateway.address_rewrite import is_slow, work_in_gateway
from sluice.proxy.session.identity import Identity
from sluice.proxy.session.in_flight import (
    AWAITED,
    CAP_VERSIONS,
    CLUSTER_ACTION,
    DECLARED,
    JOIN,
    NAMES,
    NONE,
    RAW_TOKEN,
    TOKENS,
    AnswerWork,
    InFlight,
)
from sluice.proxy.session.mutations.requests import MutationRequests
from sluice.proxy.session.policy import SessionPolicy
from sluice.proxy.session.producer_ids.transactions import TransactionRequests
from sluice.proxy.session.quota_requests import QuotaRequests
from sluice.proxy.session.read_gate import Pace
from sluice.proxy.session.throttling import Throttling
from sluice.proxy.session.topic_attribution import Flows

_JOIN_GROUP_MAX: Final = OFFERED[JOIN_GROUP][1]
_SOFTWARE_TOLD: Final = 64
"""characters of a client's software that are kept"""
_SOFTWARE_MAX_BYTES: Final = 1024
"""of an ApiVersions request that names its client; what is longer is not remembered"""


class OtherRequests:
    """Judges the other requests of one connection."""

    __slots__ = (
        "_authentication",
        "_flows",
        "_identity",
        "_in_flight",
        "_names_ids",
        "_pace",
        "_policy",
        "_throttling",
        "mutations",
        "quota_requests",
        "transactions",
    )

    def __init__(
        self,
        policy: SessionPolicy,
        pace: Pace,
        identity: Identity,
        authentication: Authentication,
        throttling: Throttling,
        in_flight: list[InFlight],
        flows: Flows | None,
        *,
        names_ids: bool = False,
    ) -> None:
        """`names_ids`: whose topic ids are is to be read in answers, though no access log asks for it."""
        self._flows = flows
        self._names_ids = names_ids
        self._policy = policy
        self._pace = pace
        self._identity = identity
        self._authentication = authentication
        self._throttling = throttling
        self._in_flight = in_flight
        self.quota_requests: QuotaRequests | None = None
        """where the proxy answers what is asked about quotas"""
        self.mutations: MutationRequests | None = None
        """of a principal that has, or had, a limit on controller mutations"""
        self.transactions: TransactionRequests | None = None
        """of a principal that has, or had, a limit on producer ids"""

    # Flat on purpose: one case for each class of API, in the order in which they shut each other out.
    def judge(
        self, buf: bytearray, pos: int, end: int, frame_end: int, api_key: int, version: int, correlation_id:
        int, client_id_end: int, now_ms: float,
    ) -> bool:  # fmt: skip
        """Forward the request, and note what its connection is used for. False: more of it must come first.

        Raises ProtocolError for one that may not pass.
        """
        work: AnswerWork = NONE
        flows = self._flows
        if flows is not None:
            self._identity.flow = flows.other(api_key)
        if api_key == METADATA and (flows is not None or self._names_ids):
            work = NAMES
        timeout_ms = 0
        found = self._look_through(buf, pos, client_id_end, end, frame_end, api_key, version)
        if found is None:
            return False
        if found is not NONE:
            work = found
        if api_key == API_VERSIONS:
            work = CAP_VERSIONS
            self._note_software(buf, client_id_end, min(end, frame_end), version)
        elif api_key in AUTHENTICATION_APIS:
            if not self._policy.takes_logins:
                raise LoginNotTaken("a login on a listener without SASL (is the client's protocol SASL_SSL?)")
            if not self._authentication.check_whole(end, pos, frame_end, WHOLE_MAX_BYTES):
                return False
            work = self._authentication.request(buf, client_id_end, frame_end, api_key, version)
            self._pace.await_broker()
        elif api_key in GROUP_APIS:
            if api_key == JOIN_GROUP and version <= _JOIN_GROUP_MAX:
                timeout_ms = _session_timeout_ms(buf, client_id_end, min(end, frame_end), version)
                work = JOIN
            self._throttling.is_group = True
            self._note_member(buf, client_id_end, min(end, frame_end), api_key, version, now_ms)
        elif api_key in CLUSTER_ACTIONS:
            work = DECLARED if self._policy.inter_broker.covers(self._identity.user) else CLUSTER_ACTION
        elif self.quota_requests is not None and api_key in QUOTA_APIS:
            return self.quota_requests.ask(buf, pos, end, frame_end, api_key, version, correlation_id, now_ms)
        elif (sensor := self._throttling.mutation_sensor) is not None and api_key in MUTATION_APIS:
            if self.mutations is not None and not sensor.exempt:
                return self.mutations.judge(
                    buf, pos, end, frame_end, api_key, version, correlation_id, client_id_end, now_ms, sensor
                )
        elif self.transactions is not None and api_key in TRANSACTION_APIS:
            return self.transactions.judge(
                buf, pos, end, frame_end, api_key, version, correlation_id, client_id_end, now_ms
            )
        elif api_key in TOKEN_APIS:
            work = TOKENS
        elif api_key not in OFFERED and not self._policy.pass_unknown_apis:
            raise UnknownApi("an API that this proxy does not know")
        if work in AWAITED or (found is not NONE and is_slow(api_key, found)):
            self._pace.await_broker()
        self._in_flight.append((
            correlation_id, api_key, version, self._identity.flow, frame_end - pos,
            now_ms, 0.0, timeout_ms, None, work,
        ))  # fmt: skip
        return True

    def _look_through(
        self, buf: bytearray, pos: int, client_id_end: int, end: int, frame_end: int, api_key: int, version:
        int,
    ) -> AnswerWork | None:  # fmt: skip
        """A broker can read it, and no answer to it could pass a gateway unseen. Returns the gateway's work
        on its answer; None: more of it must come first. Raises ProtocolError where that is not so."""
        work: AnswerWork | None = NONE
        if self._policy.broker_map is not None:
            work = work_in_gateway(buf, pos, client_id_end, end, frame_end, api_key, version)
        if frame_end - client_id_end <= MAX_BYTES and api_key not in AUTHENTICATION_APIS:
            if frame_end > end:
                return None
            check_layout(buf, client_id_end, frame_end, api_key, version)
        return work

    def _note_software(self, buf: bytearray, client_id_end: int, end: int, version: int) -> None:
        """How patient is the client? What cannot be read, of a newer version or longer than is waited for,
        names nobody, and goes on."""
        if version < FIRST_WITH_SOFTWARE:
            return
        rest = bytes(buf[client_id_end:end])
        read = _known_software if len(rest) <= _SOFTWARE_MAX_BYTES else _software
        name, told = read(rest, version)
        if told:
            self._throttling.use_software(name)
            self._identity.software = told

    def _note_member(
        self, buf: bytearray, client_id_end: int, end: int, api_key: int, version: int, now_ms: float
    ) -> None:
        """A member's ids are waited for by its group. What cannot be read names no timeout, and goes on."""
        ids, timeout_ms = self._throttling.ids, 0
        if ids is None or api_key not in MEMBER_APIS:
            return
        if version <= OFFERED[api_key][1]:
            with suppress(MalformedFrame):
                body = request_body(buf, client_id_end, end, api_key, version)
                timeout_ms = member_timeout_ms(buf, body, end, api_key, version)
        ids.gate.saw_member(timeout_ms, now_ms)

    def raw_token(self, buf: bytearray, pos: int, end: int, now_ms: float) -> int:
        """A bare token of SaslHandshake v0. Returns its end, which may not have arrived yet."""
        limit = min(self._policy.max_frame_bytes_before_authentication, WHOLE_MAX_BYTES)
        size = int.from_bytes(buf[pos : pos + SIZE_BYTES], "big", signed=True)
        if not 0 <= size <= limit:
            raise refuse_size(buf, pos, end, size, limit)
        frame_end = pos + SIZE_BYTES + size
        if frame_end <= end:
            self._authentication.raw_token(buf, pos + SIZE_BYTES, frame_end)
            self._pace.await_broker()
            flow = self._identity.flow if self._flows is None else self._flows.other(SASL_AUTHENTICATE)
            self._in_flight.append(
                (0, SASL_AUTHENTICATE, 0, flow, frame_end - pos, now_ms, 0.0, 0.0, None, RAW_TOKEN)
            )
        return frame_end


def _software(rest: bytes, version: int) -> tuple[str, str]:
    """(name, what is told of it) of a client, by the rest of its ApiVersions from the header's tags on. ("",
    "") for what cannot be read."""
    buf = bytearray(rest)
    try:
        body = request_body(buf, 0, len(buf), API_VERSIONS, version)
        name, software_version = client_software(buf, body, len(buf))
    except MalformedFrame:
        return "", ""
    return name, f"{name} {software_version}"[:_SOFTWARE_TOLD]


_known_software: Final = lru_cache(maxsize=256)(_software)
"""The same, and one string for all connections of a client program; for what is short. Anybody may send 256
long ones before a login, and these would stay for as long as the process."""


def _session_timeout_ms(buf: bytearray, client_id_end: int, end: int, version: int) -> int:
    """What a JoinGroup asks for."""
    return session_timeout_ms(buf, request_body(buf, client_id_end, end, JOIN_GROUP, version), end, version)
