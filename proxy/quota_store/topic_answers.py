"""What became of the records of one alteration, as who asked for it is told. Pure."""

from __future__ import annotations

from asyncio import Task
from collections.abc import Mapping
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
from sluice.proxy.quota_store.client_quotas import Outcome, Result
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
