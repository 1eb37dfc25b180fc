"""Transactions that make producer state without a Produce, at a broker with a heap of 256 MiB.

InitProducerId with a new transactional id, AddPartitionsToTxn of 1,000 partitions, EndTxn(abort): each leaves
an entry in every partition. The broker has no limit for it; Sluice's is 1 new id an hour. Half of the clients
come with another id after a refusal, half with the same until it is taken, which is how ids are forced in.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Final

from bench.bypass.outcome import Transactions, ids_bound
from bench.bypass.rig import has_ended
from bench.bypass.wires import ask, attack_for, dialled
from bench.lib.light_rig import NATIVE
from testkit.clients.kafka_records import create_topic
from testkit.frames.wire import Wire
from testkit.kafka.node import KafkaNode
from testkit.processes.ports import LOOPBACK, free_port
from testkit.processes.process import BenchError
from testkit.proxy.sluice_process import Door, SluiceProcess

HEAP_MIB: Final = 256
PARTITIONS: Final = 1_000
IDS_PER_HOUR: Final = 1
BURST: Final = 1.0
FORCED_SHARE: Final = 0.1
CLIENTS: Final = 4
SILENT_S: Final = 20.0
"""so long without an answer to a client that asks for nothing but Metadata, the broker counts as dead"""
PROBE_EVERY_S: Final = 1.0
TOPIC: Final = "bypass-transactions"
INIT_PRODUCER_ID: Final = 22
ADD_PARTITIONS: Final = 24
END_TXN: Final = 26
METADATA: Final = 3
TRY_AGAIN: Final = {14, 15, 16, 51}  # loading, no coordinator yet, not this one, a transaction is under way
BROKER_CONFIG: Final = {"transaction.state.log.num.partitions": "1", "auto.create.topics.enable": "false"}


@dataclass(slots=True)
class _Counts:
    offered: int = 0
    taken: int = 0
    refusals: dict[int, int] = field(default_factory=dict)
    last_answer_s: float = field(default_factory=time.monotonic)


async def transactions(side: str, seconds: float) -> Transactions:
    """The attack on a broker of its own, until the time is over or the broker has died."""
    async with _place(side) as (node, port):
        counts = _Counts()
        begun_s = time.monotonic()
        numbers = count()
        # A connection that breaks is made anew: only the broker's silence or end is its death.
        attackers = [_attacker(port, numbers, counts, number % 2 == 0) for number in range(CLIENTS)]
        watch = asyncio.ensure_future(_died(node, counts))
        attack = asyncio.ensure_future(attack_for(attackers, seconds))
        await asyncio.wait([watch, attack], return_when=asyncio.FIRST_COMPLETED)
        died = watch.done()
        for task in (watch, attack):
            task.cancel()
        await asyncio.gather(watch, attack, return_exceptions=True)
        if not died and not watch.cancelled() and watch.exception() is not None:
            raise BenchError(f"the broker could not be watched: {watch.exception()}")
        lived_s = counts.last_answer_s - begun_s
        return Transactions(
            seconds=seconds,
            survived=not died,
            died_after_s=lived_s if died else None,
            ids_offered=counts.offered,
            ids_taken=counts.taken,
            pairs=counts.taken * PARTITIONS,
            ids_bound=None if side == NATIVE else ids_bound(IDS_PER_HOUR, BURST, FORCED_SHARE, seconds),
            how=watch.result() if died else f"refusals by error: {counts.refusals}",
        )


@contextlib.asynccontextmanager
async def _place(side: str) -> AsyncIterator[tuple[KafkaNode, int]]:
    """A broker with a small heap, and the port for this side's clients."""
    print(f"  transactions, {side}: a broker of {HEAP_MIB} MiB", flush=True)
    with contextlib.ExitStack() as stack:
        options = [f"-Xms{HEAP_MIB}m"]
        node = KafkaNode(config=BROKER_CONFIG, heap=f"{HEAP_MIB}m", java_options=options, quick_jit=False)
        stack.enter_context(node)
        await asyncio.to_thread(create_topic, node, TOPIC, PARTITIONS)
        port = node.address("PLAINTEXT")[1]
        if side != NATIVE:
            door = Door("SLUICE", free_port(), (LOOPBACK, port))
            quota = {"user": "ANONYMOUS", "producer_ids_rate": IDS_PER_HOUR}
            heap = {"broker_heap_bytes": HEAP_MIB * 2**20}
            sluice = SluiceProcess([door], [quota], producer_ids=heap)
            sluice.start()
            stack.callback(sluice.close)  # whatever its log says of a broker that died
            port = door.port
        await _coordinator_is_there(node)
        yield node, port


