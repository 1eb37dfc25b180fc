"""Keeps clients from reading and writing the proxy's own topic through it; only its admins may.

A request is searched for the topic's name and id, as bytes; only one in which they stand is decoded, and only
one that means the topic by them is refused. A Produce is not searched (records may be long, and say what they
like) but walked: it goes on when the topics of all its partitions are known. Other requests go on when they
have arrived whole. Who asks only what the topic is (Metadata, its configuration) is told, and a broker makes
nothing for that. An id that nobody
has named yet may be the topic's, made anew a moment ago: who reads, writes or deletes by it is told to ask
for it. Pure.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Final

from sluice.protocol.apis import (
    FETCH,
    FETCHES,
    METADATA,
    OFFERED,
    OWN_TOPIC_HARMLESS,
    PRODUCE,
    ApiKey,
    ErrorCode,
)
from sluice.protocol.codec.codec import decode_frame
from sluice.protocol.codec.wire import Value, uuid_text
from sluice.protocol.errors import ProtocolError
from sluice.protocol.fetch_topic_ids import FETCH_FIRST_TOPIC_ID, deleted_topic_ids, fetch_topic_ids
from sluice.protocol.headers import SIZE_BYTES, request_body
from sluice.protocol.metadata_creation import FIRST_ASKED, FIRST_FLEXIBLE, allows_creation_at
from sluice.protocol.produce import FIRST_TOPIC_ID, ProduceUsage
from sluice.protocol.produce_refusal import refuse_produce
from sluice.proxy.session.causes import DisconnectCause
from sluice.proxy.session.identity import Identity
from sluice.proxy.session.in_flight import LOCAL, InFlight
from sluice.proxy.session.local_responses import LocalAnswers
from sluice.proxy.session.own_topic.own_topic import OwnTopic
from sluice.proxy.session.own_topic.refusal import (
    BRAKE_MS,
    UNKNOWN_ID,
    names_topic,
    of_unknown,
    of_unknown_as_a_whole,
    refusal,
)
from sluice.proxy.session.read_gate import Pace
from sluice.usage.records import RequestRecord

Judge = Callable[[bytearray, int, int, int, int, int, int, int, float], bool]
_PRODUCE_MIN, _PRODUCE_MAX = OFFERED[PRODUCE]
_DELETE_FIRST_TOPIC_ID: Final = 6
_NONE_OFFERED: Final = (0, -1)
_ASKED_WITHIN_MS: Final = 2_000.0
"""The brokers are asked about an unknown id meanwhile; as long as a connection of a group may wait"""
_LOOK_AGAIN_MS: Final = 20.0
_MOST_WAITED_FOR: Final = 100
"""unknown ids of one Produce: as many as the brokers are asked about at once. Who has just made topics names
few; of more the Produce is refused at once, or each look at it would be long"""
_PARTS_OF_BRAKE: Final = 10_000
"""batches, or partitions in the answer, that a refused Produce has for BRAKE_MS: walked and answered some
100 ms"""
_PART_OF_ANSWER_BYTES: Final = 50
_MOST_UNBRAKED: Final = 100
"""of these; such a Produce costs about what one does that goes on"""
MOST_DECODED_BYTES: Final = 16 * 1024
"""The codec takes up to 4 µs a byte, in which nobody else is served: a request as long as this some 50 ms
where all its strings are empty, 5 where they are names."""
_ID_OF_NONE: Final = "a topic id that no answer has named yet"


class OwnTopicTouched(ProtocolError):
    """A request to the proxy's own topic that cannot be answered in the broker's place."""

    cause = DisconnectCause.OWN_TOPIC


class TopicGuard:
    """Keeps one connection away from the proxy's own topic."""

    __slots__ = (
        "_asked_ms", "_brake_ms", "_drop", "_identity", "_in_flight", "_local", "_pace", "_records", "_topic",
        "_usage", "_waited_for", "then",
    )  # fmt: skip

    def __init__(
        self,
        topic: OwnTopic,
        identity: Identity,
        in_flight: list[InFlight],
        local: LocalAnswers,
        records: list[RequestRecord],
        drop: Callable[[int, int, int, float], None],
        pace: Pace,
    ) -> None:
        """`drop`: (pos, end of what has arrived, end of the frame, now_ms): told which bytes do not go on."""
        self._topic = topic
        self._identity = identity
        self._in_flight = in_flight
        self._local = local
        self._records = records
        self._drop = drop
        self._pace = pace
        self._usage = ProduceUsage()
        self._asked_ms = -inf  # since when the Produce at hand waits for the brokers' word on its ids
        self._waited_for: frozenset[bytes] = frozenset()  # these, as of its last walk
        self._brake_ms = 0.0  # for so long nothing is read behind the request at hand
        self.then: Judge = _nobody
        """who judges what may pass"""

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
    ) -> bool:
        """As the judge behind. False: more of the request must come first. True: it goes on, or is answered.
        Raises OwnTopicTouched where no answer is to be had."""
        answer: bytes | None = None
        self._brake_ms = 0.0
        if api_key not in OWN_TOPIC_HARMLESS and self._identity.user not in self._topic.admins:
            if api_key == PRODUCE:
                if _PRODUCE_MIN <= version <= _PRODUCE_MAX:
                    if self._waited_for and self._still_waits(now_ms):
                        return False
                    body = request_body(buf, client_id_end, min(end, frame_end), PRODUCE, version)
                    self._usage.read(buf, body, end, frame_end, version)
                    if not self._usage.heads_read:
                        return False
                    error_code = self._error_of_produce(buf, version)
                    if error_code == ErrorCode.UNKNOWN_TOPIC_ID and self._waits(now_ms):
                        return False
                    self._asked_ms, self._waited_for, limit = -inf, frozenset(), min(end, frame_end)
                    if error_code:
                        answer = self._refused_produce(buf, body, limit, version, correlation_id, error_code)
                    self._usage.batches.clear()  # thousands would stay with the connection
            else:
                if frame_end > end:
                    return False
                answer = self._answer(buf, pos, frame_end, api_key, version, correlation_id, client_id_end)
        if answer is None:
            goes = self.then(
                buf, pos, end, frame_end, api_key, version, correlation_id, client_id_end, now_ms
            )
            if goes and self._brake_ms:
                self._pace.mute(now_ms + self._brake_ms, now_ms, None)
            return goes
        if self._brake_ms:
            self._pace.mute(now_ms + self._brake_ms, now_ms, None)
        identity, request_bytes = self._identity, frame_end - pos
        self._local.add(
            answer,
            self._in_flight,
            (
                correlation_id, api_key, version, identity.flow, request_bytes,
                now_ms, 0.0, 0.0, None, LOCAL,
            ),
        )  # fmt: skip
        self._records.append((
            identity.flow, request_bytes, len(answer), 0.0, 0.0, 0.0, now_ms,
            api_key, version, identity.user, None,
        ))  # fmt: skip
        self._drop(pos, min(end, frame_end), frame_end, now_ms)
        return True

    def forget(self) -> None:
        """The Produce at hand will not go: the next one waits for the brokers' word for as long as any."""
        self._asked_ms, self._waited_for = -inf, frozenset()

    def _waits(self, now_ms: float) -> bool:
        """A Produce by an unknown id waits until the brokers have said whose it is, and all behind it: if it
        were refused, and they were not, they would be stored before it."""
        if len(self._waited_for) > _MOST_WAITED_FOR:
            return False
        if self._asked_ms == -inf:
            self._asked_ms = now_ms
        until_ms = min(now_ms + _LOOK_AGAIN_MS, self._asked_ms + _ASKED_WITHIN_MS)
        if until_ms <= now_ms:
            return False
        self._pace.mute(until_ms, now_ms, None, at_boundary=True)
        return True

    def _still_waits(self, now_ms: float) -> bool:
        """As `_waits`, without a walk, while an id of the last one is unknown: thousands of partitions would
        else be walked fifty times a second."""
        codes = {self._topic.error_of(each) for each in self._waited_for}
        is_judged = ErrorCode.UNKNOWN_TOPIC_ID not in codes or ErrorCode.TOPIC_AUTHORIZATION_FAILED in codes
        return not is_judged and self._waits(now_ms)

    def _error_of_produce(self, buf: bytearray, version: int) -> int:
        """0: the Produce that was walked has no batch for the topic, nor for one that may be it."""
        topic, batches = self._topic, self._usage.batches
        if version < FIRST_TOPIC_ID:
            name = topic.name_bytes
            is_own = any(buf[batch[0] : batch[1]] == name for batch in batches)
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED if is_own else 0
        others = topic.others
        found = frozenset(
            topic_id for batch in batches if (topic_id := bytes(buf[batch[0] : batch[1]])) not in others
        )
        if not found.isdisjoint(topic.own_ids):
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED
        self._waited_for = frozenset(each for each in found if topic.error_of(each))
        return ErrorCode.UNKNOWN_TOPIC_ID if self._waited_for else 0

    def _refused_produce(
        self, buf: bytearray, body: int, limit: int, version: int, correlation_id: int, error_code: int
    ) -> bytes:
        is_own = error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        if self._usage.acks == 0:
            which = f"{self._topic.name}, which is the proxy's own" if is_own else _ID_OF_NONE
            raise OwnTopicTouched(f"an unacknowledged Produce to {which}")
        own = f"Topic authorization failed: {self._topic.name} is the proxy's own."
        answer = refuse_produce(
            buf, body, limit, version, correlation_id,
            error_code=error_code, message=own if is_own else UNKNOWN_ID, throttle_ms=0,
        )  # fmt: skip
        # By what it cost, not by its bytes: records are not looked at.
        parts = max(len(self._usage.batches), len(answer) // _PART_OF_ANSWER_BYTES)
        if parts > _MOST_UNBRAKED:
            self._brake_ms = BRAKE_MS * parts / _PARTS_OF_BRAKE
        return answer

    def _answer(
        self, buf: bytearray, pos: int, frame_end: int, api_key: int, version: int, correlation_id: int,
        client_id_end: int,
    ) -> bytes | None:  # fmt: skip
        """The answer to a request other than Produce; None: it may pass."""
        topic = self._topic
        if buf.find(topic.name_bytes, client_id_end, frame_end) >= 0 or any(
            buf.find(topic_id, client_id_end, frame_end) >= 0 for topic_id in topic.own_ids
        ):
            if api_key == METADATA:
                self._makes_nothing(buf, client_id_end, frame_end, version)
                return None
            answer = self._refused(buf, pos, frame_end, api_key, version, correlation_id, client_id_end)
            if answer is not None:
                return answer
        if version > OFFERED.get(api_key, _NONE_OFFERED)[1]:
            return None
        if api_key in FETCHES:
            if api_key != FETCH or version >= FETCH_FIRST_TOPIC_ID:
                body = request_body(buf, client_id_end, frame_end, api_key, version)
                found = self._unknown(fetch_topic_ids(buf, body, frame_end, api_key, version))
                if found:
                    return self._unknown_answer(buf, pos, frame_end, api_key, version, correlation_id, found)
        elif api_key == ApiKey.DELETE_TOPICS and version >= _DELETE_FIRST_TOPIC_ID:
            body = request_body(buf, client_id_end, frame_end, api_key, version)
            found = self._unknown(deleted_topic_ids(buf, body, frame_end))
            if found:
                return self._unknown_answer(buf, pos, frame_end, api_key, version, correlation_id, found)
        return None

    def _makes_nothing(self, buf: bytearray, client_id_end: int, frame_end: int, version: int) -> None:
        """Have the broker make none of the topics that this question for Metadata names: it would make ours
        with its own number of partitions."""
        forms = self._topic.name_forms
        forms = forms[1:] if version >= FIRST_FLEXIBLE else forms[:1]
        if not any(buf.find(form, client_id_end, frame_end) >= 0 for form in forms):
            return
        if not FIRST_ASKED <= version <= OFFERED[METADATA][1]:
            raise OwnTopicTouched(
                f"a Metadata that names {self._topic.name}, the proxy's own topic, and may have it made"
            )
        body = request_body(buf, client_id_end, frame_end, METADATA, version)
        buf[allows_creation_at(buf, body, frame_end, version)] = 0

    def _unknown(self, topic_ids: list[bytes]) -> set[bytes]:
        """Those that nobody has named yet; the brokers are asked."""
        topic = self._topic
        others = topic.others
        return {each for each in topic_ids if each not in others and topic.error_of(each)}

    def _unknown_answer(
        self, buf: bytearray, pos: int, frame_end: int, api_key: int, version: int, correlation_id: int,
        found: set[bytes],
    ) -> bytes:  # fmt: skip
        """The answer to a request that names topics by ids that nobody has named yet, `found`.

        One that is too long to be decoded is told so as a whole, where its API can; clients then do not ask
        for Metadata, but try again: by then the brokers have been asked.
        """
        if api_key in FETCHES:
            self._brake_ms = BRAKE_MS
            if api_key != FETCH or frame_end - pos > MOST_DECODED_BYTES:
                return of_unknown_as_a_whole(api_key, version, correlation_id)
        if frame_end - pos > MOST_DECODED_BYTES:
            raise OwnTopicTouched(f"a request of {frame_end - pos} bytes by {_ID_OF_NONE}")
        body = self._decoded(buf, pos, frame_end, api_key, version)
        return of_unknown(api_key, version, correlation_id, body, {uuid_text(each) for each in found})

    def _refused(
        self, buf: bytearray, pos: int, frame_end: int, api_key: int, version: int, correlation_id: int,
        client_id_end: int,
    ) -> bytes | None:  # fmt: skip
        """The answer to a request in which the topic's name or id stands; None: it is something else."""
        topic = self._topic
        if not any(
            buf.find(form, client_id_end, frame_end) >= 0 for form in (*topic.name_forms, *topic.own_ids)
        ):
            return None
        if frame_end - pos > MOST_DECODED_BYTES:
            raise OwnTopicTouched(
                f"a request of {frame_end - pos} bytes in which {topic.name} stands, the proxy's own topic"
            )
        body = self._decoded(buf, pos, frame_end, api_key, version)
        if not names_topic(body, topic.name, topic.id_texts):
            return None
        answer = refusal(api_key, version, correlation_id, body, topic.name, topic.id_texts)
        if answer is None:
            raise OwnTopicTouched(f"a request that names {topic.name}, which is the proxy's own")
        if api_key in FETCHES:
            self._brake_ms = BRAKE_MS
        return answer

    def _decoded(self, buf: bytearray, pos: int, frame_end: int, api_key: int, version: int) -> Value:
        """The request's body. What is behind it on the connection is read later, the longer it is the later:
        a client is not to have others wait for as long as it likes."""
        self._brake_ms = max(self._brake_ms, BRAKE_MS * (frame_end - pos) / MOST_DECODED_BYTES)
        return decode_frame("request", api_key, version, bytes(buf[pos + SIZE_BYTES : frame_end])).body


def _nobody(*_: object) -> bool:
    raise AssertionError("the guard was not told who judges behind it")
