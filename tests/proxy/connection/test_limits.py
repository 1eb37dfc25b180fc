"""How many connections are let in, of whom, and how fast; what is remembered of those that are gone."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from sluice.proxy.connection.limits import AcceptRate, ConnectionLimits, Seat
from sluice.proxy.session.causes import DisconnectCause
from sluice.quotas.entity import ANONYMOUS, UNNAMED_USERS

OVER_ALL = DisconnectCause.TOO_MANY_CONNECTIONS
OVER_ADDRESS = DisconnectCause.TOO_MANY_CONNECTIONS_OF_ADDRESS
OVER_USER = DisconnectCause.TOO_MANY_CONNECTIONS_OF_USER
OVER_UNAUTHENTICATED = DisconnectCause.TOO_MANY_UNAUTHENTICATED


def seat(limits: ConnectionLimits, address: str | None = "10.0.0.1", user: str | None = None) -> Seat:
    """A connection that is let in."""
    admitted = limits.admit(address)
    assert isinstance(admitted, Seat)
    if user is not None:
        assert admitted.authenticated(user) is None
    return admitted


# In all, of an address, of a user ---------------------------------------------------------------------------


def test_without_limits_everybody_is_let_in() -> None:
    limits = ConnectionLimits()
    for _ in range(100):
        seat(limits, user="alice")
    assert (limits.connections, limits.unauthenticated) == (100, 0)


def test_beyond_the_maximum_one_is_refused_until_another_has_gone() -> None:
    limits = ConnectionLimits(max_connections=2)
    first = seat(limits, "10.0.0.1")
    seat(limits, "10.0.0.2")
    assert limits.admit("10.0.0.3") is OVER_ALL
    first.close()
    seat(limits, "10.0.0.3")
    assert limits.refused[OVER_ALL] == 1


def test_an_address_with_too_many_is_refused_and_no_other() -> None:
    limits = ConnectionLimits(max_connections_per_address=2)
    for _ in range(2):
        seat(limits, "10.0.0.1")
    assert limits.admit("10.0.0.1") is OVER_ADDRESS
    assert limits.connections_of_address("10.0.0.1") == 2
    seat(limits, "10.0.0.2")
    assert (limits.connections, limits.refused[OVER_ADDRESS]) == (3, 1)


@pytest.mark.parametrize(
    ("address", "key"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("::ffff:a00:1", "10.0.0.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::"),
        ("2001:db8:1:2::", "2001:db8:1:2::"),
        ("2001:db8:1:3::", "2001:db8:1:3::"),
        ("fe80::1:2:3:4%eth0", "fe80::"),
        ("::1", "::"),
        ("unix:/run/x", "unix:/run/x"),
        ("", ""),
    ],
)
def test_a_mapped_address_is_the_ipv4_address_and_an_ipv6_host_is_its_prefix(address: str, key: str) -> None:
    assert ConnectionLimits().address_key(address) == key


@pytest.mark.parametrize(("prefix_bits", "are_one"), [(64, True), (128, False), (48, True)])
def test_how_much_of_an_ipv6_address_counts_is_a_setting(prefix_bits: int, are_one: bool) -> None:
    limits = ConnectionLimits(max_connections_per_address=1, ipv6_prefix_bits=prefix_bits)
    seat(limits, "2001:db8::1")
    assert (limits.admit("2001:db8::2") is OVER_ADDRESS) is are_one


def test_a_user_with_too_many_is_refused_when_he_is_known_and_no_other_user() -> None:
    limits = ConnectionLimits(max_connections_per_user=2)
    for _ in range(2):
        seat(limits, user="alice")
    third = seat(limits)
    assert third.authenticated("alice") is OVER_USER
    seat(limits, user="bob")
    assert limits.connections_of_user("alice") == 2
    third.close()
    assert (limits.connections, limits.connections_of_user("alice")) == (3, 2)
    assert limits.refused[OVER_USER] == 1


def test_a_user_who_logs_in_again_counts_once() -> None:
    limits = ConnectionLimits(max_connections_per_user=1)
    alice = seat(limits, user="alice")
    assert alice.authenticated("alice") is None
    assert (limits.connections_of_user("alice"), limits.unauthenticated) == (1, 0)


def test_a_connection_leaves_once() -> None:
    limits = ConnectionLimits()
    seat(limits, user="bob")
    for user in ("alice", None):
        leaving = seat(limits, user=user)
        leaving.close()
        leaving.close()
    assert (limits.connections, limits.unauthenticated, limits.connections_of_user("bob")) == (1, 0, 1)


def test_lower_limits_let_those_who_are_in_stay() -> None:
    limits = ConnectionLimits(max_connections_per_user=5)
    seats = [seat(limits, user="alice") for _ in range(5)]
    limits.max_connections_per_user = 2
    assert seat(limits).authenticated("alice") is OVER_USER
    for each in seats[:4]:
        each.close()
    seat(limits, user="alice")


# Behind a balancer ------------------------------------------------------------------------------------------


def test_a_connection_that_a_balancer_passes_on_counts_for_the_client_it_names() -> None:
    limits = ConnectionLimits(max_connections_per_address=1)
    first, second, third = (seat(limits, None) for _ in range(3))
    assert first.located("10.0.0.1") is None
    assert second.located("::ffff:10.0.0.1") is OVER_ADDRESS
    assert third.located("10.0.0.2") is None
    for each in (first, second, third):
        each.close()
    assert limits.connections == limits.connections_of_address("10.0.0.1") == 0


# Not authenticated ------------------------------------------------------------------------------------------


def test_those_who_never_authenticate_do_not_use_up_all_places() -> None:
    """100 places, 8 of them for those who have not authenticated; one address has 2 of the 8."""
    limits = ConnectionLimits(max_connections=100, max_unauthenticated=8, max_connections_per_address=50)
    for _ in range(2):
        seat(limits, "10.6.6.6")
    for _ in range(50):
        assert limits.admit("10.6.6.6") is OVER_UNAUTHENTICATED
    for number in range(50):
        seat(limits, f"10.0.0.{number}", user="alice")
    assert limits.refused[OVER_UNAUTHENTICATED] == 50


def test_behind_a_nat_that_nobody_told_of_one_address_may_have_all_places() -> None:
    limits = ConnectionLimits(max_unauthenticated=8)
    for _ in range(8):
        seat(limits, "10.6.6.6")


def test_an_address_that_a_balancer_tells_has_a_quarter_of_the_places() -> None:
    limits = ConnectionLimits(max_unauthenticated=8)
    seats = [seat(limits, None) for _ in range(3)]
    assert [one.located("10.6.6.6") for one in seats] == [None, None, OVER_UNAUTHENTICATED]


def test_names_that_many_share_have_no_cap_unless_somebody_sets_one() -> None:
    limits = ConnectionLimits(max_connections_per_user=1)
    seat(limits, user=ANONYMOUS)
    assert seat(limits).authenticated(ANONYMOUS) is OVER_USER
    limits.caps_shared_names = False
    for user in (ANONYMOUS, *UNNAMED_USERS):
        for _ in range(3):
            seat(limits, user=user)
    seat(limits, user="alice")
    assert seat(limits).authenticated("alice") is OVER_USER


def test_from_many_addresses_they_have_so_many_places_and_no_more() -> None:
    limits = ConnectionLimits(max_unauthenticated=8)
    seats = [seat(limits, f"10.0.0.{number}") for number in range(8)]
    assert limits.admit("10.0.0.9") is OVER_UNAUTHENTICATED
    assert seats[0].authenticated("alice") is None
    seat(limits, "10.0.0.9")
    assert limits.admit("10.0.0.10") is OVER_UNAUTHENTICATED


def test_an_address_can_always_have_one_that_is_not_authenticated() -> None:
    seat(ConnectionLimits(max_unauthenticated=1))


# Any order --------------------------------------------------------------------------------------------------

ADDRESSES = ("10.0.0.1", "::ffff:10.0.0.1", "10.0.0.2", "2001:db8::1", "2001:db8::2")
USERS = ("alice", "bob", "carol")


class Door(RuleBasedStateMachine):
    """Connections come and go in any order: what is counted is there, and a refusal has its reason."""

    def __init__(self) -> None:
        super().__init__()
        self.limits = ConnectionLimits(
            max_connections=9,
            max_connections_per_address=4,
            max_connections_per_user=3,
            max_unauthenticated=8,
        )
        self.open: list[tuple[Seat, str | None, str | None]] = []  # address key, user

    def of_address(self, key: str) -> int:
        return sum(key == at for _, at, _ in self.open)

    def of_user(self, user: str) -> int:
        return sum(user == who for _, _, who in self.open)

    def unauthenticated(self) -> list[str | None]:
        return [at for _, at, who in self.open if who is None]

    def is_reason(self, cause: DisconnectCause, key: str | None, user: str | None = None) -> bool:
        """The limit that is named is reached, and by nobody else's connections."""
        if cause is OVER_ALL:
            return len(self.open) == 9
        if cause is OVER_ADDRESS:
            return key is not None and self.of_address(key) == 4
        if cause is OVER_USER:
            return user is not None and self.of_user(user) == 3
        share_is_full = key is not None and self.unauthenticated().count(key) >= 2
        return len(self.unauthenticated()) == 8 or share_is_full

    @rule(address=st.one_of(st.none(), st.sampled_from(ADDRESSES)))
    def comes(self, address: str | None) -> None:
        key = None if address is None else self.limits.address_key(address)
        admitted = self.limits.admit(address)
        if isinstance(admitted, Seat):
            self.open.append((admitted, key, None))
        else:
            assert self.is_reason(admitted, key)

    @precondition(lambda self: any(at is None and who is None for _, at, who in self.open))
    @rule(address=st.sampled_from(ADDRESSES), data=st.data())
    def is_named_by_a_balancer(self, address: str, data: st.DataObject) -> None:
        unnamed = [i for i, (_, at, who) in enumerate(self.open) if at is None and who is None]
        index = data.draw(st.sampled_from(unnamed))
        named = self.open[index][0]
        key = self.limits.address_key(address)
        cause = named.located(address)
        if cause is None:
            self.open[index] = (named, key, None)
        else:
            assert self.is_reason(cause, key)
            named.close()
            del self.open[index]

    @precondition(lambda self: any(who is None for *_, who in self.open))
    @rule(user=st.sampled_from(USERS), data=st.data())
    def authenticates(self, user: str, data: st.DataObject) -> None:
        nobodies = [i for i, (*_, who) in enumerate(self.open) if who is None]
        index = data.draw(st.sampled_from(nobodies))
        came, at, _ = self.open[index]
        cause = came.authenticated(user)
        if cause is None:
            self.open[index] = (came, at, user)
        else:
            assert cause is OVER_USER
            assert self.is_reason(cause, at, user)

    @precondition(lambda self: self.open)
    @rule(data=st.data())
    def leaves(self, data: st.DataObject) -> None:
        left, _, who = self.open.pop(data.draw(st.integers(0, len(self.open) - 1)))
        if who is not None:
            assert left.authenticated(who) is None
        left.close()

    @invariant()
    def what_is_counted_is_there(self) -> None:
        limits = self.limits
        assert limits.connections == len(self.open) <= 9
        assert limits.unauthenticated == len(self.unauthenticated()) <= 8
        assert limits._by_address == Counter(at for _, at, _ in self.open if at is not None)
        assert limits._by_user == Counter(who for *_, who in self.open if who is not None)
        nobodies = Counter(at for at in self.unauthenticated() if at is not None)
        assert limits._unauthenticated_by_address == nobodies
        assert max(limits._by_address.values(), default=0) <= 4
        assert max(limits._by_user.values(), default=0) <= 3