async def _coordinator_is_there(node: KafkaNode) -> None:
    """The first transaction makes the internal topic."""
    find = {"keyType": 1, "coordinatorKeys": ["bypass"]}
    for _ in range(100):
        async with dialled(node.address("PLAINTEXT")[1]) as wire:
            answer = await ask(wire, 10, 4, dict(find))
        if answer["coordinators"][0]["errorCode"] == 0:
            return
        await asyncio.sleep(0.2)
    raise BenchError("the broker has no transaction coordinator")


async def _attacker(port: int, numbers: "count[int]", counts: _Counts, is_patient: bool) -> None:
    """Transaction after transaction, each with a new transactional id; who `is_patient` drops none."""
    while True:
        with contextlib.suppress(EOFError, ConnectionError, TimeoutError, OSError):
            async with dialled(port) as wire:
                while True:
                    await _one(wire, f"bypass-{next(numbers)}", counts, is_patient)
        await asyncio.sleep(0.2)


async def _one(wire: Wire, transactional_id: str, counts: _Counts, is_patient: bool) -> None:
    begin = {"transactionalId": transactional_id, "transactionTimeoutMs": 60_000}
    answer = await ask(wire, INIT_PRODUCER_ID, 4, {**begin, "producerId": -1, "producerEpoch": -1})
    if answer["errorCode"]:
        counts.refusals[answer["errorCode"]] = counts.refusals.get(answer["errorCode"], 0) + 1
        await asyncio.sleep(0.1)
        return
    counts.offered += 1
    named = {
        "v3AndBelowTransactionalId": transactional_id,
        "v3AndBelowProducerId": answer["producerId"],
        "v3AndBelowProducerEpoch": answer["producerEpoch"],
    }
    topic = {"name": TOPIC, "partitions": list(range(PARTITIONS))}
    while True:
        added = await ask(wire, ADD_PARTITIONS, 3, {**named, "v3AndBelowTopics": [topic]})
        errors = _errors(added)
        if errors == {0}:
            break
        for error in errors:
            counts.refusals[error] = counts.refusals.get(error, 0) + 1
        if not is_patient or not errors <= TRY_AGAIN:
            return
        await asyncio.sleep(0.05)
    counts.taken += 1
    ends: dict[str, Any] = {
        "transactionalId": transactional_id,
        "producerId": answer["producerId"],
        "producerEpoch": answer["producerEpoch"],
        "committed": False,
    }
    for _ in range(100):
        ended = await ask(wire, END_TXN, 3, dict(ends))
        if ended["errorCode"] not in TRY_AGAIN:
            return
        await asyncio.sleep(0.05)


def _errors(added: dict[str, Any]) -> set[int]:
    topics = added["resultsByTopicV3AndBelow"]
    return {p["partitionErrorCode"] for topic in topics for p in topic["resultsByPartition"]}


async def _died(node: KafkaNode, counts: _Counts) -> str:
    """Returns how the broker died, once it has: its process ended, or it answers nobody any more."""
    while True:
        if has_ended(node.pid):
            return "its process ended"
        with contextlib.suppress(EOFError, ConnectionError, TimeoutError, OSError):
            async with asyncio.timeout(PROBE_EVERY_S * 5), dialled(node.address("PLAINTEXT")[1]) as wire:
                await ask(wire, METADATA, 12, {"topics": []}, "probe")
                counts.last_answer_s = time.monotonic()
        if time.monotonic() - counts.last_answer_s > SILENT_S:
            return f"it answered nobody for {SILENT_S:.0f} s"
        if "OutOfMemoryError" in node.log_tail(200):
            return "it ran out of memory"
        await asyncio.sleep(PROBE_EVERY_S)
