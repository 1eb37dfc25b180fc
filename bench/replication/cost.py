"""What followers' fetches cost the proxy: a session of many partitions, without sockets; and a GiB that
passes unthrottled, against HAProxy."""

import time
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any, Final

from bench.cost.cases import MIB, Case, large_frames
from sluice.protocol.codec.codec import DecodedFrame, encode_frame
from sluice.protocol.codec.wire import uuid_text
from sluice.proxy.session.policy import SessionPolicy, SharedState
from sluice.proxy.session.replication.followers import Replication
from sluice.proxy.session.session import Session
from sluice.quotas.limits.limits import QuotaLimits
from sluice.quotas.manager import QuotaManager
from sluice.quotas.replication.limits import ReplicationLimits, ThrottledReplicas
from sluice.usage.records import Recorder
from testkit.frames import load_frames as frames

_FETCH: Final = 1
_VERSION: Final = 18
_ROUNDS: Final = 400
_TOPIC: Final = b"\x07" * 16
_LEADER: Final = 1
_SESSION: Final = 99
PARTITIONS_OF_AN_ANSWER: Final = (1, 10)
"""of 1 MiB (replica.fetch.max.bytes) each; ten are all that replica.fetch.response.max.bytes allows"""


def unthrottled_answers() -> dict[int, bytes]:
    """max_bytes of a follower's fetch → the answer."""
    return {
        partitions * MIB: bytes(frames.replica_fetch_response(_TOPIC, partitions, MIB))
        for partitions in PARTITIONS_OF_AN_ANSWER
    }


def unthrottled_cases(answers: Mapping[int, bytes], scale: float) -> Sequence[Case]:
    """Followers that catch up, four at once: bench.cost's large frames, on an inter-broker listener.

    The fetches are full ones, each as the one before: an incremental one would have to count its epoch.
    """
    cases = []
    for max_bytes, answer in answers.items():
        partitions = max_bytes // MIB
        request = bytes(frames.replica_fetch_request(2, _TOPIC, partitions, max_bytes))
        work = large_frames(request, answer, len(answer), scale)
        shown = f"4 followers, {partitions} × 1 MiB of records"
        cases.append(Case(f"gib_replica_{partitions}mib", shown, work, len(answer)))
    return cases


def _frame(direction: Any, header: Any, body: Any) -> bytes:
    frame = encode_frame(direction, _FETCH, _VERSION, DecodedFrame(header, body))
    return len(frame).to_bytes(4, "big") + frame


def _request(epoch: int, offsets: dict[int, int]) -> bytes:
    partitions = [
        {"partition": index, "fetchOffset": offset, "partitionMaxBytes": 1_048_576}
        for index, offset in offsets.items()
    ]
    body = {
        "replicaState": {"replicaId": 2, "replicaEpoch": 1},
        "maxWaitMs": 500,
        "minBytes": 1,
        "maxBytes": 10_485_760,
        "sessionId": 0 if epoch == 0 else _SESSION,
        "sessionEpoch": epoch,
        "topics": [{"topicId": uuid_text(_TOPIC), "partitions": partitions}] if partitions else [],
        "forgottenTopicsData": [],
    }
    header = {"requestApiKey": _FETCH, "requestApiVersion": _VERSION, "correlationId": 1, "clientId": "f"}
    return _frame("request", header, body)


def _answer(records: dict[int, int]) -> bytes:
    partitions = [
        {"partitionIndex": index, "highWatermark": 1_000_000, "records": "00" * size}
        for index, size in records.items()
    ]
    topics = [{"topicId": uuid_text(_TOPIC), "partitions": partitions}] if partitions else []
    return _frame("response", {"correlationId": 1}, {"sessionId": _SESSION, "responses": topics})


def session_cost_ms(partitions: int) -> float:
    """Processor time of one fetch and its answer, the median: all throttled and behind, one let through.

    Each fetch asks for what came with the last one; the answer brings 1,000 bytes of one partition, as cheap
    to pass over as 500,000.
    """
    replication = Replication(_LEADER)
    listed = {"t": ThrottledReplicas(all=True)}
    now_ms = 0.0
    replication.apply(ReplicationLimits({_LEADER: 10_000.0}, {}, listed), {_TOPIC: "t"}, now_ms)
    shared = SharedState(QuotaManager(QuotaLimits([])), Recorder())
    session = Session(shared, SessionPolicy(replication=replication), "127.0.0.1")
    offsets = dict.fromkeys(range(partitions), 0)
    _round(session, _request(0, offsets), _answer(dict.fromkeys(offsets, 0)), now_ms)
    costs_ms = []
    for epoch in range(1, _ROUNDS):
        now_ms += 150.0
        index = epoch % partitions
        request, answer = _request(epoch, {index: epoch}), _answer({(index + 1) % partitions: 1_000})
        costs_ms.append(_round(session, request, answer, now_ms))
        shared.recorder.requests.clear()
    return median(costs_ms)


def _round(session: Session, request: bytes, answer: bytes, now_ms: float) -> float:
    """ms that it took."""
    asked, answered = bytearray(request), bytearray(answer)
    begun_ns = time.process_time_ns()
    session.wake(now_ms, client_left=False)
    went = session.client_data(asked, 0, len(asked), now_ms)
    if went:
        session.drops.clear()
        session.broker_data(answered, 0, len(answered), now_ms)
    took_ns = time.process_time_ns() - begun_ns
    if not went:  # held: its turn comes with the next one
        return _round(session, request, answer, now_ms + 100.0)
    return took_ns / 1e6
