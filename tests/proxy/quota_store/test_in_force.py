"""When an alteration at the quota topic is answered: when it is in force, or with an error."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import pytest
from structlog.testing import capture_logs

from sluice.proxy.config.quotas import QuotaOptions, QuotaTopicOptions
from sluice.proxy.quota_store.client_quotas import Alteration, Result
from sluice.proxy.quota_store.entities import entity_of
from sluice.proxy.quota_store.source import QuotaSource
from sluice.proxy.quota_store.topic_records import Stored
from sluice.proxy.runtime.supervision import keep_running
from sluice.quotas.entity import QuotaEntity
from sluice.quotas.limits.limits import QuotaLimits

pytestmark = pytest.mark.asyncio
TOPIC = QuotaTopicOptions(bootstrap=("127.0.0.1:1",))


class Changed:
    """A source with a topic that takes whatever it is told."""

    def __init__(self, within_s: float = 60.0, is_to_fail: int = 0) -> None:
        """`within_s`: the topic's request timeout. `is_to_fail`: how often limits cannot be put in force."""
        self.source = QuotaSource(QuotaOptions(source="topic", topic=TOPIC))
        self.limits = cast(Any, self.source.topic)
        self.limits._options = TOPIC.model_copy(update={"request_timeout_s": within_s})
        self.limits.topic.alter = self._alter
        self.left = is_to_fail
        self.is_unchanged = self.is_refused = False
        list(self.source.work(self._apply))

    def _apply(self, _limits: QuotaLimits) -> None:
        if self.left:
            self.left -= 1
            raise MemoryError

    async def _alter(self, asked: Sequence[Alteration], *, validate_only: bool, **_: Any) -> list[Result]:
        for one in () if validate_only or self.is_refused else asked:
            self.limits.topic._log.entries[entity_of(one.parts)] = Stored(cast(Any, dict(one.ops)))
            self.limits._changed()
        return [Result(one.parts, 42 if self.is_refused else 0, None) for one in asked]

    async def alter(self, user: str, rate: float, *, validate_only: bool = False) -> Result:
        asked = [Alteration((("user", user),), (("producer_byte_rate", rate),))]
        (result,) = await self.source.desk.alter(None, asked, validate_only=validate_only)
        return result

    def rate(self, user: str) -> float:
        return self.source.limits.entries[QuotaEntity(user)]["producer_byte_rate"]


async def test_who_alters_is_answered_when_it_is_in_force() -> None:
    changed = Changed()
    task = keep_running(changed.limits._build, "quota_topic_limits", 0.001)
    for rate in (1.0, 2.0):
        assert await changed.alter("alice", rate) == ((("user", "alice"),), 0, None)
        assert changed.rate("alice") == rate
    task.cancel()


async def test_what_is_kept_and_not_in_force_in_time_is_an_error_that_says_so() -> None:
    """It was *done* after 2 s, and whoever asked was told the old limit."""
    changed = Changed(within_s=0.05)
    code, message = (await changed.alter("alice", 1.0))[1:]
    assert code == 7
    assert "kept" in str(message)
    assert "not in force" in str(message)


async def test_who_changes_nothing_waits_for_no_one_elses_change() -> None:
    changed = Changed(within_s=0.05)
    await changed.alter("alice", 1.0)
    changed.limits._options = TOPIC
    assert (await changed.alter("bob", 1.0, validate_only=True)).code == 0
    changed.is_refused = True
    assert (await changed.alter("bob", 1.0)).code == 42


async def test_limits_that_could_not_be_put_in_force_are_tried_again_without_another_change() -> None:
    """The old ones held until somebody changed something, and who had asked was answered *done*."""
    changed = Changed(is_to_fail=3)
    with capture_logs() as lines:
        task = keep_running(changed.limits._build, "quota_topic_limits", 0.001)
        assert (await changed.alter("alice", 1.0)).code == 0
        assert changed.rate("alice") == 1.0
    task.cancel()
    pauses = [line["again_in_s"] for line in lines if line["event"] == "task_failed"]
    assert pauses == [0.001, 0.002, 0.004]


async def test_an_alteration_that_cannot_be_put_in_force_is_no_success() -> None:
    changed = Changed(within_s=0.05, is_to_fail=1_000)
    task = keep_running(changed.limits._build, "quota_topic_limits", 30.0)
    assert (await changed.alter("alice", 1.0)).code == 7
    assert changed.left == 999
    task.cancel()
