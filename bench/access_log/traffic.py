"""The standard load of the access log: 22,000 principals and client ids, each on a connection of its own.

Who asks is drawn by Zipf's law with exponent 1.1; half of them produce to, half fetch from one of 50 topics,
5,000 requests a second in all, every 50th a Metadata. Sessions, usage meter and access log are the proxy's
own; bytes are handed to them without sockets, in simulated time, so that a minute of load takes seconds and
nothing but the proxy's own work differs between two arms. The load comes second by second, so that two arms
can take turns that are short against what else goes on on the machine. (All frames have the correlation id 0:
a connection has one request under way at a time.)
"""

import gc
import itertools
import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.access_log.load import PAIRS, REQUESTS_PER_S, TOPICS, USERS, ZIPF
from sluice.proxy.access_log.access_log import AccessLog
from sluice.proxy.access_log.sinks.sink import DirectorySettings
from sluice.proxy.access_log.writer import AccessWriter, AccessWriterSettings
from sluice.proxy.config.access_log import AccessLogOptions
from sluice.proxy.metrics.usage_meter import DRAIN_INTERVAL_S, UsageMeter
from sluice.proxy.session.policy import SessionPolicy, SharedState
from sluice.proxy.session.session import Session
from sluice.quotas.entity import DEFAULT, QuotaEntity
from sluice.quotas.limits.limits import QuotaLimits
from sluice.quotas.manager import QuotaManager
from sluice.usage.access_record import WINDOW_MS
from sluice.usage.records import Recorder
from testkit.frames import load_frames as frames

SECONDS: Final = 60
"""of a minute"""
_WINDOW_S: Final = WINDOW_MS // 1000
SAMPLE_SHARE: Final = 0.01
METADATA: Final = 3
METADATA_VERSION: Final = 9
METADATA_EVERY: Final = 50
MAX_BYTES: Final = 52_428_800
ANSWERS: Final = 64
"""Fetch answers of different sizes"""
SEED: Final = 11
UNIX_MS: Final = 1_795_000_000_000.0
START_MS: Final = 1_000_000.0
NO_LIMIT: Final = 10**12
WRITE_WITHIN_S: Final = 120.0
ROTATE_S: Final = 10.0
"""longer than both arms need for a minute of load, so that it makes one file of each table"""
_LOOK_S: Final = 0.005
_IDLE_S: Final = 0.0002
"""of processor time, between two looks"""


@dataclass(slots=True)
class Client:
    """Who asks, and the bytes of its requests."""

    user: str
    requests: list[bytearray]
    """Produce or Fetch of its topics, the last of them a Metadata"""
    fetches: bool


@dataclass(slots=True)
class Cost:
    """Processor time of one arm and one second of load."""

    loop_s: float
    """of the event loop's thread"""
    others_s: float
    """of all other threads"""


class Traffic:
    """The same for all arms and minutes: made once."""

    def __init__(self, *, pairs: int = PAIRS, topics_of_client: int = 1) -> None:
        rng = random.Random(SEED)
        self.clients = [_client(rng, number, topics_of_client) for number in range(pairs)]
        self.produce_answer = bytearray(frames.produce_response("t"))
        drawn = [int(min(max(rng.lognormvariate(8.0, 1.5), 300), 200_000)) for _ in range(ANSWERS)]
        self.fetch_answers = [bytearray(frames.fetch_response_of("t", size)) for size in drawn]
        weights = list(itertools.accumulate((1 + rank) ** -ZIPF for rank in range(pairs)))
        ranks = list(range(pairs))
        rng.shuffle(ranks)
        count = REQUESTS_PER_S * SECONDS
        self.order = rng.choices(ranks, cum_weights=weights, k=count)
        self.choice = [rng.getrandbits(16) for _ in range(count)]
        self.upstream_ms = [rng.lognormvariate(1.0, 0.8) for _ in range(count)]


