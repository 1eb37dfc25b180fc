"""The client's side of a session: its bytes → requests judged, charged, remembered; how many may go on.

Works in place on the caller's buffer, for it lies on the way of every byte: frames are found, charged,
patched and left where they are, and no object is made per frame but the tuple that remembers it. Pure.
"""

from __future__ import annotations

from typing import Final

from sluice.protocol.apis import API_VERSIONS, AUTHENTICATION_APIS, FETCHES, PRODUCE, PRODUCER_ID_APIS
from sluice.protocol.errors import ProtocolError
from sluice.protocol.headers import MIN_REQUEST_SIZE, REQUEST_HEAD, REQUEST_HEAD_BYTES, SIZE_BYTES, check_size
from sluice.protocol.primitives import java_text
from sluice.proxy.session.authentication import Authentication
from sluice.proxy.session.causes import DisconnectCause
from sluice.proxy.session.errors import NotAuthenticated, client_id_too_long, may_be_cut_off
from sluice.proxy.session.fetch.requests import FetchSide
from sluice.proxy.session.identity import Identity
from sluice.proxy.session.in_flight import InFlight
from sluice.proxy.session.local_responses import LocalAnswers
from sluice.proxy.session.mutations.requests import MutationRequests
from sluice.proxy.session.other_requests import OtherRequests
from sluice.proxy.session.own_topic.topic_acl import Judge, TopicGuard
from sluice.proxy.session.policy import SessionPolicy, SharedState
from sluice.proxy.session.produce.leaving import Leaving
from sluice.proxy.session.produce.requests import HEAD_ENOUGH_BYTES
from sluice.proxy.session.produce.unacknowledged import unacknowledged, unacknowledged_bytes
from sluice.proxy.session.producer_ids.transactions import TransactionRequests
from sluice.proxy.session.quota_requests import QuotaRequests
from sluice.proxy.session.read_gate import Pace
from sluice.proxy.session.throttling import Throttling
from sluice.proxy.session.topic_attribution import Flows
from sluice.quotas.limits.client_ids import MAX_CLIENT_ID
from sluice.usage.records import Flow

_BEFORE_AUTHENTICATION: Final = AUTHENTICATION_APIS | {API_VERSIONS}
_UNKNOWN_LENGTH: Final = -2  # no client id has this length, so the first request is looked up


