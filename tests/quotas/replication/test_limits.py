"""Kafka's throttles of replication as they are set: texts read, and a follower's rate shared by leaders."""

from __future__ import annotations

import pytest

from sluice.quotas.replication.limits import (
    FOLLOWER_REPLICAS,
    LEADER_RATE,
    LEADER_REPLICAS,
    ReplicationLimits,
    ThrottledReplicas,
    parse_rate,
    parse_replicas,
)


@pytest.mark.parametrize(
    ("value", "pairs"),
    [
        ("0:1", {(0, 1)}), (" 0:1 , 2:3,", {(0, 1), (2, 3)}), ("", set()),
        ("2147483647:2147483647", {(2**31 - 1, 2**31 - 1)}),
    ],
)  # fmt: skip
def test_throttled_replicas_are_pairs_of_partition_and_broker(
    value: str, pairs: set[tuple[int, int]]
) -> None:
    found = parse_replicas(LEADER_REPLICAS, value)
    assert found.pairs == pairs
    assert (found.all, found.is_empty) == (False, not pairs)
    assert all(found.has(*pair) for pair in pairs)
    assert not found.has(9, 9)


def test_all_of_them_is_a_star() -> None:
    found = parse_replicas(LEADER_REPLICAS, " * ")
    assert (found, found.is_empty) == (ThrottledReplicas(all=True), False)
    assert found.has(9, 9)
    assert ThrottledReplicas().is_empty


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (True, "not True"), (None, "not None"), (1.5, "not 1.5"),
        (1_000, "not a number (1000): a rate is set with leader.replication.throttled.rate"),
        ("1000", "not a number (1000): a rate is set with leader.replication.throttled.rate"),
        ("0-1", "not '0-1' (did you mean 0:1?)"), ("0:1,x", "not 'x'"), ("0:1:2", "not '0:1:2'"),
        ("0:2147483648", "'0:2147483648' has a number above 2147483647"),
        ("2147483648:0", "'2147483648:0' has a number above 2147483647"),
    ],
)  # fmt: skip
def test_anything_else_is_refused_by_what_it_must_be(value: object, message: str) -> None:
    with pytest.raises(ValueError, match=r"must be '\*' or partition:broker") as refused:
        parse_replicas(LEADER_REPLICAS, value)
    assert str(refused.value).endswith(message)


def test_a_followers_list_names_the_followers_rate() -> None:
    with pytest.raises(ValueError, match=r"set with follower\.replication\.throttled\.rate"):
        parse_replicas(FOLLOWER_REPLICAS, "5")


@pytest.mark.parametrize(
    ("value", "rate"),
    [
        (5, 5.0), ("5", 5.0), (5.0, 5.0), (0, 1.0), (1, 1.0), (2**63 - 1, None),
        ("9223372036854775807", None), (2**63 - 2, float(2**63 - 2)),
    ],
)  # fmt: skip
def test_a_rate_is_a_whole_number_of_bytes_per_second(value: object, rate: float | None) -> None:
    assert parse_rate(LEADER_RATE, value) == rate


@pytest.mark.parametrize("value", [True, 1.5, "x", "1.5", float("inf"), None])
def test_what_is_no_whole_number_is_no_rate(value: object) -> None:
    with pytest.raises(ValueError, match="must be a whole number of bytes per second"):
        parse_rate(LEADER_RATE, value)


@pytest.mark.parametrize("value", [-1, 2**63, "-5"])
def test_a_rate_lies_between_0_and_kafkas_largest(value: object) -> None:
    with pytest.raises(ValueError, match="must lie between 0 and 9223372036854775807"):
        parse_rate(LEADER_RATE, value)


def test_a_followers_rate_is_shared_among_those_it_catches_up_from() -> None:
    limits = ReplicationLimits(follower_rates={2: 900.0, 3: 900.0, 4: 900.0}, leaders_of={2: 3, 3: 0})
    assert [limits.follower_share(follower) for follower in (2, 3, 4)] == [300.0, 900.0, 900.0]
    with pytest.raises(KeyError):
        limits.follower_share(9)


def test_it_is_off_unless_a_rate_and_replicas_are_set_on_one_side() -> None:
    rates, replicas = {1: 5.0}, {"orders": ThrottledReplicas(all=True)}
    for limits, is_off in (
        (ReplicationLimits(), True), (ReplicationLimits(leader_rates=rates), True),
        (ReplicationLimits(leader_rates=rates, follower_replicas=replicas), True),
        (ReplicationLimits(leader_rates=rates, leader_replicas=replicas), False),
        (ReplicationLimits(follower_rates=rates, follower_replicas=replicas), False),
    ):  # fmt: skip
        assert limits.is_off is is_off
