"""Attacks that fetch: many connections, new ones for each Fetch, share groups, group members' own."""

import asyncio
from collections.abc import Sequence
from typing import Any, Final

from bench.bypass.outcome import Outcome, at_rate, of_outstanding
from bench.bypass.rig import (
    BURST_S,
    BYTES_PER_S,
    GROUP_DELAY_S,
    MIDDLE_BYTES_PER_S,
    SMALL_BYTES_PER_S,
    BypassRig,
    client_id,
)
from bench.bypass.wires import ask, attack_for, dialled, group_frame
from bench.lib.fetcher import Fetcher, connected
from testkit.frames import load_frames as frames
from testkit.frames.frames import decoded, request
from testkit.kafka.java_tools import run_tool
from testkit.kafka.storage import random_id
from testkit.processes.process import BenchError

BATCH_BYTES: Final = 16_384
LARGE_BATCH_BYTES: Final = 500_000
FILL_BATCHES: Final = 8  # a partition; consumers begin anew at its end
RECONNECTING: Final = 20
GROUP_CONSUMERS: Final = 20
SHARE_CONSUMERS: Final = 10
SHARE_MAX_BYTES: Final = 1 << 20
SHARE_RECORDS: Final = 300  # a partition; lent again when their lock of 30 s has run out
SHARE_HEARTBEAT: Final = 76
SHARE_FETCH: Final = 78
METADATA: Final = 3
LONGEST_WAIT_S: Final = 3.0  # of a Fetch, where no session timeout was seen
EMPTY_ANSWER_BYTES: Final = 21  # of Fetch v12, which ends a wait that found no turn, and is not charged


async def many(rig: BypassRig, side: str, seconds: float, consumers: int, attack: str) -> Outcome:
    """So many consumers of one client id on 10 kB/s, each on its own connection."""
    topic = await rig.topic(attack, consumers)
    await _fill_once(rig, topic, consumers, BATCH_BYTES)
    name = client_id(side, "small", attack)
    fetchers = [Fetcher(name, topic, [x], session=x % 2 == 0) for x in range(consumers)]
    start_s = await rig.consume(side, fetchers, seconds)
    return _outcome(fetchers, start_s, seconds, SMALL_BYTES_PER_S, BATCH_BYTES)


async def reconnecting(rig: BypassRig, side: str, seconds: float) -> Outcome:
    """20 consumers on 1 MB/s that open a connection for each Fetch of a batch of 500 kB."""
    topic = await rig.topic("fetch_reconnecting", 1)
    await _fill_once(rig, topic, 1, LARGE_BATCH_BYTES)
    name = client_id(side, "flat", "fetch_reconnecting")
    fetchers = [Fetcher(name, topic, [0]) for _ in range(RECONNECTING)]
    start_s = await rig.consume(side, fetchers, seconds, reconnecting=True)
    return _outcome(fetchers, start_s, seconds, BYTES_PER_S, LARGE_BATCH_BYTES)


class GroupFetcher(Fetcher):
    """A consumer whose connection carries a group request, too, and so is never delayed for long."""

    async def run(self, port: int, stop: asyncio.Event) -> None:
        """As a Fetcher, behind one OffsetFetch."""
        async with connected(port, self.log) as connection:
            await connection.ask(group_frame(self.client_id))
            while not stop.is_set():
                await self.fetch(connection)


async def of_a_group(rig: BypassRig, side: str, seconds: float) -> Outcome:
    """20 consumers on 100 kB/s whose connections have carried a group request."""
    topic = await rig.topic("fetch_group", GROUP_CONSUMERS)
    await _fill_once(rig, topic, GROUP_CONSUMERS, BATCH_BYTES)
    name = client_id(side, "middle", "fetch_group")
    fetchers = [GroupFetcher(name, topic, [x], session=x % 2 == 0) for x in range(GROUP_CONSUMERS)]
    start_s = await rig.consume(side, fetchers, seconds)
    return _outcome(fetchers, start_s, seconds, MIDDLE_BYTES_PER_S, BATCH_BYTES)


