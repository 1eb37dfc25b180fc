"""CreateTopics, DeleteTopics and CreatePartitions of a connection whose user has a controller_mutation_rate.

What they change is counted in partitions. Where the request does not say how many, the proxy first asks the
broker, on the client's own connection and so with the client's own rights; the request waits for the answer.
Then topic by topic: charged as long as nothing is owed, else refused (strict); or charged all the same, and
held until the debt is paid (permissive). What goes on is put right by its answer (responses.py).
Part of a connection's RequestSide, by session/other_requests.py. Pure.
Source: KIP-599; StrictControllerMutationQuota, PermissiveControllerMutationQuota, ReplicationControlManager.
"""

from __future__ import annotations

from collections import deque
from math import ceil
from typing import Final

from sluice.protocol.addresses.addresses import Edit
from sluice.protocol.apis import METADATA, OFFERED, ApiKey
from sluice.protocol.errors import FrameTooLarge, MalformedFrame, UnsupportedVersion
from sluice.protocol.headers import request_body
from sluice.protocol.mutations.requests import (
    BROKERS_DEFAULT,
    MAX_PARTITIONS,
    NO_ID,
    MutationRequest,
    TopicKey,
    TopicMutation,
    read_mutations,
)
from sluice.protocol.mutations.responses import refusals, refusing_answer
from sluice.protocol.mutations.topic_sizes import QUESTION_VERSION, TopicSize, size_question
from sluice.protocol.names import api_name
from sluice.proxy.session.authentication import WHOLE_MAX_BYTES
from sluice.proxy.session.identity import Identity
from sluice.proxy.session.in_flight import LOCAL, MUTATION, TOPIC_SIZES, InFlight
from sluice.proxy.session.local_responses import LocalAnswers
from sluice.proxy.session.mutations.delays import HeldMutation, MutationDelays
from sluice.proxy.session.mutations.outcome import Outcome
from sluice.proxy.session.mutations.topic_defaults import TopicDefaults
from sluice.proxy.session.read_gate import Pace
from sluice.proxy.session.throttling import Throttling
from sluice.quotas.sensors.sensor import Sensor
from sluice.usage.flow import AccessFlow
from sluice.usage.records import Amount, RequestRecord

REFUSAL_TEXT: Final = None
"""Kafka gives none with error 89: clients have their own words for it (ApiError.fromThrowable)."""
_TOPICS_PER_QUESTION: Final = 100
"""so that no answer is much larger than such answers are"""


