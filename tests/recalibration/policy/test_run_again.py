"""A date that is run again goes on from its first plan, and cuts nothing that no night may cut."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from sluice.quotas.kinds import QuotaKind
from sluice.recalibration.policy.demand import DayState
from sluice.recalibration.policy.plan import EntityDay, Known, PlanEntry, planned
from sluice.recalibration.policy.policy import Proposal, Reason, gone_on
from sluice.recalibration.policy.settings import PolicySettings
from sluice.recalibration.state.buckets import bucket_of
from sluice.recalibration.state.memory import remembered, write_standings
from testkit.access_log.access_logs import DAY

TO_BASE = Proposal(1_000_000.0, 0.0, Reason.LOG_INCOMPLETE, needs_review=False)


@pytest.mark.parametrize("reason", [Reason.LOG_INCOMPLETE, Reason.TOO_NEW_TO_CUT, Reason.TOO_LITTLE])
def test_what_nothing_may_cut_stays_where_the_first_run_led(reason: Reason) -> None:
    """The first run doubled the limit; the second said that nothing is cut, and cut it to what it was."""
    found = gone_on(replace(TO_BASE, reason=reason), 2_000_000.0, PolicySettings())
    assert (found.limit, found.reason) == (2_000_000.0, reason)


def test_with_rows_missing_nothing_is_cut_whatever_was_said_before() -> None:
    said = replace(TO_BASE, reason=Reason.DEMAND)
    found = gone_on(said, 2_000_000.0, PolicySettings(), is_week_whole=False)
    assert (found.limit, found.reason) == (2_000_000.0, Reason.LOG_INCOMPLETE)
    assert gone_on(said, 2_000_000.0, PolicySettings()).limit == 1_400_000.0


@pytest.mark.parametrize("limit", [20_000, 20_000.0, 2**63 - 1])
@pytest.mark.parametrize("windows", [0, 8_640])
@pytest.mark.parametrize("rate", [1_000, 30_000])
def test_numbers_are_written_alike_by_each_run(limit: float, windows: int, rate: int, tmp_path: Path) -> None:
    """An anchor was 20000 by the quota file, and 20000.0 by what the first run had kept."""
    days = [EntityDay("p1", age, DayState({bucket_of(rate): windows})) for age in range(9) if windows]
    entity = '{"user": "alice"}'

    def run() -> PlanEntry:
        memory = remembered(str(tmp_path), DAY)
        place = "producer_byte_rate", entity
        known = Known(before=memory.before.get(place), again=memory.again.get(place))
        entry = planned(QuotaKind.PRODUCE, entity, limit, days, PolicySettings(), known)
        write_standings(str(tmp_path), DAY, [entry], memory)
        return entry

    first, again = run(), run()
    assert again == first
    assert json.dumps(again.as_json()) == json.dumps(first.as_json())
