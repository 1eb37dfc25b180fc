"""Bounds on what clients may be delayed, and on what they may make the proxy remember."""

from __future__ import annotations

import pytest

from sluice.proxy.session.delays import DelayLimits, LeftBehind, SessionTimeouts

LIMITS = DelayLimits()
APP = ("alice", "app", "10.0.0.1")


@pytest.mark.parametrize(
    ("seen_ms", "limit_ms"),
    [
        ([], 3_000),  # none seen: behind a sidecar, or KIP-848
        ([6_000], 3_000),
        ([10_000], 5_000),
        ([45_000], 8_000),  # the answer budget
        ([45_000, 8_000, 30_000], 4_000),  # the smallest
        ([7_001], 3_500.5),
        ([0], 3_000),  # not positive: the broker's to refuse
        ([-1], 3_000),
    ],
)
def test_a_fetch_may_be_muted_for_half_the_smallest_session_timeout(
    seen_ms: list[int], limit_ms: float
) -> None:
    timeouts = SessionTimeouts()
    for session_timeout_ms in seen_ms:
        timeouts.saw(*APP, session_timeout_ms)
    assert timeouts.fetch_limit_ms(*APP, LIMITS) == limit_ms


@pytest.mark.parametrize(
    "other", [("bob", "app", "10.0.0.1"), ("alice", "x", "10.0.0.1"), ("alice", "app", "::1")]
)
def test_the_timeout_of_another_user_client_id_or_address_bounds_nothing(other: tuple[str, str, str]) -> None:
    timeouts = SessionTimeouts()
    timeouts.saw(*other, 8_000)
    assert timeouts.fetch_limit_ms(*APP, LIMITS) == 3_000


def test_settings_bound_the_fetch_limit() -> None:
    timeouts = SessionTimeouts()
    assert timeouts.fetch_limit_ms(*APP, DelayLimits(answer_budget_ms=1_000)) == 1_000
    assert timeouts.fetch_limit_ms(*APP, DelayLimits(fetch_default_ms=700)) == 700


def test_a_user_with_many_client_ids_makes_the_proxy_forget_his_own_only() -> None:
    """Room for 3 of each user: of alice's 5 the oldest 2 are back at the default, bob's stays."""
    timeouts = SessionTimeouts(max_members=100, max_members_per_user=3)
    timeouts.saw("bob", "app", "10.0.0.1", 8_000)
    for i in range(5):
        timeouts.saw("alice", f"app-{i}", "10.0.0.1", 8_000)
    limits = [timeouts.fetch_limit_ms("alice", f"app-{i}", "10.0.0.1", LIMITS) for i in range(5)]
    assert limits == [3_000, 3_000, 4_000, 4_000, 4_000]
    assert timeouts.fetch_limit_ms("bob", "app", "10.0.0.1", LIMITS) == 4_000
    assert len(timeouts) == 4


def test_all_users_together_have_room_for_so_many_and_the_largest_gives_way() -> None:
    """Room for 4 in all: alice has 3, bob 1; carol's takes alice's oldest."""
    timeouts = SessionTimeouts(max_members=4, max_members_per_user=3)
    timeouts.saw("bob", "app", "10.0.0.1", 8_000)
    for i in range(3):
        timeouts.saw("alice", f"app-{i}", "10.0.0.1", 8_000)
    timeouts.saw("carol", "app", "10.0.0.1", 8_000)
    limits = [timeouts.fetch_limit_ms("alice", f"app-{i}", "10.0.0.1", LIMITS) for i in range(3)]
    assert limits == [3_000, 4_000, 4_000]
    for user in ("bob", "carol"):
        assert timeouts.fetch_limit_ms(user, "app", "10.0.0.1", LIMITS) == 4_000
    assert len(timeouts) == 4


def test_a_timeout_of_a_millisecond_is_one_and_none_is_not() -> None:
    timeouts = SessionTimeouts()
    for session_timeout_ms in (0, -1):
        timeouts.saw(*APP, session_timeout_ms)
    assert len(timeouts) == 0
    timeouts.saw(*APP, 1)
    assert timeouts.fetch_limit_ms(*APP, LIMITS) == 0.5


def test_a_member_that_joins_again_takes_no_further_room() -> None:
    timeouts = SessionTimeouts(max_members=2)
    for session_timeout_ms in range(9_000, 8_000, -1):
        timeouts.saw(*APP, session_timeout_ms)
    assert len(timeouts) == 1


def test_bytes_left_behind_are_capped_for_each_user_and_given_back() -> None:
    """Cap 1,000: 600 and 400 fit, one more does not; bob's are his own."""
    left_behind = LeftBehind(cap_bytes=1_000)
    assert left_behind.take("alice", 600)
    assert left_behind.take("alice", 400)
    assert not left_behind.take("alice", 1)
    assert left_behind.take("bob", 1_000)
    left_behind.give_back("alice", 600)
    assert left_behind.take("alice", 600)
    assert not left_behind.take("alice", 1)


def test_a_single_byte_that_is_left_behind_counts() -> None:
    left_behind = LeftBehind(cap_bytes=1_000)
    assert left_behind.take("alice", 601)
    left_behind.give_back("alice", 600)
    assert not left_behind.take("alice", 1_000)
    assert left_behind.take("alice", 999)


def test_nothing_is_remembered_of_a_user_who_left_nothing_behind() -> None:
    left_behind = LeftBehind(cap_bytes=1_000)
    left_behind.take("alice", 600)
    left_behind.give_back("alice", 600)
    left_behind.give_back("bob", 0)
    assert left_behind._bytes == {}
