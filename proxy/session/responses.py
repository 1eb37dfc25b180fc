"""The broker's side of a session: its bytes → answers matched, charged, patched, and how many bytes may go
on.

As requests.py, in place. An answer can only belong to the oldest request in flight; what does not fit ends
both connections before it is delivered. Pure.
"""

from __future__ import annotations

from math import ceil
from typing import Final

from sluice.protocol.addresses.addresses import Edit
from sluice.protocol.api_versions import VersionCaps
from sluice.protocol.apis import API_VERSIONS, METADATA, OFFERED, PRODUCE
from sluice.protocol.errors import MalformedFrame, ProtocolError
from sluice.protocol.groups import session_timeout_accepted
from sluice.protocol.headers import RESPONSE_HEAD, RESPONSE_HEAD_BYTES, SIZE_BYTES
from sluice.protocol.throttle_field import raise_in_whole
from sluice.proxy.session.answer_pieces import PIECE_BYTES, AnswerPieces, NameReader, has_enough_arrived
from sluice.proxy.session.authentication import WHOLE_MAX_BYTES, Authentication
from sluice.proxy.session.errors import BrokerError, BrokerMalformed, contradiction, malformed_answer
from sluice.proxy.session.fetch.responses import charge_fetch, tell_of_no_records
from sluice.proxy.session.gateway.address_rewrite import AddressWork, brake_ms_per_kib, is_slow
from sluice.proxy.session.identity import Identity
from sluice.proxy.session.in_flight import (
    AWAITED,
    CAP_VERSIONS,
    CHARGE,
    CLUSTER_ACTION,
    DECLARED,
    HANDED_OUT,
    JOIN,
    LOCAL,
    MUTATION,
    NEW_SESSION,
    NO_RECORDS,
    NONE,
    NOT_CHARGED,
    RAW_TOKEN,
    REPLICA,
    THROTTLE,
    TOKENS,
    TOPIC_SIZES,
    InFlight,
)
from sluice.proxy.session.local_responses import LocalAnswers
from sluice.proxy.session.mutations.responses import MutationAnswers
from sluice.proxy.session.policy import SessionPolicy, SharedState
from sluice.proxy.session.read_gate import Pace
from sluice.proxy.session.request_time import CLUSTER_ACTION_BRAKE_MS_PER_KIB
from sluice.proxy.session.requests import RequestSide
from sluice.proxy.session.throttling import Throttling
from sluice.proxy.session.token_owners import BRAKE_MS_PER_KIB as BRAKE_OF_TOKENS_MS_PER_KIB
from sluice.proxy.session.topic_attribution import FIRST_WITH_IDS
from sluice.usage.flow import AccessFlow

_API_VERSIONS_MAX: Final = OFFERED[API_VERSIONS][1]
_VERSIONS_OFFERED: Final = VersionCaps(OFFERED)


