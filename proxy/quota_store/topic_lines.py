"""Log lines about single records of the quota topic, a few a second at most."""

from __future__ import annotations

from time import monotonic
from typing import Final

from aiokafka import ConsumerRecord

from sluice.proxy.quota_store.topic_headers import Headers
from sluice.proxy.quota_store.topic_records import BadRecord, Outdated
from sluice.proxy.runtime.log import LineBudget, get_logger

_LINES_PER_S: Final = 5

_log = get_logger()


class RecordLines:
    """Tells of the records of one topic that are not in force."""

    def __init__(self) -> None:
        self._bad = LineBudget(_LINES_PER_S)
        self._outdated = LineBudget(_LINES_PER_S)  # apart: neither hides the other

    def skipped(self, record: ConsumerRecord, error: BadRecord) -> None:
        """It is no good."""
        if self._bad.take(monotonic() * 1000.0):
            _log.error(
                "quota_record_skipped",
                topic=record.topic,
                partition=record.partition,
                offset=record.offset,
                about=str(error.entity or "nobody"),
                reason=str(error),
                lines_suppressed=self._bad.suppressed(),
            )

    def passed_over(self, record: ConsumerRecord, headers: Headers, error: Outdated) -> None:
        """Its writer alters again on top of what stands there; if he does not, this line is what is left."""
        if self._outdated.take(monotonic() * 1000.0):
            _log.info(
                "quota_record_outdated",
                topic=record.topic,
                offset=record.offset,
                about=str(error.entity),
                by=headers.by,
                reason=str(error),
                lines_suppressed=self._outdated.suppressed(),
            )