class Arm:
    """The proxy without an access log, or with one that writes to `folder`."""

    def __init__(self, traffic: Traffic, folder: Path | None) -> None:
        self._traffic = traffic
        self._folder = folder
        limit = {"producer_byte_rate": NO_LIMIT, "consumer_byte_rate": NO_LIMIT}
        quotas = QuotaManager(QuotaLimits([(QuotaEntity(DEFAULT), limit)]))
        self._recorder = Recorder()
        self._meter = UsageMeter(self._recorder, quotas)
        self._log: AccessLog | None = None
        self._writer: AccessWriter | None = None
        self._now_ms = START_MS
        if folder is not None:
            self._writer = _writer(folder)
            options = AccessLogOptions(instance="proxy-0", sample_share=SAMPLE_SHARE)
            self._log = AccessLog(options, quotas, self._writer, START_MS, lambda: UNIX_MS - START_MS)
            self._meter.access_log = self._log.take
        names = None if self._log is None else self._log.topic_names
        shared = SharedState(quotas, self._recorder, topic_names=names)
        self._shared = shared
        self._policy = SessionPolicy()
        self._sessions: list[Session] = []

    def connect(self) -> None:
        """The next client does."""
        number = len(self._sessions)
        address, user = f"10.0.{number >> 8 & 255}.{number & 255}", self._traffic.clients[number].user
        self._sessions.append(Session(self._shared, self._policy, address, user, "1"))

    def second(self, place: int) -> Cost:
        """The load of the minute's second at `place`, and what the writer does of it: with the last of them
        all is in files, one of each table, as with rotate_s: 60."""
        files = self._files_written()
        begun = (time.thread_time(), _others_s())
        self._relay(place)
        loop_s = time.thread_time() - begun[0]
        is_last = place == SECONDS - 1
        if self._writer is not None and is_last:
            while self._writer.counters.rows_pending or self._writer.counters.bytes_pending:
                time.sleep(_LOOK_S)
        _until_others_are_idle()  # without a log likewise: after a sleep the caches are others'
        if self._writer is not None:
            counters = self._writer.counters
            assert counters.rows_dropped == counters.failures == 0, counters
            assert self._files_written() == files + 2 * is_last, "the minute took longer than ROTATE_S"
        return Cost(loop_s, _others_s() - begun[1])

    @property
    def rows_written(self) -> int:
        """Rows that stand in files."""
        return 0 if self._writer is None else self._writer.counters.rows_written

    def close(self) -> None:
        """After the last minute."""
        if self._writer is not None:
            self._writer.close(WRITE_WITHIN_S)

    def _files_written(self) -> int:
        return 0 if self._writer is None else self._writer.counters.files_written

    def _relay(self, place: int) -> None:
        traffic, sessions, clients = self._traffic, self._sessions, self._traffic.clients
        interval_ms = 1000.0 / REQUESTS_PER_S
        per_drain = int(REQUESTS_PER_S * DRAIN_INTERVAL_S)
        answer_of_produce, answers = traffic.produce_answer, traffic.fetch_answers
        begun_ms = self._now_ms
        drawn = slice(place * REQUESTS_PER_S, (place + 1) * REQUESTS_PER_S)
        steps = zip(traffic.order[drawn], traffic.choice[drawn], traffic.upstream_ms[drawn], strict=True)
        for number, (who, choice, upstream_ms) in enumerate(steps):
            now_ms = begun_ms + number * interval_ms
            client, session = clients[who], sessions[who]
            requests = client.requests
            is_metadata = choice % METADATA_EVERY == 0
            request = requests[-1] if is_metadata else requests[choice % (len(requests) - 1)]
            session.client_data(request, 0, len(request), now_ms - upstream_ms)
            answer = answers[choice % ANSWERS] if client.fetches or is_metadata else answer_of_produce
            session.broker_data(answer, 0, len(answer), now_ms)
            if number % per_drain == per_drain - 1:
                self._meter.drain(now_ms)
        self._now_ms = begun_ms + 1000.0
        if self._log is not None:
            self._log.hand_over()  # every second, as AccessLog.run does
        if (place + 1) % _WINDOW_S == 0:
            self._meter.drain(self._now_ms)  # the window is over
            if self._log is not None:
                self._log.hand_over()


def connect_all(traffic: Traffic, arms: Sequence[Arm]) -> None:
    """By turns, so that no arm's connections lie better in memory than the other's: two arms without a log
    differed by a tenth when one was made after the other. Then as the server does when it has started."""
    for _ in traffic.clients:
        for arm in arms:
            arm.connect()
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 10, 10)


def _others_s() -> float:
    """Processor time of all threads but this."""
    return time.process_time() - time.thread_time()


def _until_others_are_idle() -> None:
    before_s, used_s = 0.0, _others_s()
    while used_s - before_s > _IDLE_S:
        time.sleep(_LOOK_S)
        before_s, used_s = used_s, _others_s()


def sizes(folder: Path) -> Iterator[tuple[str, int]]:
    """(table, bytes) of each file written."""
    for file in sorted(folder.rglob("*.parquet")):
        yield file.relative_to(folder).parts[0], file.stat().st_size


def _writer(folder: Path) -> AccessWriter:
    writer = AccessWriter(AccessWriterSettings(DirectorySettings(folder), "proxy-0", rotate_s=ROTATE_S))
    writer.start()
    writer.ready.wait()
    return writer


def _client(rng: random.Random, number: int, topics: int) -> Client:
    user, client_id = f"user-{number % USERS:04}", f"client-{number // USERS:02}.{number % 7}"
    fetches = number % 2 == 1
    requests = []
    for at in range(topics):
        name = f"topic-{(number + at) % TOPICS:02}"
        if fetches:
            requests.append(frames.fetch_request(client_id, name, max_bytes=MAX_BYTES))
        else:
            for _ in range(2):
                size = int(min(max(rng.lognormvariate(6.5, 1.0), 10), 20_000))
                requests.append(frames.produce_request(client_id, name, frames.record_batch(bytes(size))))
    requests.append(frames.request(METADATA, METADATA_VERSION, client_id, bytes(5)))
    return Client(user, requests, fetches)