TestDoor = Door.TestCase


@pytest.mark.long
def test_a_million_addresses_leave_nothing() -> None:
    """A scan: half a million that come and go, and half a million that stay if they can."""
    limits = ConnectionLimits(max_connections=1_000, max_connections_per_address=10)
    for number in range(500_000):
        seat(limits, f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}").close()
    assert not limits._by_address
    assert not limits._unauthenticated_by_address
    for number in range(500_000):
        limits.admit(f"11.{number >> 16}.{number >> 8 & 255}.{number & 255}")
    assert len(limits._by_address) == len(limits._unauthenticated_by_address) == limits.connections == 1_000


# The rate ---------------------------------------------------------------------------------------------------


def test_a_burst_is_accepted_at_once_and_then_one_in_each_interval() -> None:
    """4 a second: 4 at once, and the next when a quarter of a second's worth is there again."""
    rate = AcceptRate(4.0)
    for _ in range(4):
        assert rate.wait_ms(1_000.0) == 0.0
        rate.accepted(1_000.0)
    assert rate.wait_ms(1_000.0) == 250.0
    assert rate.wait_ms(1_200.0) == 50.0
    assert rate.wait_ms(1_250.0) == 0.0
    rate.accepted(1_250.0)
    assert rate.wait_ms(1_250.0) == 250.0
    assert (rate.pauses, rate.paused_ms) == (3, 550.0)


