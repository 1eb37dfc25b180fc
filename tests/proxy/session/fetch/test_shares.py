"""What each consumer of one bucket gets that always reads a backlog, by the size of its batches."""

from __future__ import annotations

from itertools import repeat

import pytest

from testkit.proxy.fetch_crowd import FetchCrowd, backlog

RATE = 200_000


@pytest.mark.parametrize(
    "sizes",
    [(60_000, 600), (60_000, 6_000), (60_000, 20_000), (60_000, 600, 600, 600), (256_000, 1_000, 1_000)],
)
def test_a_reader_of_small_batches_gets_at_least_three_quarters_of_its_share(
    sizes: tuple[int, ...],
) -> None:
    """Behind a mute its next Fetch came when the turn fell, too late for it each time: it had a third of the
    other's bytes, or a sixth. By whole batches the shares cannot be even."""
    crowd = FetchCrowd(RATE, answer_ms=1.5)
    for size in sizes:
        crowd.add(backlog(repeat(size)))
    crowd.run(5_000.0)
    crowd.forget()
    crowd.run(60_000.0)
    given = [consumer.bytes_brought for consumer in crowd.consumers]
    assert sum(given) == pytest.approx(60 * RATE, rel=0.05)
    assert min(given) >= 0.74 * sum(given) / len(given)