class MutationRequests:
    """Judges the mutations that one connection asks for."""

    __slots__ = (
        "_amounts",
        "_asked",
        "_delays",
        "_edits",
        "_identity",
        "_in_flight",
        "_local",
        "_pace",
        "_questions",
        "_records",
        "_request",
        "added_bytes",
        "defaults",
        "delays_nobody",
        "held",
        "outcomes",
        "sizes",
    )

    def __init__(
        self,
        defaults: TopicDefaults,
        pace: Pace,
        identity: Identity,
        throttling: Throttling,
        in_flight: list[InFlight],
        local: LocalAnswers,
        edits: list[Edit],
        records: list[RequestRecord],
        amounts: list[Amount],
    ) -> None:
        """`edits`, `records`, `amounts`: the session's, for requests that go on changed, for those answered,
        and for what is changed."""
        self._amounts = amounts
        self.defaults = defaults
        """what is known of topics"""
        self._pace = pace
        self._identity = identity
        self._delays = MutationDelays(pace, throttling)
        self._in_flight = in_flight
        self._local = local
        self._edits = edits
        self._records = records
        self._request: MutationRequest | None = None  # that waits for the answers to these
        self._questions: deque[list[TopicKey]] = deque()
        self._asked: list[TopicKey] = []
        self.held: HeldMutation | None = None
        """the request that waits for its turn, in state HOLDING"""
        self.sizes: dict[TopicKey, TopicSize] = {}
        """of the topics of the request at hand that exist, by name and by id"""
        self.delays_nobody = False
        """the limit for which these are asked is in shadow mode"""
        self.outcomes: deque[Outcome] = deque()
        """one for each entry in flight whose work is MUTATION, in the same order"""
        self.added_bytes = 0
        """that went to the broker beyond what the client sent; negative where requests went on shorter"""

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
        sensor: Sensor,
    ) -> bool:
        """Count, and forward, cut or refuse the request. False: it has not arrived, or waits for an
        answer or for its turn.

        Raises UnsupportedVersion, MalformedFrame, and FrameTooLarge for one that cannot be kept whole.
        """
        first, last = OFFERED[api_key]
        if not first <= version <= last:
            raise UnsupportedVersion("this version would go uncounted")
        if frame_end - pos > WHOLE_MAX_BYTES:
            raise FrameTooLarge(
                f"{frame_end - pos} bytes of topics to change, the limit is {WHOLE_MAX_BYTES}"
            )
        if frame_end > end:
            return False
        request = self._request
        if request is None or not buf.startswith(request.frame, pos, frame_end):
            request = self._request = self._read(buf, pos, frame_end, api_key, version, client_id_end)
            self.sizes = {}  # that of the one before is needed for its answer
            self.delays_nobody = sensor.shadow
            self._plan_questions(request, sensor, now_ms)
        if self._questions:
            self._ask(self._questions.popleft(), pos, correlation_id, now_ms)
            return False
        self._request = None
        return self._decide(request, pos, frame_end, correlation_id, now_ms, sensor)

    def _read(
        self, buf: bytearray, pos: int, frame_end: int, api_key: int, version: int, client_id_end: int
    ) -> MutationRequest:
        body = request_body(buf, client_id_end, frame_end, api_key, version)
        try:
            return read_mutations(bytes(buf[pos:frame_end]), body - pos, api_key, version)
        except MalformedFrame as error:
            error.offset = pos + (error.offset or 0)
            raise

    # How many partitions ----------------------------------------------------------------------------------

    def _plan_questions(self, request: MutationRequest, sensor: Sensor, now_ms: float) -> None:
        """What the broker has to be asked first: the sizes of what is to be deleted or to grow.

        And where topics are to be created that the bucket does not cover, whether they exist already: for
        these the broker has an error of its own, which is not the quota's to hide or to delay, and nobody is
        to be refused or muted for a debt that its answer takes back. Who is within his quota is not kept.
        """
        self._questions.clear()
        if request.api_key == ApiKey.CREATE_TOPICS:
            if sensor.shadow:  # it refuses and delays nobody, and the answer puts the charge right
                return
            wanted = sum(self._partitions(request, topic, now_ms) for topic in request.topics)
            if wanted <= sensor.tokens(now_ms):
                return
        keys = [topic.key for topic in request.topics if topic.is_sound]
        names: list[TopicKey] = [key for key in keys if isinstance(key, str)]
        ids: list[TopicKey] = [key for key in keys if isinstance(key, bytes)]
        for asked in (names, ids):
            for begin in range(0, len(asked), _TOPICS_PER_QUESTION):
                self._questions.append(asked[begin : begin + _TOPICS_PER_QUESTION])

    def _ask(self, topics: list[TopicKey], pos: int, correlation_id: int, now_ms: float) -> None:
        """In front of the request, which stays and is given again when the answer has come."""
        self._asked = topics
        client_id = self._identity.client_id
        question = size_question(topics, correlation_id, client_id)
        self._edits.append((pos, pos, question))
        self.added_bytes += len(question)
        self._in_flight.append((
            correlation_id, METADATA, QUESTION_VERSION, self._identity.flow, len(question),
            now_ms, 0.0, 0.0, None, TOPIC_SIZES,
        ))  # fmt: skip
        self._pace.await_broker()
        self._pace.meet_gate()

    def note(self, outcome: Outcome, partitions: float, now_ms: float) -> None:
        """For the access log: the broker has said that so many were created or deleted. Not before it has:
        what is refused costs a client nothing, and what is taken back may fall into another window."""
        if partitions and isinstance(outcome.flow, AccessFlow):
            self._amounts.append(Amount(outcome.flow, "mutations", partitions, now_ms))

    def learn(self, sizes: list[TopicSize]) -> None:
        """The broker answered a question."""
        for size in sizes:
            self.sizes[size.topic_id] = size
            if size.name is not None:
                self.sizes[size.name] = size
        for topic in self._asked:
            found = self.sizes.get(topic)
            self.defaults.heard(topic, 0 if found is None else found.partitions)

    def _partitions(self, request: MutationRequest, topic: TopicMutation, now_ms: float) -> int:
        """How many the broker will create or delete; 0: it will refuse, as far as can be told."""
        if not topic.is_sound:
            return 0
        size = self.sizes.get(topic.key)  # None: there is none, or none that the client may see
        said = 0 if size is None else size.partitions
        present = self.defaults.present(topic.key, said, request.api_key, now_ms)
        if request.api_key == ApiKey.DELETE_TOPICS:
            return present
        if request.api_key == ApiKey.CREATE_TOPICS:
            return 0 if present else self._wanted(topic)
        grown = topic.partitions - present
        if not present or grown < 0 or topic.assigned not in {None, grown}:
            return 0
        return min(grown, MAX_PARTITIONS)  # a controller that is asked for more adds these (fault of 4.3.1)

    def _wanted(self, topic: TopicMutation) -> int:
        """How many partitions a topic that is created or grown is to have in the end."""
        return self.defaults.partitions if topic.partitions == BROKERS_DEFAULT else topic.partitions

    # What becomes of it -----------------------------------------------------------------------------------

    def _decide(
        self,
        request: MutationRequest,
        pos: int,
        frame_end: int,
        correlation_id: int,
        now_ms: float,
        sensor: Sensor,
    ) -> bool:
        """Charge it; forward it, cut or whole, refuse or hold it. False: it is held."""
        outcome = Outcome(
            request.api_key, request.version, sensor, eligible_at_ms=now_ms, clears_at_ms=now_ms
        )
        outcome.validate_only = request.validate_only
        outcome.sizes = self.sizes
        refused = self._charge(request, outcome, now_ms)
        charged = outcome.charged_partitions
        until_ms = now_ms
        if charged and outcome.eligible_at_ms > now_ms and not request.is_strict and not sensor.shadow:
            until_ms = self._delays.hold(
                sensor, request.api_key, charged, outcome.eligible_at_ms, outcome.clears_at_ms, now_ms
            )
            self.held = HeldMutation(correlation_id, request, outcome, now_ms, until_ms)
            return False
        if refused or outcome.clears_at_ms > now_ms:
            until_ms = self._delays.owe(
                sensor, request.api_key, charged, outcome.clears_at_ms, now_ms, refused=bool(refused)
            )
        if sensor.shadow:
            refused = []
            outcome.clears_at_ms = now_ms
        if refused:
            named = [self._name_and_id(topic) for topic in refused]
            outcome.refused = refusals(request.api_key, request.version, named, REFUSAL_TEXT)
            outcome.refused_count = len(refused)
        if refused and len(refused) == len(request.topics):
            self._answer(request, outcome, pos, frame_end, correlation_id, now_ms, until_ms)
            return True
        if refused:
            going = request.without(refused)
            self._edits.append((pos, frame_end, going))
            self.added_bytes += len(going) - len(request.frame)
        self._goes(request, outcome, correlation_id, now_ms, 0.0, until_ms)
        return True

    def _charge(self, request: MutationRequest, outcome: Outcome, now_ms: float) -> list[TopicMutation]:
        """Topic by topic, in the request's order. Returns those that the quota refuses."""
        sensor = outcome.sensor
        refused: list[TopicMutation] = []
        for topic in request.topics:
            partitions = self._partitions(request, topic, now_ms)
            if not partitions:
                outcome.unchanged.add(topic.key)
                if request.api_key != ApiKey.DELETE_TOPICS:
                    outcome.becomes[topic.key] = self._wanted(topic)
            elif request.is_strict and sensor.tokens(now_ms) < 0.0:
                refused.append(topic)
            else:
                outcome.clears_at_ms = sensor.charge(outcome.count(partitions), now_ms)
                if not outcome.charged:
                    outcome.eligible_at_ms = sensor.eligible_at_ms
                outcome.charged[topic.key] = partitions
                if request.api_key != ApiKey.DELETE_TOPICS:
                    outcome.becomes[topic.key] = self._wanted(topic)
                if topic.partitions == BROKERS_DEFAULT:
                    outcome.by_default.add(topic.key)
        if request.is_strict:
            # A debt alone delays nobody: it refuses the next.
            outcome.clears_at_ms = sensor.charge(0, now_ms) if refused else now_ms
        return refused

    def _goes(
        self,
        request: MutationRequest,
        outcome: Outcome,
        correlation_id: int,
        now_ms: float,
        held_ms: float,
        until_ms: float,
    ) -> None:
        """`until_ms`: the end of the mute that it brought about."""
        outcome.flow = self._identity.flow
        self._remember(correlation_id, request, now_ms, until_ms, outcome.sensor, held_ms)
        self.outcomes.append(outcome)

    # While it is held -------------------------------------------------------------------------------------

    def release(self, now_ms: float) -> int:
        """The held request goes as it is: its turn, or the bound of its delay, has come. Returns its size in
        bytes."""
        held, self.held = self.held, None
        assert held is not None
        self._delays.release(held, now_ms)
        until_ms = max(held.until_ms, now_ms)
        held_ms = now_ms - held.begun_ms
        self._goes(held.request, held.outcome, held.correlation_id, now_ms, held_ms, until_ms)
        return len(held.request.frame)

    def drop_held(self, now_ms: float) -> str | None:
        """A held request, if there is one, will never go. Returns what it was."""
        held, self.held = self.held, None
        if held is None:
            return None
        self._delays.drop(held, now_ms)
        return f"a {api_name(held.request.api_key)} of {len(held.request.frame)} bytes not forwarded"

    def _name_and_id(self, topic: TopicMutation) -> tuple[str | None, bytes]:
        """Both, where they are known, as in the broker's answers."""
        size = self.sizes.get(topic.key)
        if size is None:
            return topic.name, topic.topic_id or NO_ID
        return size.name, size.topic_id

    def _remember(
        self,
        correlation_id: int,
        request: MutationRequest,
        now_ms: float,
        clears_at_ms: float,
        sensor: Sensor,
        held_ms: float,
    ) -> None:
        self._in_flight.append((
            correlation_id, request.api_key, request.version, self._identity.flow, len(request.frame),
            now_ms, held_ms, clears_at_ms, sensor, MUTATION,
        ))  # fmt: skip

    def _answer(
        self,
        request: MutationRequest,
        outcome: Outcome,
        pos: int,
        frame_end: int,
        correlation_id: int,
        now_ms: float,
        until_ms: float,
    ) -> None:
        """In the broker's place: nothing of it is to be done."""
        api_key, version, identity = request.api_key, request.version, self._identity
        told_ms = ceil(self._delays.told_ms(api_key, outcome.clears_at_ms - now_ms))
        answer = refusing_answer(
            api_key, version, correlation_id, told_ms, outcome.refused_count, outcome.refused
        )
        request_bytes = frame_end - pos
        self._local.add(answer, self._in_flight, (
            correlation_id, api_key, version, identity.flow, request_bytes,
            now_ms, 0.0, 0.0, None, LOCAL,
        ))  # fmt: skip
        self._records.append((
            identity.flow, request_bytes, len(answer), 0.0, until_ms - now_ms, 0.0, now_ms,
            api_key, version, identity.user, outcome.sensor,
        ))  # fmt: skip
        self._edits.append((pos, frame_end, b""))
        self.added_bytes -= request_bytes
