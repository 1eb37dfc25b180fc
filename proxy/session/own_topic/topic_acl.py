"""Keeps clients from reading and writing the proxy's own topic through it; only its admins may.

A request is searched for the topic's name and id, as bytes; only one in which they stand is decoded, and only
one that means the topic by them is refused. A Produce is not searched (records may be long, and say what they
like) but walked: it goes on when the topics of all its partitions are known. Other requests go on when they
have arrived whole. Who asks only what the topic is (Metadata, its configuration) is told. Pure.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from sluice.protocol.apis import (
    OFFERED,
    OWN_TOPIC_HARMLESS,
    PRODUCE,
    ErrorCode,
)
from sluice.protocol.codec.codec import decode_frame
from sluice.protocol.codec.wire import uuid_text
from sluice.protocol.errors import ProtocolError
from sluice.protocol.headers import SIZE_BYTES, request_body
from sluice.protocol.produce import FIRST_TOPIC_ID, ProduceUsage
from sluice.protocol.produce_refusal import refuse_produce
from sluice.proxy.session.causes import DisconnectCause
from sluice.proxy.session.identity import Identity
from sluice.proxy.session.in_flight import LOCAL, InFlight
from sluice.proxy.session.local_responses import LocalAnswers
from sluice.proxy.session.own_topic.refusal import names_topic, refusal
from sluice.usage.records import RequestRecord

Judge = Callable[[bytearray, int, int, int, int, int, int, int, float], bool]
_PRODUCE_MIN, _PRODUCE_MAX = OFFERED[PRODUCE]


class OwnTopicTouched(ProtocolError):
    """A request to the proxy's own topic that cannot be answered in the broker's place."""

    cause = DisconnectCause.OWN_TOPIC


class OwnTopic:
    """The topic that is guarded; what all connections of a process share."""

    __slots__ = ("admins", "id_text", "name", "name_bytes", "topic_id")

    def __init__(self, name: str, admins: frozenset[str], topic_id: bytes = b"") -> None:
        """`topic_id`: 16 bytes, or empty as long as it is not known."""
        self.name: Final = name
        self.name_bytes: Final = name.encode()
        self.admins = admins
        self.is_known_as(topic_id)

    def is_known_as(self, topic_id: bytes) -> None:
        """Its id, from now on."""
        self.topic_id = topic_id
        self.id_text = uuid_text(topic_id) if topic_id else ""


class TopicGuard:
    """Keeps one connection away from the proxy's own topic."""

    __slots__ = ("_drop", "_identity", "_in_flight", "_local", "_records", "_topic", "_usage", "then")

    def __init__(
        self,
        topic: OwnTopic,
        identity: Identity,
        in_flight: list[InFlight],
        local: LocalAnswers,
        records: list[RequestRecord],
        drop: Callable[[int, int, int], None],
    ) -> None:
        """`drop`: (pos, end of what has arrived, end of the frame): told which bytes do not go on."""
        self._topic = topic
        self._identity = identity
        self._in_flight = in_flight
        self._local = local
        self._records = records
        self._drop = drop
        self._usage = ProduceUsage()
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

        Raises OwnTopicTouched where no answer is to be had.
        """
        topic = self._topic
        touched = False
        if api_key not in OWN_TOPIC_HARMLESS and self._identity.user not in topic.admins:
            if api_key == PRODUCE:
                if _PRODUCE_MIN <= version <= _PRODUCE_MAX:
                    body = request_body(buf, client_id_end, min(end, frame_end), PRODUCE, version)
                    self._usage.read(buf, body, end, frame_end, version)
                    if not self._usage.heads_read:
                        return False
                    touched = self._writes(buf, version)
                    if touched:
                        answer = self._refused_produce(
                            buf, body, min(end, frame_end), version, correlation_id
                        )
            else:
                if frame_end > end:
                    return False
                touched = buf.find(topic.name_bytes, client_id_end, frame_end) >= 0 or (
                    bool(topic.topic_id) and buf.find(topic.topic_id, client_id_end, frame_end) >= 0
                )
                if touched:
                    found = self._refused(buf, pos, frame_end, api_key, version, correlation_id)
                    touched = found is not None
                    if found is not None:
                        answer = found
        if not touched:
            return self.then(
                buf, pos, end, frame_end, api_key, version, correlation_id, client_id_end, now_ms
            )
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
        self._drop(pos, min(end, frame_end), frame_end)
        return True

    def _writes(self, buf: bytearray, version: int) -> bool:
        """The Produce that was walked has a batch for the topic."""
        topic = self._topic
        wanted = topic.topic_id if version >= FIRST_TOPIC_ID else topic.name_bytes
        return bool(wanted) and any(buf[batch[0] : batch[1]] == wanted for batch in self._usage.batches)

    def _refused_produce(
        self, buf: bytearray, body: int, limit: int, version: int, correlation_id: int
    ) -> bytes:
        if self._usage.acks == 0:
            raise OwnTopicTouched(
                f"an unacknowledged Produce to {self._topic.name}, which is the proxy's own"
            )
        message = f"Topic authorization failed: {self._topic.name} is the proxy's own."
        return refuse_produce(
            buf, body, limit, version, correlation_id,
            error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, message=message, throttle_ms=0,
        )  # fmt: skip

    def _refused(
        self, buf: bytearray, pos: int, frame_end: int, api_key: int, version: int, correlation_id: int
    ) -> bytes | None:
        """The answer to a request that names the topic; None: what was found is something else."""
        topic = self._topic
        frame = bytes(buf[pos + SIZE_BYTES : frame_end])
        body = decode_frame("request", api_key, version, frame).body
        if not names_topic(body, topic.name, topic.id_text):
            return None
        answer = refusal(api_key, version, correlation_id, body, topic.name, topic.id_text)
        if answer is None:
            raise OwnTopicTouched(f"a request that names {topic.name}, which is the proxy's own")
        return answer


def _nobody(*_: object) -> bool:
    raise AssertionError("the guard was not told who judges behind it")
