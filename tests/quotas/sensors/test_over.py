"""Bytes over quota against a plain account that pays byte by byte and millisecond by millisecond.

1,000 B/s: a token a millisecond. Requests come, wait, go or are dropped, at any time and in any order.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sluice.quotas.entity import QuotaEntity, QuotaLevel
from sluice.quotas.kinds import QuotaKind
from sluice.quotas.sensors.kafka import KafkaSensor
from sluice.quotas.sensors.sensor import Sensor
from sluice.quotas.sensors.smooth import SmoothSensor
from testkit.thorough import cases

BURST = 50
NO_CAP = 10**9
PLACE = (QuotaKind.PRODUCE, QuotaLevel.USER, QuotaEntity("alice"), 1_000, 0)
Step = tuple[int, str, int, int]
"""ms since the one before, what, bytes or which one of those that wait, ms that its delay lasts on"""


def smooth(max_debt_ms: int = NO_CAP, burst: int = BURST) -> SmoothSensor:
    return SmoothSensor(*PLACE, burst_s=burst / 1_000, max_debt_ms=max_debt_ms)


@dataclass
class Account:
    """A bucket of whole tokens, and who has gone on and is not paid: first come, first paid."""

    max_debt: int
    now_ms: int = 0
    tokens: int = BURST
    waiting: list[int] = field(default_factory=list)
    unpaid: int = 0
    """bytes that went on, that nothing has been paid for and that are not counted"""
    saved: int = 0
    """tokens that came, or were there, since the debt began, and have paid for none of these"""
    to_give_back: int = 0
    """bytes of the cut debt: their refund gives no token, for max_debt ms (SmoothSensor.refund)"""
    cut_ms: int = 0
    over: int = 0
    forwarded: int = 0

    def tick(self) -> None:
        self.now_ms += 1
        if self.tokens < 0:
            if self.unpaid:
                self.unpaid -= 1
            else:
                self.saved += 1
        self.tokens = min(self.tokens + 1, BURST)

    def charge(self, amount: int, *, waits: bool, delay_ms: int) -> None:
        before = self.tokens
        self.tokens -= amount
        if self.tokens >= 0:
            self.forwarded += amount
            return
        if before >= 0:  # a debt begins; who still waits has been paid for
            self.unpaid, self.saved = 0, before + sum(self.waiting)
        cut = max(0, -self.max_debt - self.tokens)
        if cut:
            self.tokens += cut
            self.to_give_back += cut
            self.cut_ms = self.now_ms
        if waits and before < 0:
            self.waiting.append(amount)
        else:
            self.forward(amount, delay_ms)

    def forward(self, amount: int, delay_ms: int) -> None:
        self.forwarded += amount
        paid = min(self.saved, amount)
        self.saved -= paid
        rest = amount - paid
        # Of these the delay pays what it has left after those who went before.
        in_time = min(rest, max(0, delay_ms - self.unpaid))
        self.over += rest - in_time
        self.unpaid += in_time

    def drop(self, amount: int) -> None:
        if self.now_ms - self.cut_ms > self.max_debt:
            self.to_give_back = 0
        closed = min(amount, self.to_give_back)
        self.to_give_back -= closed
        self.tokens = min(self.tokens + amount - closed, BURST)
        if self.tokens >= 0:  # the debt is over; who still waits has been paid for
            self.unpaid, self.saved = 0, self.tokens + sum(self.waiting)


def play(sensor: Sensor, account: Account, steps: list[Step]) -> None:
    for gap_ms, what, number, delay_ms in steps:
        for _ in range(gap_ms):
            account.tick()
            while account.tokens >= 0 and account.waiting:  # whose turn never comes later
                amount = account.waiting.pop(0)
                sensor.go(amount, account.now_ms)
                account.forward(amount, 0)
        now_ms = account.now_ms
        if what in {"go", "wait"}:
            in_debt = account.tokens < 0
            waits = what == "wait" and in_debt
            account.charge(number, waits=waits, delay_ms=delay_ms)
            clears_at_ms = sensor.charge(number, now_ms)
            if waits:
                sensor.hold(number)
            elif clears_at_ms > now_ms:
                sensor.count_over(number, now_ms + delay_ms)
        elif account.waiting:
            amount = account.waiting.pop(number % len(account.waiting))
            if what == "turn":
                sensor.go(amount, now_ms + delay_ms)
                account.forward(amount, delay_ms)
            else:
                sensor.drop(amount, now_ms)
                account.drop(amount)
        assert sensor.over == account.over
        assert sensor.held == sum(account.waiting)
        assert sensor.used == account.forwarded
        assert 0 <= sensor.over <= sensor.used


STEPS = st.lists(
    st.tuples(
        st.one_of(st.just(0), st.integers(0, 120)),
        st.sampled_from(["go", "wait", "wait", "wait", "turn", "turn", "turn", "drop"]),
        st.integers(1, 300),
        st.one_of(st.just(0), st.integers(0, 150)),
    ),
    max_size=40,
)


@settings(deadline=None, max_examples=cases(1_000))
@given(steps=STEPS, max_debt=st.sampled_from([NO_CAP, 400, 150]))
@example([(0, "go", 300, 100), (0, "wait", 50, 0), (40, "turn", 0, 0), (0, "go", 50, 0)], NO_CAP)
def test_over_equals_the_plain_account(steps: list[Step], max_debt: int) -> None:
    play(smooth(max_debt), Account(max_debt), steps)


@settings(deadline=None, max_examples=cases(500))
@given(
    waves=st.lists(
        st.tuples(st.integers(1, 400), st.lists(st.integers(1, 300), min_size=1, max_size=10)), max_size=20
    )
)
def test_over_is_what_went_on_less_burst_and_rate_by_time_when_the_last_of_it_went(
    waves: list[tuple[int, list[int]]],
) -> None:
    """Without an end of the debt between: all wait, and go when their time is over."""
    sensor = smooth()
    now_ms, forwarded = 0, 1_000_000
    sensor.charge(forwarded, 0)
    sensor.count_over(forwarded, 0)
    most = forwarded - BURST
    for gap_ms, sizes in waves:
        for size in sizes:
            sensor.charge(size, now_ms)
            sensor.hold(size)
        now_ms += gap_ms
        for size in sizes:
            sensor.go(size, now_ms)
            forwarded += size
            most = max(most, forwarded - (BURST + now_ms))
            assert sensor.over == most


def test_the_worked_example() -> None:
    sensor = smooth(burst=1_000)
    sensor.charge(30_000, 0)
    sensor.count_over(30_000, 10_000)
    assert sensor.over == 19_000
    sensor.charge(12_000, 10_000)
    sensor.hold(12_000)
    sensor.go(12_000, 20_000)
    assert sensor.over == 21_000


def test_what_is_forgiven_went_on_all_the_same() -> None:
    """At most 1,000 B are owed; 10,000 B that are not waited for are over, but for the burst."""
    sensor = smooth(max_debt_ms=1_000)
    for _ in range(10):
        sensor.charge(1_000, 0)
        sensor.count_over(1_000, 0)
    assert (sensor.over, sensor.forgiven) == (10_000 - BURST, 9_000 - BURST)


def test_when_a_debt_is_over_the_next_is_counted_from_its_own_beginning() -> None:
    """300 B each: 50 of them from the burst, and then none, for the debt ended just now."""
    sensor = smooth()
    for at_ms, expected in ((0, 250), (250, 550)):
        sensor.charge(300, at_ms)
        sensor.count_over(300, at_ms)
        assert sensor.over == expected


def test_a_limit_in_shadow_mode_counts_nothing_and_what_it_waived_is_not_counted_later() -> None:
    sensor = smooth()
    sensor.shadow = True
    sensor.charge(10_000, 0)
    sensor.count_over(10_000, 0)
    sensor.waive(0)
    sensor.shadow = False
    assert sensor.over == 0
    sensor.charge(70, 0)
    sensor.count_over(70, 0)
    assert sensor.over == 70


def test_another_limit_changes_nothing_about_what_was_counted() -> None:
    """950 over. At twice the rate 200 B more are paid in 100 ms; so 300 B after that are 100 over."""
    sensor = smooth()
    sensor.charge(1_000, 0)
    sensor.count_over(1_000, 0)
    sensor.update(2_000, QuotaLevel.USER, 0)
    assert sensor.over == 950
    sensor.charge(300, 100)
    sensor.count_over(300, 100)
    assert sensor.over == 1_050


def test_with_kafkas_pacing_the_burst_is_the_windows_and_each_byte_counts_once() -> None:
    """11 windows of 1 s: 10,000 B at once. Of 30,000 B a delay of 10 s pays 10,000; so does each second
    later for what comes then."""
    sensor = KafkaSensor(*PLACE)
    told = []
    for at_ms in (0, 1_000, 2_000):
        clears_at_ms = sensor.charge(30_000, at_ms)
        assert clears_at_ms > at_ms + 10_000
        sensor.count_over(30_000, at_ms + 10_000)
        told.append(sensor.over)
    assert told == [10_000, 10_000 + 29_000, 10_000 + 2 * 29_000]


@pytest.mark.parametrize("delay_ms", [500, 10_000])
def test_with_kafkas_pacing_a_debt_that_its_delay_pays_is_not_over(delay_ms: int) -> None:
    sensor = KafkaSensor(*PLACE)
    assert sensor.charge(10_500, 0) == 500
    sensor.count_over(10_500, delay_ms)
    assert sensor.over == 0
