"""Sessions under producer_ids_rate, and requests of transactions that make state for an id."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from sluice.protocol.apis import ApiKey, readable_versions
from sluice.protocol.codec.wire import Struct
from sluice.proxy.session.policy import SessionPolicy, SharedState
from sluice.proxy.session.producer_ids.shared import ProducerIds
from sluice.proxy.session.session import Session
from sluice.quotas.entity import DEFAULT, QuotaEntity
from sluice.quotas.limits.limits import QuotaLimits
from sluice.quotas.manager import QuotaManager
from sluice.quotas.producer_ids.principal import ProducerIdSettings
from sluice.usage.records import Recorder
from testkit.frames.frames import request
from testkit.proxy.playbook import Shell

HOUR_MS = 3_600_000.0
STATE_MAKING = [
    (api_key, version)
    for api_key in (ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.ADD_OFFSETS_TO_TXN, ApiKey.TXN_OFFSET_COMMIT)
    for version in readable_versions(api_key)
]
"""(API, version) of what makes state for an id"""
RETRIED: dict[int, int] = {
    ApiKey.ADD_PARTITIONS_TO_TXN: 51,
    ApiKey.ADD_OFFSETS_TO_TXN: 51,
    ApiKey.TXN_OFFSET_COMMIT: 14,
}
"""the error that a client retries, by API"""


def shells(
    count: int,
    ids_per_hour: float | None = 1.0,
    *,
    settings: ProducerIdSettings | None = None,
    policy: SessionPolicy | None = None,
    handed_out: Iterable[int] = range(10),
) -> list[Shell]:
    """Connections of one user, whose bucket holds one hour of his rate. `handed_out`: new ids that
    they have from their coordinator."""
    settings = settings or ProducerIdSettings(forced_after_ms=HOUR_MS)
    rates = {} if ids_per_hour is None else {"producer_ids_rate": ids_per_hour}
    quotas = QuotaManager(QuotaLimits([(QuotaEntity(DEFAULT, None), {"producer_byte_rate": 10**9, **rates})]))
    shared = SharedState(quotas, Recorder(), producer_ids=ProducerIds(settings))
    for producer_id in handed_out:
        shared.producer_ids.quota.handed_out.admit(producer_id, 0.0)
    return [Shell(Session(shared, policy or SessionPolicy(), "10.0.0.1")) for _ in range(count)]


def adding(
    producer_id: int,
    api_key: int = ApiKey.ADD_PARTITIONS_TO_TXN,
    version: int = 3,
    *,
    partitions: int = 1,
    epoch: int = 0,
    correlation_id: int = 1,
    verify_only: bool = False,
    names: Sequence[str] = ("orders",),
    metadata: str | None = None,
) -> bytes:
    """A request that makes state for a producer id: `partitions` of each topic of these names."""
    producer: Struct = {"transactionalId": "app", "producerId": producer_id, "producerEpoch": epoch}
    indices: list[Any] = list(range(partitions))
    topics: list[Any] = [{"name": name, "partitions": indices} for name in names]
    body: Struct
    if api_key == ApiKey.ADD_OFFSETS_TO_TXN:
        body = {**producer, "groupId": "group"}
    elif api_key == ApiKey.TXN_OFFSET_COMMIT:
        committed: list[Any] = [
            {"partitionIndex": index, "committedOffset": 1, "committedMetadata": metadata}
            for index in indices
        ]
        groups: list[Any] = [{"name": name, "partitions": committed} for name in names]
        body = {**producer, "groupId": "group", "topics": groups}
    elif version >= 4:
        body = {"transactions": [{**producer, "verifyOnly": verify_only, "topics": topics}]}
    else:
        body = {
            "v3AndBelowTransactionalId": "app", "v3AndBelowProducerId": producer_id,
            "v3AndBelowProducerEpoch": epoch, "v3AndBelowTopics": topics,
        }  # fmt: skip
    return request(api_key, version, body, correlation_id=correlation_id)


def admitted(shell: Shell) -> int:
    """Ids, of all users."""
    return sum(principal.admitted for principal in shell.shared.producer_ids.quota.principals())
