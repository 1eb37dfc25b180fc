"""Grants of whole batches: what is cut at the end of an answer is waste."""

from __future__ import annotations

from random import Random

import pytest

from sluice.quotas.sensors.batch_sizes import UNKNOWN_BYTES, BatchSizes


def sizes_of(*sizes: int, now_ms: float = 0.0) -> BatchSizes:
    batches = BatchSizes()
    batches.saw(sizes, now_ms)
    return batches


def test_before_a_batch_was_seen_it_may_be_as_large_as_the_broker_lets_it_be() -> None:
    batches = BatchSizes()
    assert batches.largest_bytes == UNKNOWN_BYTES
    assert batches.whole(5_000, 10_000) == 5_000


def test_batches_that_are_alike_are_granted_in_whole_numbers() -> None:
    batches = sizes_of(*[16_384] * 5)
    assert batches.whole(150_000, 100_000) == 9 * 16_384
    assert batches.whole(16_383, 100_000) == 16_384
    assert batches.whole(1, 100_000) == 16_384


def test_of_batches_alike_half_of_the_most_is_granted() -> None:
    """So that each second has twenty grants: with ten of 98 kB it had 10 or 11, a variation of 0.044."""
    batches = sizes_of(*[16_384] * 5)
    assert batches.whole(100_000, 100_000) == 3 * 16_384
    assert batches.whole(60_000, 100_000) == 3 * 16_384
    assert sizes_of(51_000).whole(100_000, 100_000) == 51_000


def test_batches_that_differ_by_some_bytes_are_alike() -> None:
    batches = sizes_of(16_380, 16_384, 16_300)
    assert batches.whole(40_000, 100_000) == 2 * 16_384


def test_of_mixed_batches_one_is_granted_by_asking_for_a_byte() -> None:
    batches = sizes_of(1_000, 500_000, 20_000)
    assert batches.whole(100_000, 100_000) == 1


def test_ten_of_the_typical_size_are_granted_as_they_are() -> None:
    batches = sizes_of(1_000, 1_500)
    assert batches.whole(50_000, 100_000) == 50_000


def test_small_batches_are_granted_by_the_ten_though_the_share_is_less() -> None:
    """Or each would cost a request: Σ size² ÷ Σ size = 1,300."""
    batches = sizes_of(1_000, 1_500)
    assert batches.whole(2_000, 100_000) == pytest.approx(13_000)


def test_the_largest_is_remembered_while_small_ones_come() -> None:
    batches = sizes_of(500_000)
    for second in range(600):
        batches.saw([100] * 8, second * 1_000.0)
        if second <= 300:
            assert batches.largest_bytes == 500_000
    for second in range(600, 1_300):
        batches.saw([100] * 8, second * 1_000.0)
    assert batches.largest_bytes == 100


@pytest.mark.parametrize("most", [1_000, 51_000, 512_000])
def test_at_most_a_twentieth_is_cut_off(most: int) -> None:
    """A broker fills max_bytes with batches of 1 kB to `most`, and cuts the last one."""
    random = Random(most)
    batches = BatchSizes()
    useful = charged = 0
    upcoming = [random.randint(min(1_000, most // 2), most) for _ in range(3_000)]
    while len(upcoming) > 200:
        max_bytes = batches.whole(100_000, 100_000)
        whole: list[int] = []
        total = 0
        while total + upcoming[0] <= max_bytes or not whole:
            whole.append(upcoming.pop(0))
            total += whole[-1]
        useful += total
        charged += max(total, int(max_bytes)) if max_bytes > 1 else total
        batches.saw(whole[:8], 0.0)
    assert useful / charged >= 0.95
