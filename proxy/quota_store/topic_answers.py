"""What one alteration comes to on top of the topic's records, and what became of its own. Pure."""

from __future__ import annotations

from asyncio import Task
from collections.abc import Mapping, Sequence
from typing import Final

from aiokafka.errors import (
    BrokerResponseError,
    ClusterAuthorizationFailedError,
    InvalidTopicError,
    MessageSizeTooLargeError,
    PolicyViolationError,
    RecordListTooLargeError,
    TopicAuthorizationFailedError,
)

from sluice.protocol.apis import ErrorCode
from sluice.proxy.quota_store.client_quotas import Alteration, Outcome, Result, alter, entities_of
from sluice.proxy.quota_store.topic_records import Base, TopicLog
from sluice.proxy.runtime.error_words import reason_of
from sluice.quotas.entity import QuotaEntity

REFUSALS: Final[tuple[type[BrokerResponseError], ...]] = (
    ClusterAuthorizationFailedError,
    InvalidTopicError,
    MessageSizeTooLargeError,
    PolicyViolationError,
    RecordListTooLargeError,
    TopicAuthorizationFailedError,
)
"""answers of a broker that has appended nothing, and of which the producer does not send it again"""


def outcome_of(alterations: Sequence[Alteration], log: TopicLog) -> tuple[Outcome, dict[QuotaEntity, Base]]:
    """What the alterations come to, and on top of which record each entity's is to be written.

    Of the log only the entities are looked at that are asked for: there may be 100,000 others.
    """
    stored = {entity: log.entries[entity] for entity in entities_of(alterations) if entity in log.entries}
    limits = {entity: one.limits for entity, one in stored.items()}
    shadow = {entity: one.shadow for entity, one in stored.items() if one.shadow}
    # Written though it changes nothing here: a record that could not be read yet, or another proxy, may have
    # other limits.
    outcome = alter(limits, alterations, shadow, anew=True)
    return outcome, {entity: log.base_of(entity) for entity in outcome.changes}


def results_of(outcome: Outcome, writing: Mapping[QuotaEntity, Task[None]], unanswered: str) -> list[Result]:
    """The results where not all could be written. `writing`: each change's, at its end. `unanswered`: why it
    is not known of those of which it is not.

    A record whose own answer was a refusal is not there, and one that has come by is. The others were ended
    with the first that failed, wherever they were.
    """
    refused: dict[QuotaEntity, str] = {}
    for entity, task in writing.items():
        error = None if task.cancelled() else task.exception()
        if isinstance(error, REFUSALS):
            refused[entity] = (
                f"Nothing has been changed: the quota topic cannot be written ({reason_of(error)})"
            )
        elif error is not None or task.cancelled():
            refused[entity] = (
                f"It is not known whether this is kept: the quota topic did not answer ({unanswered})"
            )
    return outcome.refused(ErrorCode.REQUEST_TIMED_OUT, refused)