def test_a_listener_on_which_nobody_waits_uses_nothing_up() -> None:
    rate = AcceptRate(1.0)
    for _ in range(10):
        assert rate.wait_ms(0.0) == 0.0
    rate.accepted(0.0)
    assert rate.wait_ms(0.0) == 1_000.0


def test_a_rate_below_one_a_second_still_lets_one_in() -> None:
    rate = AcceptRate(0.1)
    rate.accepted(5.0)
    assert rate.wait_ms(5.0) == 10_000.0


@given(
    st.floats(0.1, 1_000.0),
    st.floats(0.1, 10.0),
    st.lists(st.floats(0.0, 2_000.0), min_size=1, max_size=60),
)
def test_no_span_of_time_sees_more_than_the_rate_and_one_burst(
    per_s: float, burst_s: float, gaps_ms: list[float]
) -> None:
    """They come after any gaps, and the listener waits as long as it is told."""
    rate = AcceptRate(per_s, burst_s)
    now_ms = 0.0
    accepted_ms = []
    for gap_ms in gaps_ms:
        now_ms += gap_ms
        while (wait_ms := rate.wait_ms(now_ms)) > 0.0:
            assert wait_ms <= 1_000.0 / per_s + 1e-6
            now_ms += ceil(wait_ms)
        rate.accepted(now_ms)
        accepted_ms.append(now_ms)
    assert all(first <= second for first, second in pairwise(accepted_ms))
    burst = max(1.0, per_s * burst_s)
    for i, begin_ms in enumerate(accepted_ms):
        for j in range(i, len(accepted_ms)):
            allowed = burst + per_s * (accepted_ms[j] - begin_ms) / 1_000.0
            assert j - i + 1 <= allowed + 1e-6
