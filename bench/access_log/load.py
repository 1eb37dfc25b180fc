"""The access log at the standard load: 22,000 pairs of principal and client id (Zipf 1.1), 50 topics, 5,000
requests a second. Its roll-up of a 10-second window then has some 8,000 rows, one for each 6 requests."""

from itertools import accumulate
from random import Random
from typing import Final

from sluice.usage.access_record import WINDOW_MS
from sluice.usage.flow import AccessFlow, Origin
from sluice.usage.records import RequestRecord
from sluice.usage.rollup import Limits, Rollup, Window

PAIRS: Final = 22_000
USERS: Final = 2_000
TOPICS: Final = 50
ZIPF: Final = 1.1
REQUESTS_PER_S: Final = 5_000
REQUESTS_PER_WINDOW: Final = REQUESTS_PER_S * WINDOW_MS // 1000
BEGIN_MS: Final = 1_763_700_000_000
_PRODUCER_SHARE: Final = 0.6
_METADATA_SHARE: Final = 0.03
_THROTTLED_ONE_IN: Final = 50
_UNLIMITED_ONE_IN: Final = 3
_DRAINS_PER_WINDOW: Final = 100
_API_KEYS: Final = {"produce": 0, "fetch": 1, "metadata": 3}


class Load:
    """Windows of one process, one after another; the same at every call. Each may be told several times."""

    def __init__(self, count: int, *, pairs: int = PAIRS, requests: int = REQUESTS_PER_WINDOW) -> None:
        random = Random(1)
        weights = list(accumulate((rank + 1) ** -ZIPF for rank in range(pairs)))
        limits = _LimitsOf()
        rollup = Rollup("proxy-1", lambda: limits, now_ms=0.0, unix_ms=BEGIN_MS)
        self._flows = [_flows(random, number) for number in range(pairs)]  # while they live, so do their keys
        for window in range(count):
            records = []
            for number in range(requests):
                pair = random.choices(range(pairs), cum_weights=weights)[0]
                at_ms = window * WINDOW_MS + number * WINDOW_MS / requests
                records.append(_record(random, pair, self._flows[pair], at_ms))
            for drain in range(_DRAINS_PER_WINDOW):
                begin, end = (at * requests // _DRAINS_PER_WINDOW for at in (drain, drain + 1))
                if begin < end:
                    rollup.add_requests(records[begin:end], slow_ms=1e9)
            rollup.close(BEGIN_MS)
        self.windows: Final[list[Window]] = list(rollup.over)


def _flows(random: Random, number: int) -> tuple[AccessFlow, AccessFlow]:
    """Of a connection: of its Produce or Fetch requests, and of its Metadata."""
    origin = Origin(f"User-{number % USERS:04d}", broker="1")
    client_id = f"service-{number % USERS:04d}-{number // USERS}"
    api_class = "produce" if random.random() < _PRODUCER_SHARE else "fetch"
    topic = f"topic-{random.randrange(TOPICS):02d}"
    return AccessFlow(origin, client_id, api_class, topic), AccessFlow(origin, client_id, "metadata")


def _record(
    random: Random, pair: int, flows: tuple[AccessFlow, AccessFlow], finished_ms: float
) -> RequestRecord:
    flow = flows[random.random() < _METADATA_SHARE]
    size = int(random.lognormvariate(7, 1))
    throttle_ms = random.random() * 200 if pair % _THROTTLED_ONE_IN == 0 else 0.0
    return (
        flow,
        size if flow.api_class == "produce" else 90,
        size if flow.api_class == "fetch" else 60,
        random.lognormvariate(0.5, 0.6), throttle_ms, 0.0, finished_ms,
        _API_KEYS[flow.api_class], 9, flow.origin.user, None,
    )  # fmt: skip


class _LimitsOf:
    """A limit for each user, but for one in three; all client ids of a user share a bucket."""

    def __call__(self, user: str, client_id: str) -> Limits:
        return (1_048_576.0 if _is_limited(user) else None), 2_097_152.0, 200.0, None, None

    def bucket_of(self, user: str, client_id: str, api_class: str) -> str | None:
        return user if api_class == "fetch" or (api_class == "produce" and _is_limited(user)) else None


def _is_limited(user: str) -> bool:
    return int(user.rpartition("-")[2]) % _UNLIMITED_ONE_IN != 0
