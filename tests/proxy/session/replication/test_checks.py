"""KIP-73's own rules for throttles, with its worked examples."""

from __future__ import annotations

from collections.abc import Mapping

from sluice.proxy.session.replication.checks import (
    LEFT_BEHIND,
    LEFT_BEHIND_AFTER_S,
    RESPONSE_MAX_BYTES,
    SAFE_BAND,
    ClusterState,
    findings,
)
from sluice.quotas.replication.limits import ReplicationLimits

DEFAULT_RESPONSE_BYTES = 10 * 1024 * 1024


def state(rate: float | None = 5e6, behind: int = 1, largest: int = DEFAULT_RESPONSE_BYTES) -> ClusterState:
    limits = ReplicationLimits({} if rate is None else {1: rate})
    return ClusterState(
        limits,
        replicas_behind=behind,
        replication_factor=3.0,
        response_max_bytes={1: largest},
        lists_left=("orders",),
    )


def found(
    at: ClusterState,
    idle_s: float = 0.0,
    incoming: Mapping[int, float] | None = None,
    network: float | None = None,
) -> dict[str, str]:
    kind = findings(at, window_s=11.0, idle_s=idle_s, in_bytes_per_s=incoming, network_bytes_per_s=network)
    return {finding.check: finding.message for finding in kind}


def test_nothing_is_said_of_a_throttle_that_is_as_it_should_be() -> None:
    assert found(state(), incoming={1: 1e6}, network=100e6) == {}


def test_a_throttle_must_let_a_whole_answer_pass_within_the_window() -> None:
    """0.9 MB/s · 11 s = 9.9 MB, less than the 10 MiB of an answer."""
    assert "must be below 9,900,000" in found(state(0.9e6))[RESPONSE_MAX_BYTES]
    assert found(state(0.9e6, largest=1_000_000)) == {}


def test_a_throttle_at_or_below_what_producers_write_is_told() -> None:
    assert "never caught up" in found(state(), incoming={1: 6e6})[SAFE_BAND]
    assert "never caught up" in found(state(), incoming={1: 5e6})[SAFE_BAND]
    assert found(state(), incoming={2: 6e6}) == {}  # another broker's


def test_a_throttle_that_leaves_producers_no_room_is_told() -> None:
    """N − IN / R = 10 − 3 / 3 = 9 MB/s."""
    incoming = {1: 3e6}
    assert "below 9,000,000 B/s" in found(state(9e6), incoming=incoming, network=10e6)[SAFE_BAND]
    assert found(state(8.9e6), incoming=incoming, network=10e6) == {}
    assert found(state(9e6), incoming=incoming) == {}  # nobody has told what the network carries


def test_a_throttle_left_behind_is_told_after_a_minute() -> None:
    idle = state(behind=0)
    assert found(idle, idle_s=LEFT_BEHIND_AFTER_S - 1) == {}
    message = found(idle, idle_s=LEFT_BEHIND_AFTER_S)[LEFT_BEHIND]
    assert "brokers 1" in message
    assert "topics orders" in message
    assert "--verify" in message
    assert found(state(behind=1), idle_s=1e6) == {}


def test_a_throttle_of_which_nothing_is_left_is_not_left_behind() -> None:
    """Neither rates nor lists, and nothing has been behind for long."""
    at = ClusterState(ReplicationLimits(), replicas_behind=0, replication_factor=3.0)
    assert found(at, idle_s=LEFT_BEHIND_AFTER_S) == {}
