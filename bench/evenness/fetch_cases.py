"""The evenness benchmark's cases that fetch: small consumers, new connections, whole batches, rotation."""

import asyncio
import time
from collections.abc import Sequence
from random import Random
from typing import Final

from bench.evenness.case_figures import CaseResult, bytes_beyond, longest_wait_s, useful_share, vs_rate
from bench.evenness.case_rig import BURST_S, SMALL_BYTES_PER_S, CaseRig, client_id
from bench.evenness.cases import QUOTA_BYTES_PER_S, SETTLE_S, Event
from bench.lib.fetcher import Fetcher, FetchLog
from testkit.frames import load_frames as frames

CONSUMERS: Final = 50
RECONNECTING: Final = 20
MANY: Final = 100
BATCH_BYTES: Final = 16_384
RECONNECTING_BATCH_BYTES: Final = 500_000  # of each Fetch at least one, whatever its max_bytes
FILL_BATCHES: Final = 32  # a partition: 512 KiB, more than any of 50 has a right to
IDLE_S: Final = 2.0
_BATCH_HEADER_BYTES: Final = 61 + 10  # and about a record's


def batch_of(size_bytes: int) -> bytes:
    """A batch of one record and about that size."""
    return frames.record_batch(bytes(size_bytes - _BATCH_HEADER_BYTES))


async def fetch_50_small(rig: CaseRig, side: str, seconds: float) -> CaseResult:
    """50 consumers that share 10 kB/s: started together, and with data that comes to all while they idle."""
    together = await _fetch_50(rig, side, seconds, idle=False)
    idle = await _fetch_50(rig, side, seconds, idle=True)
    return CaseResult(
        "50 consumers on 10 kB/s: bytes ÷ (rate × time + burst)",
        max(together["vs_rate"], idle["vs_rate"]),
        {"started_together": together, "idle_and_then_data": idle, "seconds": seconds},
    )


async def _fetch_50(rig: CaseRig, side: str, seconds: float, *, idle: bool) -> dict[str, float]:
    case = "fetch_50_idle" if idle else "fetch_50"
    topic = await rig.topic(f"{case}-{side}", CONSUMERS)
    batches = [batch_of(BATCH_BYTES)] * FILL_BATCHES
    partitions = range(CONSUMERS)
    # Half keep a session, as Java and franz-go do; half do not, as librdkafka.
    name = client_id(side, case, "-small")
    fetchers = [Fetcher(name, topic, [x], session=x % 2 == 0) for x in partitions]
    data_s = time.monotonic()
    if idle:

        async def data_comes() -> None:
            nonlocal data_s
            await asyncio.sleep(IDLE_S)
            data_s = time.monotonic()
            await rig.fill(topic, partitions, batches)

        await rig.consume(side, fetchers, seconds + IDLE_S, beside=[data_comes()])
    else:
        await rig.fill(topic, partitions, batches)
        data_s = await rig.consume(side, fetchers, seconds)
    events = _arrived([x.log for x in fetchers])
    return {
        "vs_rate": vs_rate(events, data_s, seconds, SMALL_BYTES_PER_S, BURST_S),
        "bytes": sum(size for _, size in events),
        "bytes_beyond": bytes_beyond(events, data_s, SMALL_BYTES_PER_S, BURST_S),
        "useful_bytes": sum(x.useful_bytes for f in fetchers for x in f.log.answers),
        "answered_with_70": sum(x.error == 70 for f in fetchers for x in f.log.answers),
        "consumers_without_data": sum(
            not any(answer.useful_bytes for answer in fetcher.log.answers) for fetcher in fetchers
        ),
    }


async def fetch_reconnect(rig: CaseRig, side: str, seconds: float) -> CaseResult:
    """20 consumers that open a connection for each Fetch."""
    topic = await rig.topic(f"fetch_reconnect-{side}", 1)
    await rig.fill(topic, [0], [batch_of(RECONNECTING_BATCH_BYTES)] * 8)
    name = client_id(side, "fetch_reconnect")
    fetchers = [Fetcher(name, topic, [0]) for _ in range(RECONNECTING)]
    start_s = await rig.consume(side, fetchers, seconds, reconnecting=True)
    events = _arrived([x.log for x in fetchers])
    return CaseResult(
        "20 consumers, a new connection for each Fetch, 1 MB/s: bytes ÷ (rate × time + burst)",
        vs_rate(events, start_s, seconds, QUOTA_BYTES_PER_S, BURST_S),
        {
            "bytes_beyond": bytes_beyond(events, start_s, QUOTA_BYTES_PER_S, BURST_S),
            "fetches": sum(len(x.log.answers) for x in fetchers),
            "seconds": seconds,
        },
    )


