"""One client connection: bytes in, and how many of them may go on; what is decided stands in attributes.

Pure: knows no socket, loop or clock; time is an argument. Its two sides (requests.py, responses.py) share
what they know: who the client is, what is in flight, what is owed (throttling.py), and when the next request
may be begun (read_gate.py, by the table of connection_states.py). What it decides is written down sentence by
sentence in docs/wire.md.
"""

from __future__ import annotations

from typing import ClassVar, Final, Protocol

from sluice.protocol.apis import FETCHES
from sluice.protocol.names import api_name
from sluice.proxy.session.arrivals import AHEAD_BYTES
from sluice.proxy.session.authentication import Authentication
from sluice.proxy.session.causes import DisconnectCause
from sluice.proxy.session.connection_states import State
from sluice.proxy.session.identity import Identity
from sluice.proxy.session.in_flight import LOCAL, MUTATION, InFlight
from sluice.proxy.session.local_responses import LocalAnswers, QuotaQuestion
from sluice.proxy.session.policy import SessionPolicy, SharedState
from sluice.proxy.session.producer_ids.shared import Wake
from sluice.proxy.session.read_gate import EARLY_MS, Pace
from sluice.proxy.session.requests import RequestSide
from sluice.proxy.session.responses import AnswerSide
from sluice.proxy.session.throttling import Throttling
from sluice.proxy.session.topic_attribution import Flows
from sluice.quotas.sensors.sensor import Sensor
from sluice.usage.flow import Origin
from sluice.usage.records import ConnectionRecord, Unanswered

_LOOK_AGAIN_MS: Final = 5.0
"""for the end of a suspension, while a request is held"""


class Passing(Protocol):
    """A side of the session, as far as bytes may go on that it does not look at."""

    @property
    def passing_bytes(self) -> int:
        """Bytes still to come of a frame that goes on as it is."""

    def passed(self, count: int) -> None:
        """So many of them went on without having been given to `…_data`; one at least is left for it."""


