"""Kafka's own choice among the eight levels: ClientQuotaManager, as the broker has it, through py4j."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from sluice.quotas.entity import DEFAULT, QuotaEntity
from testkit.kafka.java_machine import java_machine

UNLIMITED: Final = 2**63 - 1
"""what it says where no limit applies"""


class JavaLevels:
    """A broker's quotas for Produce: set and removed as DescribeClientQuotas' entities, asked as a client."""

    def __init__(self, jvm: Any) -> None:
        kafka = jvm.org.apache.kafka
        self._jvm = jvm
        self._optional = jvm.java.util.Optional
        self._quota = kafka.common.metrics.Quota
        self._classes = kafka.server.quota.ClientQuotaManager
        self._metrics = kafka.common.metrics.Metrics()
        self._manager = self._classes(
            kafka.server.config.ClientQuotaManagerConfig(11, 1),
            self._metrics,
            kafka.server.quota.QuotaType.PRODUCE,
            kafka.common.utils.Time.SYSTEM,
            "test",
        )
        self._loopback = jvm.java.net.InetAddress.getLoopbackAddress()
        self._sessions: dict[str, Any] = {}

    def put(self, entity: QuotaEntity, bytes_per_s: int | None) -> None:
        """Set a limit; None removes it."""
        user = client = self._optional.empty()
        if entity.user is DEFAULT:
            user = self._optional.of(self._classes.DEFAULT_USER_ENTITY)
        elif entity.user is not None:
            user = self._optional.of(self._classes.UserEntity(entity.user))
        if entity.client_id is DEFAULT:
            client = self._optional.of(self._classes.DEFAULT_USER_CLIENT_ID)
        elif entity.client_id is not None:
            client = self._optional.of(self._classes.ClientIdEntity(entity.client_id))
        limit = self._optional.empty()
        if bytes_per_s is not None:
            limit = self._optional.of(self._quota.upperBound(float(bytes_per_s)))
        self._manager.updateQuota(user, client, limit)

    def limit(self, user: str, client_id: str) -> float | None:
        """Bytes per second; None: unlimited."""
        bound = float(self._manager.quota(user, client_id).bound())
        return None if bound >= UNLIMITED else bound

    def shared_by(self, user: str, client_id: str) -> QuotaEntity:
        """The tags of the client's metric: who shares its limit. A tag that is empty is None."""
        tags = self._manager.getOrCreateQuotaSensors(self._session(user), client_id).metricTags()
        return QuotaEntity(tags["user"] or None, tags["client-id"] or None)

    def close(self) -> None:
        self._manager.shutdown()
        self._metrics.close()

    def _session(self, user: str) -> Any:
        if user not in self._sessions:
            kafka = self._jvm.org.apache.kafka
            principal = kafka.common.security.auth.KafkaPrincipal("User", user)
            self._sessions[user] = kafka.network.Session(principal, self._loopback)
        return self._sessions[user]


@contextmanager
def java_levels() -> Iterator[JavaLevels]:
    """Start a JVM with Kafka's jars, and end it."""
    with java_machine() as jvm:
        levels = JavaLevels(jvm)
        try:
            yield levels
        finally:
            levels.close()
