"""The access log at the standard load: 22,000 pairs of principal and client id (Zipf 1.1), 50 topics, 5,000
requests a second. Its roll-up of a 10-second window then has some 8,000 rows, one for each 6 requests."""

from collections.abc import Iterator
from itertools import accumulate
from random import Random
from typing import Final

from sluice.quotas.access_record import WINDOW_MS, Value

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

Row = tuple[Value, ...]


def windows(count: int, *, pairs: int = PAIRS, requests: int = REQUESTS_PER_WINDOW) -> Iterator[list[Row]]:
    """The roll-up's rows of one window after another; the same at every call."""
    random = Random(1)
    weights = list(accumulate((rank + 1) ** -ZIPF for rank in range(pairs)))
    names = [(f"User-{n % USERS:04d}", f"service-{n % USERS:04d}-{n // USERS}") for n in range(pairs)]
    topics = [f"topic-{random.randrange(TOPICS):02d}" for _ in range(pairs)]
    classes = ["produce" if random.random() < _PRODUCER_SHARE else "fetch" for _ in range(pairs)]
    for window in range(count):
        cells: dict[tuple[int, str], list[float]] = {}
        for pair in random.choices(range(pairs), cum_weights=weights, k=requests):
            api_class = "metadata" if random.random() < _METADATA_SHARE else classes[pair]
            cell = cells.setdefault((pair, api_class), [0, 0, 0, 0.0, 0.0, 0])
            size = int(random.lognormvariate(7, 1))
            cell[0] += 1
            cell[1] += size if api_class == "produce" else 90
            cell[2] += size if api_class == "fetch" else 60
            cell[3] += random.lognormvariate(0.5, 0.6)
            cell[4] += 0.05 + size * 1e-6
            cell[5] = max(cell[5], size)
        yield [
            _row(
                BEGIN_MS + window * WINDOW_MS,
                *names[pair],
                api_class,
                "" if api_class == "metadata" else topics[pair],
                cell,
                random.random() * 200 if pair % _THROTTLED_ONE_IN == 0 else 0.0,
                None if pair % 3 == 0 else 1_048_576.0,
            )
            for (pair, api_class), cell in cells.items()
        ]


def _row(
    begin_ms: int,
    user: str,
    client_id: str,
    api_class: str,
    topic: str,
    cell: list[float],
    throttle_ms: float,
    produce_limit: float | None,
) -> Row:
    """In the order of access_record.ROLLUP_COLUMNS."""
    requests, request_bytes, response_bytes, upstream_ms, cost_ms, peak = cell
    who = (begin_ms, "proxy-1", "1", user, client_id, "", api_class, topic)
    sums = (requests, request_bytes, response_bytes, upstream_ms, cost_ms, 0.0, throttle_ms)
    counts = (1, 0, 0, int(throttle_ms > 0), 0, 0, 0, 0.0, 0, 0, 0, 0)
    return (*who, *sums, *counts, peak, produce_limit, 2_097_152.0, 200.0, None, None)
