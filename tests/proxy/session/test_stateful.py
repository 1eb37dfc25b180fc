"""Every event in every state, in any order: nothing is lost, doubled, reordered, recorded twice, or stuck."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from math import inf

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from sluice.protocol.apis import GROUP_APIS
from sluice.protocol.fetch import closing_fetch
from sluice.proxy.connection.data_path import PURE
from sluice.proxy.pump.choice import PUMP
from sluice.proxy.session.connection_states import State
from sluice.proxy.session.in_flight import NONE
from sluice.proxy.session.policy import SessionPolicy
from sluice.quotas.entity import DEFAULT, QuotaEntity
from sluice.quotas.kinds import QuotaKind
from sluice.quotas.limits.limits import QuotaLimits
from sluice.usage.request_cost import Coefficients, CostRow, RequestCosts
from testkit.frames.frames import FETCH, PRODUCE, fetch_answer_of, produce_of
from testkit.proxy.data_paths import path_of
from testkit.proxy.dialogue_kinds import KINDS, MAX_BYTES, Kind
from testkit.proxy.playbook import Shell, limits_of, shared_of
from testkit.thorough import cases

RATE = 1_000
BUDGET_MS = 8_000
GROUP_MS = FETCH_TOLD_MS = 2_000
MAX_WAIT_MS = 500
STALE = (b"\x00", b"\x01", b"\xff", produce_of(150), fetch_answer_of(150))

RARELY = st.integers(0, 15)
"""Most of a run is to be in the midst of a connection's life."""


@dataclass
class Sent:
    """A request of the client's stream, and how far its answer is."""

    kind: Kind
    correlation_id: int
    end: int
    """offset of its end in what the broker is to get"""
    written_end: int
    """offset of its end in what the client writes"""
    replaced_begin: int | None = None
    """of its begin, if another went in its place"""

    @property
    def begin(self) -> int:
        return self.end - len(self.kind.request) if self.replaced_begin is None else self.replaced_begin


