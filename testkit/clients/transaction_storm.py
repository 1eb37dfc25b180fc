"""Transactions without a record: each has a producer id of its own and all partitions, and is aborted.

The broker keeps an entry in its heap for each (producer id, partition) of them (wire-semantics 3.8).
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from itertools import count
from typing import Any, Final

from sluice.protocol.codec.wire import Struct
from testkit.frames.frames import decoded, request
from testkit.frames.wire import Wire, dial

_FIND_COORDINATOR: Final = 10
_INIT_PRODUCER_ID: Final = 22
_ADD_PARTITIONS: Final = 24
_ADD_OFFSETS: Final = 25
_END_TXN: Final = 26
_DESCRIBE_PRODUCERS: Final = 61
_AGAIN: Final = {14, 15, 16, 51}
"""the coordinator is not ready: ask again"""
_BACKOFF_S: Final = 0.05


async def ask(wire: Wire, api_key: int, version: int, body: Struct) -> Any:
    """The body of the answer."""
    await wire.send(request(api_key, version, body))
    return decoded("response", api_key, version, await wire.frame()).body


async def _ask_until_ready(wire: Wire, api_key: int, version: int, body: Struct) -> Any:
    answer = await ask(wire, api_key, version, body)
    while answer["errorCode"] in _AGAIN:
        await asyncio.sleep(_BACKOFF_S)
        answer = await ask(wire, api_key, version, body)
    return answer


class TransactionStorm:
    """Connections of one client."""

    def __init__(self, port: int, name: str, topic: str, partitions: int) -> None:
        """`partitions`: of the topic; 0: a group's offsets are added in place of them."""
        self._port = port
        self._name = name
        self._topic = topic
        self._partitions = partitions
        self._numbers = count()
        self.added = 0
        """transactions whose partitions the broker took"""
        self.refused: Counter[int] = Counter()
        """those that were not taken, by error code"""

    async def run(self, connections: int, for_s: float) -> None:
        """For so long; what is held at the end is given up."""
        until_s = time.monotonic() + for_s
        await asyncio.gather(*(self._connection(until_s) for _ in range(connections)))

    async def _connection(self, until_s: float) -> None:
        while (left_s := until_s - time.monotonic()) > 0.0:
            try:
                async with asyncio.timeout(left_s):
                    with await dial(self._port, within_s=left_s) as wire:
                        await ask(wire, _FIND_COORDINATOR, 2, {"key": self._name, "keyType": 1})
                        while True:
                            await self._transaction(wire)
            except (OSError, EOFError):  # TimeoutError is an OSError
                await asyncio.sleep(_BACKOFF_S)

    async def _transaction(self, wire: Wire) -> None:
        name = f"{self._name}-{next(self._numbers)}"
        begin: Struct = {"transactionalId": name, "transactionTimeoutMs": 60_000}
        answer = await _ask_until_ready(wire, _INIT_PRODUCER_ID, 2, begin)
        assert answer["errorCode"] == 0, answer
        producer: Struct = {
            "transactionalId": name, "producerId": answer["producerId"],
            "producerEpoch": answer["producerEpoch"],
        }  # fmt: skip
        error = await self._add(wire, producer)
        if error:
            self.refused[error] += 1
            return
        self.added += 1
        end: Struct = {**producer, "committed": False}
        await _ask_until_ready(wire, _END_TXN, 3, end)

    async def _add(self, wire: Wire, producer: Struct) -> int:
        if not self._partitions:
            answer = await ask(wire, _ADD_OFFSETS, 3, {**producer, "groupId": self._name})
            return int(answer["errorCode"])
        partitions: Any = list(range(self._partitions))
        body: Struct = {
            "v3AndBelowTransactionalId": producer["transactionalId"],
            "v3AndBelowProducerId": producer["producerId"],
            "v3AndBelowProducerEpoch": producer["producerEpoch"],
            "v3AndBelowTopics": [{"name": self._topic, "partitions": partitions}],
        }
        answer = await ask(wire, _ADD_PARTITIONS, 3, body)
        errors: set[int] = {
            result["partitionErrorCode"]
            for topic in answer["resultsByTopicV3AndBelow"]
            for result in topic["resultsByPartition"]
        }
        return max(errors)


async def producer_entries(port: int, topic: str, partitions: int) -> int:
    """How many producers the broker keeps an entry for, over all partitions of a topic."""
    indices: Any = list(range(partitions))
    with await dial(port) as wire:
        body: Struct = {"topics": [{"name": topic, "partitionIndexes": indices}]}
        answer = await ask(wire, _DESCRIBE_PRODUCERS, 0, body)
    return sum(
        len(partition["activeProducers"]) for topic in answer["topics"] for partition in topic["partitions"]
    )