async def shared(rig: BypassRig, side: str, seconds: float) -> Outcome:
    """10 members of a share group on 100 kB/s, each flat out with ShareFetches of up to 1 MiB.

    A ShareFetch is delayed at most 2 s, and then brings what its max_bytes lets it: the stated bound.
    """
    name, group = client_id(side, "middle", "share_fetch"), f"bypass-share-{side}"
    topic = await rig.topic(f"share_fetch-{side}", SHARE_CONSUMERS)
    where = ("--bootstrap-server", rig.node.bootstrap, "--alter", "--entity-type", "groups")
    await asyncio.to_thread(
        run_tool,
        rig.node.dist,
        "configs",
        *(*where, "--entity-name", group, "--add-config", "share.auto.offset.reset=earliest"),
    )
    batch = frames.record_batch(bytes(BATCH_BYTES - 80))
    await rig.fill(topic, range(SHARE_CONSUMERS), [batch] * SHARE_RECORDS)
    members = await _join_share_group(rig, group, topic, name)
    passed: list[int] = []
    await attack_for(
        [_share_fetches(rig.port(side), name, group, member, passed) for member in members], seconds
    )
    outstanding = SHARE_CONSUMERS * SHARE_MAX_BYTES
    return Outcome(
        limit=f"{MIDDLE_BYTES_PER_S:,} B/s",
        allowed=at_rate(MIDDLE_BYTES_PER_S, seconds, BURST_S),
        bound=of_outstanding(MIDDLE_BYTES_PER_S, outstanding, GROUP_DELAY_S, seconds, BURST_S) + outstanding,
        passed=sum(passed),
        detail={"share_fetches": len(passed)},
    )


Member = tuple[str, str, list[int]]  # its id, the topic's id, its partitions


async def _join_share_group(rig: BypassRig, group: str, topic: str, name: str) -> list[Member]:
    """Every member by itself, past Sluice: joins, and waits until all partitions are given out."""
    async with dialled(rig.broker_port) as wire:
        asked = await ask(wire, METADATA, 12, {"topics": [{"name": topic}]}, name)
        topic_id = asked["topics"][0]["topicId"]
        ids = [random_id() for _ in range(SHARE_CONSUMERS)]
        epochs = dict.fromkeys(ids, 0)
        given: dict[str, list[int]] = {}
        for _ in range(100):
            for member in ids:
                beat: dict[str, Any] = {
                    "groupId": group,
                    "memberId": member,
                    "memberEpoch": epochs[member],
                    "rackId": None,
                    "subscribedTopicNames": [topic] if epochs[member] == 0 else None,
                }
                answer = await ask(wire, SHARE_HEARTBEAT, 1, beat, name)
                if answer["errorCode"]:
                    raise BenchError(f"the share group takes no member: {answer['errorMessage']}")
                epochs[member] = answer["memberEpoch"]
                if answer["assignment"] is not None:
                    parts = [p for x in answer["assignment"]["topicPartitions"] for p in x["partitions"]]
                    given[member] = parts
            if sum(bool(x) for x in given.values()) == SHARE_CONSUMERS:
                break
            await asyncio.sleep(0.1)
        else:
            raise BenchError("the share group gives out no partitions")
    return [(member, topic_id, given[member]) for member in ids]


async def _share_fetches(port: int, name: str, group: str, member: Member, passed: list[int]) -> None:
    """ShareFetch after ShareFetch in one session; what was lent is not given back, but is lent again."""
    member_id, topic_id, partitions = member
    wanted = [{"partitionIndex": x, "acknowledgementBatches": []} for x in partitions]
    topic = {"topicId": topic_id, "partitions": wanted}
    base: dict[str, Any] = {
        "groupId": group,
        "memberId": member_id,
        "maxWaitMs": 500,
        "minBytes": 1,
        "maxBytes": SHARE_MAX_BYTES,
        "maxRecords": 500,
        "batchSize": 500,
        "forgottenTopicsData": [],
    }
    epoch = 0
    async with dialled(port) as wire:
        while True:
            body = base | {"shareSessionEpoch": epoch, "topics": [] if epoch else [topic]}
            await wire.send(request(SHARE_FETCH, 1, body, client_id=name))
            frame = await wire.frame()
            passed.append(len(frame))
            error = decoded("response", SHARE_FETCH, 1, frame).body["errorCode"]
            if error:
                raise BenchError(f"a ShareFetch was refused with error {error}")
            epoch += 1


async def _fill_once(rig: BypassRig, topic: str, partitions: int, batch_bytes: int) -> None:
    if rig.end_offset(topic) == 0:
        batch = frames.record_batch(bytes(batch_bytes - 80))
        await rig.fill(topic, range(partitions), [batch] * FILL_BATCHES)


def _outcome(
    fetchers: Sequence[Fetcher], start_s: float, seconds: float, rate: float, batch_bytes: int
) -> Outcome:
    allowed = at_rate(rate, seconds, BURST_S)
    end_s = start_s + seconds
    empty = len(fetchers) * (seconds / LONGEST_WAIT_S + 1) * EMPTY_ANSWER_BYTES
    return Outcome(
        limit=f"{rate:,.0f} B/s",
        allowed=allowed,
        bound=allowed + batch_bytes + empty,
        passed=sum(size for x in fetchers for at_s, size in x.log.arrived if at_s < end_s),
        detail={
            "fetches": sum(len(x.log.answers) for x in fetchers),
            "answered_with_70": sum(a.error == 70 for x in fetchers for a in x.log.answers),
            "without_data": sum(not any(a.useful_bytes for a in x.log.answers) for x in fetchers),
        },
    )