class Dialogue(RuleBasedStateMachine):
    """One connection, with a neighbour that charges the same bucket."""

    path_name = PURE.name
    policy = SessionPolicy()
    may_await = False
    cut_below = 0
    """under a lower rate an answer may go on as it comes, for nothing of ours is to be written into it"""

    @staticmethod
    def limits_of(rate: int) -> QuotaLimits:
        return limits_of(produce_rate=rate, fetch_rate=rate)

    @staticmethod
    def largest_throttle_ms(kind: Kind) -> int:
        """That its answer may tell."""
        return {FETCH: FETCH_TOLD_MS, PRODUCE: BUDGET_MS}.get(kind.api_key, 0)

    @initialize(stale=st.sampled_from(STALE), kinds=st.lists(st.sampled_from(KINDS), max_size=12))
    def connect(self, stale: bytes, kinds: list[Kind]) -> None:
        self.may_cut = False
        shared = shared_of(self.limits_of(RATE))
        self.path = path_of(self.path_name)
        self.shell = Shell(self.path.session(shared, self.policy, "10.0.0.1"), stale=stale)
        self.neighbour = self.path.session(shared, SessionPolicy(), "10.0.0.2")
        self.neighbours_bytes = 0
        self.stream = bytearray()  # all that the client has written
        self.expected = bytearray()  # what the broker is to get of it
        self.replaced = 0  # bytes by which Fetches for nothing are longer than what had come of theirs
        self.transmitted = 0
        self.requests: list[Sent] = []
        self.written = self.decided = 0  # requests, and those of which it is known that they went
        self.drops = False  # the client has left, and nothing that is answered goes any more
        self.received = 0  # whole requests that the broker has
        self.answers = bytearray()  # all that the broker has written
        # Where in it one may be raised, to what at most, and whether the session has to look at it.
        self.throttles: list[tuple[int, int, bool]] = []
        self.delivered = 0
        self.checked_to_broker = self.checked_to_client = 0
        for kind in kinds:
            self.client_writes(kind, 0)

    # The client

    @rule(kinds=st.lists(st.sampled_from(KINDS), min_size=1, max_size=4))
    def client_writes_whole_requests(self, kinds: list[Kind]) -> None:
        for kind in kinds:
            self.client_writes(kind, 10**6)

    @rule(kind=st.sampled_from(KINDS), transmits=st.sampled_from((0, 1, 20, 600, 10**6)))
    def client_writes(self, kind: Kind, transmits: int) -> None:
        self.written = correlation_id = self.written + 1
        frame = bytearray(kind.request)
        struct.pack_into(">i", frame, 8, correlation_id)
        self.stream += frame
        self.expected += frame
        self.requests.append(Sent(kind, correlation_id, len(self.expected), len(self.stream)))
        self.client_transmits(transmits)

    @rule(size=st.sampled_from((1, 3, 13, 100, 10**6)))
    def client_transmits(self, size: int) -> None:
        if not self.shell.client_left:
            data = bytes(self.stream[self.transmitted : self.transmitted + size])
            self.transmitted += len(data)
            self.shell.client_sends(data)

    @rule(chance=RARELY)
    def client_leaves(self, chance: int) -> None:
        if chance == 1:
            self.shell.client_leaves()

    # The broker

    @rule()
    def broker_answers_all(self) -> None:
        while self.has_answer:
            self.broker_answers(10**6)

    @property
    def has_answer(self) -> bool:
        self.forget_dropped()
        got = len(self.shell.to_broker)
        return self.received < len(self.requests) and self.requests[self.received].end <= got

    def has_work(self, sent: Sent) -> bool:
        """Of its answer something is to be read or written; else it goes on as it comes."""
        session = self.shell.session
        (work,) = (entry[9] for entry in session._in_flight if entry[0] == sent.correlation_id)
        return work is not NONE or session._throttling.request_time is not None

    @rule(size=st.sampled_from((0, 1, 7, 60, 10**6)))
    def broker_answers(self, size: int) -> None:
        """It writes the answer of the oldest request that it has not answered, and transmits some bytes."""
        while self.has_answer:
            sent = self.requests[self.received]
            self.received += 1
            if sent.kind.answer is None:
                continue
            frame = bytearray(sent.kind.answer)
            struct.pack_into(">i", frame, 4, sent.correlation_id)
            if sent.kind.throttle_at is not None:
                at = len(self.answers) + sent.kind.throttle_at
                self.throttles.append((at, self.largest_throttle_ms(sent.kind), self.has_work(sent)))
            self.answers += frame
            break
        data = bytes(self.answers[self.delivered : self.delivered + size])
        self.delivered += len(data)
        self.shell.broker_sends(data)

    # Time, and the shell

    @rule(ms=st.sampled_from((1, 150, 1_000, 3_000, 15_000)))
    def time_passes(self, ms: int) -> None:
        self.shell.advance(ms)

    @rule(ms=st.sampled_from((1, 400, 4_000)))
    def time_passes_and_the_wake_is_late(self, ms: int) -> None:
        self.shell.now_ms += ms

    @rule()
    def wakes_whenever(self) -> None:
        self.shell.wake()

    @rule(chance=RARELY)
    def drains(self, chance: int) -> None:
        if chance == 1:
            self.shell.drain()

    @rule(rate=st.sampled_from((RATE // 10, RATE, RATE * 10)))
    def quotas_are_reloaded(self, rate: int) -> None:
        self.may_cut = self.may_cut or rate < self.cut_below
        self.shell.shared.quotas.reload(self.limits_of(rate), self.shell.now_ms)

    @precondition(lambda self: self.neighbour.pace.state is State.READING)
    @rule(size=st.sampled_from((200, 2_000)))
    def neighbour_produces(self, size: int) -> None:
        frame = bytearray(produce_of(size, acks=0, client_id="neighbour"))
        taken = self.neighbour.client_data(frame, 0, len(frame), self.shell.now_ms)
        if taken or self.neighbour.pace.state is not State.MUTED:  # or it waits as a new connection
            self.neighbours_bytes += size
        if self.neighbour.pace.is_delayed:  # once it waits, another takes its place
            self.neighbour = self.path.session(self.shell.shared, SessionPolicy(), "10.0.0.2")

    @property
    def begun(self) -> list[Sent]:
        """Requests of which the broker has at least a byte."""
        self.forget_dropped()
        return [sent for sent in self.requests if sent.begin < len(self.shell.to_broker)]

    # What holds at any time

    @invariant()
    def the_broker_gets_the_clients_stream(self) -> None:
        """Byte for byte from its beginning, but for max_wait_ms and max_bytes, which may be lowered; and but
        for a Fetch that found no turn, in whose place another goes."""
        self.forget_dropped()
        got, start = self.shell.to_broker, self.checked_to_broker
        for index, sent in enumerate(self.requests):
            if start <= sent.begin < len(got) and sent.kind.max_bytes_at is not None:
                if self.is_replaced(index, bytes(got)):
                    continue
                at = sent.begin + sent.kind.max_bytes_at
                assert len(got) >= at + 4, "max_bytes is cut in two"
                assert 1 <= int.from_bytes(got[at : at + 4], "big") <= MAX_BYTES
                assert 0 <= int.from_bytes(got[at - 8 : at - 4], "big") <= MAX_WAIT_MS
                self.expected[at - 8 : at - 4] = got[at - 8 : at - 4]
                self.expected[at : at + 4] = got[at : at + 4]
        self.checked_to_broker = len(got)
        assert len(got) <= self.transmitted + max(self.replaced, 0)
        assert got[start:] == self.expected[start : len(got)]

    def forget_dropped(self) -> None:
        """Of a client that has left: what is answered may be dropped, and then all that is answered behind
        it. What is not answered is never, but with all that follows."""
        got = self.shell.to_broker
        while self.shell.client_left and self.decided < len(self.requests):
            sent = self.requests[self.decided]
            head = got[sent.begin : sent.begin + 12]
            if len(head) < 12:
                return
            if head[8:] == sent.correlation_id.to_bytes(4):
                assert not (self.drops and sent.kind.answer is not None), "its answer is another's"
                self.decided += 1
                continue
            assert sent.kind.answer is not None, "nobody sends it again"
            self.drops = True
            size = sent.end - sent.begin
            del self.expected[sent.begin : sent.end], self.requests[self.decided]
            for later in self.requests[self.decided :]:
                later.end -= size

    def is_replaced(self, index: int, got: bytes) -> bool:
        """A Fetch for nothing went in the place of a request. What is expected behind it moves."""
        sent = self.requests[index]
        if sent.kind.api_key != FETCH:
            return False
        frame = bytearray(self.expected[sent.begin : sent.end])
        client_id_end = 14 + len("app")
        closing = closing_fetch(frame, 0, client_id_end, sent.kind.version, session_id=0)
        if got[sent.begin : sent.begin + len(closing)] != closing:
            return False
        self.expected[sent.begin : sent.end] = closing
        grown = len(closing) - len(frame)
        to_come = max(sent.written_end - self.transmitted, 0)  # the client's own need not be whole
        self.replaced += max(grown + to_come, 0)
        sent.replaced_begin = sent.begin
        for later in self.requests[index:]:
            later.end += grown
        return True

    @invariant()
    def the_client_gets_the_brokers_answers(self) -> None:
        """Byte for byte, but for throttle_time_ms, which may be raised."""
        got = self.shell.to_client
        assert len(got) <= self.delivered
        start, self.checked_to_client = self.checked_to_client, len(got)
        for at, largest_ms, has_work in self.throttles:
            if start <= at < len(got):
                may_cut = self.may_cut or not has_work
                if may_cut and len(got) < at + 4:  # the broker's own, byte for byte (below)
                    continue
                assert len(got) >= at + 4, "a throttle is cut in two"
                assert int.from_bytes(got[at : at + 4], "big") <= largest_ms
                self.answers[at : at + 4] = got[at : at + 4]
        assert got[start:] == self.answers[start : len(got)]

    @invariant()
    def every_request_is_in_flight_or_recorded_once(self) -> None:
        session = self.shell.session
        records = [record for record in self.shell.records if record.client_id == "app"]
        assert session.requests == session.in_flight + len(records) == len(self.begun)

    @invariant()
    def it_is_never_stuck(self) -> None:
        shell = self.shell
        match shell.state:
            case State.READING:
                assert not shell.client_left
                assert shell.unread == b""
            case State.MUTED | State.HOLDING:
                assert shell.session.pace.wake_at_ms < inf
                is_group = any(sent.kind.api_key in GROUP_APIS for sent in self.begun)
                limit_ms = GROUP_MS if is_group else BUDGET_MS
                if shell.session._throttling.produces.is_for_nobody:  # acks = 0, and its client has left
                    limit_ms = 60_000
                assert shell.session.pace.wake_at_ms - shell.now_ms <= limit_ms
            case State.AWAITING_BROKER:
                assert self.may_await, "nobody authenticates here"
                assert shell.session.in_flight
            case State.ENDING:
                assert shell.cause is not None

    def teardown(self) -> None:
        """Drain; the client ends what it has begun, the broker answers: all is done and accounted for."""
        if not hasattr(self, "shell"):
            return
        shell = self.shell
        shell.drain()
        self.client_transmits(10**9)
        self.broker_answers_all()
        self.broker_answers(10**9)
        self.the_broker_gets_the_clients_stream()
        self.the_client_gets_the_brokers_answers()
        self.every_request_is_in_flight_or_recorded_once()
        assert shell.state is State.ENDING
        is_cut = bool(self.begun) and self.begun[-1].end > len(shell.to_broker)
        assert not is_cut or shell.client_left, "a frame is cut in two"
        assert is_cut or shell.session.finished
        shell.session.closed(shell.now_ms)
        sensors = [sensor for sensor in shell.shared.quotas.sensors() if sensor.kind is QuotaKind.PRODUCE]
        charged = sum(sensor.charged - sensor.refunded for sensor in sensors)
        produced = sum(len(sent.kind.request) for sent in self.begun if sent.kind.api_key == PRODUCE)
        assert charged == produced + self.neighbours_bytes


Dialogue.TestCase.settings = settings(
    max_examples=cases(250), stateful_step_count=50, deadline=None, suppress_health_check=list(HealthCheck)
)
TestDialogue = Dialogue.TestCase


class DialogueOverPump(Dialogue):
    """The same over the compiled data path."""

    path_name = PUMP


DialogueOverPump.TestCase.settings = Dialogue.TestCase.settings
TestDialogueOverPump = DialogueOverPump.TestCase


class DialogueOfRequestTime(Dialogue):
    """The same under a request_percentage too; a rate of 100 stands for a file without one."""

    policy = SessionPolicy(request_costs=RequestCosts([CostRow(Coefficients(30.0, 0.001, 0.001))]))
    may_await = True
    cut_below = RATE

    @staticmethod
    def limits_of(rate: int) -> QuotaLimits:
        limits = {"producer_byte_rate": rate, "consumer_byte_rate": rate}
        if rate >= RATE:
            limits["request_percentage"] = rate // 100
        return QuotaLimits([(QuotaEntity(DEFAULT, None), limits)])

    @staticmethod
    def largest_throttle_ms(kind: Kind) -> int:
        return max(1_000, Dialogue.largest_throttle_ms(kind))


DialogueOfRequestTime.TestCase.settings = settings(
    max_examples=cases(150), stateful_step_count=50, deadline=None, suppress_health_check=list(HealthCheck)
)
TestDialogueOfRequestTime = DialogueOfRequestTime.TestCase


class DialogueOfRequestTimeOverPump(DialogueOfRequestTime):
    """The same over the compiled data path."""

    path_name = PUMP


DialogueOfRequestTimeOverPump.TestCase.settings = DialogueOfRequestTime.TestCase.settings
TestDialogueOfRequestTimeOverPump = DialogueOfRequestTimeOverPump.TestCase