class RequestSide(FetchSide):
    """The client's side of one connection. The parts that it is given are shared with the session's other
    side."""

    __slots__ = (
        "_client_id_length", "_frame_limit", "_guard", "_leaving", "_others", "_quotas", "_topic_defaults",
        "quota_requests", "raw_tokens",
    )  # fmt: skip

    def __init__(
        self,
        shared: SharedState,
        policy: SessionPolicy,
        pace: Pace,
        identity: Identity,
        authentication: Authentication,
        throttling: Throttling,
        in_flight: list[InFlight],
        local: LocalAnswers,
        flows: Flows | None,
    ) -> None:
        super().__init__(shared, policy, pace, identity, throttling, in_flight, local, flows)
        self._quotas = shared.quotas
        self._others = OtherRequests(
            policy, pace, identity, authentication, throttling, in_flight, flows,
            names_ids=shared.own_topic is not None,
        )  # fmt: skip
        self.quota_requests = None
        if policy.quota_api is not None:
            self.quota_requests = QuotaRequests(
                policy.quota_api, pace, identity, in_flight, local, self._records, self._drop
            )
        self._others.quota_requests = self.quota_requests
        self._topic_defaults = shared.topic_defaults
        self._leaving: Leaving | None = None
        self._guard: TopicGuard | Leaving | None = None
        if shared.own_topic is not None:
            self._guard = TopicGuard(
                shared.own_topic, identity, in_flight, local, self._records, self._drop_granted, pace
            )
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
    def position(self) -> int:
        """How many of the client's bytes are done with: the position of the next that `data` is given."""
        return self.bytes_read + self.dropped_bytes

    @property
    def passing_bytes(self) -> int:
        """Bytes still to come of a frame that goes on as it is."""
        return 0 if self._dropping else self._skip

    def passed(self, count: int) -> None:
        """So many of them went on without having been given to `data`; one at least is left for it."""
        self._skip -= count
        self.bytes_read += count

    def drop_held(self, now_ms: float) -> None:
        """A held request, if there is one, will never go."""
        if self._throttling.ids is not None:
            self._throttling.ids.dropped(now_ms)
        self._throttling.produces.drop(now_ms)

    def leaves(self, kept: bytes | bytearray) -> None:
        """The client has left, while it was held or muted. `kept`: of what it sent."""
        self.client_left = True
        self._leave()
        frames = kept if isinstance(kept, bytearray) else bytearray(kept)
        self._throttling.produces.leaves(unacknowledged_bytes(frames))

    def drop_answered(self) -> None:
        """Nothing that is answered goes any more, for nothing can be sent to the client."""
        leaving = self._leave()
        if not leaving.drops:
            leaving.drops = True
            leaving.cause = DisconnectCause.CLIENT_RESET

    def _leave(self) -> Leaving:
        if self._leaving is None:
            guard = self._guard
            assert not isinstance(guard, Leaving)
            self._guard = self._leaving = Leaving(
                self._pace, guard, self._is_for_nobody, self._drop_unforwarded
            )
        return self._leaving

    @property
    def has_left_behind(self) -> bool:
        """The client has left, and since then something of it with acks = 0 has gone on, or is to."""
        leaving = self._leaving
        return leaving is not None and (leaving.has_passed or self._throttling.produces.is_for_nobody)

    def wake_for_ids(self, now_ms: float, *, left_since: bool) -> None:
        """The request that waits for its producer ids: its turn, or its time, may have come. `left_since`:
        its client has left meanwhile."""
        ids = self._throttling.ids
        assert ids is not None
        if left_since and ids.acks != 0:
            ids.dropped(now_ms)
            self.skip_held()
        elif ids.is_over(now_ms) and self._throttling.is_id_limit_another():
            ids.judge_again(now_ms)
            self._pace.release(0.0)
        elif ids.woken(now_ms):
            self._pace.release(0.0)  # the shell gives it again
        else:
            self._pace.wake_at_ms = ids.wake_at_ms

    def skip_held(self) -> None:
        """The client has left: the held request, given again, is dropped, and so is what is answered behind
        it."""
        assert self._leaving is not None
        self._leaving.drops = True
        self._pace.release(0.0)

    def client_closed(self, cause: DisconnectCause) -> None:
        """No more bytes come. `cause`: why, if nothing was dropped because the client had left."""
        detail = ""
        if self._leaving is not None and self._leaving.detail:
            cause, detail = self._leaving.cause, self._leaving.detail
        self._pace.end(cause, detail, at_boundary=True)

    def _drop_granted(self, pos: int, arrived_end: int, frame_end: int, now_ms: float) -> None:
        """As `_drop_frame`, of a request that its judge may have held and let go: what it was granted is
        given back, or the next request would take it for its own."""
        throttling = self._throttling
        if throttling.ids is not None:
            throttling.ids.dropped(now_ms)
        if throttling.fetches.is_held:
            throttling.let_fetch_go(now_ms)
        self._drop_frame(pos, arrived_end, frame_end)

    def _drop_unforwarded(self, pos: int, arrived_end: int, frame_end: int, now_ms: float) -> None:
        """As `_drop_granted`, of a request that does not count."""
        self._drop_granted(pos, arrived_end, frame_end, now_ms)
        self.count -= 1

    def closed(self) -> None:
        """Nothing comes any more. What holds a method of this side lets go of it: in a circle it would stay
        until the garbage collector comes."""
        self.quota_requests = self._others.quota_requests = self._others.transactions = None
        self._guard = self._leaving = None

    def name_broker(self, broker: str) -> None:
        """The one that requests go to, in their records."""
        if self._flows is not None:
            self._flows.origin.broker = broker

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
        in_flight, guard, self._start = self._in_flight, self._guard, start
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
                    raise client_id_too_long(id_length, pos, api_key, version)
                if client_id_end > end:
                    break
                judge, begin = self._produce, self._produce_begin
                if api_key != PRODUCE:
                    judge = self._fetch if api_key in FETCHES else self._judge_of_others(api_key, now_ms)
                    begin = self._client_id_raw
                if guard is not None:
                    judge, begin = self._guarded(guard, judge, begin, api_key)
                try:
                    if (
                        id_length != self._client_id_length
                        or throttling.generation != quotas.generation
                        or (begin is not None and not buf.startswith(begin, pos + REQUEST_HEAD_BYTES))
                    ) and self._begins_otherwise(buf, pos, client_id_end, id_length, api_key, now_ms):
                        break
                    if not judge(
                        buf, pos, end, frame_end, api_key, version, correlation_id, client_id_end, now_ms
                    ):
                        break
                except ProtocolError as error:
                    if may_be_cut_off(error, end, min(frame_end, pos + HEAD_ENOUGH_BYTES)):
                        break
                    error.api_key, error.api_version = api_key, version
                    raise
                self.count += 1
                if len(in_flight) >= pace.max_in_flight and not (self._leaving and self._leaving.drops):
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

    def take_unacknowledged(self, kept: bytearray, now_ms: float) -> bytearray:
        """Count the Produces with acks = 0 in `kept`, and return them. None where each would have to be
        judged: before a login, for producer ids, for the quota topic."""
        throttling, goes = self._throttling, bytearray()
        if throttling.are_ids_due:
            self._look_up_ids(now_ms)
        guard = self._guard if self._leaving is None else self._leaving.guard
        ids = throttling.ids
        if not self._identity.authenticated or guard is not None or (ids is not None and not ids.gates_only):
            return goes
        with memoryview(kept) as view:
            for begin, end, version in unacknowledged(kept):
                self.pass_unacknowledged(version, end - begin, now_ms)
                goes += view[begin:end]
        self.bytes_read += len(goes)
        return goes

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
        self, guard: TopicGuard | Leaving, judge: Judge, begin: bytes | tuple[()] | None, api_key: int
    ) -> tuple[Judge, bytes | tuple[()]]:
        """The guard of the own topic, or of who has left, looks first, and then has `judge` go on. It is told
        whose request is refused, so that the client id is always looked for."""
        if self._flows is not None:
            self._identity.flow = self._flows.other(api_key)
        guard.then = judge
        return guard.judge, self._client_id_raw if begin is None else begin

    def _end_over(self, error: ProtocolError, pos: int) -> None:
        """The connection ends for what stands in the frame at `pos`."""
        if error.offset is not None:
            error.offset -= pos
        self._pace.end(DisconnectCause(error.cause), str(error), at_boundary=True)

    def _begins_otherwise(
        self, buf: bytearray, pos: int, client_id_end: int, id_length: int, api_key: int, now_ms: float
    ) -> bool:
        """The client id, the user or the quotas are new, or what begins a Produce: its topic. True: the
        request waits, for its connection is new and its user owes.

        Comes for every request until the broker has said yes, for until then no generation is the current
        one.
        """
        start = pos + REQUEST_HEAD_BYTES
        if api_key == PRODUCE and self._throttling.are_ids_due:
            self._look_up_ids(now_ms)
        is_same = (
            id_length == self._client_id_length and self._throttling.generation == self._quotas.generation
        )
        if is_same and api_key == PRODUCE and self._flows is not None:
            known = self._flows.produces.find(buf, start)
            if known is not None:
                self._use_begin(known)
                return False
        if not is_same or not buf.startswith(self._client_id_raw, start):
            raw = bytes(buf[start:client_id_end])
            self._identify(raw, id_length, api_key, now_ms)
        self._forget_head()
        return self._pace.gate_ms > now_ms

    def _identify(self, raw: bytes, id_length: int, api_key: int, now_ms: float) -> None:
        """Whose sensors are charged from now on?"""
        identity = self._identity
        identity.client_id = java_text(raw)
        if id_length > MAX_CLIENT_ID:  # bytes: no fewer than characters
            identity.client_id = self._quotas.limits.client_ids.kept(identity.client_id)
        self._client_id_length = id_length
        self._client_id_raw = raw
        flows = self._flows
        if flows is None:
            identity.flow = Flow(identity.client_id)
        else:
            identity.flow = flows.of_client(identity.user, identity.client_id, api_key)
            self._fetch_head = flows.fetch_head
        if identity.authenticated:
            self._throttling.look_up(now_ms, api_key)
            if self._pace.gate_ms > now_ms:
                self._greeted_at = self.count
            if self._throttling.mutation_sensor is not None and self.mutations is None:
                self._others.mutations = MutationRequests(
                    self._topic_defaults, self._pace, identity, self._throttling,
                    self._in_flight, self._local, self.edits, self._records,
                    self._amounts,
                )  # fmt: skip
            self._judge_transactions()
        elif api_key not in _BEFORE_AUTHENTICATION:
            raise NotAuthenticated("a request before authentication")

    def _judge_of_others(self, api_key: int, now_ms: float) -> Judge:
        if self._throttling.are_ids_due and api_key in PRODUCER_ID_APIS:
            self._look_up_ids(now_ms)
        return self._others.judge

    def _look_up_ids(self, now_ms: float) -> None:
        """The connection is about to send the first request that may bring producer ids."""
        self._throttling.look_up_ids(now_ms)
        self._judge_transactions()

    def _judge_transactions(self) -> None:
        """From now on, where producer ids are limited."""
        if self._throttling.ids is not None and self.transactions is None:
            self._others.transactions = TransactionRequests(
                self._identity, self._throttling, self._in_flight, self._local, self._records,
                self._drop, self._bring_ids, self._policy.inter_broker, self._pace,
            )  # fmt: skip