class AnswerSide:
    """The broker's side of one connection. The parts that it is given are shared with the session's other
    side."""

    __slots__ = (
        "_addresses", "_authentication", "_identity", "_in_flight", "_local", "_mutations", "_names",
        "_names_to", "_pace", "_pieces", "_records", "_requests", "_skip", "_throttling", "_token_owners",
        "bytes_read", "edits", "is_stopped",
    )  # fmt: skip

    def __init__(
        self, shared: SharedState, policy: SessionPolicy, pace: Pace, identity: Identity, authentication:
        Authentication, throttling: Throttling, in_flight: list[InFlight], requests: RequestSide, local:
        LocalAnswers,
    ) -> None:  # fmt: skip
        self._local = local
        self._pieces = AnswerPieces(pace, requests)
        told = [each for each in (shared.topic_names, shared.own_topic) if each is not None]
        self._names = NameReader(told, self._pieces) if told else None
        self._names_to = 0  # up to where the answer in which they are read may go on
        self.is_stopped = False
        """`data` has returned before it came to the end of what it can go on with: it is to be called again
        when others have been served, whether more has come or not"""
        self._token_owners = shared.token_owners
        self._records = shared.recorder.requests
        self._pace = pace
        self._identity = identity
        self._authentication = authentication
        self._throttling = throttling
        self._in_flight = in_flight
        self._requests = requests
        self._mutations: MutationAnswers | None = None
        self._skip = 0  # bytes of an answer that is worked on and still arrives
        self.bytes_read = 0
        """as the broker sent them: charges, records and sums know nothing of what a gateway rewrites"""
        self.edits: list[Edit] = []
        """(start, stop, replacement), sorted, without overlap, all before the offset that `data` returned (or
        the error's `good_end`): to be applied to what goes on, then cleared, beside patches in place."""
        brokers = policy.broker_map
        self._addresses = None if brokers is None else AddressWork(brokers, self.edits)

    @property
    def at_boundary(self) -> bool:
        """No answer is half read."""
        return not self._skip

    @property
    def left_bytes(self) -> int:
        """What is to come of the answer that is half read."""
        return self._skip

    @property
    def passing_bytes(self) -> int:
        """As of RequestSide: none while the rest of the answer is looked at, or changed."""
        addresses, mutations, replicas = self._addresses, self._mutations, self._requests.replicas
        names = self._names
        if (replicas is not None and replicas.is_walking) or (names is not None and names.left_bytes):
            return 0
        if (addresses is not None and addresses.left_bytes) or (
            mutations is not None and mutations.left_bytes
        ):
            return 0
        return self._skip

    def passed(self, count: int) -> None:
        """So many bytes went on without having been given to `data`, as RequestSide.passed."""
        self._skip -= count
        self.bytes_read += count

    # Whole on purpose, as RequestSide.data: every answer comes through here.
    def data(self, buf: bytearray, start: int, end: int, now_ms: float) -> int:
        """As RequestSide.data, for the broker's bytes. Raises ProtocolError (mostly BrokerError: they
        contradict what was asked); then both connections are to be closed."""
        self.is_stopped = False
        pos = self._rest_of_answer(buf, start, end, now_ms) if self._skip else start
        if self._skip:
            return pos
        in_flight, local, pieces = self._in_flight, self._local.due, self._pieces
        identity, throttling = self._identity, self._throttling
        try:
            while end - pos >= SIZE_BYTES:
                if not in_flight:
                    raise BrokerError("an answer that no request asked for")
                entry = in_flight[0]
                asked_id, api_key, version, flow, asked_bytes, sent_ms, held_ms, _, sensor, work = entry
                if work is RAW_TOKEN:
                    if (frame_end := self._raw_answer(buf, pos, end, now_ms)) > end:
                        break
                    in_flight.pop(0)
                    pos = frame_end
                    continue
                if end - pos < RESPONSE_HEAD_BYTES:
                    break
                size, correlation_id = RESPONSE_HEAD.unpack_from(buf, pos)
                if correlation_id != asked_id or size < SIZE_BYTES:
                    raise contradiction(correlation_id, asked_id, size, api_key, version)
                frame_end = pos + SIZE_BYTES + size
                throttle_ms = 0.0
                if work is not NONE or throttling.charges_answers:
                    if (worked := self._work_on(buf, pos, end, frame_end, now_ms)) is None:
                        break
                    if work is TOPIC_SIZES:
                        pos = self._begin_sizes(buf, pos, end, frame_end, now_ms)
                        break
                    throttle_ms = worked
                    if pieces.looked_at_bytes:
                        end = self._stop(frame_end, end)
                in_flight.pop(0)
                self._records.append((
                    flow, asked_bytes, size + SIZE_BYTES, now_ms - sent_ms, held_ms + throttle_ms,
                    held_ms, now_ms, api_key, version, identity.user, sensor,
                ))  # fmt: skip
                if frame_end > end:
                    pos = self._cut_through(frame_end, end)
                    break
                pos = frame_end
                if local:
                    self._put_local(pos)
        except ProtocolError as error:
            error.good_end = pos
            self.bytes_read += pos - start  # they go on
            raise
        pace = self._pace
        if pace.is_full and len(in_flight) <= pace.max_in_flight // 2 and self._local.has_room:
            pace.broker_answered()
            if pace.gate_ms > now_ms and self._requests.at_boundary:
                pace.meet_gate()
        self.bytes_read += pos - start
        return pos

    def _rest_of_answer(self, buf: bytearray, start: int, end: int, now_ms: float) -> int:
        """More of an answer that is worked on has come. Returns up to where it may pass; the answer is whole
        only if `_skip` is 0 now."""
        skip = self._skip
        addresses, mutations, replicas = self._addresses, self._mutations, self._requests.replicas
        names = self._names
        if replicas is not None and replicas.is_walking:
            replicas.go_on(buf, start, min(start + skip, end), now_ms)
        if addresses is not None and addresses.left_bytes:
            passed = self._look_through(buf, start, end)
        elif mutations is not None and mutations.left_bytes:
            passed = mutations.go_on(buf, start, min(start + skip, end), now_ms)
            self._skip = mutations.left_bytes
            self.is_stopped = start + passed < min(start + skip, end)
        elif names is not None and names.left_bytes:
            passed = names.go_on(buf, start, min(start + skip, end), now_ms)
            self._skip = skip - passed
            self.is_stopped = start + passed < min(start + skip, end)
        else:
            passed = min(skip, end - start)
            self._skip = skip - passed
        if self._skip:
            self.bytes_read += passed
        else:
            self._local.mid_answer = False
            self._put_local(start + passed)
        return start + passed

    def _stop(self, frame_end: int, end: int) -> int:
        """The answer that ends at `frame_end` took long to work on. Returns up to where this look goes."""
        if self._names is not None and self._names.left_bytes:
            stop = min(self._names_to, end)
        elif self._pieces.looked_at_bytes >= PIECE_BYTES:
            stop = min(frame_end, end)
        else:
            return end
        self._pieces.looked_at_bytes = 0
        self.is_stopped = stop < end
        return stop

    def _cut_through(self, frame_end: int, end: int) -> int:
        """An answer goes on whose end has not arrived. Returns up to where."""
        left_bytes = 0 if self._addresses is None else self._addresses.left_bytes
        self._skip = left_bytes or frame_end - end
        self._local.mid_answer = True
        return frame_end - self._skip

    def _begin_sizes(self, buf: bytearray, pos: int, end: int, frame_end: int, now_ms: float) -> int:
        """The broker's answer to a question of ours. Returns how far it has been read."""
        stop = self._reader().begin_sizes(buf, pos, end, frame_end, now_ms)
        self._in_flight.pop(0)
        self._skip = frame_end - stop
        self._local.mid_answer = stop < frame_end
        self.is_stopped = stop < end
        return stop

    def _put_local(self, pos: int) -> None:
        """An answer has ended at `pos`: those of our own that are due next stand behind it."""
        in_flight = self._in_flight
        # An answer that is still being made (a question about quotas) is the last in flight, and not due.
        while in_flight and in_flight[0][9] is LOCAL and self._local.due:
            in_flight.pop(0)
            self.edits.append((pos, pos, self._local.take()))

    def _reader(self) -> MutationAnswers:
        """Reader of answers that tell of topics, made when the first of them comes."""
        if self._mutations is None:
            requests = self._requests.mutations
            assert requests is not None
            self._mutations = MutationAnswers(
                requests, self._pace, self._throttling, self.edits, self._pieces
            )
        return self._mutations

    def _look_through(self, buf: bytearray, start: int, end: int) -> int:
        """An answer goes on that may have addresses further on. Returns how many bytes may pass."""
        assert self._addresses is not None
        try:
            cut = self._addresses.pass_on(buf, start, end)
        except MalformedFrame as error:
            malformed = malformed_answer(error, start)
            malformed.good_end = start
            raise malformed from None
        self._skip = self._addresses.left_bytes
        return cut - start

    def _work_on(self, buf: bytearray, pos: int, end: int, frame_end: int, now_ms: float) -> float | None:
        """Charge, patch or learn from the answer due. Returns the throttle in ms that its request brought
        about; None: more of the answer must come first."""
        entry = self._in_flight[0]
        _, api_key, version, _, _, _, _, _, sensor, work = entry
        throttling = self._throttling
        request_time = throttling.request_time
        throttle_ms = 0.0
        try:
            replicas = self._requests.replicas
            has_names = self._names is not None and api_key == METADATA and version >= FIRST_WITH_IDS
            has_names = has_names and work is not TOPIC_SIZES
            if end < frame_end and not has_enough_arrived(
                buf, pos, end, frame_end, api_key, version, work, request_time, reads_names=has_names
            ):
                return None
            if work is CHARGE:
                if sensor is not None:
                    throttle_ms = charge_fetch(
                        throttling, buf, pos, end, frame_end, entry, sensor, now_ms,
                        at_boundary=self._requests.at_boundary,
                    )  # fmt: skip
            elif work is not NONE:
                throttle_ms = self._work_on_answer(buf, pos, end, frame_end, entry, now_ms)
            if work is REPLICA and replicas is not None:
                replicas.begin(buf, pos, end, frame_end, now_ms)
            elif work is CLUSTER_ACTION or work is DECLARED:
                decoded_bytes = throttling.charge_cluster_action(
                    buf, pos, end, frame_end, entry, now_ms, self._requests.at_boundary
                )
                if decoded_bytes:
                    self._pieces.took(decoded_bytes, CLUSTER_ACTION_BRAKE_MS_PER_KIB, now_ms)
            elif request_time is not None:
                request_time.charge(
                    buf, pos, end, frame_end, entry, throttling.delay_limit_ms, now_ms,
                    at_boundary=self._requests.at_boundary,
                )  # fmt: skip
            if work is TOPIC_SIZES:  # its client has paid for it as for one of his own; nothing of it goes on
                return 0.0
            if work is MUTATION:
                self._reader().begin_results(buf, pos, end, frame_end, now_ms)
            if self._addresses is not None and work is not NONE:
                if is_slow(api_key, work):
                    self._pace.broker_answered()
                looked_at = self._addresses.rewrite(buf, pos, end, frame_end, api_key, version, work)
                if looked_at:
                    self._pieces.took(looked_at, brake_ms_per_kib(work), now_ms)
            if self._names is not None and has_names:
                body = pos + RESPONSE_HEAD_BYTES
                changed_to = self.edits[-1][1] if self.edits else body
                self._names_to = self._names.begin(
                    buf, body, min(end, frame_end), frame_end, changed_to, now_ms
                )
        except MalformedFrame as error:
            raise malformed_answer(error, pos, api_key, version) from None
        return throttle_ms

    def _work_on_answer(
        self, buf: bytearray, pos: int, end: int, frame_end: int, entry: InFlight, now_ms: float
    ) -> float:
        """As _work_on, for what is no Fetch and has arrived as far as is needed."""
        _, api_key, version, _, request_bytes, forwarded_ms, _, noted, sensor, work = entry
        if work in AWAITED:
            self._pace.broker_answered()
        if work in NOT_CHARGED:
            return 0.0
        if work is MUTATION:
            return noted - forwarded_ms
        if work is NEW_SESSION or work is NO_RECORDS:
            tell_of_no_records(self._throttling, buf, pos, min(end, frame_end), version, work, now_ms)
            return 0.0
        if work is THROTTLE:
            assert sensor is not None
            told_ms = self._throttling.produces.tell_ms(sensor, noted, request_bytes, now_ms)
            if told_ms > 0.0 and frame_end <= end:
                raise_in_whole(buf, pos, frame_end, PRODUCE, version, ceil(told_ms))
            return max(noted - forwarded_ms, 0.0)
        if work is JOIN:
            if session_timeout_accepted(buf, pos, min(end, frame_end), version):
                self._throttling.saw_session_timeout(int(noted))
            return 0.0
        if work is CAP_VERSIONS:
            # One in a layout newer than ours goes on as it is: what we cannot meter is refused when it is
            # used.
            if frame_end <= end and version <= _API_VERSIONS_MAX:
                _VERSIONS_OFFERED.lower(buf, pos + RESPONSE_HEAD_BYTES, frame_end, version)
            return 0.0
        if work is HANDED_OUT:
            if frame_end <= end and (transactions := self._requests.transactions) is not None:
                transactions.learn_handed_out(buf, pos, frame_end, api_key, version, int(noted), now_ms)
            return 0.0
        if work is TOKENS:
            if frame_end <= end:
                self._token_owners.learn_from(buf, pos, frame_end, api_key, version)
                self._pieces.took(frame_end - pos, BRAKE_OF_TOKENS_MS_PER_KIB, now_ms)
            return 0.0
        if frame_end > end:  # unread it could not be learnt from, and all would wait for it for ever
            raise MalformedFrame(f"{frame_end - pos} bytes to authenticate with")
        self._learn(self._authentication.answer(buf, pos, frame_end, api_key, version), now_ms)
        return 0.0

    def _raw_answer(self, buf: bytearray, pos: int, end: int, now_ms: float) -> int:
        size = int.from_bytes(buf[pos : pos + SIZE_BYTES], "big", signed=True)
        if not 0 <= size <= WHOLE_MAX_BYTES:
            raise BrokerMalformed(f"token of {size} bytes")
        frame_end = pos + SIZE_BYTES + size
        if frame_end <= end:
            self._learn(self._authentication.raw_answer(buf, pos + SIZE_BYTES, frame_end), now_ms)
        return frame_end

    def _learn(self, user: str | None, now_ms: float) -> None:
        """The broker answered an authentication. With a user it said yes: his quotas apply from now on."""
        self._requests.raw_tokens = self._authentication.raw_tokens
        self._pace.broker_answered()
        if user is not None:
            flow = self._in_flight[0][3]
            if isinstance(flow, AccessFlow):
                flow.origin.user = user
                flow.ask_anew()
            self._identity.logged_in(user, self._authentication.session_lifetime_ms, now_ms)
            self._requests.lift_frame_limit()
            self._throttling.forget()