class Session:
    """The state machine of one client connection. The shell looks at `pace.state` after every call."""

    request_side: ClassVar[type[RequestSide]] = RequestSide
    answer_side: ClassVar[type[AnswerSide]] = AnswerSide

    __slots__ = (
        "__weakref__", "_answers", "_authentication", "_in_flight", "_local", "_requests", "_throttling",
        "_unanswered", "broker_data", "broker_frames", "client_data", "client_frames", "drops", "edits",
        "identity", "local_answers", "pace",
    )  # fmt: skip

    def __init__(
        self,
        shared: SharedState,
        policy: SessionPolicy,
        address: str,
        user: str | None = None,
        broker: str = "",
    ) -> None:
        """`address`: the client's, without its port. `user`: the principal of its certificate. `broker`: the
        one behind, as the access log calls it."""
        self.pace = Pace()
        self.identity = Identity(authentication_required=policy.authentication_required, user=user)
        self._in_flight: list[InFlight] = []
        self._authentication = authentication = Authentication(
            policy.oauthbearer_principal_claim, shared.token_owners
        )
        self._throttling = Throttling(shared, policy, self.pace, self.identity, address, self._in_flight)
        self._local = local = LocalAnswers(self.pace)
        flows = None
        if shared.topic_names is not None:
            costs = policy.request_costs
            names = shared.topic_names
            flows = Flows(Origin(self.identity.user, address, broker, costs, names), names)
        self._unanswered = None if flows is None else shared.recorder.unanswered
        self._requests = self.request_side(
            shared, policy, self.pace, self.identity, authentication, self._throttling,
            self._in_flight, local, flows,
        )  # fmt: skip
        self._answers = self.answer_side(
            shared, policy, self.pace, self.identity, authentication, self._throttling, self._in_flight,
            self._requests, local,
        )  # fmt: skip
        self.edits = self._answers.edits
        """of a gateway, by the last `broker_data`: (start, stop, replacement), what the shell is to send in
        the place of these bytes of buf; it clears the list then (AnswerSide.edits)"""
        self.drops = self._requests.edits
        """the same, by the last `client_data`: requests that do not go to the broker"""
        self.local_answers = local.at_once
        """what the client is to be sent for them now; the shell clears both lists"""
        # The sides' own methods, not wrapped: they are called for every wake-up.
        self.client_data = self._requests.data
        self.broker_data = self._answers.data
        self.client_frames: Passing = self._requests
        self.broker_frames: Passing = self._answers

    def __repr__(self) -> str:
        who = f"{self.user}/{self.client_id}"
        return f"<Session {who} {self.pace.state.name}, {len(self._in_flight)} in flight>"

    @property
    def user(self) -> str:
        """Name of the principal that the connection belongs to."""
        return self.identity.user

    @property
    def client_id(self) -> str:
        """Client id of the last request; "" for a null one."""
        return self.identity.client_id

    @property
    def sensors(self) -> tuple[Sensor, ...]:
        """Those that it charges, as of its last look-up."""
        return self._throttling.sensors()

    @property
    def has_id_limit(self) -> bool:
        """Its producer ids are judged."""
        return self._throttling.has_id_limit

    @property
    def requests(self) -> int:
        """Requests judged and forwarded so far."""
        return self._requests.count

    @property
    def bytes_from_client(self) -> int:
        """Bytes that went on to the broker."""
        mutations = self._requests.mutations
        return self._requests.bytes_read + (0 if mutations is None else mutations.added_bytes)

    @property
    def bytes_to_client(self) -> int:
        """Bytes that went on to the client."""
        return self._answers.bytes_read

    @property
    def in_flight(self) -> int:
        """Requests forwarded and not yet answered."""
        return len(self._in_flight)

    @property
    def is_all_to_be_answered(self) -> bool:
        """While nothing has been answered yet: each request that went on will be, so its client knows what
        became of it. False: there may be one with acks = 0."""
        return sum(entry[9] is not LOCAL for entry in self._in_flight) >= self._requests.count

    @property
    def at_boundary(self) -> bool:
        """No frame of the client has begun to go on and not ended."""
        return self._requests.at_boundary

    @property
    def is_quiet(self) -> bool:
        """No request is on its way and no answer due."""
        return not self._in_flight and self._requests.at_boundary and self._answers.at_boundary

    def take_question(self) -> QuotaQuestion | None:
        """What the shell is to have answered, after `client_data`; the client waits for it (quota_desk)."""
        question, self._local.question = self._local.question, None
        return question

    def answer_question(self, answer: bytes, now_ms: float) -> None:
        """The answer to it. The shell then looks at `local_answers` and at the state."""
        assert self._requests.quota_requests is not None
        self._requests.quota_requests.answered(answer, now_ms)

    def suspend(self) -> bool:
        """Begin no further request until `resume`, for the proxy has to say something to the broker itself.

        False: not now, since something else has stopped the client that would let it go on too early.
        """
        return self.pace.suspend()

    def resume(self) -> None:
        """The proxy has said it."""
        self.pace.broker_answered()

    def arrived(self, kept_bytes: int, now_ms: float) -> None:
        """While the client is delayed: so many bytes of it are kept. Call it when more have come, too; then
        `pace.wake_at_ms` may be earlier."""
        requests, throttling = self._requests, self._throttling
        held = throttling.produces.held
        if self._in_flight or (held is not None and kept_bytes > held.request_bytes):
            throttling.arrivals.is_pipelined = True
        begin = requests.position
        throttling.arrivals.came(begin, begin + min(kept_bytes, AHEAD_BYTES), now_ms)
        if held is not None and self.pace.state is State.HOLDING:
            throttling.produces.read_ahead(begin, kept_bytes, now_ms)

    @property
    def finished(self) -> bool:
        """Nothing more is to come in either direction: the shell may close."""
        return self.pace.state is State.ENDING and not self._in_flight and self._answers.at_boundary

    @property
    def answer_left_bytes(self) -> int:
        """What is to come of the answer that is half read. The broker has begun no request behind it while
        that is more than the sockets between hold: it takes the next when the last answer is written."""
        return self._answers.left_bytes

    @property
    def is_owed_charges(self) -> bool:
        """Answers are due that put a charge right: the broker works for them, whether anybody takes them."""
        throttling, in_flight = self._throttling, self._in_flight
        if throttling.request_time is not None and in_flight:
            return True
        apis = () if throttling.fetch_sensor is None else FETCHES
        return any(entry[9] is MUTATION or entry[1] in apis for entry in in_flight)

    @property
    def has_more_answers(self) -> bool:
        """Give what `broker_data` has left to it again when others have been served, with more or without
        (AnswerSide.is_stopped)."""
        return self._answers.is_stopped

    @property
    def due_bytes(self) -> int:
        """Answers of the proxy's own that wait behind the broker's, and what batches that wait take."""
        return self._local.due_bytes + self._throttling.held_bytes

    def is_turn(self, now_ms: float) -> bool:
        """`wake` would let a held Produce go."""
        produces, pace = self._throttling.produces, self.pace
        return (
            pace.state is State.HOLDING
            and produces.held is not None
            and not pace.is_hold_suspended
            and produces.is_turn(now_ms)
            and not produces.is_over_budget(now_ms)
        )

    def wake(self, now_ms: float, client_left: bool, kept: bytes | bytearray = b"") -> None:
        """`pace.wake_at_ms` has come. `client_left`: the client has closed its side. `kept`: of its requests.

        (A FIN behind unread bytes shows neither in a peek nor as readable; TCP_INFO tells.) If the state is
        READING afterwards, the shell gives the kept bytes to `client_data` and reads on.
        """
        if self.pace.is_hold_suspended:
            self.pace.wake_at_ms = now_ms + _LOOK_AGAIN_MS
        else:
            self._wake(now_ms, client_left, kept)

    def client_is_gone(self, now_ms: float, kept: bytes | bytearray = b"") -> None:
        """Nothing can be sent to the client any more, so nothing that is answered goes on; what has acks = 0
        does, when its quota can pay it. The shell then goes on as after `wake`. May be called again."""
        requests, pace = self._requests, self.pace
        outlasts = requests.client_left and self._throttling.produces.held is not None
        if pace.state is State.HOLDING and not outlasts:
            self._wake(now_ms, client_left=True, kept=kept)
        requests.drop_answered()
        if pace.is_full:  # what still goes is never in flight
            pace.broker_answered()

    def has_left_behind(self, *, before: bool = False) -> bool:
        """Something with acks = 0 of who has left has gone on since, or is to; or has `before`."""
        requests = self._requests
        return requests.has_left_behind or (before and requests.has_unacknowledged)

    def _wake(self, now_ms: float, client_left: bool, kept: bytes | bytearray) -> None:
        requests, produces = self._requests, self._throttling.produces
        left_since = client_left and not requests.client_left
        if left_since:
            requests.leaves(kept)
        held = produces.held
        if self.pace.state is State.HOLDING and held is None:
            if not self._wake_mutation(now_ms, client_left) and not self._wake_fetch(now_ms, client_left):
                requests.wake_for_ids(now_ms, left_since=left_since)
            return
        if held is None or self.pace.state is not State.HOLDING:
            self.pace.wake(now_ms)
            return
        if left_since and not held.acks and produces.outlast(now_ms):
            return
        if not left_since and not produces.is_turn(now_ms):
            return
        if not left_since and produces.is_over_budget(now_ms):
            self._throttling.refuse_held(now_ms)
            return
        taken = produces.take(now_ms, left_since)
        if taken is not None:
            requests.release(taken, now_ms)
            return
        requests.drop_held(now_ms)
        if held.acks:
            requests.skip_held()
        else:
            requests.leave_behind(held.request_bytes)

    def _wake_fetch(self, now_ms: float, client_left: bool) -> bool:
        """True: what is held is a Fetch. It is given again if its time has come."""
        fetches = self._throttling.fetches
        if not self._throttling.is_fetch_held:
            return False
        if client_left:
            fetches.drop(now_ms)
            self._requests.skip_held()
        elif fetches.is_turn(now_ms):
            self.pace.release(0.0)
        return True

    def _wake_mutation(self, now_ms: float, client_left: bool) -> bool:
        """True: what is held creates or deletes topics. It goes if its time has come."""
        mutations = self._requests.mutations
        if mutations is None or mutations.held is None:
            return False
        if client_left:
            mutations.drop_held(now_ms)
            self._requests.skip_held()
        elif now_ms >= self.pace.wake_at_ms - EARLY_MS:
            self._requests.pass_on(mutations.release(now_ms), is_answered=True)
        return True

    def _drop_held(self, now_ms: float) -> None:
        """A held request, if there is one, will never go."""
        self._requests.drop_held(now_ms)
        self._throttling.fetches.drop(now_ms)
        if self._requests.mutations is not None:
            self._requests.mutations.drop_held(now_ms)

    def wake_by(self, wake: Wake) -> None:
        """`wake` is called when a held request's turn has come, maybe before `pace.wake_at_ms`."""
        self._throttling.wake_by(wake)

    def client_closed(self, cause: DisconnectCause) -> None:
        """No more bytes come from the client, and all that came have been given to `client_data`."""
        self._requests.client_closed(cause)

    def broker_closed(self, cause: DisconnectCause) -> None:
        """The broker ends the connection. If it owes answers, the log shall say to what."""
        if self._authentication.failed:
            cause = DisconnectCause.AUTHENTICATION_FAILED
        detail = ""
        if self._in_flight:
            _, api_key, api_version, *_ = self._in_flight[0]
            owed = f"{api_name(api_key)} ({api_key}) version {api_version}"
            detail = f"{len(self._in_flight)} requests unanswered, the first {owed}"
        self.pace.end(cause, detail, at_boundary=True)

    def drain(self, now_ms: float, cause: DisconnectCause = DisconnectCause.DRAINED) -> None:
        """Begin no further request; what is in flight will be answered (wire-semantics 4.1).

        A held request stays unforwarded, for its client sends it again; but a Produce with acks = 0 goes, for
        nobody will.
        """
        produces = self._throttling.produces
        held = produces.held
        if held is not None and held.acks == 0 and self.pace.state is State.HOLDING:
            taken = produces.take(now_ms, client_left=False)
            self._requests.release(taken or held, now_ms)
        else:
            self._drop_held(now_ms)
        self.pace.end(cause, "", at_boundary=self._requests.at_boundary)

    def take_unacknowledged(self, kept: bytearray, now_ms: float) -> bytearray:
        """Draining: what goes all the same of what is kept, for nobody sends it again. It counts."""
        if self.pace.state is not State.ENDING or self.pace.close_cause is not DisconnectCause.DRAINED:
            return bytearray()
        return self._requests.take_unacknowledged(kept, now_ms)

    def closed(self, now_ms: float) -> None:
        """The connection is closed: return its part of what all share."""
        if self._unanswered is not None:
            self._unanswered += [
                Unanswered(entry[3], entry[1], entry[2], entry[4], entry[5], entry[6], now_ms)
                for entry in self._in_flight
                if entry[9] is not LOCAL
            ]
        self._drop_held(now_ms)
        if self._requests.replicas is not None:
            self._requests.replicas.closed(now_ms)
        self._requests.closed()
        self._throttling.closed(now_ms)

    def name_broker(self, broker: str) -> None:
        """Which one it has come to, as the access log calls it."""
        self._requests.name_broker(broker)

    def record(self, peer: str, opened_ms: float, closed_ms: float) -> ConnectionRecord:
        """What the connection was, now that it ends. `peer`: the client's address with its port."""
        return ConnectionRecord(
            cause=self.pace.close_cause or DisconnectCause.CLIENT_CLOSED,
            detail=self.pace.close_detail,
            peer=peer,
            user=self.user,
            client_id=self.client_id,
            opened_ms=opened_ms,
            closed_ms=closed_ms,
            requests=self.requests,
            bytes_from_client=self.bytes_from_client,
            bytes_to_client=self.bytes_to_client,
        )
