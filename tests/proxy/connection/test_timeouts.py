"""Connections in which nothing moves: which of them end, when, and that the proxy's time blames nobody."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.proxy.connection.timeouts import (
    SWEEP_INTERVAL_MS,
    SweepClock,
    WaitsFor,
    Watch,
    WatchRules,
    WatchTimeouts,
)
from sluice.proxy.session.causes import DisconnectCause

RULES = WatchRules(
    WatchTimeouts(
        authentication_s=20.0, slow_frame_s=30.0, slow_frame_min_bytes=1_000, stopped_s=600.0, idle_s=900.0
    )
)
LIMITS_S = {
    WaitsFor.AUTHENTICATION: (20, DisconnectCause.AUTHENTICATION_TIMEOUT),
    WaitsFor.CLIENT_FRAME: (30, DisconnectCause.SLOW_FRAME),
    WaitsFor.CLIENT_READS: (600, DisconnectCause.CLIENT_STOPPED_READING),
    WaitsFor.BROKER: (600, DisconnectCause.BROKER_STALLED),
    WaitsFor.BROKER_CLIENT_LEFT: (10, DisconnectCause.CLIENT_CLOSED),
    WaitsFor.CLIENT_REQUEST: (900, DisconnectCause.IDLE),
}
REQUEST = (WaitsFor.CLIENT_REQUEST, 0)
Look = tuple[WaitsFor, int]


def ended(looks: list[Look], rules: WatchRules = RULES) -> tuple[int, DisconnectCause] | None:
    """When, in seconds, and why a connection that was found so, second after second, was ended.

    It authenticates at once.
    """
    watch = Watch(0.0)
    for second, (waits_for, moved_bytes) in enumerate(looks):
        cause = watch.look(waits_for, moved_bytes, second * 1_000.0, rules)
        if cause is not None:
            return second, cause
    return None


# How long ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("waits_for", LIMITS_S)
def test_a_connection_in_which_nothing_moves_is_ended_in_time_and_not_before(waits_for: WaitsFor) -> None:
    assert ended([(waits_for, 0)] * 1_000) == LIMITS_S[waits_for]


@pytest.mark.parametrize("waits_for", set(LIMITS_S) - {WaitsFor.AUTHENTICATION, WaitsFor.CLIENT_FRAME})
def test_a_byte_that_moves_now_and_then_is_enough(waits_for: WaitsFor) -> None:
    limit_s, _ = LIMITS_S[waits_for]
    assert ended([(waits_for, second // (limit_s - 1)) for second in range(5 * limit_s)]) is None


def test_what_is_the_proxys_own_doing_may_last_for_ever() -> None:
    assert ended([(WaitsFor.NOTHING, 0)] * 10_000) is None


def test_a_login_counts_from_the_accept_and_nothing_prolongs_it() -> None:
    """Accepted at 100 s, so it has until 120 s; the handshake took 15 s of it."""
    watch = Watch(100_000.0)
    looks = [watch.look(WaitsFor.AUTHENTICATION, 0, second * 1_000.0, RULES) for second in range(115, 121)]
    assert looks == [None] * 5 + [DisconnectCause.AUTHENTICATION_TIMEOUT]


@pytest.mark.parametrize("waits_for", set(LIMITS_S) - {WaitsFor.BROKER_CLIENT_LEFT})
def test_a_timeout_that_is_off_ends_nothing(waits_for: WaitsFor) -> None:
    off = WatchRules(WatchTimeouts(authentication_s=None, slow_frame_s=None, stopped_s=None, idle_s=None))
    assert ended([(waits_for, 0)] * 10_000, off) is None


def test_by_default_an_idle_connection_is_left_to_the_broker() -> None:
    assert ended([REQUEST] * 10_000, WatchRules(WatchTimeouts())) is None


# Slow frames ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("bytes_per_s", "ended_s"), [(0, 30), (1, 30), (33, 30), (34, None), (1_000, None)])
def test_a_frame_that_drips_is_ended_below_the_least_rate(bytes_per_s: int, ended_s: int | None) -> None:
    """1,000 bytes in 30 s are needed, which 33 a second are not."""
    found = ended([(WaitsFor.CLIENT_FRAME, second * bytes_per_s) for second in range(200)])
    assert (found and found[0]) == ended_s


def test_a_burst_buys_a_dripping_frame_one_more_interval() -> None:
    """5,000 bytes come at 20 s, and none before or after: 20 + 30."""
    looks = [(WaitsFor.CLIENT_FRAME, 5_000 * (second >= 20)) for second in range(200)]
    assert ended(looks) == (50, DisconnectCause.SLOW_FRAME)


def test_time_in_which_the_proxy_mutes_or_the_broker_takes_nothing_is_not_the_clients() -> None:
    """Of a frame that has begun nothing comes, but every 25 s the client is not read for a second."""
    looks = []
    for second in range(1_000):
        own = WaitsFor.NOTHING if second % 50 else WaitsFor.BROKER
        looks.append((own if second % 25 == 0 else WaitsFor.CLIENT_FRAME, 100))
    assert ended(looks) is None


def test_small_requests_one_after_the_other_are_no_frame_that_drips() -> None:
    """Each look but one in 20 finds the connection in the midst of a frame of 20 bytes."""
    looks = [
        (WaitsFor.CLIENT_REQUEST if second % 20 == 0 else WaitsFor.CLIENT_FRAME, second * 20)
        for second in range(1_000)
    ]
    assert ended(looks) is None


# Brokers that take nothing ----------------------------------------------------------------------------------


def test_a_client_that_leaves_behind_a_broker_that_takes_nothing_is_given_up_soon_after() -> None:
    """The broker stops at 0 s, the client leaves at 30 s, as its request times out."""
    looks = [(WaitsFor.BROKER_CLIENT_LEFT if second >= 30 else WaitsFor.BROKER, 7) for second in range(100)]
    assert ended(looks) == (40, DisconnectCause.CLIENT_CLOSED)


def test_a_broker_that_goes_on_still_gets_what_a_client_left_behind() -> None:
    looks = [(WaitsFor.BROKER_CLIENT_LEFT, second // 9) for second in range(500)]
    assert ended(looks) is None


def test_a_count_that_falls_is_a_change_too() -> None:
    """What was kept of a request is dropped: 900 bytes at 20 s, 100 from then on."""
    looks = [(WaitsFor.CLIENT_FRAME, 900 if second < 20 else 100) for second in range(100)]
    assert ended(looks) == (50, DisconnectCause.SLOW_FRAME)


# Any life ---------------------------------------------------------------------------------------------------


@given(
    st.lists(
        st.tuples(st.sampled_from(WaitsFor), st.integers(1, 40), st.integers(0, 200)), min_size=1, max_size=30
    )
)
def test_none_is_ended_that_did_not_wait_for_the_same_thing_all_the_time_with_too_little_moving(
    spells: list[tuple[WaitsFor, int, int]],
) -> None:
    """Spells of waiting, each with a steady rate; the end is where a plain reckoning of it says."""
    looks: list[Look] = []
    moved_bytes = 0
    for waits_for, seconds, bytes_per_s in spells:
        for _ in range(seconds):
            looks.append((waits_for, 0 if waits_for is WaitsFor.AUTHENTICATION else moved_bytes))
            moved_bytes += bytes_per_s
    found = ended(looks)
    for end in range(len(looks)):
        waits_for, moved_bytes = looks[end]
        limit_s, cause = LIMITS_S.get(waits_for, (10**9, None))
        enough = 1_000 if waits_for is WaitsFor.CLIENT_FRAME else 1
        spell = looks[max(0, end - limit_s) : end + 1]
        stood_still = (
            len(spell) > limit_s
            and all(one is waits_for for one, _ in spell)
            and moved_bytes - spell[0][1] < enough
        )
        if found is not None and found[0] == end:
            assert stood_still
            assert found[1] is cause
            return
        # With one byte being enough it ends as soon as it may; a slow frame at most an interval later.
        assert not (stood_still and enough == 1)
    assert found is None


# The clock --------------------------------------------------------------------------------------------------


def test_the_clock_goes_as_time_goes_while_sweeps_are_regular() -> None:
    clock = SweepClock(5_000.0)
    assert [clock.tick(now_ms) for now_ms in (6_000.0, 7_010.0, 8_900.0)] == [6_000.0, 7_010.0, 8_900.0]


def test_a_pause_of_the_process_is_no_time_in_which_a_client_did_nothing() -> None:
    """Stopped for an hour, the clock goes on by two seconds."""
    clock = SweepClock(0.0)
    clock.tick(1_000.0)
    watch = Watch(clock.now_ms)
    watch.look(WaitsFor.CLIENT_FRAME, 10, clock.now_ms, RULES)
    hour_later_ms = 3_600_000.0
    assert clock.tick(hour_later_ms) == 1_000.0 + 2.0 * SWEEP_INTERVAL_MS
    assert watch.look(WaitsFor.CLIENT_FRAME, 10, clock.now_ms, RULES) is None
    assert clock.tick(hour_later_ms + 1_000.0) == 4_000.0
