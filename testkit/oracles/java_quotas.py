"""Kafka's own quota classes at work, for comparison: ClientQuotaManager, Rate, Avg, TokenBucket; by py4j.

Times are given with each call, so no clock of theirs is asked.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from testkit.kafka.java_machine import java_machine


class JavaQuotaManager:
    """A broker's ClientQuotaManager for Produce: what it would answer to whom, and when."""

    def __init__(self, jvm: Any, window_num: int, window_size_s: int) -> None:
        kafka = jvm.org.apache.kafka
        self._jvm = jvm
        self._quota = kafka.common.metrics.Quota
        self._entity = kafka.server.quota.ClientQuotaManager.UserEntity
        self._metrics = kafka.common.metrics.Metrics()
        self._manager = kafka.server.quota.ClientQuotaManager(
            kafka.server.config.ClientQuotaManagerConfig(window_num, window_size_s),
            self._metrics,
            kafka.server.quota.QuotaType.PRODUCE,
            kafka.common.utils.Time.SYSTEM,
            "test",
        )

    def limit(self, user: str, rate_per_s: float) -> Any:
        """Set the user's limit, or change it. Returns the session to charge."""
        optional = self._jvm.java.util.Optional
        bound = self._quota.upperBound(float(rate_per_s))
        self._manager.updateQuota(optional.of(self._entity(user)), optional.empty(), optional.of(bound))
        kafka = self._jvm.org.apache.kafka
        principal = kafka.common.security.auth.KafkaPrincipal("User", user)
        return kafka.network.Session(principal, self._jvm.java.net.InetAddress.getLoopbackAddress())

    def charge(self, session: Any, amount: float, now_ms: int) -> int:
        """The throttle time in ms."""
        return int(self._manager.recordAndGetThrottleTimeMs(session, "app", float(amount), now_ms))

    def unrecord(self, session: Any, amount: float, now_ms: int) -> None:
        self._manager.unrecordQuotaSensor(session, "app", float(amount), now_ms)

    def fetch_max_bytes(self, session: Any) -> float:
        return float(self._manager.maxValueInQuotaWindow(session, "app"))

    def close(self) -> None:
        self._manager.shutdown()
        self._metrics.close()


class JavaStat:
    """A Rate, an Avg or a TokenBucket with its configuration."""

    def __init__(self, jvm: Any, stat: Any, window_num: int, window_ms: int, quota: float) -> None:
        metrics = jvm.org.apache.kafka.common.metrics
        milliseconds = jvm.java.util.concurrent.TimeUnit.MILLISECONDS
        self._stat = stat
        self._config = (
            metrics.MetricConfig()
            .samples(window_num)
            .timeWindow(window_ms, milliseconds)
            .quota(metrics.Quota.upperBound(float(quota)))
        )

    def record(self, value: float, now_ms: int) -> None:
        self._stat.record(self._config, float(value), now_ms)

    def measure(self, now_ms: int) -> float:
        return float(self._stat.measure(self._config, now_ms))

    def window_size(self, now_ms: int) -> int:
        return int(self._stat.windowSize(self._config, now_ms))


class JavaQuotas:
    """Makes Java's own quota managers."""

    def __init__(self, jvm: Any) -> None:
        self._jvm = jvm
        self._managers: dict[tuple[int, int], JavaQuotaManager] = {}

    def manager(self, window_num: int = 11, window_size_s: int = 1) -> JavaQuotaManager:
        """One for each kind of window; its users are kept apart by their names."""
        key = (window_num, window_size_s)
        if key not in self._managers:
            self._managers[key] = JavaQuotaManager(self._jvm, *key)
        return self._managers[key]

    def rate(self, window_num: int, window_ms: int) -> JavaStat:
        stats = self._jvm.org.apache.kafka.common.metrics.stats
        return JavaStat(self._jvm, stats.Rate(), window_num, window_ms, 1.0)

    def simple_rate(self, window_num: int, window_ms: int) -> JavaStat:
        stats = self._jvm.org.apache.kafka.common.metrics.stats
        return JavaStat(self._jvm, stats.SimpleRate(), window_num, window_ms, 1.0)

    def replication_rate_class(self) -> str:
        """By what class a broker's ReplicationQuotaManager takes its `byte-rate`."""
        kafka = self._jvm.org.apache.kafka
        metrics = kafka.common.metrics.Metrics()
        kind = kafka.server.quota.QuotaType.LEADER_REPLICATION
        manager = self._jvm.kafka.server.ReplicationQuotaManager(
            kafka.server.config.ReplicationQuotaManagerConfig(),
            metrics,
            kind,
            kafka.common.utils.Time.SYSTEM,
        )
        manager.updateQuota(kafka.common.metrics.Quota.upperBound(1e6))
        manager.record(1)
        stat = metrics.metric(metrics.metricName("byte-rate", kind.toString())).measurable()
        metrics.close()
        return str(stat.getClass().getName())

    def average(self, window_num: int, window_ms: int) -> JavaStat:
        stats = self._jvm.org.apache.kafka.common.metrics.stats
        return JavaStat(self._jvm, stats.Avg(), window_num, window_ms, 1.0)

    def token_bucket(self, window_num: int, window_ms: int, quota: float) -> JavaStat:
        stats = self._jvm.org.apache.kafka.common.metrics.stats
        return JavaStat(self._jvm, stats.TokenBucket(), window_num, window_ms, quota)

    def throttle_ms_of_tokens(self, tokens: float, quota: float) -> int:
        """ControllerMutationQuotaManager's delay for a bucket that holds `tokens`."""
        kafka = self._jvm.org.apache.kafka
        stat = kafka.common.metrics.stats.TokenBucket()
        name = kafka.common.MetricName("tokens", "test", "", self._jvm.java.util.HashMap())
        config = kafka.common.metrics.MetricConfig()
        metric = kafka.common.metrics.KafkaMetric(
            self._jvm.java.lang.Object(), name, stat, config, kafka.common.utils.Time.SYSTEM
        )
        violation = kafka.common.metrics.QuotaViolationException(metric, float(tokens), float(quota))
        return int(kafka.server.quota.ControllerMutationQuotaManager.throttleTimeMs(violation))

    def close(self) -> None:
        for manager in self._managers.values():
            manager.close()


@contextmanager
def java_quotas() -> Iterator[JavaQuotas]:
    """Start a JVM with Kafka's jars, and end it."""
    with java_machine() as jvm:
        quotas = JavaQuotas(jvm)
        try:
            yield quotas
        finally:
            quotas.close()
