"""A request of a transaction → the answer that refuses it, in its API's own form. Pure.

    AddPartitionsToTxn  throttle int32, [topic, [partition int32, error int16]];
                        v4, v5 throttle, error int16, [txn id, [topic, [partition, error]]]
    AddOffsetsToTxn     throttle, error int16
    TxnOffsetCommit     throttle, [topic, [partition int32, error int16]]
    v3 on: compact, each level closed by tags

The errors are those that the broker itself gives while it is not ready for a transaction, so that clients
send the same request again and their application hears nothing. CONCURRENT_TRANSACTIONS is for the first two;
for TxnOffsetCommit it is fatal to Java's older clients, COORDINATOR_LOAD_IN_PROGRESS to none (wire-semantics
3.8). Source: {AddPartitionsToTxn,AddOffsetsToTxn,TxnOffsetCommit}Response.json 4.3.1.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from sluice.protocol.apis import ApiKey, ErrorCode
from sluice.protocol.codec.wire import encode_varint
from sluice.protocol.primitives import INT16, INT32
from sluice.protocol.transactions.requests import FIRST_BATCHED, Addition, Topics, is_flexible

RETRIED_ERRORS: Final[Mapping[int, ErrorCode]] = {
    ApiKey.ADD_PARTITIONS_TO_TXN: ErrorCode.CONCURRENT_TRANSACTIONS,
    ApiKey.ADD_OFFSETS_TO_TXN: ErrorCode.CONCURRENT_TRANSACTIONS,
    ApiKey.TXN_OFFSET_COMMIT: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
}
"""After these every client that was tried sends the request again."""


def refuse_additions(
    additions: list[Addition], api_key: int, version: int, correlation_id: int, throttle_ms: int
) -> bytes:
    """The answer to the request that `additions` were read from, with its size: nothing was added."""
    flexible = is_flexible(api_key, version)
    error = INT16.pack(RETRIED_ERRORS[api_key])
    tags = b"\0" if flexible else b""
    answer = bytearray(INT32.pack(correlation_id) + tags + INT32.pack(throttle_ms))
    if api_key == ApiKey.ADD_OFFSETS_TO_TXN:
        answer += error
    elif api_key == ApiKey.ADD_PARTITIONS_TO_TXN and version >= FIRST_BATCHED:
        answer += INT16.pack(0) + encode_varint(len(additions) + 1)
        for addition in additions:
            name = addition.transactional_id
            answer += encode_varint(len(name) + 1) + name
            _add_topics(answer, addition.topics, error, flexible=True)
            answer.append(0)
    else:
        _add_topics(answer, additions[0].topics, error, flexible=flexible)
    answer += tags
    return INT32.pack(len(answer)) + bytes(answer)


def _add_topics(answer: bytearray, topics: Topics, error: bytes, *, flexible: bool) -> None:
    closed = b"\0" if flexible else b""
    answer += _count(len(topics), flexible)
    for name, partitions in topics:
        answer += (encode_varint(len(name) + 1) if flexible else INT16.pack(len(name))) + name
        answer += _count(len(partitions), flexible)
        for partition in partitions:
            answer += INT32.pack(partition) + error + closed
        answer += closed


def _count(count: int, flexible: bool) -> bytes:
    return encode_varint(count + 1) if flexible else INT32.pack(count)
