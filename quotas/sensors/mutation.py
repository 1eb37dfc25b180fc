"""`controller_mutation_rate`: Kafka's token bucket of partitions created and deleted, whatever the pacing.

The bucket holds window_num · window_size seconds' worth of the rate and may go into debt: an operation passes
whole as long as nothing is owed, however large it is, and the next one waits until its debt is paid. Whether
what comes in debt is refused (strict, for `tokens` < 0) or delayed (permissive) is the caller's.

Worked example, 2 partitions/s, 11 windows of 1 s, full at first: 22 tokens.
    0 ms: 20 partitions       2 tokens left
    0 ms: 12 partitions     −10 tokens: passes, for nothing was owed; paid at 5,000 ms
    1,000 ms: 1 partition    −8 tokens: strict refuses it, to be tried again in 4,000 ms
    5,000 ms: 1 partition     0 tokens are no debt: passes
Kafka's bucket is empty at time 0 of a clock that began in 1970; ours may have begun with this machine, so
the time is moved on by as much as it takes to fill it.
Source: KIP-599; TokenBucket, ControllerMutationQuotaManager.
"""

from __future__ import annotations

from sluice.quotas.entity import QuotaEntity, QuotaLevel
from sluice.quotas.kinds import QuotaKind
from sluice.quotas.sensors.kafka_rate import DEFAULT_WINDOW_NUM, DEFAULT_WINDOW_SIZE_S, TokenBucket
from sluice.quotas.sensors.sensor import Sensor


class MutationSensor(Sensor):
    """The same inputs give the same refusals and delays as in the broker. `forgiven` stays 0."""

    __slots__ = ("_bucket", "_offset_ms")

    def __init__(
        self,
        level: QuotaLevel,
        entity: QuotaEntity,
        rate_per_s: float,
        now_ms: float,
        *,
        window_num: int = DEFAULT_WINDOW_NUM,
        window_size_s: float = DEFAULT_WINDOW_SIZE_S,
        owner: str = "",
    ) -> None:
        """Full. `rate_per_s` > 0: partitions; the windows: controller.quota.window.num, .size.seconds."""
        super().__init__(QuotaKind.CONTROLLER_MUTATION, level, entity, rate_per_s, now_ms, owner)
        window_ms = round(window_size_s * 1000.0)
        self._bucket = TokenBucket(window_num, window_ms)
        self._offset_ms = window_num * window_ms

    def charge(self, amount: float, now_ms: float) -> float:
        """Take `amount` ≥ 0 partitions, into debt if need be; return when all that is owed will be paid.

        Sets `eligible_at_ms`: when what was owed before will be, so that those who wait go one after the
        other.
        """
        self.last_ms = now_ms
        self.charged += amount
        at_ms = int(now_ms) + self._offset_ms
        self.eligible_at_ms = now_ms + self._bucket.throttle_ms(self.rate_per_s, at_ms)
        self._bucket.record(amount, self.rate_per_s, at_ms)
        return now_ms + self._bucket.throttle_ms(self.rate_per_s, at_ms)

    def refund(self, amount: float, now_ms: float) -> None:
        """Give back partitions that were neither created nor deleted after all."""
        self.refunded += amount
        self._bucket.record(-amount, self.rate_per_s, int(now_ms) + self._offset_ms)

    def waive(self, now_ms: float) -> None:
        """End a debt: the bucket is empty now."""
        tokens = self.tokens(now_ms)
        if tokens < 0.0:
            self._bucket.record(tokens, self.rate_per_s, int(now_ms) + self._offset_ms)

    def tokens(self, now_ms: float) -> float:
        """Partitions that may pass at once; negative: partitions owed (0 are no debt: Sensor.checkQuotas)."""
        return self._bucket.measure(self.rate_per_s, int(now_ms) + self._offset_ms)

    def update(self, rate_per_s: float, level: QuotaLevel, now_ms: float) -> None:
        """Go on with another limit: tokens and debt stay, up to what the bucket holds then."""
        self.tokens(now_ms)  # so that the old rate has filled it until now (in Kafka the new one has)
        self.rate_per_s = rate_per_s
        self.level = level

    def __repr__(self) -> str:
        return (
            f"<MutationSensor {self.level.value} {self.entity}: {self.rate_per_s:g}/s, "
            f"charged {self.charged:.0f}, refunded {self.refunded:.0f}>"
        )
