"""Both stores of producer ids through one interface, and what is special to each."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mmh3 import hash128

from sluice.quotas.producer_ids import store as store_module
from sluice.quotas.producer_ids.store import BloomStore, ExactStore, IdLayer, ProducerIdStore

HOUR = 3_600_000.0
BLOCK = range(5_000, 6_000)
"""as a broker hands ids out"""

Make = Callable[[], ProducerIdStore]


@pytest.fixture(params=["exact", "bloom"])
def make(request: pytest.FixtureRequest) -> Make:
    if request.param == "exact":
        return lambda: ExactStore(11, HOUR)
    return lambda: BloomStore(11, HOUR, layer_ids=10_000, false_positive_rate=0.001)


def test_an_id_is_known_once_it_is_admitted_and_not_because_it_was_looked_up(make: Make) -> None:
    store = make()
    assert not store.seen(7, 0.0)
    assert not store.seen(7, 1.0)
    store.admit(7, 2.0)
    assert store.seen(7, 2.0)


def test_an_id_that_is_not_seen_again_is_forgotten_after_the_window(make: Make) -> None:
    store = make()
    store.admit(7, 0.0)
    store.admit(8, 11 * HOUR - 1.0)
    assert not store.seen(7, 11 * HOUR)
    assert store.seen(8, 11 * HOUR)


def test_an_id_seen_late_in_a_layer_is_still_remembered_for_all_samples_but_one(make: Make) -> None:
    store = make()
    store.admit(1, 0.0)
    store.admit(7, HOUR - 1.0)
    assert store.seen(7, 11 * HOUR - 1.0)


def test_an_id_that_goes_on_writing_never_looks_new(make: Make) -> None:
    store = make()
    store.admit(7, 0.0)
    for hour in range(1, 300):
        assert store.seen(7, hour * 10 * HOUR), f"after {hour * 10} hours"


def test_there_is_one_layer_a_sample_and_at_most_as_many_as_the_window_has(make: Make) -> None:
    store = make()
    for hour in range(40):
        store.admit(hour, hour * HOUR)
        assert store.layers == min(hour + 1, 11)


def test_time_without_traffic_counts_too(make: Make) -> None:
    store = make()
    store.admit(7, 0.0)
    store.admit(8, 5.5 * HOUR)
    assert store.layers == 2
    assert not store.seen(7, 12 * HOUR)
    assert store.seen(8, 12 * HOUR)


def test_a_store_whose_layers_have_all_expired_says_so(make: Make) -> None:
    store = make()
    assert store.expire(0.0)
    store.admit(7, 0.0)
    assert not store.expire(11 * HOUR - 1.0)
    assert store.expire(11 * HOUR)
    assert store.layers == 0
    assert len(store) == 0


def test_turn_ms_is_how_long_a_connection_may_take_its_last_id_for_fresh(make: Make) -> None:
    store = make()
    store.admit(7, 100.0)
    assert store.eligible_at_ms == 100.0 + HOUR
    assert store.seen(7, store.eligible_at_ms)
    assert store.eligible_at_ms == 100.0 + 2 * HOUR


def test_turn_ms_is_also_when_the_oldest_layer_ends_if_that_comes_first(make: Make) -> None:
    store = make()
    store.admit(7, 0.0)
    store.admit(8, 10.5 * HOUR)
    assert store.eligible_at_ms == 11 * HOUR


def test_what_was_dumped_is_known_where_it_is_loaded_with_the_time_that_was_left(make: Make) -> None:
    store, other = make(), make()
    store.admit(7, 0.0)
    store.admit(8, 3 * HOUR)
    other.load(store.dump(), 4 * HOUR)
    assert other.layers == 2
    assert other.seen(8, 11 * HOUR)
    assert not other.seen(7, 11 * HOUR)


def test_a_dump_that_is_too_old_leaves_nothing(make: Make) -> None:
    store, other = make(), make()
    store.admit(7, 0.0)
    other.admit(9, 0.0)
    other.load(store.dump(), 20 * HOUR)
    assert other.layers == 0
    assert not other.seen(9, 20 * HOUR)


def test_a_store_refuses_what_the_other_kind_has_dumped() -> None:
    exact, bloom = ExactStore(11, HOUR), BloomStore(11, HOUR, layer_ids=100)
    exact.admit(1, 0.0)
    bloom.admit(1, 0.0)
    with pytest.raises(ValueError, match="no set of ids"):
        exact.load(bloom.dump(), 0.0)
    with pytest.raises(ValueError, match="no Bloom filter"):
        bloom.load(exact.dump(), 0.0)


# Exact ----------------------------------------------------------------------------------------------------


def test_the_exact_store_keeps_each_id_once_whatever_layers_it_went_through() -> None:
    store = ExactStore(11, HOUR)
    for hour in range(10):
        for producer_id in BLOCK:
            if not store.seen(producer_id, hour * HOUR):
                store.admit(producer_id, hour * HOUR)
    assert len(store) == len(BLOCK)
    assert store.layers == 1


def test_the_exact_store_takes_at_most_150_bytes_an_id() -> None:
    random = Random(1)
    for count in (1_000, 100_000):
        store = ExactStore()
        for _ in range(count):
            store.admit(random.getrandbits(63), 0.0)
        assert store.size_bytes / count <= 150


def test_a_store_of_fixed_size_never_grows_beyond_it() -> None:
    store = ExactStore(11, HOUR, max_ids=1_000)
    for producer_id in range(100_000):
        store.admit(producer_id, producer_id * 1.0)
        assert len(store) <= 1_000
    assert store.layers <= 2


def test_in_a_store_of_fixed_size_a_live_id_stays_known_through_a_flood_of_others() -> None:
    store = ExactStore(11, HOUR, max_ids=1_000)
    store.admit(-5, 0.0)
    for producer_id in range(50_000):
        store.admit(producer_id, 1.0)
        if producer_id % 400 == 0:
            assert store.seen(-5, 1.0)


@given(st.lists(st.tuples(st.integers(0, 9), st.booleans(), st.floats(0, 3 * HOUR)), max_size=60))
def test_the_exact_store_agrees_with_a_plain_list_of_times(
    steps: list[tuple[int, bool, float]],
) -> None:
    """Never forgotten within ten samples, always forgotten after eleven."""
    store = ExactStore(11, HOUR)
    last: dict[int, float] = {}
    now_ms = 0.0
    for producer_id, admit, elapsed_ms in steps:
        now_ms += elapsed_ms
        seen = store.seen(producer_id, now_ms)
        age_ms = now_ms - last.get(producer_id, -1e18)
        if age_ms < 10 * HOUR:
            assert seen
        if age_ms >= 11 * HOUR:
            assert not seen
        if admit:
            store.admit(producer_id, now_ms)
        if seen or admit:
            last[producer_id] = now_ms
        assert store.layers <= 11
        assert len(store) == len(set().union(*(set(ids) for _, ids in store.dump())))


# Bloom ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ids", ["sequential", "random"])
def test_the_bloom_store_keeps_its_false_positive_rate_with_all_layers_full(ids: str) -> None:
    """A sample's first filter has half of its part; with 11 of 1,000 ids each and 1 % in all, half of that is
    to be expected."""
    random = Random(3)
    store = BloomStore(11, HOUR, layer_ids=1_000, false_positive_rate=0.01)
    for hour in range(11):
        for index in range(1_000):
            chosen = hour * 1_000 + index if ids == "sequential" else random.getrandbits(63)
            store.admit(chosen, hour * HOUR)
    assert store.layers == 11
    others = range(11_000, 61_000) if ids == "sequential" else [random.getrandbits(63) for _ in range(50_000)]
    now_ms = 10.5 * HOUR
    false = sum(store.seen(producer_id, now_ms) for producer_id in others)
    assert false / 50_000 <= 0.01


def test_the_filters_of_a_sample_are_few_and_keep_the_false_positive_rate_however_many_ids_come() -> None:
    """As where a limit was raised, or all live ids of a higher one go on: 22 filters of 1,000 were full after
    22,000 ids, and of 40,000 each second one was forgotten."""
    store = BloomStore(11, HOUR, layer_ids=1_000, false_positive_rate=0.01)
    for producer_id in range(40_000):
        store.admit(producer_id, 0.0)
    assert all(store.seen(producer_id, 0.0) for producer_id in range(40_000))
    assert store.layers == 7  # 1,000, and then as many as there are already
    assert store.size_bytes <= 64_000 * 4
    false = sum(store.seen(producer_id, 0.0) for producer_id in range(10**9, 10**9 + 50_000))
    assert false / 50_000 <= 0.01


def test_the_first_filter_of_a_sample_has_room_for_the_ids_of_the_one_before() -> None:
    # At a usual rate new ids pass for known ones, by a secret key: a sample counts fewer, the next more.
    store = BloomStore(11, HOUR, layer_ids=100, false_positive_rate=1e-9)
    for hour in range(30):
        for producer_id in range(5_000):
            if hour:
                assert store.seen(producer_id, hour * HOUR)
            else:
                store.admit(producer_id, 0.0)
    assert store.layers == 11


def test_the_memory_of_a_bloom_store_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """By filters of a largest size, four a sample: then the oldest goes."""
    monkeypatch.setattr(store_module, "MAX_LAYER_IDS", 200)
    store = BloomStore(3, HOUR, layer_ids=100, false_positive_rate=1e-6)
    for producer_id in range(10_000):
        store.admit(producer_id, 0.0)
    assert store.layers == 12
    assert len(store) <= 12 * 200


def test_the_bloom_store_takes_a_few_bytes_an_id() -> None:
    store = BloomStore(11, HOUR, layer_ids=10_000, false_positive_rate=0.01)
    for producer_id in range(10_000):
        store.admit(producer_id, 0.0)
    assert store.layers == 1
    assert store.size_bytes <= 10_000 * 4


def test_a_filter_of_another_size_is_taken_over_and_one_with_more_false_positives_is_refused() -> None:
    """Its size follows the limit, and how many came; that no byte of it is missing, the snapshot knows."""
    store = BloomStore(11, HOUR, layer_ids=100, false_positive_rate=0.01)
    for producer_id in range(250):
        store.admit(producer_id, 0.0)
    layers = store.dump()
    for layer_ids in (1, 100, 1_000):
        other = BloomStore(11, HOUR, layer_ids=layer_ids, false_positive_rate=0.01)
        other.load(layers, 0.0)
        # Under one secret key in fourteen a new id passes for a known one and is not added: 249, not 250.
        assert (other.layers, len(other)) == (3, len(store))
        for producer_id in range(250, 2_000):
            other.admit(producer_id, 0.0)
        assert all(other.seen(producer_id, 0.0) for producer_id in range(2_000))
    BloomStore(11, HOUR, layer_ids=100, false_positive_rate=0.02).load(layers, 0.0)
    with pytest.raises(ValueError, match="more false positives"):
        BloomStore(11, HOUR, layer_ids=100, false_positive_rate=0.001).load(layers, 0.0)


def test_what_is_no_filter_is_refused() -> None:
    store = BloomStore(11, HOUR, layer_ids=100)
    for producer_id in range(100):
        store.admit(producer_id, 0.0)
    ((began_ms, data),) = store.dump()
    assert isinstance(data, bytes)
    for damaged in (b"", data[:20], data[:24], data[:32], data[:-30], data[:24] + b"\xff" * (len(data) - 24)):
        with pytest.raises(ValueError, match="more false positives, or is none"):
            store.load([(began_ms, damaged)], 0.0)
    assert store.dump() == [(began_ms, data)]


def test_no_id_can_be_computed_that_passes_for_a_known_one() -> None:
    """Python's hash of a number is the number modulo 2⁶¹ − 1, which a filter must not rely on."""
    store = BloomStore(11, HOUR, layer_ids=1_000, false_positive_rate=1e-6)
    for producer_id in range(100):
        store.admit(producer_id, 0.0)
    for modulus in (2**61 - 1, 2**32, 2**60, 2**62):
        assert not any(store.seen(producer_id + modulus, 0.0) for producer_id in range(100))


