"""A leader and its followers as far as fetch sessions go, after Kafka's FetchSession and FetchSessionHandler.

The broker's side keeps sessions, logs and who is in sync; the follower's checks every answer as Kafka's own
follower does, and raises AssertionError where that would reject it. Frames pass through the codec.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from sluice.protocol.codec.codec import decode_frame
from sluice.protocol.codec.wire import uuid_bytes, uuid_text
from sluice.protocol.replication.fetch_request import PartitionKey
from testkit.frames.frames import FETCH, answer, request

NOT_FOUND = 70
WRONG_EPOCH = 71
CAP = 1_000
"""replica.fetch.max.bytes"""
MAX_BYTES = 10_000
"""replica.fetch.response.max.bytes"""


def key_of(topic: int, partition: int) -> PartitionKey:
    return bytes([topic + 1]) * 16, partition


@dataclass
class Log:
    """The log of one partition at its leader. A record is a batch, which is not cut."""

    record_bytes: int
    end: int = 0
    fetched: dict[int, int] = field(default_factory=dict)
    in_sync: set[int] = field(default_factory=set)

    @property
    def high_watermark(self) -> int:
        return min([self.end, *(self.fetched.get(replica, 0) for replica in self.in_sync)])


@dataclass
class _Session:
    epoch: int
    partitions: dict[PartitionKey, list[int]]
    """in order: fetch offset, cap, high watermark that was told"""


class ModelBroker:
    """A model of one leader."""

    def __init__(self) -> None:
        self.logs: dict[PartitionKey, Log] = {}
        self.sessions: dict[int, _Session] = {}
        self.gives_sessions = True
        self.last_max_wait_ms = 0
        self.last_bytes = 0
        """of the records in the last answer"""
        self._next_id = 100

    def serve(self, frame: bytes) -> bytes:
        """The answer to a follower's fetch, at once."""
        version = int.from_bytes(frame[6:8], "big")
        decoded = decode_frame("request", FETCH, version, frame[4:])
        body: Any = decoded.body
        correlation_id: Any = decoded.header["correlationId"]
        self.last_max_wait_ms = body["maxWaitMs"]
        replica = body["replicaId"] if version < 15 else body["replicaState"]["replicaId"]
        asked = {
            (uuid_bytes(topic["topicId"]), p["partition"]): [p["fetchOffset"], p["partitionMaxBytes"], -1]
            for topic in body["topics"]
            for p in topic["partitions"]
        }
        forgotten = [
            (uuid_bytes(topic["topicId"]), index)
            for topic in body["forgottenTopicsData"]
            for index in topic["partitions"]
        ]
        session_id, epoch = body["sessionId"], body["sessionEpoch"]
        if epoch <= 0:
            self.sessions.pop(session_id, None)
            answered = self._read(asked, replica, body["maxBytes"], full=True)
            new_id = 0
            if epoch == 0 and self.gives_sessions and asked:
                new_id = self._next_id = self._next_id + 1
                self.sessions[new_id] = _Session(1, asked)
            return _answer(version, correlation_id, 0, new_id, answered)
        session = self.sessions.get(session_id)
        if session is None:
            return _answer(version, correlation_id, NOT_FOUND, 0, {})
        if session.epoch != epoch:
            return _answer(version, correlation_id, WRONG_EPOCH, 0, {})
        for key, wanted in asked.items():
            known = session.partitions.setdefault(key, wanted)
            known[:2] = wanted[:2]
        for key in forgotten:
            session.partitions.pop(key, None)
        if not session.partitions:
            del self.sessions[session_id]
            return _answer(version, correlation_id, 0, 0, {})
        session.epoch += 1
        answered = self._read(session.partitions, replica, body["maxBytes"], full=False)
        return _answer(version, correlation_id, 0, session_id, answered)

    def _read(
        self, partitions: dict[PartitionKey, list[int]], replica: int, max_bytes: int, *, full: bool
    ) -> dict[PartitionKey, tuple[int, int]]:
        """Partition → (high watermark, bytes of records). Of a session those with news alone, as in
        FetchContext; those with records go to the session's end."""
        total = 0
        found = {}
        for key, state in list(partitions.items()):
            log = self.logs[key]
            offset, cap, told = state
            log.fetched[replica] = offset
            if offset >= log.high_watermark:
                log.in_sync.add(replica)
            there = log.end - offset
            records = min(there, min(cap, max_bytes - total) // log.record_bytes)
            if there and not total:
                records = max(records, 1)
            total += records * log.record_bytes
            if full or records or told != log.high_watermark:
                state[2] = log.high_watermark
                found[key] = (log.high_watermark, records * log.record_bytes)
                if records and not full:
                    partitions[key] = partitions.pop(key)
        self.last_bytes = total
        return found


def _answer(
    version: int,
    correlation_id: int,
    error_code: int,
    session_id: int,
    answered: dict[PartitionKey, tuple[int, int]],
) -> bytes:
    topics: dict[bytes, list[Any]] = {}
    for (topic, index), (high_watermark, record_bytes) in answered.items():
        topics.setdefault(topic, []).append(
            {"partitionIndex": index, "highWatermark": high_watermark, "records": "ab" * record_bytes}
        )
    responses: Any = [{"topicId": uuid_text(topic), "partitions": found} for topic, found in topics.items()]
    body: Any = {"errorCode": error_code, "sessionId": session_id, "responses": responses}
    return answer(FETCH, version, body, correlation_id=correlation_id)


class Rejected(AssertionError):
    """The follower would not take this answer."""


class ModelFollower:
    """One fetcher thread: what it wants, its session, one request at a time."""

    def __init__(self, replica_id: int, version: int = 18) -> None:
        self.replica_id = replica_id
        self.wanted: dict[PartitionKey, int] = {}
        """partition → offset"""
        self.session: dict[PartitionKey, int] = {}
        """as the broker was told"""
        self.session_id = 0
        self.epoch = 0
        self.errors: list[int] = []
        self.came_bytes: dict[PartitionKey, int] = {}
        self._version = version
        self._correlation_id = 0

    def ask(self) -> bytes:
        """The next fetch; it may be asked for again, the same."""
        if self.epoch <= 0:
            changed, gone = dict(self.wanted), []
        else:
            changed = {key: at for key, at in self.wanted.items() if self.session.get(key) != at}
            gone = [key for key in self.session if key not in self.wanted]
        self.session = dict(self.wanted)
        self._correlation_id += 1
        body: Any = {
            "maxWaitMs": 500,
            "minBytes": 1,
            "maxBytes": MAX_BYTES,
            "sessionId": self.session_id,
            "sessionEpoch": self.epoch,
            "topics": _by_topic(
                (key, {"partition": key[1], "fetchOffset": at, "partitionMaxBytes": CAP})
                for key, at in changed.items()
            ),
            "forgottenTopicsData": _by_topic((key, key[1]) for key in gone),
        }
        if self._version < 15:
            body["replicaId"] = self.replica_id
        else:
            body["replicaState"] = {"replicaId": self.replica_id, "replicaEpoch": 5}
        return request(FETCH, self._version, body, correlation_id=self._correlation_id, client_id="f")

    def handle(self, frame: bytes, logs: dict[PartitionKey, Log]) -> None:
        """What FetchSessionHandler.handleResponse and the fetcher make of it."""
        decoded = decode_frame("response", FETCH, self._version, frame[4:])
        body: Any = decoded.body
        if decoded.header["correlationId"] != self._correlation_id:
            raise Rejected("another request's answer")
        if body["errorCode"]:
            self.errors.append(body["errorCode"])
            if body["errorCode"] == NOT_FOUND:
                self.session_id = 0
            self.epoch = 0
            return
        came = {
            (uuid_bytes(topic["topicId"]), p["partitionIndex"]): len(p["records"]) // 2
            for topic in body["responses"]
            for p in topic["partitions"]
        }
        if self.epoch <= 0 and came.keys() != self.session.keys():
            raise Rejected(f"a full answer with {came.keys()}, asked for {self.session.keys()}")
        if not came.keys() <= self.session.keys():
            raise Rejected("an answer with partitions that are not in the session")
        self.session_id = body["sessionId"]
        self.epoch = 0 if not self.session_id else self.epoch + 1
        for key, record_bytes in came.items():
            self.came_bytes[key] = self.came_bytes.get(key, 0) + record_bytes
            if key in self.wanted and self.wanted[key] == self.session[key]:
                self.wanted[key] += record_bytes // logs[key].record_bytes

    def lost(self) -> None:
        """The connection broke: close the session, if there is one, and begin another."""
        self.epoch = 0


def _by_topic(elements: Iterable[tuple[PartitionKey, Any]]) -> list[Any]:
    topics: dict[bytes, list[Any]] = {}
    for (topic, _), element in elements:
        topics.setdefault(topic, []).append(element)
    return [{"topicId": uuid_text(topic), "partitions": found} for topic, found in topics.items()]
