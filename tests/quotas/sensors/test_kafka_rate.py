"""Kafka's rates against a plain transcription of its classes, without a ring and without short cuts.

test_kafka_rate_java.py compares with the classes themselves, where a Java is at hand.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import isnan
from random import Random

import pytest

from sluice.quotas.sensors.kafka_rate import Average, Rate, SimpleRate, TokenBucket, java_round, throttle_ms


@dataclass
class Sample:
    """SampledStat.Sample."""

    value: float
    start_ms: int
    last_ms: int


@dataclass
class PlainRate:
    """SampledStat and Rate of Kafka, line by line: each look purges all samples."""

    num: int
    window_ms: int
    samples: list[Sample] = field(default_factory=list)
    current: int = 0

    def record(self, value: float, now_ms: int) -> None:
        if not self.samples:
            self.samples.append(Sample(0.0, now_ms, now_ms))
        sample = self.samples[self.current]
        if now_ms - sample.start_ms >= self.window_ms:
            self.current = (self.current + 1) % (self.num + 1)
            if self.current >= len(self.samples):
                self.samples.append(Sample(0.0, now_ms, now_ms))
            else:
                self.samples[self.current] = Sample(0.0, now_ms, now_ms)
            sample = self.samples[self.current]
        sample.value += value
        sample.last_ms = now_ms

    def purge(self, now_ms: int) -> None:
        for index, sample in enumerate(self.samples):
            if now_ms - sample.last_ms >= self.num * self.window_ms:
                self.samples[index] = Sample(0.0, now_ms, now_ms)

    def total(self, now_ms: int) -> float:
        self.purge(now_ms)
        return sum(sample.value for sample in self.samples)

    def elapsed_ms(self, now_ms: int, *, simple: bool) -> int:
        self.purge(now_ms)
        if not self.samples:
            self.samples.append(Sample(0.0, now_ms, now_ms))
        elapsed_ms = now_ms - min(sample.start_ms for sample in self.samples)
        if simple:
            return max(elapsed_ms, self.window_ms)
        whole = elapsed_ms // self.window_ms
        if whole < self.num - 1:
            elapsed_ms += (self.num - 1 - whole) * self.window_ms
        return max(elapsed_ms, 1)


@pytest.mark.parametrize("num", [1, 2, 3, 11])
@pytest.mark.parametrize("kind", [Rate, SimpleRate])
@pytest.mark.parametrize("longest_ms", [150, 1_100])
def test_a_rate_is_what_the_plain_one_is(num: int, kind: type[Rate], longest_ms: int) -> None:
    """Whole numbers, so that no order of a sum is seen. Looks come between records, or seldom."""
    for seed in range(20):
        random = Random(seed)
        rate, plain = kind(num, 100), PlainRate(num, 100)
        now_ms = random.randrange(1_000)
        for _ in range(150):
            now_ms += random.choice([0, 1, random.randrange(100), 100, random.randrange(longest_ms)])
            if random.random() < 0.6:
                value = random.randrange(-50, 1_000)
                rate.record(value, now_ms)
                plain.record(value, now_ms)
            elif random.random() < 0.5:
                assert rate.total(now_ms) == plain.total(now_ms)
            else:
                elapsed_ms = plain.elapsed_ms(now_ms, simple=kind is SimpleRate)
                assert rate.elapsed_ms(now_ms) == elapsed_ms
                assert rate.measure(now_ms) == plain.total(now_ms) / (elapsed_ms / 1_000)
            assert len(rate._values) <= num + 1


def test_a_rate_without_records_is_nothing_and_its_time_is_one_ms_at_least() -> None:
    assert (Rate(11, 1_000).total(5_000), Rate(1, 1_000).elapsed_ms(5_000)) == (0.0, 1)
    assert Rate(11, 1_000).elapsed_ms(5_000) == 10_000
    assert SimpleRate(11, 1_000).elapsed_ms(5_000) == 1_000


def test_windows_are_not_looked_at_before_one_of_them_is_over() -> None:
    """A record or a look in between costs the same however many windows there are."""
    rate = Rate(3, 100)
    rate.record(5, 0)
    rate.total(0)
    assert rate._purge_ms == 300
    rate.record(5, 250)
    rate.total(300)
    assert rate._purge_ms == 550


def test_an_average_is_the_sum_by_the_count() -> None:
    average = Average(2, 1_000)
    assert isnan(average.measure(0))
    average.record(100.0, 4, 0)
    average.record(50.0, 1, 500)
    assert average.measure(500) == 30.0
    average.record(60.0, 1, 1_500)
    assert average.measure(1_500) == 35.0
    assert average.measure(2_500) == 60.0
    assert isnan(average.measure(3_500))


def test_a_token_bucket_is_empty_at_the_time_0_and_holds_all_windows() -> None:
    bucket = TokenBucket(3, 500)
    assert bucket.measure(10.0, 0) == 0.0
    assert bucket.measure(10.0, 400) == 4.0
    assert bucket.measure(10.0, 60_000) == 15.0
    bucket.record(20.0, 10.0, 60_000)
    assert (bucket.measure(10.0, 60_000), bucket.throttle_ms(10.0, 60_000)) == (-5.0, 500)
    assert bucket.throttle_ms(10.0, 60_500) == 0
    bucket.record(-100.0, 10.0, 60_500)
    assert bucket.measure(10.0, 60_500) == 15.0
    bucket.record(15.5, 10.0, 60_500)
    assert bucket.throttle_ms(10.0, 60_500) == 50


def test_a_delay_is_the_time_in_which_the_rate_comes_down_to_the_quota() -> None:
    assert throttle_ms(1_500.0, 1_000.0, 10_000) == 5_000
    assert throttle_ms(1_000.0, 1_000.0, 10_000) == 0
    assert throttle_ms(1.5, 1.0, 1) == 1
    assert throttle_ms(1.25, 1.0, 1) == 0
    assert java_round(1e300) == 2**63 - 1