def test_ids_that_collide_without_the_key_do_not_collide_with_it() -> None:
    """Ids of which MurmurHash3 has the same low bits, as that of a known one has."""
    store = BloomStore(11, HOUR, layer_ids=1_000, false_positive_rate=0.001)
    low_bits = 2**12 - 1
    wanted = hash128(bytes(8)) & low_bits
    store.admit(0, 0.0)
    chosen = [
        producer_id
        for producer_id in range(1, 400_000)
        if hash128(producer_id.to_bytes(8, "little")) & low_bits == wanted
    ]
    assert len(chosen) > 50
    assert sum(store.seen(producer_id, 0.0) for producer_id in chosen) <= 2


def test_negative_ids_are_ids() -> None:
    """A client may write any 64 bits."""
    store = BloomStore(11, HOUR, layer_ids=1_000)
    for producer_id in (-(2**63), -1, 2**63 - 1):
        store.admit(producer_id, 0.0)
        assert store.seen(producer_id, 0.0)


def test_two_bloom_stores_do_not_mix_ids_in_the_same_way() -> None:
    """Or an attacker could find ids that pass for known ones, and use them elsewhere."""
    dumps = set()
    for _ in range(2):
        store = BloomStore(11, HOUR, layer_ids=100)
        store.admit(1, 0.0)
        ((_, data),) = store.dump()
        assert not isinstance(data, array)
        dumps.add(data[24:])  # behind the key and the additions
    assert len(dumps) == 2


def test_layers_are_dumped_in_the_order_in_which_they_were_loaded() -> None:
    """Oldest first: of the oldest it is known when it ends."""
    store = ExactStore(4, HOUR)
    layers: list[IdLayer] = [(number * HOUR, [number]) for number in range(3)]
    store.load(layers, 3.0 * HOUR)
    assert store.dump() == layers
    assert store.eligible_at_ms == 4.0 * HOUR
