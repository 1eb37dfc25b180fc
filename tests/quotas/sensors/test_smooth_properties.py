"""The token bucket against a plain one in fractions, and what must hold for every sequence of charges."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import pairwise
from typing import TypeAlias

from hypothesis import example, given, settings
from hypothesis import strategies as st

from sluice.quotas.entity import QuotaEntity, QuotaLevel
from sluice.quotas.kinds import QuotaKind
from sluice.quotas.sensors.smooth import SmoothSensor
from testkit.thorough import cases

NO_CAP_MS = 1e18


def sensor_of(rate_per_s: float, now_ms: float, burst_s: float, max_debt_ms: float) -> SmoothSensor:
    return SmoothSensor(
        QuotaKind.FETCH,
        QuotaLevel.CLIENT,
        QuotaEntity(None, "app"),
        rate_per_s,
        now_ms,
        burst_s=burst_s,
        max_debt_ms=max_debt_ms,
    )


@dataclass
class PlainBucket:
    """What a token bucket is said to be, with tokens that are added as time passes. No rounding anywhere."""

    per_ms: Fraction
    burst_ms: Fraction
    cap_ms: Fraction
    now: Fraction
    tokens: Fraction = field(init=False)
    forgiven: Fraction = Fraction(0)
    whole: Fraction = Fraction(0)
    """of what is owed: charged by charge_whole, or before it"""
    gap: Fraction = Fraction(0)
    gap_at: Fraction = Fraction(0)

    def __post_init__(self) -> None:
        self.tokens = self.burst_ms * self.per_ms

    def advance(self, now: Fraction) -> None:
        paid = (now - self.now) * self.per_ms
        self.tokens = min(self.tokens + paid, self.burst_ms * self.per_ms)
        self.whole = max(self.whole - paid, Fraction(0))
        self.now = now

    def charge(self, amount: Fraction, now: Fraction) -> tuple[Fraction, Fraction]:
        """(turn, paid): when the tokens are zero before and after."""
        self.advance(now)
        before = self.tokens
        self.tokens -= amount
        self.forgive(-before)
        return now - before / self.per_ms, now - self.tokens / self.per_ms

    def charge_whole(self, amount: Fraction, now: Fraction) -> tuple[Fraction, Fraction]:
        self.advance(now)
        before = self.tokens
        self.tokens -= amount
        self.whole = max(-self.tokens, Fraction(0))
        return now - before / self.per_ms, now - self.tokens / self.per_ms

    def refund(self, amount: Fraction, now: Fraction) -> None:
        self.advance(now)
        if now - self.gap_at > self.cap_ms:
            self.gap = Fraction(0)
        closed = min(self.gap, amount)
        self.gap -= closed
        self.tokens = min(self.tokens + amount - closed, self.burst_ms * self.per_ms)

    def change(self, per_ms: Fraction, now: Fraction) -> None:
        self.advance(now)
        if self.tokens >= 0:
            self.tokens *= per_ms / self.per_ms
        before_ms = max(-self.tokens, Fraction(0)) / self.per_ms
        self.per_ms = per_ms
        self.forgive(min(self.whole, before_ms * per_ms))
        self.whole = min(self.whole, max(-self.tokens, Fraction(0)))

    def forgive(self, least_owed: Fraction) -> None:
        beyond = -max(self.cap_ms * self.per_ms, least_owed) - self.tokens
        if beyond > 0:
            self.tokens += beyond
            self.forgiven += beyond
            self.gap += beyond
            self.gap_at = self.now


# With times in eighths of a ms and powers of two for ms per unit, all that the sensor computes is exact in
# floats: so it must be equal to the fractions, bit by bit. (A changed rate makes a debt finer: times near 0
# and rates near each other there.)
EXACT_MS_PER_UNIT = [2.0**e for e in (-10, -3, 0, 4, 10)]
NEAR_RATES = [0.5, 1.0, 2.0]
Step: TypeAlias = tuple[float, str, int]


def steps_of(*kinds: str) -> st.SearchStrategy[list[Step]]:
    gaps_ms = st.one_of(st.just(0.0), st.integers(1, 800_000).map(lambda eighths: eighths / 8))
    return st.lists(st.tuples(gaps_ms, st.sampled_from(kinds), st.integers(0, 200_000)), max_size=40)


def compare_with_the_plain_bucket(
    steps: list[Step], ms_per_unit: float, start_ms: float, burst_s: float, max_debt_ms: float
) -> None:
    sensor = sensor_of(1000 / ms_per_unit, start_ms, burst_s, max_debt_ms)
    plain = PlainBucket(
        1 / Fraction(ms_per_unit), Fraction(burst_s) * 1000, Fraction(max_debt_ms), Fraction(start_ms)
    )
    now_ms = start_ms
    for gap_ms, what, number in steps:
        now_ms += gap_ms
        if what in {"charge", "charge_whole"}:
            turn, paid = getattr(plain, what)(Fraction(number), Fraction(now_ms))
            assert Fraction(getattr(sensor, what)(number, now_ms)) == paid
            assert Fraction(sensor.eligible_at_ms) == turn
        elif what == "refund":
            plain.refund(Fraction(number), Fraction(now_ms))
            sensor.refund(number, now_ms)
        else:
            new_ms_per_unit = ms_per_unit * NEAR_RATES[number % len(NEAR_RATES)]
            plain.change(1 / Fraction(new_ms_per_unit), Fraction(now_ms))
            sensor.update(1000 / new_ms_per_unit, QuotaLevel.CLIENT, now_ms)
        plain.advance(Fraction(now_ms))
        assert Fraction(sensor.tokens(now_ms)) == plain.tokens
        assert Fraction(sensor.forgiven) == plain.forgiven


@settings(deadline=None, max_examples=cases(200))
@given(
    steps=steps_of("charge", "charge", "charge", "refund"),
    ms_per_unit=st.sampled_from(EXACT_MS_PER_UNIT),
    start_ms=st.sampled_from([0.0, 1e6, 1e9, 1e12]),
    burst_s=st.sampled_from([0.125, 1.0, 8.0]),
    max_debt_ms=st.sampled_from([1_000.0, 60_000.0, NO_CAP_MS]),
)
@example([(0.0, "charge", 70_000), (0.0, "refund", 70_000), (1.0, "charge", 5)], 1.0, 0.0, 1.0, 60_000.0)
def test_it_equals_the_plain_token_bucket(
    steps: list[Step], ms_per_unit: float, start_ms: float, burst_s: float, max_debt_ms: float
) -> None:
    compare_with_the_plain_bucket(steps, ms_per_unit, start_ms, burst_s, max_debt_ms)


@settings(deadline=None, max_examples=cases(200))
@given(
    steps=steps_of("charge", "charge", "charge", "refund", "rate"),
    ms_per_unit=st.sampled_from([0.125, 1.0, 16.0]),
    max_debt_ms=st.sampled_from([1_000.0, 60_000.0, NO_CAP_MS]),
)
@example([(0.0, "charge", 7_000), (0.0, "rate", 2), (9.0, "refund", 9)], 1.0, 1_000.0)
def test_it_equals_the_plain_token_bucket_while_its_limit_changes(
    steps: list[Step], ms_per_unit: float, max_debt_ms: float
) -> None:
    compare_with_the_plain_bucket(steps, ms_per_unit, 0.0, 1.0, max_debt_ms)


@settings(deadline=None, max_examples=cases(200))
@given(
    steps=steps_of("charge", "charge_whole", "rate"),
    ms_per_unit=st.sampled_from([0.125, 1.0, 16.0]),
    max_debt_ms=st.sampled_from([1_000.0, 60_000.0, NO_CAP_MS]),
)
@example([(0.0, "charge_whole", 9_000), (1.0, "charge", 70), (0.0, "rate", 2)], 1.0, 1_000.0)
@example([(0.0, "charge_whole", 1_900), (0.0, "charge", 50), (1.0, "rate", 2)], 1.0, 1_000.0)
def test_it_equals_the_plain_token_bucket_that_forgives_nothing_of_what_was_charged_whole(
    steps: list[Step], ms_per_unit: float, max_debt_ms: float
) -> None:
    compare_with_the_plain_bucket(steps, ms_per_unit, 0.0, 1.0, max_debt_ms)


RATES = st.one_of(st.sampled_from([1, 7, 1_000_000, 2**63 - 1]), st.integers(1, 10**12))


@settings(deadline=None, max_examples=cases(200))
@given(
    rate_per_s=RATES,
    start_ms=st.floats(0, 1e12),
    charges=st.lists(st.tuples(st.floats(0, 5_000), st.floats(0, 3)), max_size=40),
)
def test_at_any_rate_it_equals_the_plain_token_bucket_but_for_rounding(
    rate_per_s: int, start_ms: float, charges: list[tuple[float, float]]
) -> None:
    """Charges are given as seconds of the rate. Each step rounds a few times by half an ulp of the time."""
    sensor = sensor_of(rate_per_s, start_ms, 1.0, 60_000.0)
    plain = PlainBucket(Fraction(rate_per_s, 1000), Fraction(1000), Fraction(60_000), Fraction(start_ms))
    now_ms = start_ms
    for count, (gap_ms, seconds) in enumerate(charges, start=1):
        now_ms += gap_ms
        amount = seconds * rate_per_s
        turn, paid = plain.charge(Fraction(amount), Fraction(now_ms))
        allowed_ms = 4 * count * math.ulp(now_ms + 60_000)
        assert abs(Fraction(sensor.charge(amount, now_ms)) - paid) <= allowed_ms
        assert abs(Fraction(sensor.eligible_at_ms) - turn) <= allowed_ms


Request: TypeAlias = tuple[int, int, int | None]
"""ms since the one before, units, and if it is abandoned: after how many eighths of its wait"""
REQUESTS = st.lists(
    st.tuples(st.integers(0, 4_000), st.integers(1, 40_000), st.one_of(st.none(), st.integers(0, 7))),
    max_size=30,
)


@dataclass
class Traffic:
    """1 unit a ms through one sensor: requests wait for their turn, and some leave before it, unforwarded."""

    sensor: SmoothSensor
    requests: list[Request]
    passed: list[tuple[float, int]] = field(default_factory=list)
    """(when, units) of each that was forwarded: at its turn, or when it came if that is later"""

    def events(self) -> Iterator[tuple[float, int]]:
        """(when, forwarded units) after each request and (when, 0) after each departure."""
        leaving: list[tuple[float, int]] = []
        now_ms = 0.0
        for gap_ms, amount, eighths in self.requests:
            now_ms += gap_ms
            while leaving and leaving[0][0] <= now_ms:
                yield self.leave(*heapq.heappop(leaving))
            self.sensor.charge(amount, now_ms)
            eligible_at_ms = self.sensor.eligible_at_ms
            if eighths is not None and eligible_at_ms > now_ms:
                heapq.heappush(leaving, (now_ms + (eligible_at_ms - now_ms) * eighths / 8, amount))
                yield now_ms, 0
            else:
                self.passed.append((max(now_ms, eligible_at_ms), amount))
                yield now_ms, amount
        while leaving:
            yield self.leave(*heapq.heappop(leaving))

    def leave(self, when_ms: float, amount: int) -> tuple[float, int]:
        self.sensor.refund(amount, when_ms)
        return when_ms, 0


@settings(deadline=None, max_examples=cases(200))
@given(
    requests=REQUESTS,
    burst_s=st.sampled_from([0.5, 1.0, 4.0]),
    max_debt_ms=st.sampled_from([8_000.0, 60_000.0, NO_CAP_MS]),
)
def test_in_any_interval_no_more_passes_than_rate_burst_and_one_charge(
    requests: list[Request], burst_s: float, max_debt_ms: float
) -> None:
    """One charge: the largest. What was forgiven or given back is on top, as turns were told before."""
    traffic = Traffic(sensor_of(1_000, 0, burst_s, max_debt_ms), requests)
    list(traffic.events())
    on_top = traffic.sensor.forgiven + traffic.sensor.refunded
    passed = sorted(traffic.passed)
    for i, (begin_ms, _) in enumerate(passed):
        total = largest = 0
        for end_ms, amount in passed[i:]:
            total += amount
            largest = max(largest, amount)
            assert total <= (end_ms - begin_ms) * 1 + burst_s * 1_000 + largest + on_top + 1e-6


@settings(deadline=None)
@given(
    charges=st.lists(st.tuples(st.floats(0, 3_000), st.floats(0, 1e6)), min_size=2, max_size=25),
    rate_per_s=RATES,
    max_debt_ms=st.sampled_from([100.0, 60_000.0, NO_CAP_MS]),
)
def test_deadlines_never_go_back_and_no_turn_comes_before_an_earlier_charge_is_paid(
    charges: list[tuple[float, float]], rate_per_s: int, max_debt_ms: float
) -> None:
    sensor = sensor_of(rate_per_s, 0, 1.0, max_debt_ms)
    now_ms = 0.0
    told: list[tuple[float, float]] = []
    for gap_ms, amount in charges:
        now_ms += gap_ms
        clears_at_ms = sensor.charge(amount, now_ms)
        told.append((sensor.eligible_at_ms, clears_at_ms))
        assert sensor.eligible_at_ms <= clears_at_ms <= now_ms + max_debt_ms
    for (_, paid_before), (turn, paid) in pairwise(told):
        assert paid_before <= turn <= paid


@settings(deadline=None)
@given(
    steps=st.lists(
        st.tuples(st.floats(0, 3_000), st.sampled_from(["charge", "refund"]), st.floats(0, 1e7)), max_size=40
    ),
    rate_per_s=RATES,
)
def test_no_refund_and_no_waiting_makes_credit_above_the_burst(
    steps: list[tuple[float, str, float]], rate_per_s: int
) -> None:
    sensor = sensor_of(rate_per_s, 0, 1.0, 60_000.0)
    now_ms = 0.0
    for gap_ms, what, amount in steps:
        now_ms += gap_ms
        if what == "charge":
            sensor.charge(amount, now_ms)
        else:
            sensor.refund(amount, now_ms)
        assert sensor.tokens(now_ms) <= rate_per_s * (1 + 1e-9)
        assert now_ms - 1_000 <= sensor.charge(0, now_ms) <= now_ms + 60_000


@settings(deadline=None, max_examples=cases(400))
@given(requests=REQUESTS, max_debt_ms=st.sampled_from([8_000.0, 60_000.0, NO_CAP_MS]))
@example([(0, 59_000, None), (0, 90_000, 0), (0, 10_000, None)], 60_000.0)
def test_abandoned_requests_never_clear_a_debt_that_others_made(
    requests: list[Request], max_debt_ms: float
) -> None:
    """The same forwarded requests with and without the abandoned ones between them.

    The second bucket keeps all credit above the burst: a held request may store some until it leaves, but no
    more than time brought.
    """
    sensor = sensor_of(1_000, 0, 1.0, max_debt_ms)
    clean = sensor_of(1_000, 0, 1e9, max_debt_ms)
    clean.tat_ms = -1_000.0
    for when_ms, forwarded in Traffic(sensor, requests).events():
        if forwarded:
            clean.charge(forwarded, when_ms)
        assert sensor.tokens(when_ms) <= clean.tokens(when_ms) + 1e-6


@settings(deadline=None)
@given(
    requests=st.lists(st.tuples(st.integers(0, 500), st.integers(1, 3_000)), min_size=1, max_size=30),
)
def test_without_a_cap_abandoned_requests_leave_no_debt_behind(requests: list[tuple[int, int]]) -> None:
    """A client that gives up and retries for ever, all at once in debt: only what it started with is owed."""
    sensor = sensor_of(1_000, 0, 1.0, NO_CAP_MS)
    sensor.charge(1_000_000, 0)
    now_ms = 0.0
    for gap_ms, amount in requests:
        now_ms += gap_ms
        sensor.charge(amount, now_ms)
        sensor.refund(amount, now_ms + gap_ms / 2)
    assert sensor.tokens(now_ms) == now_ms + 1_000 - 1_000_000