async def fetch_useful(rig: CaseRig, side: str, seconds: float) -> CaseResult:
    """Bytes of whole batches ÷ bytes charged, of consumers on 1 MB/s; the worst of four loads."""
    random = Random(7)
    mixed = [batch_of(round(2 ** random.uniform(10, 19))) for _ in range(24)]  # 1 to 512 kB
    loads: dict[str, tuple[int, Sequence[bytes]]] = {
        "1 × 51 kB": (1, [batch_of(51_000)] * 100),
        "4 × 16 KiB": (4, [batch_of(BATCH_BYTES)] * 100),
        "5 × 16 KiB": (5, [batch_of(BATCH_BYTES)] * 100),
        "2 × 1 to 512 kB": (2, mixed * 2),
    }
    shares: dict[str, dict[str, float]] = {}
    each_s = seconds / len(loads)
    for number, (shown, (consumers, batches)) in enumerate(loads.items()):
        case = f"fetch_useful_{number}"
        topic = await rig.topic(f"{case}-{side}", consumers)
        await rig.fill(topic, range(consumers), batches)
        name = client_id(side, case)
        fetchers = [Fetcher(name, topic, [x], session=x % 2 == 0) for x in range(consumers)]
        charged_before = _charged(rig, name)
        start_s = await rig.consume(side, fetchers, each_s + SETTLE_S)
        answers = [answer for fetcher in fetchers for answer in fetcher.log.answers]
        by_wire = useful_share(answers, start_s + SETTLE_S)
        charged = _charged(rig, name) - charged_before
        useful = sum(x.useful_bytes for x in answers)
        of_charged = useful / charged if charged else by_wire  # the broker's own quota tells no bytes
        shares[shown] = {
            "share": min(by_wire, of_charged),
            "of_bytes_that_came": by_wire,
            "of_bytes_charged": of_charged,
            "bytes_per_s": sum(x.wire_bytes for x in answers if x.at_s >= start_s + SETTLE_S) / each_s,
        }
    worst = min(x["share"] for x in shares.values())
    return CaseResult("bytes of whole batches ÷ bytes charged, worst of four loads", worst, {**shares})


async def fetch_longest_wait(rig: CaseRig, side: str, seconds: float) -> CaseResult:
    """100 consumers of a partition each, and one of 100: the longest wait of any, in rounds of all.

    A round is one batch for each consumer, at the rate; of a consumer's partitions it is what its answers
    really carried of each, for a consumer asks for up to 1 MiB of a partition at a time.
    """
    waits: dict[str, dict[str, float]] = {}
    for case, consumers in (("consumers", MANY), ("partitions", 1)):
        topic = await rig.topic(f"fetch_wait_{case}-{side}", MANY)
        await rig.fill(topic, range(MANY), [batch_of(BATCH_BYTES)] * FILL_BATCHES)
        share = MANY // consumers
        name = client_id(side, f"fetch_wait_{case}")
        fetchers = [
            Fetcher(name, topic, range(x * share, (x + 1) * share), session=x % 2 == 0)
            for x in range(consumers)
        ]
        start_s = await rig.consume(side, fetchers, seconds)
        waits[case] = _waits(fetchers, start_s + SETTLE_S, start_s + seconds)
    return CaseResult(
        "longest wait of 100 consumers or partitions ÷ the time of one round of all",
        max(waits["consumers"]["rounds"], waits["partitions"]["rounds_of_real_turns"]),
        {**waits, "seconds": seconds},
    )


def _waits(fetchers: Sequence[Fetcher], begin_s: float, end_s: float) -> dict[str, float]:
    times: dict[int, list[float]] = {partition: [] for partition in range(MANY)}
    turns = useful = 0
    for answer in (x for fetcher in fetchers for x in fetcher.log.answers):
        for partition in answer.partitions:
            times[partition].append(answer.at_s)
        if begin_s <= answer.at_s < end_s:
            turns += len(answer.partitions)
            useful += answer.useful_bytes
    waits = [longest_wait_s(found, begin_s, end_s) for found in times.values()]
    round_s = MANY * BATCH_BYTES / QUOTA_BYTES_PER_S
    turn_bytes = useful / turns if turns else 0.0
    by_turns = max(waits) * QUOTA_BYTES_PER_S / (MANY * turn_bytes) if turns else 0.0
    return {
        "rounds": max(waits) / round_s,
        "rounds_of_real_turns": by_turns,
        "longest_s": max(waits),
        "median_longest_s": sorted(waits)[MANY // 2],
        "mean_turn_bytes": turn_bytes,
    }


def _charged(rig: CaseRig, name: str) -> float:
    """What Sluice says it has charged this client id's fetches, in bytes."""
    return rig.sluice.metric("sluice_quota_bytes_total", quota="fetch", client_id=name)


def _arrived(logs: Sequence[FetchLog]) -> list[Event]:
    return [event for log in logs for event in log.arrived]
