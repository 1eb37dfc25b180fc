"""The figures of bench-entities are of what they say: so many entities, limits that differ, all they take."""

from __future__ import annotations

import pytest

from bench.entities.__main__ import limits_for
from bench.entities.figures import KEYS, Loads, LookUps, load, memory, names_of, quota_file
from sluice.quotas.files.quota_file import parse_quotas


def test_a_file_has_so_many_entities_and_no_two_limits_are_the_same() -> None:
    entries = parse_quotas(quota_file(names_of(300)), "quotas.yaml").entries
    limits = [limit for values in entries.values() for limit in values.values()]
    assert (len(entries), len(limits), len(set(limits))) == (300, 600, 600)


def test_the_entities_of_the_request_case_are_those_whose_connections_ask() -> None:
    assert [entry["client-id"] for entry in limits_for(3)] == ["client-00000", "client-00001", "client-00002"]


def test_a_repeat_gives_one_sample_of_each_figure() -> None:
    loads, look_ups = Loads(10), LookUps(10)
    load(loads)
    look_ups.repeat()
    assert [len(samples) for samples in (loads.wall_s, loads.cpu_s, loads.longest_step_ms)] == [1, 1, 1]
    assert len(look_ups.spreads()) == 4


@pytest.mark.long
def test_memory_counts_limits_buckets_and_what_is_remembered() -> None:
    """The numbers of a large file; a limit, a bucket of 25 fields and a key of two names are no less."""
    one, two = (memory(1_000, "", client_ids=True, keys=keys) for keys in (KEYS[:1], KEYS))
    assert one.limits > 250
    assert one.buckets > 200
    assert one.look_ups > 50
    assert two.buckets > 1.8 * one.buckets
    assert one.total == one.limits + one.buckets + one.look_ups
